"""eaglet train on several ranks: N ranks give the losses of one rank with N-fold accumulation, a rank may have no document
left, sharded moments change nothing, a signal saves, a rank that dies ends the run within seconds and costs nothing that was
saved. Skipped when eaglet was built without MPI or there is no mpirun."""
import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target

EAGLET = os.environ["EAGLET"]
STEPS = 12
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none",
                   OMPI_MCA_mpi_yield_when_idle="1", OMPI_MCA_btl_vader_single_copy_mechanism="none",
)
# mpirun waits that long before SIGTERM and again before SIGKILL, and reads nothing from its ranks meanwhile.
PATIENT = dict(ENVIRONMENT, OMPI_MCA_odls_base_sigkill_timeout="8")


def must(result, code=0):
    assert result.returncode == code, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-3000:]}"
    return result


def command(root, name, *more):
    flags = {"--store": f"{root}/states", "--model": f"{root}/toy.gguf", "--output-dir": f"{root}/{name}",
             "--max-seq-len": "64", "--max-steps": str(STEPS), "--draft-vocab-size": "100", "--threads": "1",
             "--num-workers": "1", "--lr": "3e-3", "--checkpoint-every-steps": "4",
             "--compute-type": "f32"}  # bf16 rounds sums that differ in the last bit to other neighbours
    alone = [flag for flag in more if flag == "--shard-optimizer"]
    pairs = [flag for flag in more if flag != "--shard-optimizer"]
    flags.update(zip(pairs[::2], pairs[1::2]))
    return [EAGLET, "train", *[word for pair in flags.items() for word in pair], *alone]


def mpirun(ranks, arguments):
    return ["mpirun", "-np", str(ranks), *arguments]


def run(arguments, seconds=120):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=seconds, env=ENVIRONMENT)


def prepare(root):
    toy_target.write_target(f"{root}/toy.gguf")
    toy_target.write_conversations(f"{root}/conversations.jsonl")
    must(run([EAGLET, "extract", "--model", f"{root}/toy.gguf", "--conversations", f"{root}/conversations.jsonl",
              "--output-dir", f"{root}/states"]))


def records(root, name, event="step"):
    with open(f"{root}/{name}/log.jsonl") as file:
        return [r for r in map(json.loads, file) if r["event"] == event]


def config(root, name):
    with open(f"{root}/{name}/train_config.json") as file:
        return json.load(file)


def close(a, b, relative):
    assert len(a) == len(b) == STEPS, (len(a), len(b))
    worst = max(abs(x - y) / abs(x) for x, y in zip(a, b))
    assert worst <= relative, f"relative difference {worst:.2e}"
    return worst


def same_curve(root, ranks):
    alone, together = f"alone{ranks}", f"together{ranks}"
    must(run(command(root, alone, "--accumulation-steps", str(ranks))))
    result = must(run(mpirun(ranks, command(root, together))))
    assert result.stdout.count("best checkpoint") == 1, "only rank 0 may talk:\n" + result.stdout[-2000:]
    assert config(root, alone)["train_batches"] % ranks != 0, "every share is even: the test would not see an uneven one"
    assert config(root, together)["ranks"] == ranks
    worst = 0
    for event, fields in (("step", ("total_loss", "grad_norm", "acceptance_length", "lr")), ("validation", ("total_loss",))):
        a, b = records(root, alone, event), records(root, together, event)
        assert [r["step"] for r in a] == [r["step"] for r in b] and a
        for field in fields:
            for x, y in zip(a, b):
                worst = max(worst, abs(x[field] - y[field]) / max(abs(x[field]), 1e-12))
    assert worst <= 1e-5, f"{ranks} ranks differ from one with {ranks}-fold accumulation: {worst:.2e}"
    return worst


def same_checkpoint(root, a, b, step=STEPS - 1):
    a, b = (f"{root}/{name}/checkpoints/step-{step:06d}" for name in (a, b))
    files = sorted(os.listdir(a))
    assert files == sorted(os.listdir(b)) and "optimizer.safetensors" in files, files
    for file in files:
        assert filecmp.cmp(f"{a}/{file}", f"{b}/{file}", shallow=False), f"{b}: {file} differs"


