#!/usr/bin/env bash
# Hidden states of a target by eaglet's own engine, by libllama and by transformers, in turn in one run; prints the ratios.
# Usage: bench/peers/extract_ratio.sh [--rounds N] [--environment FOLDER] --model TARGET.gguf
#
#   --environment   a Python environment that has torch, transformers and gguf; without it one is made and thrown away
#
# Needs a built tree (scripts/setup). 32 documents of 256 random tokens; the best round of each counts. eaglet and libllama are
# timed by `eaglet extract`, the writing of the store included; transformers writes nothing.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
eaglet=$root/build/release/bin/eaglet
rounds=3 environment='' model=''
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=$2 && shift ;;
    --environment) environment=$2 && shift ;;
    --model) model=$2 && shift ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "error: unknown option $1" >&2 && exit 64 ;;
  esac
  shift
done
[ -n "$model" ] || { echo "error: --model is needed" >&2 && exit 64; }
[ -x "$eaglet" ] || { echo "error: there is no $eaglet; run scripts/setup first" >&2 && exit 66; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$environment" ]; then
  environment=$work/environment
  echo "installing torch, transformers and gguf into $environment (minutes)" >&2
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet torch transformers accelerate gguf
fi
python3 - >"$work/documents.jsonl" <<'EOF'
import json, random
rng = random.Random(1)
for i in range(32):
    print(json.dumps({"id": f"d{i}", "input_ids": [rng.randrange(3, 30000) for _ in range(256)], "loss_mask": [0] * 64 + [1] * 192}))
EOF
states() { # name, flags
  rm -rf "$work/states"
  "$eaglet" extract --json --progress none --model "$model" --conversations "$work/documents.jsonl" --output-dir "$work/states" "${@:2}" |
    tr -d '\n' | sed "s/^/$1 /;s/$/\n/" >>"$work/results"
}
for round in $(seq "$rounds"); do
  echo "round $round of $rounds: transformers, libllama (dequantised, and the file as it is), native in fp32, native in bf16" >&2
  "$environment/bin/python" "$root/bench/peers/transformers_states.py" --model "$model" 2>/dev/null | tail -n 1 | sed 's/^/transformers /' >>"$work/results"
  states libllama --engine llama
  states libllama_stored --engine llama --weights stored
  states native_f32 --engine native --compute-type f32
  states native_bf16 --engine native --compute-type bf16
done
python3 - "$work/results" <<'EOF'
import json, sys
best = {}
for line in open(sys.argv[1], encoding="utf-8"):
    who, text = line.split(" ", 1)
    best[who] = max(best.get(who, 0), json.loads(text)["tokens_per_second"])
for who, rate in best.items():
    print(f"{who:13s} {rate:6.0f} tokens/s")
print(f"native fp32 / transformers fp32 {best['native_f32'] / best['transformers']:.2f}, native fp32 / libllama "
      f"{best['native_f32'] / best['libllama']:.2f}, native bf16 / libllama {best['native_bf16'] / best['libllama']:.2f}, native bf16 / libllama on the file as it is "
      f"{best['native_bf16'] / best['libllama_stored']:.2f}, "
      f"native bf16 / transformers {best['native_bf16'] / best['transformers']:.2f}")
EOF
