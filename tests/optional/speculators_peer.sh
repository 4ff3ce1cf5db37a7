#!/usr/bin/env bash
# Installs speculators 0.9.0 from the Python index into a throw-away environment (minutes, 6.5 GB) and holds our export against it.
# Usage: tests/optional/speculators_peer.sh SAMPLE.gguf GOLDEN_REAL_FOLDER      (after scripts/test has built the tree)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -eq 2 ] || { sed -n 2,3p "$0" >&2; exit 64; }
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
python3 -m venv "$environment"
"$environment/bin/pip" install --quiet speculators==0.9.0 torch gguf accelerate
cmake --build "$root/build/release" --target eaglet draft_logits
"$environment/bin/python" "$root/tests/optional/speculators_peer.py" "$root/build/release/bin" "$1" "$2"
