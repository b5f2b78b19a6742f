"""Bounds proofs against the interpreter, which executes every access: what is proved never leaves, what leaves does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from lamella.backend.interpreter import InterpretedKernels
from lamella.backend.interpreter.state import InterpreterOptions
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.limits import DEFAULT
from lamella.base.source import Source
from lamella.lang.tensor import check, parse
from lamella.lang.tensor.nodes import Memref

LEAVES, CAN_LEAVE, UNPROVED = "TEN140", "TEN141", "TEN142"
BOUNDS = (LEAVES, CAN_LEAVE, UNPROVED)
WRITTEN = "TEN118"
"""What is wrong with offsets and sizes in the text is told without a proof."""
OUTSIDE = ("TEN215", "TEN216", "TEN223")
MOST = 20
NUMBERS = (-60, -2, 0, 1, 5, 12, 13, 60)
SHAPES = (0, 1, 4, 20, 60)
HEAD = "func @k(%A: memref<f32x{rows}x{columns}>, %n: index, %c: bool)"
SIZES = " attributes{subgroup_size=4, work_group_size=[8,1]}"


def findings_of(text: str) -> list[Diagnostic]:
    """What the checker says of a text that can be read."""
    program, found = parse(Source("k.tensor", text))
    assert not found, "\n".join(map(str, found))
    return check(program)


def leaves(text: str, shape: tuple[int, ...], number: int, flag: bool) -> bool:
    """Whether a run of the kernel leaves a memref."""
    program, _ = parse(Source("k.tensor", text))
    kernels = InterpretedKernels(program, InterpreterOptions(DEFAULT, True, None, None))
    found = []
    try:
        kernels.call("k", [np.zeros(shape, "f4", order="F"), number, flag])
    except LamellaError as problem:
        found = [item.code for item in problem.findings]
    assert set(found) <= set(OUTSIDE)
    return bool(found)


def runs_of(text: str) -> list[bool]:
    """Whether runs leave a memref: with sizes that its type allows, and numbers and flags where they matter."""
    program, _ = parse(Source("k.tensor", text))
    type_ = program.functions[0].parameters[0].type
    sizes = type_.shape if isinstance(type_, Memref) else ()
    shapes = product(*(SHAPES if size is None else (size,) for size in sizes))
    body = text.split("\n", 1)[1]
    numbers = NUMBERS if "%n" in body else (0,)
    flags = (False, True) if "%c" in body else (False,)
    return [leaves(text, shape, number, flag) for shape, number, flag in product(shapes, numbers, flags)]


class Writer:
    """Writes a random program with one access in it."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.indices = ["%n"] if self.pick(4) == 0 else []
        self.closing: list[str] = []
        self.varying = False
        self._count = 0

    def pick(self, count: int) -> int:
        """A number below a count."""
        return self.draw(st.integers(0, count - 1))

    def write(self, text: str) -> str:
        """Add an instruction with a result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"{name} = {text}")
        return name

    def constant(self, low: int = -3, high: int = 20) -> str:
        """A constant index."""
        return self.write(f"constant {self.draw(st.integers(low, high))} : index")

    def index(self) -> str:
        """An index that was made before, or a constant."""
        if not self.indices or self.pick(4) == 0:
            return self.constant()
        return self.indices[self.pick(len(self.indices))]

    def begin(self) -> str:
        """Where a loop begins, mostly before it ends."""
        return self.constant(-1, 3) if self.pick(3) else self.index()

    def compute(self) -> None:
        """Make an index from others."""
        kinds = (
            "add",
            "sub",
            "mul",
            "min",
            "max",
            "div",
            "rem",
            "and",
            "shr",
            "shl",
            "neg",
            "cast",
            "select",
            "if",
            "narrow",
        )
        kind = kinds[self.pick(len(kinds))]
        left = self.index()
        match kind:
            case "div" | "rem":
                found = self.write(f"arith.{kind} {left}, {self.constant(1, 9)} : index")
            case "shr" | "shl" | "and":
                found = self.write(f"arith.{kind} {left}, {self.constant(0, 7)} : index")
            case "neg":
                found = self.write(f"arith.neg {left} : index")
            case "cast":
                narrow = self.write(f"cast {left} : {('i8', 'i16', 'i32')[self.pick(3)]}")
                found = self.write(f"cast {narrow} : index")
            case "narrow":
                parts = [self.write(f"cast {item} : i8") for item in (left, self.index())]
                word = ("add", "sub", "mul")[self.pick(3)]
                found = self.write(f"cast {self.write(f'arith.{word} {parts[0]}, {parts[1]} : i8')} : index")
            case "if":
                condition, right = self.condition(), self.index()
                inner = f"if {condition} -> (index) {{ yield ({left}) }} else {{ yield ({right}) }}"
                found = self.write(inner)
            case "select":
                condition = self.condition()
                found = self.write(f"arith.select {condition}, {left}, {self.index()} : index")
            case _:
                found = self.write(f"arith.{kind} {left}, {self.index()} : index")
        self.indices.append(found)

    def condition(self) -> str:
        """A condition on indices."""
        if self.pick(8) == 0:
            return "%c"
        word = ("eq", "ne", "lt", "le", "gt", "ge")[self.pick(6)]
        found = self.write(f"cmp.{word} {self.index()}, {self.index()} : bool")
        if self.pick(4) == 0:
            word = ("and", "or")[self.pick(2)]
            found = self.write(f"arith.{word} {found}, {self.condition()} : bool")
        return found

    def open_region(self) -> None:
        """Begin a region."""
        kinds = ["for", "for", "if", "else"] + ([] if self.varying else ["foreach", "parallel"])
        kind = kinds[self.pick(len(kinds))]
        self.closing.append("}")
        if kind == "for":
            begin, end, step = self.begin(), self.index(), self.constant(1, 4)
            self._loop(f"for %v{self._count + 1}={begin},{end},{step} {{")
        elif kind == "foreach":
            begin, end = self.begin(), self.index()
            self._loop(f"foreach (%v{self._count + 1})=({begin}),({end}) {{")
            self.varying = True
        elif kind == "parallel":
            self.lines.append("parallel {")
            self.varying = True
            for name in ("subgroup_id", "subgroup_local_id"):
                self.indices.append(self.write(f"cast {self.write(f'builtin.{name} : i32')} : index"))
        else:
            self.lines.append(f"if {self.condition()} {{" + (" } else {" if kind == "else" else ""))

    def _loop(self, line: str) -> None:
        self._count += 1
        self.lines.append(line)
        self.indices.append(f"%v{self._count}")

    def access(self) -> None:
        """The access that is judged."""
        kind = self.pick(5)
        if kind == 0:
            self.write(f"subview %A[{self.index()}:{1 + self.pick(4)},{self.index()}] : memref<f32x?>")
            self.lines[-1] = self.lines[-1].replace(
                "f32x?", "f32x" + self.lines[-1].split(":")[1].split(",")[0]
            )
        elif kind == 1:
            self.write(f"subview %A[{self.index()},{self.index()}:{self.index()}] : memref<f32x?,strided<?>>")
        else:
            self.write(f"load %A[{self.index()},{self.index()}] : f32")

    def size(self, mode: int) -> str:
        """The size of a mode; one known only at the run is an index."""
        if self.pick(4):
            return str(1 + self.pick(MOST))
        self.indices += [self.write(f"size %A[{mode}] : index")] * 2
        return "?"

    def program(self) -> str:
        """The text."""
        sizes = [self.size(mode) for mode in range(2)]
        head = HEAD.format(rows=sizes[0], columns=sizes[1])
        for _ in range(self.pick(4)):
            self.open_region()
            for _ in range(self.pick(3)):
                self.compute()
        self.access()
        body = "\n".join([*self.lines, *self.closing])
        return f"{head}{SIZES} {{\n{body}\n}}\n"


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Programs with one access, in loops, conditions and regions of work-items."""
    return Writer(draw).program()


