"""Weights beside a file: `NAME.safetensors` beside `NAME.nac`, read without trust."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import STANDARD_INPUT, Mapped, map_bytes, map_bytes_in, shown
from lamella.base.source import Binary, Span
from lamella.bridge.nac_to_graph.weights.arrays import original_shape, store_weight
from lamella.bridge.nac_to_graph.weights.metadata import read_entries
from lamella.bridge.nac_to_graph.weights.pairing import check_pair
from lamella.graph.data import decode_store
from lamella.lang.nac.check.data import INT8, check_tensor, show_shape
from lamella.lang.nac.nodes import File, Method, Parameter, Quantization, Tensor, Unscaled
from lamella.lang.nac.rules import graphs as rules

ENDING = ".safetensors"
_MOST_FINDINGS = 1000
"""Findings of one kind: the weights of another model may lack every name."""
_CODED = (Method.INT8_TENSOR, Method.INT8_CHANNEL, Method.BLOCK_FP8)


class Weights(NamedTuple):
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


def find_weights(file: File, path: Path, limits: Limits = DEFAULT) -> Weights:
    """The tensors of a file's parameters, wherever they are; `path` is that of the file."""
    return own_weights(file) if file.header.internal else read_external(file, path, limits)


def own_weights(file: File) -> Weights:
    """The tensors that stand in a file itself, by name; `check` says what is wrong with them."""
    stored = {item.parameter: item for item in reversed(file.tensors)}
    return Weights({item.name: stored[item.id] for item in file.parameters if item.id in stored}, ())


def read_external(file: File, path: Path, limits: Limits = DEFAULT) -> Weights:
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
    findings = [*entries.findings, *find_strangers(file, arrays, place)]
    findings += () if named else check_pair(file, metadata, place)
    reading = _Reading(file, entries.found, place)
    tensors: dict[str, Tensor] = {}
    for parameter in file.parameters:
        if parameter.name in arrays:
            problems, tensor = reading.read(parameter, arrays[parameter.name])
            findings += problems
            if tensor is not None and not errors(problems):
                tensors[parameter.name] = tensor
    return Weights(MappingProxyType(tensors), tuple(findings), mapped)


def find_strangers(file: File, given: Mapping[str, object], place: Span) -> Iterator[Diagnostic]:
    """Parameters without weights, in neither place, and weights without a parameter."""
    own = own_weights(file).tensors
    names = dict.fromkeys(item.name for item in file.parameters)
    lacking = [name for name in names if name not in given and name not in own]
    for name in islice(lacking, _MOST_FINDINGS):
        yield rules.WEIGHT_MISSING.at(place, name=name, count=len(given))
    for name in islice((name for name in given if name not in names), _MOST_FINDINGS):
        yield rules.WEIGHT_UNUSED.at(place, name=name)


def check_shape(name: str, tensor: Tensor, own: Tensor | None) -> Iterator[Diagnostic]:
    """Weights have the shape of those in whose place they come."""
    if own is not None and original_shape(own) != original_shape(tensor):
        shape, found = show_shape(original_shape(own)), show_shape(original_shape(tensor))
        yield rules.WEIGHT_SHAPE.at(tensor.span, name=name, shape=shape, found=found)


class _Reading:
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
            return [rules.WEIGHT_ELEMENTS.at(self._place, name=name, found=values.dtype)], None
        quantization = self._entries.get(name, Unscaled())
        if quantization is None:
            return [], None
        if plain.dtype == INT8 and not self._entries and self._method in _CODED:
            return [rules.CODES_WITHOUT_SCALE.at(self._place, name=name, method=self._method.name)], None
        tensor = replace(plain, quantization=quantization, span=self._place)
        findings = list(check_tensor(tensor, f"parameter '{name}'", self._method))
        if not errors(findings):
            findings += check_shape(name, tensor, self._own.get(name))
        return findings, tensor
