#!/usr/bin/env python3
"""Small real processes, each with one habit that a watcher must see through: one that only spins, one whose output stays in its buffer,
a rank that nobody collects, one that writes a gigabyte, one that renames its log, two ranks of which one is stuck, two of three ranks,
a server with /metrics, GPUs that only an exporter tells of, one that is killed while somebody waits for it.

Thresholds are shortened; the rules are those of any run."""
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import scripted_states
from side_by_side import run_tests

EAGLET = os.environ["EAGLET"]


def run(*arguments, timeout=90, **more):
    return subprocess.run([EAGLET, "--progress", "none", *arguments], capture_output=True, text=True, timeout=timeout, check=False, **more)


def doctor(target, *settings, seconds=2):
    done = run("doctor", str(target), "--for", f"{seconds}s", "--json", *[word for setting in settings for word in ("--set", setting)])
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def judged(verdict, name):
    return next((j for j in verdict["judgements"] if j["name"] == name), None)


def start(root, script, **more):
    with open(f"{root}/run.log", "ab") as log:
        return subprocess.Popen([sys.executable, "-c", script, root], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=root,
                                start_new_session=True, env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}, **more)


def end(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def until(condition, seconds=60):
    limit = time.time() + seconds
    while not condition():
        assert time.time() < limit, "it did not come"
        time.sleep(0.05)


def test_a_spinner_is_no_healthy_run(root):
    process = start(root, "while True: pass")
    try:
        verdict = doctor(process.pid, "start_seconds=0", "stall_min_seconds=0")
        assert verdict["state"] == "LATE" and verdict["exit_code"] == 1, verdict["headline"]
        assert any(e["kind"] == "cpu" and e["for"] == "progress" for e in verdict["evidence"]), verdict["evidence"]
    finally:
        end(process)


def test_output_that_stays_in_the_buffer(root):
    """CPython writes to a file in blocks of 8 KiB: it trains, and the log is empty."""
    process = start(root, "i = 0\nwhile True:\n  i += 1\n  if i % 1000000 == 0: print(f'step={i} loss=7.1')")
    try:
        time.sleep(0.5)
        verdict = doctor(process.pid, "stall_min_seconds=1", "start_seconds=0")
        assert verdict["state"] != "STALLED" and os.path.getsize(f"{root}/run.log") == 0, verdict["headline"]
        verdict = doctor(process.pid, "stall_min_seconds=1")
        assert "log silent" in verdict["silence"], verdict["silence"]
        verdict = doctor(process.pid, "stall_min_seconds=1", "start_seconds=0", "compile_seconds=0", "load_seconds=0")
        assert verdict["state"] != "STALLED", verdict["headline"]
    finally:
        end(process)
    assert os.path.getsize(f"{root}/run.log") == 0  # what was not written is lost with it


def test_a_rank_that_nobody_collects(root):
    script = """import os, time
for rank in (0, 1):
  if os.fork() == 0:
    os.execvpe('python3', ['python3', '-c', 'import time\\nfor i in range(%d): time.sleep(0.05); sum(range(100000))' % (10 if rank else 9999), '--rank', str(rank)],
               {**os.environ, 'RANK': str(rank)})
time.sleep(600)"""
    process = start(root, script)
    try:
        def defunct():
            verdict = doctor(process.pid, "defunct_seconds=0.5", seconds=1.5)
            found = judged(verdict, "defunct")
            return found and found["level"] == "crit" and str(process.pid) in found["reason"] and verdict["exit_code"] == 2
        until(defunct)
    finally:
        end(process)


def test_a_checkpoint_of_a_gigabyte_is_a_save(root):
    """It trains, then writes for longer than a step may take: not stalled."""
    script = """import os, sys, time
for i in range(5):
  print(f'step={i} loss={7 - i}', flush=True)
  time.sleep(0.05)
os.makedirs(sys.argv[1] + '/out/checkpoint-5')
block = b'x' * (1 << 20)
with open(sys.argv[1] + '/out/checkpoint-5/model.bin', 'wb') as file:
  while True:
    for i in range(64):
      file.write(block)
    file.seek(0)
    time.sleep(0.05)"""
    process = start(root, script)
    try:
        until(lambda: os.path.exists(f"{root}/out/checkpoint-5/model.bin"))
        verdict = doctor(process.pid, "stall_min_seconds=1", "stall_step_factor=1", "save_bytes_per_second=20e6")
        assert verdict["state"] == "RUNNING" and verdict["phase"] == "save", (verdict["state"], verdict["phase"], verdict["headline"])
    finally:
        end(process)


def test_a_log_that_is_renamed_while_it_grows(root):
    script = """import os, sys, time
name = sys.argv[1] + '/train.log'
out = open(name, 'w')
for i in range(100000):
  out.write(f'step={i} loss={7 - i * 1e-5:.4f}\\n')
  out.flush()
  time.sleep(0.02)
  if i % 40 == 39:
    os.rename(name, name + '.1')
    out = open(name, 'w')"""
    process = start(root, script)
    try:
        until(lambda: os.path.exists(f"{root}/train.log.1"))
        verdict = doctor(f"{root}/train.log", seconds=3)
        assert verdict["state"] == "RUNNING", verdict["headline"]
        assert any(e["kind"] == "step" for e in verdict["evidence"]), verdict["evidence"]
    finally:
        end(process)


def test_of_two_ranks_one_is_stuck(root):
    """In a collective the healthy rank spins; the sick one waits for a lock that nobody gives back."""
    script = """import os, sys, time
work = {'0': "import sys, time\\nfor i in range(5): print(f'step={i} loss={7 - i}', flush=True); time.sleep(0.05)\\nwhile True: pass",
        '1': "import threading\\nlock = threading.Lock()\\nlock.acquire()\\nlock.acquire()"}
for rank, code in work.items():
  if os.fork() == 0:
    os.execvpe('python3', ['python3', '-c', code, '--rank', rank], {**os.environ, 'RANK': rank})
time.sleep(600)"""
    process = start(root, script)
    try:
        until(lambda: "step=4" in open(f"{root}/run.log", encoding="utf-8").read())
        time.sleep(2)
        verdict = doctor(process.pid, "stall_min_seconds=1", "stall_step_factor=1", "stall_gap_factor=1", seconds=3)
        assert verdict["state"] in ("LATE", "STALLED") and verdict["exit_code"] in (1, 2), verdict["headline"]
        assert verdict["suspect"] and verdict["suspect"]["rank"] == 1, (verdict["suspect"], verdict["headline"])
        with open(f"/proc/{verdict['suspect']['pid']}/wchan", encoding="utf-8") as file:
            assert "futex" in file.read()
    finally:
        end(process)


def test_a_rank_that_never_starts(root):
    """Three were asked for here, two came: they wait for the third in their first collective, and nobody needs to wait for them."""
    script = """import os, time
for rank in '01':
  if os.fork() == 0:
    os.execvpe('python3', ['python3', '-c', 'import time; time.sleep(600)', '--rank', rank],
               {**os.environ, 'RANK': rank, 'LOCAL_WORLD_SIZE': '3', 'WORLD_SIZE': '3'})
time.sleep(600)"""
    process = start(root, script)
    try:
        time.sleep(2)
        wait = ["wait", str(process.pid), "--until", "first-step", "--for"]
        done = run(*wait, "3s")
        assert done.returncode == 1 and "ranks so far" not in done.stdout, "within the time to start nothing is wrong: " + done.stdout
        begun = time.time()
        done = run(*wait, "60s", "--set", "start_seconds=4")
        assert done.returncode == 2 and "2 of 3 ranks after" in done.stdout and "never started" in done.stdout, (done.returncode, done.stdout)
        assert time.time() - begun < 20, "it waited on"
    finally:
        end(process)


class Gpus(http.server.BaseHTTPRequestHandler):
    pid = 0

    def log_message(self, *_):
        pass

    def do_GET(self):
        gpu = 'hostname="10.0.0.7",index="0",devicename="NVIDIA H200",uuid="GPU-a"'
        body = "".join(f"{name}{{{gpu}}} {value}\n" for name, value in (
            ("gpu_utilization_Percentage", 100), ("gpu_power_usage_W", 112), ("gpu_power_limit_W", 700), ("gpu_memory_used_MiB", 40000),
            ("gpu_memory_total_MiB", 143771)))
        body += f'process_gpu_memory_MiB{{{gpu},pid="{Gpus.pid}",username="me"}} 39000\n'
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


def test_gpus_by_an_exporter(root):
    """Where no driver can be asked, somebody else's exporter tells how busy a board is, and how little it draws."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gpus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    process = start(root, "while True: pass")
    Gpus.pid = process.pid
    try:
        for words in (["--gpu-metrics", url], ["--gpu-metrics", url + "/metrics"]):
            verdict = json.loads(run("doctor", str(process.pid), "--for", "2s", "--json", *words).stdout)
            assert [device["power_w"] for device in verdict["devices"]] == [112], verdict["devices"]
            assert "busy at near-idle power" in judged(verdict, "power")["reason"], judged(verdict, "power")
        told = run("watch", str(process.pid), "--once", "--json", env={**os.environ, "EAGLET_GPU_METRICS": url})
        assert len(json.loads(told.stdout)["devices"]) == 1, told.stdout
        for words, code in (([url + "/nothing"], 69), (["http://127.0.0.1:1"], 69), (["gpu7"], 64)):
            done = run("doctor", str(process.pid), "--gpu-metrics", *words)
            assert done.returncode == code and words[0] in done.stderr, (done.returncode, done.stderr)
        assert run("doctor", "--snapshots", root, "--gpu-metrics", url).returncode == 64
        assert run("wait", url, "--until", "server-ready", "--gpu-metrics", url).returncode == 64
    finally:
        end(process)
        server.shutdown()
        server.server_close()


class Metrics(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.asked += 1
        tokens = 1000 * self.server.asked if self.server.works else 1000
        body = (f'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{engine="0"}} 12\n'
                f'vllm:num_requests_waiting{{engine="0"}} 3\nvllm:generation_tokens_total{{engine="0"}} {tokens}\n').encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_a_server_tells_what_it_does(root):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    server.asked, server.works = 0, True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        verdict = doctor(url, seconds=6)
        assert verdict["state"] == "RUNNING" and verdict["phase"] == "serve" and "12 running, 3 waiting" in verdict["headline"], verdict["headline"]
        server.works = False
        verdict = doctor(url, "stall_min_seconds=2", seconds=6)
        assert verdict["state"] in ("LATE", "STALLED") and "15 requests, no token for" in verdict["headline"], verdict["headline"]
    finally:
        server.shutdown()
        server.server_close()
    done = run("doctor", url, "--for", "1s")
    assert done.returncode == 3 and "server-ready" in done.stdout, done.stdout
    assert run("doctor", "https://127.0.0.1").returncode == 64


class States(http.server.BaseHTTPRequestHandler):
    """A vLLM server with the hidden-states connector, which writes its files a second late; or without it."""

    def log_message(self, *_):
        pass

    def reply(self, json_object):
        body = json.dumps(json_object).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply({"data": [{"id": "tiny", "owned_by": "vllm"}]} if self.path == "/v1/models" else {})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ids = request["prompt"]
        reply = {"choices": [{"text": "x", "finish_reason": "length"}]}
        if isinstance(ids, list) and self.server.folder:
            path = f"{self.server.folder}/cmpl-{len(self.server.asked)}.safetensors"
            self.server.asked.append(ids)
            rows = len(ids) - self.server.short

            def write():
                with open(path + ".half", "wb") as file:
                    file.write(scripted_states.safetensors(ids, scripted_states.states_of(ids, 4, 8), 4, 8, rows))
                os.rename(path + ".half", path)
            threading.Timer(1, write).start()
            reply["kv_transfer_params"] = {"hidden_states_path": path}
        self.reply(reply)


def test_a_server_of_hidden_states(root):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), States)
    server.folder, server.asked, server.short = root, [], 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        done = run("wait", url, "--until", "states-ready", "--for", "60s")
        assert done.returncode == 0 and "it makes hidden states: 4 slots of 8 numbers" in done.stdout, (done.returncode, done.stdout)
        assert server.asked == [[3, 1, 4, 1, 5]] and not os.listdir(root), (server.asked, os.listdir(root))
        server.short = 1
        done = run("wait", url, "--until", "states-ready", "--for", "4s")
        assert done.returncode == 1 and "has 4 rows and 5 token ids" in done.stdout, (done.returncode, done.stdout)
        assert os.listdir(root) == ["cmpl-1.safetensors"], "what is not as it was asked for is left alone"
        server.folder = None
        done = run("wait", url, "--until", "states-ready", "--for", "60s")
        assert done.returncode == 2 and "name no file of states" in done.stdout, (done.returncode, done.stdout)
        assert run("wait", url, "--until", "server-ready", "--for", "60s").returncode == 0
    finally:
        server.shutdown()
        server.server_close()


def test_whoever_waits_hears_of_the_end_at_once(root):
    """Pauses between looks are five seconds by then; the end of the process cuts them short."""
    process = start(root, "import time\nfor i in range(100): print(f'step={i} loss=7', flush=True); time.sleep(0.01)\ntime.sleep(600)")
    waiting = subprocess.Popen([EAGLET, "--progress", "none", "wait", str(process.pid), "--until", "step=1000", "--for", "60s"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(8)  # 0.5, 1, 2, and then in the middle of 5
        begun = time.time()
        end(process)
        out, _ = waiting.communicate(timeout=30)
        assert waiting.returncode == 2 and "ended before" in out and "loss=7" in out, (waiting.returncode, out)
        assert time.time() - begun < 3.5, f"{time.time() - begun:.1f} s late"
    finally:
        waiting.kill()
        waiting.communicate()


def test_what_a_dead_run_left_in_its_directory(root):
    old = time.time() - 3600
    for name, text in (("checkpoint-1/model.safetensors", ""), ("checkpoint-2/model.bin", "weights"), ("states.lock", ""), ("notes.txt", "")):
        os.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
        with open(f"{root}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
        os.utime(f"{root}/{name}", (old, old))
    done = run("orphans", root, "--json")
    files = {os.path.relpath(one["path"], os.path.realpath(root)): one["proof"] for one in json.loads(done.stdout)["files"] if root in one["path"]}
    assert done.returncode == 1 and set(files) == {"checkpoint-1", "states.lock"}, (done.returncode, files)
    assert "is empty" in files["checkpoint-1"] and "nobody holds" in files["states.lock"], files
    text = run("orphans", root).stdout
    assert "states.lock" in text and "because" in text and "rm -r" in text, text
    assert run("orphans", f"{root}/nothing").returncode == 66


if __name__ == "__main__":
    # Ranks are children of this script, and so part of the run that its made-up servers are.
    sys.exit(run_tests(globals(), alone="rank"))
