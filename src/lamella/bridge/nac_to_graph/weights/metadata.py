"""The quantisation of external weights, which stands as JSON in the metadata of their file, in one of three spellings.

Compilers write one key for each tensor; the public reader of 1.6 looks for one key `metadata` for all of them, and
newer tools for `nac_quant_meta`. All are read; the first two are written.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Malformed
from lamella.base.jsontext import decode_object
from lamella.base.source import Span
from lamella.lang.nac.check.tensors import read_scales
from lamella.lang.nac.nodes import (
    BlockFp8,
    Data,
    Int8Channel,
    Int8Tensor,
    Method,
    Quantization,
    Tensor,
    Unscaled,
)
from lamella.lang.nac.rules import weights as rules

_TOGETHER = ("metadata", "nac_quant_meta")
"""Keys that speak of all tensors."""
_MOST_TOGETHER = 30_000_000
"""Characters that are said a second time for all tensors: headers have a limit, and many scales reach it."""
_MOST_BLOCK, _MOST_SIZE, _MOST_AXIS = 0xFFFF, 0xFFFF_FFFF, 0xFF
Entry = Mapping[str, object]


class Entries(NamedTuple):
    """What metadata say of the quantisation of tensors, by name, and what is wrong with those that are None."""

    found: Mapping[str, Quantization | None]
    findings: tuple[Diagnostic, ...]


class _WrongError(Exception):
    """Carries the rest of a sentence about an entry; never leaves this module."""


def read_entries(metadata: Mapping[str, str], names: Collection[str], place: Span) -> Entries:
    """The quantisations of the tensors with these names; other keys mean nothing."""
    raw: dict[str, tuple[str, object]] = {}
    findings: list[Diagnostic] = []
    for name, key, value in _spelled(metadata, names, place, findings):
        first, known = raw.setdefault(name, (key, value))
        if known != value:
            findings.append(rules.QUANT_TWICE.at(place, name=name, first=first, key=key))
    found: dict[str, Quantization | None] = {}
    for name, (_, value) in raw.items():
        try:
            found[name] = _to_quantization(value)
        except _WrongError as problem:
            found[name] = None
            findings.append(rules.QUANT_ENTRY.at(place, name=name, problem=str(problem)))
    return Entries(found, tuple(findings))


def _spelled(
    metadata: Mapping[str, str], names: Collection[str], place: Span, findings: list[Diagnostic]
) -> Iterator[tuple[str, str, object]]:
    """Each tensor that is spoken of, under which key, and what is said."""
    for key in (*_TOGETHER, *(name for name in names if name not in _TOGETHER)):
        text = metadata.get(key, "")
        # A tensor may bear a name that other tools use as a key of their own, such as `format`.
        if not text.lstrip().startswith("{"):
            continue
        try:
            value = _parse(text)
        except _WrongError as problem:
            findings.append(rules.QUANT_ENTRY.at(place, name=key, problem=str(problem)))
            continue
        if key in _TOGETHER and not _is_entry(value):
            yield from ((name, key, item) for name, item in value.items() if name in names)
        elif key in names:
            yield key, key, value


def _is_entry(value: Entry) -> bool:
    """Whether an object speaks of one tensor, and not of several by name."""
    return "quant_type" in value and not isinstance(value["quant_type"], dict)


def _parse(text: str) -> Entry:
    """The object of a text that begins with a brace."""
    try:
        return decode_object(text)
    except Malformed as problem:
        raise _WrongError(str(problem)) from None


def _to_quantization(value: object) -> Quantization:
    if not isinstance(value, dict):
        raise _WrongError("is no object")
    match _method(value.get("quant_type")):
        case Method.INT8_TENSOR:
            scales = _scales(value, "scale" if "scale" in value else "scales")
            if len(scales) != 4:
                raise _WrongError(f"has {len(scales) // 4} scales for one tensor")
            return Int8Tensor(next(iter(read_scales(scales))))
        case Method.INT8_CHANNEL:
            return Int8Channel(_integer(value.get("axis", 0), "axis", _MOST_AXIS), _scales(value, "scales"))
        case Method.BLOCK_FP8:
            block = _integer(value.get("block_size"), "block_size", _MOST_BLOCK)
            return BlockFp8(block, _shape(value.get("original_shape")), _scales(value, "scales"))
        case method:
            return Unscaled(method)


def _method(value: object) -> Method:
    """A method by its name in letters of any size, or by its code."""
    if isinstance(value, str) and value.upper() in Method.__members__:
        return Method[value.upper()]
    if type(value) is int and 0 <= value < len(Method):
        return Method(value)
    raise _WrongError(f"has the quant_type {repr(value)[:40]}, which is not known")


def _integer(value: object, what: str, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise _WrongError(f"has the {what} {repr(value)[:40]}, which is no number from 0 to {most}")
    return value


def _shape(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _MOST_AXIS:
        raise _WrongError("has an original_shape that is no list of sizes")
    return tuple(_integer(item, "size", _MOST_SIZE) for item in value)


def _scales(entry: Entry, key: str) -> bytes:
    """One number or a list of them as float32; what that cannot hold is infinite."""
    value = entry.get(key)
    items = value if isinstance(value, list) else [value]
    if not all(type(item) in (int, float) for item in items):
        raise _WrongError(f"has {key} that are no numbers" if key in entry else f"lacks its {key}")
    try:
        numbers = np.array(items, np.float64)
    except OverflowError:
        raise _WrongError(f"has {key} beyond all floating types") from None
    with np.errstate(over="ignore"):
        return numbers.astype("<f4").tobytes()


def write_entries(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The metadata that say how tensors are quantised; nothing where none is."""
    entries = {name: _to_entry(item.quantization) for name, item in sorted(tensors.items())}
    scaled = {name: entry for name, entry in entries.items() if entry}
    found = {name: _dump(entry) for name, entry in scaled.items()}
    together = sum(map(len, found.values())) <= _MOST_TOGETHER
    if scaled and together and not found.keys() & set(_TOGETHER):
        found[_TOGETHER[0]] = _dump(scaled)
    return found


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _to_entry(quantization: Quantization) -> Entry:
    """What is said of a quantisation; nothing of weights without scales."""
    kind: dict[str, object] = {"quant_type": quantization.method.name}
    match quantization:
        case Int8Tensor(scale):
            return {**kind, "scale": scale}
        case Int8Channel(axis, scales):
            return {**kind, "axis": axis, "scales": _shortest(scales)}
        case BlockFp8(block_size, shape, scales):
            shown = {"block_size": block_size, "original_shape": list(shape)}
            return {**kind, **shown, "scales": _shortest(scales)}
        case Unscaled():
            return {}


def _shortest(scales: Data) -> list[float]:
    """Scales as doubles of few digits that are the same float32; all digits where rounding twice would change it."""
    exact = np.frombuffer(bytes(scales), "<f4")
    short = exact.astype("U").astype(np.float64)
    doubles: list[float] = np.where(
        short.astype(np.float32) == exact, short, exact.astype(np.float64)
    ).tolist()
    return doubles
