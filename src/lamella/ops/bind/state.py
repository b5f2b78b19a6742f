"""One call while it is bound: the values so far, where each came from, what the run must still check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from lamella.base import dim
from lamella.base.diagnostic import Label, Rule
from lamella.base.dim import Dim, Extent, Logic, Test
from lamella.base.dtype import BOOL, F32, I64, ElementType, find_in
from lamella.base.errors import Found
from lamella.base.limits import LARGEST, SMALLEST
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.lang.skriptnd.rules.composition import ARGUMENT_TYPE, TYPE_BASE, TYPE_OPEN
from lamella.lang.skriptnd.rules.invocation import (
    ELEMENT_RANGE,
    EXTENT_MISMATCH,
    FLOAT_WIDTHS,
    NO_VALUE,
    NOT_DIVISIBLE,
    UNDECIDED,
    UNSUPPORTED_TYPE,
)
from lamella.lang.skriptnd.rules.names import UNKNOWN_TYPE
from lamella.lang.skriptnd.rules.types import OPTIONAL_HERE
from lamella.ops.bind.plan import Measure, OperatorPlan, ParameterPlan
from lamella.ops.fault import Fault
from lamella.ops.instance import Argument, Check, Repeated, Single, Value
from lamella.ops.scalars.values import expect_extent, show, word_of, word_of_type


@dataclass(frozen=True, slots=True, eq=False)
class ValueOrigin:
    """Where a value came from: dimensions of an input from `axis` on, or what `what` says of a parameter."""

    parameter: ParameterPlan
    what: str
    span: Span
    tensor: object = None
    axis: int | None = None

    def __str__(self) -> str:
        return self.describe_item(0)

    def describe_item(self, item: int) -> str:
        """The place of one item of a pack, in words."""
        what = self.what if self.axis is None else f"dimension {self.axis + item} of"
        details = "" if self.tensor is None else f" ({describe(self.tensor)})"
        return f"{what} '{self.parameter.name}'{details}"


def describe(tensor: object) -> str:
    """A tensor in words: its name and its shape."""
    return f"tensor {getattr(tensor, 'name', '?')}: {show(getattr(tensor, 'shape', ()))}"


class CallBinding:
    """The state of one call."""

    def __init__(self, plan: OperatorPlan, span: Span) -> None:
        self.plan = plan
        self.name = plan.definition.name
        self.span = span
        self.scope: dict[str, object] = {}
        self.places: dict[str, ValueOrigin] = {}
        self.nulls: set[str] = set()
        """Symbols that are null so far, because what would tell them is not there."""
        self.checks: list[Check] = []
        self.more: Callable[[], object] | None = None
        """Binds what is not bound yet, for the message of an assertion that fails before."""
        self.has_unknown = False
        """Whether some helper symbol could not be had; whoever needs it refuses the call."""

    # --- findings -------------------------------------------------------------------------------------------

    def problem(self, rule: Rule, labels: Iterable[Label] = (), **values: object) -> Found:
        """A finding at the call; the labels point into the definition."""
        found = [item for item in labels if item.span.source.text]
        return Found(rule.at(self.span, hint=None, labels=found, operator=self.name, **values))

    def require(self, truth: object, problem: Found, span: Span) -> None:
        """What must hold: raised where it does not, left to the run where that cannot be decided."""
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
                details = {"name": name, "type": element, "value": show(value), "low": low, "high": high}
                raise self.problem(ELEMENT_RANGE, (), **details)

    # --- symbols --------------------------------------------------------------------------------------------

    def set(self, name: str, value: object, place: ValueOrigin) -> None:
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

    def bind(self, measure: Measure, value: Extent, place: ValueOrigin) -> None:
        """An extent or a length that has this value: deduce its symbol, or compare."""
        if self.is_deduced(measure):
            self.set(measure.symbol or "", self.solve(measure, value, place), place)
        else:
            self.compare(measure, self.value(measure), value, place)

    def solve(self, measure: Measure, value: Extent, place: ValueOrigin) -> Extent:
        """The symbol of an affine expression from its value."""
        form = measure.form
        factor, offset = (1, 0) if form is None else (form.terms[0][1], form.constant)
        if factor == 1 and type(value) is int:
            return value - offset
        rest = dim.sub(value, offset)
        truth = dim.equal(dim.remainder(rest, factor), 0)
        if truth is not True:
            labels = [Label(measure.span, "declared here")]
            details = {"expression": measure.text, "value": show(value), "symbol": measure.symbol}
            self.require(truth, self.problem(NOT_DIVISIBLE, labels, **details, by=place), measure.span)
        return dim.floor_divide(rest, factor)

    def compare(
        self, measure: Measure, expected: object, value: Extent, place: ValueOrigin, item: int | None = None
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
            details = {"expected": show(expected), "value": show(value)}
            self.require(truth, self.mismatch(measure, place, item, details), measure.span)

    def keep_bound(self, measure: Measure | None, bound: object, value: Extent, place: ValueOrigin) -> None:
        """An extent or a length that states its upper bound keeps it."""
        if isinstance(bound, int | dim.Dim):
            text = "~" if measure is None else measure.text
            details = {"expected": f"at most {show(bound)}", "value": show(value), "subject": f"'{text}'"}
            label = Label(place.span, "declared here")
            problem = self.problem(EXTENT_MISMATCH, [label], **details, by="its declaration", other=place)
            self.require(dim.less_equal(value, bound), problem, place.span)

    def mismatch(
        self, measure: Measure, place: ValueOrigin, item: int | None, details: dict[str, str]
    ) -> Found:
        """The finding for two places that disagree; `details` holds what one expects and the value of the other."""
        by, labels = self._reason(measure, item or 0)
        labels.append(Label(place.span, f"{details['value']} here"))
        subject = f"'{measure.text}'" if item is None else f"item {item} of '{measure.text}'"
        return self.problem(
            EXTENT_MISMATCH, labels, **details, subject=subject, by=by, other=place.describe_item(item or 0)
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
            return self.places[known[0]].describe_item(item), labels
        details = [f"'{name}' = {show(self.scope[name])} of {self.places[name]}" for name in known]
        return " and ".join(details), labels


# --- the element types of one call: generic types deduced, the width of its real tensors found --------------


PRIMITIVES: Mapping[str, ElementType] = {"real": F32, "int": I64, "bool": BOOL}
_TAKES = {"num": ("int", "real"), "arith": ("int", "real", "bool"), "type": ("int", "real", "bool", "str")}


class TypeBinder:
    """Deduces the element types of one call."""

    def __init__(self, binding: CallBinding, given: Mapping[str, ElementType]) -> None:
        self.binding = binding
        self.plan = binding.plan
        self.found: dict[str, ElementType] = {}
        self.width: ElementType | None = None
        self.widest = ""
        for name, element in given.items():
            if name not in self.plan.dtypes:
                raise binding.problem(UNKNOWN_TYPE, name=name)
            self._bind(name, element)

    def deduce(self, arguments: Sequence[Argument], attributes: Mapping[str, Value]) -> None:
        """Find all types from the tensors, then from scalars, attributes and defaults."""
        pairs = list(zip(self.plan.inputs, arguments, strict=True))
        for parameter, argument in pairs:
            for tensor in tensors_in(argument):
                self._take_tensor(parameter, tensor)
        for parameter, argument in pairs:
            self._take_scalars(parameter, argument)
        for attribute in self.plan.attributes:
            if attribute.type.name in self.plan.dtypes:
                self._take_value(attribute.type.name, attributes.get(attribute.name))
        self._finish()

    def _take_tensor(self, parameter: ParameterPlan, tensor: object) -> None:
        element = getattr(tensor, "element", None)
        if not isinstance(element, ElementType):
            return
        declared = parameter.type.name
        if declared in self.plan.dtypes:
            self._bind(declared, element, parameter, tensor)
        elif declared == "real" and element.is_float:
            self._take_width(parameter, element)
        elif not _matches(declared, element):
            raise self._mismatch(parameter, f"{element} (tensor {getattr(tensor, 'name', '?')})", declared)

    def _take_width(self, parameter: ParameterPlan, element: ElementType) -> None:
        if self.width is None:
            self.width, self.widest = element, parameter.name
        elif self.width is not element and self.width != element:
            details = {"first": self.widest, "width": self.width, "name": parameter.name, "other": element}
            raise self.binding.problem(FLOAT_WIDTHS, (), **details)

    def _bind(
        self, name: str, element: ElementType, parameter: ParameterPlan | None = None, tensor: object = None
    ) -> None:
        known = self.found.get(name)
        if known is None:
            base = self.plan.dtypes[name].base
            if word_of_type(element) not in _TAKES.get(base, _TAKES["type"]):
                raise self.binding.problem(
                    TYPE_BASE, generic=name, name=self.binding.name, base=base, type=element
                )
            self.found[name] = element
        elif known != element and parameter is not None:
            details = f"{element} (tensor {getattr(tensor, 'name', '?')})"
            raise self._mismatch(parameter, details, f"{name} = {known}")

    def _mismatch(self, parameter: ParameterPlan, given: str, declared: str) -> Found:
        label = Label(parameter.parameter.span, "declared here")
        details = {"input": parameter.name, "name": self.binding.name, "left": declared, "right": given}
        return self.binding.problem(ARGUMENT_TYPE, [label], **details)

    def _take_scalars(self, parameter: ParameterPlan, argument: Argument) -> None:
        """Scalars that stand for tensors have a type but no width."""
        items = argument if isinstance(argument, tuple) else (argument,)
        for item in items:
            word = word_of(item)
            if item is None or word not in (*PRIMITIVES, "str"):
                continue
            declared = parameter.type.name
            self._take_value(declared, item)
            wanted = word_of_type(self.found[declared]) if declared in self.found else declared
            if (_primitive(wanted) or wanted) != word:
                details = f"{declared} = {self.found[declared]}" if declared in self.found else declared
                raise self._mismatch(parameter, f"{word} ({show(item)})", details)

    def _take_value(self, name: str, value: object) -> None:
        first = value[0] if isinstance(value, tuple) and value else value
        element = PRIMITIVES.get(word_of(first))
        if name in self.plan.dtypes and name not in self.found and element is not None:
            self._bind(name, element)

    def _finish(self) -> None:
        for name, dtype in self.plan.dtypes.items():
            if name in self.found:
                continue
            default = find_in("skriptnd", dtype.default) if dtype.default else None
            if default is None:
                raise self.binding.problem(
                    TYPE_OPEN, [Label(dtype.span, "declared here")], generic=name, name=self.binding.name
                )
            self.found[name] = default
        # In the order of their declarations, which is that of a call's `<…>`.
        self.found = {name: self.found[name] for name in self.plan.dtypes}
        self.binding.scope.update(self.found)
        self.binding.scope["real"] = self.width or F32

    def element_of(self, parameter: ParameterPlan) -> ElementType:
        """The element type of an output, constant or variable."""
        name = parameter.type.name
        if name == "real":
            return self.width or F32
        found = self.found.get(name) or find_in("skriptnd", name)
        if found is None:
            raise self.binding.problem(UNSUPPORTED_TYPE, type=name, name=parameter.name)
        return found


def tensors_in(argument: Argument) -> Iterator[object]:
    """The tensors of an argument."""
    for item in argument if isinstance(argument, tuple) else (argument,):
        if hasattr(item, "shape"):
            yield item


def _primitive(name: str) -> str | None:
    element = find_in("skriptnd", name)
    return None if element is None else word_of_type(element)


def _matches(declared: str, element: ElementType) -> bool:
    if declared == "int":
        return element.is_integer
    if declared == "bool":
        return element == BOOL
    return declared != "real" and find_in("skriptnd", declared) == element


# --- values as an instance holds them: known before the run, or symbolic extents ----------------------------


def as_single(value: object) -> Single:
    """One value; a term that only the run computes is refused."""
    if isinstance(value, int | float | str | Dim | Test | Logic):
        return value
    raise Fault(UNDECIDED, what="a value", value=show(value))


def as_element(value: object, element: ElementType) -> Single:
    """One value of a constant; the extreme integers become those of its type."""
    found = as_single(value)
    if type(found) is int and element.is_integer:
        return min(max(found, element.minimum), element.maximum)
    return found


def as_value(value: object) -> Value:
    """A value, a pack of them, or null."""
    if isinstance(value, tuple):
        return tuple([as_single(item) for item in value])
    if isinstance(value, Repeated):
        return Repeated(as_single(value.item), value.length)
    return None if value is None else as_single(value)
