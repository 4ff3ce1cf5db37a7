"""eaglet train on several ranks without MPI: those that it starts itself (--ranks N) and those that find each other by torchrun's
variables. They give the losses of one rank with N-fold accumulation; signals are passed on; a rank that dies or stands still ends the run
with its name; ranks that do not fit together are refused."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ranks_test
from ranks_test import EAGLET, STEPS, children, command, config, must, records

ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive")
STARTED = []  # must not go on when a test fails
LONG = ("--max-steps", "4000", "--scheduler-type", "constant")


def run(arguments, seconds=120, **environment):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=seconds, env=dict(ENVIRONMENT, **environment))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def torchrun(commands, **environment):
    """One process a command, as torchrun would start them; their results."""
    told = dict(ENVIRONMENT, WORLD_SIZE=str(len(commands)), MASTER_ADDR="localhost", MASTER_PORT=free_port(), **environment)
    processes = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=dict(told, RANK=str(rank), LOCAL_RANK=str(rank))) for rank, words in enumerate(commands)]
    results = []
    for process in processes:
        out, errors = process.communicate(timeout=120)
        results.append(subprocess.CompletedProcess(process.args, process.returncode, out, errors))
    return results


def differences(a, b, fields):
    assert [r["step"] for r in a] == [r["step"] for r in b] and a
    return max(abs(x[f] - y[f]) / max(abs(x[f]), 1e-12) for x, y in zip(a, b) for f in fields)


def same_curve(root, ranks):
    must(run(command(root, f"alone{ranks}", "--accumulation-steps", str(ranks))))
    result = must(run(command(root, f"own{ranks}", "--ranks", str(ranks))))
    assert result.stdout.count("best checkpoint") == 1, "only rank 0 may talk:\n" + result.stdout[-2000:]
    assert config(root, f"own{ranks}")["ranks"] == ranks and config(root, f"own{ranks}")["train_batches"] % ranks != 0
    worst = max(differences(records(root, f"alone{ranks}", event), records(root, f"own{ranks}", event), fields) for event, fields in
                (("step", ("total_loss", "grad_norm", "acceptance_length", "lr")), ("validation", ("total_loss",))))
    assert worst <= 1e-6, f"{ranks} ranks differ from one with {ranks}-fold accumulation: {worst:.2e}"
    return worst


def by_torchruns_variables(root):
    results = torchrun([command(root, "torchrun")] * 2)
    for result in results:
        must(result)
    assert "best checkpoint" in results[0].stdout and results[1].stdout == "", results[1].stdout
    assert differences(records(root, "own2"), records(root, "torchrun"), ("total_loss", "grad_norm")) == 0
    must(run(command(root, "sharded", "--shard-optimizer", "--ranks", "2")))
    ranks_test.same_checkpoint(root, "torchrun", "sharded")


def start_and_wait_for_step(root, name, step, *more):
    process = subprocess.Popen(command(root, name, *LONG, "--ranks", "3", *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=ENVIRONMENT)
    STARTED.append(process)
    for line in process.stdout:
        if line.startswith(f"step {step}/"):
            return process
    raise AssertionError("no such step: " + process.stderr.read()[-2000:])


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return int(dict(word.split(b"=", 1) for word in file.read().split(b"\0") if b"=" in word)[b"RANK"])


def signals_are_passed_on(root):
    process = start_and_wait_for_step(root, "stopped", 5)
    process.send_signal(signal.SIGUSR1)
    until, said = time.monotonic() + 20, ""
    while time.monotonic() < until and "SIGUSR1: saving" not in (line := process.stderr.readline()):
        said += line
        assert line, f"ended with {process.wait(60)} at SIGUSR1:\n{said[-3000:]}"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and "saved as step-" in errors, (process.returncode, errors[-2000:])
    last = records(root, "stopped", "checkpoint")[-1]["step"]
    more = ["--max-steps", str(last + 3), "--scheduler-type", "constant", "--ranks", "3"]
    must(run(command(root, "stopped", *more)))
    must(run(command(root, "undisturbed", *more)))
    with open(f"{root}/stopped/checkpoints/step-{last + 2:06d}/model.safetensors", "rb") as a, \
            open(f"{root}/undisturbed/checkpoints/step-{last + 2:06d}/model.safetensors", "rb") as b:
        assert a.read() == b.read(), "a resumed run of three ranks differs from an undisturbed one"


def a_rank_that_dies(root):
    process = start_and_wait_for_step(root, "dead", 6)
    ranks = {rank_of(pid): pid for pid in children(process.pid)}
    assert sorted(ranks) == [0, 1, 2], ranks
    began = time.monotonic()
    os.kill(ranks[2], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    seconds = time.monotonic() - began
    assert process.returncode == 69 and seconds < 10, (process.returncode, seconds, errors[-2000:])
    assert f"rank 2 of 3 (pid {ranks[2]}) was killed by signal 9" in errors, errors[-3000:]
    assert "error: rank 2 of 3" in errors and "is gone" in errors, errors[-3000:]
    resumed = must(run(command(root, "dead", *LONG, "--ranks", "3", "--max-time", "0.1")))
    assert "resuming from step-" in resumed.stderr, resumed.stderr[-2000:]
    return seconds


def a_rank_that_stands_still(root):
    process = start_and_wait_for_step(root, "still", 6, "--rank-timeout", "2")
    ranks = {rank_of(pid): pid for pid in children(process.pid)}
    os.kill(ranks[1], signal.SIGSTOP)
    began, errors = time.monotonic(), ""
    for line in process.stderr:
        errors += line
        if "has ended with exit code 69" in line:
            os.kill(ranks[1], signal.SIGKILL)  # else the program does it, some seconds later
    process.communicate(timeout=60)
    seconds = time.monotonic() - began
    assert process.returncode == 69 and seconds < 20, (process.returncode, seconds, errors[-2000:])
    assert "rank 1 of 3" in errors and "does not answer any more" in errors, errors[-3000:]
    return seconds


def no_rank_outlives_its_starter(root):
    process = start_and_wait_for_step(root, "orphans", 3)
    ranks = children(process.pid)
    process.kill()
    process.communicate(timeout=60)
    until = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in ranks):
        assert time.monotonic() < until, "ranks go on without the program that started them"
        time.sleep(0.1)


def what_does_not_fit_is_refused(root):
    def refused(result, code, *words):
        assert result.returncode == code and all(word in result.stderr for word in words), (result.returncode, result.stderr[-2000:])
        return result.stderr

    for result in torchrun([command(root, "differ", "--seed", "1"), command(root, "differ", "--seed", "2")]):
        refused(result, 78, "other settings or weights")
    for result in torchrun([command(root, "differ"), command(root, "differ", "--device", "auto")][:2]):
        must(result)  # the same, said and not said
    results = torchrun([command(root, "differ2", "--device", "cpu"), command(root, "differ2")])
    refused(results[0], 78, "--device auto, rank 0 with cpu")
    refused(run(command(root, "no", "--ranks", "2"), WORLD_SIZE="2", RANK="0", MASTER_ADDR="localhost", MASTER_PORT="1"), 78, "several ranks already")
    refused(run(command(root, "no"), WORLD_SIZE="2", MASTER_ADDR="localhost"), 78, "RANK is not set")
    refused(run(command(root, "no", "--gpus", "2", "--ranks", "2")), 64, "--gpus excludes --ranks")
    refused(run(command(root, "no", "--gpus", "2", "--device", "cpu")), 64, "--gpus excludes --device cpu")
    refused(run(command(root, "no", "--ranks", "2", "--device", "cuda:0")), 64, "several ranks cannot compute on 'cuda:0'")
    refused(run(command(root, "no", "--gpus", "2")), 69, "this machine has" if "CUDA" in built_with() else "built without CUDA")
    told = refused(run(command(root, "no", "--ranks", "3", "--store", f"{root}/nowhere")), 66, "nowhere")
    assert told.count("error:") <= 2, "what all ranks say is said once by rank 0 and once by another:\n" + told
    with socket.socket() as s:
        s.bind(("0.0.0.0", 0))
        s.listen()
        port = str(s.getsockname()[1])
        refused(run(command(root, "no"), WORLD_SIZE="2", RANK="0", MASTER_ADDR="localhost", MASTER_PORT=port), 69, f"port {port} is in use")
    refused(run(command(root, "no", "--rank-timeout", "1"), WORLD_SIZE="2", RANK="0", MASTER_ADDR="localhost", MASTER_PORT=free_port()), 69,
            "only 1 of 2 ranks have come within 1 s; missing: rank 1")


def a_run_of_all_stages(root):
    """[run] ranks of a recipe: the train stage is that of `eaglet train --ranks`."""
    with open(f"{root}/recipe.toml", "w") as file:
        file.write(f"""[run]
