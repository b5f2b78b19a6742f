"""The tensors of one or many `.safetensors` files of a folder, mapped and not read before they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array, view_memory
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import ElementType
from lamella.base.errors import Malformed
from lamella.base.limits import DEFAULT, LARGEST, Limits
from lamella.base.paths import Mapped, is_there, map_bytes_in
from lamella.base.safetensors import NO_ARRAY, read_index
from lamella.bridge.hf_to_module.documents import read_object, refuse_link, wrong_file

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ENDING = ".safetensors"
_MOST_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of a checkpoint: its type, its shape, and the bytes of a file in which it lies."""

    name: str
    dtype: ElementType
    shape: tuple[int, ...]
    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Tensors by name, and the mapped files in which they lie."""

    tensors: Mapping[str, Entry]
    files: Mapping[str, Mapped]

    def read(self, name: str) -> Array:
        """The array of a tensor as it is stored: a read-only view of its file."""
        entry = self.tensors[name]
        try:
            return view_memory(np.frombuffer(self.bytes_of(name), np.uint8), entry.dtype, entry.shape)
        except ValueError:  # a tensor without elements whose other extents NumPy cannot hold
            why = f"the entry of '{name[:200]}' {NO_ARRAY}"
            raise LamellaError([wrong_file(self.files[entry.file].path, why)]) from None

    def bytes_of(self, name: str) -> memoryview:
        """The bytes of a tensor as they lie in its file."""
        entry = self.tensors[name]
        mapped = self.files[entry.file]
        mapped.check_whole()
        return mapped.data[entry.offset : entry.offset + entry.length]

    def release(self, name: str) -> None:
        """Give back the memory that reading a tensor took; it can be read again."""
        entry = self.tensors[name]
        self.files[entry.file].release(entry.offset, entry.length)


class Opened(NamedTuple):
    """A checkpoint, and what is wrong with the rest of it."""

    checkpoint: Checkpoint
    findings: tuple[Diagnostic, ...] = ()


EMPTY = Checkpoint(MappingProxyType({}), MappingProxyType({}))


def open_checkpoint(folder: Path, limits: Limits = DEFAULT) -> Opened:
    """The checkpoint of a folder: `model.safetensors`, else the files that its index names.

    LamellaError: there is none, or none that could be used.
    """
    if is_there(folder / SINGLE):
        mapped, entries = _open_file(folder, SINGLE, limits)
        return Opened(Checkpoint({item.name: item for item in entries}, {SINGLE: mapped}))
    if is_there(folder / INDEX):
        return _open_shards(folder, limits)
    raise LamellaError([_no_checkpoint(folder)])


def _no_checkpoint(folder: Path) -> Diagnostic:
    pickled = [
        name for name in ("pytorch_model.bin", "pytorch_model.bin.index.json") if is_there(folder / name)
    ]
    if not pickled:
        return wrong_file(folder / SINGLE, f"there is neither this file nor {INDEX}")
    hint = "pickles can run any program: load it with transformers and save it again with save_pretrained"
    return wrong_file(folder / pickled[0], "weights are not read from pickles", hint)


def _open_file(folder: Path, name: str, limits: Limits) -> tuple[Mapped, list[Entry]]:
    refuse_link(folder, name)
    # A mapped file takes no memory, however large it is.
    mapped = map_bytes_in(folder, name, replace(limits, max_data_bytes=LARGEST))
    try:
        index = read_index(mapped.data)
    except Malformed as problem:
        raise LamellaError([wrong_file(mapped.path, str(problem)[:400])]) from None
    start = index.start
    return mapped, [
        Entry(item.name, item.element, item.shape, name, start + item.begin, item.end - item.begin)
        for item in index.entries
    ]


def _open_shards(folder: Path, limits: Limits) -> Opened:
    places = _weight_map(folder, limits)
    files: dict[str, Mapped] = {}
    tensors: dict[str, Entry] = {}
    findings: list[Diagnostic] = []
    for file in dict.fromkeys(places.values()):
        try:
            files[file], entries = _open_file(folder, file, limits)
        except LamellaError as problem:
            findings += problem.findings
            continue
        strangers = [item.name for item in entries if places.get(item.name) != file]
        findings += [_stranger(folder, file, name, places.get(name)) for name in strangers[:_MOST_FINDINGS]]
        tensors |= {item.name: item for item in entries if places.get(item.name) == file}
    lost = [name for name, file in places.items() if name not in tensors and file in files]
    findings += [_lost(folder, name, places[name]) for name in lost[:_MOST_FINDINGS]]
    return Opened(Checkpoint(tensors, files), tuple(findings))


def _stranger(folder: Path, file: str, name: str, place: str | None) -> Diagnostic:
    says = f"puts it into '{place}'" if place else "does not name it"
    return wrong_file(folder / file, f"it holds the tensor '{name[:200]}', and {INDEX} {says}")


def _lost(folder: Path, name: str, file: str) -> Diagnostic:
    return wrong_file(
        folder / INDEX, f"it puts the tensor '{name[:200]}' into '{file}', which does not hold it"
    )


def _weight_map(folder: Path, limits: Limits) -> dict[str, str]:
    """Which file holds which tensor, as the index says; every file is one of the folder itself."""
    path = folder / INDEX
    found = read_object(folder, INDEX, limits).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise LamellaError([wrong_file(path, "its weight_map is no object with the files of tensors")])
    places: dict[str, str] = {}
    for name, file in found.items():
        if not isinstance(file, str):
            raise LamellaError([wrong_file(path, f"the file of the tensor '{name[:200]}' is no text")])
        places[name] = file
    for file in dict.fromkeys(places.values()):
        if not _is_plain(file):
            hint = "all files of a checkpoint lie in one folder"
            raise LamellaError(
                [wrong_file(path, f"'{file[:200]}' is no safetensors file of this folder", hint)]
            )
    return places


def _is_plain(file: str) -> bool:
    """Whether a name can only be that of a file of the folder, and not of one elsewhere."""
    plain = file.isprintable() and not file.startswith(".") and not any(sign in file for sign in "/\\:")
    return plain and file.endswith(ENDING) and len(file) <= 255
