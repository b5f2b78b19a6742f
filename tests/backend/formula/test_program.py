"""Programs of NumPy calls are what nested loops say, wherever the lowering of formulas finds one."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings

from lamella.backend.formula.expression_dag import prepare
from lamella.backend.formula.lower import FormulaSet
from lamella.backend.formula.program import FormulaProgram, compile_formulas
from lamella.backend.formula.scalars import DOUBLE
from lamella.backend.formula.storage import Storage
from lamella.backend.formula.store import ASSIGNMENTS, neutral
from lamella.base.arrays import Array, element_type_of
from lamella.base.dtype import F64, I8, I64, ElementType
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Loop
from lamella.ops.instance import Declared
from tests.support.backend.reference.drawing import Case, cases
from tests.support.backend.reference.steps import Refused, copy_tensors, run_slowly

STORAGE = Storage(True, 1 << 30)
SIZE = 6
Tensors = dict[str, Array | tuple[Array, ...]]


def program_of(
    contraction: Contraction, tensors: Tensors, shape: tuple[int, ...], element: ElementType
) -> FormulaProgram | None:
    """The program of one formula for `y`."""
    outputs = [Declared("y", element, shape)]
    formulas = FormulaSet([prepare(contraction)], outputs, STORAGE, DOUBLE, {})
    return compile_formulas(formulas, tensors, {})


def run(program: FormulaProgram, tensors: Tensors) -> Array | None:
    """What a program gives for `y`."""
    with np.errstate(all="ignore"):
        items = [item if isinstance(item, tuple) else (item,) for item in tensors.values()]
        results = program.run([array for item in items for array in item])
    return None if results is None else results[0]


@settings(max_examples=400)
@given(cases(depth=1, own=False))
def test_any_program(case: Case) -> None:
    tensors = dict(case.tensors)
    start = tensors.pop("y")
    assume(not isinstance(start, tuple))
    assert isinstance(start, np.ndarray)
    element = element_type_of(start.dtype)
    assert element is not None
    try:
        program = program_of(case.contraction, tensors, start.shape, element)
    except Fault:
        return
    if program is None:
        return
    sign = case.contraction.sign
    expected = np.zeros_like(start)
    if sign not in ASSIGNMENTS:
        expected[...] = neutral(sign, start.dtype)
    slow = copy_tensors({**tensors, "y": expected})
    try:
        run_slowly(case.contraction, slow)
        found = run(program, tensors)
    except (Refused, Fault):
        return
    if found is not None:
        np.testing.assert_allclose(found, np.asarray(slow["y"]), 1e-9 if found.dtype == DOUBLE else 0)


def largest_of(shift: int) -> Contraction:
    """`y >= x[i] - shift`."""
    value = Apply("-", (Element("x", (Index("i"),), "int"), shift), "int")
    return Contraction((Element("y", (), "int"),), ">=", (value,), (Loop("i", SIZE),))


def test_an_extreme_of_narrow_integers_starts_at_that_of_its_type() -> None:
    """All values lie below the smallest: the result is the smallest, not the low bits of a value."""
    tensors: Tensors = {"x": np.arange(SIZE, dtype=np.int8)}
    for element, expected in ((I8, -128), (I64, SIZE - 1001)):
        program = program_of(largest_of(1000), tensors, (), element)
        assert program is not None
        found = run(program, tensors)
        assert found is not None
        assert int(found) == expected


def test_a_part_of_an_input_does_not_keep_it_alive() -> None:
    tensors: Tensors = {"x": np.arange(float(SIZE))}
    part = Contraction(
        (Element("y", (Index("i"),), "real"),), "=", (Element("x", (Index("i"),), "real"),), (Loop("i", 2),)
    )
    program = program_of(part, tensors, (2,), F64)
    assert program is not None
    found = run(program, tensors)
    assert found is not None
    assert found.tolist() == [0.0, 1.0]
    assert found.base is None


def test_zeros_beyond_the_edges_need_finite_factors() -> None:
    """`y[o, i] += x[c, |i + k - 1|] * w[o, c, k]`: a matrix product would multiply the padding with infinity."""
    o, i, c, k = (Index(name) for name in "oick")
    place = Guard(Apply("-", (Apply("+", (i, k), "int"), 1), "int"))
    value = Apply("*", (Element("x", (c, place), "real"), Element("w", (o, c, k), "real")), "real")
    loops = tuple(Loop(name, size) for name, size in (("o", 4), ("i", SIZE), ("c", 4), ("k", 3)))
    convolution = Contraction((Element("y", (o, i), "real"),), "+=", (value,), loops)
    draw = np.random.default_rng(0)
    tensors: Tensors = {"x": draw.standard_normal((4, SIZE)), "w": draw.standard_normal((4, 4, 3))}
    program = program_of(convolution, tensors, (4, SIZE), F64)
    assert program is not None
    slow = copy_tensors({**tensors, "y": np.zeros((4, SIZE))})
    run_slowly(convolution, slow)
    found = run(program, tensors)
    assert found is not None
    np.testing.assert_allclose(found, np.asarray(slow["y"]), 1e-9)
    assert run(program, {**tensors, "w": np.full((4, 4, 3), np.inf)}) is None
