"""Scalar instructions in whole programs: machine code and the interpreter give the same arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from lamella.backend.cpu import compile_program
from lamella.backend.cpu.emit.mathematics import ACCURACY
from lamella.base.limits import DEFAULT
from lamella.base.source import Source
from lamella.lang.tensor import parse
from tests.backend.cpu.test_scalars import agree, draw
from tests.support.backend.cpu.computing import COMPLEX, DTYPES, FLOATS, INTEGERS, PARTS, Array
from tests.support.backend.interpreter.kernels import compile_text

COUNT = 40
REAL = ("add", "sub", "mul", "div", "rem", "min", "max")
FUNCTIONS = {
    "integers": (*REAL, "and", "or", "xor", "shl", "shr"),
    "floats": REAL,
    "complex": ("add", "sub", "mul", "div"),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def kernel(element: str, result: str, lines: list[str]) -> str:
    """A kernel of work-items, each of which computes one column of results from a pair of numbers."""
    body = "\n".join(
        f"    {line}\n    %at{n} = constant {n} : index\n    store %r{n}, %c[%i,%at{n}]"
        for n, line in enumerate(lines)
    )
    return (
        f"func @f(%a: memref<{element}x{COUNT}>, %b: memref<{element}x{COUNT}>, "
        f"%c: memref<{result}x{COUNT}x{len(lines)}>) attributes{{subgroup_size=16, work_group_size=[16,1]}} {{\n"
        f"  %zero = constant 0 : index\n  %n = constant {COUNT} : index\n"
        f"  foreach (%i):index=(%zero),(%n) {{\n"
        f"    %x = load %a[%i] : {element}\n    %y = load %b[%i] : {element}\n{body}\n  }}\n}}\n"
    )


def run_both(text: str, *arrays: Array) -> list[Array]:
    """What each backend leaves in the last array."""
    parsed = parse(Source("kernels.tensor", text))
    assert not [item for item in parsed.findings if item.severity == "error"], parsed.findings
    found = []
    for kernels in (compile_program(parsed.program, limits=DEFAULT), compile_text(text)):
        copies = [np.array(array, order="F") for array in arrays]
        kernels.f(*copies)
        found.append(copies[-1])
    return found


def near(found: Array, expected: Array, factor: float) -> bool:
    """Whether numbers differ by so many units in the last place at most, or are both infinite or NaN."""
    kind = found.dtype
    if kind.kind == "i":
        return bool(np.array_equal(found, expected))
    epsilon = {2: 2.0**-7, 4: 2.0**-23, 8: 2.0**-52}[PART_BYTES.get(kind.name, kind.itemsize)]
    wide = np.complex128 if kind.kind == "c" else np.float64
    left, right = found.astype(wide), expected.astype(wide)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    return bool(np.all(same | (np.abs(left - right) <= factor * epsilon * np.abs(right))))


PART_BYTES = {"complex64": 4, "complex128": 8}


@pytest.mark.parametrize("element", [*INTEGERS, *FLOATS, *COMPLEX])
def test_arithmetic(element: str) -> None:
    kind = "integers" if element in INTEGERS else "floats" if element in FLOATS else "complex"
    lines = [f"%r{n} = arith.{name} %x, %y : {element}" for n, name in enumerate(FUNCTIONS[kind])]
    lines.append(f"%r{len(lines)} = arith.neg %x : {element}")
    left, right = (draw(element, 2 * COUNT, seed)[8 : 8 + COUNT] for seed in (1, 2))
    if element in INTEGERS:
        right = np.abs(right) % 7 + right.dtype.type(1)
    out = np.zeros((COUNT, len(lines)), DTYPES[element])
    found, expected = run_both(kernel(element, element, lines), left, right, out)
    assert near(found, expected, 8) if element in COMPLEX else agree(found, expected)


@pytest.mark.parametrize("element", [*FLOATS, "i32", "index"])
def test_comparisons_choose(element: str) -> None:
    lines = []
    for n, name in enumerate(("eq", "ne", "gt", "ge", "lt", "le")):
        text = f"%t{n} = cmp.{name} %x, %y : bool\n    %r{n} = arith.select %t{n}, %x, %y : {element}"
        lines.append(text)
    left, right = (draw(element, COUNT, seed) for seed in (3, 4))
    right[::3] = left[::3]
    out = np.zeros((COUNT, len(lines)), DTYPES[element])
    found, expected = run_both(kernel(element, element, lines), left, right, out)
    assert agree(found, expected)


@pytest.mark.parametrize("target", [*INTEGERS, *FLOATS, *COMPLEX])
def test_casts(target: str) -> None:
    for source in (*INTEGERS, *FLOATS, *COMPLEX):
        if source in COMPLEX and target not in COMPLEX:
            continue
        values = draw(source, COUNT)
        out = np.zeros((COUNT, 1), DTYPES[target])
        found, expected = run_both(kernel(source, target, [f"%r0 = cast %x : {target}"]), values, values, out)
        assert agree(found, expected)


@pytest.mark.parametrize("element", FLOATS)
def test_functions(element: str) -> None:
    names = [name for name in ACCURACY if name != "pow"]
    lines = [f"%r{n} = math.{name} %x : {element}" for n, name in enumerate(names)]
    lines.append(f"%r{len(names)} = math.pow %x, %y : {element}")
    left, right = (draw(element, COUNT, seed) for seed in (5, 6))
    out = np.zeros((COUNT, len(lines)), DTYPES[element])
    found, expected = run_both(kernel(element, element, lines), left, right, out)
    tiny = np.abs(expected.astype(np.float64)) < np.finfo(np.float32 if element != "f64" else np.float64).tiny
    assert near(found[~tiny], expected[~tiny], 4)


@pytest.mark.parametrize("element", COMPLEX)
def test_functions_of_complex_numbers(element: str) -> None:
    lines = [f"%r{n} = math.{name} %x : {element}" for n, name in enumerate(("exp", "native_exp", "exp2"))]
    values = draw(element, 2 * COUNT)[8 : 8 + COUNT]
    out = np.zeros((COUNT, len(lines)), DTYPES[element])
    found, expected = run_both(kernel(element, element, lines), values, values, out)
    assert near(found, expected, 8)
    part = PARTS[element]
    lines = [f"%r{n} = arith.{name} %x : {part}" for n, name in enumerate(("abs", "re", "im"))]
    out = np.zeros((COUNT, len(lines)), DTYPES[part])
    found, expected = run_both(kernel(element, part, lines), values, values, out)
    assert near(found, expected, 2)
