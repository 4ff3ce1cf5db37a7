"""The newest checkpoints of a run are broken: eaglet train goes on from the newest whole one by number, says why the others
were passed over, deletes none, and the rate is that of its step. Asked by name for a broken one it refuses."""
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target

EAGLET = os.environ["EAGLET"]
SCHEDULE = {"lr": 1e-4, "warmup": 100, "total": 1000}


def run(*arguments):
    return subprocess.run([EAGLET, *arguments], capture_output=True, text=True, timeout=300)


def must(result, code=0):
    assert result.returncode == code, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    return result


def train(root, name, steps, *more):
    return run("train", "--store", f"{root}/states", "--model", f"{root}/toy.gguf", "--output-dir", f"{root}/{name}",
               "--max-seq-len", "128", "--max-steps", str(steps), "--draft-vocab-size", "100", "--threads", "1",
               "--hold-out-every", "0", "--checkpoint-every-steps", "1000", "--scheduler-type", "linear",
               "--lr", str(SCHEDULE["lr"]), "--warmup-steps", str(SCHEDULE["warmup"]),
               "--scheduler-total-steps", str(SCHEDULE["total"]), *more)


def rate(step):
    return SCHEDULE["lr"] * (SCHEDULE["total"] - step) / (SCHEDULE["total"] - SCHEDULE["warmup"])


def steps_of(root, name):
    with open(f"{root}/{name}/log.jsonl") as file:
        return {r["step"]: r for r in map(json.loads, file) if r["event"] == "step"}


def cut(path):
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) // 2)


def break_the_newest(folder):
    """Three more checkpoints, and what became of them: weights cut; only a temporary file; a cut state file."""
    for step in (300, 400, 500):
        shutil.copytree(f"{folder}/step-000200", f"{folder}/step-{step:06d}")
    cut(f"{folder}/step-000300/model.safetensors")
    os.rename(f"{folder}/step-000400/model.safetensors", f"{folder}/step-000400/model.safetensors.tmp")
    for name in ("optimizer.safetensors", "trainer_state.json", "COMPLETE"):
        os.remove(f"{folder}/step-000400/{name}")
    cut(f"{folder}/step-000500/trainer_state.json")
    os.mkdir(f"{folder}/checkpoint-best-notes")


def main():
    with tempfile.TemporaryDirectory() as root:
        toy_target.write_target(f"{root}/toy.gguf")
        toy_target.write_conversations(f"{root}/conversations.jsonl")
        must(run("extract", "--model", f"{root}/toy.gguf", "--conversations", f"{root}/conversations.jsonl",
                 "--output-dir", f"{root}/states"))
        must(train(root, "whole", 211))
        must(train(root, "run", 91))
        must(train(root, "run", 201))  # the schedule has its own end, so the run may be made longer
        checkpoints = f"{root}/run/checkpoints"
        assert {"step-000090", "step-000200"} <= set(os.listdir(checkpoints)), os.listdir(checkpoints)
        break_the_newest(checkpoints)
        before = sorted(os.listdir(checkpoints))

        named = must(train(root, "run", 211, "--resume-from", "step-000300"), 65)
        assert "step-000300 cannot be used: model.safetensors has" in named.stderr, named.stderr
        assert sorted(os.listdir(checkpoints)) == before

        result = must(train(root, "run", 211))
        for words in ("resuming from step-000200", "step-000300 is passed over: model.safetensors has",
                      "step-000400 is passed over: it has no COMPLETE file",
                      "step-000500 is passed over: trainer_state.json has"):
            assert words in result.stderr, f"{words}\n{result.stderr}"
        assert set(before) <= set(os.listdir(checkpoints)), "a broken checkpoint was deleted"
        steps = steps_of(root, "run")
        for step, written in ((200, 8.888889e-05), (201, 8.877778e-05)):
            assert abs(rate(step) - written) < 1e-10 and abs(steps[step]["lr"] - rate(step)) < 1e-12, steps[step]
        last = "checkpoints/step-000210"
        for file in ("model.safetensors", "optimizer.safetensors", "trainer_state.json"):
            assert filecmp.cmp(f"{root}/whole/{last}/{file}", f"{root}/run/{last}/{file}", shallow=False), file

        for name in ("step-000090", "step-000200", "step-000210"):
            cut(f"{checkpoints}/{name}/model.safetensors")
        nothing = must(train(root, "run", 211), 78)
        assert "no checkpoint of the earlier run is whole" in nothing.stderr and "--start-over" in nothing.stderr
        print("went on from 200 with the rate of step 201; the three broken ones are where they were")


if __name__ == "__main__":
    main()
