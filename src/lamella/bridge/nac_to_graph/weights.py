"""Weights of files as arrays: in the file, or in `NAME.safetensors` beside `NAME.nac`, read without trust."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, cast, element_type_of, numpy_dtype, to_memory
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.dtype import ElementType
from lamella.base.errors import InputError, Malformed
from lamella.base.jsontext import decode_object
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import STANDARD_INPUT, Mapped, map_bytes, map_bytes_in, shown
from lamella.base.shape import MOST_AXES, element_count
from lamella.base.source import Binary, Span
from lamella.graph.data import decode_store
from lamella.lang.nac.check.data import DTYPES, INT8, check_tensor, read_scales, show_shape
from lamella.lang.nac.nodes import (
    BlockFp8,
    Data,
    File,
    Int8Channel,
    Int8Tensor,
    Method,
    Parameter,
    Quantization,
    Tensor,
    Unscaled,
)
from lamella.lang.nac.notes import find_notes, with_notes
from lamella.lang.nac.rules import data as rules
from lamella.lang.nac.rules import graphs

# --- tensors as arrays, without a copy where their bytes lie aligned, and arrays as tensors -----------------


_CODES: Mapping[ElementType, int] = MappingProxyType(
    {element: code for code, (_, element) in enumerate(DTYPES)}
)


def read_weight(tensor: Tensor, method: Method = Method.NONE) -> Array:
    """The array of a tensor, dequantised to float32; LamellaError holds what is wrong with the tensor.

    `method` is that of the file: where it is FP16, halves are halves only because of it, and become float32. An array
    that is not computed is a read-only view of the bytes unless they are not aligned.
    """
    codes = read_stored(tensor)
    match tensor.quantization:
        case Int8Tensor(scale):
            return _scale(codes, cast(np.array(scale), types.F32), tensor.shape)
        case Int8Channel(axis, scales):
            along = [-1 if index == axis else 1 for index in range(codes.ndim)]
            return _scale(codes, _scales(scales).reshape(along), tensor.shape)
        case BlockFp8(block_size, shape, scales):
            return _join_blocks(tensor, codes.reshape(-1, block_size), _scales(scales), shape)
        case Unscaled(own):
            halved = Method.FP16 in (own, method) and codes.dtype == np.float16
            return codes.astype(np.float32) if halved else codes


def read_stored(tensor: Tensor) -> Array:
    """The array of a tensor as it is stored: codes where it is quantised. LamellaError as `read_weight`."""
    what = f"the tensor of parameter {tensor.parameter}"
    wrong = errors(check_tensor(tensor, what, tensor.quantization.method))
    if wrong:
        raise LamellaError(wrong)
    element = DTYPES[tensor.dtype][1]
    image = np.frombuffer(tensor.data, np.uint8) if len(tensor.data) else np.empty(0, np.uint8)
    if element == types.BOOL and image.max(initial=0) > 1:
        return _reshape(tensor, image != 0, tensor.shape)
    flat = image.view(numpy_dtype(element))
    return _reshape(tensor, flat if flat.flags.aligned else flat.copy(), tensor.shape)


def _reshape(tensor: Tensor, values: Array, shape: Sequence[int]) -> Array:
    """An array of a shape; without elements its other extents may be more than NumPy counts."""
    try:
        return values.reshape(shape)
    except ValueError:
        what = f"the tensor of parameter {tensor.parameter}"
        finding = rules.SHAPE_TOO_LARGE.at(tensor.span, what=what, shape=show_shape(shape), limit=MOST_AXES)
        raise LamellaError([finding]) from None


def _scales(scales: Data) -> Array:
    """Scales from their bytes; a rest that is no number is left."""
    whole = scales[: len(scales) // 4 * 4]
    return np.frombuffer(whole, np.float32) if len(whole) else np.empty(0, np.float32)


def _scale(codes: Array, scales: Array, shape: Sequence[int]) -> Array:
    """Codes times scales, each product rounded once to float32."""
    values = codes.astype(np.float32).reshape(shape)
    with np.errstate(over="ignore"):
        values *= scales
    return values


def _join_blocks(tensor: Tensor, blocks: Array, scales: Array, shape: Sequence[int]) -> Array:
    """Blocks, each with its scale, without what fills the last of them."""
    values = _scale(blocks, scales.reshape(-1, 1), blocks.shape)
    return _reshape(tensor, values.reshape(-1)[: element_count(shape)], shape)


def store_weight(values: Array, parameter: int = 0) -> Tensor | None:
    """A tensor that holds an array as it is; None where NAC has no code for its elements."""
    element = element_type_of(values.dtype)
    code = None if element is None else _CODES.get(element)
    if code is None:
        return None
    return Tensor(parameter, code, values.shape, Unscaled(), image_of(values))


def image_of(values: Array) -> Data:
    """The bytes of an array, row-major and little endian; not copied where they lie so."""
    return to_memory(values).data.toreadonly() if values.size else b""


def original_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a tensor when it is read."""
    found = tensor.quantization
    return found.shape if isinstance(found, BlockFp8) else tensor.shape


