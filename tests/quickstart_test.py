#!/usr/bin/env python3
"""The whole chain on a tiny recipe: prompts to a served draft, its reports, and a second run that skips every stage.

Leaves the run in EAGLET_FINISHED_RUN for the tests that look at its report.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

EAGLET = os.environ["EAGLET"]
SOURCE = os.environ["EAGLET_SOURCE"]
MODEL = os.environ["EAGLET_MODEL"]
RUN = os.environ["EAGLET_FINISHED_RUN"]
KEYS = ["held_out_acceptance_length", "served_acceptance_length", "acceptance_by_depth", "train_tokens_per_second",
        "state_bytes"]

RECIPE = """
[run]
prompts = "{source}/recipes/sample-prompts.jsonl"
[model]
path = "{model}"
[generate]
max_prompts = 8
max_tokens = 24
[train]
epochs = 1
max_seq_len = 256
ttt_steps = 2
draft_vocab_size = 1024
hold_out_every = 4
[evaluate]
ttt_steps = 2
[serve]
draft_lengths = [1, 2]
"""


def run(recipe, *more, expect=0):
    begun = time.monotonic()
    done = subprocess.run([EAGLET, "run", recipe, "--output-dir", RUN, *more], capture_output=True, text=True, check=False)
    print(f"eaglet run {' '.join(more)}: code {done.returncode}, {time.monotonic() - begun:.1f} s")
    if done.returncode != expect:
        print(done.stdout, done.stderr)
        sys.exit(f"expected code {expect}")
    return done


def check_report():
    with open(f"{RUN}/report.json", encoding="utf-8") as file:
        text = file.read()
    for key in KEYS:
        assert text.count(f'"{key}"') == 1, f"{key} stands {text.count(key)} times in report.json"
    report = json.loads(text)
    assert report["answers"] == 8, report["answers"]
    assert report["held_out_documents"] == 2
    assert len(report["acceptance_by_depth"]) == 2
    assert report["held_out_acceptance_length"] >= 1
    assert abs(report["held_out_acceptance_length"] - 1 - sum(report["acceptance_by_depth"])) < 1e-9
    assert report["served_acceptance_length"] >= 1
    assert report["served_differences_not_ties"] == 0
    assert [s["draft_length"] for s in report["served"]] == [1, 2]
    assert all(s["tokens_per_second"] > 0 for s in report["served"])
    assert report["state_bytes"] == shard_bytes(f"{RUN}/states"), (report["state_bytes"], shard_bytes(f"{RUN}/states"))
    assert [s["stage"] for s in report["stages"]] == ["generate", "extract", "train", "evaluate", "export", "serve"]
    with open(f"{RUN}/{report['draft']}", "rb") as file:
        assert file.read(4) == b"GGUF"
    return report


def shard_bytes(folder):
    return sum(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder) if name.endswith(".shard"))


def times(folder):
    return {name: os.stat(f"{folder}/{name}").st_mtime_ns for name in
            ["conversations.jsonl", "draft/log.jsonl", "stages/train.json", "stages/serve.json"]}


def main():
    if not os.path.exists(MODEL):
        print(f"no sample model at {MODEL}: scripts/setup fetches it")
        return 77
    shutil.rmtree(RUN, ignore_errors=True)
    os.makedirs(RUN)
    recipe = f"{RUN}/../tiny.toml"
    with open(recipe, "w", encoding="utf-8") as file:
        file.write(RECIPE.format(source=SOURCE, model=MODEL))

    first = run(recipe)
    report = check_report()
    for word in ["answers", "supervised", "states", "held-out acceptance by depth", "served acceptance length",
                 "tokens/s without the draft", report["draft"]]:
        assert word in first.stdout, f"the table lacks '{word}':\n{first.stdout}"
    assert re.match(r"\d{4}-\d\d-\d\dT", first.stderr), "progress in a pipe begins with a time"
    assert "\r" not in first.stderr and "\033" not in first.stderr + first.stdout

    before = times(RUN)
    second = run(recipe)
    assert times(RUN) == before, "a finished stage was done again"
    assert second.stderr.count("done earlier") == 6, second.stderr

    changed = run(recipe, "--set", "train.epochs=2", expect=78)
    assert "epochs was 1, is 2" in changed.stderr and "--redo train" in changed.stderr, changed.stderr
    assert times(RUN) == before

    as_json = run(recipe, "--json")
    assert json.loads(as_json.stdout)["draft"] == report["draft"]
    return 0


if __name__ == "__main__":
    sys.exit(main())
