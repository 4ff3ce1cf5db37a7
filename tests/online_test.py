"""eaglet train --online: straight from the target, without a store. The same run, bit for bit, as one on a
store: a document's states are a function of its tokens alone."""
import filecmp
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target

EAGLET = os.environ["EAGLET"]


def run(*arguments):
    return subprocess.run([EAGLET, *arguments], capture_output=True, text=True, timeout=300)


def must(result, code=0):
    assert result.returncode == code, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    return result


def train(root, name, *source):
    return run("train", *source, "--model", f"{root}/toy.gguf", "--output-dir", f"{root}/{name}", "--max-seq-len", "64",
               "--max-steps", "24", "--draft-vocab-size", "100", "--threads", "1", "--lr", "3e-3",
               "--validate-every-steps", "12", "--compute-type", "f32")


def numbers(root, name):
    with open(f"{root}/{name}/log.jsonl") as file:
        return [r["total_loss"] for r in map(json.loads, file) if r["event"] in ("step", "validation")]


def main():
    with tempfile.TemporaryDirectory() as root:
        toy_target.write_target(f"{root}/toy.gguf")
        toy_target.write_conversations(f"{root}/conversations.jsonl")
        must(run("extract", "--model", f"{root}/toy.gguf", "--conversations", f"{root}/conversations.jsonl",
                 "--output-dir", f"{root}/states", "--threads", "1"))
        must(train(root, "stored", "--store", f"{root}/states"))
        online = ["--online", "--conversations", f"{root}/conversations.jsonl"]
        for name in ("online", "again"):
            must(train(root, name, *online))
        stored, fresh = numbers(root, "stored"), numbers(root, "online")
        assert len(stored) == len(fresh) == 26, (len(stored), len(fresh))
        assert stored == fresh, f"online differs from the store: {stored[0]} and {fresh[0]} at first"
        weights = "checkpoints/step-000023/model.safetensors"
        assert filecmp.cmp(f"{root}/online/{weights}", f"{root}/again/{weights}", shallow=False), "two online runs differ"
        assert filecmp.cmp(f"{root}/online/{weights}", f"{root}/stored/{weights}", shallow=False), "the weights are not the store's"
        assert os.listdir(f"{root}/online") and not os.path.exists(f"{root}/online/states")
        refused = must(train(root, "both", *online, "--store", f"{root}/states"), 64)
        assert "excludes --store" in refused.stderr, refused.stderr
        print("26 losses and the weights are those of the run on the store")


if __name__ == "__main__":
    main()