# --- quantisation of external weights: JSON in the metadata of their file, in one of three spellings --------
#
# Compilers write one key for each tensor; the public reader of 1.6 looks for one key `metadata` for all of them,
# and newer tools for `nac_quant_meta`. All are read; the first two are written.


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


def read_entries(metadata: Mapping[str, str], names: Collection[str], place: Span) -> Entries:
    """The quantisations of the tensors with these names; other keys mean nothing."""
    raw: dict[str, tuple[str, object]] = {}
    findings: list[Diagnostic] = []
    for name, key, value in _spelled(metadata, names, place, findings):
        first, known = raw.setdefault(name, (key, value))
        if known != value:
            findings.append(graphs.QUANT_TWICE.at(place, name=name, first=first, key=key))
    found: dict[str, Quantization | None] = {}
    for name, (_, value) in raw.items():
        try:
            found[name] = _to_quantization(value)
        except Malformed as problem:
            found[name] = None
            findings.append(graphs.QUANT_ENTRY.at(place, name=name, problem=str(problem)))
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
            # Scales are megabytes of numbers, nothing recurses over them, and a walk for their depth would show.
            value = decode_object(text, max_depth=None)
        except Malformed as problem:
            findings.append(graphs.QUANT_ENTRY.at(place, name=key, problem=str(problem)))
            continue
        if key in _TOGETHER and not _is_entry(value):
            yield from ((name, key, item) for name, item in value.items() if name in names)
        elif key in names:
            yield key, key, value


def _is_entry(value: Entry) -> bool:
    """Whether an object speaks of one tensor, and not of several by name."""
    return "quant_type" in value and not isinstance(value["quant_type"], dict)


def _to_quantization(value: object) -> Quantization:
    if not isinstance(value, dict):
        raise Malformed("is no object")
    match _method(value.get("quant_type")):
        case Method.INT8_TENSOR:
            scales = _metadata_scales(value, "scale" if "scale" in value else "scales")
            if len(scales) != 4:
                raise Malformed(f"has {len(scales) // 4} scales for one tensor")
            return Int8Tensor(next(iter(read_scales(scales))))
        case Method.INT8_CHANNEL:
            return Int8Channel(
                _integer(value.get("axis", 0), "axis", _MOST_AXIS), _metadata_scales(value, "scales")
            )
        case Method.BLOCK_FP8:
            block = _integer(value.get("block_size"), "block_size", _MOST_BLOCK)
            return BlockFp8(block, _shape(value.get("original_shape")), _metadata_scales(value, "scales"))
        case method:
            return Unscaled(method)


def _method(value: object) -> Method:
    """A method by its name in letters of any size, or by its code."""
    if isinstance(value, str) and value.upper() in Method.__members__:
        return Method[value.upper()]
    if type(value) is int and 0 <= value < len(Method):
        return Method(value)
    raise Malformed(f"has the quant_type {repr(value)[:40]}, which is not known")


