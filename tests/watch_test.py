#!/usr/bin/env python3
"""The watch family on real runs: our own `eaglet train` started silent, starved, stopped, killed and resumed gets the right verdict
each time; launch records how a program ended; wait fails at once on a crash; doctor's exit codes; the page and the metrics.

Most of the time here is waiting, so the tests run side by side, each in a directory of its own."""
import fcntl
import http.server
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import toy_target
from side_by_side import run_tests

EAGLET = os.environ["EAGLET"]
SOURCE = os.environ["EAGLET_SOURCE"]
CASES = f"{SOURCE}/testdata/cases"


def run(*arguments, timeout=90, **more):
    return subprocess.run([EAGLET, "--progress", "none", *arguments], capture_output=True, text=True, timeout=timeout, check=False, **more)


def doctor(target, *arguments, seconds=1, **more):
    done = run("doctor", target, "--for", f"{seconds}s", "--json", *arguments, **more)
    assert done.stdout, done.stderr
    verdict = json.loads(done.stdout)
    assert done.returncode == verdict["exit_code"], (done.returncode, verdict["exit_code"])
    return verdict


def until(condition, seconds=240):  # a busy machine may be slow
    end = time.time() + seconds
    while time.time() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


def seen(target, state):
    """Whether doctor says so within a minute: on a loaded machine a second may pass without a step."""
    last = {}

    def look():
        last.update(doctor(target))
        return last["state"] == state
    assert until(look, 60), (last["state"], last["headline"])
    return last


def train_command(root):
    return [EAGLET, "--progress", "none", "train", "--store", f"{root}/states", "--model", f"{root}/toy.gguf", "--output-dir", f"{root}/draft", "--max-seq-len", "128",
            "--max-steps", "100000", "--draft-vocab-size", "100", "--checkpoint-every-steps", "20", "--keep-checkpoints", "2",
            "--threads", "1"]


