"""Matrix products as loops over tiles: the interpreter finds the same numbers before and after the pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.interpreter import compile_program
from lamella.base.source import Source
from lamella.kernels.passes.lower_linalg import Planner, lower_linalg
from lamella.kernels.passes.lower_linalg.operands import GemmOperands
from lamella.kernels.passes.lower_linalg.tiles import TilePlan, plan_product, split
from lamella.kernels.target import Target, find_target
from lamella.lang.tensor import check, parse, write
from lamella.lang.tensor.nodes import Blas, Program
from tests.support.backend.interpreter.kernels import (
    COMPLEX,
    DTYPES,
    EPSILON,
    INTEGERS,
    Array,
    draw_array,
    widen,
)

TARGET = find_target("cpu-avx512")
TRIPLES = [
    *((element,) * 3 for element in DTYPES),
    *(("i8", "i8", "i32"), ("bf16", "bf16", "f32"), ("f16", "i8", "f32"), ("f32", "f32", "f64")),
    *(("f32", "c32", "c32"), ("c32", "f32", "c64"), ("i16", "i32", "f64"), ("bf16", "i8", "bf16")),
]


@dataclass(frozen=True)
class Case:
    """One product: the element types of A, B and C, the sizes, and how everything is written."""

    elements: tuple[str, str, str] = ("f32", "f32", "f32")
    sizes: tuple[int, int, int] = (5, 4, 3)
    transposes: tuple[bool, bool] = (False, False)
    static: bool = True
    pad: int = 0
    factors: tuple[float, float] = (1.0, 0.0)
    known: tuple[bool, bool] = (False, False)
    atomic: bool = False
    subgroups: int = 1
    lanes: int = 1
    function: str = "gemm"
    contiguous: bool = False
    """Whether the first stride is known to be 1 where sizes are not."""

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of A, B and C."""
        m, n, k = self.sizes
        a = (k, m) if self.transposes[0] else (m, k)
        if self.function == "gemv":
            return [a, (k,), (m,)]
        return [a, (n, k) if self.transposes[1] else (k, n), (m, n)]


def number(element: str, value: float) -> float | int | complex:
    """A number as an argument of a type."""
    if element in INTEGERS:
        return int(value)
    return complex(value, 0.5 if value not in (0, 1) else 0.0) if element in COMPLEX else value


def constant(element: str, value: float) -> str:
    """A number as a constant is written."""
    found = number(element, value)
    return f"[{found.real},{found.imag}]" if isinstance(found, complex) else str(found)


def write_case(case: Case) -> str:
    """The kernel of a case; a factor that is not known is an argument."""
    kinds = {"alpha": case.elements[0], "beta": case.elements[2]}
    known = dict(zip(kinds, zip(case.known, case.factors, strict=True), strict=True))
    parameters = [f"%{name}: {kind}" for name, kind in kinds.items() if not known[name][0]]
    for name, element, shape in zip("ABC", case.elements, case.shapes, strict=True):
        sizes = "".join(f"x{size}" if case.static else "x?" for size in shape)
        first = 1 if case.static or case.contiguous else "?"
        strides = [first, shape[0] + case.pad if case.static else "?"][: len(shape)]
        parameters.append(f"%{name}: memref<{element}{sizes},strided<{','.join(map(str, strides))}>>")
    body = [
        f"%{name} = constant {constant(kind, known[name][1])} : {kind}"
        for name, kind in kinds.items()
        if known[name][0]
    ]
    flags = case.transposes if case.function == "gemm" else case.transposes[:1]
    word = case.function + "".join(".t" if flag else ".n" for flag in flags) + ".atomic" * case.atomic
    sizes = f"attributes{{subgroup_size={case.lanes}, work_group_size=[{case.lanes},{case.subgroups}]}}"
    lines = "\n  ".join([*body, f"{word} %alpha, %A, %B, %beta, %C"])
    return f"func @f({', '.join(parameters)}) {sizes} {{\n  {lines}\n}}\n"


def read(text: str) -> Program:
    parsed = parse(Source("kernels.tensor", text))
    assert not [item for item in parsed.findings if item.severity == "error"], parsed.findings
    return parsed.program


def lower(text: str, planner: Planner = plan_product, target: Target = TARGET) -> Program:
    """A lowered program, which has no errors and can be written and read again."""
    program = lower_linalg(read(text), target, planner)
    assert not [item for item in check(program) if item.severity == "error"], write(program)
    assert read(write(program)) == program
    return program


