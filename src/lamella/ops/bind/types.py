"""The element types of one call: generic types deduced, the width of its real tensors found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lamella.base.diagnostic import Label
from lamella.base.dtype import BOOL, F32, I64, ElementType, find_in
from lamella.lang.skriptnd.rules.composition import ARGUMENT_TYPE, TYPE_BASE, TYPE_OPEN
from lamella.lang.skriptnd.rules.invocation import FLOAT_WIDTHS, UNSUPPORTED_TYPE
from lamella.lang.skriptnd.rules.names import UNKNOWN_TYPE
from lamella.ops.bind.plan import ParameterPlan
from lamella.ops.bind.state import Binding
from lamella.ops.instance import Argument, Value
from lamella.ops.problem import Problem
from lamella.ops.scalars.values import show, word_of, word_of_type

PRIMITIVES: Mapping[str, ElementType] = {"real": F32, "int": I64, "bool": BOOL}
_TAKES = {"num": ("int", "real"), "arith": ("int", "real", "bool"), "type": ("int", "real", "bool", "str")}


class Types:
    """Deduces the element types of one call."""

    def __init__(self, binding: Binding, given: Mapping[str, ElementType]) -> None:
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
            told = {"first": self.widest, "width": self.width, "name": parameter.name, "other": element}
            raise self.binding.problem(FLOAT_WIDTHS, (), **told)

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
            told = f"{element} (tensor {getattr(tensor, 'name', '?')})"
            raise self._mismatch(parameter, told, f"{name} = {known}")

    def _mismatch(self, parameter: ParameterPlan, given: str, declared: str) -> Problem:
        label = Label(parameter.parameter.span, "declared here")
        told = {"input": parameter.name, "name": self.binding.name, "left": declared, "right": given}
        return self.binding.problem(ARGUMENT_TYPE, [label], **told)

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
                told = f"{declared} = {self.found[declared]}" if declared in self.found else declared
                raise self._mismatch(parameter, f"{word} ({show(item)})", told)

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
