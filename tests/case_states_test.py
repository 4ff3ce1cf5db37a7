#!/usr/bin/env python3
"""Cases 08, 09 and 10: states that other tools wrote, taken in through the real command."""
import fcntl
import json
import os
import shutil
import struct
import subprocess
import tempfile

EAGLET = os.environ["EAGLET"]
CASES = os.path.join(os.environ["EAGLET_SOURCE"], "testdata", "cases")


def eaglet(*arguments, expect=0):
    done = subprocess.run([EAGLET, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == expect, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def target_config(folder, layers, vocabulary=64):
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
                   "num_hidden_layers": layers, "vocab_size": vocabulary, "num_attention_heads": 2,
                   "num_key_value_heads": 1, "head_dim": 4, "rms_norm_eps": 1e-6}, file)
    return path


def case_08(folder):
    case = os.path.join(CASES, "08-state-rows-do-not-match-tokens")
    rows = os.path.join(case, "dataset.jsonl")
    look = ["extract", "--from", "vllm", case, "--conversations", rows, "--check"]
    told = eaglet(*look).stdout
    assert "hs_0.safetensors: rows are not the tokens': 12 token ids but 8 rows" in told, told
    assert "prefix cache off" in told, told
    assert "hs_1.safetensors: other tokens" in told and "first at position 4" in told, told
    assert "used 1, refused 2" in told, told
    eaglet(*look, "--strict", expect=65)
    # The same check when they are taken in: only the good one gets into the store.
    model, states = target_config(folder, 61), os.path.join(folder, "states08")
    taken = json.loads(eaglet("extract", "--from", "vllm", case, "--conversations", rows, "--model", model,
                              "--output-dir", states, "--json").stdout)
    assert taken["documents"] == 1 and len(taken["left_out"]) == 2, taken
    with open(os.path.join(states, "left_out.jsonl"), encoding="utf-8") as file:
        assert len(file.readlines()) == 2
    assert json.loads(eaglet("inspect", "--verify", "--json", states).stdout)["tokens"] == 12


