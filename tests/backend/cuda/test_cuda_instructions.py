"""Single instructions on a GPU, each for every type that it has: the interpreter judges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from lamella.backend import cuda, interpreter
from lamella.backend.arguments import dtype_of
from lamella.base.arrays import Array
from lamella.lang.tensor.check.kinds import ATOMIC, is_castable
from lamella.lang.tensor.words import ELEMENTS, FORMS, SCALARS
from tests.backend.cpu.test_scalars import draw
from tests.support.backend.interpreter.kernels import (
    COMPLEX,
    EPSILON,
    FLOATS,
    INTEGERS,
    STORED_DTYPES,
    draw_array,
)
from tests.support.differential.running import read

pytestmark = pytest.mark.gpu
COUNT = 160
NUMBERS = ("add", "sub", "mul", "div", "rem", "min", "max")
BITS = ("and", "or", "xor", "shl", "shr")
COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le")
EXACT = ("sqrt", "floor", "ceil", "round", "trunc", "sign")
CLOSE = (
    *("exp", "native_exp", "exp2", "native_exp2", "log", "native_log", "log2", "native_log2", "sin", "cos"),
    *("native_sin", "native_cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
    *("atanh", "rsqrt", "erf", "sigmoid"),
)
ROUGH = ("native_tanh", "native_erf")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def each(parameters: Sequence[str], lines: Sequence[str], size: int = 32, rows: int = 64) -> str:
    """A kernel that does something for each of some places."""
    body = "\n    ".join(lines)
    return f"""
