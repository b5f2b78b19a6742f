"""Whole programs: generated ones against NumPy on whole vectors, the good programs of the language, nesting."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.interpreter import Arrays, InterpretedKernels, compile_program
from lamella.backend.interpreter.state import InterpreterOptions
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import (
    Function,
    Group,
    If,
    Memref,
    Parameter,
    Program,
    Region,
    Scalar,
    Statement,
    Store,
    Type,
    Value,
    make_memref,
)
from tests.support.backend.interpreter.kernels import DTYPES, Array, compile_text

GOOD = Path(__file__).parents[2] / "lang" / "tensor" / "good"
SUBGROUP, ITEMS = 4, 12


# --- generated programs: what each work-item computes, NumPy computes for all of them at once ----------------------


@dataclass
class Twin:
    """A program and the vectors that its values hold over the work-items."""

    lines: list[str] = field(default_factory=list)
    values: list[tuple[str, Array]] = field(default_factory=list)
    count: int = 0

    def add(self, instruction: str, value: Array) -> str:
        """A statement that produces a value."""
        name = f"%v{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {instruction}")
        self.values.append((name, value.astype(np.int32)))
        return name


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "xor": np.bitwise_xor, "min": np.minimum}
COMPARE = {"lt": np.less, "ge": np.greater_equal, "eq": np.equal}
Choice = tuple[int, int, int]


def calculate(twin: Twin, choice: Choice) -> None:
    """One arithmetic instruction on two earlier values."""
    name = sorted(BINARY)[choice[0] % len(BINARY)]
    (a, left), (b, right) = (twin.values[pick % len(twin.values)] for pick in choice[1:])
    with np.errstate(over="ignore"):
        twin.add(f"arith.{name} {a}, {b} : i32", BINARY[name](left, right))


def scan(twin: Twin, choice: Choice) -> None:
    """One sum over each subgroup."""
    (a, value) = twin.values[choice[1] % len(twin.values)]
    lanes = value.reshape(-1, SUBGROUP)
    if choice[0] % 2:
        twin.add(f"subgroup_add.inclusive_scan {a} : i32", np.cumsum(lanes, 1, dtype=np.int32).reshape(-1))
    else:
        total = lanes.sum(1, dtype=np.int32, keepdims=True)
        twin.add(f"subgroup_add.reduce {a} : i32", np.repeat(total, SUBGROUP, 1).reshape(-1))


def branch(twin: Twin, choice: Choice) -> None:
    """A condition that differs between work-items and gives a value."""
    name = sorted(COMPARE)[choice[0] % len(COMPARE)]
    (a, left), (b, right) = (twin.values[pick % len(twin.values)] for pick in choice[1:])
    condition = f"%c{twin.count}"
    twin.lines.append(f"{condition} = cmp.{name} {a}, {b} : bool")
    inner = f"%t{twin.count}"
    text = f"if {condition} -> (i32) {{ {inner} = arith.sub {a}, {b} : i32 yield ({inner}) }} else {{ yield ({b}) }}"
    with np.errstate(over="ignore"):
        twin.add(text, np.where(COMPARE[name](left, right), left - right, right))


def repeat(twin: Twin, choice: Choice) -> None:
    """A loop whose number of trips differs between work-items."""
    (a, start), (b, other) = (twin.values[pick % len(twin.values)] for pick in choice[1:])
    trips = f"%n{twin.count}"
    twin.lines.append(f"{trips} = arith.and {b}, %three : i32")
    index, carried, following = (f"%{letter}{twin.count}" for letter in "kxy")
    body = f"{following} = arith.add {carried}, {index} : i32 yield ({following})"
    count = other & 3
    text = f"for {index}:i32=%zero,{trips} init({carried}={a}) -> (i32) {{ {body} }}"
    with np.errstate(over="ignore"):
        twin.add(text, start + (count * (count - 1) // 2).astype(np.int32))


MOVES = (calculate, scan, branch, repeat, calculate)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.tuples(*[st.integers(0, 100)] * 3)), min_size=1, max_size=14),
    st.integers(0, 2**32),
)
def test_generated_programs(moves: list[tuple[int, Choice]], seed: int) -> None:
    items = np.arange(ITEMS, dtype=np.int32)
    twin = Twin()
    twin.values.append(("%lane", items % SUBGROUP))
    data = np.random.default_rng(seed).integers(-(2**31), 2**31, ITEMS, dtype=np.int32)
    twin.values.append(("%x", data))
    for kind, choice in moves:
        MOVES[kind](twin, choice)
    body = "\n    ".join(twin.lines)
    text = f"""
