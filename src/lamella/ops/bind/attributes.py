"""The attributes of one call: given values, defaults, lengths, and single values for whole packs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.dim import Dim, Extent, TooComplex
from lamella.base.dtype import ElementType, find_in
from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.base.suggest import did_you_mean
from lamella.lang.skriptnd import nodes
from lamella.lang.skriptnd.rules.composition import ATTRIBUTE_MISSING, ATTRIBUTE_TYPE, UNKNOWN_ATTRIBUTE
from lamella.lang.skriptnd.rules.invocation import (
    EXTENT_MISMATCH,
    FAILED_ASSERTION,
    NO_VALUE,
    PACK_LENGTH,
    UNDECIDED,
    UNKNOWN_LENGTH,
)
from lamella.lang.skriptnd.rules.shapes import HINT_LENGTH, PATTERN_LENGTH
from lamella.lang.skriptnd.rules.types import NOT_A_PACK, NOT_BOOL
from lamella.ops.bind.plan import Assert, Measure, ParameterPlan, Step, UsingPlan
from lamella.ops.bind.state import CallBinding, ValueOrigin
from lamella.ops.evaluate import Code
from lamella.ops.evaluate.walk import primitive
from lamella.ops.fault import Fault
from lamella.ops.instance import Check, Repeated, Value
from lamella.ops.scalars.terms import is_term, is_truth
from lamella.ops.scalars.values import CONDITIONS, Unknown, expect_count, expect_known, show, word_of

# --- helper symbols and assertions, in the order in which each can be had -----------------------------------


def take_steps(binding: CallBinding, steps: Iterable[Step]) -> None:
    """Evaluate helper symbols and test assertions.

    The order in which assertions are written does not matter: one that cannot be evaluated waits, for another one may
    say why.
    """
    held: Found | None = None
    for step in steps:
        if isinstance(step, UsingPlan):
            if held is not None:
                break
            define(binding, step)
            continue
        try:
            test(binding, step)
        except Found as problem:
            if problem.findings[0].code == FAILED_ASSERTION.code:
                raise
            held = held or problem
    if held is not None:
        raise held


# --- assertions ---------------------------------------------------------------------------------------------


def test(binding: CallBinding, step: Assert) -> None:
    """One assertion: it holds, it does not, or the run must tell; a null one is skipped."""
    value = step.condition(binding.scope)
    if value is True or value is None:
        return
    items = value if isinstance(value, tuple) else (value.item if isinstance(value, Repeated) else value,)
    for item in items:
        if item is False:
            _know_more(binding, step)
            raise Found(_failure(binding, step))
    for item in items:
        if isinstance(item, CONDITIONS) or (is_term(item) and word_of(item) == "bool"):
            found = _failure(binding, step)
            binding.checks.append(Check(item, found.message, step.node.span))
        elif not is_truth(item):
            raise Fault(NOT_BOOL, what="the condition", type=word_of(item)).at(step.node.condition.span)


def test_known(binding: CallBinding) -> None:
    """The assertions that can be tested already, for a call whose shapes do not fit: their own words tell more."""
    for step in binding.plan.asserts:
        if step.names <= binding.scope.keys():
            try:
                test(binding, step)
            except Found as problem:
                if problem.findings[0].code == FAILED_ASSERTION.code:
                    raise


def _know_more(binding: CallBinding, step: Assert) -> None:
    """What a message tells may come after its assertion: shapes and helper symbols, as far as they can be had."""
    more, binding.more = binding.more, None
    if step.printed <= binding.scope.keys():
        return
    if more is not None:
        with suppress(Found, Fault, TooComplex):
            more()
    for using in binding.plan.usings:
        if not using.targets <= binding.scope.keys():
            with suppress(Found, Fault, TooComplex):
                define(binding, using)


def _failure(binding: CallBinding, step: Assert) -> Diagnostic:
    condition = " ".join(step.node.condition.span.text.split())
    message = "".join(_told(binding, part) for part in step.message) or f"'{condition}' does not hold"
    values = [f"{label} = {_told(binding, code)}" for label, code in step.values]
    if not step.message and not values:
        names = sorted(step.names - binding.plan.dtypes.keys())
        values = [f"{name} = {show(binding.scope.get(name))}" for name in names]
    details = f" ({', '.join(values)})" if values else ""
    label = Label(step.node.span, "required here")
    return binding.problem(FAILED_ASSERTION, [label], message=message, values=details).findings[0]


def _told(binding: CallBinding, code: Code) -> str:
    """A value for a message; one that cannot be had does not hide the assertion itself."""
    try:
        return show(code(binding.scope))
    except (Found, Fault):
        return "?"


# --- helper symbols -----------------------------------------------------------------------------------------


def define(binding: CallBinding, step: UsingPlan) -> None:
    """One helper symbol, or the several that a pattern names."""
    try:
        value = step.value(binding.scope)
    except Found as problem:
        if problem.findings[0].code != UNDECIDED.code:
            raise
        binding.scope.update(dict.fromkeys(step.targets, Unknown(problem)))
        binding.has_unknown = True
        return
    target = step.node.target
    try:
        _assign(binding, target, value)
    except Fault as fault:
        raise fault.at(target.span) from None


def _assign(binding: CallBinding, target: nodes.Pattern, value: object) -> None:
    if isinstance(target, nodes.Result):
        _check_hint(binding, target, value)
        binding.scope[target.name] = value
    elif isinstance(target, nodes.ListPattern):
        if value is None:
            _assign_null(binding, target)
            return
        if not isinstance(value, tuple):
            raise Fault(NOT_A_PACK, what="a list on the left", text=show(value))
        _take_apart(binding, target.items, value)


def _check_hint(binding: CallBinding, target: nodes.Result, value: object) -> None:
    """A length that is said again must be the length."""
    if target.pack is None or not isinstance(value, tuple):
        return
    expected = _length(binding, target.pack)
    if expected is not None and expected != len(value):
        raise Fault(HINT_LENGTH, name=target.name, left=expected, right=len(value))


def _assign_null(binding: CallBinding, target: nodes.ListPattern) -> None:
    for item in target.items:
        found = item.items if isinstance(item, nodes.Unzip) else (item,)
        binding.scope.update({part.name: None for part in found if isinstance(part, nodes.Result)})


def _length(binding: CallBinding, pack: nodes.Pack) -> int | None:
    if pack.length is None or isinstance(pack.length, nodes.Omitted):
        return None
    value = binding.plan.compiler.compile(pack.length)(binding.scope)
    return expect_known(value, "a length")


def _take_apart(
    binding: CallBinding,
    items: Sequence[nodes.Result | nodes.Unzip | nodes.Omitted],
    value: tuple[object, ...],
) -> None:
    """A pack into the items of a list pattern; one of them may have a length that follows from the others."""
    widths = [_width(binding, item) for item in items]
    known = sum(width for width in widths if width is not None)
    flexible = widths.count(None)
    rest = len(value) - known
    if flexible > 1 or rest < 0 or (not flexible and rest):
        raise Fault(PATTERN_LENGTH, left=known, right=len(value))
    place = 0
    for item, width in zip(items, widths, strict=True):
        size = rest if width is None else width
        _give(binding, item, value[place : place + size])
        place += size


def _width(binding: CallBinding, item: nodes.Result | nodes.Unzip | nodes.Omitted) -> int | None:
    """How many items a part of a pattern takes; None where the others tell."""
    if isinstance(item, nodes.Omitted) or item.pack is None:
        return 1
    length = _length(binding, item.pack)
    if length is None:
        return None
    return length * len(item.items) if isinstance(item, nodes.Unzip) else length


def _give(
    binding: CallBinding, item: nodes.Result | nodes.Unzip | nodes.Omitted, part: tuple[object, ...]
) -> None:
    if isinstance(item, nodes.Result):
        binding.scope[item.name] = part[0] if item.pack is None else part
    elif isinstance(item, nodes.Unzip):
        count = len(item.items)
        if len(part) % count:
            raise Fault(PATTERN_LENGTH, left=f"{count} by {count}", right=len(part))
        for index, result in enumerate(item.items):
            binding.scope[result.name] = part[index::count]


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """What is to be done for an attribute once some names are known."""

    attribute: ParameterPlan
    needs: frozenset[str]
    run: Callable[[], None]
    rank: int
    """What is reported first where several cannot be done."""


class AttributeBinder:
    """Binds the attributes of one call, before the inputs and after them."""

    def __init__(self, binding: CallBinding, given: Mapping[str, Value]) -> None:
        self.binding = binding
        self.given = given
        self.tasks: list[_Task] = []

    def bind_given(self) -> None:
        """What the call gives, and defaults that are constants."""
        declared = self.binding.plan.attributes
        for name in self.given.keys() - {item.name for item in declared}:
            hint = did_you_mean(name, (item.name for item in declared)) or None
            span, operator = self.binding.span, self.binding.name
            raise Found(UNKNOWN_ATTRIBUTE.at(span, hint=hint, name=operator, attribute=name))
        for attribute in declared:
            if attribute.name in self.given:
                self._take(attribute, self.given[attribute.name])
            elif attribute.default is None:
                self._take(attribute, None)
            elif attribute.default_names - self.binding.plan.dtypes.keys():
                self._wait_for_default(attribute, attribute.default)
            else:
                self._take(attribute, attribute.default(self.binding.scope))

    def _take(self, attribute: ParameterPlan, value: object) -> None:
        """One value: checked against its type, kept back where it stands for a whole pack."""
        if isinstance(value, list):
            value = tuple(value)
        if value is None:
            if not attribute.type.optional:
                label = Label(attribute.parameter.span, "declared here")
                raise self.binding.problem(
                    ATTRIBUTE_MISSING, [label], name=self.binding.name, attribute=attribute.name
                )
        else:
            self._check_type(attribute, value)
        if attribute.packed and value is not None and not isinstance(value, tuple | Repeated):
            self._wait_for_length(attribute, value)
            return
        self._set(attribute, value)
        if isinstance(value, tuple | Repeated) and attribute.length is not None:
            length = len(value) if isinstance(value, tuple) else value.length
            self._wait_to_compare(attribute, attribute.length, length)

    def _set(self, attribute: ParameterPlan, value: object) -> None:
        place = ValueOrigin(attribute, "attribute", attribute.parameter.span)
        before, by = self.binding.scope.get(attribute.name), self.binding.places.get(attribute.name)
        if before is not None and by is not None and before != value:
            # An extent of the same name was bound from an input before the default could be had.
            label = Label(attribute.parameter.span, "declared here")
            details = {"subject": f"'{attribute.name}'", "expected": show(before), "value": show(value)}
            raise self.binding.problem(EXTENT_MISMATCH, [label], **details, by=by, other=place)
        self.binding.set(attribute.name, value, place)

    def _check_type(self, attribute: ParameterPlan, value: object) -> None:
        name = attribute.type.name
        word = primitive(name) or primitive(str(self.binding.scope.get(name, "")))
        items = value if isinstance(value, tuple) else (value.item if isinstance(value, Repeated) else value,)
        fits = all(word_of(item) == word for item in items) and (attribute.packed or items is not value)
        if not fits or any(is_term(item) for item in items):
            declared = f"{name}{'..' if attribute.packed else ''}"
            details = f"{_kind(value)} {show(value)}"
            label = Label(attribute.parameter.span, "declared here")
            names = {"name": self.binding.name, "attribute": attribute.name}
            raise self.binding.problem(ATTRIBUTE_TYPE, [label], **names, left=declared, right=details)
        if name != "int":
            generic = self.binding.scope.get(name)
            element = generic if isinstance(generic, ElementType) else find_in("skriptnd", name)
            self.binding.keep_range(attribute.name, element, *items)

    # --- after the inputs -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Defaults that need other values, the lengths of packs, single values for packs: each once it can be had."""
        waiting: dict[str, list[_Task]] = {}
        stack = sorted(self.tasks, key=lambda task: task.rank)[::-1]
        self.tasks = []
        while stack:
            task = stack.pop()
            missing = next((name for name in task.needs if name not in self.binding.scope), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(task)
                continue
            task.run()
            symbol = task.attribute.length.symbol if task.attribute.length else None
            for name in (task.attribute.name, symbol or ""):
                if name in waiting and name in self.binding.scope:
                    stack += waiting.pop(name)
            stack += self.tasks
            self.tasks = []
        if waiting:
            raise self._refuse(
                min((item for tasks in waiting.values() for item in tasks), key=lambda t: t.rank)
            )
        self._null_lengths()

    def _wait_for_default(self, attribute: ParameterPlan, default: Code) -> None:
        def take() -> None:
            self._take(attribute, default(self.binding.scope))

        self.tasks.append(_Task(attribute, attribute.default_names, take, 2))

    def _wait_for_length(self, attribute: ParameterPlan, value: object) -> None:
        """One value for a whole pack, once its length is known."""
        measure = attribute.length
        if measure is None:
            raise self._unknown_length(attribute)

        def fill() -> None:
            self._set(attribute, self._uniform(value, measure.code(self.binding.scope)))

        self.tasks.append(_Task(attribute, measure.names, fill, 1))

    def _wait_to_compare(self, attribute: ParameterPlan, measure: Measure, length: Extent) -> None:
        """The length of a pack agrees with the declared one, or tells its symbol."""

        def compare() -> None:
            if self.binding.is_deduced(measure):
                place = ValueOrigin(attribute, "the length of", attribute.parameter.span)
                self.binding.bind(measure, length, place)
            else:
                self._check_length(attribute, measure, length)

        needs = measure.names if measure.form is None else frozenset[str]()
        self.tasks.append(_Task(attribute, needs, compare, 0))

    def _check_length(self, attribute: ParameterPlan, measure: Measure, length: Extent) -> None:
        expected = measure.code(self.binding.scope)
        if type(expected) is int and expected == length:
            return
        if isinstance(expected, Dim) or isinstance(length, Dim):
            self.binding.compare(
                measure, expected, length, ValueOrigin(attribute, "the length of", measure.span)
            )
            return
        values = {"name": attribute.name, "length": show(length), "expected": show(expected)}
        label = Label(measure.span, "declared here")
        raise self.binding.problem(PACK_LENGTH, [label], **values, expression=measure.text)

    def _uniform(self, value: object, length: object) -> object:
        if isinstance(length, Dim):
            return Repeated(value, length)
        return (value,) * expect_count(length, "the length of a pack", self.binding.plan.limits.max_pack)

    def _refuse(self, task: _Task) -> Found:
        """Why something cannot be done."""
        if task.rank == 1:
            return self._unknown_length(task.attribute)
        missing = min(task.needs - self.binding.scope.keys())
        return Fault(NO_VALUE, name=missing).at(task.attribute.parameter.span)

    def _unknown_length(self, attribute: ParameterPlan) -> Found:
        label = Label(attribute.parameter.span, "declared here")
        text = attribute.length.text if attribute.length else f"|{attribute.name}|"
        return self.binding.problem(UNKNOWN_LENGTH, [label], name=attribute.name, expression=text)

    def _null_lengths(self) -> None:
        """The length of a pack that is null has no value unless something else gives it one."""
        for attribute in self.binding.plan.attributes:
            if attribute.length is not None and self.binding.scope.get(attribute.name) is None:
                for name in attribute.length.names - self.binding.scope.keys():
                    self.binding.scope[name] = None


def _kind(value: object) -> str:
    if isinstance(value, tuple):
        return f"{word_of(value[0])}.." if value else "the empty pack"
    if is_term(value):
        return "known only at run time:"
    return word_of(value)
