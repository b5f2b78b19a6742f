"""What a file notes of its weights: the digest of those beside it, the types that quantised ones had.

A file and the weights beside it know each other: both hold the digest of the weights that were written with them.

Two files cannot be replaced in one step. Weights come first; where writing ends between the two, or other weights were
put in their place by another conversion, the digests differ. Weights without a digest come from other tools: then there
is nothing to compare.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Span
from lamella.lang.nac.nodes import File, Resource, Tensor
from lamella.lang.nac.rules import weights as rules

NOTES = "lamella.json"
KEY = "lamella.weights"
"""Under which name the digest stands in the metadata of weights."""
_NOTE, _FORMAT, _ELEMENTS = "weights", "format", "elements"
_DIGITS = 32
_LONGEST = 1 << 24


def digest_of(tensors: Mapping[str, Tensor], entries: Mapping[str, str]) -> str:
    """A number that other weights do not have; `entries` say how they are quantised."""
    checksum = sha256(repr(sorted(entries.items())).encode())
    for name, item in sorted(tensors.items()):
        checksum.update(repr((name, item.dtype, item.shape)).encode())
        checksum.update(item.data)
    return checksum.hexdigest()[:_DIGITS]


def pair(file: File, digest: str) -> File:
    """The file with the digest of the weights that lie beside it; without, where its notes are not ours."""
    notes = _read_notes(file)
    return file if notes is None else _with_notes(file, {_FORMAT: 1, **notes, _NOTE: digest})


def part(file: File) -> File:
    """The file without a digest, as its weights are its own now."""
    notes = _read_notes(file)
    if not notes or _NOTE not in notes:
        return file
    return _with_notes(file, {key: value for key, value in notes.items() if key != _NOTE})


def note_elements(file: File, elements: Mapping[str, str]) -> File:
    """The file with the types that parameters had before they were quantised, where they were not float32."""
    notes = _read_notes(file)
    if not elements or notes is None:
        return file
    known = notes.get(_ELEMENTS)
    both = {**elements, **(known if isinstance(known, dict) else {})}
    return _with_notes(file, {_FORMAT: 1, **notes, _ELEMENTS: both})


def check_pair(file: File, metadata: Mapping[str, str], place: Span) -> Iterator[Diagnostic]:
    """Weights that were written together with another file are not for this one."""
    wanted, found = (_read_notes(file) or {}).get(_NOTE), metadata.get(KEY)
    if isinstance(wanted, str) and found is not None and found != wanted:
        yield rules.WEIGHTS_OF_ANOTHER.at(place, wanted=wanted[:_DIGITS], found=found[:_DIGITS])


def _read_notes(file: File) -> dict[str, object] | None:
    """What stands in the notes of a file; None where they are no object."""
    resource = next((item for item in file.resources if item.name == NOTES), None)
    if resource is None:
        return {}
    try:
        found = json.loads(bytes(resource.data)) if len(resource.data) <= _LONGEST else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _with_notes(file: File, notes: Mapping[str, object]) -> File:
    """The file with these notes, in the place of those it has; without any where they say nothing."""
    text = json.dumps(notes, sort_keys=True, separators=(",", ":"))
    made = [Resource(NOTES, text.encode())] if notes.keys() - {_FORMAT} else []
    places = [index for index, item in enumerate(file.resources) if item.name == NOTES]
    at = places[0] if places else len(file.resources)
    return replace(file, resources=(*file.resources[:at], *made, *file.resources[at + 1 :]))