def agree(case: Case, planner: Planner = plan_product, seed: int = 0) -> None:
    """Compare a case before and after the pass; where beta is 0 nobody sees what C was."""
    random = np.random.default_rng(seed)
    pads = [case.pad if len(shape) == 2 else 0 for shape in case.shapes]
    arrays = [draw_array(random, e, s, p) for e, s, p in zip(case.elements, case.shapes, pads, strict=True)]
    if case.factors[1] == 0 and case.elements[2] not in INTEGERS:
        arrays[2][...] = np.nan
    kinds = (case.elements[0], case.elements[2])
    factors = [
        number(kind, value)
        for kind, value, known in zip(kinds, case.factors, case.known, strict=True)
        if not known
    ]
    text = write_case(case)
    program = lower(text, planner)
    results = []
    for item in (read(text), program):
        # a copy keeps the padding, which both runs leave alone
        own = _copy(arrays[2], case)
        kernels = compile_program(item, check_bounds=True, seed=seed)
        kernels.call("f", [*factors, *arrays[:2], own])
        results.append(own)
    compare(case, arrays, results)


def _copy(array: Array, case: Case) -> Array:
    whole = np.zeros((array.shape[0] + case.pad, *array.shape[1:]), array.dtype, order="F")
    own = whole[: array.shape[0]] if array.ndim == 2 else array.copy()
    own[...] = array
    return own


def compare(case: Case, arrays: list[Array], results: list[Array]) -> None:
    element = case.elements[2]
    if element in INTEGERS:
        assert np.array_equal(results[0], results[1])
        return
    wide = {"bf16": "f32", "f16": "f32"}.get(element, element)
    a, b = (abs(widen(item, e)) for item, e in zip(arrays[:2], case.elements, strict=False))
    a = a.T if case.transposes[0] else a
    b = b.T if case.transposes[1] and b.ndim == 2 else b
    old = abs(case.factors[1] * widen(arrays[2], element)) if case.factors[1] else 0.0
    scale = (abs(case.factors[0]) + 1) * (a @ b) + old
    bound = (2 * EPSILON[element] + 8 * (sum(case.sizes) + 4) * EPSILON[wide]) * scale + 2.0**-24
    first, second = (widen(item, element) for item in results)
    assert np.all(abs(first - second) <= bound)


CASES = st.builds(
    Case,
    elements=st.sampled_from(TRIPLES),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 20)),
    transposes=st.tuples(st.booleans(), st.booleans()),
    static=st.booleans(),
    pad=st.integers(0, 2),
    factors=st.tuples(st.sampled_from([1.0, 0.0, -1.5, 2.0]), st.sampled_from([1.0, 0.0, -1.5])),
    known=st.tuples(st.booleans(), st.booleans()),
    subgroups=st.integers(1, 3),
    function=st.sampled_from(["gemm", "gemv"]),
    contiguous=st.booleans(),
)
PLANS = st.builds(
    TilePlan,
    rows=st.integers(1, 4),
    columns=st.integers(1, 5),
    depth=st.integers(1, 3),
    block=st.sampled_from([None, 6, 12]),
    panels=st.integers(0, 2),
    pack_a=st.booleans(),
    pack_b=st.booleans(),
)


def legal(plan: TilePlan, product: GemmOperands) -> TilePlan:
    """A drawn plan within what a plan may say of a product."""
    block = plan.block if product.wide == product.c.type.element and not product.atomic else None
    known = block is not None or isinstance(product.k, int)
    pack_a = plan.pack_a and plan.panels > 0 and known
    return replace(plan, block=block, pack_a=pack_a, pack_b=plan.pack_b and known)


def packed(plan: TilePlan, product: GemmOperands) -> TilePlan:
    """A drawn plan for packs, where they are of a product's elements."""
    element, pack = product.a.type.element, {"bf16": 2, "i8": 4}[product.a.type.element]
    block = None if plan.block is None else 2 * pack * plan.block
    plan = legal(replace(plan, block=block, panels=plan.panels + 1, pack_a=True), product)
    if not plan.pack_a or (element, product.wide) not in (("bf16", "f32"), ("i8", "i32")):
        return plan
    in_place = isinstance(product.k, int) and product.k % (2 * pack) == 0 and product.b.row_stride == 1
    return replace(plan, depth=2 * pack, pack=pack, unit=2, pack_b=plan.pack_b or not in_place)


@given(CASES, PLANS, st.integers(0, 99), st.sampled_from(["bf16", "i8"]), st.booleans())
def test_packs_compute_the_same(case: Case, plan: TilePlan, seed: int, element: str, wide: bool) -> None:
    result = ({"bf16": "f32", "i8": "i32"}[element]) if wide else element
    case = replace(case, elements=(element, element, result))
    agree(case, lambda product, _: packed(plan, product), seed)


