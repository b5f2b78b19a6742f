"""Sums into places that overlap, as derived gradients have them: kernels against the reference, in drawn cases."""

from __future__ import annotations

import random

import numpy as np
import pytest

from lamella.base.arrays import Array
from lamella.bridge.graph_to_kernels import KernelOptions, graph_to_kernels, split_reductions
from lamella.graph.gradient import differentiate
from lamella.graph.model import Model
from lamella.graph.rewrite import members
from tests.bridge.test_graph_to_kernels_formulas import operator
from tests.support.bridge.launch_lists import compile_lists
from tests.support.bridge.operators.calls import agree, by_reference, natives

SIZE = 9
"""The size of every target."""


def verify(model: Model, given: dict[str, Array] | None = None) -> None:
    """Machine code gives what the reference does, in 32 and in 64 bits, with random inputs where none are given."""
    chance = np.random.default_rng(0)
    shapes = {
        item.name: [size for size in item.shape if isinstance(size, int)]
        for item in members(model.graph.inputs)
    }
    fed = {name: chance.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} | (
        given or {}
    )
    for wide in (False, True):
        kernels = graph_to_kernels(model, options=KernelOptions(wide))
        assert not natives(kernels)
        found = compile_lists(kernels, dtype="f64" if wide else "f32")(**fed)
        agree(found, by_reference(model, wide)(**fed))


def window(chance: random.Random, source: str, read: str) -> tuple[str, str]:
    """A sum over windows that overlap, and the input that it reads: by its places, its taps, both, or neither."""
    places, taps = chance.randint(2, 6), chance.randint(2, 6)
    stride, dilation = chance.choice(((1, 1), (2, 1), (3, 1), (1, 2)))
    index = f"{stride} * i + {dilation} * j - {chance.randint(0, 3)}"
    value = {"i": f"{source}[i,]", "j": f"{source}[j,]", "ij": f"{source}[i, j]", "": f"{source}[0,]"}[read]
    shape = {"i": f"{places}", "j": f"{taps}", "ij": f"{places}, {taps}", "": "1"}[read]
    loops = [f"i < {places}", f"j < {taps}"]
    chance.shuffle(loops)
    return f"y[|{index}|,] += {value}, {', '.join(loops)};", f"{source}: real[{shape}];"


@pytest.mark.parametrize("read", ["i", "j", "ij", ""])
def test_windows_count_what_is_read(read: str) -> None:
    """Whether places or taps are more, whichever of them the formula reads at, and in whatever order they stand."""
    chance = random.Random(read)
    for _ in range(6):
        formula, given = window(chance, "a", read)
        verify(operator(given, f"y: real[{SIZE}];", formula))


def test_several_windows_are_read_of_one_tensor() -> None:
    """Gradients add to one target by several formulas, of which none is lost, next to each other or not."""
    chance = random.Random(1)
    for _ in range(6):
        reads = [_read(chance, name) for name in "uvw"]
        formulas = [formula for formula, _ in reads]
        outputs = [f"{name}: real[{places}];" for name, (_, places) in zip("uvw", reads, strict=True)]
        model = operator(f"x: real[{SIZE}]; b: real[{SIZE}];", " ".join(outputs), " ".join(formulas))
        verify(differentiate(model, ["x", "b"]))


def _read(chance: random.Random, name: str) -> tuple[str, int]:
    """A sum over windows of an input, or its elements times others, and how many elements it gives."""
    if chance.random() < 0.3:
        return f"{name}[i,] = x[i,] * b[i,], i < {SIZE};", SIZE
    places, taps, stride = chance.randint(2, 6), chance.randint(2, 6), chance.randint(1, 3)
    index = f"{stride} * i + j - {chance.randint(0, 2)}"
    return f"{name}[i,] += x[|{index}|,], i < {places}, j < {taps};", places


@pytest.mark.parametrize("start", ["y[i,] = b[i,], i < 4;", "y[i,] = b[|i - 2|,], i < 9;"])
def test_windows_go_on_from_a_part(start: str) -> None:
    """What a start does not write, or skips, still gets its sums."""
    formula = "y[|2 * i + j - 1|,] += a[i,], i < 4, j < 3;"
    verify(operator(f"b: real[{SIZE}]; a: real[4];", f"y: real[{SIZE}];", f"{start} {formula}"))


def test_formulas_of_one_target_have_tables_of_their_own() -> None:
    """Indices of one formula and weights of another, each worth a table: gradients of rotations."""
    weight = "(j % 3 == 0 ? -1.5 : (j / 2) % 3 == 1 ? 2.5 : 0.5)"
    first, second = "x[l, (j % 3) * (j / 4) + j % 2]", "x[l, (j / 3) * (j % 2)]"
    for value in (f"{first} + {second} * {weight}", f"{second} * {weight} + x[l, j] * {first}"):
        model = operator("x: real[40, 8];", "y: real[40, 8];", f"y[l, j] = {value}, l < 40, j < 8;")
        verify(differentiate(model, ["x"]))


def test_long_sums_into_one_place_have_parts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_reductions, "SHARED_STEPS", 64)
    monkeypatch.setattr(split_reductions, "GROUP_STEPS", 16)
    formulas = "y[i,] = x[0,] + 0.0 * a[i,], i < 128; z[i,] = x[0,] * a[i,], i < 128;"
    model = operator("x: real[1]; a: real[128];", "y: real[128]; z: real[128];", formulas)
    verify(differentiate(model, ["x"]))


@pytest.mark.parametrize("sign", ["+=", ">="])
def test_rows_that_go_to_one_place_are_joined_in_their_order(sign: str) -> None:
    """Some rows at a time, where they meet and where they do not; some are left out, or go nowhere."""
    chance = np.random.default_rng(2)
    for rows in (3, 4, 23):
        for places in (np.sort(chance.integers(-1, 5, rows)), chance.integers(0, 6, rows)):
            formula = f"y[|at[i,]|, c] {sign} x[i, c], i < {rows}, c < 20 | at[i,] != 3;"
            model = operator(
                f"x: real[{rows}, 20]; at: int[{rows}];",
                "y: real[5, 20];",
                f"y[b, c] = 0.0, b < 5, c < 20; {formula}",
            )
            verify(model, {"at": places})
    single = f"y[|at[i, c]|, c] {sign} x[i, c], i < 23, c < 20;"
    model = operator(
        "x: real[23, 20]; at: int[23, 20];", "y: real[5, 20];", f"y[b, c] = 0.0, b < 5, c < 20; {single}"
    )
    verify(model, {"at": chance.integers(-1, 5, (23, 20))})
