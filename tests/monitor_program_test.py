#!/usr/bin/env python3
"""The program that scripts/monitor-program made for old systems: a few megabytes, no library but the C library's own, no symbol newer
than glibc 2.28, and it looks at a run. Skipped where it was not made."""
import os
import re
import subprocess
import sys

PROGRAM = os.environ.get("EAGLET_MONITOR_FOR_OLD", "")
C_LIBRARY = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}


def readelf(*flags):
    return subprocess.run(["readelf", "--wide", *flags, PROGRAM], capture_output=True, text=True, check=True).stdout


def revision(program):
    text = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    return re.search(r"\(([0-9a-f]+)", text).group(1)


def main():
    if not os.path.exists(PROGRAM):
        print(f"skipped: no {PROGRAM}; scripts/monitor-program makes it")
        return 77
    if revision(PROGRAM) != revision(os.environ["EAGLET"]):
        print(f"skipped: {PROGRAM} was made from another revision; scripts/monitor-program makes it again")
        return 77
    wanted = {tuple(int(part) for part in text.split(".")) for text in re.findall(r"GLIBC_([0-9.]+)", readelf("--version-info"))}
    assert wanted and max(wanted) <= (2, 28), f"needs glibc {max(wanted)}"
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic")))
    assert needed <= C_LIBRARY, needed - C_LIBRARY
    symbols = readelf("--dyn-syms")
    assert not re.search(r"GLIBCXX_|CXXABI_|GOMP_|llama_|dnnl_|curl_", symbols), "it needs more than the C library"
    size = os.path.getsize(PROGRAM)
    assert size < 8 << 20, size
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    done = subprocess.run([PROGRAM, "doctor", str(os.getpid()), "--for", "1s"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1, 3) and f"pid {os.getpid()}" in done.stdout, done
    done = subprocess.run([PROGRAM, "wait", str(os.getpid()), "--until", "step=1", "--for", "1s"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 3) and "not reached: step=1" in done.stdout, done
    done = subprocess.run([PROGRAM, "wait", "http://127.0.0.1:1", "--until", "server-ready"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 69 and "cannot ask servers" in done.stderr, done
    print(f"{size} bytes, glibc {'.'.join(map(str, max(wanted)))}, needs {', '.join(sorted(needed))}; {version.splitlines()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