def sharded_moments_change_nothing(root):
    for optimizer in ("adamw", "muon"):
        must(run(mpirun(2, command(root, f"{optimizer}", "--optimizer", optimizer))))
        must(run(mpirun(2, command(root, f"{optimizer}_sharded", "--optimizer", optimizer, "--shard-optimizer"))))
        same_checkpoint(root, optimizer, f"{optimizer}_sharded")


def more_ranks_than_batches(root):
    small = ["--max-seq-len", "4096", "--max-steps", str(STEPS)]
    must(run(command(root, "few_alone", *small, "--accumulation-steps", "3")))
    assert config(root, "few_alone")["train_batches"] < 3
    must(run(mpirun(3, command(root, "few", *small))))
    close([r["total_loss"] for r in records(root, "few_alone")], [r["total_loss"] for r in records(root, "few")], 1e-5)


def children(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == pid:
                found.append(int(entry))
    return sorted(found)


def start_and_wait_for_step(root, name, step, environment, *more):
    process = subprocess.Popen(mpirun(2, command(root, name, "--max-steps", "4000", "--scheduler-type", "constant", *more)),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    for line in process.stdout:
        if line.startswith(f"step {step}/"):
            return process
    raise AssertionError("no such step: " + process.stderr.read()[-2000:])


def signal_saves(root):
    process = start_and_wait_for_step(root, "stopped", 6, PATIENT)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and "saved as step-" in errors, (process.returncode, errors[-2000:])
    last = records(root, "stopped", "checkpoint")[-1]["step"]
    more = ["--max-steps", str(last + 3), "--scheduler-type", "constant"]
    must(run(mpirun(2, command(root, "stopped", *more))))
    must(run(mpirun(2, command(root, "undisturbed", *more))))
    a, b = (f"{root}/{name}/checkpoints/step-{last + 2:06d}/model.safetensors" for name in ("stopped", "undisturbed"))
    assert filecmp.cmp(a, b, shallow=False), "a resumed run of two ranks differs from an undisturbed one"


def dead_rank_ends_the_run(root):
    process = start_and_wait_for_step(root, "dead", 6, ENVIRONMENT)
    with open(f"{root}/dead/status.json") as file:
        first = json.load(file)["pid"]
    others = [pid for pid in children(process.pid) if pid != first]
    assert len(others) == 1, others
    began = time.monotonic()
    os.kill(others[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    seconds = time.monotonic() - began
    assert process.returncode != 0 and seconds < 10, (process.returncode, seconds)
    assert "rank 1 of 2" in errors and "is gone" in errors, errors[-3000:]
    resumed = must(run(mpirun(2, command(root, "dead", "--max-steps", "4000", "--scheduler-type", "constant",
                                         "--max-time", "0.1"))))
    assert "resuming from step-" in resumed.stderr, resumed.stderr[-2000:]
    return seconds


def ranks_that_differ_are_refused(root):
    one, two = command(root, "differ", "--seed", "1"), command(root, "differ", "--seed", "2")
    result = run(["mpirun", "-np", "1", *one, ":", "-np", "1", *two])
    assert result.returncode != 0 and "other settings or weights" in result.stderr, result.stderr[-2000:]


def main():
    with_mpi = json.loads(run([EAGLET, "--version", "--json"]).stdout)["libraries"]["MPI"] != "built without"
    if not with_mpi or shutil.which("mpirun") is None:
        print("no MPI here: skipped")
        return 77
    with tempfile.TemporaryDirectory() as root:
        prepare(root)
        for ranks in (2, 3):
            print(f"{ranks} ranks: at most {same_curve(root, ranks):.1e} from one rank with {ranks}-fold accumulation")
        sharded_moments_change_nothing(root)
        more_ranks_than_batches(root)
        ranks_that_differ_are_refused(root)
        signal_saves(root)
        print(f"a killed rank ended the run after {dead_rank_ends_the_run(root):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
