"""Conversion of weights: quantised, measured, moved into a file or beside it; all other sections stay as they are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, cast, element_type_of
from lamella.base.diagnostic import Diagnostic, LamellaError, errors, printable
from lamella.base.dtype import F32
from lamella.base.errors import InputError
from lamella.base.limits import ceil_divide
from lamella.base.paths import shown
from lamella.base.source import NOWHERE
from lamella.bridge.nac_to_graph.weights import (
    ENDING,
    KEY,
    check_shape,
    companion,
    digest_of,
    find_unmatched_tensors,
    image_of,
    note_elements,
    original_shape,
    own_weights,
    pair,
    part,
    read_stored,
    read_weight,
    store_weight,
    write_entries,
)
from lamella.graph.data import write_safetensors
from lamella.lang.nac.check.data import DTYPES, INT8, check_parameters, check_tensor, check_tensors
from lamella.lang.nac.check.tables import read_tables
from lamella.lang.nac.nodes import V1_6, BlockFp8, File, Int8Channel, Int8Tensor, Method, Quantization, Tensor
from lamella.lang.nac.rules import data as rules
from lamella.lang.nac.rules import graphs
from lamella.lang.nac.write import find_unwritable

# --- quantisation in the arithmetic of the public compiler: float32 throughout, halves to even --------------


BLOCK = 64
"""Elements of a block."""
_LARGEST = np.float32(127)
_TINY = np.float32(1e-9)
"""The scale of a tensor or a channel of zeros."""


def quantise(values: Array, method: Method, parameter: int = 0, axis: int = 0, block: int = BLOCK) -> Tensor:
    """The tensor of an array under a method; LamellaError: there is no such axis, or no code for the elements.

    What a method cannot say is stored as it is: elements that are not floating, or not finite, or that a half cannot
    hold. INT8_CHANNEL gives arrays of one axis or none a single scale.
    """
    plain = store_weight(values, parameter)
    if plain is None:
        finding = graphs.WEIGHT_ELEMENTS.at(NOWHERE, name=f"id {parameter}", found=values.dtype)
        raise LamellaError([finding])
    element = element_type_of(values.dtype)
    if method is Method.NONE or element is None or not element.is_float:
        return plain
    if method is Method.FP16:
        return _halve(values, parameter) or plain
    single = cast(values, types.F32) if element != types.F32 else values
    return _to_codes(single, method, parameter, axis, block) or plain


def _halve(values: Array, parameter: int) -> Tensor | None:
    """Halves, unless a finite number is too large for them."""
    halves = cast(values, types.F16)
    lost = np.isinf(halves) & ~np.isinf(values)
    return None if lost.any() else store_weight(halves, parameter)


def _to_codes(values: Array, method: Method, parameter: int, axis: int, block: int) -> Tensor | None:
    """Codes of 8 bits and their scales; None for numbers that are not finite."""
    if method is Method.BLOCK_FP8:
        return _quantise_blocks(values, parameter, block)
    whole = method is Method.INT8_TENSOR or values.ndim <= 1
    if not whole and not 0 <= axis < values.ndim:
        what = f"the tensor of parameter {parameter}"
        raise LamellaError([rules.AXIS_RANGE.at(NOWHERE, what=what, axis=axis, rank=values.ndim)])
    others = tuple(index for index in range(values.ndim) if whole or index != axis)
    scales = _scales_over(values, others, _TINY)
    if not np.isfinite(scales).all():
        return None
    found: Quantization = (
        Int8Tensor(float(scales.reshape(()))) if whole else Int8Channel(axis, bytes(image_of(scales)))
    )
    return _tensor(parameter, _codes(values, scales, -127), found)


def _quantise_blocks(values: Array, parameter: int, block: int) -> Tensor | None:
    """Codes of the flattened array, filled up with zeros to whole blocks."""
    count = ceil_divide(values.size, block)
    blocks = np.zeros((count, block), np.float32)
    blocks.reshape(-1)[: values.size] = values.reshape(-1)
    scales = _scales_over(blocks, (1,), np.float32(1))
    if not np.isfinite(scales).all():
        return None
    found = BlockFp8(block, values.shape, bytes(image_of(scales)))
    return _tensor(parameter, _codes(blocks, scales, -128).reshape(-1), found)


def _scales_over(values: Array, axes: Sequence[int], of_zeros: np.float32) -> Array:
    """The largest size along some axes for code 127; where that is no number above zero, another scale."""
    highest = values.max(axis=tuple(axes), initial=0, keepdims=True)
    lowest = values.min(axis=tuple(axes), initial=0, keepdims=True)
    scales = np.asarray(np.maximum(highest, -lowest) / _LARGEST)
    return np.where(scales == 0, of_zeros, scales)


def _codes(values: Array, scales: Array, least: int) -> Array:
    steps = np.asarray(values / scales)
    np.rint(steps, out=steps)
    np.clip(steps, least, 127, out=steps)
    return steps.astype(np.int8)


def _tensor(parameter: int, codes: Array, quantization: Quantization) -> Tensor:
    return Tensor(parameter, INT8, codes.shape, quantization, image_of(codes))


# --- what quantisation costs: the error of each tensor and of a whole file ----------------------------------


_CHUNK = 1 << 20
"""Elements that are compared at a time, so that doubles of a large tensor do not fill the memory."""


@dataclass(frozen=True, slots=True)
class WeightError:
    """How far the stored numbers of a tensor are from the original ones.

    `stored` names the method, or the element type of what is not quantised; `before` and `after` count bytes, scales
    included; `largest` and `relative` are maxima of |w' - w| and of |w' - w| / |w| (w not 0); `total`, `signal` and
    `noise` are sums of |w' - w|, of w² and of (w' - w)².
    """

    name: str
    stored: str
    shape: tuple[int, ...]
    before: int
    after: int
    largest: float = 0.0
    relative: float = 0.0
    total: float = 0.0
    signal: float = 0.0
    noise: float = 0.0

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def mean(self) -> float:
        """The mean of |w' - w|."""
        return self.total / self.count if self.count else 0.0

    @property
    def sqnr(self) -> float:
        """The ratio of signal to quantisation noise in decibels; infinite where nothing is lost."""
        return _decibels(self.signal, self.noise)


