"""Files with other weights, or with the same ones elsewhere: code and all other sections stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array, cast, element_type_of
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.dtype import F32
from lamella.base.errors import InputError
from lamella.base.paths import shown
from lamella.base.source import NOWHERE
from lamella.bridge.nac_to_graph.weights.arrays import image_of, read_stored, read_weight, store_weight
from lamella.bridge.nac_to_graph.weights.external import (
    ENDING,
    check_shape,
    companion,
    find_strangers,
    own_weights,
)
from lamella.bridge.nac_to_graph.weights.metadata import write_entries
from lamella.bridge.nac_to_graph.weights.pairing import KEY, digest_of, note_elements, pair, part
from lamella.bridge.nac_to_graph.weights.quantise import BLOCK, quantise
from lamella.bridge.nac_to_graph.weights.report import Report, measure
from lamella.graph.data import write_safetensors
from lamella.lang.nac.check.data import DTYPES, check_parameters, check_tensor, check_tensors
from lamella.lang.nac.check.tables import read_tables
from lamella.lang.nac.nodes import V1_6, BlockFp8, File, Int8Channel, Method, Tensor
from lamella.lang.nac.rules import graphs as rules
from lamella.lang.nac.write import find_unwritable


class Converted(NamedTuple):
    """A file with other weights, and what was doubtful about them."""

    file: File
    findings: tuple[Diagnostic, ...]


class Quantised(NamedTuple):
    """A file with quantised weights, and what that costs."""

    file: File
    report: Report


def with_internal(file: File, weights: Mapping[str, Array | Tensor]) -> Converted:
    """The file with these weights in it, by the names of its parameters; LamellaError holds what does not fit.

    Parameters that are not named keep the weights that they have in the file. Arrays are stored as the weights were in
    whose place they come, else by the method of the file; tensors as they are.
    """
    own = own_weights(file).tensors
    findings = list(find_strangers(file, weights, NOWHERE))
    tensors: dict[int, Tensor] = {item.parameter: item for item in file.tensors}
    for parameter in file.parameters:
        if parameter.name in weights:
            given = weights[parameter.name]
            try:
                made = _made(parameter.name, given, own.get(parameter.name), file.header.method)
                tensors[parameter.id] = replace(made, parameter=parameter.id)
            except LamellaError as problem:
                findings += problem.findings
    if errors(findings):
        raise LamellaError(findings)
    header = replace(file.header, internal=True)
    whole = replace(part(file), header=header, tensors=tuple(tensors.values()))
    return Converted(whole, tuple(findings))


def _made(name: str, given: Array | Tensor, own: Tensor | None, method: Method) -> Tensor:
    """The tensor that comes in the place of another, where there is one."""
    tensor = given if isinstance(given, Tensor) else store_weight(given)
    if tensor is None:
        dtype = None if isinstance(given, Tensor) else given.dtype
        raise LamellaError([rules.WEIGHT_ELEMENTS.at(NOWHERE, name=name, found=dtype)])
    _refuse(check_tensor(tensor, f"parameter '{name}'", method))
    _refuse(check_shape(name, tensor, own))
    if isinstance(given, Tensor):
        return given
    return quantise(given, method) if own is None else _like(name, given, own)


def _refuse(findings: Iterator[Diagnostic]) -> None:
    wrong = errors(findings)
    if wrong:
        raise LamellaError(wrong)


def _like(name: str, values: Array, own: Tensor) -> Tensor:
    """An array stored as another tensor is: in its element type, or with scales of the same kind."""
    quantization, method = own.quantization, own.quantization.method
    if method in (Method.NONE, Method.FP16):
        return _with_elements(name, values, own)
    element = element_type_of(values.dtype)
    if element is None or not element.is_float:
        raise _wrong_type(name, "float32", values.dtype)
    axis = quantization.axis if isinstance(quantization, Int8Channel) else 0
    block = quantization.block_size if isinstance(quantization, BlockFp8) else BLOCK
    return quantise(values, method, axis=axis, block=block)


def _with_elements(name: str, values: Array, own: Tensor) -> Tensor:
    """An array with the elements of another tensor; floating types are rounded, but not to infinity."""
    given, (wanted, element) = element_type_of(values.dtype), DTYPES[own.dtype]
    if given is None or (given != element and not (given.is_float and element.is_float)):
        raise _wrong_type(name, wanted, values.dtype)
    rounded = values if given == element else cast(values, element)
    if element.is_float and (np.isinf(rounded) & ~np.isinf(values)).any():
        raise _wrong_type(name, wanted, f"{values.dtype} with numbers beyond it")
    return Tensor(own.parameter, own.dtype, rounded.shape, own.quantization, image_of(rounded))


def _wrong_type(name: str, wanted: str, found: object) -> LamellaError:
    return LamellaError([rules.WEIGHT_TYPE.at(NOWHERE, name=name, dtype=wanted, found=found)])


def with_external(file: File, path: Path) -> File:
    """Write the weights of a file beside `path`, where the file is to lie, and give the file without them.

    Weights come first: the file, which the caller writes, tells whether they are its own. `path` may name the weights
    themselves; then a link there is written through, as one that only lies beside a file is not. LamellaError: it has
    no weights of its own, something is wrong with them, or they or the file cannot be written; then what stood there
    before is still there.
    """
    if not file.header.internal:
        raise InputError("the weights of this file stand outside already", path=shown(path))
    _check_data(file)
    tensors = own_weights(file).tensors
    named, entries = path.suffix == ENDING, write_entries(tensors)
    digest = digest_of(tensors, entries)
    outside = replace(file, header=replace(file.header, internal=False), tensors=())
    made = outside if KEY in entries else pair(outside, digest)
    if file.header.version == V1_6:
        _refuse(iter(find_unwritable(made)))
    write_safetensors(
        path if named else companion(path),
        {name: read_stored(item) for name, item in tensors.items()},
        {KEY: digest, **entries},
        through_links=named,
    )
    return made


def _check_data(file: File) -> None:
    tables = read_tables(file)
    wrong = errors([*check_parameters(file, tables), *check_tensors(file, tables)])
    if wrong:
        raise LamellaError(wrong)


def quantise_file(file: File, method: Method, axis: int = 0) -> Quantised:
    """The file with its own weights under another method (NONE: as float32), and the errors of that.

    LamellaError as `with_external`; INT8_CHANNEL has its scales along `axis`, or the last one where there are fewer.
    """
    if not file.header.internal:
        raise InputError("the weights of this file stand outside", hint="take them in first")
    _check_data(file)
    names = {item.id: item.name for item in file.parameters}
    tensors, measured = [], []
    elements: dict[str, str] = {}
    for item in file.tensors:
        values = read_weight(item, file.header.method)
        element = element_type_of(values.dtype)
        if element is not None and element.is_float and element != F32:
            elements[names[item.parameter]] = element.name
        made = quantise(values, method, item.parameter, min(axis, max(values.ndim - 1, 0)))
        tensors.append(made)
        measured.append(measure(names[item.parameter], values, made, method))
    stored = replace(file, header=replace(file.header, method=method), tensors=tuple(tensors))
    return Quantised(note_elements(stored, elements), Report(method, tuple(measured)))
