"""Scalars of kernels of the tensor language: text that grows, and expressions of every type with a defined value.

Integers are divided by odd numbers and shifted by less than their width. What is computed is the same bits on every
machine, so functions that are only close to the truth are kept apart: `leaf` gives one whose value nobody uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.support.backend.interpreter.kernels import COMPLEX, FLOATS, INTEGERS

ELEMENTS = (*INTEGERS, *FLOATS, *COMPLEX)
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}
PARTS = {"c32": "f32", "c64": "f64"}
ORDERED = ("lt", "le", "gt", "ge", "eq", "ne")
EXACT = ("floor", "ceil", "round", "trunc", "sqrt")
CLOSE = ("exp", "native_exp", "exp2", "sin", "cos", "tanh", "erf", "atan", "sigmoid")
NUMBERS = (0.0, 1.0, -1.5, 2.5, 0.001, 7.0, -0.0, 1e30, -3.0, 65504.0)
DEPTH = 3


@dataclass(slots=True)
class Scalars:
    """A text that grows, with the scalars that can be used where it ends."""

    draw: st.DrawFn
    elements: tuple[str, ...]
    """The types of numbers that occur."""
    lines: list[str] = field(default_factory=list)
    pool: dict[str, list[str]] = field(default_factory=dict)
    """Values by type."""
    uniform: set[str] = field(default_factory=set)
    """Values that all work-items of the work-group have in common."""
    count: int = 0
    indent: int = 1

    # --- text

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def put(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def value(self, text: str) -> str:
        name = self.name()
        self.put(f"{name} = {text}")
        return name

    @contextmanager
    def region(self) -> Iterator[None]:
        """A region: what it defines is not seen behind it."""
        pool, uniform = {kind: list(names) for kind, names in self.pool.items()}, set(self.uniform)
        self.indent += 1
        yield
        self.indent -= 1
        self.pool, self.uniform = pool, uniform

    # --- choices

    def pick(self, *items: str) -> str:
        return self.draw(st.sampled_from(items))

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def chance(self, of: int = 2) -> bool:
        return self.number(1, of) == 1

    # --- values

    def keep(self, name: str, kind: str, uniform: bool = False) -> str:
        """Let a value be used from here on."""
        self.pool.setdefault(kind, []).append(name)
        if uniform:
            self.uniform.add(name)
        return name

    def index(self, value: int) -> str:
        return self.constant(str(value), "index")

    def constant(self, literal: str, kind: str) -> str:
        name = self.value(f"constant {literal} : {kind}")
        self.uniform.add(name)
        return name

    def some_constant(self, kind: str) -> str:
        if kind == "bool":
            return self.constant(self.pick("true", "false"), kind)
        if kind in INTEGERS:
            edge = (1 << (BITS[kind] - 1)) - 1
            return self.constant(str(self.draw(st.integers(-9, 9) | st.sampled_from([edge, -edge]))), kind)
        number = st.sampled_from(NUMBERS)
        if kind in COMPLEX:
            return self.constant(f"[{self.draw(number)}, {self.draw(number)}]", kind)
        return self.constant(str(self.draw(number)), kind)

    def scalar(self, kind: str, uniform: bool = False, depth: int = DEPTH) -> str:
        """A value of a type: one that is there, a constant, or one that is computed."""
        found = [name for name in self.pool.get(kind, ()) if not uniform or name in self.uniform]
        if found and (depth <= 0 or not self.chance(3)):
            return self.draw(st.sampled_from(found))
        if depth <= 0 or self.chance(3):
            return self.some_constant(kind)
        return self.compute(kind, uniform, depth - 1)

    def compute(self, kind: str, uniform: bool = False, depth: int = DEPTH - 1) -> str:
        """Something new of a type."""
        write = self.draw(st.sampled_from(self._forms(kind)))
        return self.keep(self.part(write(kind, uniform, depth)), kind)

    def part(self, text: str) -> str:
        """A value on the way to another one: as uniform as what it is made of."""
        name = self.value(text)
        words = text.replace(",", " ").split()
        if all(word in self.uniform for word in words if word.startswith("%")):
            self.uniform.add(name)
        return name

    def _forms(self, kind: str) -> list[Callable[[str, bool, int], str]]:
        if kind == "bool":
            return [self._compare, self._compare, self._logic]
        found: list[Callable[[str, bool, int], str]] = [
            self._binary,
            self._binary,
            self._unary,
            self._cast,
            self._select,
        ]
        found += [self._divide, self._shift] if kind in INTEGERS else []
        found += [self._exact] if kind in FLOATS else []
        return found

    # --- expressions

    def _two(self, kind: str, uniform: bool, depth: int) -> str:
        return f"{self.scalar(kind, uniform, depth)}, {self.scalar(kind, uniform, depth)}"

    def _binary(self, kind: str, uniform: bool, depth: int) -> str:
        functions = ["add", "sub", "mul"]
        if kind not in COMPLEX:
            functions += ["min", "max"]
        functions += ["and", "or", "xor"] if kind in INTEGERS else ["div"]
        functions += ["rem"] if kind in FLOATS else []
        return f"arith.{self.pick(*functions)} {self._two(kind, uniform, depth)} : {kind}"

    def _unary(self, kind: str, uniform: bool, depth: int) -> str:
        wide = next((name for name in self.elements if PARTS.get(name) == kind), None)
        if wide and self.chance():
            return f"arith.{self.pick('re', 'im')} {self.scalar(wide, uniform, depth)} : {kind}"
        functions = {"c32": ["neg", "conj"], "c64": ["neg", "conj"]}.get(kind, ["neg", "abs"])
        functions += ["not"] if kind in INTEGERS else []
        return f"arith.{self.pick(*functions)} {self.scalar(kind, uniform, depth)} : {kind}"

    def _cast(self, kind: str, uniform: bool, depth: int) -> str:
        sources = [name for name in self.elements if kind in COMPLEX or name not in COMPLEX]
        source = self.pick(*(sources or [kind]))
        return f"cast {self.scalar(source, uniform, depth)} : {kind}"

    def _select(self, kind: str, uniform: bool, depth: int) -> str:
        test = self.scalar("bool", uniform, depth)
        return f"arith.select {test}, {self._two(kind, uniform, depth)} : {kind}"

    def _divide(self, kind: str, uniform: bool, depth: int) -> str:
        one = self.constant("1", kind)
        odd = self.part(f"arith.or {self.scalar(kind, uniform, depth)}, {one} : {kind}")
        return f"arith.{self.pick('div', 'rem')} {self.scalar(kind, uniform, depth)}, {odd} : {kind}"

    def _shift(self, kind: str, uniform: bool, depth: int) -> str:
        mask = self.constant(str(BITS[kind] - 1), kind)
        amount = self.part(f"arith.and {self.scalar(kind, uniform, depth)}, {mask} : {kind}")
        return f"arith.{self.pick('shl', 'shr')} {self.scalar(kind, uniform, depth)}, {amount} : {kind}"

    def _exact(self, kind: str, uniform: bool, depth: int) -> str:
        return f"math.{self.pick(*EXACT)} {self.scalar(kind, uniform, depth)} : {kind}"

    def _compare(self, _: str, uniform: bool, depth: int) -> str:
        kind = self.pick(*self.elements)
        test = self.pick(*(("eq", "ne") if kind in COMPLEX else ORDERED))
        return f"cmp.{test} {self._two(kind, uniform, depth)} : bool"

    def _logic(self, _: str, uniform: bool, depth: int) -> str:
        if self.chance(3):
            return f"arith.not {self.scalar('bool', uniform, depth)} : bool"
        return f"arith.{self.pick('and', 'or', 'xor')} {self._two('bool', uniform, depth)} : bool"

    def inside(self, size: int, uniform: bool = False) -> str:
        """An index of a mode of that size."""
        if size == 1 or self.chance():
            return self.index(self.number(0, size - 1))
        most = self.constant(str((1 << 63) - 1), "index")
        plain = self.part(f"arith.and {self.scalar('index', uniform, 1)}, {most} : index")
        return self.part(f"arith.rem {plain}, {self.index(size)} : index")

    def leaf(self, kind: str) -> str:
        """A function of a moderate number, close to the truth; its value is for no further use."""
        return self.value(f"math.{self.pick(*CLOSE)} {self.between(kind, -6, 6)} : {kind}")

    def between(self, kind: str, least: int, most: int) -> str:
        """A number between two others."""
        dot = "" if kind in INTEGERS else ".0"
        low, high = self.constant(f"{least}{dot}", kind), self.constant(f"{most}{dot}", kind)
        above = self.part(f"arith.max {self.scalar(kind, depth=1)}, {low} : {kind}")
        return self.part(f"arith.min {above}, {high} : {kind}")
