#!/usr/bin/env python3
"""Runs fuzz targets until each has gone MINUTES of processor time without new coverage, and writes the table of docs/fuzzing.md.

    fuzz/until_quiet.py [--minutes 20] [--jobs 2] [--hours H] [TARGET...]    all that are not quiet yet; goes on where it was stopped
    fuzz/until_quiet.py --table                                             what was run so far, as rows of a table

Time is the processor's, not the clock's: on a busy machine twenty minutes of the clock may be five of work. Coverage is libFuzzer's
`cov`, the number of covered edges: its other number (`ft`, how often each edge was taken) goes on growing for days. Inputs found stay in
build/fuzz/found, counts in build/fuzz/quiet.json. The most quiet target comes first, so that a stopped run leaves as many as possible done.
Ends with 1 when a target crashed; the input's path is said.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("EAGLET_FUZZ_BUILD", os.path.join(ROOT, "build", "fuzz"))
STATE = os.path.join(BUILD, "quiet.json")
TICK = os.sysconf("SC_CLK_TCK")
SLICE_S = 600  # processor seconds of one target before another, more quiet one may have its turn
INTERRUPTED = 72  # libFuzzer's exit status after SIGINT
LINE = re.compile(r"^#(\d+)\s+(\S+)\s+cov: (\d+)")
lock = threading.Lock()
stopping = threading.Event()


def say(text):
    print(time.strftime("%H:%M:%S ") + text, flush=True)


def load():
    try:
        with open(STATE, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def save(state):
    with open(STATE + ".tmp", "w", encoding="utf-8") as file:
        json.dump(state, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(STATE + ".tmp", STATE)


def processor_s(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / TICK


def targets():
    return sorted(name[: -len("_fuzz.cc")] for name in os.listdir(os.path.join(ROOT, "fuzz")) if name.endswith("_fuzz.cc"))


def start(target):
    found = os.path.join(BUILD, "found", target)
    os.makedirs(found, exist_ok=True)
    words = os.path.join(ROOT, "fuzz", "words", target + ".dict")
    command = [os.path.join(BUILD, "fuzz", target + "_fuzz"), "-rss_limit_mb=2048", "-timeout=20", "-print_final_stats=1",
               f"-artifact_prefix={BUILD}/crash-{target}-"]
    command += [f"-dict={words}"] if os.path.exists(words) else []
    command += [found, os.path.join(ROOT, "fuzz", "corpus", target)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                            start_new_session=True)


class Run:
    """One slice of one target: what libFuzzer printed so far, and since when nothing is new."""

    def __init__(self, target, row):
        self.target, self.row = target, row
        self.process = start(target)
        self.cov, self.executions = row["cov"], 0
        self.began_s, self.last_new_s = None, None  # processor seconds: corpus read, last new coverage
        self.tail = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            self.tail = (self.tail + [line.rstrip()])[-40:]
            found = LINE.match(line)
            if found is None:
                continue
            now_s = processor_s(self.process.pid)
            with lock:
                self.executions = int(found.group(1))
                if found.group(2) == "INITED":
                    self.began_s = now_s
                # Reading the corpus back reaches what the last slice reached; only what goes beyond it is new.
                if int(found.group(3)) > self.cov:
                    self.cov = int(found.group(3))
                    self.last_new_s = now_s

    def times(self):
        """Processor seconds of this slice behind the reading of the corpus, and the quiet ones by now, earlier slices included."""
        now_s = processor_s(self.process.pid)
        if now_s is None or self.began_s is None:
            return None
        fuzzed_s = now_s - self.began_s
        if self.last_new_s is None:
            return fuzzed_s, self.row["quiet_s"] + fuzzed_s
        return fuzzed_s, now_s - max(self.last_new_s, self.began_s)


def run_slice(state, target, goal_s, deadline):
    with lock:
        row = state[target]
    run = Run(target, row)
    fuzzed_s, quiet_s = 0.0, row["quiet_s"]
    while run.process.poll() is None:
        time.sleep(1)
        with lock:
            times = run.times()
        if times is not None:
            fuzzed_s, quiet_s = times
        if quiet_s >= goal_s or fuzzed_s >= SLICE_S or stopping.is_set() or time.time() >= deadline:
            run.process.send_signal(signal.SIGINT)
            try:
                run.process.wait(60)
            except subprocess.TimeoutExpired:
                run.process.kill()
    run.reader.join(10)
    status = run.process.wait()
    crashed = status not in (0, INTERRUPTED, -signal.SIGKILL)
    with lock:
        for line in run.tail:
            if line.startswith("stat::number_of_executed_units:"):
                run.executions = int(line.split()[1])
        row.update(executions=row["executions"] + run.executions, cpu_s=row["cpu_s"] + fuzzed_s, quiet_s=quiet_s, cov=run.cov,
                   busy=False)
        if crashed:
            row["crashed"] = True
            say("\n".join(run.tail))
            say(f"{target}: FAILED; the input is {BUILD}/crash-{target}-*")
        save(state)
        say(f"{target}: {row['executions']:,} executions, {row['cpu_s'] / 60:.1f} min, {row['quiet_s'] / 60:.1f} quiet, cov {row['cov']}")
    return not crashed


def pick(state, names, goal_s):
    open_ones = [n for n in names if not state[n]["busy"] and not state[n].get("crashed") and state[n]["quiet_s"] < goal_s]
    # One that never ran comes before those that ran and are not quiet: it may be done at once.
    return max(open_ones, key=lambda n: (state[n]["cpu_s"] == 0, state[n]["quiet_s"] - state[n]["cpu_s"] / 4), default=None)


def worker(state, names, goal_s, deadline, failed):
    while not stopping.is_set() and time.time() < deadline:
        with lock:
            target = pick(state, names, goal_s)
            if target is None:
                return
            state[target]["busy"] = True
        if not run_slice(state, target, goal_s, deadline):
            failed.append(target)


def table(state):
    for name in targets():
        row = state.get(name)
        if row and row["cpu_s"] > 0:
            count = row["executions"]
            shown = f"{count / 1e6:.1f} million" if count >= 1e6 else f"{round(count / 1e3)} thousand"
            print(f"| `{name}` | {shown} | {row['cpu_s'] / 60:.1f} | {row['quiet_s'] / 60:.1f} | "
                  f"{'a crash' if row.get('crashed') else 'nothing'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--hours", type=float, default=24 * 365)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("targets", nargs="*")
    args = parser.parse_args()
    state = load()
    if args.table:
        return table(state)
    names = args.targets or targets()
    for name in names:
        if not os.path.exists(os.path.join(BUILD, "fuzz", name + "_fuzz")):
            sys.exit(f"{name}: no such target in {BUILD}/fuzz: cmake --preset fuzz && cmake --build --preset fuzz")
        row = state.setdefault(name, {"executions": 0, "cpu_s": 0.0, "quiet_s": 0.0, "cov": 0})
        row["busy"] = False
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    failed = []
    deadline = time.time() + args.hours * 3600
    say(f"{len(names)} targets until {args.minutes:g} quiet minutes each, {args.jobs} at a time")
    workers = [threading.Thread(target=worker, args=(state, names, args.minutes * 60, deadline, failed)) for _ in range(args.jobs)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
