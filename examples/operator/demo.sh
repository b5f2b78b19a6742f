#!/usr/bin/env bash
# A model in SkriptND is checked, shown, run and lowered; a wrong call is refused with the operator's own words.
# usage: demo.sh [OUTPUT_FOLDER]
set -euo pipefail
here=$(dirname "$0")
out=${1:-build/demo}
model=$here/window_attention.sknd
mkdir -p "$out"

step() {
  printf '\n$ lamella %s\n' "$*"
  lamella "$@"
}

step check "$model"
step show "$model"
step run "$model" --seed 1 --output "$out/model"
step lower "$model" --to sknd -o "$out/flat"
if step check "$model" --set length=18; then
  echo "a sequence of 18 cannot be cut into windows of 4, and was not refused" >&2
  exit 1
fi
printf '\nthe last call was wrong on purpose; the flat model is in %s/flat\n' "$out"
