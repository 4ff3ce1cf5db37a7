"""Training steps of speculators' own EAGLE-3 draft model on the CPU, timed: forward, backward, clip, AdamW.

No data loading is in the time, the attention is the only one of theirs with a CPU backward ("eager"), the numbers are fp32 (their
fastest setting on CPUs without AMX). The last line of the output is JSON.
"""
import argparse
import json
import resource
import time
import warnings

import torch

warnings.filterwarnings("ignore")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("hidden", 576), ("heads", 9), ("kv-heads", 3), ("head-dim", 64), ("intermediate", 1536), ("vocab", 49152),
                        ("draft-vocab", 16384), ("rows", 2048), ("ttt-steps", 3), ("documents", 4), ("steps", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--unsupervised", type=float, default=0.4, help="share of each document, from its start")
    parser.add_argument("--train-head", action="store_true")
    return parser.parse_args()


def make_model(args):
    from speculators.models.eagle3 import Eagle3SpeculatorConfig
    from speculators.models.eagle3.core import Eagle3DraftModel
    from transformers import LlamaConfig

    layer = LlamaConfig(hidden_size=args.hidden, num_attention_heads=args.heads, num_key_value_heads=args.kv_heads,
                        head_dim=args.head_dim, intermediate_size=args.intermediate, vocab_size=args.vocab,
                        num_hidden_layers=1, rms_norm_eps=1e-5, max_position_embeddings=8192)
    layer._attn_implementation = "eager"
    model = Eagle3DraftModel(Eagle3SpeculatorConfig(transformer_layer_config=layer, draft_vocab_size=args.draft_vocab,
                                                    eagle_aux_hidden_state_layer_ids=[2, 15, 27]))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.isnan().any():
                parameter.normal_(0, 0.02)
    model.lm_head.weight.requires_grad_(args.train_head)
    return model


def make_batch(args):
    rows, length = args.rows, args.rows // args.documents
    place = torch.arange(rows) % length
    return {
        "hidden_states": torch.randn(1, rows, 3 * args.hidden),
        "verifier_last_hidden_states": torch.randn(1, rows, args.hidden),
        "input_ids": torch.randint(0, args.vocab, (1, rows)),
        "document_ids": (torch.arange(rows) // length).view(1, rows),
        "loss_mask": (place >= int(length * args.unsupervised)).view(1, rows),
        "position_ids": (1 + place).view(1, rows),
    }


def main():
    args = arguments()
    torch.manual_seed(0)
    from speculators.losses import resolve_loss_config

    model, batch = make_model(args), make_batch(args)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    loss_config = resolve_loss_config("kl_div", "eager")
    best = float("inf")
    for step in range(args.steps + 1):
        begin = time.perf_counter()
        _, loss, _ = model.forward(**batch, ttt_steps=args.ttt_steps, loss_config=loss_config)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds = time.perf_counter() - begin
        print(f"step {step}: {seconds:.2f} s, {args.rows / seconds:.0f} tokens/s", flush=True)
        if step > 0:
            best = min(best, seconds)
    print(json.dumps({"tokens_per_second": args.rows / best, "threads": torch.get_num_threads(),
                      "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
