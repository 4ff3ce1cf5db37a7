#!/usr/bin/env python3
"""doctor --host and watch --host against an sshd on loopback, with keys and settings of its own: the right verdict, the far end's own
refusals, and nothing left there: after the end, Ctrl-C, a killed connection, a killed eaglet, a copy cut in the middle.
Skipped where there is no sshd (Debian: openssh-server)."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

EAGLET = os.environ["EAGLET"]
MONITOR = os.environ.get("EAGLET_MONITOR_PROGRAM", os.path.join(os.path.dirname(EAGLET), "eaglet-monitor"))
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def until(condition, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


class Machine:
    """"gpu7": this machine, seen through an sshd of our own. What is copied to it lands in a directory that we can look into."""

    def __init__(self, root):
        self.root, self.landing = root, f"{root}/landing"
        os.mkdir(self.landing)
        for key in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{root}/{key}"], check=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        with open(f"{root}/sshd_config", "w", encoding="utf-8") as file:
            file.write(f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {root}/host_key\nAuthorizedKeysFile {root}/user_key.pub\n"
                       f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
                       f"SetEnv TMPDIR={self.landing}\n")
        with open(f"{root}/ssh_config", "w", encoding="utf-8") as file:
            file.write(f"Host gpu7\n  HostName 127.0.0.1\n  Port {self.port}\n  IdentityFile {root}/user_key\n  IdentitiesOnly yes\n"
                       f"  UserKnownHostsFile {root}/known\n  StrictHostKeyChecking no\n  LogLevel ERROR\n")
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # sshd run by root insists on it
        self.log = open(f"{root}/sshd.log", "wb")
        self.server = subprocess.Popen([SSHD, "-D", "-e", "-f", f"{root}/sshd_config"], stdout=self.log, stderr=self.log)
        self.environment = {**os.environ, "EAGLET_SSH": f"ssh -F {root}/ssh_config", "EAGLET_MONITOR_PROGRAM": MONITOR}

    def answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self):
        self.server.kill()
        self.server.wait()
        self.log.close()

    def sessions(self):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if b"--host-session" in words and any(word.startswith(self.landing.encode()) for word in words):
                found.append(int(pid))
        return found

    def clean(self):
        return not os.listdir(self.landing) and not self.sessions()

    def start(self, *arguments, **more):
        return subprocess.Popen([EAGLET, "--progress", "none", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment, **more)

    def run(self, *arguments, **environment):
        return subprocess.run([EAGLET, "--progress", "none", *arguments], capture_output=True, text=True, timeout=120, check=False,
                              env={**self.environment, **environment})


def steps(root):
    script = "import time\nfor i in range(100000):\n  print(f'step={i} loss={7 - i * 0.001:.3f}', flush=True)\n  time.sleep(0.05)"
    with open(f"{root}/run.log", "wb") as log:
        return subprocess.Popen([sys.executable, "-c", script], stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def check_doctor(machine, pid):
    running = machine.start("doctor", "--host", "gpu7", pid, "--for", "2s", "--json")
    assert until(machine.sessions), running.communicate(timeout=60)
    assert until(lambda: not os.listdir(machine.landing), 5), "the copy is still there while it looks"
    out, err = running.communicate(timeout=60)
    verdict = json.loads(out)
    assert verdict["state"] == "RUNNING" and running.returncode == verdict["exit_code"], (verdict["headline"], err)
    assert verdict["ranks"][0]["pid"] == int(pid) and verdict["log"]["path"].endswith("/run.log"), verdict
    assert verdict["log"]["metrics"]["loss"]["steps"], "no curve came along"
    assert until(machine.clean, 10), (os.listdir(machine.landing), machine.sessions())
    text = machine.run("doctor", "--host", "gpu7", pid, "--for", "1s", "--set", "window_seconds=30").stdout
    assert text.startswith("RUNNING") and "on gpu7: eaglet watch " + pid in text, text


def check_watch(machine, pid):
    done = machine.run("watch", "--host", "gpu7", pid, "--jsonl", "--for", "3s", "--html", f"{machine.root}/page.html")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) >= 2 and lines[-1]["state"] == "RUNNING" and lines[-1]["step"] > lines[0]["step"], (done.stdout[-500:], done.stderr)
    with open(f"{machine.root}/page.html", encoding="utf-8") as file:
        assert "<svg" in file.read(), "no curve on the page"
    once = machine.run("watch", "--host", "gpu7", pid, "--once", "--ascii", "--for", "2s", COLUMNS="80")
    assert len(once.stdout.splitlines()) == 24 and "loss" in once.stdout, once.stdout
    assert until(machine.clean, 10)


def check_nothing_stays(machine, pid):
    def watching():
        watcher = machine.start("watch", "--host", "gpu7", pid, "--jsonl", start_new_session=True)
        assert json.loads(watcher.stdout.readline())["run"] == pid
        return watcher

    watcher = watching()
    os.killpg(watcher.pid, signal.SIGINT)  # as Ctrl-C on a terminal does: ssh gets it too
    watcher.wait(20)
    assert until(machine.clean, 10), "after Ctrl-C"
    watcher = watching()
    with open(f"/proc/{watcher.pid}/task/{watcher.pid}/children", encoding="ascii") as file:
        os.kill(int(file.read().split()[0]), signal.SIGKILL)  # the connection breaks
    out, err = watcher.communicate(timeout=20)
    assert watcher.returncode == 69 and "the connection ended" in err, (watcher.returncode, err)
    assert until(machine.clean, 10), "after the connection broke"
    watcher = watching()
    watcher.kill()
    watcher.communicate(timeout=20)
    assert until(machine.clean, 10), "after eaglet was killed"
    # A copy that is cut in the middle: ssh hears the first 100 kB only.
    wrapper = f"{machine.root}/short"
    with open(wrapper, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nhead -c 100000 | ssh -F {machine.root}/ssh_config "$@"\n')
    os.chmod(wrapper, 0o700)
    done = machine.run("doctor", "--host", "gpu7", pid, EAGLET_SSH=wrapper)
    assert done.returncode == 69 and "did not arrive whole" in done.stderr, done
    assert until(machine.clean, 10), "after half a copy"


def check_refusals(machine, pid):
    done = machine.run("doctor", "--host", "gpu7", "99999999")  # a name would be found: in the command line of this end
    assert done.returncode == 66 and "gpu7" in done.stderr and "99999999" in done.stderr, done
    done = machine.run("doctor", "--host", "gpu8", pid)
    assert done.returncode == 69 and "gpu8" in done.stderr, done
    assert machine.run("doctor", "--host", "-oProxyCommand=touch", pid).returncode == 64
    done = machine.run("doctor", "--host", "gpu7", pid, EAGLET_MONITOR_PROGRAM="/nowhere/eaglet-monitor")
    assert done.returncode == 66 and "scripts/monitor-program" in done.stderr, done
    broken = f"{machine.root}/broken"
    with open(broken, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\necho 'no such library' >&2\nexit 127\n")
    done = machine.run("doctor", "--host", "gpu7", pid, EAGLET_MONITOR_PROGRAM=broken)
    assert done.returncode == 69 and "no such library" in done.stderr, done
    assert until(machine.clean, 10), "after a program that cannot start"
    assert machine.run("doctor", "--host", "gpu7", "--snapshots", "/tmp").returncode == 64
    alone = subprocess.run([MONITOR, "doctor", pid, "--for", "1s"], capture_output=True, text=True, timeout=60, check=False)
    assert alone.stdout.startswith("RUNNING"), alone
    version = subprocess.run([MONITOR, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert re.match(r"eaglet \d+\.\d+\.\d+ \(", version.stdout), version.stdout


def main():
    if SSHD is None or shutil.which("ssh-keygen") is None:
        print("skipped: no sshd")
        return 77
    with tempfile.TemporaryDirectory() as root:
        machine = Machine(root)
        run = steps(root)
        try:
            assert until(machine.answers, 10), open(f"{root}/sshd.log", encoding="utf-8").read()
            for check in (check_doctor, check_watch, check_nothing_stays, check_refusals):
                begun = time.time()
                check(machine, str(run.pid))
                print(f"ok {check.__name__} ({time.time() - begun:.1f} s)", flush=True)
        except BaseException:
            with open(f"{root}/sshd.log", encoding="utf-8") as file:
                print(file.read()[-2000:])
            raise
        finally:
            run.kill()
            run.wait()
            machine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
