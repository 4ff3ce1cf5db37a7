"""Makes the fixtures of this folder with the transformers library: the states of two real conversations.

    python3 make_states.py MODEL.gguf smollm2_conversations.jsonl OUT_DIR

MODEL.gguf is dequantised by transformers to fp32. For each document the residual stream after 2, 15 and 27 layers
(hidden_states[k]) and the input of the final norm are kept, cut to 50 tokens, as float16.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

LAYERS = [2, 15, 27]
TOKENS = 50


def main():
    model_path, conversations_path, out_dir = sys.argv[1:4]
    folder, file = os.path.split(os.path.abspath(model_path))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    model.eval()
    with open(conversations_path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines][:2]
    for row in rows:
        ids = (row["prompt_ids"] + row["response_ids"])[:TOKENS + 10]
        kept = {}
        hook = model.model.norm.register_forward_pre_hook(lambda _, args: kept.update(last=args[0]))
        with torch.no_grad():
            out = model.model(torch.tensor([ids]), output_hidden_states=True)
        hook.remove()
        tensors = {"input_ids": torch.tensor(ids[:TOKENS], dtype=torch.int32)}
        for layer in LAYERS:
            tensors[f"state_{layer}"] = out.hidden_states[layer][0, :TOKENS].to(torch.float16).contiguous()
        tensors["state_last"] = kept["last"][0, :TOKENS].to(torch.float16).contiguous()
        save_file(tensors, f"{out_dir}/{row['id']}.safetensors", metadata={"id": row["id"], "tokens": str(TOKENS)})


main()