@dataclass(frozen=True, slots=True)
class QuantisationReport:
    """The errors of all tensors of a file."""

    method: Method
    tensors: tuple[WeightError, ...]

    @property
    def before(self) -> int:
        """Bytes of the weights as they were."""
        return sum(item.before for item in self.tensors)

    @property
    def after(self) -> int:
        """Bytes of the weights and scales as they are stored."""
        return sum(item.after for item in self.tensors)

    @property
    def worst(self) -> WeightError | None:
        """The tensor with the largest error of an element, the first of several."""
        return max(self.tensors, key=lambda item: item.largest, default=None)

    @property
    def relative(self) -> float:
        """The largest relative error of an element."""
        return max((item.relative for item in self.tensors), default=0.0)

    @property
    def mean(self) -> float:
        """The mean error of all elements."""
        count = sum(item.count for item in self.tensors)
        return sum(item.total for item in self.tensors) / count if count else 0.0

    @property
    def sqnr(self) -> float:
        """The ratio of signal to quantisation noise of all elements in decibels."""
        return _decibels(
            math.fsum(item.signal for item in self.tensors), math.fsum(item.noise for item in self.tensors)
        )


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal else -math.inf


def measure(name: str, original: Array, tensor: Tensor, method: Method = Method.NONE) -> WeightError:
    """The error of a tensor beside the array that it was made of; `method` is that of the file."""
    stored = _stored_as(tensor)
    sizes = original.nbytes, len(tensor.data) + _scale_bytes(tensor)
    shape = original_shape(tensor)
    if stored == str(original.dtype):
        return WeightError(name, stored, shape, *sizes)
    wanted, found = original.reshape(-1), read_weight(tensor, method).reshape(-1)
    parts = [
        _compare(wanted[at : at + _CHUNK], found[at : at + _CHUNK]) for at in range(0, wanted.size, _CHUNK)
    ]
    largest = max((part[0] for part in parts), default=0.0)
    relative = max((part[1] for part in parts), default=0.0)
    sums = (math.fsum(part[index] for part in parts) for index in (2, 3, 4))
    return WeightError(name, stored, shape, *sizes, largest, relative, *sums)


def _stored_as(tensor: Tensor) -> str:
    method = tensor.quantization.method
    return DTYPES[tensor.dtype][0] if method is Method.NONE else method.name


def _scale_bytes(tensor: Tensor) -> int:
    """Bytes of the scales of a tensor."""
    scales = getattr(tensor.quantization, "scales", None)
    if scales is not None:
        return len(scales)
    return 4 if tensor.quantization.method is Method.INT8_TENSOR else 0


def _compare(wanted: Array, found: Array) -> Sequence[float]:
    """Largest and largest relative error, and the sums of errors, of squares and of squared errors.

    What is not finite has no error where it is kept, and no signal.
    """
    exact, given = wanted.astype(np.float64), found.astype(np.float64)
    same = (exact == given) | (np.isnan(exact) & np.isnan(given))
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.where(same, 0.0, np.abs(given - exact))
        signal = np.where(np.isfinite(exact), exact, 0.0)
        beside = errors[signal != 0] / np.abs(signal[signal != 0])
        squares = float(np.sum(signal * signal)), float(np.sum(errors * errors))
        return float(errors.max()), float(beside.max(initial=0.0)), float(np.sum(errors)), *squares


def report_lines(report: QuantisationReport) -> list[str]:
    """A report as people read it: a line for each tensor, then the whole file."""
    rows: list[tuple[str, ...]] = [("tensor", "stored", "bytes", "max abs", "max rel", "mean", "SQNR dB")]
    rows += [
        (printable(item.name, 80), item.stored, *_numbers(item, item.largest)) for item in report.tensors
    ]
    worst = report.worst
    rows.append(("all", report.method.name, *_numbers(report, worst.largest if worst else 0.0)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), *_right(row[2:], widths[2:])])
        for row in rows
    ]


def _numbers(item: WeightError | QuantisationReport, largest: float) -> tuple[str, ...]:
    errors = (f"{value:.3g}" for value in (largest, item.relative, item.mean))
    return (str(item.after), *errors, f"{item.sqnr:.1f}")


def _right(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]


class Converted(NamedTuple):
    """A file with other weights, and what was doubtful about them."""

    file: File
    findings: tuple[Diagnostic, ...]


class Quantised(NamedTuple):
    """A file with quantised weights, and what that costs."""

    file: File
    report: QuantisationReport


def with_internal(file: File, weights: Mapping[str, Array | Tensor]) -> Converted:
    """The file with these weights in it, by the names of its parameters; LamellaError holds what does not fit.

    Parameters that are not named keep the weights that they have in the file. Arrays are stored as the weights were in
    whose place they come, else by the method of the file; tensors as they are.
    """
    own = own_weights(file).tensors
    findings = list(find_unmatched_tensors(file, weights, NOWHERE))
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
        raise LamellaError([graphs.WEIGHT_ELEMENTS.at(NOWHERE, name=name, found=dtype)])
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
    return LamellaError([graphs.WEIGHT_TYPE.at(NOWHERE, name=name, dtype=wanted, found=found)])


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
    return Quantised(note_elements(stored, elements), QuantisationReport(method, tuple(measured)))
