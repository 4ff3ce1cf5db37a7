#!/usr/bin/env python3
"""Our tokenizer against the tokenizers library (tiktoken for tiktoken.model): ids of many texts, then the speed of both, in one run.

Usage: tokenizer_peer.py build/release/bin/tokenizer_ids FOLDER [--texts FILE] [--random N] [--time TEXTFILE REPEATS]
  --texts FILE    each line is a text          --random N    N made-up texts of all code points, runs, spaces and special tokens
needs: pip install tokenizers==0.23.3
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # speed is told per core
from tokenizers import Tokenizer  # noqa: E402

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ASSIGNED = [c for c in POINTS if c < 0x323B0 or 0xE0000 <= c < 0xE0200]
SPACES = " \t\n\r\u00a0\u2003\u3000\u2028\x85\x0b\x0c\u180e\u200b"
ASCII = "".join(map(chr, range(32, 127)))


def made_up(rng, special, words):
    parts = []
    for _ in range(rng.randrange(1, 30)):
        kind = rng.randrange(9)
        if kind == 0:
            parts.append("".join(chr(rng.choice(POINTS)) for _ in range(rng.randrange(1, 8))))
        elif kind == 1:
            parts.append("".join(rng.choice(SPACES) for _ in range(rng.randrange(1, 6))))
        elif kind == 2 and special:
            parts.append(rng.choice(special))
        elif kind == 3:  # neighbours: mostly one script, with its marks
            start = rng.choice(ASSIGNED)
            parts.append("".join(chr(c) for c in (start + rng.randrange(40) for _ in range(rng.randrange(1, 12))) if c in range(0xD800) or c in range(0xE000, 0x110000)))
        elif kind == 4:
            parts.append(rng.choice(ASCII) * rng.randrange(1, 9))
        elif kind == 5:
            parts.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
        elif kind == 6:
            parts.append("".join(chr(rng.choice((rng.randrange(0x300, 0x370), rng.randrange(0x41, 0x7B), rng.randrange(0x3130, 0x3190)))) for _ in range(6)))
        else:
            parts.append(rng.choice(words) if words else "".join(rng.choice(ASCII) for _ in range(7)))
        if rng.randrange(2):
            parts.append(" ")
    return "".join(parts)


def compare(program, folder, encode, texts):
    lines = "".join(json.dumps(t) + "\n" for t in texts)
    out = subprocess.run([program, folder], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    wrong = tokens = 0
    for text, line in zip(texts, out, strict=True):
        want, got = encode(text), json.loads(line)
        tokens += len(want)
        if want != got:
            wrong += 1
            if wrong <= 5:
                at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
                print(f"differs at token {at}: {want[at:at + 8]} ours {got[at:at + 8]} in {ascii(text)}")
    print(f"{len(texts)} texts, {tokens} tokens, {wrong} texts differ")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--texts")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--time", nargs=2)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(f"{args.folder}/tokenizer.json")
    special = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    texts = []
    if args.texts:
        with open(args.texts, encoding="utf-8", newline="\n") as file:
            texts = file.read().split("\n")
    words = [w for t in texts[:2000] for w in t.split(" ")[:20]]
    rng = random.Random(1)
    texts += [made_up(rng, special, words) for _ in range(args.random)]
    wrong = compare(args.program, args.folder, lambda t: tokenizer.encode(t, add_special_tokens=False).ids, texts)
    if args.time:
        with open(args.time[0], encoding="utf-8", newline="\n") as file:
            lines = file.read().split("\n")
        for _ in range(2):  # in turn, so that both see the same machine
            print("ours     ", subprocess.run([args.program, args.folder, "--time", *args.time], stdout=subprocess.PIPE, check=True).stdout.decode().strip().replace("\n", ", "))
            tokens, start = 0, time.process_time()
            for _ in range(int(args.time[1])):
                for batch in (lines[i:i + 1000] for i in range(0, len(lines), 1000)):
                    tokens += sum(len(e.ids) for e in tokenizer.encode_batch_fast(batch, add_special_tokens=False))
            seconds = time.process_time() - start  # of all threads
            print(f"tokenizers {tokens} tokens {seconds:.3f} s {tokens / seconds:.0f} tokens/s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
