#!/usr/bin/env python3
"""Bad input, each through the real commands: a clear error (what, where, what to do), the documented code, nothing lost."""
import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

EAGLET = os.environ["EAGLET"]
SOURCE = os.environ["EAGLET_SOURCE"]
MODEL = os.environ["EAGLET_MODEL"]
failures = []


def run(*arguments, **more):
    return subprocess.run([EAGLET, *arguments, "--progress", "plain"], capture_output=True, text=True, timeout=900,
                          check=False, **more)


def expect(name, done, code, *words, where=None):
    """One three-part error with the given exit code and words."""
    text = done.stderr[done.stderr.find("error: "):] if "error: " in done.stderr else ""
    faults = []
    if done.returncode != code:
        faults.append(f"code {done.returncode}, not {code}")
    if done.stderr.count("error: ") != 1 or "do:" not in text:
        faults.append("not one error that says what to do")
    if where is not None and f"where: {where}" not in text.replace("  where", "where") and where not in text:
        faults.append(f"does not name the place {where}")
    faults += [f"lacks '{word}'" for word in words if word not in text]
    if "terminate called" in done.stderr or "GGML_ASSERT" in done.stderr:
        faults.append("aborted")
    print(f"{'FAILED' if faults else 'ok'} {name}" + (f": {'; '.join(faults)}\n{done.stderr[-1500:]}" if faults else ""))
    if faults:
        failures.append(name)


def check(name, condition, detail=""):
    print(f"{'ok' if condition else 'FAILED'} {name}" + ("" if condition else f": {detail}"))
    if not condition:
        failures.append(name)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def prompts(path, count):
    with open(f"{SOURCE}/recipes/sample-prompts.jsonl", encoding="utf-8") as file:
        return write(path, "".join(file.readlines()[:count]))


def generate(place, prompts_path, output="c.jsonl", model=MODEL, more=(), **options):
    return run("generate", "--model", model, "--prompts", prompts_path, "--output", f"{place}/{output}", "--max-tokens", "8",
               *more, **options)


def train(place, *more, model=MODEL, out="draft", **options):
    return run("train", "--store", f"{place}/states", "--model", model, "--output-dir", f"{place}/{out}", "--epochs", "1",
               "--max-seq-len", "128", "--ttt-steps", "2", "--draft-vocab-size", "512", "--hold-out-every", "2", *more, **options)


def models(place):
    good = prompts(f"{place}/p.jsonl", 2)
    expect("model missing", generate(place, good, model=f"{place}/none.gguf"), 66, where=f"{place}/none.gguf")
    write(f"{place}/text.gguf", "this is no model\n" * 100)
    expect("model not a GGUF", generate(place, good, model=f"{place}/text.gguf"), 65, "GGUF", where=f"{place}/text.gguf")
    write(f"{place}/empty.gguf", "")
    expect("model empty", generate(place, good, model=f"{place}/empty.gguf"), 65, where=f"{place}/empty.gguf")
    with open(MODEL, "rb") as file:
        head = file.read(6_000_000)
    for cut in (100, 1_000_000, 6_000_000):
        with open(f"{place}/cut.gguf", "wb") as file:
            file.write(head[:cut])
        expect(f"model cut at {cut} bytes", generate(place, good, model=f"{place}/cut.gguf"), 65, where=f"{place}/cut.gguf")
    strange = f"{place}/strange.gguf"
    shutil.copy(MODEL, strange)
    at = head.find(b"general.architecture") + len(b"general.architecture") + 12
    assert head[at:at + 5] == b"llama", head[at:at + 5]
    with open(strange, "r+b") as file:
        file.seek(at)
        file.write(b"lampa")
    expect("unknown architecture", generate(place, good, model=strange), 78, "lampa", where=strange)
    os.remove(strange)
    check("no answers were written by any of these", not os.path.exists(f"{place}/c.jsonl") or not os.path.getsize(f"{place}/c.jsonl"))


