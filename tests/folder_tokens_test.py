"""A transformers folder with nothing but its own files: the tokenizer of the sample model, written as a tokenizer.json, gives the rows and the
hash that the GGUF gives; a tiny model goes from prompts to an exported draft; tokenizers that do not belong to their model are refused by name."""
import json
import os
import random
import shutil
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from native_extract_test import SOURCE, must, refused, run

FAMILIES = f"{SOURCE}/testdata/tokenizers"
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
CONTROL = 3


class Gguf:
    """The keys of a GGUF file."""

    def __init__(self, path):
        self.keys = {}
        with open(path, "rb") as self.file:
            _, _, _, pairs = struct.unpack("<4sIQQ", self.file.read(24))
            for _ in range(pairs):
                key = self._string()
                self.keys[key] = self._value(self._number("<I"))

    def _number(self, form):
        return struct.unpack(form, self.file.read(struct.calcsize(form)))[0]

    def _string(self):
        return self.file.read(self._number("<Q")).decode()

    def _value(self, kind):
        if kind == 8:
            return self._string()
        if kind == 9:
            element, count = self._number("<I"), self._number("<Q")
            return [self._value(element) for _ in range(count)]
        return self._number(FORMATS[kind])


def write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        file.write(value if isinstance(value, str) else json.dumps(value))


