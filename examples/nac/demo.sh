#!/usr/bin/env bash
# A network as one binary: written, looked at, run by its memory schedule, quantised, and compared with itself.
# usage: demo.sh [OUTPUT_FOLDER]
set -euo pipefail
here=$(dirname "$0")
out=${1:-build/demo}/nac
mkdir -p "$out"

step() {
  printf '\n$ lamella %s\n' "$*"
  lamella "$@"
}

step convert "$here/../resnet18" "$out/resnet18.nac" --set size=64 2>/dev/null
step check "$out/resnet18.nac"
step show "$out/resnet18.nac" --picture "$out/resnet18.svg" | head -14
step run "$out/resnet18.nac" --seed 1
step convert "$out/resnet18.nac" "$out/small.nac" --quantize int8_channel | tail -3
step diff "$out/resnet18.nac" "$out/small.nac" --tolerance 0.05 | tail -3
printf '\nthe files and a picture of the bytes are in %s\n' "$out"
