"""Greedy answers of the native engine (fp32) against the transformers library on the dequantised weights: every token must be the library's
best after the tokens before it, which is the same as equal greedy answers, in one pass a prompt. Where it is not, both logits are shown:
only a tie within rounding may fall the other way.

    python tests/optional/native_greedy_peer.py build/release/bin/eaglet TARGET.gguf recipes/sample-prompts.jsonl [PROMPTS]
needs torch, transformers, accelerate and gguf."""
import json
import os
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

TIE = 1e-3  # of two logits


def main():
    eaglet, model_path, prompts = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 50
    with tempfile.TemporaryDirectory() as root:
        subprocess.run([eaglet, "generate", "--engine", "native", "--compute-type", "f32", "--model", model_path, "--prompts", prompts, "--max-prompts", str(count),
                        "--max-tokens", "128", "--output", f"{root}/c.jsonl"], check=True)
        with open(f"{root}/c.jsonl", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    folder, name = os.path.split(os.path.abspath(model_path))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    tokens = ties = 0
    worst = 0.0
    for row in rows:
        ids, start = row["input_ids"], row["loss_mask"].index(1)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
        for at in range(start, len(ids)):
            tokens += 1
            best = int(logits[at - 1].argmax())
            if best == ids[at]:
                continue
            gap = float(logits[at - 1, best] - logits[at - 1, ids[at]])
            ties, worst = ties + 1, max(worst, gap)
            print(f"{row['id']} token {at - start}: the library's best is {best} ({float(logits[at - 1, best]):.6f}), ours {ids[at]} ({gap:.2g} below)")
    print(f"{len(rows)} answers, {tokens} tokens: {tokens - ties} are the library's best, {ties} ties (largest gap {worst:.2g})")
    return 0 if len(rows) == count and worst < TIE else 1


if __name__ == "__main__":
    sys.exit(main())
