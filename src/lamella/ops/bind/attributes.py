"""The attributes of one call: given values, defaults, lengths, and single values for whole packs."""

from __future__ import annotations

from collections.abc import Mapping

from lamella.base.diagnostic import Label
from lamella.base.dim import Dim, Extent
from lamella.lang.skriptnd.rules.composition import ATTRIBUTE_MISSING, ATTRIBUTE_TYPE, UNKNOWN_ATTRIBUTE
from lamella.lang.skriptnd.rules.invocation import (
    NO_VALUE,
    PACK_LENGTH,
    UNKNOWN_LENGTH,
)
from lamella.ops.bind.plan import Measure, ParameterPlan
from lamella.ops.bind.state import Binding, Place
from lamella.ops.evaluate.walk import primitive
from lamella.ops.instance import Value
from lamella.ops.problem import Fault
from lamella.ops.scalars.terms import is_term
from lamella.ops.scalars.values import Repeated, expect_count, show, word_of


class Attributes:
    """Binds the attributes of one call, before the inputs and after them."""

    def __init__(self, binding: Binding, given: Mapping[str, Value]) -> None:
        self.binding = binding
        self.given = given
        self.open: dict[str, tuple[ParameterPlan, object]] = {}
        """Attributes with one value for a pack whose length is not known yet."""
        self.waiting: list[ParameterPlan] = []
        """Attributes whose default needs other values."""
        self.packed: list[tuple[ParameterPlan, Extent]] = []
        """Packs with their lengths, which the declared lengths must agree with."""

    def bind_given(self) -> None:
        """What the call gives, and defaults that are constants."""
        declared = self.binding.plan.attributes
        for name in self.given.keys() - {item.name for item in declared}:
            raise self.binding.problem(UNKNOWN_ATTRIBUTE, name=self.binding.name, attribute=name)
        for attribute in declared:
            if attribute.name in self.given:
                self._take(attribute, self.given[attribute.name])
            elif attribute.default is None:
                self._take(attribute, None)
            elif attribute.default_names - self.binding.plan.dtypes.keys():
                self.waiting.append(attribute)
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
            self.open[attribute.name] = (attribute, value)
            return
        self._set(attribute, value)
        if isinstance(value, tuple | Repeated):
            self.packed.append((attribute, len(value) if isinstance(value, tuple) else value.length))

    def _set(self, attribute: ParameterPlan, value: object) -> None:
        place = Place(attribute, "attribute", attribute.parameter.span)
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

    # --- after the inputs -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Defaults that need other values, then the lengths of packs, until nothing is left."""
        progress = True
        while progress and (self.waiting or self.packed or self.open):
            before = len(self.waiting), len(self.packed), len(self.open)
            self._bind_lengths()
            self._fill_open()
            self._bind_waiting()
            progress = before != (len(self.waiting), len(self.packed), len(self.open))
        self._refuse_rest()
        self._null_lengths()

    def _bind_waiting(self) -> None:
        left: list[ParameterPlan] = []
        for attribute in self.waiting:
            if attribute.default is not None and attribute.default_names <= self.binding.scope.keys():
                self._take(attribute, attribute.default(self.binding.scope))
            else:
                left.append(attribute)
        self.waiting = left

    def _bind_lengths(self) -> None:
        left: list[tuple[ParameterPlan, Extent]] = []
        for attribute, length in self.packed:
            measure = attribute.length
            if measure is None:
                continue
            place = Place(attribute, "the length of", attribute.parameter.span)
            if self.binding.knows(measure):
                self._check_length(attribute, measure, length)
            elif self.binding.is_deduced(measure):
                self.binding.bind(measure, length, place)
            else:
                left.append((attribute, length))
        self.packed = left

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

    def _fill_open(self) -> None:
        """One value for a whole pack, once its length is known."""
        for name, (attribute, value) in list(self.open.items()):
            if attribute.length is not None and self.binding.knows(attribute.length):
                length = attribute.length.code(self.binding.scope)
                self._set(attribute, self._uniform(value, length))
                del self.open[name]

    def _uniform(self, value: object, length: object) -> object:
        if isinstance(length, Dim):
            return Repeated(value, length)
        return (value,) * expect_count(length, "the length of a pack", self.binding.plan.limits.max_pack)

    def _refuse_rest(self) -> None:
        for name, (attribute, _) in self.open.items():
            label = Label(attribute.parameter.span, "declared here")
            text = attribute.length.text if attribute.length else f"|{name}|"
            raise self.binding.problem(UNKNOWN_LENGTH, [label], name=name, expression=text)
        for attribute in self.waiting:
            missing = min(attribute.default_names - self.binding.scope.keys())
            raise Fault(NO_VALUE, name=missing).at(attribute.parameter.span)
        for attribute, _ in self.packed:
            missing = min((attribute.length.names if attribute.length else set()) - self.binding.scope.keys())
            raise Fault(NO_VALUE, name=missing).at(attribute.parameter.span)

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
