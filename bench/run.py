"""Measure the tools: ratios against named peers in the same run, and the targets beside them.

usage: python -m bench.run [--quick] [nem] [skriptnd] [start] [kernels] [module] [nac] [nacvm] [tokenizers] [lsp]

Without a name all of them are measured.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial

# One thread for everybody, set before a library reads it: ratios on a shared machine stay comparable.
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from bench import kernels, lsp, module, nac, nacvm, nem, skriptnd, start, tokenizers

QUICK = "--quick" in sys.argv[1:]
SECTIONS: dict[str, Callable[[], None]] = {
    "nem": nem.measure,
    "skriptnd": skriptnd.measure,
    "start": start.measure,
    "kernels": partial(kernels.measure, QUICK),
    "module": module.measure,
    "nac": nac.measure,
    "nacvm": nacvm.measure,
    "tokenizers": tokenizers.measure,
    "lsp": lsp.measure,
}

if __name__ == "__main__":
    print("CPU seconds on one thread, the fastest of a few rounds")
    for section in [name for name in sys.argv[1:] if name != "--quick"] or SECTIONS:
        SECTIONS[section]()
