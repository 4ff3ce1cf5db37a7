#!/usr/bin/env python3
"""eaglet inspect as a user calls it: what it prints, and with which code it ends."""
import gzip
import json
import os
import subprocess
import tempfile

EAGLET = os.environ["EAGLET"]
SOURCE = os.environ["EAGLET_SOURCE"]
CASES = os.path.join(SOURCE, "testdata", "cases")


def inspect(*arguments):
    return subprocess.run([EAGLET, "inspect", *arguments], capture_output=True, text=True, timeout=60, check=False)


def expect(code, *arguments):
    done = inspect(*arguments)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    if code != 0:
        assert done.stderr.splitlines()[-1].startswith(("error:", "  where:", "  do:")), done.stderr
    return done


def look(*arguments, code=0):
    return json.loads(expect(code, *arguments, "--json").stdout)


def other_tools():
    """Files of torch and NumPy, and vocabulary maps in every layout."""
    states = os.path.join(SOURCE, "testdata", "states")
    values = os.path.join(states, "values")
    for name, holds in {"specforge/rows_0-2000/data_0.ckpt": "SpecForge", "specforge/rows_0-2000/data_2.ckpt.gz": "SpecForge",
                        "modelopt_hf/c0.pt": "Model-Optimizer", "speculators_v1/data_0.pt": "speculators 0.3, 0.4",
                        "speculators_v0/data_0.pt": "speculators 0.2"}.items():
        seen = look(os.path.join(states, name), "--verify")
        assert seen["kind"] == "torch file" and holds in seen["holds"] and seen["verified"], seen
        assert any(row["name"] == "input_ids" and row["dtype"].startswith("I") for row in seen["values"]), seen
    listed = look(os.path.join(states, "speculators_v1", "data_0.pt"))
    assert {"hidden_states[0]", "hidden_states[3]"} <= {row["name"] for row in listed["values"]}, listed
    mapped = look(os.path.join(values, "vocab_mapping.pt"))
    assert (mapped["layout"], mapped["draft_vocab"], mapped["target_vocab"]) == ("specforge", 3, 64), mapped
    counts = look(os.path.join(values, "token_freq.pt"))
    assert counts["holds"] == "token counts" and counts["counted_tokens"] > 0, counts
    assert "could be offsets or target ids" in expect(0, os.path.join(values, "token_map.pt")).stdout
    refused = expect(78, os.path.join(values, "module.pt"))
    assert "Linear" in refused.stderr or "module" in refused.stderr, refused.stderr
    with tempfile.TemporaryDirectory() as folder:
        ours, npy = os.path.join(folder, "map.safetensors"), os.path.join(folder, "npy")
        for layout, path in (("eaglet", ours), ("speculators", npy)):
            subprocess.run([EAGLET, "vocab", "--counts", os.path.join(CASES, "07-draft-vocabulary-larger-than-data",
                            "token_counts.json"), "--draft-vocab-size", "24", "--to", layout, "--output", path],
                           check=True, capture_output=True, timeout=60)
            seen = look(path)
            assert (seen["kind"], seen["layout"]) == ("vocabulary map", layout), seen
            assert (seen["draft_vocab"], seen["target_vocab"], seen["ascending"]) == (24, 64, True), seen
        assert len(look(ours)["counts_hash"]) == 16
        flags = look(os.path.join(npy, "t2d.npy"))
        assert (flags["numbers"], flags["not_zero"], flags["largest"]) == (64, 24, 1), flags
        with open(os.path.join(npy, "d2t.npy"), "r+b") as file:  # an offset that leads out of the vocabulary
            file.seek(-8, os.SEEK_END)
            file.write((1000).to_bytes(8, "little"))
        assert "outside the target vocabulary" in expect(65, npy).stdout
        with open(os.path.join(npy, "t2d.npy"), "r+b") as file:
            file.truncate(100)
        expect(65, os.path.join(npy, "t2d.npy"))


def packed_rows():
    """Conversations and prompts in every packing that generate and extract read, and folders of other tools' states."""
    arrow = look(os.path.join(SOURCE, "testdata", "arrow", "tokens"))
    assert arrow["kind"] == "conversations" and arrow["usable"] == 7 and arrow["supervised_tokens"] > 0, arrow
    assert look(os.path.join(SOURCE, "testdata", "arrow", "large.arrow"))["tokens"] == arrow["tokens"]
    with tempfile.TemporaryDirectory() as folder:
        packed = os.path.join(folder, "prompts.json.gz")
        with gzip.open(packed, "wt") as file:
            json.dump([{"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]},
                       {"messages": [{"role": "user", "content": "And?"}]}], file)
        assert look(packed)["kind"] == "prompts", look(packed)
        noise = os.path.join(folder, "noise.gz")
        with gzip.open(noise, "wt") as file:
            file.write("no row at all\n")
        expect(65, noise)
    for name, files, holds in (("specforge", 3, "SpecForge"), ("vllm", 3, "hidden states of one document"), ("modelopt_hf", 3, "Model-Optimizer")):
        seen = look(os.path.join(SOURCE, "testdata", "states", name))
        assert seen["kind"] == "folder of state files" and seen["files"] == files and holds in seen["holds"], seen
        assert "--check" in seen["look_at_all"], seen


def main():
    states = os.path.join(CASES, "09-unusable-state-files")
    good = expect(0, os.path.join(states, "hs_6.safetensors"), "--verify")
    assert "hidden_states  BF16   [10, 4, 8]" in good.stdout, good.stdout
    bad = expect(65, os.path.join(states, "hs_0.safetensors"), "--verify", "--json")
    document = json.loads(bad.stdout)
    assert document["schema"] == 1 and document["kind"] == "safetensors", document
    assert len(document["problems"]) == 1 and "[5, 2, " in document["problems"][0], document
    for name in ("hs_3", "hs_4", "hs_5"):
        failed = expect(65, os.path.join(states, name + ".safetensors"))
        assert failed.stdout == "" and name in failed.stderr, failed
    expect(66, "/nonexistent/model.gguf")
    expect(66, CASES)
    expect(64)

    draft = json.loads(expect(0, os.path.join(CASES, "12-draft-to-target-map-forms", "a_offset"), "--json").stdout)
    assert draft["kind"] == "draft" and draft["draft_vocab"] == 24, draft

    rows = os.path.join(CASES, "04-odd-conversations", "conversations.jsonl")
    assert "broken lines" in expect(0, rows).stdout  # every reader goes on past them
    expect(65, rows, "--verify")
    with tempfile.TemporaryDirectory() as folder:
        closed = os.path.join(folder, "closed.jsonl")
        with open(closed, "w", encoding="utf-8") as file:
            file.write('{"id": 1, "prompt_ids": [1]}\n')
        expect(0, closed, "--verify", "--vocab-size", "2")
        expect(65, closed, "--verify", "--vocab-size", "1")
        if os.geteuid() != 0:  # root may read everything
            os.chmod(closed, 0)
            expect(77, closed)
    other_tools()
    packed_rows()
    print("inspect: ok")


if __name__ == "__main__":
    main()