def verdict_of(text: str) -> str:
    """The code of what is said about bounds; empty where they are proved."""
    found = findings_of(text)
    codes = [item.code for item in found if item.code in BOUNDS]
    assert len(codes) <= 1
    if not codes and any(item.code == WRITTEN for item in found):
        return WRITTEN
    return codes[0] if codes else ""


@given(programs())
def test_what_is_said_of_bounds_is_what_happens(text: str) -> None:
    verdict = verdict_of(text)
    runs = runs_of(text)
    event(verdict or "proved")
    if verdict == "":
        assert not any(runs), text
    elif verdict == LEAVES:
        assert all(runs), text
    elif verdict == CAN_LEAVE:
        assert any(runs), text


def blocks_of_parts(size: int, after: str = "") -> str:
    """Two parts of 48 rows, each in blocks of 32 and of 16, numbered in one: the second block is the shorter one."""
    return f"""func @k(%A: memref<f32x{size}>) {{
      %0 = constant 0 : index %2 = constant 2 : index %4 = constant 4 : index
      for %id: index = %0,%4 {{
        %q = arith.div %id, %2 : index %r = arith.rem %id, %2 : index
        %48 = constant 48 : index %32 = constant 32 : index %16 = constant 16 : index %1 = constant 1 : index
        %part = arith.mul %q, %48 : index %block = arith.mul %r, %32 : index
        %begin = arith.add %part, %block : index
        %first = cmp.lt %r, %1 : bool
        if %first {{
          for %i: index = %0,%32 {{ %x = arith.add %begin, %i : index %v = load %A[%x] : f32 }}
        }} else {{
          for %j: index = %0,%16 {{ %y = arith.add %begin, %j : index %w = load %A[%y] : f32 }}
        }}{after}
      }}
    }}"""


def test_a_condition_on_a_remainder_bounds_the_number_that_was_divided() -> None:
    assert not findings_of(blocks_of_parts(96))
    assert [item.code for item in findings_of(blocks_of_parts(95))] == [LEAVES]


def test_what_followed_from_a_condition_ends_with_it() -> None:
    late = "for %k: index = %0,%32 { %z = arith.add %begin, %k : index %u = load %A[%z] : f32 }"
    assert [item.code for item in findings_of(blocks_of_parts(96, late))] == [LEAVES]
