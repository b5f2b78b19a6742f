"""The attributes of one call: given values, defaults, lengths, and single values for whole packs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lamella.base.diagnostic import Label
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import ElementType, find_in
from lamella.base.suggest import did_you_mean
from lamella.lang.skriptnd.rules.composition import ATTRIBUTE_MISSING, ATTRIBUTE_TYPE, UNKNOWN_ATTRIBUTE
from lamella.lang.skriptnd.rules.invocation import (
    EXTENT_MISMATCH,
    NO_VALUE,
    PACK_LENGTH,
    UNKNOWN_LENGTH,
)
from lamella.ops.bind.plan import Measure, ParameterPlan
from lamella.ops.bind.state import Binding, Place
from lamella.ops.evaluate import Code
from lamella.ops.evaluate.walk import primitive
from lamella.ops.instance import Repeated, Value
from lamella.ops.problem import Fault, Problem
from lamella.ops.scalars.terms import is_term
from lamella.ops.scalars.values import expect_count, show, word_of


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """What is to be done for an attribute once some names are known."""

    attribute: ParameterPlan
    needs: frozenset[str]
    run: Callable[[], None]
    rank: int
    """What is told first where several cannot be done."""


class Attributes:
    """Binds the attributes of one call, before the inputs and after them."""

    def __init__(self, binding: Binding, given: Mapping[str, Value]) -> None:
        self.binding = binding
        self.given = given
        self.tasks: list[_Task] = []

    def bind_given(self) -> None:
        """What the call gives, and defaults that are constants."""
        declared = self.binding.plan.attributes
        for name in self.given.keys() - {item.name for item in declared}:
            hint = did_you_mean(name, (item.name for item in declared)) or None
            span, operator = self.binding.span, self.binding.name
            raise Problem(UNKNOWN_ATTRIBUTE.at(span, hint=hint, name=operator, attribute=name))
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
        place = Place(attribute, "attribute", attribute.parameter.span)
        before, by = self.binding.scope.get(attribute.name), self.binding.places.get(attribute.name)
        if before is not None and by is not None and before != value:
            # An extent of the same name was bound from an input before the default could be had.
            label = Label(attribute.parameter.span, "declared here")
            told = {"subject": f"'{attribute.name}'", "expected": show(before), "value": show(value)}
            raise self.binding.problem(EXTENT_MISMATCH, [label], **told, by=by, other=place)
        self.binding.set(attribute.name, value, place)

    def _check_type(self, attribute: ParameterPlan, value: object) -> None:
        name = attribute.type.name
        word = primitive(name) or primitive(str(self.binding.scope.get(name, "")))
        items = value if isinstance(value, tuple) else (value.item if isinstance(value, Repeated) else value,)
        fits = all(word_of(item) == word for item in items) and (attribute.packed or items is not value)
        if not fits or any(is_term(item) for item in items):
            declared = f"{name}{'..' if attribute.packed else ''}"
            told = f"{_kind(value)} {show(value)}"
            label = Label(attribute.parameter.span, "declared here")
            names = {"name": self.binding.name, "attribute": attribute.name}
            raise self.binding.problem(ATTRIBUTE_TYPE, [label], **names, left=declared, right=told)
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
                place = Place(attribute, "the length of", attribute.parameter.span)
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
            self.binding.compare(measure, expected, length, Place(attribute, "the length of", measure.span))
            return
        values = {"name": attribute.name, "length": show(length), "expected": show(expected)}
        label = Label(measure.span, "declared here")
        raise self.binding.problem(PACK_LENGTH, [label], **values, expression=measure.text)

    def _uniform(self, value: object, length: object) -> object:
        if isinstance(length, Dim):
            return Repeated(value, length)
        return (value,) * expect_count(length, "the length of a pack", self.binding.plan.limits.max_pack)

    def _refuse(self, task: _Task) -> Problem:
        """Why something cannot be done."""
        if task.rank == 1:
            return self._unknown_length(task.attribute)
        missing = min(task.needs - self.binding.scope.keys())
        return Fault(NO_VALUE, name=missing).at(task.attribute.parameter.span)

    def _unknown_length(self, attribute: ParameterPlan) -> Problem:
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
