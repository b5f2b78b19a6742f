#!/usr/bin/env bash
# The main job of what exists: one NEM program is checked, run, simulated and bound.
# usage: demo.sh [OUTPUT_FOLDER]
set -euo pipefail
here=$(dirname "$0")
out=${1:-build/demo}
program=$here/conv_relu.nem
mkdir -p "$out"

step() {
  printf '\n$ lamella %s\n' "$*"
  lamella "$@"
}

step check "$program"
step run "$program" --seed 1 --output "$out/run"
step sim "$program" --trace "$out/trace.json" --html "$out/timeline.html"
step bind "$program" -o "$out/conv_relu.stcb"
step run "$out/conv_relu.stcb" --seed 1 --output "$out/run-stcb"

for file in "$out"/run/*.npy; do
  cmp "$file" "$out/run-stcb/$(basename "$file")"
done
printf '\nthe program and its bound stream gave the same bytes; see %s/timeline.html\n' "$out"
