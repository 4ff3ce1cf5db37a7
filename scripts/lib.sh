# shellcheck shell=bash disable=SC2034 # the variables are for the scripts that source this
# What the scripts share: places, talk with times, one step at a time. Sourced, never run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${EAGLET_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:?HOME is not set: give EAGLET_CACHE_DIR}/.cache}/eaglet}
llama_revision=0c1e570
llama_build=$llama_revision.2 # its place in the cache (cmake/FindLlamaCpp.cmake too): counted up when it is built in another way
source_package=llama-cpp-python source_version=0.3.36
source_archive=$cache/llama_cpp_python-0.3.36.tar.gz
source_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
model=$cache/smollm2-135m-instruct-q4_1.gguf
logs=$cache/logs
started=$SECONDS

# say TEXT: a line of talk, with the time since the script began.
say() { printf '[%s] %s\n' "$(clock $((SECONDS - started)))" "$*" >&2; }
clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# die WHAT [DO]: the last words of a script.
die() {
  printf 'error: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf '  do:    %s\n' "$2" >&2
  exit 1
}

# run_step NAME LOG COMMAND...: runs a long command with its output in a log and shows that it lives: on a terminal
# one rewritten line, elsewhere a line every ten seconds, each with the command's own last words. A failed command's
# last lines are shown, and where the whole log is.
run_step() {
  local name=$1 log=$2 begun=$SECONDS shown=$SECONDS last child status=0 live=no
  shift 2
  [ -t 2 ] && [ "${TERM:-dumb}" != dumb ] && [ -z "${CI:-}" ] && live=yes
  say "$name"
  mkdir -p "$(dirname "$log")"
  set -m # a process group of its own, so that Ctrl-C can end the command with all its children
  "$@" >"$log" 2>&1 </dev/null &
  child=$!
  set +m
  trap 'kill -- "-$child" 2>/dev/null; wait "$child" 2>/dev/null; exit 130' INT TERM
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.5
    last=$(tail -c 300 "$log" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c 1-90) || true
    if [ $live = yes ]; then
      printf '\r  %s  %s\033[K' "$(clock $((SECONDS - begun)))" "$last" >&2
    elif [ $((SECONDS - shown)) -ge 10 ]; then
      printf '  %s  %s\n' "$(clock $((SECONDS - begun)))" "$last" >&2
      shown=$SECONDS
    fi
  done
  wait "$child" || status=$?
  trap - INT TERM
  [ $live = no ] || printf '\r\033[K' >&2
  if [ $status -ne 0 ]; then
    tail -n 30 "$log" >&2
    die "$name: failed with code $status" "read the lines above; the whole log is $log"
  fi
  say "$name: done in $((SECONDS - begun)) s"
}

# jobs_for MB: parallel compile jobs that fit the free memory at MB megabytes each. EAGLET_JOBS wins.
jobs_for() {
  local cores free_mb fit
  if [ -n "${EAGLET_JOBS:-}" ]; then
    echo "$EAGLET_JOBS"
    return
  fi
  cores=$(nproc)
  free_mb=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024))
  fit=$((free_mb / $1))
  [ "$fit" -ge 1 ] || fit=1
  echo $((fit < cores ? fit : cores))
}

# check_sha256 FILE SUM
check_sha256() {
  local found
  found=$(sha256sum "$1" | cut -d ' ' -f 1)
  [ "$found" = "$2" ] || die "$1 is not the file we know: sha256 is $found, not $2" "delete it and run this again"
}

# fetch PACKAGE VERSION FILE SHA256 PIP-OPTIONS...: one file of a Python package, checked before it gets its name.
fetch() {
  local package=$1 version=$2 file=$3 sum=$4 place=$cache/download.tmp
  shift 4
  rm -rf "$place" && mkdir -p "$place"
  run_step "download: $package $version" "$logs/$package.log" \
    python3 -m pip download --no-deps "$@" -d "$place" "$package==$version"
  [ -f "$place/$(basename "$file")" ] || die "pip did not bring $(basename "$file")" "look into $logs/$package.log"
  check_sha256 "$place/$(basename "$file")" "$sum"
  mv "$place/$(basename "$file")" "$file"
  rmdir "$place"
}

# unpack_llama TREE: the pinned source of llama.cpp, fetched when it is not there.
unpack_llama() {
  local tree=$1
  [ ! -f "$tree/CMakeLists.txt" ] || return 0
  # Without --no-binary for this one package pip would take a wheel; for all of them it would also compile the tools.
  [ -f "$source_archive" ] ||
    fetch $source_package $source_version "$source_archive" $source_sha256 --no-binary $source_package
  rm -rf "$tree.tmp" && mkdir -p "$tree.tmp"
  tar -xzf "$source_archive" -C "$tree.tmp" --strip-components=3 \
    "llama_cpp_python-$source_version/vendor/llama.cpp"
  rm -rf "$tree" "$tree.tmp/.git"
  mv "$tree.tmp" "$tree"
}

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