def case_09(folder):
    case = os.path.join(CASES, "09-unusable-state-files")
    rows = os.path.join(case, "dataset.jsonl")
    look = ["extract", "--from", "vllm", case, "--conversations", rows, "--check"]
    told = eaglet(*look).stdout
    assert "bad 5 (NaN 1, infinity 1, cut/empty/header 3), doubtful 1, good 1" in told, told
    assert "row 5, slot 2 of 4 holds a NaN" in told and "row 0, slot 3 of 4 holds an infinity" in told, told
    assert "slot 3 of 4 is zero for every token" in told, told
    accepted = json.loads(eaglet(*look, "--accept-doubtful", "--json").stdout)
    assert accepted["used"] == 2 and accepted["doubtful"] == 1, accepted
    # A lock that a living process holds is waited for, then reported; one that nobody holds means nothing.
    copy = os.path.join(folder, "locked")
    os.makedirs(copy)
    for name in ("hs_6.safetensors", "hs_6.safetensors.lock"):
        shutil.copyfile(os.path.join(case, name), os.path.join(copy, name))
    waited = ["extract", "--from", "vllm", copy, "--conversations", rows, "--check", "--wait-seconds", "0.3"]
    with open(os.path.join(copy, "hs_6.safetensors.lock"), "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = eaglet(*waited).stdout
    assert "locked" in held and "used 0, refused 1" in held, held
    assert "used 1, refused 0" in eaglet(*waited).stdout
    growing_file(folder, case, rows)


def growing_file(folder, case, rows):
    """A writer is half-way: the reader comes back until the file is whole."""
    copy = os.path.join(folder, "growing")
    os.makedirs(copy)
    with open(os.path.join(case, "hs_6.safetensors"), "rb") as file:
        content = file.read()
    path = os.path.join(copy, "hs_6.safetensors")
    with open(path, "wb") as file:
        file.write(content[:100])
    look = subprocess.Popen([EAGLET, "extract", "--from", "vllm", copy, "--conversations", rows, "--check"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    import time
    for end in range(200, len(content) + 100, 100):
        time.sleep(0.1)
        with open(path, "ab") as file:
            file.write(content[end - 100:end])
    told, _ = look.communicate(timeout=30)
    assert "used 1, refused 0" in told, told


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: (entry, data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items()}


def captured(states):
    """The constants that the store holds for its first token, by slot: read from the shard as docs say."""
    with open(os.path.join(states, "000000.shard"), "rb") as file:
        data = file.read()
    at = struct.unpack_from("<I", data, 12)[0]
    tokens, = struct.unpack_from("<I", data, at + 48)
    name_bytes, = struct.unpack_from("<H", data, at + 60)
    at += 64 + (tokens * 5 + name_bytes + 63) // 64 * 64
    json_bytes, = struct.unpack_from("<I", data, 24)
    header = json.loads(data[32:32 + json_bytes])
    slots = len(header["aux_layers"]) + 1
    bits = struct.unpack_from(f"<{slots * 8}H", data, at)
    values = [struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in bits]
    assert all(len(set(values[s * 8:s * 8 + 8])) == 1 for s in range(slots)), values
    return header, [values[s * 8] for s in range(slots)]


def case_10(folder):
    case = os.path.join(CASES, "10-layer-numbers-two-meanings")
    source = os.path.join(folder, "boundaries")
    os.makedirs(source)
    shutil.copyfile(os.path.join(case, "all_boundaries.safetensors"), os.path.join(source, "hs_0.safetensors"))
    entry, data = read_safetensors(os.path.join(source, "hs_0.safetensors"))["token_ids"]
    ids = list(struct.unpack(f"<{entry['shape'][0]}q", data))
    rows = os.path.join(folder, "rows.jsonl")
    with open(rows, "w", encoding="utf-8") as file:
        file.write(json.dumps({"id": "a", "input_ids": ids, "loss_mask": [0, 1, 1, 1, 1, 1],
                               "finish_reason": "stop"}) + "\n")
    take = ["extract", "--from", "vllm", source, "--conversations", rows, "--model",
            os.path.join(case, "target_config.json")]
    for name, extra, wanted in (("boundary", ["--target-layer-ids", "2,4,6"], [2, 4, 6, 8]),
                                ("output", ["--target-layer-ids", "1,3,5", "--layer-convention", "output"],
                                 [2, 4, 6, 8]),
                                ("last", ["--target-layer-ids", "4,6,8"], [4, 6, 8, 8]),
                                ("usual", [], [2, 4, 5, 8])):
        states = os.path.join(folder, "states-" + name)
        told = eaglet(*take, *extra, "--output-dir", states)
        header, constants = captured(states)
        assert constants == wanted, (name, constants)
        assert header["aux_layers"] == wanted[:3] and header["layer_convention"] == "residual_after_k_layers", header
        assert "2 = after 2 of 8 layers" in told.stdout, told.stdout
        assert "8 = after all 8 layers (before the final norm)" in told.stdout, told.stdout
    usual = eaglet(*take, "--output-dir", os.path.join(folder, "states-usual"))
    assert "kept, as --target-layer-ids is not given: 2 = after 2 of 8 layers, 4" in usual.stderr, usual.stderr
    for wrong in ("9", "-1,2", "2,2,4", "4,2"):
        refused = eaglet(*take, "--target-layer-ids=" + wrong, "--output-dir", os.path.join(folder, "no"), expect=64)
        assert "layer id" in refused.stderr, refused.stderr
    shallow = eaglet("plan", "--model", os.path.join(case, "shallow_target_config.json"), "--conversations", rows,
                     expect=64)
    assert "too shallow" in shallow.stderr and "--target-layer-ids" in shallow.stderr, shallow.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        case_08(folder)
        case_09(folder)
        case_10(folder)
    print("cases 08, 09, 10: ok")


if __name__ == "__main__":
    main()
