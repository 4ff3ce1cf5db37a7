#!/usr/bin/env python3
"""Case 07 through the real command, and vocabulary maps of other tools in and out."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target  # noqa: E402

EAGLET = os.environ["EAGLET"]
SOURCE = os.environ["EAGLET_SOURCE"]
CASE = os.path.join(SOURCE, "testdata", "cases", "07-draft-vocabulary-larger-than-data")
VALUES = os.path.join(SOURCE, "testdata", "states", "values")
COUNTS = os.path.join(CASE, "token_counts.json")


def vocab(*arguments, expect=0):
    done = subprocess.run([EAGLET, "vocab", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == expect, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def read_map(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    def part(name):
        begin, end = header[name]["data_offsets"]
        return data[8 + size + begin:8 + size + end]
    d2t = struct.unpack(f"<{header['d2t']['shape'][0]}q", part("d2t"))
    return d2t, part("t2d"), header["__metadata__"]


def case_07(folder):
    with open(COUNTS, encoding="utf-8") as file:
        seen = {int(token) for token in json.load(file)["counts"]}
    path = os.path.join(folder, "map.safetensors")
    told = vocab("--counts", COUNTS, "--draft-vocab-size", "24", "--output", path)
    assert "covers 100.00 %" in told.stdout, told.stdout
    d2t, t2d, metadata = read_map(path)
    ids = [i + offset for i, offset in enumerate(d2t)]
    assert len(ids) == 24 and ids == sorted(set(ids)) and ids[-1] < 64, ids
    assert seen <= set(ids) and {60, 61, 62, 63} <= set(ids), ids
    assert len(t2d) == 64 and sum(t2d) == 24 and all(t2d[i] for i in ids)
    assert len(metadata["counts_hash"]) == 16, metadata
    again = os.path.join(folder, "again.safetensors")
    vocab("--counts", COUNTS, "--draft-vocab-size", "24", "--output", again)
    with open(path, "rb") as a, open(again, "rb") as b:
        assert a.read() == b.read()
    small = vocab("--counts", COUNTS, "--draft-vocab-size", "11", "--json")
    chosen = json.loads(small.stdout)
    assert chosen["target_ids"] == [2, 5, 9, 11, 13, 16, 19, 60, 61, 62, 63], chosen
    assert abs(chosen["covered_share"] - 194 / 249) < 1e-9 and "never drafted" in small.stderr, chosen
    # An old map in the same place is replaced, naming both sizes; given on purpose it is refused.
    stale = os.path.join(folder, "stale.safetensors")
    shutil.copyfile(os.path.join(CASE, "stale", "vocab_map.safetensors"), stale)
    told = vocab("--counts", COUNTS, "--draft-vocab-size", "24", "--output", stale)
    assert "16 entries" in told.stderr and "24" in told.stderr, told.stderr
    assert len(read_map(stale)[0]) == 24
    shutil.copyfile(os.path.join(CASE, "stale", "vocab_map.safetensors"), stale)
    told = vocab("--counts", COUNTS, "--map", stale, "--draft-vocab-size", "24", expect=78)
    assert "16 entries" in told.stderr and "24" in told.stderr, told.stderr
    whole = vocab("--counts", COUNTS, "--draft-vocab-size", "64", "--output", os.path.join(folder, "none"))
    assert "no map" in whole.stdout and not os.path.exists(os.path.join(folder, "none")), whole.stdout
    assert "from 1 to 64" in vocab("--counts", COUNTS, "--draft-vocab-size", "65", expect=1).stderr


def ids_of(path, *flags):
    return json.loads(vocab("--map", path, "--target-vocab-size", "64", "--json", *flags).stdout)["target_ids"]


def other_tools(folder):
    """Files that torch wrote are read; what we write for others is read back to the same ids."""
    assert ids_of(os.path.join(VALUES, "vocab_mapping.pt")) == [2, 5, 62]
    assert ids_of(os.path.join(VALUES, "hot_tokens.pt")) == [2, 5, 62]
    both = os.path.join(VALUES, "token_map.pt")  # [62, 2, 5]: ids, or offsets for 62, 3, 7
    assert ids_of(both, "--map-holds", "ids") == [62, 2, 5]
    assert ids_of(both, "--map-holds", "offsets") == [62, 3, 7]
    assert "--map-holds" in vocab("--map", both, "--target-vocab-size", "64", expect=78).stderr
    freq = vocab("--counts", os.path.join(VALUES, "token_freq.pt"), "--target-vocab-size", "64", "--draft-vocab-size", "3",
                 "--json")
    assert json.loads(freq.stdout)["target_ids"] == [2, 5, 63], freq.stdout
    ours = os.path.join(folder, "map.safetensors")
    vocab("--counts", COUNTS, "--draft-vocab-size", "24", "--output", ours)
    for to, name in (("speculators", "maps"), ("specforge", "vocab_mapping.pt"), ("sglang", "hot.pt")):
        out = os.path.join(folder, name)
        vocab("--map", ours, "--target-vocab-size", "64", "--to", to, "--output", out)
        assert ids_of(out) == ids_of(ours), to
    with open(os.path.join(folder, "maps", "t2d.npy"), "rb") as file:
        assert file.read(8) == b"\x93NUMPY\x01\x00"
    refused = vocab("--map", os.path.join(VALUES, "module.pt"), "--target-vocab-size", "64", expect=78)
    assert "torch.nn" in refused.stderr, refused.stderr
    wrong = vocab("--map", os.path.join(VALUES, "vocab_mapping.pt"), "--target-vocab-size", "60", expect=65)
    assert "60" in wrong.stderr, wrong.stderr


def trained_map(path):
    """The target ids of a draft's d2t."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    begin, end = header["d2t"]["data_offsets"]
    return [i + offset for i, offset in enumerate(struct.unpack(f"<{(end - begin) // 8}q", data[8 + size + begin:8 + size + end]))]


