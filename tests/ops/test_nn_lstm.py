"""The LSTM of `nn`, judged by torch and onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import Array, filled
from tests.support.judges.harness import Result, near, run
from tests.support.judges.onnx_node import run_node
from tests.support.judges.registry import judged

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

Sizes = tuple[int, int, int, int]
SIZES = st.tuples(*(st.integers(1, 3),) * 4)
"""Steps, batch, input features, hidden features."""


def _weights(sizes: Sizes) -> list[Array]:
    steps, batch, features, hidden = sizes
    shapes = ((steps, batch, features), (4 * hidden, features), (4 * hidden, hidden), (4 * hidden,))
    states = ((batch, hidden),) * 2
    return [filled(shape, "float32", seed) / np.float32(4) for seed, shape in enumerate((*shapes, *states))]


def _by_torch(given_: Sequence[Array]) -> list[Array]:
    x, w, r, b, h, c = (torch.tensor(item) for item in given_)
    cell = torch.nn.LSTM(x.shape[2], h.shape[1])
    states = zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), (w, r, b, 0 * b), strict=True)
    cell.load_state_dict(dict(states))
    with torch.no_grad():
        outputs, (last, state) = cell(x, (h[None], c[None]))
    return [outputs.numpy(), last[0].numpy(), state[0].numpy()]


def _compare(found: Sequence[Result], expected: Sequence[Array]) -> None:
    for actual, wanted in zip(found, expected, strict=True):
        assert isinstance(actual, np.ndarray)
        near(actual, wanted)


@judged("torch", "nn.lstm", "nn.lstm_loop")
@given(SIZES)
def test_lstm(sizes: Sizes) -> None:
    given_ = _weights(sizes)
    _compare(run("nn.lstm", given_), _by_torch(given_))
    _compare(run("nn.lstm_loop", given_), _by_torch(given_))


@judged("torch", "nn.lstm")
@given(SIZES)
def test_lstm_begins_at_zero(sizes: Sizes) -> None:
    given_ = _weights(sizes)
    _compare(run("nn.lstm", given_[:4]), _by_torch([*given_[:4], 0 * given_[4], 0 * given_[5]]))


@judged("torch", "nn.lstm_step")
@given(SIZES)
def test_lstm_step(sizes: Sizes) -> None:
    x, w, r, b, h, c = _weights((1, *sizes[1:]))
    _compare(run("nn.lstm_step", (h, c, x[0], w, r, b)), _by_torch((x, w, r, b, h, c))[1:])


@judged("torch", "nn.lstm_loop")
@given(SIZES, st.data())
def test_first_steps(sizes: Sizes, data: st.DataObject) -> None:
    given_ = _weights(sizes)
    steps = data.draw(st.integers(1, sizes[0]))
    expected = _by_torch([given_[0][:steps], *given_[1:]])
    _compare(run("nn.lstm_loop", (*given_, np.array(steps))), expected)


def _stacked(weights: Array) -> Array:
    """Gates in the order of ONNX: input, output, forget, cell."""
    gates = np.split(weights, 4)
    return np.concatenate([gates[0], gates[3], gates[1], gates[2]])[None]


@judged("onnxruntime", "nn.lstm")
@given(SIZES, st.data())
def test_lengths(sizes: Sizes, data: st.DataObject) -> None:
    """Sequences of their own lengths; the result is as long as the longest."""
    steps, batch, _, hidden = sizes
    x, w, r, b, h, c = _weights(sizes)
    lengths = np.array([data.draw(st.integers(1, steps)) for _ in range(batch)])
    bias = np.concatenate([_stacked(b), np.zeros((1, 4 * hidden), np.float32)], axis=1)
    given_ = (x, _stacked(w), _stacked(r), bias, lengths.astype(np.int32), h[None], c[None])
    outputs, last, state = run_node("LSTM", given_, 3, hidden_size=hidden)
    expected = (outputs[: lengths.max(), 0], last[0], state[0])
    _compare(run("nn.lstm", (x, w, r, b, h, c, lengths)), expected)
