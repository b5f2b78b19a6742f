"""What the road from NAC to graphs takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Extent
from lamella.base.dtype import ElementType
from lamella.bridge.aten.nodes import Operand, Result
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Tensor


@dataclass(frozen=True, slots=True)
class InputType:
    """What an input is."""

    element: ElementType
    shape: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class State:
    """What a file keeps between runs: it begins as a parameter, or as zeros, and becomes one of the outputs."""

    id: int
    name: str
    element: ElementType
    shape: tuple[int, ...]
    initial: int | None
    update: int

    @property
    def type(self) -> str:
        """Its element type and shape, in words."""
        return f"{self.element}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Translation:
    """A file as a model, and for each instruction the operations that it became and what it gives.

    Loads, sizes, `getitem` and `nac.pass` become nothing; an output becomes the copies that it needs. What an
    instruction gives may be the result of another; it is None where nobody can use it.
    """

    model: Model
    steps: tuple[tuple[Operation, ...], ...]
    results: tuple[Result, ...]
    findings: tuple[Diagnostic, ...] = ()
    states: tuple[tuple[State, Tensor], ...] = ()
    """What is kept between runs, each with its variable."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What stands where an instruction gave no value; a reason is told at the first use."""

    reason: str = ""


FAILED = Failure()
"""The result of an instruction that has a finding already, so that its users need none."""


@dataclass(frozen=True, slots=True)
class Untyped:
    """What stands where only a run tells the type: an input that nothing describes, and all that is made of it."""


UNTYPED = Untyped()

Value: TypeAlias = "Operand | Failure | Untyped"


@dataclass(frozen=True, slots=True)
class Given:
    """One argument of an instruction, and whether another instruction computes it."""

    value: Operand
    computed: bool
    typed: bool = True
    """Whether it is known before a run what it is; the value is None where it is not."""


def describe(value: Value) -> str:
    """A value as messages speak of it."""
    match value:
        case Failure(reason):
            return reason or "nothing"
        case Untyped():
            return "a tensor or a size"
        case Tensor(_, element, shape):
            return f"{element}[{', '.join(map(str, shape[:8]))}{', …' if len(shape) > 8 else ''}]"
        case None:
            return "nothing"
        case tuple():
            inner = ", ".join(describe(item) for item in value[:8])
            return f"({inner}{', …' if len(value) > 8 else ''})"
        case bool():
            return str(value).lower()
        case str():
            return repr(value[:40])
        case _:
            return str(value)


def first_tensor(value: Value) -> Tensor | None:
    """The tensor that a value is; of a tuple the first one, since compilers leave out `getitem(x, 0)`."""
    if isinstance(value, tuple):
        return value[0] if value and isinstance(value[0], Tensor) else None
    return value if isinstance(value, Tensor) else None
