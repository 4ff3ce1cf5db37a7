"""Hidden states of three tiny documents as five tools write them (needs torch and safetensors; not run by the tests).

python3 make_states.py      made the files beside it with torch 2.14.1, safetensors 0.8, seed 7.

One truth: a target of 8 layers, width 8, 64 tokens; all nine places of its residual stream, its final norm. Every folder
is that truth in another tool's clothes, so that whatever is taken in can be compared with `truth.safetensors`.
"""
import collections
import gzip
import json
import os
import shutil

import torch
from safetensors.torch import save_file

LAYERS, WIDTH, VOCAB, EPS = 8, 8, 64, 1e-6
LENGTHS = [9, 7, 12]
HERE = os.path.dirname(os.path.abspath(__file__))


def folder(name):
    path = os.path.join(HERE, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def main():
    torch.manual_seed(7)
    norm = (torch.rand(WIDTH) * 2 + 0.25).bfloat16()
    documents = []
    for i, length in enumerate(LENGTHS):
        ids = torch.randint(0, VOCAB, (length,))
        mask = torch.zeros(length, dtype=torch.int64)
        mask[3 + i:] = 1
        documents.append((ids, mask, (torch.randn(length, LAYERS + 1, WIDTH) * 3).bfloat16()))

    def post_norm(last):  # what transformers hands out as the last hidden state
        x = last.float()
        return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * norm.float()).bfloat16()

    truth = {"norm": norm}
    for i, (ids, mask, states) in enumerate(documents):
        truth[f"states.{i}"] = states
    save_file(truth, os.path.join(HERE, "truth.safetensors"))
    with open(os.path.join(HERE, "conversations.jsonl"), "w", encoding="utf-8") as file:
        for i, (ids, mask, _) in enumerate(documents):
            file.write(json.dumps({"id": f"c{i}", "input_ids": ids.tolist(), "loss_mask": mask.tolist(),
                                   "finish_reason": "stop"}) + "\n")

    vllm, fp8, old, research = folder("vllm"), folder("vllm_fp8"), folder("speculators_v1"), folder("speculators_v0")
    specforge, modelopt, nemo = folder("specforge"), folder("modelopt_hf"), folder("nemo")
    os.makedirs(os.path.join(specforge, "rows_0-2000"))
    for i, (ids, mask, states) in enumerate(documents):
        kept = states[:, [2, 4, 5, 8]].contiguous()
        name = f"hs_{i}" if i < 2 else "cmpl-83d1f0"  # speculators names rows, vLLM requests
        save_file({"hidden_states": kept, "token_ids": ids}, os.path.join(vllm, name + ".safetensors"))
        scale = kept.float().abs().amax((1, 2), keepdim=True).clamp(min=1e-12) / 448
        save_file({"hidden_states": (kept.float() / scale).to(torch.float8_e4m3fn), "hidden_states_scales": scale,
                   "token_ids": ids}, os.path.join(fp8, name + ".safetensors"))
        # after layers 2, n/2, n-3 and n-1, counted from 0
        torch.save({"input_ids": ids, "hidden_states": [states[:, k + 1].clone() for k in (2, 4, 5, 7)],
                    "loss_mask": mask}, os.path.join(old, f"data_{i}.pt"))
        torch.save({"input_ids": ids, "loss_mask": mask, "hidden_state": states[:, [3, 5, 6]].flatten(1),
                    "target": post_norm(states[:, 8])}, os.path.join(research, f"data_{i}.pt"))
        # outputs of layers 1, n/2-1, n-4; with a batch axis
        aux = states[:, [2, 4, 5]].flatten(1)
        row = {"input_ids": ids, "loss_mask": mask, "hidden_state": post_norm(states[:, 8])[None],
               "aux_hidden_state": aux[None]}
        path = os.path.join(specforge, "rows_0-2000", f"data_{i}.ckpt")
        if i == 2:
            with gzip.GzipFile(path + ".gz", "wb", compresslevel=6, mtime=0) as file:
                torch.save(row, file)
        else:
            torch.save(row, path)
        torch.save({"input_ids": ids, "hidden_states": post_norm(states[:, 8]), "aux_hidden_states": aux,
                    "loss_mask": mask, "conversation_id": f"c{i}"}, os.path.join(modelopt, f"c{i}.pt"))
    with open(os.path.join(old, "data_config.json"), "w", encoding="utf-8") as file:
        json.dump({"version": "2.0", "hidden_states": {"layer_ids": [2, 4, 5, 7]},
                   "format": {"file_pattern": "data_{idx}.pt"}}, file)
    with open(os.path.join(nemo, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump({"format_version": 2, "target_model": "toy", "num_samples": 3, "target_probs_topk": 0,
                   "aux_layer_ids": [1, 3, 4]}, file)

    target = folder("target")
    save_file({"model.embed_tokens.weight": torch.randn(VOCAB, WIDTH).bfloat16(),
               "lm_head.weight": torch.randn(VOCAB, WIDTH).bfloat16(), "model.norm.weight": norm},
              os.path.join(target, "model.safetensors"))
    with open(os.path.join(target, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH,
                   "num_hidden_layers": LAYERS, "vocab_size": VOCAB, "num_attention_heads": 2,
                   "num_key_value_heads": 1, "head_dim": 4, "rms_norm_eps": EPS, "tie_word_embeddings": False,
                   "eos_token_id": 61}, file)

    values = folder("values")
    torch.save({5: 3, 2: 40, 63: 1}, os.path.join(values, "token_freq.pt"))
    torch.save(collections.Counter({5: 3, 2: 40, 63: 1}), os.path.join(values, "counter.pt"))
    torch.save({"d2t": torch.tensor([2, 4, 60]), "t2d": torch.tensor([v in (2, 5, 62) for v in range(VOCAB)])},
               os.path.join(values, "vocab_mapping.pt"))
    torch.save([2, 5, 62], os.path.join(values, "hot_tokens.pt"))
    torch.save(torch.tensor([62, 2, 5]), os.path.join(values, "token_map.pt"))
    torch.save({"whole": torch.arange(12).reshape(3, 4), "columns": torch.arange(12).reshape(3, 4).t()[1:3],
                "half": torch.tensor([0.5, -2.0]).half(), "byte": torch.tensor([1, 255], dtype=torch.uint8),
                "e4m3": torch.tensor([1.0, -448.0]).to(torch.float8_e4m3fn), "scalar": torch.tensor(3.5),
                "none": None, "yes": True, "large": 2**40, "small": -3, "text": "a", "pair": (1, 2.5)},
               os.path.join(values, "mixed.pt"))
    torch.save(torch.nn.Linear(2, 1, bias=False).state_dict(), os.path.join(values, "state_dict.pt"))
    torch.save(torch.nn.Linear(2, 1), os.path.join(values, "module.pt"))  # code: must be refused
    torch.save(torch.arange(3), os.path.join(values, "old_form.pt"), _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    main()
