"""How large results may be: only shapes are computed here, and they must not promise what no machine has."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim
from lamella.base.limits import Limits, OutOfRange, in_range, mul
from lamella.base.shape import element_count
from lamella.base.source import Span
from lamella.bridge.nac_to_graph.nodes import Value, describe
from lamella.graph.nodes import Tensor
from lamella.lang.nac.rules import graphs as rules


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