def folder_of_gguf(gguf, folder):
    """The sample model as a folder without weights: what a transformers conversion of it has."""
    keys = Gguf(gguf).keys
    tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    assert keys["tokenizer.ggml.pre"] in ("smollm", "default"), keys["tokenizer.ggml.pre"]
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, t in enumerate(tokens) if types[i] == CONTROL]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    os.makedirs(folder)
    write(f"{folder}/tokenizer.json", {
        "version": "1.0", "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": keys["tokenizer.ggml.merges"]}})
    bos, eos = keys["tokenizer.ggml.bos_token_id"], keys["tokenizer.ggml.eos_token_id"]
    write(f"{folder}/tokenizer_config.json", {"bos_token": tokens[bos], "eos_token": tokens[eos]})
    write(f"{folder}/chat_template.jinja", keys["tokenizer.chat_template"])
    write(f"{folder}/config.json", {
        "model_type": "llama", "vocab_size": len(tokens), "hidden_size": keys["llama.embedding_length"], "num_hidden_layers": keys["llama.block_count"],
        "num_attention_heads": keys["llama.attention.head_count"], "num_key_value_heads": keys["llama.attention.head_count_kv"],
        "intermediate_size": keys["llama.feed_forward_length"], "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "max_position_embeddings": 8192, "bos_token_id": bos, "eos_token_id": eos})


def sample_talks(path):
    with open(f"{FAMILIES}/texts.json", encoding="utf-8") as file:
        texts = [t for t in json.load(file)["texts"] if t.strip()]
    with open(path, "w", encoding="utf-8") as file:
        for i, text in enumerate(texts):
            file.write(json.dumps({"id": f"t{i}", "messages": [
                {"role": "user", "content": text}, {"role": "assistant", "content": "Yes: " + texts[-1 - i]},
                {"role": "user", "content": "And?"}, {"role": "assistant", "content": text.strip()}]}) + "\n")
    with open(f"{SOURCE}/recipes/sample-prompts.jsonl", encoding="utf-8") as file, open(path, "a", encoding="utf-8") as out:
        for line in file:
            row = json.loads(line)
            out.write(json.dumps({"id": row["id"], "messages": row["messages"] + [{"role": "assistant", "content": "Well, 12 + 30 = 42."}]}) + "\n")


def the_rows_of_the_gguf(root):
    gguf = os.environ["EAGLET_MODEL"]
    if not os.path.exists(gguf):
        print("without the sample model: not compared with a GGUF")
        return
    folder, talks = f"{root}/sample", f"{root}/talks.jsonl"
    folder_of_gguf(gguf, folder)
    sample_talks(talks)
    rows = {}
    for name, model in (("gguf", gguf), ("folder", folder)):
        must(run("prepare", talks, "--model", model, "--output", f"{root}/{name}.jsonl"))
        with open(f"{root}/{name}.jsonl", encoding="utf-8") as file:
            rows[name] = {row["id"]: row for row in map(json.loads, file)}
    assert rows["gguf"].keys() == rows["folder"].keys() and len(rows["gguf"]) > 150, {k: len(v) for k, v in rows.items()}
    differ = [key for key, row in rows["gguf"].items() if row != rows["folder"][key]]
    assert not differ, [(key, rows["gguf"][key]["input_ids"], rows["folder"][key]["input_ids"]) for key in differ[:2]]
    shown = must(run("inspect", f"{root}/folder.jsonl", "--show", "t3", "--model", folder)).stdout
    assert ">>" in shown and "<|im_end|>" in shown and shown == must(run("inspect", f"{root}/gguf.jsonl", "--show", "t3", "--model", gguf)).stdout
    one_hash(root, gguf, folder)


def one_hash(root, gguf, folder):
    with open(f"{root}/counts.json", "w", encoding="utf-8") as file:
        json.dump({"counts": {str(i): 1000 - i for i in range(3, 900)}}, file)
    make = ("--counts", f"{root}/counts.json", "--draft-vocab-size", "500")
    must(run("vocab", *make, "--model", folder, "--output", f"{root}/map.safetensors"))
    done = must(run("vocab", "--map", f"{root}/map.safetensors", *make, "--model", gguf, "--output", f"{root}/again.safetensors"))
    with open(f"{root}/map.safetensors", "rb") as one, open(f"{root}/again.safetensors", "rb") as two:
        assert one.read() == two.read(), done.stderr


def write_weights(path, vocab, hidden=32, heads=4, ffn=64, layers=4, seed=5):
    """A tiny llama of random numbers."""
    rng = random.Random(seed)
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for i in range(layers):
        at = f"model.layers.{i}."
        shapes.update({at + "input_layernorm.weight": (hidden,), at + "post_attention_layernorm.weight": (hidden,)})
        shapes.update({at + f"self_attn.{x}_proj.weight": (hidden, hidden) for x in "qkvo"})
        shapes.update({at + "mlp.gate_proj.weight": (ffn, hidden), at + "mlp.up_proj.weight": (ffn, hidden), at + "mlp.down_proj.weight": (hidden, ffn)})
    header, blobs, offset = {}, [], 0
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = [1.0] * count if len(shape) == 1 else [rng.gauss(0, 1.0 if "embed" in name else 0.2) for _ in range(count)]
        blobs.append(struct.pack(f"<{count}f", *values))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * count]}
        offset += 4 * count
    head = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + b"".join(blobs))
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab, "hidden_size": hidden, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": heads, "intermediate_size": ffn, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
            "max_position_embeddings": 512, "rope_theta": 10000.0, "eos_token_id": 1, "bos_token_id": 0}


def toy_folder(root, name="toy", family="llama3", vocab=704):
    folder = f"{root}/{name}"
    os.makedirs(folder)
    for file in ("tokenizer.json", "tiktoken.model", "tokenizer_config.json"):
        if os.path.exists(f"{FAMILIES}/{family}/{file}"):
            shutil.copy(f"{FAMILIES}/{family}/{file}", folder)
    config = write_weights(f"{folder}/model.safetensors", vocab)
    write(f"{folder}/config.json", config)
    if family != "kimi":
        write(f"{folder}/tokenizer_config.json", {"bos_token": "<|begin|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": CHATML})
    write(f"{folder}/generation_config.json", {"eos_token_id": [1, 3]})
    return folder