def prompt_files(place):
    lines = open(prompts(f"{place}/two.jsonl", 2), encoding="utf-8").read().splitlines()
    broken = write(f"{place}/broken.jsonl", "\n".join([lines[0], "{\"id\": \"x\"", "[1, 2]", "{\"id\": \"y\"}", lines[1]]) + "\n")
    done = generate(place, broken, "broken-out.jsonl")
    rows = open(f"{place}/broken-out.jsonl", encoding="utf-8").read().splitlines()
    check("broken prompt lines: the rest goes on", done.returncode == 0 and len(rows) == 2, done.stderr[-800:])
    with open(f"{place}/broken-out.skipped.jsonl", encoding="utf-8") as file:
        named = file.read()
    check("broken prompt lines are counted and named", "left out: 3 of 5 lines" in done.stdout and "line 2" in done.stderr and
          [json.loads(row)["line"] for row in named.splitlines()] == [2, 3, 4], done.stdout + done.stderr + named)
    expect("prompt file empty", generate(place, write(f"{place}/none.jsonl", ""), "e.jsonl"), 65, where=f"{place}/none.jsonl")
    expect("prompt file with broken lines only", generate(place, write(f"{place}/bad.jsonl", "{\n[]\n"), "e.jsonl"), 65,
           where=f"{place}/bad.jsonl")
    expect("prompt file missing", generate(place, f"{place}/gone.jsonl", "e.jsonl"), 66, where=f"{place}/gone.jsonl")
    silent = write(f"{place}/silent.jsonl", json.dumps({"id": "a", "input_ids": [1, 2, 3, 4], "loss_mask": [0, 0, 0, 0],
                                                        "finish_reason": "stop", "text": ""}) + "\n")
    recipe = write(f"{place}/silent.toml", f'[run]\nconversations = "{silent}"\n[model]\npath = "{MODEL}"\n')
    expect("all answers empty", run("run", recipe, "--output-dir", f"{place}/silent-run"), 65, "empty")


