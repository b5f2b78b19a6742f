"""Candidates for autotuning: the variants of one product of a graph, each kernels and their launches, as text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from lamella.base.records import dataclass
from lamella.kernels.native_products import find_native
from lamella.kernels.nodes import KernelCall
from lamella.kernels.rewrite import rename_region
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Function, Program, Value

Place = tuple[str, int | None]
"""What an operand is called, and which tensor of a pack it is."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One variant: its kernels, and their launches in the order in which they run."""

    name: str
    functions: tuple[Function, ...]
    calls: tuple[KernelCall, ...]

    @property
    def is_native(self) -> bool:
        """Whether a library computes a part of it."""
        return any(find_native(item) is not None for item in self.functions)

    def text(self) -> str:
        """Its kernels and launches without the names that a graph gives them."""
        names = {item.name: f"kernel{place}" for place, item in enumerate(self.functions)}
        places: dict[Place, int] = {}
        lines = []
        for call in self.calls:
            own = [
                (places.setdefault((item.name, item.item), len(places)), item.shape, item.strides)
                for item in call.operands
            ]
            lines.append(f"{names[call.kernel]} {call.groups} {call.once} {own}")
        return "\n".join([*map(anonymous_text, self.functions), *lines])


@dataclass(frozen=True, slots=True)
class Problem:
    """A product of a graph: its default variant, and what writes the others."""

    default: Candidate
    steps: int
    """Multiplications of one run."""
    fixed: frozenset[Place]
    """Constant operands: the same in every run."""
    write_others: Callable[[], Iterator[Candidate]]
    """Writes the other variants, the most promising first; each as it is asked for."""

    def text(self) -> str:
        """The key of a choice between its variants: what that depends on."""
        return f"{self.default.text()}\n{_numbered(self.default.calls, self.fixed)}"

    def candidates(self, native: bool = True) -> Iterator[Candidate]:
        """All ways that differ, the default first; without those of libraries where these must not compute."""
        seen = set()
        for item in (self.default, *self.write_others()):
            text = item.text()
            if text not in seen and (native or not item.is_native):
                yield item
            seen.add(text)


Choose: TypeAlias = Callable[[Problem], Candidate]
"""The autotuner: decides between the variants of a product."""


def _numbered(calls: Sequence[KernelCall], fixed: Collection[Place]) -> str:
    """Which operands of some launches are fixed, by their places."""
    found = [
        f"{number}.{place}"
        for number, call in enumerate(calls)
        for place, item in enumerate(call.operands)
        if (item.name, item.item) in fixed
    ]
    return f"fixed: {' '.join(found)}"


def anonymous_text(function: Function) -> str:
    """A kernel as text, without the names that a graph gives to it and to its parameters."""
    names = {item.value.name: Value(f"p{place}") for place, item in enumerate(function.parameters)}
    parameters = tuple(replace(item, value=names[item.value.name]) for item in function.parameters)
    body = rename_region(function.body, names)
    return write(Program((replace(function, name="kernel", parameters=parameters, body=body),)))
