"""Models with latent attention (testdata/golden_targets) as llama.cpp's converter lays them out: architecture deepseek2. Written from what
the converter does; tests/native_extract_test.py has llama.cpp itself read them."""
import json
import struct

import toy_target
from toy_target import BOOL, FLOAT32, STRING, UINT32, pair

LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_a_proj.weight": "attn_q_a.weight", "self_attn.q_a_layernorm.weight": "attn_q_a_norm.weight",
    "self_attn.q_b_proj.weight": "attn_q_b.weight", "self_attn.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
    "self_attn.kv_a_layernorm.weight": "attn_kv_a_norm.weight", "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.shared_experts.gate_proj.weight": "ffn_gate_shexp.weight", "mlp.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_experts.down_proj.weight": "ffn_down_shexp.weight"}


def read_folder(folder):
    with open(f"{folder}/config.json") as file:
        config = json.load(file)
    with open(f"{folder}/model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            assert entry["dtype"] == "F32", entry
            tensors[name] = (entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[begin:end]))
    return config, tensors


def split_kv_b(config, values):
    """Keys turned, [head][narrow][key]; values [head][value][narrow]."""
    heads, narrow = config["num_attention_heads"], config["kv_lora_rank"]
    key, value = config["qk_nope_head_dim"], config["v_head_dim"]
    keys, rest = [], []
    for h in range(heads):
        rows = [values[((h * (key + value)) + r) * narrow:((h * (key + value)) + r + 1) * narrow] for r in range(key + value)]
        keys += [rows[i][n] for n in range(narrow) for i in range(key)]
        rest += [x for row in rows[key:] for x in row]
    return ([heads, narrow, key], keys), ([heads, value, narrow], rest)


def tensors_of(config, tensors, whole_kv_b):
    out = {"token_embd.weight": tensors["model.embed_tokens.weight"], "output_norm.weight": tensors["model.norm.weight"],
           "output.weight": tensors["lm_head.weight"]}
    for layer in range(config["num_hidden_layers"]):
        ours, theirs = f"model.layers.{layer}.", f"blk.{layer}."
        for name, stored in LAYER_NAMES.items():
            if ours + name in tensors:
                out[theirs + stored] = tensors[ours + name]
        kv_b = tensors[ours + "self_attn.kv_b_proj.weight"]
        if whole_kv_b:
            out[theirs + "attn_kv_b.weight"] = kv_b
        else:
            out[theirs + "attn_k_b.weight"], out[theirs + "attn_v_b.weight"] = split_kv_b(config, kv_b[1])
        if ours + "mlp.gate.weight" not in tensors:
            continue
        for part in ("gate", "up", "down"):
            experts = [tensors[f"{ours}mlp.experts.{e}.{part}_proj.weight"] for e in range(config["n_routed_experts"])]
            out[f"{theirs}ffn_{part}_exps.weight"] = ([len(experts), *experts[0][0]], [x for _, values in experts for x in values])
    return out


def metadata(config, whole_kv_b):
    narrow, rope = config["kv_lora_rank"], config["rope_parameters"]
    key, value = config["qk_nope_head_dim"] + config["qk_rope_head_dim"], config["v_head_dim"]
    numbers = {"block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
               "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
               "attention.head_count": config["num_attention_heads"],
               "attention.head_count_kv": config["num_attention_heads"] if whole_kv_b else 1,
               "leading_dense_block_count": config["first_k_dense_replace"], "vocab_size": config["vocab_size"],
               "attention.q_lora_rank": config["q_lora_rank"], "attention.kv_lora_rank": narrow,
               "attention.key_length": key if whole_kv_b else narrow + config["qk_rope_head_dim"],
               "attention.value_length": value if whole_kv_b else narrow,
               "rope.dimension_count": config["qk_rope_head_dim"], "expert_feed_forward_length": config["moe_intermediate_size"],
               "expert_count": config["n_routed_experts"], "expert_used_count": config["num_experts_per_tok"],
               "expert_shared_count": config["n_shared_experts"], "expert_group_count": config["n_group"],
               "expert_group_used_count": config["topk_group"], "expert_gating_func": 2}
    if not whole_kv_b:
        numbers.update({"attention.key_length_mla": key, "attention.value_length_mla": value})
    floats = {"attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": rope["rope_theta"],
              "expert_weights_scale": config["routed_scaling_factor"]}
    pairs = [pair("general.architecture", STRING, "deepseek2"), pair("general.name", STRING, "latent"),
             pair("tokenizer.ggml.model", STRING, "no_vocab"), pair("deepseek2.expert_weights_norm", BOOL, True)]
    if rope["rope_type"] == "yarn":
        numbers["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        floats.update({"rope.scaling.factor": rope["factor"], "rope.scaling.yarn_log_multiplier": 0.1 * rope["mscale_all_dim"],
                       "rope.scaling.yarn_beta_fast": rope["beta_fast"], "rope.scaling.yarn_beta_slow": rope["beta_slow"]})
        pairs.append(pair("deepseek2.rope.scaling.type", STRING, "yarn"))
    return pairs + [pair(f"deepseek2.{k}", UINT32, v) for k, v in numbers.items()] + [pair(f"deepseek2.{k}", FLOAT32, v) for k, v in floats.items()]


def write(folder, path, whole_kv_b=False):
    """whole_kv_b: as converters wrote it until 2025."""
    config, tensors = read_folder(folder)
    toy_target.write_gguf(path, metadata(config, whole_kv_b), tensors_of(config, tensors, whole_kv_b))
    return config
