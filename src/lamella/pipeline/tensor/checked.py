"""Tensor-language files that are right, remembered from one process to the next."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lamella.backend.cpu.fingerprint import fingerprint
from lamella.backend.cpu.jit import open_cache
from lamella.base.diagnostic import LamellaError, errors, sort_findings
from lamella.base.gc import gc_paused
from lamella.base.limits import Limits
from lamella.base.paths import read_text, shown
from lamella.base.source import Source
from lamella.lang.tensor import parse
from lamella.pipeline.tensor.program import KernelFile

CHECKED = b"right"
"""What is kept of a text without errors."""


def read_checked(path: Path, limits: Limits) -> KernelFile:
    """Read and check a file; LamellaError holds its findings when there are errors among them.

    A text that was found right before, by this package as it is now, is not checked again.
    """
    source = Source(shown(path), read_text(path, limits))
    with gc_paused():
        program, findings = parse(source, limits)
    if errors(findings):
        raise LamellaError(errors(findings))
    store = open_cache()
    key = _key(source.text)
    found = KernelFile(source, program)
    if store is not None and not findings and store.get(key) == CHECKED:
        return found
    found = KernelFile(source, program, tuple(sort_findings([*findings, *found.findings])))
    if errors(found.findings):
        raise LamellaError(errors(found.findings))
    if store is not None and not findings:
        store.put(key, CHECKED)
    return found


def _key(text: str) -> bytes:
    return hashlib.sha256(CHECKED + f"{fingerprint()}\0{text}".encode()).digest()