func @f({", ".join(parameters)}) attributes{{subgroup_size={size}, work_group_size=[{rows},1]}} {{
  %0 = constant 0 : index
  %n = constant {COUNT} : index
  foreach (%i):index=(%0),(%n) {{
    {body}
  }}
}}
"""


def run_both(text: str, arguments: Sequence[object], groups: int = 1) -> tuple[list[Array], list[Array]]:
    """The arrays as the interpreter and the GPU leave them."""
    program, found = read(text), []
    for compiled in (interpreter.compile_program(program), cuda.compile_program(program)):
        given = [item.copy(order="F") if isinstance(item, np.ndarray) else item for item in arguments]
        compiled.call("f", given, groups)
        found.append([item for item in given if isinstance(item, np.ndarray)])
    return found[0], found[1]


def same(wanted: Array, found: Array, what: str) -> None:
    """Hold numbers against each other, to the bit but for what a NaN looks like, and which zero a complex part is."""
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    one, other = (item if item.dtype.kind == "i" else item.astype(kind) for item in (wanted, found))
    good = (one == other) | ((one != one) & (other != other))
    if kind is np.float64 and one.dtype.kind == "f":
        good &= (np.signbit(one) == np.signbit(other)) | (one != one)
    wrong = np.flatnonzero(~good)[:5]
    assert not wrong.size, f"{what} at {wrong}: {one[wrong]} by the interpreter, {other[wrong]} by the GPU"


def close(wanted: Array, found: Array, element: str, what: str, units: float) -> None:
    """The same for what is right to some units of its type."""
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    one, other = wanted.astype(kind), found.astype(kind)
    least = float(np.finfo(np.float32).tiny) if element in ("f32", "bf16") else 0.0
    bound = 2 * units * EPSILON[element] * np.abs(one) + least
    if element == "f16":
        bound += 2.0**-24
    good = (one == other) | ((one != one) & (other != other)) | (np.abs(one - other) <= bound)
    wrong = np.flatnonzero(~good)[:5]
    assert not wrong.size, f"{what} at {wrong}: {one[wrong]} by the interpreter, {other[wrong]} by the GPU"


def binaries(element: str) -> tuple[str, ...]:
    if element in COMPLEX:
        return ("add", "sub", "mul", "div")
    return NUMBERS + BITS * (element in INTEGERS)


@pytest.mark.parametrize("element", SCALARS)
def test_two_operands(element: str) -> None:
    names = binaries(element)
    lines = [
        f"%a = load %x[%i] : {element}",
        f"%b = load %y[%i] : {element}",
        f"%s = load %z[%i] : {element}",
    ]
    for number, name in enumerate(names):
        right = "%s" if name in ("shl", "shr") else "%b"
        lines += [
            f"%k{number} = constant {number} : index",
            f"%r{number} = arith.{name} %a, {right} : {element}",
            f"store %r{number}, %o[%i,%k{number}]",
        ]
    kinds = [f"%{name}: memref<{element}x{COUNT}>" for name in "xyz"]
    text = each([*kinds, f"%o: memref<{element}x{COUNT}x{len(names)}>"], lines)
    x, y = draw(element, COUNT, 1), draw(element, COUNT, 2)
    if element in INTEGERS:
        y[y == 0] = 3
        x[0], y[0] = np.iinfo(x.dtype).min, -1
    if element in COMPLEX:
        parts = "f4" if element == "c32" else "f8"
        random = np.random.default_rng(0)
        x, y = (
            (random.standard_normal(COUNT).astype(parts) + 1j * random.standard_normal(COUNT)).astype(x.dtype)
            for _ in range(2)
        )
    z = np.arange(COUNT) % (8 * x.itemsize) if element in INTEGERS else y
    o = np.zeros((COUNT, len(names)), x.dtype, order="F")
    (*_, wanted), (*_, found) = run_both(text, [x, y, z.astype(x.dtype), o])
    for number, name in enumerate(names):
        one, other = wanted[:, number], found[:, number]
        if name in ("min", "max") and element in FLOATS:  # which of two zeros is the lesser is open
            chosen = (x != 0) | (y != 0)
            one, other = one[chosen], other[chosen]
        if element in COMPLEX and name in ("mul", "div"):
            close(one, other, element, f"{name} of {element}", 8)
        else:
            same(one, other, f"{name} of {element}")


@pytest.mark.parametrize("element", FLOATS)
def test_remainders_of_large_quotients(element: str) -> None:
    """What a quotient rounds away is part of the remainder."""
    random = np.random.default_rng(4)
    x, y = (
        (random.standard_normal(COUNT) * 2.0 ** random.integers(-most, most, COUNT)).astype(dtype_of(element))
        for most in (14, 7)
    )
    text = each(
        [f"%{name}: memref<{element}x{COUNT}>" for name in "xyo"],
        [
            f"%a = load %x[%i] : {element}",
            f"%b = load %y[%i] : {element}",
            f"%r = arith.rem %a, %b : {element}",
            "store %r, %o[%i]",
        ],
    )
    (*_, wanted), (*_, found) = run_both(text, [x, y, np.zeros_like(x)])
    np.testing.assert_array_equal(wanted, np.fmod(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype))
    same(wanted, found, f"rem of {element}")


def unaries(element: str) -> dict[str, str]:
    """Functions of one operand, and the type that they give."""
    part = {"c32": "f32", "c64": "f64"}.get(element)
    if part is not None:
        return {"neg": element, "conj": element, "abs": part, "im": part, "re": part}
    return {"abs": element, "neg": element} | ({"not": element} if element in INTEGERS else {})


@pytest.mark.parametrize("element", SCALARS)
def test_one_operand_and_comparisons(element: str) -> None:
    lines = [f"%a = load %x[%i] : {element}", f"%b = load %y[%i] : {element}"]
    lines += ["%yes = constant 1 : i8", "%no = constant 0 : i8"]
    parameters = [f"%{name}: memref<{element}x{COUNT}>" for name in "xy"]
    outputs = []
    for name, result in unaries(element).items():
        lines += [f"%r_{name} = arith.{name} %a : {result}", f"store %r_{name}, %o_{name}[%i]"]
        parameters.append(f"%o_{name}: memref<{result}x{COUNT}>")
        outputs.append(np.zeros(COUNT, dtype_of(result)))
    for name in COMPARISONS[: 2 if element in COMPLEX else None]:
        lines += [
            f"%c_{name} = cmp.{name} %a, %b : bool",
            f"%s_{name} = arith.select %c_{name}, %yes, %no : i8",
        ]
        lines += [
            f"store %s_{name}, %m_{name}[%i]",
            f"%t_{name} = arith.select %c_{name}, %a, %b : {element}",
        ]
        lines.append(f"store %t_{name}, %p_{name}[%i]")
        parameters += [f"%m_{name}: memref<i8x{COUNT}>", f"%p_{name}: memref<{element}x{COUNT}>"]
        outputs += [np.zeros(COUNT, np.int8), np.zeros(COUNT, dtype_of(element))]
    x, y = draw(element, COUNT, 1), draw(element, COUNT, 2)
    y[::5] = x[::5]
    wanted, found = run_both(each(parameters, lines), [x, y, *outputs])
    for name, one, other in zip(parameters, wanted, found, strict=True):
        if element in COMPLEX and name.startswith("%o_abs"):
            close(one, other, element, name, 4)
        else:
            same(one, other, name)


@pytest.mark.parametrize("element", ELEMENTS)
def test_casts(element: str) -> None:
    targets = [item for item in ELEMENTS if is_castable(element, item)]
    lines = [f"%a = load %x[%i] : {element}"]
    for item in targets:
        lines += [f"%r_{item} = cast %a : {item}", f"store %r_{item}, %{item}[%i]"]
    parameters = [f"%x: memref<{element}x{COUNT}>", *(f"%{item}: memref<{item}x{COUNT}>" for item in targets)]
    if element in STORED_DTYPES:
        x = np.arange(COUNT, dtype=np.uint8).view(dtype_of(element))
    else:
        x = draw(element, COUNT, 5)
        if element in FLOATS:
            x[8:40] = np.array(
                [2.0**n * s for n in (7, 15, 31, 63, 8, 16, 32, 64) for s in (1, -1, 0.99, -1.01)]
            ).astype(x.dtype)
    wanted, found = run_both(
        each(parameters, lines), [x, *(np.zeros(COUNT, dtype_of(item)) for item in targets)]
    )
    for item, one, other in zip(targets, wanted[1:], found[1:], strict=True):
        same(one, other, f"{element} to {item}")


@pytest.mark.parametrize("element", FLOATS)
def test_functions(element: str) -> None:
    names = (*EXACT, *CLOSE, *ROUGH)
    lines = [f"%a = load %x[%i] : {element}", f"%b = load %y[%i] : {element}"]
    for number, name in enumerate((*names, "pow", "fma")):
        word = "arith.fma %a, %b, %a" if name == "fma" else f"math.{name} %a" + ", %b" * (name == "pow")
        if name == "fma" and element == "f64":
            word = "math.pow %a, %b"
        lines += [
            f"%k{number} = constant {number} : index",
            f"%r{number} = {word} : {element}",
            f"store %r{number}, %o[%i,%k{number}]",
        ]
    total = len(names) + 2
    text = each(
        [
            f"%x: memref<{element}x{COUNT}>",
            f"%y: memref<{element}x{COUNT}>",
            f"%o: memref<{element}x{COUNT}x{total}>",
        ],
        lines,
    )
    random = np.random.default_rng(6)
    x = (random.standard_normal(COUNT) * 2.0 ** random.integers(-8, 6, COUNT)).astype(dtype_of(element))
    x[:11] = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2.5, -3.5]).astype(x.dtype)
    y = random.integers(-3, 4, COUNT).astype(x.dtype)
    (*_, wanted), (*_, found) = run_both(text, [x, y, np.zeros((COUNT, total), x.dtype, order="F")])
    for number, name in enumerate((*names, "pow", "fma")):
        one, other = wanted[:, number], found[:, number]
        if name in EXACT:
            same(one, other, f"{name} of {element}")
        elif name in ROUGH:
            far = np.abs(one.astype(np.float64) - other.astype(np.float64))
            good = (far <= 2.0**-10 + EPSILON[element]) | (np.isnan(one) & np.isnan(other))
            assert good.all(), f"{name} of {element}: {one[~good]} {other[~good]} of {x[~good]}"
        else:
            # The exponent of 2 is rounded by the instruction of the device.
            units = 40 if name == "native_exp" and element == "f32" else 4
            close(one, other, element, f"{name} of {element}", units)


SUBGROUPS = (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize("element", SCALARS)
@pytest.mark.parametrize("size", SUBGROUPS)
def test_subgroups(element: str, size: int) -> None:
    """Reductions, scans and broadcasts."""
    functions = ("add",) if element in COMPLEX else ("add", "max", "min")
    words = [f"subgroup_{function}.{form} %a : {element}" for function in functions for form in FORMS]
    words += [f"subgroup_broadcast %a, %last : {element}"]
    lines = [
        "%s = builtin.subgroup_id : i32",
        "%l = builtin.subgroup_local_id : i32",
        f"%size = constant {size} : i32",
        "%first = arith.mul %s, %size : i32",
        "%place = arith.add %first, %l : i32",
        "%i = cast %place : index",
        f"%last = constant {size - 1} : i32",
        f"%a = load %x[%i] : {element}",
    ]
    for number, word in enumerate(words):
        lines += [f"%k{number} = constant {number} : index", f"%r{number} = {word}"]
        lines.append(f"store %r{number}, %o[%i,%k{number}]")
    body = "\n    ".join(lines)
    text = f"""
