"""Models as Hugging Face folders: what `hf_to_module` reads, written again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from types import EllipsisType, MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np

from lamella.base.arrays import Array, cast, element_type_of, numpy_dtype, to_memory
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.dtype import ElementType, find_in, name_in
from lamella.base.errors import Found, OutputError, cause_of
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import is_there, read_bytes_in, shown
from lamella.base.shape import bytes_for, element_count
from lamella.base.source import NOWHERE
from lamella.base.writer import make_folder, write_bytes, write_pieces, write_text
from lamella.bridge.hf_to_module.assignments import Assignment, expand
from lamella.bridge.hf_to_module.checkpoint import EMPTY, INDEX, SINGLE, Checkpoint
from lamella.bridge.hf_to_module.config import MISSING, find_value, mapped_keys, spellings, text_of, with_head
from lamella.bridge.hf_to_module.folder import CONFIG, Folder
from lamella.bridge.hf_to_module.mapping import RecipeShapes, check_ranges, show, spelled
from lamella.bridge.hf_to_module.weights import (
    FUNCTIONS,
    Joined,
    MappingContext,
    Stacked,
    Weight,
    WeightRecipe,
    Whole,
    element_named,
    names_in,
)
from lamella.graph.data.safetensors import encode_header
from lamella.lang.module import nodes as n
from lamella.lang.module.instantiate.nodes import DictValue, Known
from lamella.lang.module.nodes import Field
from lamella.lang.module.rules import mappings as rules

# --- export plan: which tensors are written, and which part of which weight each of them is -----------------


IndexStep: TypeAlias = tuple[int | slice | EllipsisType, ...]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OutgoingTensor:
    """A tensor that is written: the part of a weight at `steps`, one index after the other, through a function.

    `back` is the function that makes the part out of the tensor again. `element` is None where the weight has none of
    its own: it is that of the numbers. `weight` is None for a tensor of the source that no weight speaks of.
    """

    name: str
    shape: Shape
    element: ElementType | None
    weight: Weight | None = None
    steps: tuple[IndexStep, ...] = ()
    function: str = ""
    back: str = ""


class ExportPlan(NamedTuple):
    """The tensors of a checkpoint in the order of the weights, and what is wrong."""

    tensors: tuple[OutgoingTensor, ...]
    findings: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class ExportMapping:
    """How weights and tensors correspond: the weights, `hf_mapping:`, `hf_export:` and what mappings may ask."""

    weights: Sequence[Weight]
    imports: Sequence[n.Mapping]
    exports: Sequence[n.Mapping]
    context: MappingContext


def plan_export(
    mapped: ExportMapping, given: Mapping[str, object], source: Checkpoint | None = None
) -> ExportPlan:
    """The tensors for these weights: as `hf_export:` says, else what undoes `hf_mapping:`.

    Names, types and the sizes of fused parts are those of the source where there is one. Tied weights are not written;
    optional ones are where they are `given`. Tensors of the source that belong to no weight are kept.
    """
    return _ExportPlanning(mapped, given, source or EMPTY).run()


class _ExportPlanning:
    """The work of `plan_export`, with what it finds on the way."""

    def __init__(self, mapped: ExportMapping, given: Mapping[str, object], source: Checkpoint) -> None:
        self._mapped = mapped
        self._context = mapped.context
        self._given = given
        self._source = source.tensors
        self._shapes = RecipeShapes(source.tensors, self._spell, mapped.context.head_dim)
        self._findings: list[Diagnostic] = []

    def run(self) -> ExportPlan:
        mapped = self._mapped
        imports = expand(mapped.weights, mapped.imports, mapped.context)
        exports = expand(mapped.weights, mapped.exports, mapped.context)
        self._findings += (*imports.findings, *exports.findings)
        explicit = {item.weight.path: item for item in exports.assignments}
        known = {item.weight.path: item for item in imports.assignments}
        found: dict[str, OutgoingTensor] = {}
        for weight in mapped.weights:
            if weight.tied is None:
                for item in self._outgoing(weight, explicit.get(weight.path), known.get(weight.path)):
                    self._add(item, weight, found)
        tied = {self._spell(name) for name in (*imports.tied, *exports.tied)}
        left = (item for item in self._source.values() if item.name not in found and item.name not in tied)
        dropped = {
            self._spell(name)
            for path in known.keys() - self._given.keys()
            for name in names_in(known[path].recipe)
        }
        kept = [
            OutgoingTensor(item.name, item.shape, item.dtype) for item in left if item.name not in dropped
        ]
        return ExportPlan((*found.values(), *kept), tuple(self._findings))

    def _spell(self, name: str) -> str:
        return spelled(name, self._context.prefix, self._source)

    def _add(self, item: OutgoingTensor, weight: Weight, found: dict[str, OutgoingTensor]) -> None:
        first = found.setdefault(item.name, item)
        if first is not item and first.weight is not None:
            self._findings.append(
                rules.USED_TWICE.at(weight.span, name=item.name, first=first.weight.path, second=weight.path)
            )

    def _outgoing(
        self, weight: Weight, explicit: Assignment | None, known: Assignment | None
    ) -> Iterator[OutgoingTensor]:
        """The tensors of a weight."""
        to = explicit or known
        if weight.path not in self._given:
            if not weight.optional:
                self._findings.append(rules.NO_NUMBERS.at(weight.span, path=weight.path))
        elif to is None:
            self._findings.append(rules.UNMAPPED.at(weight.span, path=weight.path))
        else:
            try:
                yield from self._parts(to.recipe, to, weight.shape, (), explicit is None)
            except Found as problem:
                self._findings += problem.findings

    def _parts(
        self, recipe: WeightRecipe, to: Assignment, shape: Shape, steps: tuple[IndexStep, ...], undo: bool
    ) -> Iterator[OutgoingTensor]:
        match recipe:
            case Whole():
                yield self._whole(recipe, to, shape, steps, undo)
            case Stacked(parts):
                for index, part in enumerate(parts):
                    yield from self._parts(part, to, shape[1:], (*steps, (index, ...)), undo)
            case Joined(parts, dim):
                axis = dim % max(len(shape), 1)
                for part, (low, high) in zip(parts, self._ranges(recipe, to, shape, axis), strict=True):
                    step: IndexStep = (*(slice(None),) * axis, slice(low, high))
                    inner = (*shape[:axis], high - low, *shape[axis + 1 :])
                    yield from self._parts(part, to, inner, (*steps, step), undo)

    def _whole(
        self, recipe: Whole, to: Assignment, shape: Shape, steps: tuple[IndexStep, ...], undo: bool
    ) -> OutgoingTensor:
        """One tensor; what was done to it on the way in is undone."""
        name = self._spell(recipe.name)
        other = FUNCTIONS[recipe.function].inverse if recipe.function else ""
        function, back = (other, recipe.function) if undo else (recipe.function, other)
        result: Shape | str = FUNCTIONS[function].shape(shape, self._context.head_dim) if function else shape
        if isinstance(result, str):
            text = show(shape)
            raise Found(
                rules.FUNCTION_SHAPE.at(
                    to.span, name=to.weight.path, found=text, function=function, why=result
                )
            )
        stored = self._source.get(name)
        element = stored.dtype if stored is not None else element_named(to.weight.element)
        return OutgoingTensor(name, result, element, to.weight, steps, function, back)

    def _ranges(self, recipe: Joined, to: Assignment, shape: Shape, axis: int) -> Sequence[tuple[int, int]]:
        """Which range of a dimension each part takes."""
        if not shape:
            raise Found(rules.SIZES.at(to.span, path=to.weight.path))
        if recipe.bounds:
            check_ranges(recipe.bounds, shape[axis], axis, to)
            return recipe.bounds
        try:
            sizes = [self._shapes.measure(part, to).shape[axis] for part in recipe.parts]
        except (KeyError, IndexError):  # the source, where there is one, does not hold the parts
            raise Found(rules.SIZES.at(to.span, path=to.weight.path)) from None
        ranges = [(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]
        check_ranges(ranges, shape[axis], axis, to)
        return ranges


# --- shards: one tensor after the other, never all in memory ------------------------------------------------


_METADATA = MappingProxyType({"format": "pt"})
"""Without it older versions of transformers refuse a file."""


class _SizedTensor(NamedTuple):
    outgoing: OutgoingTensor
    element: ElementType
    size: int


class TensorEncoder:
    """Arrays of weights while they become tensors; the last one is kept, since its parts follow one another."""

    def __init__(self, arrays: Mapping[str, Array], source: Checkpoint | None, head_dim: int) -> None:
        self._arrays = arrays
        self._source = source or EMPTY
        self._head = head_dim
        self._last: tuple[str, Array | None] = ("", None)

    def element_of(self, item: OutgoingTensor) -> ElementType:
        """The type in which a tensor is written."""
        if item.element is not None or item.weight is None:
            return item.element or _unknown(item, None)
        found = element_type_of(self._array(item).dtype)
        return found or _unknown(item, self._array(item).dtype)

    def image(self, item: OutgoingTensor, element: ElementType) -> memoryview | bytes:
        """The bytes of a tensor: those of the source where the numbers are still what it gives."""
        if item.weight is None and item.name not in self._source.coded:
            return self._source.bytes_of(item.name)
        part = self._source.read(item.name) if item.weight is None else self._array(item)
        for step in item.steps:
            part = part[step]
        # What did not change keeps its bytes, also where a cast there and back would not.
        if self._is_unchanged(item, part):
            return self._source.bytes_of(item.name)
        values = FUNCTIONS[item.function].apply(part, self._head) if item.function else part
        found = to_memory(_converted(item, values, element))
        return found.data if len(found) else b""

    def _array(self, item: OutgoingTensor) -> Array:
        """The array of the weight of a tensor."""
        weight = item.weight
        path = "" if weight is None else weight.path
        known, array = self._last
        if array is None or known != path:
            array = self._arrays[path]
            self._last = (path, array)
            if weight is not None and array.shape != weight.shape:
                wanted, found = show(weight.shape), show(array.shape)
                finding = rules.NUMBERS_SHAPE.at(weight.span, path=path, wanted=wanted, found=found)
                raise LamellaError([finding])
        return array

    def _is_unchanged(self, item: OutgoingTensor, part: Array) -> bool:
        """Whether the tensor of the source makes these numbers, bit for bit."""
        stored = self._source.tensors.get(item.name)
        if stored is None or stored.shape != item.shape or item.name in self._source.coded:
            return False
        values = self._source.read(item.name)
        if item.back:
            values = FUNCTIONS[item.back].apply(values, self._head)
        element = element_type_of(part.dtype)
        if values.dtype != part.dtype and (
            element is None or not (element.is_float and stored.dtype.is_float)
        ):
            return False
        if values.dtype != part.dtype and element is not None:
            values = cast(values, element)
        return values.shape == part.shape and _bits_equal(values, part)


def _bits_equal(left: Array, right: Array) -> bool:
    # As integers: NaN is equal to itself then, and -0.0 is not 0.0.
    unsigned = np.dtype(f"u{left.dtype.itemsize}") if left.dtype.itemsize <= 8 else None
    if unsigned is None:
        return bool(np.array_equal(left, right))
    return bool(np.array_equal(_dense(left).view(unsigned), _dense(right).view(unsigned)))


def _dense(values: Array) -> Array:
    return np.ascontiguousarray(values).reshape(-1)


def _converted(item: OutgoingTensor, values: Array, element: ElementType) -> Array:
    if values.dtype == numpy_dtype(element):
        return values
    found = element_type_of(values.dtype)
    if found is None or not (found.is_float and element.is_float):
        _unknown(item, values.dtype, element)
    return cast(values, element)


def _unknown(
    item: OutgoingTensor, found: object, wanted: ElementType | str = "a type of a checkpoint"
) -> ElementType:
    path = item.name if item.weight is None else item.weight.path
    raise LamellaError([rules.NUMBERS_DTYPE.at(NOWHERE, path=path, found=found, wanted=wanted)])


def _write_shards(
    folder: Path, tensors: Sequence[OutgoingTensor], numbers: TensorEncoder, shard_bytes: int
) -> tuple[Path, ...]:
    """Write tensors into `model.safetensors`, or into several files and an index where they are larger than one.

    No file is larger than `shard_bytes` unless a single tensor is.
    """
    measured = [_measured(item, numbers) for item in tensors]
    shards = _shards(measured, shard_bytes)
    if len(shards) <= 1:
        _write_file(folder / SINGLE, measured, numbers)
        return (folder / SINGLE,)
    names = [f"model-{index + 1:05}-of-{len(shards):05}.safetensors" for index in range(len(shards))]
    places: dict[str, str] = {}
    for name, shard in zip(names, shards, strict=True):
        _write_file(folder / name, shard, numbers)
        places |= {item.outgoing.name: name for item in shard}
    total = sum(item.size for item in measured)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    write_text(folder / INDEX, f"{json.dumps(index, indent=2)}\n")
    return (*(folder / name for name in names), folder / INDEX)


def _measured(item: OutgoingTensor, numbers: TensorEncoder) -> _SizedTensor:
    element = numbers.element_of(item)
    return _SizedTensor(item, element, bytes_for(element_count(item.shape), element.bits))


def _shards(tensors: Sequence[_SizedTensor], shard_bytes: int) -> list[list[_SizedTensor]]:
    shards: list[list[_SizedTensor]] = []
    room = 0
    for item in tensors:
        if not shards or item.size > room:
            shards.append([])
            room = shard_bytes
        shards[-1].append(item)
        room -= item.size
    return shards


def _write_file(path: Path, tensors: Sequence[_SizedTensor], numbers: TensorEncoder) -> None:
    # Wide elements first: then each tensor begins at a multiple of its element's size.
    ordered = sorted(tensors, key=lambda item: -item.element.bits)
    header = encode_header(
        [(item.outgoing.name, item.element, item.outgoing.shape) for item in ordered], path.name, _METADATA
    )
    size = len(header) + sum(item.size for item in ordered)
    write_pieces(path, _pieces(header, ordered, numbers), size=size)


def _pieces(
    header: bytes, tensors: Sequence[_SizedTensor], numbers: TensorEncoder
) -> Iterator[bytes | memoryview]:
    yield header
    for item in tensors:
        yield numbers.image(item.outgoing, item.element)


# --- the folder: tensors, files of the tokenizer, and last of all the config --------------------------------


SHARD_BYTES = 5_000_000_000
BESIDE = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model"),
    *("sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json", "generation_config.json"),
)
"""What a folder holds beside a model and is copied with it; never code."""


@dataclass(frozen=True, slots=True)
class Export:
    """What a folder is to hold: how weights become tensors, the config, and the folder that the model came from."""

    mapped: ExportMapping
    config: Mapping[str, object]
    source: Folder | None = None
    shard_bytes: int = SHARD_BYTES
    beside: Mapping[str, str] = field(default_factory=dict)
    """Texts that lie beside the tensors, by their places in the folder: the declaration of the model."""


def export_folder(
    destination: Path, weights: Mapping[str, Array], export: Export, limits: Limits = DEFAULT
) -> tuple[Path, ...]:
    """Write a folder that transformers loads, and give its files; LamellaError says why it cannot be.

    The folder must be new or empty. `config.json` comes last: without it a folder is no model, so what was not
    finished is not taken for one. One weight at a time is in memory.
    """
    source = export.source.checkpoint if export.source is not None else None
    plan = plan_export(export.mapped, weights, source)
    if errors(plan.findings):
        raise LamellaError(plan.findings)
    _make_empty(destination)
    numbers = TensorEncoder(weights, source, export.mapped.context.head_dim)
    files = list(_write_shards(destination, plan.tensors, numbers, export.shard_bytes))
    files += _copy_beside(destination, export.source, limits)
    for name, text in export.beside.items():
        make_folder((destination / name).parent)
        write_text(destination / name, text)
        files.append(destination / name)
    _write_config(destination / CONFIG, export, limits)
    return (*files, destination / CONFIG)


def _make_empty(folder: Path) -> None:
    make_folder(folder)
    try:
        taken = next(iter(os.listdir(folder)), None)
    except OSError as problem:
        raise OutputError(f"cannot read '{shown(folder)}': {cause_of(problem)}", path=folder) from problem
    if taken is not None:
        hint = "name a new folder: files of another model would be taken for parts of this one"
        raise OutputError(f"the folder '{shown(folder)}' is not empty", path=folder, hint=hint)


def _copy_beside(destination: Path, source: Folder | None, limits: Limits) -> list[Path]:
    names = () if source is None else tuple(name for name in BESIDE if is_there(source.path / name))
    for name in names:
        if source is not None:
            write_bytes(destination / name, read_bytes_in(source.path, name, limits))
    return [destination / name for name in names]


def _write_config(path: Path, export: Export, limits: Limits) -> None:
    """The config; one that has not changed is copied as it is."""
    source = export.source
    if source is not None and source.config == export.config and is_there(source.path / CONFIG):
        write_bytes(path, read_bytes_in(source.path, CONFIG, limits))
    else:
        write_text(path, f"{json.dumps(dict(export.config), indent=2)}\n")


# --- `config.json`: `param_mapping:` backwards; all else as the source has it -------------------------------


_DTYPE_KEYS = ("dtype", "torch_dtype")


def write_config(
    fields: tuple[Field, ...], values: Mapping[str, Known], source: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The config that says these values.

    A key of the source whose value is still the same stays as it is; a default that the source does not say is not
    written either.
    """
    config = (
        _first(fields, values) if source is None else {key: deepcopy(value) for key, value in source.items()}
    )
    for entry, keys in mapped_keys(fields):
        known = values.get(entry.name)
        if known is not None and keys:
            default = source is not None and known.source.endswith("default")
            _say(config, keys, known.value, default)
    return config