@pytest.mark.parametrize("element", ["bf16", "i8"])
@pytest.mark.parametrize("static", [True, False])
def test_packs_of_a_target(element: str, static: bool) -> None:
    wide = {"bf16": "f32", "i8": "i32"}[element]
    case = Case((element, element, wide), (40, 20, 70), static=static, factors=(1.0, 1.0))
    agree(case, lambda product, _: plan_product(product, find_target("cpu-amx")))


@given(CASES, PLANS, st.integers(0, 99))
def test_every_plan_computes_the_same(case: Case, plan: TilePlan, seed: int) -> None:
    agree(case, lambda product, _: legal(plan, product), seed)


@given(CASES, st.integers(0, 99))
def test_the_plan_of_a_target_computes_the_same(case: Case, seed: int) -> None:
    agree(case, seed=seed)


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("element", ["f32", "i32", "c64", "f16"])
@pytest.mark.parametrize("static", [True, False])
def test_atomic_products(element: str, beta: float, static: bool) -> None:
    case = Case(
        (element,) * 3, (5, 4, 3), static=static, factors=(2.0, beta), known=(False, True), atomic=True
    )
    agree(case)
    agree(case, lambda _, __: TilePlan(2, 3, 2, None))


@pytest.mark.parametrize("transposes", list(product((False, True), repeat=2)))
@pytest.mark.parametrize("sizes", [(70, 40, 30), (33, 13, 9), (128, 1, 5), (3, 60, 4)])
def test_several_tiles(transposes: tuple[bool, bool], sizes: tuple[int, int, int]) -> None:
    agree(Case(sizes=sizes, transposes=transposes, factors=(-1.5, 1.0)))


@given(
    st.sampled_from(TRIPLES),
    st.tuples(st.integers(1, 20), st.just(1), st.integers(1, 40)),
    st.tuples(st.booleans(), st.integers(1, 2), st.sampled_from([1, 4, 8])),
    st.tuples(st.sampled_from([1.0, -1.5]), st.sampled_from([0.0, 1.0, -1.5])),
    st.tuples(st.booleans(), st.booleans()),
)
def test_dot_products(
    elements: tuple[str, str, str],
    sizes: tuple[int, int, int],
    layout: tuple[bool, int, int],
    factors: tuple[float, float],
    known: tuple[bool, bool],
) -> None:
    static, subgroups, lanes = layout
    case = Case(
        elements, sizes, (True, False), static, 1, factors, known, False, subgroups, lanes, "gemv", True
    )
    agree(case)


def test_dot_products_are_added_once() -> None:
    """An atomic update is done by one lane for all."""
    case = Case(sizes=(3, 1, 20), transposes=(True, False), factors=(2.0, 1.0), known=(False, True))
    agree(replace(case, atomic=True, lanes=4, subgroups=2, function="gemv"))


@pytest.mark.parametrize("name", ["cpu-avx512", "cpu-avx2", "cpu-aarch64"])
@pytest.mark.parametrize("size", [500, 1024])
def test_large_products_are_copied_and_cut(name: str, size: int) -> None:
    case = Case(sizes=(size,) * 3, factors=(1.0, 0.0), known=(True, True))
    text = write(lower(write_case(case), target=find_target(name)))
    assert "gemm" not in text
    # columns of a power of two of bytes fall on the same lines of a cache, so they are copied
    assert ("alloca" in text) == (size == 1024)


def test_no_product_is_left() -> None:
    text = (
        "func @f(%a: f32, %A: memref<f32x4x4>, %C: memref<f32x4x4>, %n: index) {\n"
        "  %z = constant 0 : index\n"
        "  for %i = %z, %n {\n    gemm.n.t %a, %A, %A, %a, %C\n  }\n"
        "  %t = cmp.lt %z, %n : bool\n"
        "  if %t { gemm.n.n %a, %A, %A, %a, %C } else { gemm.t.n %a, %A, %A, %a, %C }\n}\n"
    )
    program = lower(text)
    assert "gemm" not in write(program)
    assert not any(isinstance(item.instruction, Blas) for item in program.functions[0].body.statements)


@given(st.integers(1, 500), st.integers(1, 24))
def test_parts_are_nearly_equal(total: int, largest: int) -> None:
    sizes = [size for count, size in split(total, largest) for _ in range(count)]
    assert sum(sizes) == total
    assert max(sizes) <= largest
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == -(-total // largest)
