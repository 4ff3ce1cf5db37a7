#!/usr/bin/env python3
"""eaglet train --gpus N in a program that has emulated devices in it: ranks learn what one rank learns with N-fold accumulation, on their
own devices; what cannot be is refused; a rank that is lost ends the run with its name. Skipped where that program was not built."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target
from own_ranks_test import differences, rank_of, torchrun
from ranks_test import children, must, records, same_checkpoint

EAGLET, EMULATED = os.environ["EAGLET"], os.environ.get("EAGLET_EMULATED", "")


def environment(devices, **more):
    return dict(os.environ, OMP_WAIT_POLICY="passive", EAGLET_EMULATION_DEVICES=str(devices), **more)


def command(root, name, *more):
    return [EMULATED, "train", "--store", f"{root}/states", "--model", f"{root}/toy.gguf", "--output-dir", f"{root}/{name}",
            "--max-seq-len", "64", "--max-steps", "3", "--ttt-steps", "2", "--warmup-steps", "1", "--draft-vocab-size", "40",
            "--intermediate-size", "32", "--threads", "1", "--hold-out-every", "5", "--compute-type", "f32", *more]


def run(root, name, *more, devices=2, **more_environment):
    return subprocess.run(command(root, name, *more), capture_output=True, text=True, timeout=300, check=False,
                          env=environment(devices, **more_environment))


def refused(result, code, *words):
    assert result.returncode == code and all(word in result.stderr for word in words), (result.returncode, result.stderr[-2000:])


def ranks_learn_what_one_does(root):
    must(run(root, "alone", "--accumulation-steps", "2"))
    result = must(run(root, "two", "--gpus", "2", "--json"))
    report = json.loads(result.stdout)
    assert report["ranks"] == 2 and report["device"] == "the emulation", report
    must(run(root, "shared", "--ranks", "2", "--shard-optimizer"))  # auto takes the devices
    with open(f"{root}/shared/train_config.json", encoding="utf-8") as file:
        assert json.load(file)["device"] == "the emulation"
    worst = max(differences(records(root, "alone", event), records(root, "two", event), fields) for event, fields in
                (("step", ("total_loss", "grad_norm", "acceptance_length")), ("validation", ("total_loss",))))
    assert worst <= 1e-6, worst
    same_checkpoint(root, "two", "shared", step=2)
    return worst


def what_cannot_be(root):
    refused(run(root, "no", "--gpus", "3"), 69, "3 GPUs are wanted, and this machine has 2")
    refused(run(root, "no", "--ranks", "3", "--device", "cuda"), 69, "rank 2 has no device: its machine has 2 CUDA devices for 3 ranks")
    refused(run(root, "no", "--ranks", "3"), 78, "2 of 3 ranks have a CUDA device of their own")
    refused(run(root, "no", "--ranks", "2", "--device", "cuda", devices=1), 78, "ranks 0 and 1 have the same CUDA device")
    refused(run(root, "no", "--gpus", "2", EAGLET_EMULATION_WITHOUT_NCCL="1"), 66, "NCCL is not on this machine")
    for result in torchrun([command(root, "cpu", "--device", "cpu")] * 2, EAGLET_EMULATION_DEVICES="2"):
        must(result)
        assert "device:" not in result.stderr, result.stderr


def a_recipe_may_name_gpus(root):
    with open(f"{root}/recipe.toml", "w", encoding="utf-8") as file:
        file.write('[run]\nconversations = "conversations.jsonl"\noutput_dir = "none"\nthreads = 1\ngpus = 2\n[model]\npath = "toy.gguf"\n'
                   '[train]\nmax_seq_len = 64\nmax_steps = 2\nttt_steps = 2\ndraft_vocab_size = 40\nintermediate_size = 32\nhold_out_every = 5\n'
                   '[serve]\nenabled = false\n')

    def all_stages(devices):
        return subprocess.run([EMULATED, "run", f"{root}/recipe.toml", "--output-dir", f"{root}/all"], capture_output=True, text=True, timeout=300,
                              check=False, env=environment(devices))

    refused(all_stages(1), 69, "2 GPUs are wanted, and this machine has 1")
    assert not os.path.exists(f"{root}/all/states"), "what cannot be done at the end is said before anything begins"
    must(all_stages(2))
    with open(f"{root}/all/stages/train.json", encoding="utf-8") as file:
        result = json.load(file)["result"]
    assert result["ranks"] == 2 and result["device"] == "the emulation", result


def a_rank_that_dies(root):
    process = subprocess.Popen(command(root, "dead", "--gpus", "2", "--max-steps", "500"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=environment(2))
    for line in process.stdout:
        if line.startswith("step 2/"):
            break
    ranks = {rank_of(pid): pid for pid in children(process.pid)}
    began = time.monotonic()
    os.kill(ranks[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 69 and "rank 1 of 2" in errors and "is gone" in errors, (process.returncode, errors[-2000:])
    assert f"rank 1 of 2 (pid {ranks[1]}) was killed by signal 9" in errors, errors[-2000:]
    return time.monotonic() - began


def main():
    if not EMULATED:
        print("no program with an emulated device: skipped")
        return 77
    with tempfile.TemporaryDirectory() as root:
        toy_target.write_target(f"{root}/toy.gguf")
        toy_target.write_conversations(f"{root}/conversations.jsonl", 8)
        must(subprocess.run([EAGLET, "extract", "--model", f"{root}/toy.gguf", "--conversations", f"{root}/conversations.jsonl",
                             "--output-dir", f"{root}/states"], capture_output=True, text=True, timeout=300, check=False))
        print(f"two devices: at most {ranks_learn_what_one_does(root):.1e} from one with twice the batches")
        what_cannot_be(root)
        a_recipe_may_name_gpus(root)
        print(f"a killed rank ended the run after {a_rank_that_dies(root):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
