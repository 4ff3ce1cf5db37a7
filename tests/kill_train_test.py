"""eaglet train, killed with SIGKILL at random moments and started again with the same command, must end in the very
checkpoint of a run that was never disturbed. SIGTERM must save first and exit with 143."""
import filecmp
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target

EAGLET = os.environ["EAGLET"]
KILLED_RUNS, KILLS_A_RUN = 3, 3
STEPS = 90


def run(*arguments):
    return subprocess.run([EAGLET, *arguments], capture_output=True, text=True, timeout=300)


def must(result, code=0):
    assert result.returncode == code, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    return result


def train_command(root, name):
    return [EAGLET, "train", "--store", f"{root}/states", "--model", f"{root}/toy.gguf", "--output-dir",
            f"{root}/{name}", "--max-seq-len", "128", "--max-steps", str(STEPS), "--draft-vocab-size", "100",
            "--checkpoint-every-steps", "8", "--validate-every-steps", "20", "--keep-checkpoints", "3",
            "--threads", "1", "--lr", "3e-3"]  # one thread: no waiting for each other on a busy machine


def prepare(root):
    toy_target.write_target(f"{root}/toy.gguf")
    toy_target.write_conversations(f"{root}/conversations.jsonl")
    must(run("extract", "--model", f"{root}/toy.gguf", "--conversations", f"{root}/conversations.jsonl",
             "--output-dir", f"{root}/states"))


def final_folder(root, name):
    return f"{root}/{name}/checkpoints/step-{STEPS - 1:06d}"


def expect_same(root, name):
    whole, other = final_folder(root, "whole"), final_folder(root, name)
    files = sorted(os.listdir(whole))
    assert files == sorted(os.listdir(other)), (files, os.listdir(other))
    assert "COMPLETE" in files and "optimizer.safetensors" in files, files
    for file in files:
        assert filecmp.cmp(f"{whole}/{file}", f"{other}/{file}", shallow=False), f"{name}: {file} differs"


def logged_steps(root, name):
    """Steps that hold: a start or resume line cancels the steps from there on before it."""
    steps = []
    with open(f"{root}/{name}/log.jsonl") as file:
        for line in file:
            record = json.loads(line)
            if record["event"] in ("start", "resume"):
                steps = [s for s in steps if s < record["step"]]
            elif record["event"] == "step":
                steps.append(record["step"])
    return steps


def kill_and_repeat(root, name, seconds, rng):
    kills = 0
    while True:
        process = subprocess.Popen(train_command(root, name), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if kills < KILLS_A_RUN:
            time.sleep(rng.uniform(0.02, seconds / 2.5))
            if process.poll() is None:
                process.kill()
                kills += 1
        _, errors = process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, f"exit {process.returncode}: {errors[-2000:]}"
    expect_same(root, name)
    assert logged_steps(root, name) == list(range(STEPS))
    return kills


def terminate_and_go_on(root):
    name = "terminated"
    process = subprocess.Popen(train_command(root, name), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:  # one flushed line a step
        if line.startswith("step 30/"):
            process.send_signal(signal.SIGTERM)
            break
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, (process.returncode, errors[-2000:])
    assert "saved as step-" in errors, errors[-2000:]
    with open(f"{root}/{name}/status.json") as file:
        assert json.load(file)["phase"] == "interrupted"
    must(subprocess.run(train_command(root, name), capture_output=True, text=True, timeout=300))
    expect_same(root, name)


def second_run_is_refused(root):
    first = subprocess.Popen(train_command(root, "busy"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    first.stdout.readline()
    second = subprocess.run(train_command(root, "busy"), capture_output=True, text=True, timeout=60)
    first.kill()
    first.communicate()
    assert second.returncode == 75, (second.returncode, second.stderr)
    assert str(first.pid) in second.stderr, second.stderr


def main():
    rng = random.Random(int(os.environ.get("EAGLET_KILL_SEED", time.time_ns())))
    with tempfile.TemporaryDirectory() as root:
        prepare(root)
        began = time.monotonic()
        must(subprocess.run(train_command(root, "whole"), capture_output=True, text=True, timeout=300))
        seconds = time.monotonic() - began
        assert logged_steps(root, "whole") == list(range(STEPS))
        second_run_is_refused(root)
        terminate_and_go_on(root)
        kills = sum(kill_and_repeat(root, f"killed{i}", seconds, rng) for i in range(KILLED_RUNS))
        assert kills >= KILLED_RUNS, f"only {kills} kills hit a living run"
        print(f"undisturbed {seconds:.1f} s; {kills} kills over {KILLED_RUNS} runs, all final checkpoints equal")


if __name__ == "__main__":
    main()
