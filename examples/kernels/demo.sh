#!/usr/bin/env bash
# Kernels are proved, printed stage by stage down to the code of this processor, and made from a graph.
# usage: demo.sh [OUTPUT_FOLDER]
set -euo pipefail
here=$(dirname "$0")
out=${1:-build/demo}
mkdir -p "$out"

step() {
  printf '\n$ lamella %s\n' "$*"
  lamella "$@"
}

step check "$here/fibonacci.tensor"
step lower "$here/rows.tensor" --to asm -o "$out/stages"
step lower "$here/../operator/window_attention.sknd" --to tensor -o "$out/kernels"
step run "$here/../operator/window_attention.sknd" --seed 1 --backend cpu
printf '\nthe kernels after every pass are in %s/stages, those of the model in %s/kernels\n' "$out" "$out"
