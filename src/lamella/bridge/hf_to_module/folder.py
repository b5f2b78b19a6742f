"""A Hugging Face folder: its `config.json` and its checkpoint, opened without trust and without reading weights."""

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
from lamella.base.errors import InputError, Malformed
from lamella.base.jsontext import parse_json
from lamella.base.limits import DEFAULT, LARGEST, Limits
from lamella.base.paths import Mapped, is_folder, is_there, map_bytes_in, read_text_in, shown, stored_in
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


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Tensors by name, and the mapped files in which they lie."""

    tensors: Mapping[str, CheckpointTensor]
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


class OpenedCheckpoint(NamedTuple):
    """A checkpoint, and what is wrong with the rest of it."""

    checkpoint: Checkpoint
    findings: tuple[Diagnostic, ...] = ()


EMPTY = Checkpoint(MappingProxyType({}), MappingProxyType({}))


def _open_checkpoint(folder: Path, limits: Limits = DEFAULT) -> OpenedCheckpoint:
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
    for file in dict.fromkeys(places.values()):
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


CONFIG = "config.json"


@dataclass(frozen=True, slots=True, eq=False)
class Folder:
    """A folder with a model: what its config says, its tensors, and what is wrong with either."""

    path: Path
    config: Mapping[str, object]
    checkpoint: Checkpoint
    findings: tuple[Diagnostic, ...] = ()


def is_model_folder(path: Path) -> bool:
    """Whether a path leads to a folder with a `config.json`."""
    return is_folder(path) and is_there(path / CONFIG)


def open_folder(path: Path, limits: Limits = DEFAULT) -> Folder:
    """A folder as it is; where a part cannot be used it is empty, and the findings say why.

    Code that the folder brings along is neither imported nor run.
    """
    if not is_folder(path):
        return Folder(path, {}, EMPTY, (wrong_file(path, "it is no folder"),))
    findings: list[Diagnostic] = []
    config: dict[str, object] = {}
    checkpoint = EMPTY
    try:
        config = read_object(path, CONFIG, limits)
        findings += _ignored(path, config)
    except LamellaError as problem:
        findings += problem.findings
    try:
        # Also where the config is wrong: all that is wrong with a folder is reported at once.
        checkpoint, wrong = _open_checkpoint(path, limits)
        findings += wrong
    except LamellaError as problem:
        findings += problem.findings
    return Folder(path, config, checkpoint, tuple(findings))


def _ignored(path: Path, config: Mapping[str, object]) -> list[Diagnostic]:
    """Notes on what is there and not used."""
    place, found = whole(path / CONFIG), []
    if "auto_map" in config:
        why = "code that comes with weights is never run; the architecture is one of our own models"
        found.append(rules.IGNORED.at(place, what="'auto_map' in config.json", why=why))
    if is_there(path / SINGLE) and is_there(path / INDEX):
        found.append(rules.IGNORED.at(place, what=INDEX, why=f"{SINGLE} holds the whole checkpoint"))
    return found
