"""What a file notes of its weights: the digest of those beside it, the types that quantised ones had.

A file and the weights beside it know each other: both hold the digest of the weights that were written with them.

Two files cannot be replaced in one step. Weights come first; where writing ends between the two, or other weights were
put in their place by another conversion, the digests differ. Weights without a digest come from other tools: then there
is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Span
from lamella.lang.nac.nodes import File, Tensor
from lamella.lang.nac.notes import find_notes, with_notes
from lamella.lang.nac.rules import graphs as rules

KEY = "lamella.weights"
"""Under which name the digest stands in the metadata of weights."""
_NOTE, _ELEMENTS = "weights", "elements"
_DIGITS = 32


def digest_of(tensors: Mapping[str, Tensor], entries: Mapping[str, str]) -> str:
    """A number that other weights do not have; `entries` say how they are quantised."""
    checksum = sha256(repr(sorted(entries.items())).encode())
    for name, item in sorted(tensors.items()):
        checksum.update(repr((name, item.dtype, item.shape)).encode())
        checksum.update(item.data)
    return checksum.hexdigest()[:_DIGITS]


def pair(file: File, digest: str) -> File:
    """The file with the digest of the weights that lie beside it; without, where its notes are not ours."""
    notes = find_notes(file)
    return file if notes is None else with_notes(file, {**notes, _NOTE: digest})


def part(file: File) -> File:
    """The file without a digest, as its weights are its own now."""
    notes = find_notes(file)
    if not notes or _NOTE not in notes:
        return file
    return with_notes(file, {key: value for key, value in notes.items() if key != _NOTE})


def note_elements(file: File, elements: Mapping[str, str]) -> File:
    """The file with the types that parameters had before they were quantised, where they were not float32."""
    notes = find_notes(file)
    if not elements or notes is None:
        return file
    known = notes.get(_ELEMENTS)
    both = {**elements, **(known if isinstance(known, dict) else {})}
    return with_notes(file, {**notes, _ELEMENTS: both})


def check_pair(file: File, metadata: Mapping[str, str], place: Span) -> Iterator[Diagnostic]:
    """Weights that were written together with another file are not for this one."""
    wanted, found = (find_notes(file) or {}).get(_NOTE), metadata.get(KEY)
    if isinstance(wanted, str) and found is not None and found != wanted:
        yield rules.WEIGHTS_OF_ANOTHER.at(place, wanted=wanted[:_DIGITS], found=found[:_DIGITS])
