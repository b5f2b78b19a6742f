"""A NEM program with every name looked up and every constant evaluated.

This is no other language: it is what the text says, in numbers. Offsets and unit indices stay expressions in the loop
variables (`Index`), everything else is a plain value. Checker, hazards, simulator, interpreter and binder all read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lamella.base.affine import add_terms
from lamella.base.quant import Quant as Quantization
from lamella.base.source import NOWHERE, Source, Span
from lamella.lang.nem import nodes
from lamella.lang.nem.device import ResolvedDevice

# --- expressions in loop variables --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variable:
    """A loop variable, by the number of its loop."""

    loop: int
    name: str = field(compare=False)

    def at(self, iteration: Mapping[int, int]) -> int:
        """The value in an iteration."""
        return iteration[self.loop]


@dataclass(frozen=True, slots=True)
class Operation:
    """`left * right`, `left / right` or `left mod right` that is not linear; `/` truncates towards zero."""

    sign: str
    left: Index
    right: Index

    def size(self) -> tuple[int, int]:
        """How many operations it consists of, itself among them, and how deep they are nested."""
        left, right = self.left.size(), self.right.size()
        return 1 + left[0] + right[0], 1 + max(left[1], right[1])

    def at(self, iteration: Mapping[int, int]) -> int:
        """The value in an iteration; ZeroDivisionError when the right side is zero there."""
        left, right = self.left.at(iteration), self.right.at(iteration)
        if self.sign == "*":
            return left * right
        quotient = abs(left) // abs(right)
        quotient = quotient if (left < 0) == (right < 0) else -quotient
        return quotient if self.sign == "/" else left - quotient * right


Atom: TypeAlias = Variable | Operation


@dataclass(frozen=True, slots=True)
class Index:
    """`constant + Σ factor · atom`, the atoms being loop variables or operations on such sums."""

    constant: int
    terms: tuple[tuple[Atom, int], ...] = ()

    def at(self, iteration: Mapping[int, int]) -> int:
        """The value in an iteration, given the loop variables by loop number."""
        return self.constant + sum(factor * atom.at(iteration) for atom, factor in self.terms)

    def plus(self, other: Index, factor: int = 1) -> Index:
        """The sum with a multiple of another index; terms that cancel are gone."""
        constant = self.constant + factor * other.constant
        if not other.terms:
            return Index(constant, self.terms)
        return Index(constant, tuple(add_terms(self.terms, other.terms, factor)))

    @property
    def is_constant(self) -> bool:
        """Whether it is the same in every iteration."""
        return not self.terms

    def size(self) -> tuple[int, int]:
        """How many operations it consists of and how deep they are nested; linear parts count nothing."""
        sizes = [atom.size() for atom, _ in self.terms if isinstance(atom, Operation)]
        return sum(count for count, _ in sizes), max((depth for _, depth in sizes), default=0)

    def loops(self) -> frozenset[int]:
        """The numbers of the loops whose variables occur."""
        found: set[int] = set()
        todo: list[Atom] = [atom for atom, _ in self.terms]
        while todo:
            atom = todo.pop()
            if isinstance(atom, Variable):
                found.add(atom.loop)
            else:
                todo += [inner for side in (atom.left, atom.right) for inner, _ in side.terms]
        return frozenset(found)


# --- objects ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage: `memory` is DDR, L2 or L1, `engine` the owner of an L1 (0 elsewhere)."""

    name: str
    memory: str
    engine: int
    size: int
    align: int
    imported: bool
    node: nodes.Buffer = field(compare=False, repr=False)
    debug: str = ""
    profile: str = ""
    codec: str = ""
    """How its bytes are stored outside, where that is not as they are."""
    stored: int = 0
    """Bytes that are stored of one with a codec, at most."""

    @property
    def level(self) -> str:
        """The memory as the text writes it, DDR, L2 or L1[0]."""
        return f"L1[{self.engine}]" if self.memory == "L1" else self.memory

    @property
    def span(self) -> Span:
        """Where it is declared."""
        return self.node.name.span


