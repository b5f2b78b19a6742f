"""GGUF files as folders: a config in the words of transformers, its checkpoint, and a tokenizer, of one file.

Nothing is read but the header; blocks of codes become weights as `quantised` makes them of other files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, view_memory
from lamella.base.codes import Codes
from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import ElementType
from lamella.base.errors import Malformed
from lamella.base.gguf import GgufFile, GgufTensor, read_gguf
from lamella.base.limits import DEFAULT, LARGEST, Limits
from lamella.base.paths import Mapped, map_bytes
from lamella.bridge.hf_to_module.checkpoint import Checkpoint, CheckpointTensor, CodedTensor, wrong_file
from lamella.bridge.hf_to_module.gguf.architectures import (
    GgufArchitecture,
    config_of,
    experts_of,
    find_gguf_architecture,
    is_norm,
    name_of,
    row_order,
)
from lamella.bridge.hf_to_module.gguf.blocks import KINDS, decode_blocks
from lamella.bridge.hf_to_module.gguf.tokenizer import tokenizer_of

__all__ = ["ENDING", "OpenedGguf", "open_gguf", "open_gguf_tokenizer"]
ENDING = ".gguf"
_PLAIN: Mapping[str, ElementType] = MappingProxyType(
    {
        **{"F32": types.F32, "F16": types.F16, "BF16": types.BF16, "F64": types.F64},
        **{"I8": types.I8, "I16": types.I16, "I32": types.I32, "I64": types.I64},
    }
)
ROTATION = "rope_freqs.weight"


class OpenedGguf(NamedTuple):
    """What a file holds, as a folder has it."""

    config: dict[str, object]
    checkpoint: Checkpoint


def open_gguf(path: Path, limits: Limits = DEFAULT) -> OpenedGguf:
    """A file as a folder; LamellaError says what is wrong with it."""
    mapped, found = _open(path, limits)
    try:
        architecture = find_gguf_architecture(found.items)
        names = list(found.tensors)
        factors = _numbers(mapped, found.tensors[ROTATION]) if ROTATION in found.tensors else None
        config = config_of(architecture, found.items, names, factors)
        tensors = _Tensors(mapped, architecture, config)
        for item in found.tensors.values():
            if item.name != ROTATION:
                tensors.add(item)
    except Malformed as problem:
        raise LamellaError([wrong_file(path, str(problem)[:400])]) from None
    entries, coded = MappingProxyType(tensors.entries), MappingProxyType(tensors.coded)
    return OpenedGguf(config, Checkpoint(entries, {path.name: mapped}, coded))


def open_gguf_tokenizer(path: Path, limits: Limits = DEFAULT) -> dict[str, object]:
    """The tokenizer of a file in the words of a tokenizer.json."""
    try:
        return tokenizer_of(_open(path, limits)[1].items)
    except Malformed as problem:
        raise LamellaError([wrong_file(path, str(problem)[:400])]) from None


def _open(path: Path, limits: Limits) -> tuple[Mapped, GgufFile]:
    # A mapped file takes no memory, however large it is.
    mapped = map_bytes(path, replace(limits, max_data_bytes=LARGEST))
    try:
        return mapped, read_gguf(mapped.data)
    except Malformed as problem:
        raise LamellaError([wrong_file(path, str(problem)[:400])]) from None


def _numbers(mapped: Mapped, item: GgufTensor) -> Array:
    """The numbers of a tensor of floating ones."""
    if item.type.name not in _PLAIN:
        raise Malformed(f"'{item.name[:80]}' holds blocks of {item.type.name}, not floating numbers")
    image = np.frombuffer(mapped.data[item.offset : item.offset + item.length], np.uint8)
    return view_memory(image, _PLAIN[item.type.name], item.shape).astype(np.float32)


class _Tensors:
    """The tensors of a file under the names of transformers."""

    def __init__(self, mapped: Mapped, architecture: GgufArchitecture, config: Mapping[str, object]) -> None:
        self.mapped = mapped
        self.architecture = architecture
        self.entries: dict[str, CheckpointTensor] = {}
        self.coded: dict[str, CodedTensor] = {}
        queries, keys = config.get("num_attention_heads"), config.get("num_key_value_heads")
        self.heads = {"q": queries if isinstance(queries, int) else 0}
        self.heads["k"] = keys if isinstance(keys, int) else self.heads["q"]

    def add(self, item: GgufTensor) -> None:
        """A tensor, or the matrices of the experts that it holds."""
        for name, part in self._named(item):
            entry = self._entry(name, part)
            order = row_order(self.architecture, item.name, self.heads, part.shape[0] if part.shape else 0)
            less = self.architecture.adds_one and is_norm(item.name)
            self.entries[name] = entry
            if part.type.name in KINDS or order is not None or less:
                form = KINDS[part.type.name].form if part.type.name in KINDS else None
                self.entries[name] = replace(entry, dtype=types.F32)
                self.coded[name] = CodedTensor(
                    self.entries[name], (entry,), form, partial(self._load, part, order, less), item.type.name
                )

    def _named(self, item: GgufTensor) -> Iterator[tuple[str, GgufTensor]]:
        name = name_of(self.architecture, item.name)
        if name is not None:
            yield name, item
            return
        parts = experts_of(self.architecture, item.name, item.shape[0] if len(item.shape) == 3 else 0)
        if not parts:
            # It keeps its name, under which the plan of the weights says that nothing reads it.
            yield item.name, item
            return
        size = item.length // len(parts)
        for number, part in enumerate(parts):
            inner = item._replace(shape=item.shape[1:], offset=item.offset + number * size, length=size)
            yield part, inner

    def _entry(self, name: str, item: GgufTensor) -> CheckpointTensor:
        element = _PLAIN.get(item.type.name, types.F32)
        return CheckpointTensor(name, element, item.shape, self.mapped.path.name, item.offset, item.length)

    def _load(self, item: GgufTensor, order: Array | None, less: bool) -> Codes | Array:
        self.mapped.check_whole()
        if item.type.name not in KINDS:
            numbers = _numbers(self.mapped, item)
            numbers = numbers - np.float32(1) if less else numbers
            return numbers if order is None else numbers[order]
        image = np.frombuffer(self.mapped.data[item.offset : item.offset + item.length], np.uint8)
        found = decode_blocks(KINDS[item.type.name], image.reshape(-1, item.type.bytes), item.shape)
        return found if order is None else found.rows(order)
