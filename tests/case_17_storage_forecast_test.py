#!/usr/bin/env python3
"""Case 17: will it fit on the disk? The forecast before any work, and a disk that fills up all the same."""
import json
import os
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target  # noqa: E402

EAGLET = os.environ["EAGLET"]
CASE = os.path.join(os.environ["EAGLET_SOURCE"], "testdata", "cases", "17-storage-forecast")


def eaglet(*arguments, expect=0, largest_file=None):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    done = subprocess.run([EAGLET, *arguments], capture_output=True, text=True, timeout=120, check=False,
                          preexec_fn=limit if largest_file else None)
    assert done.returncode == expect, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def forecast():
    with open(os.path.join(CASE, "plan.json"), encoding="utf-8") as file:
        plan = json.load(file)
    shape = ["--hidden-size", str(plan["hidden_size"]), "--slots", str(plan["slots"]),
             "--free-bytes", str(plan["free_bytes"])]
    eight = ["plan", *shape, "--lengths", os.path.join(CASE, "lengths.jsonl"),
             "--max-seq-len", str(plan["limit_tokens"])]
    refused = eaglet(*eight, expect=73)
    assert "needs about 1.88 GB, free 1.50 GB, short by about 0.38 GB" in refused.stdout, refused.stdout
    assert "1880883200 bytes of states" in refused.stdout and "5169217536 bytes" in refused.stdout, refused.stdout
    for lever in ("--target-layer-ids", "--max-seq-len", "fewer conversations", "on demand"):
        assert lever in refused.stderr, refused.stderr
    told = json.loads(eaglet(*eight, "--force", "--json").stdout)["states"]
    assert told["tokens"] == 32800 and told["bytes_per_token"] == 57344, told
    assert told["tokens_without_limit"] == 90144 and told["fits"] is False, told
    full = eaglet("plan", *shape, "--samples", str(plan["samples_planned"]),
                  "--mean-tokens", str(plan["mean_tokens_planned"]), expect=73)
    assert "needs about 4.72 TB, free 1.50 GB, short by" in full.stdout, full.stdout


def written_is_forecast(folder, model, conversations):
    states = os.path.join(folder, "states")
    planned = json.loads(eaglet("plan", "--model", model, "--conversations", conversations, "--json").stdout)["states"]
    eaglet("extract", "--model", model, "--conversations", conversations, "--output-dir", states)
    written = sum(os.path.getsize(os.path.join(states, name)) for name in os.listdir(states) if name.endswith("shard"))
    assert written == planned["needed_bytes"], (written, planned)
    return states, written


def disk_full_in_the_middle(folder, model, conversations, whole, whole_bytes):
    """The kernel refuses to let a file grow, as a full disk does: clean stop, then a resume."""
    states = os.path.join(folder, "short")
    command = ["extract", "--model", model, "--conversations", conversations, "--output-dir", states,
               "--shard-bytes", "40000"]
    stopped = eaglet(*command, expect=73, largest_file=whole_bytes // 40)
    assert states in stopped.stderr and "bytes, " in stopped.stderr and "are free" in stopped.stderr, stopped.stderr
    kept = [name for name in os.listdir(states) if name.endswith(".shard")]
    for name in kept:
        eaglet("inspect", "--verify", os.path.join(states, name))
    eaglet(*command)
    inspected = [json.loads(eaglet("inspect", "--verify", "--json", path).stdout) for path in (states, whole)]
    assert inspected[0]["documents"] == inspected[1]["documents"] == 24, inspected
    assert not [name for name in os.listdir(states) if name.endswith(".tmp")], os.listdir(states)


def main():
    forecast()
    with tempfile.TemporaryDirectory() as folder:
        model, conversations = os.path.join(folder, "toy.gguf"), os.path.join(folder, "c.jsonl")
        toy_target.write_target(model)
        toy_target.write_conversations(conversations)
        states, written = written_is_forecast(folder, model, conversations)
        disk_full_in_the_middle(folder, model, conversations, states, written)
    print("case 17: ok")


if __name__ == "__main__":
    main()
