"""Compiles hostile kernels in a process of little memory; what happened goes out as JSON.

`python -m tests.support.security.tensor_child GROUP`
"""

from __future__ import annotations

import json
import resource
import sys
import time

from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.jit import assemble, host_machine
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.source import Source
from lamella.kernels.target import find_target
from lamella.lang.tensor import parse
from tests.support.security.tensor_attacks import GROUPS

ADDRESSES = 3 << 30
WARM = "func @f(%A: memref<f32x4>) {\n%x = constant 1.0 : f32\naxpby.n %x, %A, %x, %A\n}\n"


def compile_text(text: str) -> list[Diagnostic]:
    """From text to machine code; what is wrong with it."""
    parsed = parse(Source("attack.tensor", text))
    found = errors(parsed.findings)
    if found:
        return found
    try:
        assemble(emit(parsed.program, find_target("cpu-avx512")).text, host_machine())
    except LamellaError as refused:
        return list(refused.findings)
    return []


def attempt(text: str) -> dict[str, object]:
    """One kernel: its codes, an exception that got out, its processor time, by how much memory grew."""
    start, before = time.process_time(), _memory()
    escaped, codes = "", []
    try:
        codes = sorted({item.code for item in compile_text(text)})
    except Exception as problem:  # noqa: BLE001
        escaped = repr(problem)[:300]
    seconds = time.process_time() - start
    return {"codes": codes, "escaped": escaped, "seconds": seconds, "mib": (_memory() - before) >> 10}


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(group: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    compile_text(WARM)
    found = {name: attempt(attack.make()) for name, attack in GROUPS[group].items()}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