def start(command, root, **more):
    with open(f"{root}/out.log", "ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **more)


def prepare(root):
    toy_target.write_target(f"{root}/toy.gguf")
    toy_target.write_conversations(f"{root}/conversations.jsonl")
    done = run("extract", "--model", f"{root}/toy.gguf", "--conversations", f"{root}/conversations.jsonl", "--output-dir", f"{root}/states")
    assert done.returncode == 0, done.stderr


def steps_done(root):
    try:
        with open(f"{root}/draft/status.json", encoding="utf-8") as file:
            return json.load(file)["step"]
    except (OSError, ValueError):
        return -1


def judged(verdict, name):
    found = [j for j in verdict["judgements"] if j["name"] == name]
    return found[0] if found else None


def nothing_but_a_busy_machine(verdict):
    """No fault of the process, the machine or the configuration, but that the tests beside this one take its cores. (What a made-up
    target of random numbers teaches is another matter: the learning layer may well warn.)"""
    bad = [j for j in verdict["judgements"] if j["level"] in ("warn", "crit") and j["layer"] != "learning"]
    for j in bad:
        assert j["name"] == "run_wait" and j["level"] == "warn", j
    return True


def test_our_training_started_silent(root):
    """Nobody hears a word of it: what it prints goes to /dev/null."""
    prepare(root)
    process = subprocess.Popen(train_command(root), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        first = doctor(str(process.pid), seconds=0.5)
        assert first["state"] in ("STARTING", "RUNNING") and nothing_but_a_busy_machine(first), first["headline"]
        done = run("wait", f"{root}/draft", "--until", "step=20", "--for", "120s")
        assert done.returncode == 0 and "first metric" in done.stdout, done.stdout + done.stderr
        verdict = seen(str(process.pid), "RUNNING")
        assert verdict["step"] >= 20, verdict["headline"]
        assert nothing_but_a_busy_machine(verdict), verdict["headline"]
        assert verdict["phase"] in ("train", "validate", "save"), verdict["phase"]  # its epochs are short: it validates a fifth of the time
        assert verdict["log"]["path"].endswith("/draft/log.jsonl"), verdict["log"]["path"]
        tokens = verdict["log"]["metrics"]["tokens_total"]["values"]
        assert 0 < tokens[0] < tokens[-1] and tokens == sorted(tokens), tokens
        assert len({e["kind"] for e in verdict["evidence"] if e["for"] == "progress"}) >= 2, verdict["evidence"]
        assert run("doctor", "--probe", "liveness", f"{root}/draft").returncode == 0
    finally:
        process.kill()
        process.wait()


def test_our_training_stopped_killed_and_resumed(root):
    prepare(root)
    process = start(train_command(root), root)
    try:
        assert until(lambda: steps_done(root) >= 45), "it did not train"
        process.send_signal(signal.SIGSTOP)
        verdict = doctor(f"{root}/draft")
        assert verdict["state"] == "STALLED" and "signal" in verdict["headline"], verdict["headline"]
        assert verdict["next"] == f"kill -CONT {process.pid}" and verdict["exit_code"] == 2
        process.send_signal(signal.SIGCONT)
        seen(f"{root}/draft", "RUNNING")
    finally:
        process.kill()
        process.wait()
    verdict = doctor(f"{root}/draft")
    assert verdict["state"] == "DEAD" and verdict["exit_code"] == 2, verdict["headline"]
    assert verdict["resume_step"] is not None and verdict["resume_step"] >= 19 and verdict["lost_steps"] < 25, verdict
    assert run("doctor", "--probe", "liveness", f"{root}/draft").returncode == 1
    process = start(train_command(root), root)
    try:
        before = verdict["step"]
        assert until(lambda: steps_done(root) > before + 5), "it did not resume"
        verdict = seen(f"{root}/draft", "RUNNING")
        assert verdict["step"] > before, verdict["headline"]
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    finally:
        process.kill()
        process.wait()
    assert "interrupted" in doctor(f"{root}/draft")["headline"]


def test_our_training_starved_of_cores(root):
    """Three spinners on the one core that it may use: runnable, but seldom running."""
    prepare(root)
    core = {min(os.sched_getaffinity(0))}
    spinners = [subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {core})\nwhile True: pass"]) for _ in range(3)]
    process = start(train_command(root), root, preexec_fn=lambda: os.sched_setaffinity(0, core))
    try:
        assert until(lambda: steps_done(root) >= 3), "it did not train"
        verdict = {}

        def named():
            verdict.update(doctor(f"{root}/draft", seconds=2))
            wait = judged(verdict, "run_wait")
            return verdict["state"] == "RUNNING" and wait is not None and wait["level"] == "warn"
        assert until(named, 60), (verdict["state"], verdict["headline"])
        wait = judged(verdict, "run_wait")
        assert verdict["exit_code"] == 1 and wait["value"] > 0.2 and wait["window_seconds"] > 1 and wait["advice"], wait
        assert "waiting for a core" in verdict["headline"], verdict["headline"]
    finally:
        for child in [process, *spinners]:
            child.kill()
            child.wait()


def test_our_training_starved_by_data(root):
    """Straight from a target of 64 layers on libllama, which needs far longer for a batch of states than the draft needs to learn from it."""
    make = "import toy_target\ntoy_target.LAYERS = 64\ntoy_target.write_target('toy.gguf')\ntoy_target.write_conversations('conversations.jsonl')"
    subprocess.run([sys.executable, "-c", make], cwd=root, check=True, env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))})
    command = [EAGLET, "--progress", "none", "train", "--online", "--conversations", f"{root}/conversations.jsonl", "--model", f"{root}/toy.gguf",
               "--output-dir", f"{root}/draft", "--max-seq-len", "128", "--max-steps", "100000", "--draft-vocab-size", "100", "--ttt-steps", "1",
               "--threads", "1", "--target-weights", "stored"]
    # On one core, where reading ahead cannot hide the target behind the steps.
    core = {min(os.sched_getaffinity(0))}
    process = start(command, root, preexec_fn=lambda: os.sched_setaffinity(0, core))
    try:
        assert until(lambda: steps_done(root) >= 10), "it did not train"
        verdict = {}

        def named():
            verdict.update(seen(f"{root}/draft", "RUNNING"))
            return judged(verdict, "data_wait")["level"] == "warn"
        assert until(named, 60), judged(verdict, "data_wait")
        wait = judged(verdict, "data_wait")
        assert wait["value"] > 0.1 and wait["advice"], wait
        assert verdict["exit_code"] == 1, verdict["headline"]
    finally:
        process.kill()
        process.wait()


