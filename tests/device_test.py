#!/usr/bin/env python3
"""--device on the command line, in a program that has the emulated device in it: chosen by itself, named, refused; training and
evaluation on it agree with the processor's. Skipped where that program was not built."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target

EAGLET, EMULATED = os.environ["EAGLET"], os.environ.get("EAGLET_EMULATED", "")


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600, check=False)


def must(result, code=0):
    assert result.returncode == code, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    return result


def near(a, b, share):
    assert abs(a - b) <= share * abs(b), (a, b)


def train(root, name, program, *more):
    return must(run(program, "train", "--store", f"{root}/states", "--model", f"{root}/toy.gguf", "--output-dir", f"{root}/{name}", "--json",
                    "--max-seq-len", "64", "--max-steps", "2", "--ttt-steps", "2", "--warmup-steps", "1", "--draft-vocab-size", "40",
                    "--intermediate-size", "32", "--threads", "1", "--hold-out-every", "5", *more))


def losses(root, name):
    with open(f"{root}/{name}/log.jsonl", encoding="utf-8") as file:
        return [record["total_loss"] for record in map(json.loads, file) if record["event"] == "step"]


def evaluate(root, program, draft, *more):
    done = must(run(program, "evaluate", "--draft", f"{root}/{draft}/checkpoints/latest", "--model", f"{root}/toy.gguf", "--store",
                    f"{root}/states", "--hold-out-every", "5", "--ttt-steps", "2", "--max-seq-len", "64", "--threads", "1", "--json", *more))
    return json.loads(done.stdout)["held_out"]


def main():
    if not EMULATED:
        print("no program with an emulated device: skipped")
        return 77
    with tempfile.TemporaryDirectory() as root:
        toy_target.write_target(f"{root}/toy.gguf")
        toy_target.write_conversations(f"{root}/conversations.jsonl", 8)
        must(run(EAGLET, "extract", "--model", f"{root}/toy.gguf", "--conversations", f"{root}/conversations.jsonl", "--output-dir",
                 f"{root}/states"))
        host = train(root, "host", EMULATED, "--device", "cpu", "--compute-type", "f32")
        device = train(root, "device", EMULATED, "--compute-type", "f32")  # chosen by itself
        assert "device: the emulation;" in device.stderr, device.stderr
        assert "device:" not in host.stderr, host.stderr
        for name, want in (("host", "cpu"), ("device", "the emulation")):
            with open(f"{root}/{name}/train_config.json", encoding="utf-8") as file:
                assert json.load(file)["device"] == want
        assert json.loads(device.stdout)["device"] == "the emulation" and json.loads(host.stdout)["device"] == "cpu"
        for ours, theirs in zip(losses(root, "device"), losses(root, "host"), strict=True):
            near(ours, theirs, 1e-4)
        on_device, on_host = (evaluate(root, EMULATED, "device", "--device", name) for name in ("cuda:0", "cpu"))
        near(on_device["acceptance_length"], on_host["acceptance_length"], 1e-6)
        for ours, theirs in zip(on_device["depth"], on_host["depth"], strict=True):
            near(ours["loss"], theirs["loss"], 1e-4)
            assert ours["right"] == theirs["right"], (ours, theirs)
        refused = run(EMULATED, "train", "--store", "none", "--model", "none.gguf", "--output-dir", f"{root}/none", "--device", "cuda:1")
        assert refused.returncode == 69 and "there is no CUDA device 1" in refused.stderr, refused.stderr
        assert json.loads(must(run(EMULATED, "--version", "--json")).stdout)["libraries"]["CUDA"] == "emulated"
        print("training and evaluation on the emulated device agree with the processor's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