def training(place):
    done = generate(place, prompts(f"{place}/six.jsonl", 6), "six-out.jsonl")
    assert done.returncode == 0, done.stderr
    done = run("extract", "--model", MODEL, "--conversations", f"{place}/six-out.jsonl", "--output-dir", f"{place}/states")
    assert done.returncode == 0, done.stderr
    expect("states begun with another limit",
           run("extract", "--model", MODEL, "--conversations", f"{place}/six-out.jsonl", "--output-dir", f"{place}/states",
               "--max-seq-len", "64"), 78, "--max-seq-len", where=f"{place}/states")
    done = run("extract", "--model", MODEL, "--conversations", f"{place}/six-out.jsonl", "--output-dir", f"{place}/states")
    check("the first limit again goes on", done.returncode == 0, done.stderr[-800:])
    expect("draft vocabulary larger than the vocabulary", train(place, "--draft-vocab-size", "50000"), 1, "50000", "49152")
    expect("max_seq_len 0", train(place, "--max-seq-len", "0"), 64, "max-seq-len")
    expect("max_seq_len shorter than every document's first supervised token", train(place, "--max-seq-len", "4"), 1)
    expect("states missing", run("train", "--store", f"{place}/nowhere", "--model", MODEL, "--output-dir", f"{place}/d2"), 66,
           where=f"{place}/nowhere")
    other = f"{place}/other.gguf"
    shutil.copy(MODEL, other)
    with open(other, "r+b") as file:  # another model of the same shape: every page of its weights differs a little
        for at in range(8_000_000, os.path.getsize(MODEL), 4096):
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
    expect("store from another target", train(place, model=other, out="d3"), 1, "another target", where=f"{place}/states")
    os.remove(other)
    check("nothing was trained by any of these", not os.path.exists(f"{place}/draft/checkpoints"))

    os.makedirs(f"{place}/draft", exist_ok=True)
    with open(f"{place}/draft/.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        expect("output directory in use", train(place), 75, str(os.getpid()), where=f"{place}/draft")
    limit = 300_000
    capped = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    expect("no room for a checkpoint", train(place, out="full", preexec_fn=capped), 73)
    check("no half checkpoint is left", not [name for name in os.listdir(f"{place}/full/checkpoints") if name.startswith("step-")]
          if os.path.exists(f"{place}/full/checkpoints") else True)
    done = train(place, out="full")
    check("with room again the same command works", done.returncode == 0, done.stderr[-800:])


def full_disk_while_generating(place, small, mounted):
    """The answers that were written stay; with room again the same command asks for the others only."""
    filler, options = f"{small}/filler", {}
    out = f"{small}/answers.jsonl"
    if mounted:
        shutil.rmtree(f"{small}/states")
        with open(filler, "wb") as file:
            file.write(bytes(os.statvfs(small).f_bavail * os.statvfs(small).f_frsize - 4096))
    else:
        options["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    command = ("generate", "--prompts", f"{place}/six.jsonl", "--model", MODEL, "--output", out, "--max-tokens", "40")
    if not mounted:
        command += ("--weights", "stored")
    expect("disk full while generating", run(*command, **options), 73, where=small)
    if mounted:
        os.remove(filler)
    done = run(*command)
    with open(out, encoding="utf-8") as file:
        ids = [json.loads(line)["id"] for line in file]
    check("with room again every prompt has one answer", done.returncode == 0 and sorted(ids) == sorted(set(ids)) and len(ids) == 6,
          f"{ids} {done.stderr[-800:]}")
    os.remove(out)


def full_disk(place):
    """A real file system of 1 MB where we may mount one; else a limit on file sizes."""
    small, mounted = f"{place}/small", False
    os.makedirs(small)
    if os.geteuid() == 0:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True, check=False).returncode == 0
    options, weights = {}, ()
    if not mounted:
        weights = ("--weights", "stored")  # the limit holds for the copy of the model in memory too
        options["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    try:
        done = run("extract", "--model", MODEL, "--conversations", f"{place}/six-out.jsonl", "--output-dir", f"{small}/states", "--force",
                   *weights, **options)
        expect(f"disk full while extracting ({'tmpfs' if mounted else 'file size limit'})", done, 73, where=f"{small}/states")
        if not mounted:
            expect("no room for the copy of the model", run("extract", "--model", MODEL, "--conversations", f"{place}/six-out.jsonl",
                                                            "--output-dir", f"{place}/s3", **options), 73, "ulimit", where=MODEL)
        full_disk_while_generating(place, small, mounted)
        if mounted:
            done = run("extract", "--model", MODEL, "--conversations", f"{place}/six-out.jsonl", "--output-dir", f"{small}/states2")
            expect("the forecast says it before the first byte", done, 73)
    finally:
        if mounted:
            subprocess.run(["umount", small], check=False)


def places(place):
    good = prompts(f"{place}/p2.jsonl", 2)
    expect("output below a file", generate(place, good, "p2.jsonl/c.jsonl"), 66)
    recipe = write(f"{place}/r.toml", f'[run]\nprompts = "{good}"\n[model]\npath = "{MODEL}"\n')
    run_dir = f"{place}/run"
    os.makedirs(f"{run_dir}/stages")
    with open(f"{run_dir}/stages/.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        expect("second run in one directory", run("run", recipe, "--output-dir", run_dir), 75, where=run_dir)
    if os.geteuid() != 0:
        os.makedirs(f"{place}/locked", mode=0o500)
        expect("directory not writable", run("run", recipe, "--output-dir", f"{place}/locked/r"), 77, where=f"{place}/locked/r")
        return
    # Root may write anywhere, so somebody else tries; with a copy of the program where anybody may read it.
    os.chmod(place, 0o755)
    copy = shutil.copy(EAGLET, f"{place}/eaglet")
    os.makedirs(f"{place}/roots", mode=0o755)
    done = subprocess.run([copy, "run", recipe, "--output-dir", f"{place}/roots/r"], capture_output=True, text=True, check=False,
                          user=65534, group=65534, cwd="/")
    expect("directory not writable", done, 77, where=f"{place}/roots/r")


def recipes(place):
    unknown = write(f"{place}/u.toml", "[train]\nepocs = 3\n")
    expect("recipe with an unknown key", run("run", unknown), 78, "did you mean 'epochs'", where=f"{place}/u.toml:2")
    expect("recipe missing", run("run", f"{place}/none.toml"), 66, where=f"{place}/none.toml")
    base = f'[run]\nprompts = "{place}/p.jsonl"\noutput_dir = "{place}/rr"\n[model]\npath = "{MODEL}"\n'
    expect("recipe: max_seq_len 0", run("run", write(f"{place}/m.toml", base + "[train]\nmax_seq_len = 0\n")), 78, "max_seq_len")
    expect("recipe: draft vocabulary too large", run("run", write(f"{place}/v.toml", base + "[train]\ndraft_vocab_size = 60000\n")), 78,
           "60000", "49152")
    check("nothing was generated before that was said", not os.path.exists(f"{place}/rr/conversations.jsonl"))


def main():
    if not os.path.exists(MODEL):
        print(f"no sample model at {MODEL}: scripts/setup fetches it")
        return 77
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        for part in (models, prompt_files, training, full_disk, places, recipes):
            part(place)
    print(f"{time.monotonic() - begun:.0f} s, {len(failures)} failed: {', '.join(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
