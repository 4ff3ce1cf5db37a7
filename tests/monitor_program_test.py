#!/usr/bin/env python3
"""The program that is sent to other machines, in three steps, as far as there is something to look at:

1. the tree: every file that the monitor-only build needs is in its list (cmake/MonitorOnly.cmake);
2. this build's own eaglet-monitor: it calls nothing that came into the C library after glibc 2.28;
3. the program that scripts/monitor-program made: no symbol newer than glibc 2.28, no library but the C library's own, it looks at a
   run, and it does so in a Debian 11 root too, where there is one (scripts/monitor-program --old-system).
"""
import os
import re
import shutil
import subprocess
import sys

NEWEST = (2, 28)
OWN = os.environ.get("EAGLET_MONITOR_PROGRAM", "")
MADE = os.environ.get("EAGLET_MONITOR_FOR_OLD", "")
OLD_ROOT = os.environ.get("EAGLET_OLD_ROOT", "")
MUST = os.environ.get("EAGLET_OLD_ROOT_MUST", "no") == "yes"
SOURCE = os.environ.get("EAGLET_SOURCE") or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
C_LIBRARY = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}
# glibc 2.33 gave these names to what was __xstat and its kin; the last one is called by the C++ library of this machine, not by ours.
NO_MATTER = {"stat", "fstat", "lstat", "fstatat", "stat64", "fstat64", "lstat64", "fstatat64", "mknod", "mknodat",
             "pthread_cond_clockwait"}


def readelf(path, *flags):
    return subprocess.run(["readelf", "--wide", *flags, path], capture_output=True, text=True, check=True).stdout


def version_of(text):
    return tuple(int(part) for part in text.split("."))


def listed_files():
    with open(f"{SOURCE}/cmake/MonitorOnly.cmake", encoding="utf-8") as file:
        text = file.read()
    apps = re.search(r"set\(apps (.*?)\)", text, re.S).group(1).split()
    formats = re.findall(r"\$\{src\}/formats/(\w+)\.cc", text)
    return {f"apps/{name}" for name in apps} | {f"formats/{name}" for name in formats}


def check_list():
    """From each listed file over its own headers: what has a source file must be listed, unless without_maths.cc stands for it."""
    listed = listed_files()
    rooms = [f"{room}/{name[:-3]}" for room in ("base", "tensor", "runlog", "monitor") for name in os.listdir(f"{SOURCE}/src/{room}")
             if name.endswith(".cc") and not name.endswith(("_test.cc", "_bench.cc"))]
    with open(f"{SOURCE}/src/apps/without_maths.cc", encoding="utf-8") as file:
        stood_for = set(re.findall(r'#include "(apps/\w+)\.h"', file.read()))
    stood_for.add("apps/commands")  # the list of all commands: monitor_main.cc has one of its own
    waiting, seen = list(listed) + rooms, set()
    while waiting:
        unit = waiting.pop()
        if unit in seen:
            continue
        seen.add(unit)
        for ending in (".h", ".cc"):
            path = f"{SOURCE}/src/{unit}{ending}"
            if not os.path.exists(path):
                continue
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for included in re.findall(r'#include "(\w+/\w+)\.h"', text):
                if included in stood_for:
                    continue
                assert not os.path.exists(f"{SOURCE}/src/{included}.cc") or included in listed or included in rooms, \
                    f"src/{unit}{ending} needs {included}.cc, which cmake/MonitorOnly.cmake does not list"
                waiting.append(included)
    print(f"{len(seen)} units, all of them in the monitor-only build")


def exported_versions(library):
    """Name -> all versions under which the library gives it."""
    found = {}
    for name, version in re.findall(r" (\w+)@@?GLIBC_([0-9.]+)", readelf(library, "--dyn-syms")):
        found.setdefault(name, set()).add(version_of(version))
    return found