def _integer(value: object, what: str, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise Malformed(f"has the {what} {repr(value)[:40]}, which is no number from 0 to {most}")
    return value


def _shape(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _MOST_AXIS:
        raise Malformed("has an original_shape that is no list of sizes")
    return tuple(_integer(item, "size", _MOST_SIZE) for item in value)


def _metadata_scales(entry: Entry, key: str) -> bytes:
    """One number or a list of them as float32; what that cannot hold is infinite."""
    value = entry.get(key)
    items = value if isinstance(value, list) else [value]
    if not all(type(item) in (int, float) for item in items):
        raise Malformed(f"has {key} that are no numbers" if key in entry else f"lacks its {key}")
    try:
        numbers = np.array(items, np.float64)
    except OverflowError:
        raise Malformed(f"has {key} beyond all floating types") from None
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


# --- pairing of a file with its weights: both hold the digest of the weights written with them --------------
#
# Two files cannot be replaced in one step. Weights come first; where writing ends between the two, or another
# conversion put other weights in their place, the digests differ. Weights without a digest come from other tools:
# then there is nothing to compare.


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
        yield graphs.WEIGHTS_OF_ANOTHER.at(place, wanted=wanted[:_DIGITS], found=found[:_DIGITS])


ENDING = ".safetensors"
_MOST_FINDINGS = 1000
"""Findings of one kind: the weights of another model may lack every name."""
_CODED = (Method.INT8_TENSOR, Method.INT8_CHANNEL, Method.BLOCK_FP8)


class StoredWeights(NamedTuple):
    """Tensors by the names of their parameters, what is wrong with the others, and the bytes in which they lie.

    `mapped.check_whole()` comes before they are touched, where there is such a thing.
    """

    tensors: Mapping[str, Tensor]
    findings: tuple[Diagnostic, ...]
    mapped: Mapped | None = None


def companion(path: Path) -> Path:
    """Where the external weights of a file lie; InputError where nothing can lie beside it."""
    if path == STANDARD_INPUT or not path.name:
        hint = "give the file by its name"
        raise InputError(f"'{shown(path)}' has no folder in which its weights could lie", hint=hint)
    return path.with_suffix(ENDING)


def find_weights(file: File, path: Path, limits: Limits = DEFAULT) -> StoredWeights:
    """The tensors of a file's parameters, wherever they are; `path` is that of the file.

    A file without parameters needs no other one, whatever its header says.
    """
    inside = file.header.internal or not file.parameters
    return own_weights(file) if inside else read_external(file, path, limits)


def own_weights(file: File) -> StoredWeights:
    """The tensors that stand in a file itself, by name; `check` says what is wrong with them."""
    stored = {item.parameter: item for item in reversed(file.tensors)}
    return StoredWeights({item.name: stored[item.id] for item in file.parameters if item.id in stored}, ())


def read_external(file: File, path: Path, limits: Limits = DEFAULT) -> StoredWeights:
    """The tensors of a file's parameters from beside it; LamellaError: they cannot be read at all.

    `path` is that of the `.nac` file, or names the `.safetensors` file itself; what only lies beside a file is not
    followed through links, and must not have been written for another file. Where the file has weights of its own,
    the shapes must be theirs.
    """
    named = path.suffix == ENDING
    beside = path if named else companion(path)
    mapped = map_bytes(path, limits) if named else map_bytes_in(beside.parent, beside.name, limits)
    arrays, metadata = decode_store(mapped.data, shown(mapped.path))
    place = Span(Binary(shown(mapped.path)), 0, 0)
    names = {item.name for item in file.parameters}
    entries = read_entries(metadata, names & arrays.keys(), place)
    findings = [*entries.findings, *find_unmatched_tensors(file, arrays, place)]
    findings += () if named else check_pair(file, metadata, place)
    reading = _ExternalReading(file, entries.found, place)
    tensors: dict[str, Tensor] = {}
    for parameter in file.parameters:
        if parameter.name in arrays:
            problems, tensor = reading.read(parameter, arrays[parameter.name])
            findings += problems
            if tensor is not None and not errors(problems):
                tensors[parameter.name] = tensor
    return StoredWeights(MappingProxyType(tensors), tuple(findings), mapped)


def find_unmatched_tensors(file: File, given: Mapping[str, object], place: Span) -> Iterator[Diagnostic]:
    """Parameters without weights, in neither place, and weights without a parameter."""
    own = own_weights(file).tensors
    names = dict.fromkeys(item.name for item in file.parameters)
    lacking = [name for name in names if name not in given and name not in own]
    for name in islice(lacking, _MOST_FINDINGS):
        yield graphs.WEIGHT_MISSING.at(place, name=name, count=len(given))
    for name in islice((name for name in given if name not in names), _MOST_FINDINGS):
        yield graphs.WEIGHT_UNUSED.at(place, name=name)


def check_shape(name: str, tensor: Tensor, own: Tensor | None) -> Iterator[Diagnostic]:
    """Weights have the shape of those in whose place they come."""
    if own is not None and original_shape(own) != original_shape(tensor):
        shape, found = show_shape(original_shape(own)), show_shape(original_shape(tensor))
        yield graphs.WEIGHT_SHAPE.at(tensor.span, name=name, shape=shape, found=found)


class _ExternalReading:
    """Arrays of a store while they become the tensors of a file."""

    def __init__(self, file: File, entries: Mapping[str, Quantization | None], place: Span) -> None:
        self._method = file.header.method
        self._own = own_weights(file).tensors
        self._entries = entries
        self._place = place

    def read(self, parameter: Parameter, values: Array) -> tuple[list[Diagnostic], Tensor | None]:
        """The tensor of a parameter, where it can be made, and what is wrong with it."""
        name = parameter.name
        plain = store_weight(values, parameter.id)
        if plain is None:
            return [graphs.WEIGHT_ELEMENTS.at(self._place, name=name, found=values.dtype)], None
        quantization = self._entries.get(name, Unscaled())
        if quantization is None:
            return [], None
        if plain.dtype == INT8 and not self._entries and self._method in _CODED:
            return [graphs.CODES_WITHOUT_SCALE.at(self._place, name=name, method=self._method.name)], None
        tensor = replace(plain, quantization=quantization, span=self._place)
        findings = list(check_tensor(tensor, f"parameter '{name}'", self._method))
        if not errors(findings):
            findings += check_shape(name, tensor, self._own.get(name))
        return findings, tensor
