"""Serialisation of compiled GPU kernels: what is known of each beside its code, and the code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict
from typing import NamedTuple, TypeAlias

from lamella.backend.cpu.compiled import KernelSymbol, Pipeline, TensorMap
from lamella.backend.cpu.jit import pack_objects, unpack_objects

Code: TypeAlias = "bytes | Future[bytes]"
"""Code as the driver takes it, or PTX with a 0 behind it; or what a thread is about to make."""


def finished(code: Code) -> bytes:
    """The code, when it is there; InputError in the driver's words where it refuses the PTX."""
    return code if isinstance(code, bytes) else code.result()


class BuiltKernel(NamedTuple):
    """A kernel as the driver takes it: what is known of it, and its code."""

    entry: KernelSymbol
    content: Code


class BuiltProgram(NamedTuple):
    """The kernels of a program in their order, and the code of each symbol; the key under which it is kept."""

    entries: tuple[KernelSymbol, ...]
    contents: Mapping[str, Code]
    key: bytes | None


def encode_program(built: BuiltProgram) -> bytes:
    """Serialise a program: what is known of its kernels, and the code of each symbol."""
    symbols = list(built.contents)
    head = json.dumps([[asdict(item) for item in built.entries], symbols]).encode()
    return pack_objects([head, *(finished(built.contents[symbol]) for symbol in symbols)])


def decode_program(content: bytes, key: bytes | None = None) -> BuiltProgram:
    """Deserialise a program; it comes from a file whose digest was verified."""
    head, *contents = unpack_objects(content)
    entries, symbols = json.loads(head)
    return BuiltProgram(
        tuple(_entry(**item) for item in entries), dict(zip(symbols, contents, strict=True)), key
    )


def encode_kernel(kernel: BuiltKernel) -> bytes:
    """Serialise a kernel."""
    return pack_objects([json.dumps(asdict(kernel.entry)).encode(), finished(kernel.content)])


def decode_kernel(content: bytes) -> BuiltKernel:
    """Deserialise a kernel."""
    told, made = unpack_objects(content)
    return BuiltKernel(_entry(**json.loads(told)), made)


def _entry(
    name: str,
    symbol: str,
    local_bytes: int,
    pipeline: dict[str, object] | None,
    together: int,
    is_early: bool,
) -> KernelSymbol:
    found = None
    if pipeline is not None:
        listed = pipeline.pop("maps")
        maps = tuple(_map(**item) for item in listed) if isinstance(listed, list) else ()
        found = Pipeline(**pipeline, maps=maps)  # type: ignore[arg-type]
    return KernelSymbol(name, symbol, local_bytes, found, together, is_early)


def _map(slot: int, element: str, shape: list[int], stride: int, columns: int) -> TensorMap:
    return TensorMap(slot, element, (shape[0], shape[1]), stride, columns)
