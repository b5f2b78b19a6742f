"""Measure the tools: ratios against named peers in the same run, and the targets beside them.

usage: python -m bench.run [nem] [skriptnd] [start]     all of them where none is named
"""

from __future__ import annotations

import os
import sys

# One thread for everybody, set before a library reads it: ratios on a shared machine stay comparable.
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from bench import nem, skriptnd, start

SECTIONS = {"nem": nem.measure, "skriptnd": skriptnd.measure, "start": start.measure}

if __name__ == "__main__":
    print("CPU seconds on one thread, the fastest of a few rounds")
    for section in sys.argv[1:] or SECTIONS:
        SECTIONS[section]()
