"""Hidden states of a target by the transformers library on the CPU, fp32, timed: equal documents in batches, no padding.

Every layer's states are asked for, as extraction does; nothing is written. The last line of the output is JSON.
"""
import argparse
import json
import os
import resource
import time
import warnings

import torch

warnings.filterwarnings("ignore")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a GGUF file (taken to fp32) or a folder")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--document-tokens", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8, help="documents at once")
    parser.add_argument("--passes", type=int, default=2, help="the best counts")
    args = parser.parse_args()
    from transformers import AutoModelForCausalLM

    folder, file = os.path.split(args.model) if args.model.endswith(".gguf") else (args.model, None)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, torch_dtype=torch.float32).eval()
    ids = torch.randint(0, model.config.vocab_size, (args.tokens // args.document_tokens, args.document_tokens),
                        generator=torch.Generator().manual_seed(1))
    best = float("inf")
    with torch.inference_mode():
        for _ in range(args.passes):
            start = time.monotonic()
            for first in range(0, len(ids), args.batch):
                states = model.model(ids[first:first + args.batch], output_hidden_states=True, use_cache=False).hidden_states
                assert len(states) == model.config.num_hidden_layers + 1
            best = min(best, time.monotonic() - start)
    print(json.dumps({"tokens_per_second": ids.numel() / best, "threads": torch.get_num_threads(),
                      "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