conversations = "conversations.jsonl"
threads = 1
ranks = 2
[model]
path = "toy.gguf"
[train]
max_seq_len = 64
max_steps = {STEPS}
draft_vocab_size = 100
num_workers = 1
lr = 3e-3
checkpoint_every_steps = 4
compute_type = "f32"
[serve]
enabled = false
""")
    def words(name, *settings):
        return [EAGLET, "--progress", "plain", "run", f"{root}/recipe.toml", "--output-dir", f"{root}/{name}", *[w for s in settings for w in ("--set", s)]]

    def started(name, step):
        process = subprocess.Popen(words(name, "train.max_steps=100000", "train.scheduler_type=constant", "run.rank_timeout=33",
                                         "run.shard_optimizer=true"), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        STARTED.append(process)
        until = time.monotonic() + 60
        while not (os.path.exists(f"{root}/{name}/draft/log.jsonl") and any(r["step"] >= step for r in records(root, f"{name}/draft"))):
            assert time.monotonic() < until and process.poll() is None, process.stderr.read()[-3000:]
            time.sleep(0.05)
        return process

    done = must(run(words("all")))
    assert "report" not in done.stderr and "6/6" not in done.stderr and not os.path.exists(f"{root}/all/stages/ranks.json"), done.stderr
    with open(f"{root}/all/stages/train.json") as file:
        result = json.load(file)["result"]
    assert result["ranks"] == 2 and result["best_checkpoint"].startswith("draft/checkpoints/"), result
    assert differences(records(root, "own2"), records(root, "all/draft"), ("total_loss", "grad_norm")) == 0
    assert "[3/5] train: done earlier, kept" in must(run(words("all"))).stderr
    process = started("long", 5)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and "saved as step-" in errors and "the same command goes on" in errors, errors[-3000:]
    last = records(root, "long/draft", "checkpoint")[-1]["step"]
    process = started("long", last + 3)
    lost = next(pid for pid in children(process.pid) if rank_of(pid) == 1)
    with open(f"/proc/{lost}/cmdline", encoding="utf-8") as file:
        told = file.read().split("\0")
    assert "--shard-optimizer" in told and told[told.index("--rank-timeout") + 1] == "33", told
    os.kill(lost, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 69 and f"rank 1 of 2 (pid {lost}) was killed by signal 9" in errors, (process.returncode, errors[-3000:])
    assert "resuming from step-" in errors and "their own words stand above" in errors, errors[-3000:]
    none = run(words("none", "run.ranks=0", "run.gpus=2"))
    assert none.returncode == 69 and not os.path.exists(f"{root}/none/states"), (none.returncode, none.stderr[-2000:])
    assert run(words("none", "run.ranks=-1")).returncode == 78


def built_with():
    return [name for name, version in json.loads(run([EAGLET, "--version", "--json"]).stdout)["libraries"].items() if version != "built without"]


def main():
    with tempfile.TemporaryDirectory() as root:
        ranks_test.prepare(root)
        for ranks in (2, 3):
            print(f"{ranks} ranks: at most {same_curve(root, ranks):.1e} from one rank with {ranks}-fold accumulation over {STEPS} steps")
        by_torchruns_variables(root)
        what_does_not_fit_is_refused(root)
        a_run_of_all_stages(root)
        signals_are_passed_on(root)
        no_rank_outlives_its_starter(root)
        print(f"a killed rank ended the run after {a_rank_that_dies(root):.1f} s, one that stood still after {a_rank_that_stands_still(root):.1f} s")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        for started in STARTED:
            started.kill()
