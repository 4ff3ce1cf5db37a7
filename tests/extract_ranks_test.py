"""eaglet extract on several ranks: the same states as one rank takes, whatever the number; killed, and gone on with by another number of ranks;
a rank without a document; flags that exclude ranks. Skipped when eaglet was built without MPI or there is no mpirun."""
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
from store_records import read_records

EAGLET = os.environ["EAGLET"]
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                   OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_mpi_yield_when_idle="1", OMPI_MCA_btl_vader_single_copy_mechanism="none",
                   OMP_WAIT_POLICY="passive")


def run(*arguments, seconds=120):
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=seconds, env=ENVIRONMENT)


def must(*arguments):
    result = run(*arguments)
    assert result.returncode == 0, f"{arguments}: exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-3000:]}"
    return result.stdout


def write_documents(path, count, tokens):
    with open(path, "w") as file:
        for i in range(count):
            ids = [(i * 31 + t * 7) % (toy_target.VOCAB - 3) + 3 for t in range(tokens + i % 5)]
            file.write(json.dumps({"id": f"d{i:03d}", "input_ids": ids, "loss_mask": [0] * 4 + [1] * (len(ids) - 4)}) + "\n")


def command(root, store, documents="documents", *more):
    return (EAGLET, "extract", "--model", f"{root}/toy.gguf", "--conversations", f"{root}/{documents}.jsonl", "--output-dir", f"{root}/{store}",
            "--engine", "native", "--compute-type", "f32", "--json", "--progress", "plain", *more)


def read_store(directory):
    """{id: the bytes of its record}"""
    return {key: record for key, (record, _) in read_records(directory).items()}


def same_as_one(root):
    write_documents(f"{root}/documents.jsonl", 40, 24)
    alone = json.loads(must(*command(root, "alone")))
    wanted = read_store(f"{root}/alone")
    assert len(wanted) == 40
    for ranks in (2, 3):
        report = json.loads(must("mpirun", "-np", ranks, *command(root, f"by{ranks}")))
        assert read_store(f"{root}/by{ranks}") == wanted, f"{ranks} ranks"
        for key in ("documents", "tokens", "supervised_tokens", "already_done", "broken_lines"):
            assert report[key] == alone[key], (ranks, key, report, alone)
        must(EAGLET, "inspect", "--verify", f"{root}/by{ranks}")
    # Two ranks' store, gone on with by three, and by one: all is there.
    for launcher in (("mpirun", "-np", 3), ()):
        again = json.loads(must(*launcher, *command(root, "by2")))
        assert again["already_done"] == 40 and read_store(f"{root}/by2") == wanted, again
    return wanted


def more_ranks_than_documents(root):
    write_documents(f"{root}/few.jsonl", 2, 24)
    report = json.loads(must("mpirun", "-np", 3, *command(root, "few", "few")))
    assert report["documents"] == 2 and len(read_store(f"{root}/few")) == 2, report


def killed(root):
    write_documents(f"{root}/many.jsonl", 1500, 60)
    must(*command(root, "many_alone", "many"))
    process = subprocess.Popen([str(a) for a in ("mpirun", "-np", 2, *command(root, "many", "many", "--memory", "5M"))],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT, start_new_session=True)
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if os.path.isdir(f"{root}/many") and sum(os.path.getsize(f"{root}/many/{n}") for n in os.listdir(f"{root}/many")) > 100000:
            break
        time.sleep(0.02)
    assert process.poll() is None, process.stdout.read().decode()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run(["pkill", "-KILL", "-f", f"{root}/many"], check=False)  # ranks are sessions of their own
    time.sleep(0.2)
    there = sum(os.path.getsize(f"{root}/many/{n}") for n in os.listdir(f"{root}/many"))
    report = json.loads(must("mpirun", "-np", 3, *command(root, "many", "many")))
    assert 0 < report["already_done"] < 1500 and there > 0, report
    assert read_store(f"{root}/many") == read_store(f"{root}/many_alone")


def what_cannot_be(root):
    for more, word in ((("--writer", "1/2"), "--writer"), (("--memory", "soon"), "--memory")):
        result = run("mpirun", "-np", 2, *command(root, "none", "documents", *more))
        assert result.returncode != 0 and word in result.stderr, result.stderr
    write_documents(f"{root}/unsupervised.jsonl", 3, 4)
    with open(f"{root}/unsupervised.jsonl") as file:
        rows = [json.loads(line) for line in file]
    with open(f"{root}/unsupervised.jsonl", "w") as file:
        for row in rows:
            file.write(json.dumps({**row, "loss_mask": [0] * len(row["input_ids"])}) + "\n")
    result = run("mpirun", "-np", 2, *command(root, "empty", "unsupervised"))
    assert result.returncode != 0 and "no rank had a document" in result.stderr, result.stderr


def main():
    if shutil.which("mpirun") is None or "MPI" not in must(EAGLET, "--version"):
        print("no mpirun, or eaglet was built without MPI: skipped")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="eaglet-extract-ranks-") as root:
        toy_target.write_target(f"{root}/toy.gguf")
        for test in (same_as_one, more_ranks_than_documents, killed, what_cannot_be):
            begun = time.time()
            test(root)
            print(f"ok {test.__name__} ({time.time() - begun:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