def check_own(program):
    """A function that is new has no older version; one that only moved between libraries has."""
    libraries = [line.split()[2] for line in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines()
                 if line.split()[0] in C_LIBRARY and "=>" in line]
    known = {}
    for library in libraries:
        for name, versions in exported_versions(library).items():
            known.setdefault(name, set()).update(versions)
    wanted = [(name, version_of(version)) for name, version in re.findall(r"UND (\w+)@GLIBC_([0-9.]+)", readelf(program, "--dyn-syms"))]
    assert len(wanted) > 50 and any(name == "openat" or name == "open" for name, _ in wanted), "no symbols read"
    new = sorted({name for name, version in wanted
                  if version > NEWEST and name not in NO_MATTER and min(known.get(name, {version})) > NEWEST})
    assert not new, f"newer than glibc {'.'.join(map(str, NEWEST))}: {', '.join(new)}"
    print(f"{os.path.basename(program)}: none of {len(wanted)} functions of the C library is newer than glibc 2.28")


def revision(program):
    text = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    return re.search(r"\(([0-9a-f]+)", text).group(1)


def ask(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def check_made(program):
    wanted = {version_of(text) for text in re.findall(r"GLIBC_([0-9.]+)", readelf(program, "--version-info"))}
    assert wanted and max(wanted) <= NEWEST, f"needs glibc {max(wanted)}: use no newer function of the C library"
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf(program, "--dynamic")))
    assert needed <= C_LIBRARY, needed - C_LIBRARY
    symbols = readelf(program, "--dyn-syms")
    assert not re.search(r"GLIBCXX_|CXXABI_|GOMP_|llama_|dnnl_|curl_", symbols), "it needs more than the C library"
    size = os.path.getsize(program)
    assert size < 8 << 20, size
    check_commands([program])
    done = ask(program, "wait", "http://127.0.0.1:1", "--until", "server-ready")
    assert done.returncode == 69 and "cannot ask servers" in done.stderr, done
    version = ask(program, "--version").stdout
    print(f"{size} bytes, glibc {'.'.join(map(str, max(wanted)))}, needs {', '.join(sorted(needed))}; {version.splitlines()[0]}")


def check_commands(program):
    done = ask(*program, "doctor", str(os.getpid()), "--for", "1s")
    assert done.returncode in (0, 1, 3) and f"pid {os.getpid()}" in done.stdout, done
    done = ask(*program, "wait", str(os.getpid()), "--until", "step=1", "--for", "1s")
    assert done.returncode in (1, 3) and "not reached: step=1" in done.stdout, done


def check_old_system(program):
    """In a root with an older C library, with this machine's processes to look at; what is mounted goes with the mount namespace."""
    if not os.path.exists(f"{OLD_ROOT}/etc/debian_version"):
        assert not MUST, f"no Debian 11 root in {OLD_ROOT}"
        return
    shutil.copy(program, f"{OLD_ROOT}/tmp/eaglet-monitor")
    inside = ["unshare", "--mount", "sh", "-c", f'mount -t proc proc "{OLD_ROOT}/proc" && exec chroot "{OLD_ROOT}" "$@"', "sh"]
    glibc = ask(*inside, "ldd", "--version")
    if glibc.returncode != 0 and not MUST:
        print(f"the root in {OLD_ROOT} cannot be entered here: {glibc.stderr.strip()}")
        return
    assert glibc.returncode == 0 and " 2.31" in glibc.stdout, glibc
    check_commands([*inside, "/tmp/eaglet-monitor"])
    started = ask(*inside, "/tmp/eaglet-monitor", "--version")
    assert started.returncode == 0, started
    print(f"judges a process in a Debian 11 root: {glibc.stdout.splitlines()[0]}")


def main():
    check_list()
    if OWN:
        check_own(OWN)
    if not os.path.exists(MADE):
        assert not MUST
        print(f"no {MADE}; scripts/monitor-program makes it")
        return 0
    if os.environ.get("EAGLET") and revision(MADE) != revision(os.environ["EAGLET"]):
        print(f"{MADE} was made from another revision; scripts/monitor-program makes it again")
        return 0
    check_made(MADE)
    check_old_system(MADE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
