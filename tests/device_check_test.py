#!/usr/bin/env python3
"""checks/device.sh without a device: it says that there is none and ends with 77. What it makes of results is tested with
programs that stand in for a device's: which parts run, what is noted of each, the two results, the exit code."""
import json
import os
import subprocess
import sys
import tempfile

SOURCE = os.environ.get("EAGLET_SOURCE", os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(SOURCE, "checks", "device.sh")

TESTS = """#!/bin/sh
echo "device: a made-up H200, 139.0 GiB"
for option in "$@"; do
  case $option in
  --gtest_list_tests) printf 'GoldenOnDevice.\\n  Toy\\n'; exit 0 ;;
  --gtest_output=json:*)
    code=${FAKE_OPS_CODE:-0}
    echo '{"testsuites": [{"name": "Ops", "testsuite": [{"name": "Good"}, {"name": "Bad", "failures": [{}]}]}]}' >"${option#--gtest_output=json:}" ;;
  esac
done
echo "last words"
exit ${code:-0}
"""
BENCH = """#!/bin/sh
echo '{"device": "made up"}'
echo '{"shape": "peak", "op": "product", "seconds": 0.001, "flops": 8e11, "bytes": 1}'
echo '{"shape": "peak", "op": "copy", "seconds": 0.001, "flops": 0, "bytes": 4e9}'
echo '{"shape": "'$1'", "op": "attention bf16", "seconds": 0.002, "flops": 8e11, "bytes": 1}'
echo '{"shape": "'$1'", "op": "swiglu", "seconds": 0.002, "flops": 0, "bytes": 6e9}'
"""
EAGLET = """#!/bin/sh
case "$*" in
*--help*) echo "--device cuda; shapes: smollm2, reference" ;;
*) echo '{"tokens_per_second": 123}' ;;
esac
"""
SANITIZER = """#!/bin/sh
case "$*" in *racecheck*) sleep 3 ;; esac
"""


def run(*arguments, **environment):
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr


def make(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


def read(folder):
    with open(os.path.join(folder, "device.json"), encoding="utf-8") as file:
        return json.load(file)


def states(result):
    return {(part["part"], part["name"]): part["state"] for part in result["parts"]}


def without_a_device(place):
    code, words = run("--build", os.path.join(place, "nothing"))
    assert code == 77 and "without -DEAGLET_CUDA=ON" in words, words
    build = os.path.join(place, "none", "bin")
    os.makedirs(build)
    make(build, "cuda_device_tests", "#!/bin/sh\necho 'skipped: no CUDA device can be used: no driver' >&2\nexit 77\n")
    code, words = run("--build", os.path.dirname(build), "--out", os.path.join(place, "none-out"))
    assert code == 77 and "there is no CUDA device: no CUDA device can be used: no driver" in words, words
    assert not os.path.exists(os.path.join(place, "none-out"))
    eaglet = os.environ.get("EAGLET")
    if eaglet:  # this build's own, with CUDA or without
        code, words = run("--build", os.path.dirname(os.path.dirname(eaglet)), "--out", os.path.join(place, "own"), "golden")
        assert code in (0, 77), words
        assert code == 0 or words.startswith("skipped: "), words
    assert run("--help")[0] == 0
    for wrong in (["everything"], ["--fast"], ["--out"], ["--seconds", "few"]):
        assert run(*wrong)[0] == 2, wrong


def with_a_made_up_one(place):
    build, tools, out = (os.path.join(place, name) for name in ("build/bin", "tools", "out"))
    os.makedirs(build)
    os.makedirs(tools)
    make(build, "cuda_device_tests", TESTS)
    make(build, "cuda_device_bench", BENCH)
    make(build, "eaglet", EAGLET)
    make(tools, "compute-sanitizer", SANITIZER)
    common = ["--build", os.path.dirname(build), "--out", out, "--seconds", "1"]
    path = f"{tools}:{os.environ['PATH']}"

    code, words = run(*common, "golden", "kernels", PATH=path)
    assert code == 0 and words.endswith("passed: golden, kernels\n"), words
    result = read(out)
    assert set(states(result)) == {("golden", "tests"), ("kernels", "smollm2"), ("kernels", "llama8b"), ("kernels", "reference")}
    assert result["schema"] == 1 and result["device"] == "a made-up H200, 139.0 GiB"
    assert result["peak"] == {"bf16_flops_per_second": 8e14, "bytes_per_second": 4e12}, result["peak"]
    shares = {(row["shape"], row["op"]): (row["bound"], row["share"]) for row in result["kernels"]}
    assert shares[("llama8b", "attention bf16")] == ("product", 0.5) and shares[("smollm2", "swiglu")] == ("bandwidth", 0.75), shares
    with open(os.path.join(out, "calibration.json"), encoding="utf-8") as file:
        assert json.load(file) == {"device": "h200", "gemm_tflops": 800.0, "attention_share": 0.5}
    with open(os.path.join(out, "device.txt"), encoding="utf-8") as file:
        assert "50.0 % of product" in file.read()

    code, words = run(*common, PATH=path, FAKE_OPS_CODE="1")
    assert code == 1 and words.endswith("failed: ops tests, golden tests, sanitizer racecheck\n"), words
    result = read(out)
    assert result["failed_tests"] == ["Ops.Bad", "Ops.Bad"] and len(result["parts"]) == 11, result["parts"]
    of = states(result)
    assert of[("sanitizer", "memcheck")] == "passed" and of[("sanitizer", "racecheck")] == "failed", of
    assert of[("bench", "smollm2")] == "passed" and of[("bench", "llama8b")] == "skipped", of
    assert result["training"]["smollm2"] == {"tokens_per_second": 123}
    code, words = run(*common, "--total", "0", "ops", PATH=path)
    assert code == 0 and read(out)["parts"][0]["why"] == "no time is left of 0 s", words
    assert [p for p in result["parts"] if p["name"] == "racecheck"][0]["why"] == "longer than 1 s"


def main():
    with tempfile.TemporaryDirectory() as place:
        without_a_device(place)
        with_a_made_up_one(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
