"""What the bridge from NAC to graphs takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import ElementType
from lamella.base.limits import Limits, OutOfRange, in_range, mul
from lamella.base.shape import element_count
from lamella.base.source import Span
from lamella.bridge.aten.nodes import Operand, Result
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Tensor
from lamella.lang.nac.rules import graphs as rules


@dataclass(frozen=True, slots=True)
class InputType:
    """What an input is."""

    element: ElementType
    shape: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class KeptState:
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
    states: tuple[tuple[KeptState, Tensor], ...] = ()
    """What is kept between runs, each with its variable."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What stands where an instruction gave no value; a reason is reported at the first use."""

    reason: str = ""


FAILED = Failure()
"""The result of an instruction that has a finding already, so that its users need none."""


@dataclass(frozen=True, slots=True)
class Untyped:
    """What stands where only a run tells the type: an input that nothing describes, and all that is made of it."""


UNTYPED = Untyped()

Value: TypeAlias = "Operand | Failure | Untyped"


@dataclass(frozen=True, slots=True)
class CallArgument:
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


# --- bounds on the sizes of results -------------------------------------------------------------------------
#
# Only shapes are computed here, and a few bytes of a file must not promise what no machine has.


@dataclass(frozen=True, slots=True)
class Excess:
    """A result that passes a limit, or a size that no integer holds."""

    what: str
    problem: str
    limit: str

    def at(self, span: Span, index: int, name: str) -> Diagnostic:
        """The finding about the instruction that gives it."""
        if self.limit:
            return rules.TOO_LARGE.at(
                span, index=index, name=name, what=self.what, problem=self.problem, limit=self.limit
            )
        return rules.CALL_REFUSED.at(span, index=index, name=name, problem=self.problem)


def find_excess(value: Value, limits: Limits) -> Excess | None:
    """The first part of a result that is too large."""
    if isinstance(value, tuple):
        return next((found for item in value if (found := find_excess(item, limits)) is not None), None)
    if isinstance(value, Tensor):
        return _of_tensor(value, limits)
    sizes = [factor for _, factor in value.terms] if isinstance(value, Dim) else [value]
    if any(isinstance(item, int) and not in_range(item) for item in sizes):
        return Excess("", "a size leaves the signed 64-bit range", "")
    return None


def _of_tensor(tensor: Tensor, limits: Limits) -> Excess | None:
    what = describe(tensor)
    problem = limits.excess("max_rank", len(tensor.shape), "its rank")
    if problem:
        return Excess(what, problem, "max_rank")
    known = [item for item in tensor.shape if isinstance(item, int)]
    try:
        size = mul(element_count(known), max(tensor.element.bits // 8, 1))
    except OutOfRange:
        return Excess(what, "its size leaves the signed 64-bit range", "max_total_bytes")
    problem = limits.excess("max_total_bytes", size, "its size in bytes")
    return Excess(what, problem, "max_total_bytes") if problem else None
