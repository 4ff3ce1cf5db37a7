#!/usr/bin/env python3
"""fuzz/until_quiet.py with made-up targets: what counts as quiet, that a stopped run goes on, that a crash is told."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ.get("EAGLET_SOURCE", os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(SOURCE, "fuzz", "until_quiet.py")

# Speaks like libFuzzer. It burns processor time, since that is what is measured; `finds` are the seconds at which coverage grows.
TARGET = """#!{python}
import signal, sys, time
def end(*_):
    print("stat::number_of_executed_units: 500", file=sys.stderr, flush=True)
    sys.exit(72)
signal.signal(signal.SIGINT, end)
print("INFO: Seed: 1", file=sys.stderr)
print("#3\\tINITED cov: 10 ft: 20 corp: 3/9b exec/s: 0 rss: 30Mb", file=sys.stderr, flush=True)
finds, crash_s, cov, features_s = {finds}, {crash_s}, 10, 0.5
begun = time.process_time()
while True:
    now = time.process_time() - begun
    if finds and now >= finds[0]:
        finds.pop(0)
        cov += 1
        print(f"#90\\tNEW    cov: {{cov}} ft: 21 corp: 4/9b lim: 4 exec/s: 0 rss: 30Mb L: 1/4 MS: 1 ChangeBit-", file=sys.stderr, flush=True)
    if now >= features_s:  # features alone are no coverage
        features_s += 0.5
        print(f"#91\\tREDUCE cov: {{cov}} ft: 22 corp: 4/9b lim: 4 exec/s: 0 rss: 30Mb L: 1/4 MS: 1 ChangeBit-", file=sys.stderr, flush=True)
    if crash_s and now >= crash_s:
        print("==1==ERROR: AddressSanitizer: heap-buffer-overflow", file=sys.stderr)
        sys.exit(77)
"""


def make(build, name, finds=(), crash_s=0):
    os.makedirs(os.path.join(build, "fuzz"), exist_ok=True)
    path = os.path.join(build, "fuzz", name + "_fuzz")
    with open(path, "w", encoding="utf-8") as file:
        file.write(TARGET.format(python=sys.executable, finds=list(finds), crash_s=crash_s))
    os.chmod(path, 0o755)


def command(*arguments):
    return [sys.executable, SCRIPT, *arguments]


def run(build, *arguments):
    done = subprocess.run(command(*arguments), capture_output=True, text=True, env={**os.environ, "EAGLET_FUZZ_BUILD": build},
                          timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def rows(build):
    with open(os.path.join(build, "quiet.json"), encoding="utf-8") as file:
        return json.load(file)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def test_quiet_is_counted_from_the_last_new_coverage(build):
    make(build, "npy")
    make(build, "torch", finds=[2.0])
    code, said = run(build, "--minutes", "0.05", "npy", "torch")  # 3 s
    expect(code == 0, said)
    still, late = rows(build)["npy"], rows(build)["torch"]
    expect(3 <= still["quiet_s"] < 5 and still["cpu_s"] < 5, still)
    expect(3 <= late["quiet_s"] < 5 and late["cpu_s"] >= 4.9, late)  # 2 s until it found something, and 3 behind that
    expect(late["cov"] == 11 and late["executions"] == 500, late)
    code, said = run(build, "--minutes", "0.05", "npy", "torch")
    expect(code == 0 and rows(build)["npy"] == still, "what is quiet was run again")
    code, said = run(build, "--table")
    expect("| `torch` | 0 thousand | 0.1 | 0.1 | nothing |" in said, said)


def test_a_stopped_run_goes_on(build):
    make(build, "npy")
    first = subprocess.Popen(command("--minutes", "0.1", "--jobs", "1", "npy"), stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "EAGLET_FUZZ_BUILD": build})
    time.sleep(5)
    first.send_signal(signal.SIGTERM)
    said = first.communicate(timeout=60)[0]
    before = rows(build)["npy"]
    expect(0 < before["quiet_s"] < 6, (before, said))
    code, said = run(build, "--minutes", "0.1", "npy")
    after = rows(build)["npy"]
    expect(code == 0 and 6 <= after["quiet_s"] < 8, (after, said))
    expect(after["executions"] == 1000, after)


def test_a_crash_ends_with_its_words(build):
    make(build, "npy", crash_s=0.5)
    make(build, "torch")
    code, said = run(build, "--minutes", "0.03", "npy", "torch")
    expect(code == 1, code)
    expect("AddressSanitizer: heap-buffer-overflow" in said and f"{build}/crash-npy-" in said, said)
    expect(rows(build)["torch"]["quiet_s"] >= 1.8, "the other target was not run")
    code, said = run(build, "--table")
    expect("`npy`" in said and "a crash" in said, said)


def test_a_target_that_is_not_built_is_named(build):
    code, said = run(build, "npy")
    expect(code == 1 and "npy: no such target" in said and "cmake --preset fuzz" in said, said)


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(SOURCE, "tests"))
    from side_by_side import run_tests

    sys.exit(run_tests(globals(), alone="nothing"))
