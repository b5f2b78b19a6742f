#!/usr/bin/env bash
# An architecture as a page of text: checked, written as a Hugging Face folder, continued token by token, lowered.
# usage: demo.sh [OUTPUT_FOLDER]
set -euo pipefail
here=$(dirname "$0")
out=${1:-build/demo}/llama
rm -rf "$out"
mkdir -p "$out"

step() {
  printf '\n$ lamella %s\n' "$*"
  lamella "$@"
}

step check "$here/page.module"
step convert "$here/page.module" "$out/tiny" --seed 1
step show "$out/tiny" | head -12
step generate "$out/tiny" --tokens 72,105 --max-tokens 6
step convert "$out/tiny" "$out/tiny.nac" --shape B=1,T=4 | tail -1
step run "$out/tiny.nac" --seed 1
printf '\nthe checkpoint and the binary are in %s\n' "$out"