def the_whole_chain(root):
    model = toy_folder(root)
    prompts, answers = f"{root}/prompts.jsonl", f"{root}/answers.jsonl"
    with open(prompts, "w", encoding="utf-8") as file:
        for i in range(24):
            file.write(json.dumps({"id": f"p{i}", "messages": [{"role": "user", "content": f"The {i} quick brown foxes of Größe {i}?"}]}) + "\n")
    must(run("generate", "--model", model, "--prompts", prompts, "--output", answers, "--max-tokens", "20", "--temperature", "0.7"))
    with open(answers, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert len(rows) == 24 and {tuple(row["input_ids"][:2]) for row in rows} == {(2, 88)}, rows[0]["input_ids"]  # <|im_start|>u
    for row in rows:
        assert row["finish_reason"] == ("stop" if row["input_ids"][-1] in (1, 3) else "length")
    must(run("extract", "--model", model, "--conversations", answers, "--output-dir", f"{root}/states", "--target-layer-ids", "1,2,3"))
    must(run("train", "--store", f"{root}/states", "--model", model, "--output-dir", f"{root}/draft", "--draft-vocab-size", "200", "--max-steps", "4",
             "--max-seq-len", "256", "--intermediate-size", "64"))
    draft = f"{root}/draft/checkpoints/best"
    report = json.loads(must(run("evaluate", "--draft", draft, "--model", model, "--store", f"{root}/states", "--hold-out-every", "4", "--serve", "native",
                                 "--conversations", answers, "--draft-lengths", "1,3", "--compute-type", "f32", "--json")).stdout)
    served = report["served"]
    assert report["held_out"]["documents"] == 6 and served["identical"] and [one["draft_length"] for one in served["lengths"]] == [1, 3], report
    must(run("generate", "--model", model, "--draft", draft, "--prompts", prompts, "--output", f"{root}/drafted.jsonl", "--max-tokens", "20"))
    must(run("export", "--draft", draft, "--model", model, "--to", "speculators", "--verifier", model, "--output", f"{root}/exported"))
    assert os.path.exists(f"{root}/exported/model.safetensors")
    refused(run("export", "--draft", draft, "--model", model, "--output", f"{root}/x.gguf"), 78, "GGUF", "--to speculators")
    refused(run("evaluate", "--draft", draft, "--model", model, "--serve", "--conversations", answers), 78, "this is a folder", "--serve native")


RECIPE = """[run]
output_dir = "run"
prompts = "prompts.jsonl"
[model]
path = "toy"
[generate]
max_tokens = 20
compute_type = "f32"
[extract]
target_layer_ids = [1, 2, 3]
[train]
max_steps = 4
draft_vocab_size = 200
max_seq_len = 256
intermediate_size = 64
hold_out_every = 4
[serve]
draft_lengths = [1, 3]
"""


def one_command(root):
    """`eaglet run` on the folder: a draft for vLLM or SGLang, measured by our own engine."""
    write(f"{root}/toy.toml", RECIPE)
    flags = ("run", f"{root}/toy.toml", "--output-dir", f"{root}/run")
    # What the last stages could not do is told before the first begins.
    refused(run(*flags, "--set", "export.to=gguf"), 78, "target is a transformers folder", "export.to")
    refused(run(*flags, "--set", "serve.with=llama"), 78, "llama.cpp reads GGUF files", "serve.with")
    refused(run(*flags, "--set", "serve.type=f16"), 78, "made for llama.cpp", "serve.type")
    assert not os.path.exists(f"{root}/run/conversations.jsonl")
    plan = {stage["stage"]: stage for stage in json.loads(must(run(*flags, "--plan", "--json", *PLANNED)).stdout)["stages"]}
    report = json.loads(must(run(*flags, "--json")).stdout)
    exported = f"{root}/run/{report['draft']}/model.safetensors"
    assert report["draft"] == "export/speculators" and report["answers"] == 24, report
    assert report["served_with"] == "our own engine" and report["served_at_once"] > 1 and report["served_prompts"] == 6, report
    assert report["served_differences"] == 0 and [one["draft_length"] for one in report["served"]] == [1, 3], report
    # The layout has the target's embeddings besides; the plan speaks of the draft's own weights.
    assert 0 < plan["export"]["bytes"] < os.path.getsize(exported), (plan["export"], os.path.getsize(exported))
    assert "our own engine" in plan["serve"]["needs"][0]
    with open(f"{root}/run/export/speculators/config.json", encoding="utf-8") as file:
        assert json.load(file)["speculators_config"]["verifier"]["name_or_path"] == f"{root}/toy"
    again = json.loads(must(run(*flags, "--set", "export.to=sglang", "--set", "export.dtype=bf16", "--json")).stdout)
    assert again["draft"] == "export/sglang" and again["held_out_acceptance_length"] == report["held_out_acceptance_length"], again
    assert os.path.exists(f"{root}/run/export/sglang/model.safetensors")


PLANNED = ("--set", "plan.answer_tokens=20", "--set", "plan.prompt_tokens=10", "--set", "plan.train_teraflops=1")


def what_does_not_belong(root):
    prompts, answers = f"{root}/prompts.jsonl", f"{root}/none.jsonl"

    def refusal(folder, *words, code=78):
        refused(run("generate", "--model", folder, "--prompts", prompts, "--output", answers), code, *words)

    refusal(toy_folder(root, "small", vocab=600), "does not belong to this model: it has 640 tokens, the embeddings 600")
    refusal(toy_folder(root, "large", vocab=4000), "does not belong to this model: it has 640 tokens, the embeddings 4000 rows, 3360 more")
    folder = toy_folder(root, "wrong")
    config = json.load(open(f"{folder}/config.json", encoding="utf-8"))
    write(f"{folder}/config.json", {**config, "eos_token_id": 650})
    refusal(folder, "eos_token_id 650 is none of its 640 tokens")
    write(f"{folder}/config.json", config)
    write(f"{folder}/tokenizer_config.json", {"bos_token": "<s>", "eos_token": "<|im_end|>", "chat_template": CHATML})
    refusal(folder, 'bos_token "<s>" is none of its tokens')
    write(f"{folder}/tokenizer_config.json", {"added_tokens_decoder": {"5": {"content": "<|im_end|>"}}})
    refusal(folder, 'tokenizer_config.json has "<|im_end|>" as 5, the tokenizer as 3')
    write(f"{folder}/tokenizer_config.json", {"eos_token": "<|im_end|>"})
    refusal(folder, "no chat template")
    tokenizer = json.load(open(f"{folder}/tokenizer.json", encoding="utf-8"))
    write(f"{folder}/tokenizer.json", {**tokenizer, "model": {"type": "Unigram", "vocab": [["a", -1.0]]}})
    refusal(folder, 'kind "Unigram" is not supported')
    write(f"{folder}/tokenizer.json", json.dumps(tokenizer)[:-200])
    refusal(folder, "not a usable tokenizer.json", code=65)
    os.remove(f"{folder}/tokenizer.json")
    refusal(folder, "no tokenizer.json", code=66)
    # The other way out: the tokenizer of another file or folder of the same model.
    write(f"{folder}/tokenizer_config.json", {})
    another = ("--model", folder, "--tokenizer", toy_folder(root, "less", vocab=650))
    refused(run("generate", *another, "--prompts", prompts, "--output", answers), 78, "a model with 650 tokens, the target's embeddings have 704", "less")
    serve = ("--draft", f"{root}/draft/checkpoints/best", "--serve", "native", "--conversations", f"{root}/answers.jsonl", "--draft-lengths", "1")
    refused(run("evaluate", *serve, *another), 78, "a model with 650 tokens", "less")
    refused(run("evaluate", *serve, "--model", folder), 66, "no tokenizer.json")
    must(run("evaluate", *serve, "--model", folder, "--tokenizer", f"{root}/toy"))
    must(run("generate", "--model", folder, "--tokenizer", f"{root}/toy", "--prompts", prompts, "--output", answers, "--max-prompts", "2", "--max-tokens", "4"))


def main():
    with tempfile.TemporaryDirectory() as root:
        the_rows_of_the_gguf(root)
        the_whole_chain(root)
        one_command(root)
        what_does_not_belong(root)
    print("folder tokens: rows and hash of the GGUF, the whole chain, one command, refusals")


main()
