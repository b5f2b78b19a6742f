"""Formulas and conditions with the symbols of dynamic extents known: what the run does before it computes."""

from __future__ import annotations

from dataclasses import replace

from lamella.base.dim import Dim, Logic, Test, Values, substitute, substitute_truth
from lamella.base.limits import DEFAULT
from lamella.lang.skriptnd.rules.invocation import NOT_COMPUTABLE, UNDECIDED
from lamella.ops.evaluate.packs import pick
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Contraction, Element, Guard, Lookup, Loop, Scalar
from lamella.ops.instance import Check
from lamella.ops.scalars.arithmetic import Arithmetic
from lamella.ops.scalars.functions import FUNCTIONS, call, cast, minus, select
from lamella.ops.scalars.terms import negate
from lamella.ops.scalars.values import SCALARS, show


def specialise(contraction: Contraction, values: Values) -> Contraction:
    """A formula with symbols replaced by numbers and all that follows from them computed."""
    terms = TermSpecialiser(values)
    condition = None if contraction.condition is None else terms.scalar(contraction.condition)
    return replace(
        contraction,
        targets=tuple(terms.element(item) for item in contraction.targets),
        values=tuple(terms.scalar(item) for item in contraction.values),
        loops=tuple(Loop(item.index, substitute(item.extent, values)) for item in contraction.loops),
        condition=None if condition is True else condition,
    )


def decide(check: Check, values: Values) -> bool:
    """Whether an assertion that was left to the run holds; every symbol in it must have a value."""
    found = TermSpecialiser(values).scalar(check.condition)
    if not isinstance(found, bool):
        raise Fault(UNDECIDED, what=f"'{check.message}'", value=show(found)).at(check.span)
    return found


class TermSpecialiser:
    """Rebuilds terms with symbols known; what several terms share stays shared."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self._known: dict[int, tuple[object, Scalar]] = {}
        self._arithmetic = Arithmetic(DEFAULT)

    def scalar(self, term: Scalar) -> Scalar:
        """A scalar with symbols known."""
        if isinstance(term, Dim | Test | Logic):
            return self._known_now(term)
        if not isinstance(term, Apply | Element | Lookup):
            return term
        key = id(term)
        if key not in self._known:
            # The term is kept with its result: an address is only its own while it lives.
            self._known[key] = (term, self._rebuild(term))
        return self._known[key][1]

    def _known_now(self, value: Dim | Test | Logic) -> Scalar:
        try:
            return (
                substitute(value, self.values)
                if isinstance(value, Dim)
                else substitute_truth(value, self.values)
            )
        except ZeroDivisionError:
            raise Fault(NOT_COMPUTABLE, what=f"'{value}'", reason="a divisor is 0") from None

    def _rebuild(self, term: Apply | Element | Lookup) -> Scalar:
        if isinstance(term, Element):
            return self.element(term)
        if isinstance(term, Lookup):
            table = tuple(self.scalar(item) for item in term.table)
            return _as_scalar(pick(table, self.scalar(term.index)))
        operands = [self.scalar(item) for item in term.operands]
        if all(new is old for new, old in zip(operands, term.operands, strict=True)):
            return term
        return _as_scalar(self._apply(term, operands))

    def _apply(self, term: Apply, operands: list[Scalar]) -> object:
        if term.function == "?:":
            return select(operands)
        if term.function == "cast":
            return cast(term.type, operands[0])
        if term.function == "neg":
            return minus(operands[0])
        if term.function == "!":
            return negate(operands[0])
        if term.function in FUNCTIONS:
            return call(term.function, operands[0])
        return self._arithmetic.signs[term.function](operands[0], operands[1])

    def element(self, element: Element) -> Element:
        """An access with the symbols in its indices known."""
        indices = tuple(self._index(item) for item in element.indices)
        item = None if element.item is None else self.scalar(element.item)
        return replace(element, indices=indices, item=item)

    def _index(self, index: Scalar | Guard) -> Scalar | Guard:
        if not isinstance(index, Guard):
            return self.scalar(index)
        below = None if index.below is None else self.scalar(index.below)
        above = None if index.above is None else self.scalar(index.above)
        return Guard(self.scalar(index.index), below, above)


def _as_scalar(value: object) -> Scalar:
    if isinstance(value, SCALARS):
        return value
    raise Fault(UNDECIDED, what="a term", value=show(value))
