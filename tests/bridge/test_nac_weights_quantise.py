"""Quantisation beside its formulas, computed element by element, and the report of what it costs."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, errors
from lamella.bridge.nac_to_graph.convert_weights import (
    QuantisationReport,
    measure,
    quantise,
    quantise_file,
    report_lines,
)
from lamella.bridge.nac_to_graph.weights import read_weight
from lamella.lang.nac import check, parse, write
from lamella.lang.nac import nodes as n
from lamella.lang.nac.check.data import check_tensor
from tests.support.bridge.nac_numbers import TYPES, code_of, decibels, drawn, flat, scale_of, tensor_of
from tests.support.lang.nac.models import perceptron

METHODS = st.sampled_from(n.Method)
FLOATS = st.sampled_from(["float32", "float64", "float16", "bfloat16"])


def codes_in(tensor: n.Tensor) -> list[int]:
    return [byte - 256 * (byte > 127) for byte in bytes(tensor.data)]


def scales_in(data: n.Data) -> list[float]:
    return [scale for (scale,) in struct.iter_unpack("<f", data)]


@given(FLOATS.flatmap(drawn))
def test_halves(values: Array) -> None:
    made = quantise(values, n.Method.FP16, 5)
    with np.errstate(over="ignore"):
        wanted = values.astype(np.float64).astype(np.float16)
    if np.isinf(wanted).any():
        assert bytes(made.data) == values.tobytes()
    else:
        assert (made.parameter, made.dtype, made.quantization) == (5, 2, n.Unscaled())
        assert bytes(made.data) == wanted.tobytes()


@given(drawn())
def test_one_scale_for_a_tensor(values: Array) -> None:
    made = quantise(values, n.Method.INT8_TENSOR)
    scale = scale_of(flat(values), 1e-9)
    assert (made.dtype, made.shape, made.quantization) == (7, values.shape, n.Int8Tensor(scale))
    assert codes_in(made) == [code_of(value, scale, -127) for value in flat(values)]


@given(drawn(least=2), st.data())
def test_one_scale_for_each_index_of_an_axis(values: Array, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, values.ndim - 1))
    made = quantise(values, n.Method.INT8_CHANNEL, axis=axis)
    parts = [flat(values.take(index, axis)) for index in range(values.shape[axis])]
    scales = [scale_of(part, 1e-9) for part in parts]
    assert isinstance(made.quantization, n.Int8Channel)
    assert (made.quantization.axis, scales_in(made.quantization.scales)) == (axis, scales)
    wanted = [code_of(float(values[at]), scales[at[axis]], -127) for at in np.ndindex(values.shape)]
    assert codes_in(made) == wanted


@given(drawn(most=1))
def test_small_tensors_have_one_scale_in_all(values: Array) -> None:
    assert quantise(values, n.Method.INT8_CHANNEL, axis=3) == quantise(values, n.Method.INT8_TENSOR)


@given(drawn(), st.sampled_from([1, 7, 64]))
def test_one_scale_for_each_block(values: Array, block: int) -> None:
    made = quantise(values, n.Method.BLOCK_FP8, block=block)
    numbers = flat(values) + [0.0] * (-values.size % block)
    parts = [numbers[at : at + block] for at in range(0, len(numbers), block)]
    scales = [scale_of(part, 1.0) for part in parts]
    assert isinstance(made.quantization, n.BlockFp8)
    assert (made.shape, made.quantization.shape) == ((len(numbers),), values.shape)
    assert (made.quantization.block_size, scales_in(made.quantization.scales)) == (block, scales)
    wanted = [code_of(v, s, -128) for part, s in zip(parts, scales, strict=True) for v in part]
    assert codes_in(made) == wanted


def test_ties_go_to_even_codes() -> None:
    values = np.array([127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5], np.float32)
    assert codes_in(quantise(values, n.Method.INT8_TENSOR)) == [127, 0, 2, 2, 0, -2, -2, 126]


@given(st.lists(st.integers(-300, 300), min_size=1, max_size=9))
def test_codes_are_clamped_where_scales_are_rounded_coarsely(steps: list[int]) -> None:
    """Below 2**-126 a scale has few bits, and the largest number may lie far beyond code 127."""
    values = np.array(steps, np.float64).astype(np.float32) * np.float32(2.0**-149)
    for method, least, of_zeros in ((n.Method.INT8_TENSOR, -127, 1e-9), (n.Method.BLOCK_FP8, -128, 1.0)):
        made = quantise(values, method)
        scale = scale_of(flat(values), of_zeros)
        wanted = [code_of(value, scale, least) for value in flat(values)]
        assert codes_in(made)[: len(steps)] == wanted


def test_the_lowest_codes() -> None:
    values = np.array([-190, 190], np.float32) * np.float32(2.0**-149)
    assert codes_in(quantise(values, n.Method.INT8_TENSOR)) == [-127, 127]
    assert codes_in(quantise(values, n.Method.BLOCK_FP8))[:2] == [-128, 127]


def test_the_scales_of_zeros() -> None:
    zeros = np.zeros((2, 3), np.float32)
    tiny = float(np.float32(1e-9))
    assert quantise(zeros, n.Method.INT8_TENSOR).quantization == n.Int8Tensor(tiny)
    assert quantise(zeros, n.Method.INT8_CHANNEL).quantization == n.Int8Channel(
        0, struct.pack("<2f", tiny, tiny)
    )
    assert quantise(zeros, n.Method.BLOCK_FP8).quantization == n.BlockFp8(64, (2, 3), struct.pack("<f", 1.0))
    # 2**-149 / 127 is zero in single precision as well
    least = np.full((2, 3), 2.0**-149, np.float32)
    assert quantise(least, n.Method.INT8_TENSOR).quantization == n.Int8Tensor(tiny)


@given(FLOATS.flatmap(drawn), METHODS)
def test_what_is_made_is_right_and_near(values: Array, method: n.Method) -> None:
    made = quantise(values, method)
    assert not errors(check_tensor(made, "it", method))
    assert not list(check_tensor(made, "it", method))
    found, wanted = read_weight(made, method), values.astype(np.float64)
    assert found.shape == values.shape
    largest = np.abs(wanted).max(initial=0.0)
    step = {n.Method.NONE: 0.0, n.Method.FP16: 2.0**-11}.get(method, 0.51 / 127)
    assert (np.abs(found.astype(np.float64) - wanted) <= step * largest + 2.0**-25).all()


@given(drawn(), METHODS)
def test_what_was_quantised_is_quantised_to_itself(values: Array, method: n.Method) -> None:
    once = read_weight(quantise(values, method), method)
    twice = read_weight(quantise(once, method), method)
    assert np.allclose(once, twice, rtol=1e-6, atol=0)


@pytest.mark.parametrize("method", n.Method)
@pytest.mark.parametrize("dtype", TYPES[4:])
def test_what_is_not_floating_stays(dtype: str, method: n.Method) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype)
    assert quantise(values, method, 1) == tensor_of(values)


@pytest.mark.parametrize("method", [n.Method.INT8_TENSOR, n.Method.INT8_CHANNEL, n.Method.BLOCK_FP8])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e300])
def test_what_is_not_finite_stays(value: float, method: n.Method) -> None:
    values = np.array([[1.0, value], [2.0, 3.0]])
    assert quantise(values, method, 1) == tensor_of(values)


def test_masks_become_halves_and_numbers_beyond_them_stay() -> None:
    mask = np.array([0.0, -math.inf, math.nan], np.float32)
    assert quantise(mask, n.Method.FP16).dtype == 2
    large = np.array([65520.0], np.float32)
    assert quantise(large, n.Method.FP16).dtype == 0
    assert quantise(large - 1, n.Method.FP16).dtype == 2


def test_axes_that_are_not_there_and_types_without_code() -> None:
    with pytest.raises(LamellaError, match="NAC145"):
        quantise(np.ones((2, 2), np.float32), n.Method.INT8_CHANNEL, axis=2)
    with pytest.raises(LamellaError, match="NAC145"):
        quantise(np.ones((2, 2), np.float32), n.Method.INT8_CHANNEL, axis=-1)
    with pytest.raises(LamellaError, match="NAC155"):
        quantise(np.ones(2, np.complex64), n.Method.FP16)


@given(FLOATS.flatmap(drawn), METHODS)
def test_errors_are_measured_as_they_are_defined(values: Array, method: n.Method) -> None:
    made = quantise(values, method)
    measured = measure("w", values, made, method)
    wanted, found = flat(values), flat(read_weight(made, method))
    distances = [abs(a - b) for a, b in zip(wanted, found, strict=True)]
    beside = [d / abs(a) for d, a in zip(distances, wanted, strict=True) if a]
    assert measured.largest == max(distances, default=0.0)
    assert measured.relative == max(beside, default=0.0)
    assert measured.mean == pytest.approx(math.fsum(distances) / max(len(wanted), 1), rel=1e-12)
    assert measured.sqnr == pytest.approx(decibels(wanted, found), rel=1e-9)
    assert measured.before == values.nbytes


def test_large_tensors_are_measured_in_parts() -> None:
    values = np.linspace(-1, 1, (1 << 21) + 5, dtype=np.float32)
    measured = measure("w", values, quantise(values, n.Method.BLOCK_FP8))
    wanted = read_weight(quantise(values, n.Method.BLOCK_FP8)).astype(np.float64) - values
    assert measured.largest == np.abs(wanted).max()
    assert measured.mean == pytest.approx(np.abs(wanted).mean(), rel=1e-9)
    assert measured.sqnr == pytest.approx(
        10 * math.log10((values.astype(float) ** 2).sum() / (wanted**2).sum())
    )


def test_what_is_not_finite_is_no_error_where_it_is_kept() -> None:
    values = np.array([1.0, -math.inf, math.nan, 1 / 3], np.float32)
    measured = measure("w", values, quantise(values, n.Method.FP16), n.Method.FP16)
    assert measured.largest == abs(float(np.float16(values[3])) - float(values[3]))
    assert measured.stored == "float16"


def weighted() -> n.File:
    """A file whose tensors are of several types."""
    generator = np.random.default_rng(7)
    weight = generator.normal(size=(3, 2)).astype(np.float32)
    header = n.Header(internal=True, inputs=1, outputs=1, d_model=3)
    bias = tensor_of(np.array([1.0, 1 / 3, -5.0], np.float32))
    return replace(perceptron(), header=header, tensors=(tensor_of(weight), replace(bias, parameter=2)))


@pytest.mark.parametrize("method", n.Method)
def test_a_whole_file_and_its_report(method: n.Method) -> None:
    file, report = quantise_file(weighted(), method)
    again = parse(write(file))
    assert not again.findings
    assert not check(again.file)
    assert (again.file, file.header.method) == (file, method)
    arrays = [
        [flat(read_weight(item, made.header.method)) for item in made.tensors] for made in (weighted(), file)
    ]
    wanted, found = ([number for part in parts for number in part] for parts in arrays)
    assert report.sqnr == pytest.approx(decibels(wanted, found))
    distances = [abs(a - b) for a, b in zip(wanted, found, strict=True)]
    assert report.worst is not None
    assert report.worst.largest == max(distances)
    assert report.mean == pytest.approx(sum(distances) / 9)
    assert report.before == 36
    sizes = {"NONE": 36, "FP16": 18, "INT8_TENSOR": 9 + 8, "INT8_CHANNEL": 9 + 12 + 4, "BLOCK_FP8": 128 + 8}
    assert report.after == sizes[method.name]
    lines = report_lines(report)
    assert len(lines) == 4
    assert [line.split()[0] for line in lines] == ["tensor", "fc.weight", "fc.bias", "all"]
    assert len({len(line) for line in lines}) == 1


def test_a_quantised_file_is_made_single_again() -> None:
    file, report = quantise_file(perceptron(), n.Method.NONE)
    assert report.sqnr == math.inf
    assert [item.dtype for item in file.tensors] == [0, 0]
    assert read_weight(file.tensors[0]).tolist() == [[0, 0.5], [2, 3], [8, 10]]


def test_a_file_without_tensors_has_an_empty_report() -> None:
    report = QuantisationReport(n.Method.FP16, ())
    assert (report.before, report.mean, report.relative, report.worst, report.sqnr) == (
        0,
        0,
        0,
        None,
        math.inf,
    )
    assert len(report_lines(report)) == 2


def test_weights_that_stand_elsewhere_are_taken_in_first() -> None:
    with pytest.raises(LamellaError, match="stand outside"):
        quantise_file(n.File(), n.Method.FP16)
