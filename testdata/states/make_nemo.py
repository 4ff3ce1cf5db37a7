"""A NeMo Automodel cache of the truth beside it (needs torch and safetensors; not run by the tests).

python3 make_nemo.py        made nemo/ and nemo_topk/ with torch 2.14.1, safetensors 0.8, 30 November 2026.

Samples are padded to one length; ids, mask and probabilities are shifted left by one (place t tells of token t + 1), captured states
are not. The probabilities are those of a draft vocabulary of 40 ids, in the order that NeMo stores: not sorted.
"""
import json
import os
import shutil

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
LENGTH, EPS = 16, 1e-6


def shifted(x):
    return torch.cat((x[1:], torch.zeros_like(x[:1])))


def main():
    truth = load_file(os.path.join(HERE, "truth.safetensors"))
    with safe_open(os.path.join(HERE, "target", "model.safetensors"), "pt") as file:
        head, norm = file.get_tensor("lm_head.weight").float(), file.get_tensor("model.norm.weight").float()
    selected = [61, 60, 63] + [v for v in range(64) if v % 3 != 1 and v < 56][:37]
    with open(os.path.join(HERE, "conversations.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    samples = []
    for i in (2, 0, 1):  # shuffled
        ids, mask = torch.tensor(rows[i]["input_ids"]), torch.tensor(rows[i]["loss_mask"])
        states = truth[f"states.{i}"]
        last = states[:, 8].float()
        logits = (last * torch.rsqrt(last.pow(2).mean(-1, keepdim=True) + EPS) * norm) @ head.t()

        def padded(x):
            whole = torch.zeros((LENGTH,) + tuple(x.shape[1:]), dtype=x.dtype)
            whole[:len(x)] = x
            return whole

        logits = shifted(padded(logits))
        probs = torch.softmax(logits[:, selected], -1)
        inside = torch.isin(logits.argmax(-1), torch.tensor(selected))
        loss_mask = shifted(padded(mask))
        samples.append({"input_ids": shifted(padded(ids)), "attention_mask": padded(torch.ones_like(ids)), "loss_mask": loss_mask,
                        "aux_hidden_states": padded(states[:, [2, 4, 5]].flatten(1)),
                        "position_mask": (inside & loss_mask.bool())[:, None], "target_probs": probs.bfloat16()})
    manifest = {"format_version": 2, "target_model": "toy", "target_vocab_size": 64, "draft_vocab_size": 40, "seq_length": LENGTH,
                "dtype": "bfloat16", "num_samples": 3, "shard_size": 2, "target_probs_topk": 0, "aux_hidden_dim": 24,
                "aux_layer_ids": [1, 3, 4], "selected_token_ids": selected, "input_data": "rows", "split": "train", "shuffle_seed": 42}
    for name, topk in (("nemo", 0), ("nemo_topk", 8)):
        path = os.path.join(HERE, name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        for first in (0, 2):
            stacked = {key: torch.stack([s[key] for s in samples[first:first + 2]]).contiguous() for key in samples[0]}
            if topk:
                values, indices = stacked.pop("target_probs").topk(topk, -1)
                stacked.update(target_probs_values=values.contiguous(), target_probs_indices=indices.int().contiguous())
            save_file(stacked, os.path.join(path, f"shard-{first // 2:06d}.safetensors"))
        with open(os.path.join(path, "manifest.json"), "w", encoding="utf-8") as file:
            json.dump({**manifest, "target_probs_topk": topk}, file)


if __name__ == "__main__":
    main()
