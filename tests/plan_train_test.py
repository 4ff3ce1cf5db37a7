"""eaglet plan train: batches, steps and arithmetic are exactly those of the run, with and without states, and its
first lines say the same."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target

EAGLET = os.environ["EAGLET"]


def run(*arguments):
    return subprocess.run([EAGLET, *arguments], capture_output=True, text=True, timeout=600)


def must(result, code=0):
    assert result.returncode == code, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    return result


def document(*arguments):
    return json.loads(must(run(*arguments, "--json")).stdout)


def train(arguments):
    """The run's report and what it said."""
    result = must(run("train", *arguments, "--json"))
    return json.loads(result.stdout), result.stderr


def exact_on_the_toy(root):
    toy_target.write_target(f"{root}/toy.gguf")
    toy_target.write_conversations(f"{root}/conversations.jsonl")
    must(run("extract", "--model", f"{root}/toy.gguf", "--conversations", f"{root}/conversations.jsonl",
             "--output-dir", f"{root}/states"))
    for flags in (["--epochs", "2"], ["--max-steps", "7", "--optimizer", "muon"], ["--accumulation-steps", "3", "--epochs", "2"]):
        common = ["--model", f"{root}/toy.gguf", "--max-seq-len", "64", "--draft-vocab-size", "100", "--threads", "1", "--compute-type", "f32", *flags]
        plan = document("plan", "train", "--store", f"{root}/states", *common)
        before = document("plan", "train", "--online", "--conversations", f"{root}/conversations.jsonl", *common)
        report, errors = train(["--store", f"{root}/states", "--output-dir", f"{root}/run{'_'.join(flags)}", *common])
        with open(f"{root}/run{'_'.join(flags)}/train_config.json") as file:
            config = json.load(file)
        for field in ("train_batches", "total_steps", "real_tokens", "supervised_tokens", "trainable_params", "total_params",
                      "fill_ratio", "cut_documents", "dropped_unsupervised"):
            assert plan[field] == before[field] == config[field], (field, plan[field], before[field], config[field])
        for other in (before["needed_gflop"], config["needed_gflop"], report["needed_gflop"]):
            assert abs(plan["needed_gflop"] / other - 1) < 1e-12, (flags, plan["needed_gflop"], other)
        assert f"batches: {plan['train_batches']} of 64 rows" in errors and f"steps: {plan['total_steps']} (" in errors, errors
    assert not os.path.exists("not written")
    on_devices(root)


def on_devices(root):
    """The run's own batches on accelerators that are not there."""
    common = ["plan", "train", "--store", f"{root}/states", "--model", f"{root}/toy.gguf", "--max-seq-len", "64", "--draft-vocab-size", "100",
              "--threads", "1", "--epochs", "2"]
    one = document(*common, "--device", "h100,4090", "--ranks", "1,2")
    assert [(p["device"], p["ranks"]) for p in one["devices"]] == [("h100", 1), ("h100", 2), ("4090", 1), ("4090", 2)], one["devices"]
    assert one["train_batches"] <= 32, "all batches are looked at"
    for p in one["devices"]:
        assert abs(1e3 * p["needed_tflop"] * one["total_steps"] / one["needed_gflop"] - 1) < 1e-9, p
        assert abs(p["run_seconds"] * p["tokens_per_second"] / one["run_tokens"] - 1) < 1e-9 and p["fits"] and p["fitting_max_seq_len"] > 64, p
    twice = document(*common, "--device", "h100", "--ranks", "1", "--accumulation-steps", "2")["devices"][0]
    assert abs(twice["needed_tflop"] / one["devices"][0]["needed_tflop"] - 2) < 1e-9, twice
    assert twice["step_seconds"] < 2 * one["devices"][0]["step_seconds"], "one update of the weights"
    text = must(run(*common, "--device", "h100", "--by-op")).stdout
    assert "batches looked at" in text and "AdamW" in text and "the run: about" in text and "would fill it" in text, text
    no_device = run(*common, "--ranks", "4")
    assert no_device.returncode == 64 and "--device" in no_device.stderr, no_device.stderr


def main():
    with tempfile.TemporaryDirectory() as root:
        exact_on_the_toy(root)
        print("three plans are what their runs did")
    return 0


if __name__ == "__main__":
    sys.exit(main())