def _first(fields: tuple[Field, ...], values: Mapping[str, Known]) -> dict[str, object]:
    """A new config: what `hf_config:` says of the architecture, with the head that it has."""
    head = values["head"].value if "head" in values else None
    called = with_head(text_of(fields, "architecture"), head)
    named = {"architectures": [called], "model_type": text_of(fields, "model_type")}
    return {key: value for key, value in named.items() if value not in ("", [""])}


def _say(config: dict[str, object], keys: tuple[str, ...], value: object, default: bool) -> None:
    """Put a value where a config has one for these keys, else under the first of them."""
    key, found = find_value(config, keys)
    place = key or _place(config, keys[0])
    wanted = _json_of(value, place)
    # -1 is no token, as null is.
    if (found is MISSING and (default or wanted in (None, -1))) or (found is None and wanted == -1):
        return
    if found is MISSING or found != wanted:
        _put(config, place, wanted)


def _json_of(value: object, key: str) -> object:
    if isinstance(value, tuple):
        return [_json_of(item, key) for item in value]
    if isinstance(value, DictValue):
        return {name: _json_of(item, name) for name, item in value.entries}
    if key in _DTYPE_KEYS and isinstance(value, str):
        element = find_in("module", value)
        return value if element is None else name_in("nac", element) or value
    return value


def _place(config: Mapping[str, object], key: str) -> str:
    """How a new key is spelled: as the config spells its neighbours, else as new files do."""
    ways = list(spellings(key))
    for way in ways:
        head, dot, _ = way.rpartition(".")
        if dot and isinstance(config.get(head), dict):
            return way
    return ways[0]


def _put(config: dict[str, object], key: str, value: object) -> None:
    if key in config:
        config[key] = value
        return
    # Checked first above: a key of a file may hold a dot itself.
    *folders, last = key.split(".")
    place = config
    for number, part in enumerate(folders):
        found = place.get(part)
        if not isinstance(found, dict):
            # RoPE values say of what kind they are; some models have some for each kind of layer.
            innermost = folders[0] == "rope_parameters" and number == len(folders) - 1
            made: dict[str, object] = {"rope_type": "default"} if innermost else {}
            found = place[part] = made
        place = found
    place[last] = value


__all__ = ["Export", "ExportMapping", "ExportPlan", "export_folder", "plan_export", "write_config"]
