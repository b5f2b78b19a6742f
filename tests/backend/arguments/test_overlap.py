"""Which parameters a kernel writes, and which arguments share memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.arguments import ArrayMemory, find_overlap, written_parameters
from lamella.base.source import Source
from lamella.lang.tensor import parse


def written(text: str) -> dict[str, int]:
    """The written parameters of a kernel, each with the line of the first write."""
    parsed = parse(Source("test.tensor", text))
    assert not [item for item in parsed.findings if item.severity == "error"], parsed.findings
    return {name: span.line for name, span in written_parameters(parsed.program.functions[0]).items()}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("", {}),
        ("%v = load %a[%i,%i] : f32", {}),
        ("store %s, %a[%i,%i]", {"a": 3}),
        ("%v = subview %a[0:2,%i] : memref<f32x2>\n store %s, %v[%i]", {"a": 4}),
        ("%v = fuse %a[0,1] : memref<f32x16>\n%w = expand %v[0->4 x 4] : memref<f32x4x4>\n"
         "store %s, %w[%i,%i]", {"a": 5}),
        ("%v = load %g[%i] : memref<f32x4x4>\n gemm.n.n %s, %a, %b, %s, %v", {"g": 4}),
        ("axpby.t %s, %a, %s, %b\n axpby.t %s, %a, %s, %b", {"b": 3}),
        ("for %k=%i,%i {\n if %c {\n store %s, %b[%i,%i]\n } else {\n store %s, %a[%i,%i]\n }\n }",
         {"b": 5, "a": 7}),
        ("parallel {\n %m = cooperative_matrix_load.n %a[%i,%i] : coopmatrix<f32x4x4,matrix_acc>\n"
         " cooperative_matrix_store %m, %b[%i,%i]\n }", {"b": 5}),
        ("%v = alloca : memref<f32x4x4,local>\n axpby.n %s, %a, %s, %v", {}),
        ("for %k=%i,%i {\n %v = subview %a[0:2,%i] : memref<f32x2>\n }\n"
         "for %k=%i,%i {\n %v = alloca : memref<f32x2,local>\n %z = constant 0 : index\n"
         " store %s, %v[%z]\n }", {}),
    ],
)  # fmt: skip
def test_written_parameters(body: str, names: dict[str, int]) -> None:
    parameters = "%i: index, %s: f32, %c: bool, %a: memref<f32x4x4>, %b: memref<f32x4x4>"
    assert written(f"func @f({parameters}, %g: group<memref<f32x4x4>x?>)\n{{\n{body}\n}}") == names


@st.composite
def slices(draw: st.DrawFn) -> tuple[int, int, int]:
    """First element, number of elements and stride of a vector in a small memory."""
    step, count = draw(st.integers(0, 4)), draw(st.integers(0, 6))
    return draw(st.integers(0, 60)), count, step


@given(st.lists(st.tuples(slices(), st.booleans()), min_size=2, max_size=4))
def test_sharing_is_exact(given_blocks: list[tuple[tuple[int, int, int], bool]]) -> None:
    """Against sets of addresses; the arrays are small, so that no pair is too hard."""
    memory = np.zeros(100, np.int32)
    blocks, places = [], []
    for number, ((first, count, step), _) in enumerate(given_blocks):
        low = memory.ctypes.data + 4 * first
        blocks.append(ArrayMemory(str(number), low, (count,), (4 * step,), 4))
        places.append({first + step * index for index in range(count)})
    names = {str(number): None for number, (_, is_written) in enumerate(given_blocks) if is_written}
    pairs = {
        (str(i), str(j))
        for i in range(len(places))
        for j in range(len(places))
        if i != j and places[i] & places[j] and str(i) in names
    }
    found = find_overlap(blocks, names)
    assert (found is None) == (not pairs)
    assert found is None or found in pairs
