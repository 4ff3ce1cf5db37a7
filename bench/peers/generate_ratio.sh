#!/usr/bin/env bash
# Answers by eaglet's own engine, by llama-server and by vLLM, in turn in one run; prints the ratios.
# Usage: bench/peers/generate_ratio.sh [--rounds N] [--prompts N] [--vllm URL] --model TARGET.gguf --llama-server PROGRAM
#
#   --vllm   the address of a vLLM server that is up with the same model
#
# Needs a built tree (scripts/setup; scripts/setup --llama-server builds the pinned server). Greedy answers of 128 tokens at most to the
# sample prompts, loading left out; the best round of each counts. Servers are asked by `eaglet generate --server`.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
eaglet=$root/build/release/bin/eaglet
rounds=2 prompts=128 vllm='' model='' server=''
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=$2 && shift ;;
    --prompts) prompts=$2 && shift ;;
    --vllm) vllm=$2 && shift ;;
    --model) model=$2 && shift ;;
    --llama-server) server=$2 && shift ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "error: unknown option $1" >&2 && exit 64 ;;
  esac
  shift
done
if [ -z "$model" ] || [ -z "$server" ]; then
  echo "error: --model and --llama-server are needed" >&2 && exit 64
fi
[ -x "$eaglet" ] || { echo "error: there is no $eaglet; run scripts/setup first" >&2 && exit 66; }
work=$(mktemp -d) port=$((20000 + RANDOM % 20000)) child=''
trap '[ -z "$child" ] || kill "$child"; rm -rf "$work"' EXIT
answers() { # name, flags
  rm -f "$work"/c.*
  "$eaglet" generate --json --progress none --prompts "$root/recipes/sample-prompts.jsonl" --max-prompts "$prompts" --max-tokens 128 \
    --output "$work/c.jsonl" "${@:2}" 2>>"$work/log" | tr -d '\n' | sed "s/^/$1 /;s/$/\n/" >>"$work/results"
}
for round in $(seq "$rounds"); do
  echo "round $round of $rounds: llama-server with 16 slots, native with 16 and 64 sequences${vllm:+, vLLM with 64}" >&2
  "$server" --model "$model" --parallel 16 --ctx-size 16384 --port "$port" >"$work/server.log" 2>&1 &
  child=$!
  answers llama-server_16 --server "http://127.0.0.1:$port" --concurrency 16 --wait-ready 120
  kill "$child"
  wait "$child" || true # ended by us
  child=''
  for parallel in 16 64; do
    answers "native_bf16_$parallel" --model "$model" --engine native --compute-type bf16 --parallel "$parallel"
    answers "native_f32_$parallel" --model "$model" --engine native --compute-type f32 --parallel "$parallel"
  done
  [ -z "$vllm" ] || answers vllm_64 --server "$vllm" --concurrency 64
done
python3 - "$work/results" <<'EOF'
import json, sys
best = {}
for line in open(sys.argv[1], encoding="utf-8"):
    who, text = line.split(" ", 1)
    best[who] = max(best.get(who, 0), json.loads(text)["tokens_per_second"])
for who, rate in best.items():
    print(f"{who:16s} {rate:6.0f} tokens/s")
for peer in ("llama-server_16", "vllm_64"):
    for kind in ("bf16", "f32"):
        ours = f"native_{kind}_{peer.rsplit('_', 1)[1]}"
        if peer in best:
            print(f"{ours} / {peer}: {best[ours] / best[peer]:.2f}")
EOF
