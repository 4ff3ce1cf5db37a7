#!/usr/bin/env bash
# The same training steps in eaglet and in speculators 0.9.0, alternating in one run on this machine; prints the ratio.
# Usage: bench/peers/ratio.sh [--rounds N] [--environment FOLDER] [SHAPE...]      shapes: smollm2, smollm2-all (default: both)
#
#   --environment   a Python environment that has speculators 0.9.0 already; without it one is made and thrown away (6.5 GB)
#
# Needs a built tree (scripts/setup). Each round runs speculators, then eaglet; the best round of each counts.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
eaglet=$root/build/release/bin/eaglet
rounds=3 environment='' shapes=()
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=$2 && shift ;;
    --environment) environment=$2 && shift ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) echo "error: unknown option $1" >&2 && exit 64 ;;
    *) shapes+=("$1") ;;
  esac
  shift
done
[ ${#shapes[@]} -gt 0 ] || shapes=(smollm2 smollm2-all)
[ -x "$eaglet" ] || { echo "error: there is no $eaglet; run scripts/setup first" >&2 && exit 66; }
if [ -z "$environment" ]; then
  environment=$(mktemp -d)
  trap 'rm -rf "$environment"' EXIT
  echo "installing speculators 0.9.0 into $environment (minutes)" >&2
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet speculators==0.9.0 torch
fi

for shape in "${shapes[@]}"; do
  case $shape in
    smollm2) unsupervised=0.4 ;;
    smollm2-all) unsupervised=0 ;;
    *) echo "error: no peer settings for the shape $shape" >&2 && exit 64 ;;
  esac
  results=$(mktemp)
  for round in $(seq "$rounds"); do
    echo "$shape, round $round of $rounds: speculators" >&2
    "$environment/bin/python" "$root/bench/peers/speculators_step.py" --unsupervised "$unsupervised" | tail -n 1 | sed 's/^/peer /' >>"$results"
    echo "$shape, round $round of $rounds: eaglet" >&2
    "$eaglet" bench train --shape "$shape" --json 2>/dev/null | sed 's/^/ours /' >>"$results"
  done
  python3 - "$shape" "$results" <<'EOF'
import json, sys
rows = {"peer": [], "ours": []}
for line in open(sys.argv[2], encoding="utf-8"):
    who, text = line.split(" ", 1)
    rows[who].append(json.loads(text))
best = {who: max(runs, key=lambda run: run["tokens_per_second"]) for who, runs in rows.items()}
memory = {who: max(run["peak_rss_bytes"] for run in runs) for who, runs in rows.items()}
ours, peer = best["ours"], best["peer"]
print(f"{sys.argv[1]}: eaglet {ours['tokens_per_second']:.0f} tokens/s, {memory['ours'] / 1e9:.2f} GB; "
      f"speculators {peer['tokens_per_second']:.0f} tokens/s, {memory['peer'] / 1e9:.2f} GB; "
      f"ratio {ours['tokens_per_second'] / peer['tokens_per_second']:.2f}, memory 1/{memory['peer'] / memory['ours']:.1f}; "
      f"{100 * ours['share_of_peak']:.0f} % of the GEMM peak ({ours['gemm_peak_gflops']:.0f} GFLOP/s)")
EOF
  rm -f "$results"
done
