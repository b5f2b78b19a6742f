"""One call while it is bound: the values so far, where each came from, what the run must still check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lamella.base import dim
from lamella.base.diagnostic import Label, Rule
from lamella.base.dim import Extent
from lamella.base.dtype import ElementType
from lamella.base.limits import LARGEST, SMALLEST
from lamella.base.source import Span
from lamella.lang.skriptnd.rules.invocation import (
    ELEMENT_RANGE,
    EXTENT_MISMATCH,
    NO_VALUE,
    NOT_DIVISIBLE,
)
from lamella.lang.skriptnd.rules.types import OPTIONAL_HERE
from lamella.ops.bind.plan import Measure, ParameterPlan, Plan
from lamella.ops.instance import Check
from lamella.ops.problem import Fault, Problem
from lamella.ops.scalars.values import expect_extent, show


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a value came from: dimensions of an input from `axis` on, or what `what` says of a parameter."""

    parameter: ParameterPlan
    what: str
    span: Span
    tensor: object = None
    axis: int | None = None

    def __str__(self) -> str:
        return self.tell(0)

    def tell(self, item: int) -> str:
        """The place of one item of a pack, in words."""
        what = self.what if self.axis is None else f"dimension {self.axis + item} of"
        told = "" if self.tensor is None else f" ({describe(self.tensor)})"
        return f"{what} '{self.parameter.name}'{told}"


def describe(tensor: object) -> str:
    """A tensor in words: its name and its shape."""
    return f"tensor {getattr(tensor, 'name', '?')}: {show(getattr(tensor, 'shape', ()))}"


