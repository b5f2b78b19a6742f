"""Checkpoints: tensors of one or many `.safetensors` files, opened without trust and without reading weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array, view_memory
from lamella.base.codes import CodeForm, Codes
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import ElementType
from lamella.base.errors import InputError, Malformed
from lamella.base.jsontext import parse_json
from lamella.base.limits import DEFAULT, LARGEST, Limits
from lamella.base.paths import Mapped, is_there, map_bytes_in, read_text_in, shown, stored_in
from lamella.base.safetensors import NO_ARRAY, read_index
from lamella.base.source import Source, Span
from lamella.lang.module.rules import mappings as rules

# --- the JSON files of a folder, read without trust: bounded, and with each key once ------------------------


def whole(path: Path) -> Span:
    """The place of findings about a file as a whole."""
    return Span(Source(shown(path), ""), 0, 0)


def wrong_file(path: Path, why: str, repair: str = "") -> Diagnostic:
    """The finding that a file of a folder cannot be taken."""
    return rules.FOLDER.at(whole(path), file=path.name, why=why, repair=repair)


def refuse_link(folder: Path, name: str) -> None:
    """Leave with a finding where a file of a folder is a link; those of a hub's cache stay inside of it."""
    if (folder / name).is_symlink() and stored_in(folder, name) == (folder, [name]):
        hint = "copy the folder with what its links lead to: cp -rL FOLDER COPY"
        raise LamellaError([wrong_file(folder / name, "it is a symbolic link, which is not followed", hint)])


def read_object(folder: Path, name: str, limits: Limits = DEFAULT) -> dict[str, object]:
    """The object that a JSON file of a folder holds; LamellaError says what is wrong with it."""
    path = folder / name
    refuse_link(folder, name)
    source = Source(shown(path), read_text_in(folder, name, limits))
    try:
        found = parse_json(source, limits)
    except InputError as problem:
        place = problem.findings[0].span
        finding = rules.FOLDER.at(place, file=path.name, why=problem.message, repair=problem.hint)
        raise LamellaError([finding]) from None
    if not isinstance(found, dict):
        raise LamellaError([wrong_file(path, "it is no JSON object")])
    return found


# --- checkpoints: tensors of one or many `.safetensors` files, mapped and not read --------------------------


SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ENDING = ".safetensors"
_MOST_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class CheckpointTensor:
    """A tensor of a checkpoint: its type, its shape, and the bytes of a file in which it lies."""

    name: str
    dtype: ElementType
    shape: tuple[int, ...]
    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class CodedTensor:
    """A weight that other tensors of a checkpoint hold as codes."""

    entry: CheckpointTensor
    """The weight as a tensor of numbers; its bytes are those of its first part."""
    parts: tuple[CheckpointTensor, ...]
    form: CodeForm | None
    """How kernels may read its codes; None where its numbers are all that can be had."""
    load: Callable[[], Codes | Array]
    kind: str = ""
    """What the format calls it."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Tensors by name, and the mapped files in which they lie."""

    tensors: Mapping[str, CheckpointTensor]
    files: Mapping[str, Mapped]
    coded: Mapping[str, CodedTensor] = field(default_factory=dict)
    """Those of the tensors that are stored as codes."""

    def read(self, name: str) -> Array:
        """The array of a tensor: a read-only view of its file, or the numbers that its codes stand for."""
        coded = self.coded.get(name)
        if coded is None:
            return self.view(self.tensors[name])
        found = coded.load()
        return found.decode() if isinstance(found, Codes) else found

    def view(self, entry: CheckpointTensor) -> Array:
        """The array of a tensor as it is stored: a read-only view of its file."""
        try:
            return view_memory(np.frombuffer(self._bytes(entry), np.uint8), entry.dtype, entry.shape)
        except ValueError:  # a tensor without elements whose other extents NumPy cannot hold
            why = f"the entry of '{entry.name[:200]}' {NO_ARRAY}"
            raise LamellaError([wrong_file(self.files[entry.file].path, why)]) from None

    def bytes_of(self, name: str) -> memoryview:
        """The bytes of a tensor as they lie in its file; of one that is stored as codes, those of its codes."""
        return self._bytes(self.tensors[name])

    def _bytes(self, entry: CheckpointTensor) -> memoryview:
        mapped = self.files[entry.file]
        mapped.check_whole()
        return mapped.data[entry.offset : entry.offset + entry.length]

    def release(self, name: str) -> None:
        """Give back the memory that reading a tensor took; it can be read again."""
        parts = self.coded[name].parts if name in self.coded else (self.tensors[name],)
        for entry in parts:
            self.files[entry.file].release(entry.offset, entry.length)


class OpenedCheckpoint(NamedTuple):
    """A checkpoint, and what is wrong with the rest of it."""

    checkpoint: Checkpoint
    findings: tuple[Diagnostic, ...] = ()


EMPTY = Checkpoint(MappingProxyType({}), MappingProxyType({}))


def open_checkpoint(folder: Path, limits: Limits = DEFAULT) -> OpenedCheckpoint:
    """The checkpoint of a folder: `model.safetensors`, else the files that its index names.

    LamellaError: there is none, or none that could be used.
    """
    if is_there(folder / SINGLE):
        mapped, entries = _open_file(folder, SINGLE, limits)
        return OpenedCheckpoint(Checkpoint({item.name: item for item in entries}, {SINGLE: mapped}))
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


def _open_file(folder: Path, name: str, limits: Limits) -> tuple[Mapped, list[CheckpointTensor]]:
    refuse_link(folder, name)
    # A mapped file takes no memory, however large it is.
    mapped = map_bytes_in(folder, name, replace(limits, max_data_bytes=LARGEST))
    try:
        index = read_index(mapped.data)
    except Malformed as problem:
        raise LamellaError([wrong_file(mapped.path, str(problem)[:400])]) from None
    start = index.start
    return mapped, [
        CheckpointTensor(item.name, item.element, item.shape, name, start + item.begin, item.end - item.begin)
        for item in index.entries
    ]


def _open_shards(folder: Path, limits: Limits) -> OpenedCheckpoint:
    places = _weight_map(folder, limits)
    files: dict[str, Mapped] = {}
    tensors: dict[str, CheckpointTensor] = {}
    findings: list[Diagnostic] = []
    names = list(dict.fromkeys(places.values()))
    for number, file in enumerate(names):
        if number - len(files) == _MOST_FINDINGS:
            findings.append(_unopened(folder, len(names) - number))
            break
        try:
            files[file], entries = _open_file(folder, file, limits)
        except LamellaError as problem:
            findings += problem.findings
            continue
        unmatched = [item.name for item in entries if places.get(item.name) != file]
        findings += [_unindexed(folder, file, name, places.get(name)) for name in unmatched[:_MOST_FINDINGS]]
        tensors |= {item.name: item for item in entries if places.get(item.name) == file}
    lost = [name for name, file in places.items() if name not in tensors and file in files]
    findings += [_lost(folder, name, places[name]) for name in lost[:_MOST_FINDINGS]]
    return OpenedCheckpoint(Checkpoint(tensors, files), tuple(findings))


def _unopened(folder: Path, count: int) -> Diagnostic:
    return wrong_file(folder / INDEX, f"{count} more of the files that it names were not opened")


def _unindexed(folder: Path, file: str, name: str, place: str | None) -> Diagnostic:
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
    # A colon names a drive or a stream on some systems, a leading dot a hidden file or the folder above.
    plain = file.isprintable() and not file.startswith(".") and not any(sign in file for sign in "/\\:")
    return plain and file.endswith(ENDING) and len(file) <= 255
