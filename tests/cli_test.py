#!/usr/bin/env python3
"""The command line itself: help, did-you-mean, version, exit codes, streams, start-up time. Needs no model."""
import json
import os
import re
import resource
import subprocess
import sys

EAGLET = os.environ["EAGLET"]
SOURCE = os.environ["EAGLET_SOURCE"]
BARE = {"PATH": "/usr/bin:/bin"}  # no HOME, no terminal


def run(*arguments, env=None, **more):
    return subprocess.run([EAGLET, *arguments], capture_output=True, text=True, env=BARE if env is None else {**BARE, **env},
                          timeout=60, check=False, **more)


def commands():
    listed = run("--help").stdout.split("Commands, in the order of a run:\n")[1].split("\n\n")[0]
    return re.findall(r"^  ([a-z]+)", listed, re.M)


def test_called_with_nothing():
    done = run()
    assert done.returncode == 0 and done.stderr == ""
    assert 2 <= len(re.findall(r"^  eaglet ", done.stdout, re.M)) <= 3, done.stdout
    assert "Commands" in done.stdout


def test_help_shows_examples_first_and_fits():
    names = commands()
    expected = ["run", "plan", "generate", "prepare", "extract", "store", "vocab", "train", "evaluate", "export", "import", "inspect", "watch", "doctor", "wait", "launch",
                "orphans", "bench", "completion", "help"]
    assert names == expected, names
    with open(f"{SOURCE}/docs/man/eaglet.1", encoding="utf-8") as file:
        page = file.read()
    for name in names:
        assert f".B {name}\n" in page, f"the man page lacks {name}"
        if name == "help":
            continue
        done = run(name, "--help")
        assert done.returncode == 0 and done.stderr == "", name
        assert done.stdout == run("help", name).stdout, name
        assert done.stdout == run(name, "-h").stdout, name
        at = {word: done.stdout.find(word) for word in ["Example", f"  eaglet {name}", "Usage:", "Options:"]}
        assert all(place > 0 for place in at.values()), (name, at)
        assert at["Example"] < at[f"  eaglet {name}"] < at["Usage:"] < at["Options:"], (name, at)
        for line in done.stdout.splitlines():
            assert len(line) <= 120, f"{name}: {line}"


def test_a_command_of_a_command_has_its_whole_name():
    for names in (["plan", "train"], ["store", "merge"], ["bench", "watch"]):
        done = run(*names, "--help")
        whole = "eaglet " + " ".join(names)
        assert done.stdout.startswith(f"{whole}: ") and f"Usage: {whole}" in done.stdout, done.stdout[:300]


def test_devices_that_cannot_be_are_told():
    for command in (["train", "--store", "none", "--output-dir", "none"], ["evaluate", "--store", "none", "--draft", SOURCE], ["bench", "train"]):
        model = [] if command[0] == "bench" else ["--model", "none.gguf"]
        done = run(*command, *model, "--device", "gpu")
        assert done.returncode == 64 and "there is no device 'gpu'" in done.stderr and "cuda:N" in done.stderr, done.stderr
        done = run(*command, *model, "--device", "cuda:99")
        assert done.returncode == 69 and ("CUDA" in done.stderr), done.stderr
    assert run("evaluate", "--serve", "--draft", SOURCE, "--model", "none", "--conversations", "none", "--device", "cpu").returncode == 64
    assert run("bench", "train", "--scaling", "--device", "cpu").returncode == 64


def test_flags_named_in_examples_exist():
    for name in commands():
        text = run(name, "--help").stdout
        if name in ("help", "bench", "store"):  # bench and store have commands of their own
            continue
        examples, rest = text.split("Usage:", 1)
        flags = set(re.findall(r"(?<!\S)(--[a-z0-9-]+)", "\n".join(
            line for line in examples.replace("\\\n", " ").splitlines() if line.startswith(f"  eaglet {name}"))))
        assert name in ("inspect", "completion") or flags, f"{name}: examples without a flag"
        for flag in flags:
            assert re.search(rf"{flag}\b", rest + run("--help").stdout), f"{name}: {flag} is in an example only"


def test_wrong_words_get_the_nearest_name():
    for arguments, words in [(["trian"], "did you mean 'eaglet train'?"), (["--verison"], "did you mean --version?"),
                             (["train", "--epocs", "3"], "did you mean --epochs?"), (["help", "exprt"], "eaglet export"),
                             (["run"], "RECIPE"), (["--progress", "loud"], "--progress"), (["run", "a.toml", "b.toml"], "b.toml")]:
        done = run(*arguments)
        assert done.returncode == 64, (arguments, done.returncode)
        assert done.stdout == "" and done.stderr.startswith("error: "), done.stderr
        assert words in done.stderr and "do:" in done.stderr, (arguments, done.stderr)


def test_completion():
    script = run("completion", "bash").stdout
    ask = script + """
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _eaglet; echo "${COMPREPLY[@]}"; }
ask eaglet do; ask eaglet --progress plain doctor --pro; ask eaglet help orp; ask eaglet doctor some; ask eaglet orphans --e
"""
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[:1] == ["doctor"], done
    assert "--probe" in done.stdout.splitlines()[1].split() and "--progress" in done.stdout.splitlines()[1].split(), done.stdout
    assert done.stdout.splitlines()[2:] == ["orphans", "", "--end"], done.stdout
    for shell in ("zsh", "fish"):
        text = run("completion", shell).stdout
        assert "orphans" in text and "probe" in text, shell
    assert run("completion", "tcsh").returncode == 64


def test_version():
    text = run("--version").stdout
    facts = json.loads(run("--version", "--json").stdout)
    assert facts["version"] in text and facts["revision"] in text
    for library in ["llama.cpp", "oneDNN", "nlohmann_json", "fmt", "CLI11", "toml++", "xxHash", "Highway"]:
        assert re.search(r"\d", str(facts["libraries"][library])), library
        assert library in text


def test_streams():
    missing = ["run", "/nowhere/r.toml"]
    assert "\033" not in run(*missing).stderr
    assert "\033[31m" in run(*missing, "--color", "always").stderr
    assert "\033" not in run(*missing, env={"NO_COLOR": "1", "FORCE_COLOR": "1"}).stderr
    assert "\033" in run(*missing, env={"FORCE_COLOR": "1"}).stderr
    assert "\033" not in run(*missing, "--color", "never", env={"FORCE_COLOR": "1"}).stderr
    assert run(*missing).returncode == 66
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([EAGLET, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 73 and "standard output" in done.stderr, done
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([EAGLET, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == 141 and done.stderr == "", done


def test_exit_codes_are_documented():
    with open(f"{SOURCE}/src/apps/exit_code.cc", encoding="utf-8") as file:
        codes = set(re.findall(r"return (\d+);", file.read()))
    with open(f"{SOURCE}/docs/exit-codes.md", encoding="utf-8") as file:
        documented = set(re.findall(r"\b(\d+)\b(?=[^|]*\|)", file.read()))
    assert codes and codes <= documented, codes - documented


def test_start_up():
    """Under 50 ms. Counted in CPU time (user and system), which other programs on the machine do not change."""
    used = []
    for _ in range(10):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run("--version")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(f"start-up: {1000 * min(used):.1f} ms of CPU at best")
    assert min(used) < 0.050


def main():
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print(f"ok {name}")
        except AssertionError as error:
            failed += 1
            print(f"FAILED {name}: line {error.__traceback__.tb_next.tb_lineno if error.__traceback__.tb_next else '?'}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