def train_with_maps(folder):
    """train --vocab-map: our own map and those of other tools give the draft that vocabulary; a map for another size, tokenizer or
    other data is refused with the reason."""
    model, rows, states = (os.path.join(folder, name) for name in ("toy.gguf", "rows.jsonl", "states"))
    toy_target.write_target(model)
    toy_target.write_conversations(rows, count=12)

    def eaglet(*arguments, expect=0):
        done = subprocess.run([EAGLET, *arguments], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == expect, (arguments, done.returncode, done.stdout, done.stderr)
        return done

    eaglet("extract", "--model", model, "--conversations", rows, "--output-dir", states, "--threads", "1")

    def train(name, mapping, *more, expect=0):
        run = os.path.join(folder, "run-" + name)
        told = eaglet("train", "--model", model, "--states", states, "--output-dir", run, "--max-seq-len", "64", "--max-steps", "1",
                      "--hold-out-every", "0", "--threads", "1", "--vocab-map", mapping, *more, expect=expect)
        return told if expect else trained_map(os.path.join(run, "checkpoints", "latest", "model.safetensors"))

    ours = os.path.join(folder, "ours.safetensors")
    vocab("--states", states, "--model", model, "--draft-vocab-size", "90", "--output", ours)
    ids = json.loads(vocab("--map", ours, "--model", model, "--json").stdout)["target_ids"]
    assert train("ours", ours) == ids and len(ids) == 90
    assert train("sized", ours, "--draft-vocab-size", "90") == ids
    for to, name in (("speculators", "maps"), ("specforge", "vocab_mapping.pt"), ("sglang", "hot.pt")):
        path = os.path.join(folder, name)
        vocab("--map", ours, "--model", model, "--to", to, "--output", path)
        assert train(to, path) == ids, to
    size = train("other-size", ours, "--draft-vocab-size", "80", expect=1)
    assert "90 entries" in size.stderr and "80" in size.stderr, size.stderr
    # Other data: the map's counts are not this store's.
    other_rows, other_states = os.path.join(folder, "other.jsonl"), os.path.join(folder, "other-states")
    toy_target.write_conversations(other_rows, count=12, seed=9)
    eaglet("extract", "--model", model, "--conversations", other_rows, "--output-dir", other_states, "--threads", "1")
    stale = os.path.join(folder, "stale.safetensors")
    vocab("--states", other_states, "--model", model, "--draft-vocab-size", "90", "--output", stale)
    told = train("stale", stale, expect=1)
    assert "other data" in told.stderr and "eaglet vocab --states" in told.stderr, told.stderr
    # Another tokenizer: one word of the target spelt otherwise.
    with open(model, "rb") as file:
        data = file.read()
    assert data.count(b"w60") == 1
    with open(model, "wb") as file:
        file.write(data.replace(b"w60", b"v60"))
    told = train("tokenizer", ours, expect=1)
    assert "another tokenizer" in told.stderr or "states" in told.stderr, told.stderr
    # A map with an id that the target lacks.
    hot = os.path.join(VALUES, "vocab_mapping.pt")
    assert "64" in train("foreign", hot, expect=65).stderr


def main():
    for part in (case_07, other_tools, train_with_maps):
        with tempfile.TemporaryDirectory() as folder:
            part(folder)
    print("case 07 and maps: ok")


if __name__ == "__main__":
    main()
