#!/usr/bin/env python3
"""What a training step costs as one size grows: drafting steps, vocabulary, tokens, documents. Writes one picture and prints a table.

Usage: bench/cost_plots.py [--eaglet PATH] [--output docs/images/training-cost.svg] [--steps N] [--compute-type auto|f32|bf16]

Each point is `eaglet bench train --shape smollm2` with one size changed; the best of N steps counts.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PANELS = [
    ("drafting steps K", "--ttt-steps", [1, 2, 3, 5, 8, 12, 16]),
    ("draft vocabulary Vd", "--draft-vocab-size", [4096, 8192, 16384, 32768, 49152]),
    ("tokens T (4 documents)", "--max-seq-len", [512, 1024, 2048, 4096, 8192]),
    ("documents in 2048 tokens", "--documents", [1, 2, 4, 8, 16, 32, 64]),
]


def measure(args, flag, value):
    command = [args.eaglet, "bench", "train", "--shape", "smollm2", "--steps", str(args.steps), "--compute-type", args.compute_type,
               flag, str(value), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def text(x, y, words, anchor="middle", size=11, color="#222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}">{words}</text>'


def line(points, color):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>' for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>{dots}'


def panel(left, top, title, values, results):
    width, height = 300, 170
    seconds = [result["step_seconds"] for result in results]
    memory = [result["peak_rss_bytes"] / 1e9 for result in results]
    most_x, most_s, most_m = max(values), max(seconds), max(memory)

    def at(value, number, most):
        return left + width * value / most_x, top + height - height * number / (1.1 * most)

    parts = [f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#bbb"/>',
             text(left + width / 2, top - 8, title, size=12),
             text(left, top + height + 16, "0", size=10), text(left + width, top + height + 16, f"{most_x}", size=10),
             text(left - 4, top + 12, f"{1.1 * most_s:.2f} s", "end", 10, "#1559a8"),
             text(left + width + 4, top + 12, f"{1.1 * most_m:.2f} GB", "start", 10, "#b4521a"),
             line([at(v, s, most_s) for v, s in zip(values, seconds)], "#1559a8"),
             line([at(v, m, most_m) for v, m in zip(values, memory)], "#b4521a")]
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eaglet", default=f"{ROOT}/build/release/bin/eaglet")
    parser.add_argument("--output", default=f"{ROOT}/docs/images/training-cost.svg")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--compute-type", default="auto")
    args = parser.parse_args()
    parts = []
    for number, (title, flag, values) in enumerate(PANELS):
        results = []
        for value in values:
            print(f"{title}: {value}", file=sys.stderr, flush=True)
            results.append(measure(args, flag, value))
        parts.append(panel(70 + 430 * (number % 2), 40 + 240 * (number // 2), title, values, results))
        print(f"\n| {title} | seconds a step | tokens/s | GFLOP a token | peak memory |\n|---|---|---|---|---|")
        for value, result in zip(values, results):
            print(f"| {value} | {result['step_seconds']:.3f} | {result['tokens_per_second']:.0f} | "
                  f"{result['needed_gflop_per_token']:.3f} | {result['peak_rss_bytes'] / 1e9:.2f} GB |")
    legend = text(70, 512, "blue: seconds a step; brown: peak memory of the process. Both axes begin at 0.", "start")
    picture = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 525" font-family="sans-serif">'
               f'<rect width="880" height="525" fill="white"/>{"".join(parts)}{legend}</svg>\n')
    os.makedirs(os.path.dirname(args.output), exist_ok=True)
    with open(args.output + ".tmp", "w", encoding="utf-8") as file:
        file.write(picture)
    os.replace(args.output + ".tmp", args.output)
    print(f"\npicture: {args.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
