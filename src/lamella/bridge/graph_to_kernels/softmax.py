"""Softmax among the stages of an attention: the scale of scores, and what becomes of their exponentials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from math import inf
from typing import TypeGuard

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.attention import AttentionRoles
from lamella.bridge.graph_to_kernels.tiled import Epilogue
from lamella.ops.formula import Apply, Element
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import reachable


def read_softmax(roles: AttentionRoles) -> SoftmaxReader:
    """Recognise softmax among the row operations of an attention; Unsupported where it is none."""
    reading = SoftmaxReader(roles.attention.scores.targets[0].tensor)
    for stage in roles.stages:
        reading.read(stage.formula.sign, stage.formula.targets[0], stage.formula.values[0])
    weighs = roles.weights == reading.weights or (
        not reading.weights and roles.weights in reading.exponentials
    )
    if not weighs or not reading.total or reading.scale <= 0:
        raise Unsupported("its rows are no softmax")
    return reading


def divided(end: Epilogue, roles: AttentionRoles, softmax: SoftmaxReader) -> Epilogue:
    """The epilogue of a normalised mixture, from that of one whose weights were not divided by their sum."""
    if softmax.weights:
        return end
    value = _without_division(end.formula.values[0], roles.attention.mixture.targets[0].tensor, softmax.total)
    if any(item.tensor == softmax.total for item in reachable(value) if isinstance(item, Element)):
        raise Unsupported("its sums are needed otherwise")
    return replace(end, formula=replace(end.formula, values=(value,)))


def _without_division(term: Term, mixture: str, total: str) -> Term:
    """A term without `total == 0 ? 0 : mixture / total`, which the mixture stands for."""
    if not isinstance(term, Apply):
        return term
    rest = without_guard(term, total, 0.0)
    if rest is not None:
        return _without_division(rest, mixture, total)
    if term.function == "/" and _is_of(term.operands[0], mixture) and _is_of(term.operands[1], total):
        return term.operands[0]
    return replace(term, operands=tuple(_without_division(item, mixture, total) for item in term.operands))


def _is_of(term: Term, tensor: str) -> bool:
    return isinstance(term, Element) and term.tensor == tensor


@dataclass(slots=True)
class SoftmaxReader:
    """Follows the stages of rows: a maximum, exponentials of differences to it, their sum, and quotients.

    Weights may be those exponentials themselves, with a quotient of the mixture; the logarithm of the sum of
    exponentials of scores may be wanted too.
    """

    scores: str
    scale: float = 0.0
    masked: bool = False
    most: str = ""
    total: str = ""
    weights: str = ""
    exponentials: set[str] = field(default_factory=set)
    logs: dict[str, Element] = field(default_factory=dict)
    """Logarithms of sums."""

    def stored(self, roles: AttentionRoles) -> list[Element]:
        """The row values that others read."""
        return [item for name, item in self.logs.items() if name in roles.attention.outputs]

    def read(self, sign: str, element: Element, value: Term) -> None:
        """One stage; Unsupported where softmax has none such."""
        target = element.tensor
        if sign == ">=" and not self.most:
            self.most = target
            self.scale, self.masked = self._factor(value)
        elif sign == "+=" and not self.total and self._is_exponential(value):
            self.total = target
        elif sign == "=" and self._is_exponential(value):
            self.exponentials.add(target)
        elif sign == "=" and isinstance(value, Apply) and value.function == "/" and not self.weights:
            above, below = value.operands
            if (
                not self._is_exponential(above)
                or not isinstance(below, Element)
                or below.tensor != self.total
            ):
                raise Unsupported("its weights are no softmax")
            self.weights = target
        elif sign == "=" and self._is_log(value):
            self.logs[target] = element
        else:
            raise Unsupported("its rows are no softmax")

    def _is_log(self, term: Term) -> bool:
        if not isinstance(term, Apply) or term.function != "+" or len(term.operands) != 2:
            return False
        first, second = term.operands
        if not isinstance(first, Apply) or first.function != "log":
            first, second = second, first
        is_log = (
            isinstance(first, Apply) and first.function == "log" and _is_of(first.operands[0], self.total)
        )
        return is_log and _is_of(second, self.most)

    def _is_exponential(self, term: Term) -> bool:
        if isinstance(term, Element):
            return term.tensor in self.exponentials
        guarded = without_guard(term, self.most, -inf)
        if guarded is not None:
            return self._is_exponential(guarded)
        if not isinstance(term, Apply) or term.function != "exp" or not self.most:
            return False
        (rest,) = term.operands
        if not isinstance(rest, Apply) or rest.function != "-" or len(rest.operands) != 2:
            return False
        first, second = rest.operands
        same = isinstance(second, Element) and second.tensor == self.most
        return same and self._factor(first) == (self.scale, self.masked)

    def _factor(self, term: Term) -> tuple[float, bool]:
        return find_factor(term, self.scores)


def find_factor(term: Term, scores: str) -> tuple[float, bool]:
    """By what scores are multiplied in a term, and whether a mask hides some."""
    if isinstance(term, Element) and term.tensor == scores:
        return 1.0, False
    if not isinstance(term, Apply):
        raise Unsupported("its rows are no multiples of scores")
    if term.function == "?:" and term.operands[2] == -inf:
        return find_factor(term.operands[1], scores)[0], True
    numbers = [item for item in term.operands if isinstance(item, int | float) and not isinstance(item, bool)]
    others = [item for item in term.operands if item not in numbers]
    if len(numbers) != 1 or len(others) != 1 or not isinstance(others[0], Apply | Element):
        raise Unsupported("its rows are no multiples of scores")
    factor, masked = find_factor(others[0], scores)
    if term.function == "+" and numbers[0] == 0:
        return factor, masked
    if term.function == "*":
        return factor * numbers[0], masked
    if term.function == "/" and term.operands[1] is numbers[0]:
        return factor / numbers[0], masked
    raise Unsupported("its rows are no multiples of scores")


def is_reals(terms: Sequence[Term]) -> TypeGuard[Sequence[Element]]:
    """Whether terms are two elements."""
    return len(terms) == 2 and all(isinstance(item, Element) for item in terms)


def without_guard(term: Term, tensor: str, number: float) -> Term | None:
    """The term of `x == number ? 0 : term`, a guard against an empty row; None where it is no such choice."""
    if not isinstance(term, Apply) or term.function != "?:":
        return None
    condition, nothing, rest = term.operands
    if not isinstance(condition, Apply) or condition.function != "==" or nothing != 0.0:
        return None
    first, second = condition.operands
    return rest if isinstance(first, Element) and first.tensor == tensor and second == number else None
