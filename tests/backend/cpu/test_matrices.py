"""Cooperative matrices from memory and back: every layout, every check; NumPy knows what must come out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.backend.cpu.cooperating import Array, Kernel, lay_out
from tests.support.backend.interpreter.kernels import DTYPES, draw_array

CHECKS = ("", "rows", "cols", "both")
STRIDES = {"column": "1,?", "row": "?,1", "neither": "?,?"}
SIZE = "attributes{subgroup_size=16,work_group_size=[16,1]}"


@dataclass(frozen=True)
class Side:
    """A memref that a matrix is loaded from or stored to."""

    layout: str
    checked: str
    sizes: tuple[int, int]
    start: tuple[int, int]
    at_end: bool = True

    @property
    def word(self) -> str:
        """The flag of the instruction."""
        return f".{self.checked}_checked" if self.checked else ""

    def place(self, values: Array) -> Array:
        """Numbers in memory, as this side has them."""
        rows, columns = values.shape
        steps = {"column": (1, rows + 2), "row": (columns + 1, 1), "neither": (2, 2 * rows + 1)}
        return lay_out(values, steps[self.layout], self.at_end)


@st.composite
def sides(draw: st.DrawFn, shape: tuple[int, int]) -> Side:
    """A memref in which a matrix of a shape lies; only where it is checked it may stick out."""
    checked = draw(st.sampled_from(CHECKS))
    sizes, starts = [], []
    for word, count in zip(("rows", "cols"), shape, strict=True):
        if checked in (word, "both"):
            sizes.append(draw(st.integers(1, count + 3)))
            starts.append(draw(st.integers(-count - 1, sizes[-1] + 1)))
        else:
            starts.append(draw(st.integers(0, 3)))
            sizes.append(count + starts[-1] + draw(st.integers(0, 2)))
    layout = draw(st.sampled_from([*STRIDES]))
    return Side(layout, checked, (sizes[0], sizes[1]), (starts[0], starts[1]), draw(st.booleans()))


def overlap(side: Side, shape: tuple[int, int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where the components that exist are in the matrix, and where in memory."""
    ranges = [
        (max(0, -start), max(max(0, -start), min(count, size - start)))
        for start, count, size in zip(side.start, shape, side.sizes, strict=True)
    ]
    inner = tuple(slice(first, last) for first, last in ranges)
    outer = tuple(
        slice(start + first, start + last) for start, (first, last) in zip(side.start, ranges, strict=True)
    )
    return inner, outer


@st.composite
def copies(draw: st.DrawFn) -> tuple[str, str, tuple[int, int], bool, Side, Side]:
    """A matrix that is loaded from one memref and stored to another."""
    element = draw(st.sampled_from([*DTYPES]))
    use = draw(st.sampled_from(("matrix_a", "matrix_b", "matrix_acc")))
    shape = (draw(st.integers(1, 40)), draw(st.integers(1, 9)))
    transposed = draw(st.booleans())
    source = draw(sides(shape[::-1] if transposed else shape))
    return element, use, shape, transposed, source, draw(sides(shape))


def swap_word(checked: str, transposed: bool) -> str:
    """The flag speaks of the matrix; here a side speaks of the memory."""
    return {"rows": "cols", "cols": "rows"}.get(checked, checked) if transposed else checked


@given(copies(), st.sampled_from(["cpu-avx512", "cpu-avx2", "cpu-aarch64"]))
def test_a_matrix_comes_from_memory_and_goes_back(
    case: tuple[str, str, tuple[int, int], bool, Side, Side], target: str
) -> None:
    element, use, shape, transposed, source, result = case
    word = swap_word(source.checked, transposed)
    flags = f".{'t' if transposed else 'n'}" + (f".{word}_checked" if word else "")
    kernel = Kernel(
        f"""
        func @copy(%A: memref<{element}x?x?,strided<{STRIDES[source.layout]}>>,
                   %B: memref<{element}x?x?,strided<{STRIDES[result.layout]}>>,
                   %x: index, %y: index, %u: index, %v: index) {SIZE} {{
          parallel {{
            %m = cooperative_matrix_load{flags} %A[%x,%y] : coopmatrix<{element}x{shape[0]}x{shape[1]},{use}>
            cooperative_matrix_store{result.word} %m, %B[%u,%v]
          }}
        }}""",
        target,
    )
    random = np.random.default_rng(1)
    given_, before = (draw_array(random, element, side.sizes) for side in (source, result))
    memory = [source.place(given_), result.place(before)]
    kernel(*memory, *source.start, *result.start)
    seen = np.zeros(shape[::-1] if transposed else shape, given_.dtype)
    inner, outer = overlap(source, seen.shape)
    seen[inner] = given_[outer]
    expected = before.copy()
    inner, outer = overlap(result, shape)
    expected[outer] = (seen.T if transposed else seen)[inner]
    assert memory[1].tobytes() == expected.tobytes()
    assert memory[0].tobytes() == given_.tobytes()


@pytest.mark.parametrize("element", ["i8", "bf16", "f16"])
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 12),
    start=st.tuples(st.integers(-3, 6), st.integers(-1, 3)),
    checked=st.sampled_from(CHECKS),
    strided=st.booleans(),
)
def test_a_packed_matrix_comes_from_memory_and_goes_back(
    element: str, rows: int, columns: int, start: tuple[int, int], checked: str, strided: bool
) -> None:
    pack = 4 // DTYPES[element].itemsize
    spare = [1 if checked in (word, "both") else -9 for word in ("rows", "cols")]
    first, packs = (
        max(start[0], 0) if spare[0] < 0 else start[0],
        max(start[1], 0) if spare[1] < 0 else start[1],
    )
    height = max(1, first + rows - 2) if spare[0] > 0 else first + rows
    depth = max(1, packs + -(-columns // pack) - (spare[1] > 0))
    flag = f".{checked}_checked" if checked else ""
    layout = f",strided<1,{pack},?>" if not strided else ",strided<?,?,?>"
    kernel = Kernel(
        f"""
        func @copy(%A: memref<{element}x{pack}x?x?{layout}>, %B: memref<{element}x{pack}x?x?{layout}>,
                   %x: index, %y: index) {SIZE} {{
          parallel {{
            %m = cooperative_matrix_load.n{flag} %A[%x,%y] : coopmatrix<{element}x{rows}x{columns},matrix_a>
            cooperative_matrix_store{flag} %m, %B[%x,%y]
          }}
        }}"""
    )
    random = np.random.default_rng(2)
    steps = (1, pack, pack * height + 3) if not strided else (2, 2 * pack, 2 * pack * height + 1)
    given_, before = (draw_array(random, element, (pack, height, depth)) for _ in range(2))
    source, result = lay_out(given_, steps, True), lay_out(before, steps, True)
    kernel(source, result, first, packs * pack)
    expected = before.copy()
    for row in range(max(0, first), min(first + rows, height)):
        for column in range(max(0, packs * pack), min(packs * pack + columns, depth * pack)):
            place = (column % pack, row, column // pack)
            expected[place] = given_[place]
    assert result.tobytes() == expected.tobytes()
