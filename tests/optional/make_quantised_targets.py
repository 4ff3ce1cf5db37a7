#!/usr/bin/env python3
"""Makes testdata/quantised_targets: tiny targets with quantised weights, and what transformers computes from them.

  python3 tests/optional/make_quantised_targets.py            (needs torch, transformers, safetensors, compressed-tensors)

Each folder starts from one of testdata/golden_targets. Its matrices are quantised (whole numbers are packed by the
compressed-tensors library itself), taken back to fp32, and a forward of transformers with those gives expected.safetensors,
of the same form as the golden targets'.
"""
import json
import os
import shutil

import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = f"{ROOT}/testdata/quantised_targets"


def int_group(weight, bits, group, symmetric, scale_dtype):
    """Stored tensors and the values they stand for."""
    rows, columns = weight.shape
    group = group or columns
    parts = weight.reshape(rows, columns // group, group)
    top, low = 2 ** (bits - 1) - 1, -(2 ** (bits - 1))
    if symmetric:
        scale = (parts.abs().amax(-1) / top).to(scale_dtype)
        zero = torch.zeros_like(scale, dtype=torch.int8)
    else:
        least, most = parts.amin(-1).clamp(max=0), parts.amax(-1).clamp(min=0)
        scale = ((most - least) / (top - low)).to(scale_dtype)
        zero = (low - least / scale.float()).round().clamp(low, top).to(torch.int8)
    number = (parts / scale.float().unsqueeze(-1) + zero.unsqueeze(-1)).round().clamp(low, top)
    value = (number - zero.unsqueeze(-1)) * scale.float().unsqueeze(-1)
    stored = {"weight_packed": pack_to_int32(number.reshape(rows, columns).to(torch.int8), bits), "weight_scale": scale,
              "weight_shape": torch.tensor([rows, columns])}
    if not symmetric:
        stored["weight_zero_point"] = pack_to_int32(zero, bits, packed_dim=0)
    return stored, value.reshape(rows, columns)


def fp8(weight, block, scale_name):
    rows, columns = weight.shape
    down, across = (rows + block[0] - 1) // block[0], (columns + block[1] - 1) // block[1]
    scale = torch.zeros(down, across)
    for i in range(down):
        for j in range(across):
            part = weight[i * block[0]:(i + 1) * block[0], j * block[1]:(j + 1) * block[1]]
            scale[i, j] = part.abs().max() / 448
    wide = scale.repeat_interleave(block[0], 0)[:rows].repeat_interleave(block[1], 1)[:, :columns]
    stored = (weight / wide).to(torch.float8_e4m3fn)
    return {"weight": stored, scale_name: scale}, stored.float() * wide


def compressed(form, weights):
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
            "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def linear(name):
    return name.endswith("_proj.weight") or name.endswith("_proj_with_mqa.weight")


CASES = {
    # as Kimi-K2.5: only the experts, groups, bf16 scales, a text part below language_model.
    "kimi_int4_experts": ("kimi_k2_like", lambda n: ".mlp.experts." in n,
                          lambda w: int_group(w, 4, 16, True, torch.bfloat16),
                          compressed("pack-quantized", {"num_bits": 4, "type": "int", "symmetric": True,
                                                        "strategy": "group", "group_size": 16}), True),
    "llama_int4_zero_points": ("llama3_rope", linear, lambda w: int_group(w, 4, 16, False, torch.float32),
                               compressed("pack-quantized", {"num_bits": 4, "type": "int", "symmetric": False,
                                                             "strategy": "group", "group_size": 16}), False),
    # as DeepSeek-V3, blocks that do not divide the matrices
    "deepseek_fp8_blocks": ("deepseek_v3", linear, lambda w: fp8(w, (12, 20), "weight_scale_inv"),
                            {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                             "weight_block_size": [12, 20]}, False),
    "qwen3_fp8_rows": ("qwen3", linear, lambda w: fp8(w, (1, w.shape[1]), "weight_scale"),
                       compressed("float-quantized", {"num_bits": 8, "type": "float", "symmetric": True,
                                                      "strategy": "channel"}), False),
}


def expected(folder, ids):
    model = AutoModelForCausalLM.from_pretrained(folder, config=AutoConfig.from_pretrained(folder),
                                                 torch_dtype=torch.float32, attn_implementation="eager").eval()
    last = {}
    model.model.norm.register_forward_pre_hook(lambda module, inputs: last.update(x=inputs[0].detach().clone()))
    with torch.no_grad():
        out = model(ids, output_hidden_states=True)
    tensors = {"in.input_ids": ids, "out.logits": out.logits, "out.last_hidden_pre_norm": last["x"]}
    for layer in range(model.config.num_hidden_layers):
        tensors[f"out.layer_input_{layer}"] = out.hidden_states[layer]
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def main():
    for name, (base, chosen, quantise, config, below) in CASES.items():
        folder, plain = f"{OUT}/{name}", f"{OUT}/{name}.plain"
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        shutil.copytree(f"{ROOT}/testdata/golden_targets/{base}", plain, dirs_exist_ok=True)
        for file in os.listdir(plain):
            os.chmod(f"{plain}/{file}", 0o644)
        weights = load_file(f"{plain}/model.safetensors")
        stored, taken_back = {}, {}
        for tensor, value in weights.items():
            prefix = "language_model." if below else ""
            if not chosen(tensor):
                stored[prefix + tensor], taken_back[tensor] = value, value
                continue
            parts, taken_back[tensor] = quantise(value.float())
            stored.update({prefix + tensor[:-len("weight")] + part: t.contiguous() for part, t in parts.items()})
        ids = load_file(f"{plain}/expected.safetensors")["in.input_ids"]
        save_file(taken_back, f"{plain}/model.safetensors", {"format": "pt"})
        save_file(expected(plain, ids), f"{folder}/expected.safetensors")
        save_file(stored, f"{folder}/model.safetensors", {"format": "pt"})
        text = json.load(open(f"{plain}/config.json"))
        text["quantization_config"] = config
        with open(f"{folder}/config.json", "w") as file:
            json.dump({"model_type": "kimi_k25", "text_config": text} if below else text, file, indent=1)
        shutil.rmtree(plain)
        print(name, sum(os.path.getsize(f"{folder}/{f}") for f in os.listdir(folder)), "bytes")


if __name__ == "__main__":
    main()
