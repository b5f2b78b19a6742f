"""Whole programs of cooperative instructions: the interpreter and machine code leave the same bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend import cpu, interpreter
from lamella.base.source import Source
from lamella.lang.tensor import parse
from tests.support.backend.interpreter.kernels import COMPLEX, DTYPES, INTEGERS

Step = tuple[str, int, int]


def matrix(element: str, use: str, shape: tuple[int, int]) -> str:
    """A type."""
    return f"coopmatrix<{element}x{shape[0]}x{shape[1]},{use}>"


def spell(value: int, element: str) -> str:
    """A whole number as a constant of a type."""
    if element in INTEGERS:
        return str(value)
    return f"[{value}.0,1.0]" if element in COMPLEX else f"{value}.0"


def step_line(name: str, step: Step, values: list[str], element: str, shape: tuple[int, int]) -> str:
    """An instruction on values that are there already."""
    word, first, second = step
    left, right = values[first % len(values)], values[second % len(values)]
    kind = matrix(element, "matrix_acc", shape)
    if word == "scale":
        return f"%{name} = cooperative_matrix_scale %factor, %{left} : {kind}"
    if word == "product":
        return f"%{name} = cooperative_matrix_mul_add %a, %b, %{left} : {kind}"
    if word == "constant":
        return f"%{name} = constant {spell(second, element)} : {kind}"
    if word == "neg":
        return f"%{name} = arith.neg %{left} : {kind}"
    if word == "select":
        return f"%{name} = arith.select %choice, %{left}, %{right} : {kind}"
    return f"%{name} = arith.{word} %{left}, %{right} : {kind}"


def program_text(element: str, shape: tuple[int, int, int], steps: list[Step], trips: int) -> str:
    """Each subgroup computes a matrix in a loop and stores it beside those of the others."""
    rows, columns, depth = shape
    kind, lines, values = matrix(element, "matrix_acc", (rows, columns)), [], ["c", "s"]
    for number, step in enumerate(steps):
        lines.append(step_line(f"t{number}", step, values, element, (rows, columns)))
        values.append(f"t{number}")
    body = "\n              ".join(lines)
    return f"""
        func @f(%A: memref<{element}x?x?>, %B: memref<{element}x?x?,strided<?,?>>, %C: memref<{element}x?x?>)
            attributes{{subgroup_size=8,work_group_size=[16,2]}} {{
          parallel {{
            %z = constant 0 : index
            %one = constant 1 : index
            %trips = constant {trips} : index
            %columns = constant {columns} : index
            %id = builtin.subgroup_id : i32
            %place = cast %id : index
            %y = arith.mul %place, %columns : index
            %choice = cmp.lt %place, %one : bool
            %factor = constant {spell(3, element)} : {element}
            %c = cooperative_matrix_load.n.cols_checked %C[%z,%y] : {kind}
            %r = for %i:index=%z,%trips init(%s=%c) -> ({kind}) {{
              %a = cooperative_matrix_load.n.both_checked %A[%i,%z] : {matrix(element, "matrix_a", (rows, depth))}
              %b = cooperative_matrix_load.t.both_checked %B[%y,%i] : {matrix(element, "matrix_b", (depth, columns))}
              {body}
              yield (%{values[-1]})
            }}
            cooperative_matrix_store.both_checked %r, %C[%z,%y]
          }}
        }}"""


@given(
    element=st.sampled_from([*DTYPES]),
    shape=st.tuples(st.integers(1, 20), st.integers(1, 4), st.integers(1, 4)),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "sub", "neg", "select", "scale", "product", "constant"]),
            st.integers(0, 9),
            st.integers(0, 3),
        ),
        max_size=4,
    ),
    trips=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_programs_agree_with_the_interpreter(
    element: str, shape: tuple[int, int, int], steps: list[Step], trips: int, seed: int
) -> None:
    parsed = parse(Source("kernels.tensor", program_text(element, shape, steps, trips)))
    assert not [item for item in parsed.findings if item.severity == "error"], parsed.findings
    random = np.random.default_rng(seed)
    rows, columns, depth = shape
    sizes = ((rows, depth), (4 * columns, depth), (rows, 4 * columns - 1))
    drawn = [np.asfortranarray(random.integers(-1, 2, size).astype(DTYPES[element])) for size in sizes]
    found = []
    for backend in (interpreter, cpu):
        arrays = [array.copy(order="F") for array in drawn]
        backend.compile_program(parsed.program).call("f", arrays)
        found.append(arrays[2])
    assert np.array_equal(found[0], found[1])