@dataclass(frozen=True, slots=True)
class TensorType:
    """How the bytes of a region are read; strides are in elements and always filled in."""

    elem: str
    shape: tuple[int, ...]
    layout: str | None
    strides: tuple[int, ...]
    quant: Quantization | None = None

    def __str__(self) -> str:
        return f"{self.elem}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Region:
    """A view of `extent` bytes at `offset` of a buffer; name is empty for one written in place."""

    name: str
    buffer: Buffer
    offset: Index
    extent: int
    type: TensorType | None
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    materialized: bool = False
    readonly: bool = False
    writeonly: bool = False
    debug: str = ""
    profile: str = ""


AttributeValue: TypeAlias = int | float | bool | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resource:
    """`@resource(unit[index])`."""

    unit: str
    index: Index
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A parameter of a kernel: a memref, the last dimension of its region first, or a scalar (no shape at all).

    A size or stride that only a call tells is None; `written` says that the kernel may write it.
    """

    name: str
    elem: str
    shape: tuple[int | None, ...] | None = None
    strides: tuple[int | None, ...] = ()
    written: bool = False
    by_rows: bool = False
    """Whether it has a row for each row of the outputs, which the kernel computes apart from each other."""


@dataclass(frozen=True, slots=True)
class ComputeKernel:
    """What a `compute` task runs: one function of the tensor language, as a program of its own.

    `problem` says why it cannot be a task, where it cannot.
    """

    name: str
    text: str
    parameters: tuple[KernelParameter, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A task statement; `number` counts the tasks of the program in textual order."""

    number: int
    token: str
    opcode: str
    sync: bool
    inputs: tuple[Region, ...]
    outputs: tuple[Region, ...]
    attributes: Mapping[str, AttributeValue]
    deps: tuple[int, ...]
    engine: int | None
    resource: Resource | None
    node: nodes.Task = field(compare=False, repr=False)
    memmove: bool = False
    deterministic: bool = False
    debug: str = ""
    profile: str = ""
    variant: str = ""
    work: int | None = None
    """Scalar operations of the kernel that a `compute` task runs, where its text tells them."""
    by_rows: tuple[bool, ...] = ()
    """For each operand of a `compute` task whether it has a row for each row of the outputs, where those are apart."""

    @property
    def span(self) -> Span:
        """Where it stands."""
        return self.node.span

    @property
    def title(self) -> str:
        """How people call it: the @debug name, else token and opcode."""
        return self.debug or (f"{self.token} ({self.opcode})" if self.token else self.opcode)


@dataclass(frozen=True, slots=True)
class Wait:
    """Holds back the later statements of its list until these tasks are complete."""

    deps: tuple[int, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop from `first` to `last`, both included, with at most `window` iterations in flight."""

    number: int
    variable: str
    first: int
    last: int
    window: int
    body: tuple[Item, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    debug: str = ""
    profile: str = ""

    @property
    def trips(self) -> int:
        """How many iterations it has."""
        return self.last - self.first + 1


Item: TypeAlias = Task | Wait | Loop


@dataclass(frozen=True, slots=True)
class Plan:
    """A resolved program; `regions` are the named ones outside loops, `declared` all that are named."""

    name: str
    source: Source = field(compare=False, repr=False)
    device: ResolvedDevice | None
    buffers: tuple[Buffer, ...]
    body: tuple[Item, ...]
    regions: Mapping[str, Region] = field(default_factory=dict)
    declared: tuple[Region, ...] = ()
    kernels: Mapping[str, ComputeKernel] = field(default_factory=dict)
    """What its `compute` tasks run, by name."""

    def tasks(self) -> Iterator[Task]:
        """All tasks in textual order."""
        return (item for item, _ in self.walk() if isinstance(item, Task))

    def walk(self) -> Iterator[tuple[Item, tuple[Loop, ...]]]:
        """All items in textual order, each with the loops around it, outermost first."""
        todo: list[tuple[Item, tuple[Loop, ...]]] = [(item, ()) for item in reversed(self.body)]
        while todo:
            item, around = todo.pop()
            yield item, around
            if isinstance(item, Loop):
                todo += [(inner, (*around, item)) for inner in reversed(item.body)]

    def instances(self) -> int:
        """How many task instances the program expands to."""
        total = 0
        for item, around in self.walk():
            if isinstance(item, Task):
                count = 1
                for loop in around:
                    count *= loop.trips
                total += count
        return total
