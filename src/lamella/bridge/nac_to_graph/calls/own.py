"""Operators of our own library as NAC writes them: inputs, attributes and open element types in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lamella.base.dim import Dim
from lamella.base.dtype import F32, ElementType, find
from lamella.bridge.aten.nodes import Operand
from lamella.bridge.nac_to_graph.calls.kinds import find_element
from lamella.bridge.nac_to_graph.nodes import Failure, Value, describe, first_tensor
from lamella.bridge.nac_to_graph.nodes import Given as Told
from lamella.graph.build import Builder, Given
from lamella.graph.nodes import Argument, Pack, Single, Tensor
from lamella.graph.nodes import Value as Attribute
from lamella.lang.nac.rules import reading as rules
from lamella.lang.skriptnd.nodes import Dtype, Operator, Parameter
from lamella.ops.instance import Definition
from lamella.ops.problem import Fault


def call_own(builder: Builder, definition: Definition, operands: Sequence[Operand]) -> Value:
    """Call an operator by its arguments; a Fault says which does not fit, a Problem what the operator says."""
    reader = _Reader(definition, operands)
    operator = definition.operator
    inputs = [reader.input(item) for item in operator.parameters("input")]
    attributes = {item.name: reader.attribute(item) for item in operator.parameters("attrib") if reader.left}
    types = reader.types(_open_types(operator, inputs))
    found = builder.call_all(definition.name, *inputs, types=types, results=(), **attributes)
    return _value(found)


_ANYTHING = Tensor("", F32, ())
"""What is passed for an argument whose type only a run tells."""


def check_own(definition: Definition, given: Sequence[Told]) -> None:
    """Whether an operator can take arguments of which some are not known before a run; a Fault says which cannot."""
    reader = _Reader(definition, [item.value if item.typed else _ANYTHING for item in given])
    operator = definition.operator
    for item in operator.parameters("input"):
        reader.input(item)
    for item in operator.parameters("attrib"):
        if reader.left:
            reader.attribute(item)
    reader.types([item.name for item in operator.items("dtype") if isinstance(item, Dtype)])


def _value(results: tuple[Argument, ...]) -> Value:
    """The tensor that an operator gives, or the tensors of all its results."""
    if len(results) == 1 and isinstance(results[0], Tensor):
        return results[0]
    if any(isinstance(item, Pack) for item in results):
        return Failure("a pack whose length only the run tells")
    return tuple(_flat(results))


def _flat(results: tuple[Argument, ...]) -> Iterator[Tensor]:
    for item in results:
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, tuple):
            yield from item


def _open_types(operator: Operator, inputs: Sequence[Given]) -> list[str]:
    """The generic types that no tensor among the inputs fixes."""
    declared = [item.type.name for item in operator.parameters("input")]
    fixed = {name for name, value in zip(declared, inputs, strict=True) if _has_tensor(value)}
    return [
        item.name for item in operator.items("dtype") if isinstance(item, Dtype) and item.name not in fixed
    ]


def _has_tensor(value: Given) -> bool:
    items = value if isinstance(value, tuple) else (value,)
    return any(isinstance(item, Tensor) for item in items)


class _Reader:
    """Takes arguments one by one."""

    def __init__(self, definition: Definition, operands: Sequence[Operand]) -> None:
        self._definition = definition
        self._operands = operands
        self._place = 0

    def _fault(self) -> Fault:
        operator = self._definition.operator
        names = [item.name for section in ("input", "attrib") for item in operator.parameters(section)]
        arguments = ", ".join(map(describe, self._operands[:16]))
        schema = f"{self._definition.name}({', '.join(names)})"
        return Fault(rules.ARGUMENTS_UNFIT, arguments=f"({arguments})", schema=schema)

    @property
    def left(self) -> int:
        """How many arguments there still are; attributes at the end may be left out."""
        return len(self._operands) - self._place

    def _take(self) -> Operand:
        if not self.left:
            raise self._fault()
        self._place += 1
        return self._operands[self._place - 1]

    def _take_many(self, count: Operand) -> Iterator[Operand]:
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= self.left:
            raise self._fault()
        return (self._take() for _ in range(count))

    def input(self, parameter: Parameter) -> Given:
        """An input: a tensor, a number, nothing, or the length of a pack and its tensors."""
        value = self._take()
        if value is None or parameter.type.pack is None:
            return self._single(value)
        found = [first_tensor(item) for item in self._take_many(value)]
        kept = tuple(item for item in found if item is not None)
        if len(kept) != len(found):
            raise self._fault()
        return kept

    def _single(self, value: Operand) -> Given:
        tensor = first_tensor(value)
        if tensor is not None:
            return tensor
        if value is None or isinstance(value, int | float | Dim):
            return value
        raise self._fault()

    def attribute(self, parameter: Parameter) -> Attribute:
        """An attribute: a value, nothing, a list, or the length of a list and its items."""
        value = self._take()
        if value is None:
            return None
        real = parameter.type.name == "real"
        if parameter.type.pack is None:
            return self._scalar(value, real)
        items = value if isinstance(value, tuple) else tuple(self._take_many(value))
        return tuple(self._scalar(item, real) for item in items)

    def _scalar(self, value: Operand, real: bool) -> Single:
        if value is _ANYTHING:
            return 0
        if not isinstance(value, int | float | str | Dim):
            raise self._fault()
        # Lists of whole numbers come back as integers.
        if real and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53:
            return float(value)
        return value

    def types(self, names: Sequence[str]) -> Mapping[str, ElementType]:
        """The element types at the end."""
        found: dict[str, ElementType] = {}
        for name in names[: self.left]:
            word = self._take()
            element = (find(word) or find_element(word)) if isinstance(word, str) else None
            if element is None:
                raise self._fault()
            found[name] = element
        if self.left:
            raise self._fault()
        return found
