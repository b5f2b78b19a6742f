"""Convolutions and transposed ones, which gather what their windows reach, against their definition in NumPy."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest

from lamella.backend.cpu import compile_program
from lamella.backend.executor.kernels import compile_graph
from lamella.backend.interpreter import compile_program as interpret
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.bridge.graph_to_kernels import graph_to_kernels, tiled
from lamella.lang.tensor import check, parse, write
from tests.support.bridge.launch_lists import compile_lists
from tests.support.bridge.operators.calls import Invocation, build, by_reference, call

DATA = {"NCX": (0, 1), "NXC": (0, -1), "XCN": (-1, -2)}
"""Where a tensor has its batch and its channels."""
FILTERS = {"NCX": (0, 1), "NXC": (0, -1), "XCN": (-1, -2), "CXN": (-1, 0)}


@dataclass(frozen=True, slots=True)
class Case:
    """A convolution, or a transposed one, in one layout."""

    transposed: bool
    batch: int
    groups: int
    channels: tuple[int, int]
    """Of a group, those that go in and those that come out."""
    extents: tuple[int, ...]
    filter: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    layout: str = "NCX"
    filters: str = "NCX"
    element: str = "f32"

    @property
    def room(self) -> tuple[int, ...]:
        """The extents of what comes out."""
        rank = len(self.extents)
        pads = [self.padding[k] + self.padding[k + rank] for k in range(rank)]
        spans = [(size - 1) * step + 1 for size, step in zip(self.filter, self.dilation, strict=True)]
        rows = zip(self.extents, self.stride, spans, pads, strict=True)
        if self.transposed:
            return tuple((size - 1) * step + span - pad for size, step, span, pad in rows)
        return tuple((size + pad - span) // step + 1 for size, step, span, pad in rows)

    def invocation(self) -> Invocation:
        """The call, with random numbers."""
        into, out = self.channels
        outer, inner = (into * self.groups, out) if self.transposed else (out * self.groups, into)
        image = _laid((self.batch, into * self.groups, *self.extents), DATA[self.layout])
        weights = _laid((outer, inner, *self.filter), FILTERS[self.filters])
        told = [f"{self.element} {' '.join(map(str, shape))} -2..2" for shape in (image, weights)]
        words = {"stride": self.stride, "dilation": self.dilation, "padding": self.padding}
        formats = {"data_format": self.layout, "filter_format": self.filters}
        operator = "nn.deconv" if self.transposed else "nn.conv"
        return call(operator, *told, groups=self.groups, **words, **formats)

    def judge(self, image: Array, weights: Array) -> Array:
        """The definition: each tap adds the products of what lies under it."""
        x = np.moveaxis(image, DATA[self.layout], (-2, -1)).astype(np.float64)
        w = np.moveaxis(weights, FILTERS[self.filters], (-2, -1)).astype(np.float64)
        into, out = self.channels
        found = np.zeros((*self.room, self.batch, out * self.groups))
        small, large = (self.extents, self.room) if self.transposed else (self.room, self.extents)
        for tap in product(*map(range, self.filter)):
            for place in product(*map(range, small)):
                where = tuple(
                    step * here + spread * at - pad
                    for step, here, spread, at, pad in zip(
                        self.stride, place, self.dilation, tap, self.padding, strict=False
                    )
                )
                if any(not 0 <= at < size for at, size in zip(where, large, strict=True)):
                    continue
                source, target = (place, where) if self.transposed else (where, place)
                for group in range(self.groups):
                    ins = slice(group * into, (group + 1) * into)
                    outs = slice(group * out, (group + 1) * out)
                    taps = w[tap][ins] if self.transposed else w[tap][outs].T
                    found[target][:, outs] += x[source][:, ins] @ taps
        return np.moveaxis(found, (-2, -1), DATA[self.layout])


def _laid(shape: Sequence[int], places: tuple[int, int]) -> list[int]:
    """A shape of batch, channels and extents in the order of a layout."""
    return list(np.moveaxis(np.empty(shape, np.bool_), (0, 1), places).shape)


def drawn(seed: int, count: int) -> list[Case]:
    """Random cases, each of which gives something."""
    chance = random.Random(seed)
    found: list[Case] = []
    while len(found) < count:
        rank = chance.choice((1, 2, 2, 3))
        most = 4 if rank == 3 else 7

        def sizes(low: int, high: int, length: int = rank) -> tuple[int, ...]:
            return tuple(chance.randint(low, high) for _ in range(length))

        case = Case(
            transposed=chance.random() < 0.7,
            batch=chance.randint(1, 2),
            groups=chance.choice((1, 1, 2)),
            channels=(chance.randint(2, 4), chance.choice((2, 3, 17))),
            extents=sizes(2, most),
            filter=sizes(1, 4 if rank < 3 else 3),
            stride=sizes(1, 3),
            dilation=sizes(1, 2),
            padding=sizes(0, 3, 2 * rank),
            layout=chance.choice(tuple(DATA)),
            filters=chance.choice(tuple(FILTERS)),
            element=chance.choice(("f32", "f32", "f64")),
        )
        if min(case.room) > 0:
            found.append(case)
    return found


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_random_windows_give_what_their_definition_says(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled, "FEWEST_STEPS", 1)
    compile_kernels = compile_program if backend == "cpu" else interpret
    products = 0
    for case in drawn(*((5, 5) if backend == "cpu" else (6, 14))):
        model, fed = build([case.invocation()])
        kernels = graph_to_kernels(model)
        text = write(kernels.program)
        assert all(item.severity == "note" for item in check(parse(Source("k.tensor", text)).program)), case
        products += "cooperative_matrix" in text
        (found,) = compile_graph(kernels, compile_kernels(kernels.program).call)(**fed).values()
        allowed = 1e-11 if case.element == "f64" else 2e-5
        expected = case.judge(*fed.values())
        np.testing.assert_allclose(found, expected, rtol=allowed, atol=10 * allowed, err_msg=str(case))
    assert products >= 2


SQUARE = Case(True, 1, 1, (8, 8), (9, 9), (4, 4), (2, 2), (1, 1), (1, 1, 1, 1))


def test_phases_of_as_many_taps_are_one_product() -> None:
    kernels = graph_to_kernels(build([SQUARE.invocation()])[0])
    # The copy with a halo; then what packs the filter, the product, and the part of its windows that the output is.
    assert [len(calls) for calls in kernels.calls.values()] == [1, 3]


def test_phases_of_other_numbers_of_taps_are_products_of_their_own() -> None:
    """No zeros stand for taps: they would make NaN of infinities."""
    case = replace(SQUARE, filter=(3, 3))
    model, fed = build([case.invocation()])
    fed[next(iter(fed))][0, 0, 4, 4] = np.inf
    kernels = graph_to_kernels(model)
    (found,) = compile_lists(kernels)(**fed).values()
    expected = case.judge(*fed.values())
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    finite = np.isfinite(expected)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=2e-5, atol=2e-4)


def test_threads_share_columns_and_images() -> None:
    case = Case(True, 2, 2, (32, 64), (24, 24), (4, 4), (2, 2), (1, 1), (1, 1, 1, 1))
    model, fed = build([case.invocation()])
    kernels = graph_to_kernels(model)
    groups = [item.groups for calls in kernels.calls.values() for item in calls]
    assert max(groups) >= 8
    run = compile_lists(kernels, threads=4)
    (found,) = run(**fed).values()
    (expected,) = by_reference(model)(**fed).values()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-3)
