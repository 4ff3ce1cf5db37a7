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


def main():
    with tempfile.TemporaryDirectory() as root:
        exact_on_the_toy(root)
        print("three plans are what their runs did")
    return 0


if __name__ == "__main__":
    sys.exit(main())