def test_launch_wait_and_the_exit_reason(root):
    script = "import time\nfor i in range(60):\n  print(f'step={i} loss={7 - i * 0.1:.2f}')\n  time.sleep(0.1)\nraise RuntimeError('CUDA error: made up')"
    done = run("launch", "--name", "t-1", "--dir", f"{root}/l1", "--json", "--", sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert run("launch", "--name", "t-1", "--dir", f"{root}/l1", "--", "true").returncode == 75, "a living run was overwritten"
    done = run("wait", f"{root}/l1", "--until", "step=3", "--for", "20s")
    assert done.returncode == 0 and "step=3 reached" in done.stdout and "first metric" in done.stdout, done.stdout + done.stderr
    by_name = doctor("t-1")
    assert by_name["log"] and by_name["log"]["path"].endswith("/l1/log.txt"), by_name["log"]
    done = run("wait", f"{root}/l1", "--until", "step=900", "--for", "60s")
    assert done.returncode == 2 and "made up" in done.stdout and "| " in done.stdout, done.stdout
    with open(f"{root}/l1/launch.json", encoding="utf-8") as file:
        record = json.load(file)
    assert record["exit_code"] == 1 and record["reason"] == "exit code 1", record
    with open(f"{root}/l1/log.txt", encoding="utf-8") as file:
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ step=0 loss=7.00\n", file.readline())
    verdict = doctor(f"{root}/l1")
    assert verdict["state"] == "DEAD" and "made up" in verdict["headline"], verdict["headline"]
    done = run("launch", "--wait", "--dir", f"{root}/l2", "--", "sh", "-c", "echo hello $EAGLET_RUN_ID; kill -9 $$")
    assert done.returncode == 137 and "hello sh-" in done.stdout and "killed by signal 9" in done.stderr, done
    assert doctor(f"{root}/l2")["state"] == "DEAD"
    assert run("launch", "--wait", "--dir", f"{root}/l3", "--", "true").returncode == 0
    assert doctor(f"{root}/l3")["state"] == "FINISHED"
    assert run("launch", "--dir", f"{root}/l4", "--", "/nowhere/program").returncode == 66
    assert run("wait", "no-such-run-77", "--until", "done", "--for", "1s").returncode == 3


def test_page_metrics_and_stream(root):
    script = "import time\nfor i in range(2000):\n  print(f'step={i} loss={7 - i * 0.001:.3f}', flush=True)\n  time.sleep(0.05)"
    with open(f"{root}/p.log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-c", script], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    watcher = subprocess.Popen([EAGLET, "--progress", "plain", "watch", str(process.pid), "--listen", "127.0.0.1:0", "--jsonl", "--textfile", f"{root}/prom",
                                "--html", f"{root}/page.html", "--for", "120s"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in watcher.stderr if "http://" in line)
        url = re.search(r"http://\S+/", line).group(0)
        assert any(json.loads(watcher.stdout.readline())["state"] == "RUNNING" for _ in range(15)), "never seen running"
        page = urllib.request.urlopen(url, timeout=10)
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]
        text = page.read().decode()
        assert "<table" in text and "RUNNING" in text and "<svg" in text, text[:500]
        metrics = urllib.request.urlopen(url + "metrics", timeout=10).read().decode()
        assert re.search(r'^eaglet_up\{run="\d+"\} 1$', metrics, re.M) and "eaglet_loss{" in metrics, metrics
        def newer():
            return json.load(urllib.request.urlopen(url + "api/v1/series?since=10", timeout=10))
        assert until(lambda: newer()["metrics"]["loss"]["steps"]), "no step above 10"
        series = newer()
        assert min(series["metrics"]["loss"]["steps"]) == 11
        stream = urllib.request.urlopen(url + "api/v1/events", timeout=10)
        assert stream.readline().startswith(b"id: "), "no event came"
        try:
            urllib.request.urlopen(urllib.request.Request(url, headers={"Host": "evil.example"}), timeout=10)
            raise AssertionError("a foreign name was answered")
        except urllib.error.HTTPError as error:
            assert error.code == 403
        process.kill()
        process.wait()
        rest = watcher.communicate(timeout=30)[0].strip().splitlines()
        assert watcher.returncode == 2 and json.loads(rest[-1])["state"] == "DEAD", (watcher.returncode, rest[-1][:200])
    finally:
        process.kill()
        watcher.kill()
    with open(f"{root}/page.html", encoding="utf-8") as file:
        page = file.read()
    outside = re.findall(r"(?:src|href)\s*=|@import|url\((?!#)|http\S*", re.sub(r"http-equiv|http://127\S*|http://www.w3.org/2000/svg", "", page))
    assert not outside, f"the page needs something from outside: {outside}"
    assert os.listdir(f"{root}/prom") == ["eaglet.prom"]
    once = run("watch", f"{root}/p.log", "--once", "--ascii", env={**os.environ, "COLUMNS": "80"})
    assert len(once.stdout.splitlines()) == 24 and all(len(line) <= 80 for line in once.stdout.splitlines()), once.stdout
    assert once.stdout.isascii()


def test_snapshots_and_exit_codes(root):
    for name, state, code in [("a", "RUNNING", 0), ("b", "STALLED", 2), ("c", "STALLED", 2), ("d", "DEAD", 2), ("e", "STARTING", 0), ("f", "FINISHED", 0),
                              ("g", "DEAD", 2)]:
        folder = f"{CASES}/16-alive-stuck-or-dead/{name}"
        done = run("doctor", "--snapshots", f"{folder}/t0", f"{folder}/t1")
        assert done.returncode == code and done.stdout.startswith(state + "  "), (name, done.returncode, done.stdout)
        assert json.loads(run("doctor", "--json", "--snapshots", folder).stdout)["state"] == state
        one = run("doctor", "--nagios", "--snapshots", folder).stdout
        assert one.count("\n") == 1 and re.match(r"EAGLET (OK|WARN|CRIT|UNKNOWN) - ", one), one
    b = f"{CASES}/16-alive-stuck-or-dead/b"
    assert run("doctor", "--exit-zero", "--snapshots", b).returncode == 0
    assert run("doctor", "--snapshots", f"{b}/t0").returncode == 3
    assert run("doctor", "--snapshots", "/nowhere").returncode == 66
    assert run("doctor").returncode == 64
    assert run("doctor", "--set", "nothing=1", "--snapshots", b).returncode == 78
    assert "spin_r = 0.3  # --set" in run("doctor", "--set", "spin_r=0.3", "--print-config").stdout
    logs = f"{CASES}/15-progress-bar-in-the-log"
    done = run("doctor", f"{logs}/fused.log", "--for", "0s")
    assert done.returncode == 3 and "11.02 (step 1) -> 8.333 (step 8)" in done.stdout and len(done.stdout.splitlines()) < 15, done.stdout
    done = run("doctor", f"{logs}/wrapped.log", "--for", "0s")
    assert done.returncode == 2 and "loss_1 is NaN in record 3" in done.stdout.splitlines()[0], done.stdout
    done = run("doctor", f"{logs}/huge_line.log", "--for", "0s", "--json")
    assert json.loads(done.stdout)["step"] == 40


def test_compare(root):
    for name, lr in [("a", 1), ("b", 2)]:
        os.makedirs(f"{root}/cmp/{name}")
        with open(f"{root}/cmp/{name}/train_config.json", "w", encoding="utf-8") as file:
            json.dump({"lr": lr * 1e-4, "epochs": 3}, file)
        with open(f"{root}/cmp/{name}/train.log", "w", encoding="utf-8") as file:
            file.writelines(f"step={i} loss={8 - lr * 0.1 * i:.3f}\n" for i in range(20))
    done = run("watch", "--compare", f"{root}/cmp/a", f"{root}/cmp/b", "--json", "--html", f"{root}/cmp.html")
    result = json.loads(done.stdout)
    assert [s["name"] for s in result["settings"]] == ["lr"], result
    assert result["metrics"][0] == {"name": "loss", "step": 19, "a": 6.1, "b": 4.2}, result
    with open(f"{root}/cmp.html", encoding="utf-8") as file:
        assert "<svg" in file.read()


def test_a_status_line_when_asked(root):
    script = "import time\nfor i in range(2000):\n  print(f'step={i} loss={7 - i * 0.001:.3f}', flush=True)\n  time.sleep(0.05)"
    with open(f"{root}/s.log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-c", script], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    assert until(lambda: os.path.getsize(f"{root}/s.log") > 0), "it says nothing"
    asked = [subprocess.Popen([EAGLET, "--progress", "none", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
             for words in (["wait", str(process.pid), "--until", "step=100000", "--for", "90s"], ["watch", str(process.pid), "--for", "90s"])]
    try:
        for one, stream, expected in zip(asked, ("stdout", "stderr"), ("waiting for step=100000: ", "  step ")):
            one.stdout.readline()  # it is at work
            one.send_signal(signal.SIGUSR1)
            line = next(line for line in getattr(one, stream) if expected in line)
            assert "step" in line and one.poll() is None, line
    finally:
        for one in [process, *asked]:
            one.kill()
            one.communicate()


def test_a_run_that_tells_only_trackio(root):
    """Not a word is printed; its metrics go to Trackio's file, which it keeps open, in write-ahead mode."""
    script = """import json, sqlite3, sys, time
c = sqlite3.connect(sys.argv[1] + '/trackio/p.db', isolation_level=None)
c.execute('pragma journal_mode=wal')
c.execute('create table metrics (id integer primary key autoincrement, timestamp text, run_name text, step integer, metrics text)')
for i in range(4000):
    t = time.time()
    iso = time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(t)) + f'{t % 1:.6f}'[1:] + '+00:00'
    c.execute('insert into metrics(timestamp, run_name, step, metrics) values(?, ?, ?, ?)',
              (iso, 'run-1', i, json.dumps({'train/loss_0': 10 - i * 0.001, 'lr': 1e-4})))
    time.sleep(0.05)"""
    os.makedirs(f"{root}/trackio")
    process = subprocess.Popen([sys.executable, "-c", script, root], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, "TRACKIO_DIR": f"{root}/trackio"})
    try:
        assert until(lambda: os.path.exists(f"{root}/trackio/p.db-wal")), "it did not begin"
        verdict = seen(str(process.pid), "RUNNING")
        assert verdict["step"] > 0 and "loss_0" in verdict["log"]["metrics"] and verdict["log"]["path"] == "", verdict["log"]
        assert any(e["kind"] == "step" for e in verdict["evidence"]), verdict["evidence"]
        without = doctor(str(process.pid), env={**os.environ, "EAGLET_SQLITE": "none"})
        assert without["log"] is None and "no SQLite library" in str(without["judgements"]), without["judgements"]
        assert sorted(os.listdir(f"{root}/trackio")) == ["p.db", "p.db-shm", "p.db-wal"]
    finally:
        process.kill()
        process.wait()


def test_one_record_a_line_and_a_pager(root):
    b = f"{CASES}/16-alive-stuck-or-dead/b"
    rows = [line.split("\t") for line in run("doctor", "--plain", "--snapshots", b).stdout.splitlines()]
    assert rows[0][:3] == ["process", "crit", "state"] and all(len(row) == 7 for row in rows), rows
    with open(f"{root}/r.log", "w", encoding="utf-8") as file:
        file.writelines(f"step={i} loss={8 - 0.1 * i:.3f}\n" for i in range(20))
    line = run("watch", f"{root}/r.log", "--plain", "--once").stdout
    assert line.count("\n") == 1 and len(line.split("\t")) == 9 and line.split("\t")[3:6] == ["19", "-", "6.1"], line
    assert run("watch", f"{root}/r.log", "--plain", "--jsonl").returncode == 64

    def on_a_terminal(pager, *arguments):
        mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        environment = {key: value for key, value in os.environ.items() if key not in ("CI", "EAGLET_PAGER")}
        process = subprocess.Popen([EAGLET, "--progress", "none", *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
                                   env={**environment, "PAGER": pager, "TERM": "xterm"})
        os.close(theirs)
        out = b""
        try:
            while piece := os.read(mine, 65536):
                out += piece
        except OSError:  # how a terminal tells its end
            pass
        os.close(mine)
        return process.wait(30), out.decode().replace("\r\n", "\n")

    code, text = on_a_terminal("sed s/^/paged:/", "doctor", "--all", "--snapshots", b)
    assert code == 2 and text.startswith("paged:") and "\npaged:judgements\n" in text, (code, text)
    code, text = on_a_terminal("head -n 3", "doctor", "--print-config")
    assert code == 0 and text.count("\n") == 3, (code, text)  # left early, which is no failure
    for pager in ("cat", "", "/nowhere/pager 2>/dev/null"):
        code, text = on_a_terminal(pager, "doctor", "--all", "--color", "never", "--snapshots", b)
        assert code == 2 and text.startswith("STALLED") and "paged:" not in text, (pager, code, text)
    for asked in (["--help"], ["help", "doctor"]):
        code, text = on_a_terminal("sed s/^/paged:/", *asked)
        assert code == 0 and text.startswith("paged:") and text.count("\npaged:") > 24, (asked, code, text)
    assert not run("doctor", "--help").stdout.startswith("paged:")
    assert run("--progress", "none", "--json", "help").stdout == run("--help").stdout
    assert run("--color=never", "help", "no-such-command").returncode == 64
    code, text = on_a_terminal("sed s/^/paged:/", "doctor", "--nagios", "--snapshots", b)
    assert code == 2 and text.startswith("EAGLET CRIT"), text


def test_a_live_view_takes_keys_and_signals(root):
    """Keys that are typed ahead are not lost; a signal leaves the terminal as it was and says so by the exit code."""
    with open(f"{root}/r.log", "w", encoding="utf-8") as file:
        file.writelines(f"step={i} loss={8 - 0.1 * i:.3f}\n" for i in range(20))

    def live(keys, sent):
        mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        process = subprocess.Popen([EAGLET, "watch", f"{root}/r.log"], stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, start_new_session=True,
                                   env={**{k: v for k, v in os.environ.items() if k not in ("CI", "EAGLET_PROGRESS")}, "TERM": "xterm"})
        os.close(theirs)
        out = b""
        try:
            while piece := os.read(mine, 65536):
                out += piece
                if b"quit" in out and keys is not None:  # drawn: the last line says how to leave
                    os.write(mine, keys)
                    keys = None
                    if sent:
                        process.send_signal(sent)
        except OSError:
            pass
        os.close(mine)
        left = out.rfind(b"\x1b[?1049l") > out.rfind(b"\x1b[?1049h") >= 0 and out.rfind(b"\x1b[?25h") > out.rfind(b"\x1b[?25l")
        assert left, "the terminal is not as it was"
        return process.wait(30)

    for keys in (b"q", b"gl+-? q", b"\x1b[A2q"):
        assert live(keys, None) == 3, keys  # a log alone does not tell whether its run lives
    assert live(b"", signal.SIGTERM) == 143
    assert live(b"", signal.SIGINT) == 130
    done = run("watch", "--compare", f"{root}/r.log")
    assert done.returncode == 64 and "one run cannot be compared" in done.stderr, (done.returncode, done.stderr)


def test_server_ready_climbs_the_ladder(root):
    asked = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def reply(self, status, body):
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            if self.path == "/health":
                self.reply(503 if asked.count("/health") < 1 else 200, b"{}")
            elif self.headers.get("Authorization") != "Bearer right":
                self.reply(401, b"{}")
            else:
                self.reply(200, b'{"data": [{"id": "tiny"}]}')

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(500 if asked.count("/v1/completions") < 1 else 200, b'{"error": {"message": "still warming up"}}')

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        done = run("wait", url, "--until", "server-ready", "--for", "60s", env={**os.environ, "EAGLET_API_KEY": "right"})
        assert done.returncode == 0 and "it serves tiny" in done.stdout and "completes a token" in done.stdout, done
        assert asked.count("/health") == 3 and asked.count("/v1/completions") == 2, asked
        done = run("wait", url, "--until", "server-ready", "--for", "60s", env={**os.environ, "EAGLET_API_KEY": "wrong"})
        assert done.returncode == 2 and "refuses the key" in done.stdout, done
    finally:
        server.shutdown()
        server.server_close()
    assert run("wait", url, "--until", "server-ready", "--for", "1s").returncode == 3
    assert run("wait", "127.0.0.1", "--until", "server-ready").returncode == 64


if __name__ == "__main__":
    sys.exit(run_tests(globals(), alone="starved"))
