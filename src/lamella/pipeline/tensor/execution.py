"""Kernels for the API: load, save."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from lamella.backend.cpu.compile import PARTS
from lamella.backend.cpu.jit import open_cache
from lamella.base.diagnostic import LamellaError, errors, sort_findings
from lamella.base.errors import InputError
from lamella.base.gc import gc_paused
from lamella.base.limits import Limits
from lamella.base.package import fingerprint
from lamella.base.paths import read_text, shown
from lamella.base.source import Source
from lamella.base.writer import write_text
from lamella.lang.tensor import parse, write
from lamella.pipeline.options import Options
from lamella.pipeline.tensor.program import KernelFile

if TYPE_CHECKING:
    from lamella.pipeline.tensor.stages import Lowered

CHECKED = b"right"
"""What is kept of a text without errors."""


def load(path: Path, options: Options) -> KernelFile:
    """Read and check the kernels of a file; LamellaError holds all findings when something is wrong."""
    return read_checked(path, options.limits)


def save(model: KernelFile | Lowered, path: Path) -> None:
    """Write kernels: their canonical text, or what they were lowered to."""
    if not isinstance(model, KernelFile):
        write_text(path, model.text)
        return
    if path.suffix != ".tensor":
        raise InputError(f"'{path.name}' is no ending for kernels", hint="kernels are written as .tensor")
    write_text(path, write(model.program))


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
    return hashlib.sha256(CHECKED + f"{fingerprint(*PARTS)}\0{text}".encode()).digest()
