#!/usr/bin/env python3
"""Cases 10 to 13 and the ways in and out for drafts, through the real commands."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch_writer  # noqa: E402
import toy_target  # noqa: E402

EAGLET = os.environ["EAGLET"]
CASES = os.path.join(os.environ["EAGLET_SOURCE"], "testdata", "cases")
NAMES = os.path.join(CASES, "13-missing-head-and-other-names")
MAPS = os.path.join(CASES, "12-draft-to-target-map-forms")
ROPE = os.path.join(CASES, "11-rope-settings-lost")
MAP = [0, 1, 2, 3, 5, 6, 8, 9, 11, 13, 16, 19, 20, 22, 26, 29, 31, 33, 37, 40, 44, 52, 60, 63]


def eaglet(*arguments, expect=0):
    done = subprocess.run([EAGLET, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == expect, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def read_tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[8 + size + entry["data_offsets"][0]:
                                                         8 + size + entry["data_offsets"][1]])
            for name, entry in header.items()}


def write_tensors(path, tensors):
    header, at, blob = {}, 0, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
        blob += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + blob)


def changed(folder, name, source, change, config=None):
    """A copy of a draft whose tensors `change` edits."""
    path = os.path.join(folder, name)
    os.makedirs(path)
    shutil.copyfile(config or os.path.join(source, "config.json"), os.path.join(path, "config.json"))
    tensors = read_tensors(os.path.join(source, "model.safetensors"))
    change(tensors)
    write_tensors(os.path.join(path, "model.safetensors"), tensors)
    return path


def imported(folder, name, source, *flags, expect=0):
    out = os.path.join(folder, "imported-" + name)
    return eaglet("import", source, "--output-dir", out, "--json", *flags, expect=expect), out


def offsets(path):
    return list(struct.unpack("<24q", read_tensors(os.path.join(path, "model.safetensors"))["d2t"][2]))


def case_12(folder):
    base = os.path.join(MAPS, "a_offset")
    _, out = imported(folder, "map", base)
    assert [i + o for i, o in enumerate(offsets(out))] == MAP
    tensors = read_tensors(os.path.join(out, "model.safetensors"))
    assert sum(tensors["t2d"][2]) == 24 and all(tensors["t2d"][2][v] for v in MAP)
    _, again = imported(folder, "map-again", out)
    assert offsets(again) == offsets(out)
    for name in ("map_b_absolute", "map_c_absolute_in_range", "map_d_zero"):
        other = read_tensors(os.path.join(MAPS, name + ".safetensors"))
        wrong = changed(folder, name, base, lambda tensors, other=other: tensors.update(other))
        told, _ = imported(folder, name, wrong, expect=65)
        assert "map" in told.stderr and "offsets" in told.stderr, told.stderr
    none = changed(folder, "none", base, lambda tensors: [tensors.pop("d2t"), tensors.pop("t2d")])
    assert "24 of 64" in imported(folder, "none", none, expect=65)[0].stderr
    cut = changed(folder, "cut", base, lambda t: t.update(d2t=("I64", [20], t["d2t"][2][:160])))
    told, _ = imported(folder, "cut", cut, expect=65)
    assert "20 entries" in told.stderr and "24" in told.stderr, told.stderr


def case_13(folder):
    target = os.path.join(NAMES, "target")
    told, a = imported(folder, "a", os.path.join(NAMES, "a_midlayer"))
    report = json.loads(told.stdout)["tensors"]
    assert len(report["loaded"]) == 13 and {s["name"] for s in report["skipped"]} == {"d2t", "t2d"}, report
    _, b = imported(folder, "b", os.path.join(NAMES, "b_layers0"))
    prefixed = changed(folder, "prefixed", os.path.join(NAMES, "b_layers0"), lambda tensors: [
        tensors.__setitem__("model." + name, tensors.pop(name)) for name in list(tensors)
        if name not in ("lm_head.weight", "d2t", "t2d")])
    _, c = imported(folder, "c", prefixed)
    whole = read_tensors(os.path.join(a, "model.safetensors"))
    assert whole == read_tensors(os.path.join(b, "model.safetensors")) == read_tensors(
        os.path.join(c, "model.safetensors"))
    assert "embed_tokens.weight" not in whole
    full = os.path.join(NAMES, "d_no_head_full")
    assert "--model" in imported(folder, "d0", full, expect=78)[0].stderr
    told, d = imported(folder, "d", full, "--model", target)
    assert json.loads(told.stdout)["tensors"]["filled"] == [{"name": "lm_head.weight", "reason": "taken from the target"}]
    head = read_tensors(os.path.join(target, "model.safetensors"))["lm_head.weight"][2]
    assert as_floats(("BF16", [], head)) == as_floats(read_tensors(os.path.join(d, "model.safetensors"))["lm_head.weight"])
    for name, words in (("e_no_head_reduced", ["lm_head.weight is missing"]),
                        ("f_one_missing", ["self_attn.v_proj.weight", "is missing"]),
                        ("g_head_shape", ["[40, 8]", "[24, 8]"])):
        told, out = imported(folder, name, os.path.join(NAMES, name), "--model", target, expect=65)
        assert all(word in told.stderr for word in words), told.stderr
        assert not os.path.exists(os.path.join(out, "model.safetensors"))


def as_floats(tensor):
    dtype, _, data = tensor
    if dtype == "F32":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    if dtype == "F16":
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    bits = struct.unpack(f"<{len(data) // 2}H", data)
    return [struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in bits]


FREQUENCIES = {"a_llama3": [1, 0.0376060309, 0.000524846161, 6.64786987e-06],
               "b_parameters": [1, 0.0316227766, 0.001, 3.16227766e-05],
               "c_plain": [1, 0.1, 0.01, 0.001],
               "d_yarn": [1, 0.0197642371, 0.000250000012, 7.90569356e-06],
               "f_old_key": [0.25, 0.025, 0.0025, 0.00025]}


def one_head(tensors):
    """The weights of case 13 for one head of width 8 instead of two of 4 with one shared key-value head."""
    for name in ("k_proj", "v_proj"):
        dtype, _, data = tensors[f"layers.0.self_attn.{name}.weight"]
        tensors[f"layers.0.self_attn.{name}.weight"] = (dtype, [8, 16], data + data)


def case_11(folder):
    for name, wanted in FREQUENCIES.items():
        config = os.path.join(ROPE, name + ".json")
        shown = json.loads(eaglet("inspect", "--json", config).stdout)
        check_rope(name, shown, wanted)
        draft = changed(folder, "rope-" + name, os.path.join(NAMES, "b_layers0"), one_head, config)
        _, ours = imported(folder, name, draft)
        check_rope(name, json.loads(eaglet("inspect", "--json", ours).stdout), wanted)
        theirs = os.path.join(folder, "sglang-" + name)
        eaglet("export", "--draft", ours, "--to", "sglang", "--output", theirs)
        check_rope(name, json.loads(eaglet("inspect", "--json", theirs).stdout), wanted)
        with open(os.path.join(theirs, "config.json"), encoding="utf-8") as file:
            written = json.load(file)
        assert written["rope_theta"] == written["rope_parameters"]["rope_theta"], written  # both readers find it
    unknown = eaglet("inspect", os.path.join(ROPE, "e_unknown.json"), expect=78)
    assert "spiral" in unknown.stderr, unknown.stderr
    two = eaglet("inspect", os.path.join(ROPE, "g_contradiction.json"), expect=78)
    assert "10000" in two.stderr and "1000000" in two.stderr, two.stderr
    # Draft and target differ: the draft's own settings stay, and that is said.
    told, _ = imported(folder, "differs", os.path.join(folder, "rope-b_parameters"), "--model",
                       os.path.join(NAMES, "target"))
    assert any("not the target's" in note for note in json.loads(told.stdout)["tensors"]["changed"]), told.stdout


def check_rope(name, shown, wanted):
    found = shown["rope_inverse_frequencies"]
    assert len(found) == 4 and all(abs(f / w - 1) < 1e-5 for f, w in zip(found, wanted)), (name, found)
    factor = 1.13862944 if name == "d_yarn" else 1.0
    assert abs(shown["rope_attention_factor"] - factor) < 1e-5, shown
    assert "base" in shown["rope"] and "factor" in shown["rope"], shown


def case_10(folder):
    case = os.path.join(CASES, "10-layer-numbers-two-meanings")
    weights = os.path.join(NAMES, "b_layers0")
    same = lambda tensors: None
    _, boundary = imported(folder, "boundary", changed(folder, "by-boundary", weights, same,
                                                       os.path.join(case, "draft_by_boundary.json")))
    by_output = changed(folder, "by-output", weights, same, os.path.join(case, "draft_by_output.json"))
    told, output = imported(folder, "output", by_output, "--layer-convention", "output")
    assert json.loads(told.stdout)["target_layer_ids"] == [2, 4, 6], told.stdout
    assert read_tensors(os.path.join(boundary, "model.safetensors")) == read_tensors(
        os.path.join(output, "model.safetensors"))
    told, _ = imported(folder, "last", changed(folder, "by-last", weights, same,
                                               os.path.join(case, "draft_last_boundary.json")))
    assert json.loads(told.stdout)["target_layer_ids"] == [4, 6, 8]
    nothing = changed(folder, "by-none", weights, same, os.path.join(case, "draft_none.json"))
    imported(folder, "none0", nothing, expect=78)
    told, _ = imported(folder, "none1", nothing, "--model", os.path.join(NAMES, "target"))
    assert json.loads(told.stdout)["target_layer_ids"] == [2, 4, 5] and "2, 4, 5" in told.stderr, told
    four = changed(folder, "four", weights, same)
    told, _ = imported(folder, "four", four, "--target-layer-ids", "2,4,5,6", expect=65)
    assert "[8, 24]" in told.stderr and "[8, 32]" in told.stderr, told.stderr
    for wrong in ("9,10,11", "2,2,4", "6,4,2"):
        told, _ = imported(folder, "wrong" + wrong, four, "--target-layer-ids", wrong, "--model",
                           os.path.join(NAMES, "target"), expect=78)
    other_convention_is_refused(folder, case, by_output)


def other_convention_is_refused(folder, case, by_output):
    source, rows = os.path.join(folder, "boundaries"), os.path.join(folder, "rows.jsonl")
    os.makedirs(source)
    shutil.copyfile(os.path.join(case, "all_boundaries.safetensors"), os.path.join(source, "hs_0.safetensors"))
    ids = struct.unpack("<6q", read_tensors(os.path.join(source, "hs_0.safetensors"))["token_ids"][2])
    with open(rows, "w", encoding="utf-8") as file:
        file.write(json.dumps({"id": "a", "input_ids": ids, "loss_mask": [0, 1, 1, 1, 1, 1],
                               "finish_reason": "stop"}) + "\n")
    states, target = os.path.join(folder, "states"), os.path.join(NAMES, "target")
    eaglet("extract", "--from", "vllm", source, "--conversations", rows, "--model", target, "--target-layer-ids",
           "2,4,6", "--output-dir", states)
    refused = eaglet("train", "--model", target, "--states", states, "--output-dir", os.path.join(folder, "run"),
                     "--from", by_output, "--max-seq-len", "8", "--hold-out-every", "0", expect=1)
    assert "[1, 3, 5]" in refused.stderr and "[2, 4, 6]" in refused.stderr, refused.stderr
    assert "--layer-convention output" in refused.stderr, refused.stderr


def round_trips(folder):
    """Every way out and back gives the same bits; foreign bf16 comes out as it came in."""
    source = os.path.join(NAMES, "a_midlayer")
    _, ours = imported(folder, "start", source)
    whole = read_tensors(os.path.join(ours, "model.safetensors"))
    theirs = os.path.join(folder, "out-sglang")
    eaglet("export", "--draft", ours, "--to", "sglang", "--dtype", "bf16", "--output", theirs)
    assert read_tensors(os.path.join(theirs, "model.safetensors")) == read_tensors(
        os.path.join(source, "model.safetensors"))
    with open(os.path.join(theirs, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 6], config
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 3, 5], config
    _, back = imported(folder, "back", theirs)
    assert read_tensors(os.path.join(back, "model.safetensors")) == whole
    sharded(folder, theirs, whole)
    torch_bin(folder, source, whole)
    fp8(folder, ours)
    gguf(folder)


def sharded(folder, source, whole):
    parts = os.path.join(folder, "sharded")
    os.makedirs(parts)
    shutil.copyfile(os.path.join(source, "config.json"), os.path.join(parts, "config.json"))
    tensors = list(read_tensors(os.path.join(source, "model.safetensors")).items())
    index = {}
    for i in range(3):
        name = f"model-0000{i + 1}-of-00003.safetensors"
        write_tensors(os.path.join(parts, name), dict(tensors[i::3]))
        index.update({tensor: name for tensor, _ in tensors[i::3]})
    path = os.path.join(parts, "model.safetensors.index.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"weight_map": index}, file)
    _, out = imported(folder, "sharded", parts)
    assert read_tensors(os.path.join(out, "model.safetensors")) == whole
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"weight_map": dict(index, **{"norm.weight": "../../etc/passwd"})}, file)
    assert "plain name" in imported(folder, "escape", parts, expect=65)[0].stderr


def torch_bin(folder, source, whole):
    """pytorch_model.bin: read without running anything; a pickle that would run something is refused by its name."""
    path = os.path.join(folder, "torch-bin")
    os.makedirs(path)
    shutil.copyfile(os.path.join(source, "config.json"), os.path.join(path, "config.json"))
    tensors = {name: torch_writer.Tensor(*tensor) for name, tensor in
               read_tensors(os.path.join(source, "model.safetensors")).items()}
    weights = os.path.join(path, "pytorch_model.bin")
    torch_writer.write(weights, tensors)
    told, out = imported(folder, "torch-bin", path)
    assert read_tensors(os.path.join(out, "model.safetensors")) == whole
    assert any("pytorch_model.bin" in note for note in json.loads(told.stdout)["tensors"]["changed"]), told.stdout

    class Trap:
        def __reduce__(self):
            return os.system, (f"touch {folder}/sprung",)

    torch_writer.write(weights, dict(tensors, trap=Trap()))
    told, out = imported(folder, "torch-trap", path, expect=78)
    assert "system" in told.stderr and not os.path.exists(os.path.join(folder, "sprung")), told.stderr
    assert not os.path.exists(os.path.join(out, "model.safetensors"))
    with open(weights, "r+b") as file:
        file.truncate(os.path.getsize(weights) // 2)
    imported(folder, "torch-cut", path, expect=65)


def old_speculators(folder):
    """Drafts of speculators 0.3 and 0.4: trained on outputs of layers at base 10000, whatever was served; said, and kept."""
    weights, target = os.path.join(NAMES, "b_layers0"), os.path.join(NAMES, "target")
    with open(os.path.join(weights, "config.json"), encoding="utf-8") as file:
        flat = json.load(file)
    layer = {key: flat[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
                                        "head_dim", "hidden_act", "rms_norm_eps", "vocab_size") if key in flat}
    layer.update(model_type="llama", num_hidden_layers=1)

    def config_of(version, **more):
        path = os.path.join(folder, f"config-{version}-{len(more)}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "speculators_version": version,
                       "draft_vocab_size": flat["draft_vocab_size"], "norm_before_residual": False, "target_hidden_size": None,
                       "speculators_config": {"algorithm": "eagle3", "default_proposal_method": "greedy", "proposal_methods": [
                           {"proposal_type": "greedy", "speculative_tokens": 5}], "verifier": {
                               "name_or_path": "target", "architectures": ["LlamaForCausalLM"]}},
                       "transformer_layer_config": layer, **more}, file)
        return path

    ids = {"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}
    for version in ("0.3.0", "0.4.0.1"):
        draft = changed(folder, "speculators-" + version, weights, lambda tensors: None, config_of(version, **ids))
        told, out = imported(folder, "speculators-" + version, draft)
        assert json.loads(told.stdout)["target_layer_ids"] == [2, 4, 6], told.stdout
        assert "trained on the outputs of layers" in told.stderr and "base 10000" in told.stderr, told.stderr
        shown = json.loads(eaglet("inspect", "--json", out).stdout)
        assert "10000" in shown["rope"], shown["rope"]
        kept, _ = imported(folder, "speculators-input-" + version, draft, "--layer-convention", "input")
        assert json.loads(kept.stdout)["target_layer_ids"] == [1, 3, 5], kept.stdout
        # Without a list: the usual ones of that tool, one layer later than today's; only with the target's depth.
        none = changed(folder, "speculators-none-" + version, weights, lambda tensors: None, config_of(version))
        imported(folder, "speculators-none0-" + version, none, expect=78)
        told, _ = imported(folder, "speculators-none1-" + version, none, "--model", target)
        assert json.loads(told.stdout)["target_layer_ids"] == [3, 5, 6], told.stdout
    for version in ("0.5.0", "0.9.0"):
        draft = changed(folder, "speculators-" + version, weights, lambda tensors: None, config_of(version, **ids))
        told, _ = imported(folder, "speculators-" + version, draft)
        assert json.loads(told.stdout)["target_layer_ids"] == [1, 3, 5] and "outputs" not in told.stderr, told


def fp8(folder, ours):
    """e4m3 with a scale a row: 1.5 * 2 and -0.25 * 2."""
    def change(tensors):
        rows = 16
        tensors["layers.0.mlp.gate_proj.weight"] = ("F8_E4M3", [rows, 8], bytes([0x3c, 0xa8] * (rows * 4)))
        tensors["layers.0.mlp.gate_proj.weight_scale"] = ("F32", [rows, 1], struct.pack("<16f", *[2.0] * rows))
    _, out = imported(folder, "fp8", changed(folder, "quantised", ours, change))
    values = as_floats(read_tensors(os.path.join(out, "model.safetensors"))["layers.0.mlp.gate_proj.weight"])
    assert values == [3.0, -0.5] * 64, values[:4]
    no_scale = changed(folder, "no-scale", ours, lambda tensors: tensors.update(
        {"layers.0.mlp.gate_proj.weight": ("F8_E4M3", [16, 8], bytes(128))}))
    assert "no scale" in imported(folder, "no-scale", no_scale, expect=65)[0].stderr


def gguf(folder):
    model, rows, run = (os.path.join(folder, name) for name in ("toy.gguf", "toy.jsonl", "toy-run"))
    toy_target.write_target(model)
    toy_target.write_conversations(rows, count=8)
    states = os.path.join(folder, "toy-states")
    eaglet("extract", "--model", model, "--conversations", rows, "--output-dir", states)
    eaglet("train", "--model", model, "--states", states, "--output-dir", run, "--draft-vocab-size", "100",
           "--max-seq-len", "64", "--max-steps", "2", "--hold-out-every", "0", "--norm-before-residual",
           "--norm-before-fc", "--train-head")
    draft = os.path.join(run, "checkpoints", "latest")
    whole = read_tensors(os.path.join(draft, "model.safetensors"))
    file = os.path.join(folder, "draft.gguf")
    eaglet("export", "--draft", draft, "--model", model, "--to", "gguf", "--type", "f32", "--strict", "--output", file)
    _, back = imported(folder, "gguf", file, "--model", model)
    assert read_tensors(os.path.join(back, "model.safetensors")) == whole
    with open(os.path.join(back, "config.json"), encoding="utf-8") as a:
        with open(os.path.join(draft, "config.json"), encoding="utf-8") as b:
            assert json.load(a) == json.load(b)
    # What a loader of the layout would ignore is said, and refused with --strict.
    out = os.path.join(folder, "for-sglang")
    told = eaglet("export", "--draft", draft, "--to", "sglang", "--output", out)
    assert "SGLang ignores norm_before_residual" in told.stderr and "norm_before_fc" in told.stderr, told.stderr
    strict = eaglet("export", "--draft", draft, "--to", "sglang", "--strict", "--output", out + "2", expect=78)
    assert "SGLang" in strict.stderr and not os.path.exists(out + "2"), strict.stderr


def main():
    for part in (case_10, case_11, case_12, case_13, old_speculators, round_trips):
        with tempfile.TemporaryDirectory() as folder:
            part(folder)
            print("ok", part.__name__)


if __name__ == "__main__":
    main()
