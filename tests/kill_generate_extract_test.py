"""eaglet generate and eaglet extract, killed with SIGKILL at random moments and started again with the same command.

generate: no prompt is answered twice, no finished answer is lost or changed.
extract: no finished document is lost, and the store is that of an undisturbed run, byte for byte."""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target

EAGLET = os.environ["EAGLET"]
SEED = int(os.environ.get("EAGLET_TEST_SEED", random.randrange(1 << 30)))
PROMPTS, MAX_TOKENS, KILLED_RUNS, KILLS_A_RUN = 240, 60, 3, 4


def command(*arguments):
    return [EAGLET, *arguments, "--json", "--progress", "none", "--threads", "2"]


def whole(arguments):
    start = time.monotonic()
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    return json.loads(result.stdout), time.monotonic() - start


def killed_after(arguments, seconds):
    """True when the process was still alive and was killed."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(seconds)
        assert process.returncode == 0, process.returncode
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True


def write_prompts(path, rng):
    with open(path, "w") as file:
        for i in range(PROMPTS):
            ids = [1] + [rng.randrange(259, toy_target.VOCAB) for _ in range(rng.randrange(3, 30))]
            file.write(json.dumps({"id": f"p{i}", "prompt_ids": ids}) + "\n")


def whole_lines(path):
    try:
        with open(path, "rb") as file:
            return [line for line in file.read().split(b"\n")[:-1] if line]
    except FileNotFoundError:
        return []


def rows(path):
    return {row["id"]: row for row in map(json.loads, whole_lines(path))}


def check_generate(root, rng):
    def generate(name):
        return command("generate", "--model", f"{root}/toy.gguf", "--prompts", f"{root}/prompts.jsonl", "--output",
                       f"{root}/{name}.jsonl", "--max-tokens", str(MAX_TOKENS), "--parallel", "8")

    report, seconds = whole(generate("whole"))
    assert report["answered"] == PROMPTS, report
    reference = rows(f"{root}/whole.jsonl")
    assert len(reference) == PROMPTS
    kills = same = 0
    for run in range(KILLED_RUNS):
        path = f"{root}/killed{run}.jsonl"
        kept = []
        for _ in range(KILLS_A_RUN):
            kills += killed_after(generate(f"killed{run}"), rng.uniform(0.02, seconds / 6))
            lines = whole_lines(path)
            assert lines[:len(kept)] == kept, "a finished answer was lost or changed"
            kept = lines
        report, _ = whole(generate(f"killed{run}"))
        assert report["already_done"] == len(kept) and report["answered"] == PROMPTS - len(kept), (report, len(kept))
        lines = whole_lines(path)
        assert lines[:len(kept)] == kept
        ids = [json.loads(line)["id"] for line in lines]
        assert len(ids) == len(set(ids)) == PROMPTS, "a prompt was answered twice or not at all"
        for key, row in rows(path).items():
            start = row["loss_mask"].index(1)
            assert row["input_ids"][:start] == reference[key]["input_ids"][:start], key
            same += row["input_ids"] == reference[key]["input_ids"]
    share = same / (PROMPTS * KILLED_RUNS)
    print(f"generate: {kills} kills over a run of {seconds:.1f} s, {share:.1%} of the answers the same to the token")
    assert kills >= KILLED_RUNS, "the kills came too late to test anything"
    assert share > 0.9, "answers depend on more than rounding"  # greedy ties within rounding may fall either way


def read_store(directory):
    """{file name: its bytes}"""
    files = {}
    for name in sorted(os.listdir(directory)):
        assert not name.endswith(".tmp"), f"{name} is left over"
        if name.endswith(".shard"):
            with open(f"{directory}/{name}", "rb") as file:
                files[name] = file.read()
    return files


def check_extract(root, rng):
    def extract(name):
        return command("extract", "--model", f"{root}/toy.gguf", "--conversations", f"{root}/whole.jsonl",
                       "--output-dir", f"{root}/{name}", "--shard-bytes", "3000000")

    report, seconds = whole(extract("states"))
    assert report["documents"] == PROMPTS, report
    reference = read_store(f"{root}/states")
    assert len(reference) > 2, "one shard is not enough to test"
    kills = 0
    for run in range(KILLED_RUNS):
        for _ in range(KILLS_A_RUN):
            kills += killed_after(extract(f"killed{run}"), rng.uniform(0.02, seconds / 6))
        report, _ = whole(extract(f"killed{run}"))
        assert report["documents"] == PROMPTS, report
        verified = subprocess.run([EAGLET, "inspect", "--verify", f"{root}/killed{run}"], capture_output=True, text=True)
        assert verified.returncode == 0, verified.stderr
        assert read_store(f"{root}/killed{run}") == reference, "the store is not that of the undisturbed run"
    print(f"extract: {kills} kills over a run of {seconds:.1f} s, every store byte-equal")
    assert kills >= KILLED_RUNS, "the kills came too late to test anything"


def main():
    print(f"EAGLET_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory(prefix="eaglet-kill-") as root:
        toy_target.write_target(f"{root}/toy.gguf")
        write_prompts(f"{root}/prompts.jsonl", rng)
        check_generate(root, rng)
        check_extract(root, rng)


main()
