"""Codes of weights: nearest where they are rounded, and better than nearest where inputs are correlated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.pipeline.quantize.weights import (
    CHANNEL,
    GROUP,
    TENSOR,
    Granularity,
    as_rows,
    from_rows,
    gptq_weight,
    round_weight,
)

SHAPES = ((6, 8), (4, 3, 3, 3), (5, 7), (1, 4), (3, 1))
GRAINS = (Granularity(TENSOR), Granularity(CHANNEL), Granularity(GROUP, 4))


@given(st.integers(0, 2**32), st.sampled_from(SHAPES), st.data())
def test_rows_and_back(seed: int, shape: tuple[int, ...], data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, len(shape) - 1))
    tensor = np.random.default_rng(seed).normal(size=shape)
    matrix = as_rows(tensor, rows)
    assert matrix.shape[0] == shape[rows]
    assert np.array_equal(from_rows(matrix, shape, rows), tensor)


@given(st.integers(0, 2**32), st.sampled_from(SHAPES), st.sampled_from(GRAINS), st.sampled_from([4, 8]))
def test_codes_are_the_nearest(seed: int, shape: tuple[int, ...], per: Granularity, bits: int) -> None:
    tensor = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    found = round_weight(tensor, 0, bits, per)
    matrix, scales = as_rows(tensor, 0), np.broadcast_to(found.spread_scales(), as_rows(tensor, 0).shape)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    wanted = np.clip(np.rint(matrix / scales), low, high)
    assert np.array_equal(as_rows(found.codes, 0), wanted)
    assert np.allclose(as_rows(found.values(), 0), wanted * scales, rtol=1e-6)
    assert len(np.unique(scales)) <= {TENSOR: 1, CHANNEL: shape[0]}.get(per.kind, tensor.size)
    if bits == 8:  # the widest scales cut nothing off
        assert np.all(np.abs(found.values() - tensor) <= found.spread_scales().max() * 0.501)


def test_scales_say_what_the_other_layers_are_told() -> None:
    tensor = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    assert len(round_weight(tensor, 0, 8, Granularity(CHANNEL)).quant.scales) == 3  # type: ignore[union-attr]
    assert round_weight(tensor, 0, 8, Granularity(TENSOR)).quant.scale > 0  # type: ignore[union-attr]
    assert round_weight(tensor, 0, 4, Granularity(GROUP, 2)).quant is None


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("per", GRAINS, ids=str)
def test_gptq_beats_rounding_on_correlated_inputs(seed: int, per: Granularity) -> None:
    random = np.random.default_rng(seed)
    mixed = random.normal(size=(24, 24)) @ np.diag(np.linspace(0.05, 2.0, 24))
    inputs = random.normal(size=(300, 24)) @ mixed
    weight = random.normal(size=(12, 24)).astype(np.float32)
    exact = inputs @ weight.T.astype(np.float64)
    moments = inputs.T @ inputs

    def lost(values: np.ndarray) -> float:
        return float(np.square(inputs @ values.T.astype(np.float64) - exact).sum())

    plain, better = round_weight(weight, 0, 4, per), gptq_weight(weight, 0, 4, per, moments)
    assert lost(better.values()) < 0.8 * lost(plain.values())
    turned = gptq_weight(np.ascontiguousarray(weight.T), 1, 4, per, moments)
    assert np.array_equal(turned.codes.T, better.codes)


def test_gptq_leaves_inputs_without_correlation_as_they_are() -> None:
    weight = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)
    plain = round_weight(weight, 0, 4, Granularity())
    assert np.array_equal(gptq_weight(weight, 0, 4, Granularity(), np.eye(8)).codes, plain.codes)
    assert np.array_equal(
        gptq_weight(weight, 0, 4, Granularity(), np.full((8, 8), np.nan)).codes, plain.codes
    )
