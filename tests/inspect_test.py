#!/usr/bin/env python3
"""eaglet inspect as a user calls it: what it prints, and with which code it ends."""
import json
import os
import subprocess
import tempfile

EAGLET = os.environ["EAGLET"]
CASES = os.path.join(os.environ["EAGLET_SOURCE"], "testdata", "cases")


def inspect(*arguments):
    return subprocess.run([EAGLET, "inspect", *arguments], capture_output=True, text=True, timeout=60, check=False)


def expect(code, *arguments):
    done = inspect(*arguments)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    if code != 0:
        assert done.stderr.splitlines()[-1].startswith(("error:", "  where:", "  do:")), done.stderr
    return done


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
    print("inspect: ok")


if __name__ == "__main__":
    main()
