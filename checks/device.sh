#!/usr/bin/env bash
# Everything that wants a real CUDA device, in under 8 minutes and without a network. Usage: checks/device.sh [OPTION...] [PART...]
#
#   PART   ops        every op against its reference, on the device
#          golden     the draft's step against the golden files, as far as this build has it
#          sanitizer  compute-sanitizer: memcheck, racecheck, synccheck on small shapes
#          kernels    time of each kernel at smollm2's, llama8b's and the reference shape, as a share of the product's rate or of
#                     the bandwidth that are measured first
#          bench      eaglet bench train, where this build trains on a device
#          (none: all of them, in this order)
#   --build DIR   a build folder that was brought along (default: build/release beside this script's folder)
#   --compile     build there first (cmake, nvcc or scripts/cuda-compiler's, and this tree's sources)
#   --out DIR     where device.json, device.txt, calibration.json and the programs' words go (default: device-results here)
#   --seconds S   most of one program (default: 120)
#   --total S     most of all of them; what has no time left is skipped and said to be (default: 460)
#
# Exit code: 0 all that ran passed; 1 something failed, named on the last line; 2 wrong use; 77 there is no CUDA device, or the build
# folder was made without CUDA. device.json and device.txt are written in the first two cases. A run that is stopped leaves what it has.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/release out=$PWD/device-results compile=no most=120 total=460 parts=()
known=(ops golden sanitizer kernels bench)

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; }
wrong() {
  echo "error: $1 (checks/device.sh --help)" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
  -h | --help) usage && exit 0 ;;
  --compile) compile=yes ;;
  --build | --out | --seconds | --total)
    [ $# -gt 1 ] || wrong "$1 wants a value"
    case $1 in --build) build=$2 ;; --out) out=$2 ;; --seconds) most=$2 ;; *) total=$2 ;; esac
    shift
    ;;
  -*) wrong "no such option: $1" ;;
  *)
    [[ " ${known[*]} " == *" $1 "* ]] || wrong "no such part: $1; there are ${known[*]}"
    parts+=("$1")
    ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=("${known[@]}")
[[ $most =~ ^[0-9]+$ && $total =~ ^[0-9]+$ ]] || wrong "--seconds and --total want whole numbers"

if [ $compile = yes ]; then
  nvcc=$("$root/scripts/cuda-compiler") || exit 1
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DEAGLET_UNITY=ON -DEAGLET_CUDA=ON -DEAGLET_NVCC="$nvcc" || exit 1
  cmake --build "$build" --target cuda_device_tests cuda_device_bench eaglet || exit 1
fi
tests=$build/bin/cuda_device_tests bench=$build/bin/cuda_device_bench eaglet=$build/bin/eaglet
if [ ! -x "$tests" ]; then
  echo "skipped: $tests is not there: the build folder was made without -DEAGLET_CUDA=ON (--build names another, --compile makes one)"
  exit 77
fi
if ! device=$("$tests" --gtest_filter=None 2>&1 | grep -a '^device: '); then
  echo "skipped: there is no CUDA device: $("$tests" --gtest_filter=None 2>&1 | grep -a '^skipped: ' | cut -c 10- | head -n 1)"
  exit 77
fi
device=${device#device: }
mkdir -p "$out" || exit 1
rm -f "$out"/*.log "$out"/*.jsonl "$out"/gtest-*.json "$out"/facts.tsv
started=$(date +%s)
# One line a fact for the report: part, name, state, seconds, words.
fact() { printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$out/facts.tsv"; }

# attempt PART NAME COMMAND...: its words go to PART-NAME.log, its state to the report.
attempt() {
  local part=$1 name=$2 log begin rc state left=$((started + total - $(date +%s)))
  shift 2
  if [ $left -le 0 ]; then
    fact "$part" "$name" skipped 0 "no time is left of $total s"
    return 1
  fi
  [ $left -le "$most" ] || left=$most
  log=$out/$part-${name//[^a-z0-9_]/_}.log
  echo "$(date +%T) $part: $name"
  begin=$(date +%s.%N)
  timeout -k 5 "$left" "$@" >"$log" 2>&1 </dev/null
  rc=$?
  case $rc in 0) state=passed ;; 77) state=skipped ;; 124 | 137) state="failed: longer than $left s" ;; *) state="failed: exit code $rc" ;; esac
  fact "$part" "$name" "$state" "$(echo "$(date +%s.%N) $begin" | awk '{printf "%.2f", $1 - $2}')" "$(tail -n 1 "$log" | tr '\t' ' ')"
  [ "$rc" = 0 ]
}

run_ops() { attempt ops tests "$tests" --gtest_filter='-*Golden*' --gtest_output="json:$out/gtest-ops.json"; }

run_golden() {
  if "$tests" --gtest_filter='*Golden*' --gtest_list_tests 2>/dev/null | grep -q '^  '; then
    attempt golden tests "$tests" --gtest_filter='*Golden*' --gtest_output="json:$out/gtest-golden.json"
  else
    fact golden tests skipped 0 "this build's device tests have no golden files"
  fi
}

run_sanitizer() {
  local sanitizer tool
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
  if [ -z "$sanitizer" ]; then
    fact sanitizer all skipped 0 "compute-sanitizer is not on this machine"
    return
  fi
  for tool in memcheck racecheck synccheck; do
    attempt sanitizer $tool "$sanitizer" --tool $tool --error-exitcode 9 "$tests" --gtest_filter='-*Golden*:StepOnDevice.*:TrainOnDevice.*'
  done
}

run_kernels() {
  if [ ! -x "$bench" ]; then
    fact kernels all skipped 0 "$bench is not there"
    return
  fi
  attempt kernels smollm2 "$bench" smollm2
  attempt kernels llama8b "$bench" llama8b
  attempt kernels reference "$bench" reference
  cat "$out"/kernels-*.log 2>/dev/null | grep -a '^{' >"$out/kernels.jsonl"
}

run_bench() {
  if ! "$eaglet" bench train --help 2>/dev/null | grep -q -- --device; then
    fact bench all skipped 0 "this build does not train on a device"
    return
  fi
  local shape
  for shape in smollm2 llama8b reference; do
    if "$eaglet" bench train --help 2>/dev/null | grep -q "$shape"; then
      attempt bench $shape "$eaglet" bench train --device cuda --shape $shape --json
    else
      fact bench $shape skipped 0 "eaglet bench train does not know this shape"
    fi
  done
}

report() { python3 "$root/checks/device_report.py" "$out" "$device" "$started"; }
trap 'report >/dev/null; exit 1' INT TERM
echo "device: $device"
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader >"$out/smi.log" 2>/dev/null
for part in "${parts[@]}"; do "run_$part"; done
report