func @f(%x: memref<{element}x64>, %o: memref<{element}x64x{len(words)}>)
    attributes{{subgroup_size={size}, work_group_size=[64,1]}} {{
  parallel {{
    {body}
  }}
}}
"""
    x = draw_array(np.random.default_rng(size), element, (64,))
    (_, wanted), (_, found) = run_both(text, [x, np.zeros((64, len(words)), x.dtype, order="F")])
    for number, word in enumerate(words):
        one, other = wanted[:, number], found[:, number]
        if "_add" in word and element not in INTEGERS:  # sums have no order
            scale = EPSILON[element] * 8 * np.abs(x.astype(np.complex128)).sum()
            assert (np.abs(one.astype(np.complex128) - other) <= scale).all(), word
        else:
            same(one, other, word)


@pytest.mark.parametrize("element", ATOMIC)
def test_atomics(element: str) -> None:
    """Updates of few places by many work-groups; the last half of an odd number is alone in its word."""
    names = ["add"] if element in COMPLEX else ["add", "max", "min"]
    lines = [f"%a = load %x[%i] : {element}", "%k = load %at[%i] : index"]
    lines += ["store.atomic_add %a, %s[%k]", "store.atomic %a, %w[%i]"]
    if element not in COMPLEX:
        for name in names:
            lines += [f"%o_{name} = atomic_{name} %a, %{name}[%k] : {element}"]
        lines += [f"%more = arith.add %o_max, %o_min : {element}", "store %more, %seen[%i]"]
    parameters = [f"%x: memref<{element}x{COUNT}>", f"%at: memref<indexx{COUNT}>"]
    parameters += [f"%{name}: memref<{element}x7>" for name in ("s", "add", "max", "min")]
    parameters += [f"%w: memref<{element}x{COUNT}>", f"%seen: memref<{element}x{COUNT}>"]
    random = np.random.default_rng(1)
    dtype = dtype_of(element)
    x = random.integers(-8, 9, COUNT).astype(dtype)
    arguments = [x, random.integers(0, 7, COUNT)]
    arguments += [random.integers(-8, 9, 7).astype(dtype) for _ in range(4)]
    arguments += [np.zeros(COUNT, dtype) for _ in range(2)]
    wanted, found = run_both(each(parameters, lines), arguments, 3)
    for name, one, other in list(zip(parameters, wanted, found, strict=True))[:-1]:
        same(one, other, name)