class Binding:
    """The state of one call."""

    def __init__(self, plan: Plan, span: Span) -> None:
        self.plan = plan
        self.name = plan.definition.name
        self.span = span
        self.scope: dict[str, object] = {}
        self.places: dict[str, Place] = {}
        self.nulls: set[str] = set()
        """Symbols that are null so far, because what would tell them is not there."""
        self.checks: list[Check] = []
        self.more: Callable[[], object] | None = None
        """Binds what is not bound yet, for the message of an assertion that fails before."""
        self.has_unknown = False
        """Whether some helper symbol could not be had; whoever needs it refuses the call."""

    # --- findings -------------------------------------------------------------------------------------------

    def problem(self, rule: Rule, labels: Iterable[Label] = (), **values: object) -> Problem:
        """A finding at the call; the labels point into the definition."""
        found = [item for item in labels if item.span.source.text]
        return Problem(rule.at(self.span, hint=None, labels=found, operator=self.name, **values))

    def require(self, truth: object, problem: Problem, span: Span) -> None:
        """What must hold: raised where it does not, left to the run where that cannot be told."""
        if truth is True:
            return
        if truth is False:
            raise problem
        if isinstance(truth, dim.Test | dim.Logic):
            self.checks.append(Check(truth, problem.findings[0].message, span))

    def keep_range(self, name: str, element: ElementType | None, *values: object) -> None:
        """An integer that becomes an element of a sized type fits in it; the extremes stand for those of the type."""
        if element is None or not element.is_integer:
            return
        low, high = element.minimum, element.maximum
        for value in values:
            if type(value) is int and not low <= value <= high and value not in (SMALLEST, LARGEST):
                told = {"name": name, "type": element, "value": show(value), "low": low, "high": high}
                raise self.problem(ELEMENT_RANGE, (), **told)

    # --- symbols --------------------------------------------------------------------------------------------

    def set(self, name: str, value: object, place: Place) -> None:
        """Give a symbol its value."""
        self.scope[name] = value
        self.places[name] = place
        self.nulls.discard(name)

    def set_null(self, measure: Measure | None) -> None:
        """What only an absent input would tell is null."""
        if measure is not None and measure.symbol is not None and measure.symbol not in self.scope:
            self.scope[measure.symbol] = None
            self.nulls.add(measure.symbol)

    def knows(self, measure: Measure) -> bool:
        """Whether an extent or a length can be computed."""
        scope = self.scope
        return all(name in scope for name in measure.names)

    def is_deduced(self, measure: Measure) -> bool:
        """Whether an extent or a length tells its symbol, which has no value yet."""
        name = measure.symbol
        return measure.form is not None and (name not in self.scope or name in self.nulls)

    def value(self, measure: Measure) -> object:
        """What an extent or a length is by the values so far."""
        if not self.knows(measure):
            raise Fault(NO_VALUE, name=min(measure.names - self.scope.keys())).at(measure.span)
        return measure.code(self.scope)

    def bind(self, measure: Measure, value: Extent, place: Place) -> None:
        """An extent or a length that has this value: deduce its symbol, or compare."""
        if self.is_deduced(measure):
            self.set(measure.symbol or "", self.solve(measure, value, place), place)
        else:
            self.compare(measure, self.value(measure), value, place)

    def solve(self, measure: Measure, value: Extent, place: Place) -> Extent:
        """The symbol of an affine expression from its value."""
        form = measure.form
        factor, offset = (1, 0) if form is None else (form.terms[0][1], form.constant)
        if factor == 1 and type(value) is int:
            return value - offset
        rest = dim.sub(value, offset)
        truth = dim.equal(dim.remainder(rest, factor), 0)
        if truth is not True:
            labels = [Label(measure.span, "declared here")]
            told = {"expression": measure.text, "value": show(value), "symbol": measure.symbol}
            self.require(truth, self.problem(NOT_DIVISIBLE, labels, **told, by=place), measure.span)
        return dim.floor_divide(rest, factor)

    def compare(
        self, measure: Measure, expected: object, value: Extent, place: Place, item: int | None = None
    ) -> None:
        """An extent that is known already against another place that says it; `item` is its number in a pack."""
        if type(expected) is int and type(value) is int and expected == value:
            return
        if expected is None:
            raise self.problem(
                OPTIONAL_HERE, [Label(measure.span, "here")], text=measure.text, what="an extent"
            )
        truth = dim.equal(expect_extent(expected), value)
        if truth is not True:
            told = {"expected": show(expected), "value": show(value)}
            self.require(truth, self.mismatch(measure, place, item, told), measure.span)

    def keep_bound(self, measure: Measure | None, bound: object, value: Extent, place: Place) -> None:
        """An extent or a length that states its upper bound keeps it."""
        if isinstance(bound, int | dim.Dim):
            text = "~" if measure is None else measure.text
            told = {"expected": f"at most {show(bound)}", "value": show(value), "subject": f"'{text}'"}
            label = Label(place.span, "declared here")
            problem = self.problem(EXTENT_MISMATCH, [label], **told, by="its declaration", other=place)
            self.require(dim.less_equal(value, bound), problem, place.span)

    def mismatch(self, measure: Measure, place: Place, item: int | None, told: dict[str, str]) -> Problem:
        """The finding for two places that disagree; `told` holds what one expects and the value of the other."""
        by, labels = self._reason(measure, item or 0)
        labels.append(Label(place.span, f"{told['value']} here"))
        subject = f"'{measure.text}'" if item is None else f"item {item} of '{measure.text}'"
        return self.problem(
            EXTENT_MISMATCH, labels, **told, subject=subject, by=by, other=place.tell(item or 0)
        )

    def _reason(self, measure: Measure, item: int) -> tuple[str, list[Label]]:
        """Where the known value of an expression came from."""
        known = [name for name in sorted(measure.names) if name in self.places]
        if not known:
            return "its declaration", []
        labels = [
            Label(self.places[name].span, f"'{name}' is {show(self.scope[name])} here") for name in known
        ]
        if measure.text == known[0]:
            return self.places[known[0]].tell(item), labels
        told = [f"'{name}' = {show(self.scope[name])} of {self.places[name]}" for name in known]
        return " and ".join(told), labels