func @f(%a: memref<i32x{ITEMS}>, %b: memref<i32x{ITEMS}>) attributes{{subgroup_size=4, work_group_size=[4,3]}} {{
  %zero = constant 0 : i32
  %three = constant 3 : i32
  parallel {{
    %sg = builtin.subgroup_id : i32
    %lane = builtin.subgroup_local_id : i32
    %width = builtin.subgroup_size : i32
    %first = arith.mul %sg, %width : i32
    %item = arith.add %first, %lane : i32
    %i = cast %item : index
    %x = load %a[%i] : i32
    {body}
    store {twin.values[-1][0]}, %b[%i]
  }}
}}"""
    found = np.zeros(ITEMS, np.int32)
    compile_text(text, seed=seed).f(data, found)
    assert np.array_equal(found, twin.values[-1][1])


# --- programs that must run, or end with findings ---------------------------------------------------------------


def make_argument(kind: Type) -> object:
    """Something to pass for a parameter."""
    if isinstance(kind, Scalar):
        return True if kind.name == "bool" else 1
    if isinstance(kind, Group):
        items = [make_argument(kind.memref) for _ in range(2 if kind.size is None else kind.size)]
        return Arrays([item for item in items if isinstance(item, np.ndarray)], kind.offset or 0)
    return make_array(kind) if isinstance(kind, Memref) else None


def make_array(kind: Memref) -> Array:
    """An array of a memref's type: 16 where a size is open, packed behind what is fixed."""
    shape = [16 if size is None else size for size in kind.shape]
    stride, distance = [], 1
    for size, step in zip(shape, kind.stride, strict=True):
        stride.append(distance if step is None else step)
        distance = max(1, stride[-1] * size)
    reach = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    memory = np.ones(max(1, reach), DTYPES[kind.element])
    width = memory.itemsize
    return np.lib.stride_tricks.as_strided(memory, shape, [width * step for step in stride])


def run_all(program: Program) -> list[str]:
    """Run each kernel of a program; the codes of what is found."""
    codes = []
    kernels = compile_program(program, limits=Limits(max_steps=20_000))
    for function in program.functions:
        arguments = [make_argument(parameter.type) for parameter in function.parameters]
        try:
            kernels.call(function.name, arguments, 2)
        except LamellaError as error:
            codes += [item.code for item in error.findings]
    return codes


@pytest.mark.parametrize("path", sorted(GOOD.glob("*.tensor")), ids=lambda path: path.stem)
def test_good_programs_run_or_end_with_findings(path: Path) -> None:
    parsed = parse(Source(path.name, path.read_text(encoding="utf-8")))
    assert all(code >= "TEN200" for code in run_all(parsed.program))


def test_nesting_costs_no_stack() -> None:
    region = Region((Statement((), Store(Value("v"), Value("x"), ())),))
    for _ in range(5000):
        region = Region((Statement((), If(Value("c"), region)),))
    kinds: dict[str, Type] = {"c": Scalar("bool"), "v": Scalar("i32"), "x": make_memref("i32", ())}
    parameters = tuple(Parameter(Value(name), kind) for name, kind in kinds.items())
    kernels = InterpretedKernels(Program((Function("f", parameters, region),)), InterpreterOptions(DEFAULT))
    found = np.zeros((), np.int32)
    kernels.f(True, 7, found)
    assert found == 7
