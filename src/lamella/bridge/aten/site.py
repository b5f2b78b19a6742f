"""One call of an ATen operation on its way into a graph: its operands read, its findings told, operators called."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from lamella.base.diagnostic import Rule
from lamella.base.dim import Dim, Extent, mul
from lamella.base.dtype import ElementType, Kind
from lamella.base.errors import Found
from lamella.base.source import NOWHERE
from lamella.bridge.aten.nodes import Call, Operand, Parameter, Result, Schema
from lamella.bridge.aten.promotion import Number
from lamella.graph.build import Builder, Given
from lamella.graph.nodes import Argument, Pack, Shape, Tensor, Value
from lamella.lang.skriptnd.nodes import Dtype
from lamella.lang.skriptnd.rules.aten import (
    OPERAND_KIND,
    OPERAND_MISSING,
    OPERAND_REFUSED,
    OPERAND_UNKNOWN,
    UNSAYABLE,
)

_LIST = re.compile(r"\[(\d*)\]")


@dataclass(frozen=True, slots=True)
class Site:
    """A call with every operand that it has, defaults included."""

    builder: Builder
    schema: Schema
    operands: Mapping[str, Operand]

    # --- findings -------------------------------------------------------------------------------------------

    def problem(self, rule: Rule, **values: object) -> Found:
        """A finding about this call."""
        return Found(rule.at(NOWHERE, hint=None, labels=(), name=self.schema.name, **values))

    def refuse(self, operand: str, possible: str) -> NoReturn:
        """Refuse the value of an operand, and say which ones are possible."""
        value = show(self.operands.get(operand))
        raise self.problem(OPERAND_REFUSED, operand=operand, value=value, possible=possible)

    def give_up(self, reason: str) -> NoReturn:
        """Refuse the whole call."""
        raise self.problem(UNSAYABLE, reason=reason)

    def _wrong_kind(self, operand: str, expected: str) -> Found:
        given = show(self.operands.get(operand))
        return self.problem(OPERAND_KIND, operand=operand, expected=expected, given=given)

    # --- operands -------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether an operand is there and not None."""
        return self.operands.get(name) is not None

    def tensor(self, name: str) -> Tensor:
        """An operand that must be a tensor."""
        found = self.operands.get(name)
        if isinstance(found, Tensor):
            return found
        raise self._wrong_kind(name, "a tensor")

    def scalar(self, name: str) -> Tensor | Number:
        """An operand that is a tensor or a number."""
        found = self.operands.get(name)
        if isinstance(found, Tensor | int | float | Dim):
            return found
        raise self._wrong_kind(name, "a tensor or a number")

    def number(self, name: str) -> Number:
        """An operand that must be a number; an extent is one."""
        found = self.operands.get(name)
        if isinstance(found, int | float | Dim):
            return found
        raise self._wrong_kind(name, "a number that is known before the run")

    def real(self, name: str) -> float:
        """An operand that must be a known number."""
        found = self.operands.get(name)
        if isinstance(found, int | float):
            return float(found)
        raise self._wrong_kind(name, "a number that is known before the run")

    def integer(self, name: str) -> int:
        """An operand that must be a known integer."""
        found = self.operands.get(name)
        if isinstance(found, float) and found.is_integer():
            return int(found)
        if isinstance(found, int):
            return int(found)
        raise self._wrong_kind(name, "an integer that is known before the run")

    def extent(self, name: str) -> Extent:
        """An operand that must be an integer or an extent."""
        found = self.operands.get(name)
        return found if isinstance(found, Dim) else self.integer(name)

    def flag(self, name: str) -> bool:
        """An operand that is true or false; one that is not there is false."""
        return bool(self.operands.get(name))

    def word(self, name: str) -> str:
        """An operand that must be a word."""
        found = self.operands.get(name)
        if isinstance(found, str):
            return found
        raise self._wrong_kind(name, "a word")

    def element(self, name: str = "dtype") -> ElementType | None:
        """An operand that says an element type."""
        found = self.operands.get(name)
        if found is None or isinstance(found, ElementType):
            return found
        raise self._wrong_kind(name, "an element type")

    def extents(self, name: str) -> tuple[Extent, ...]:
        """An operand that is a list of integers and extents; a single one is a list of one."""
        found = self.operands.get(name)
        items = found if isinstance(found, tuple) else () if found is None else (found,)
        kept = tuple(as_extent(item) for item in items)
        known = tuple(item for item in kept if item is not None)
        if len(known) != len(items):
            raise self._wrong_kind(name, "a list of integers and sizes")
        return known

    def integers(self, name: str) -> tuple[int, ...]:
        """An operand that is a list of known integers."""
        found = self.extents(name)
        known = tuple(item for item in found if isinstance(item, int))
        if len(known) != len(found):
            raise self._wrong_kind(name, "a list of integers that are known before the run")
        return known

    def tensors(self, name: str) -> tuple[Tensor, ...]:
        """An operand that is a list of tensors."""
        found = self.operands.get(name)
        items = found if isinstance(found, tuple) else (found,)
        kept = tuple(item for item in items if isinstance(item, Tensor))
        if len(kept) != len(items):
            raise self._wrong_kind(name, "a list of tensors")
        return kept

    # --- operations -----------------------------------------------------------------------------------------

    def call(self, operator: str, *inputs: Given, **attributes: Value) -> Tensor:
        """Call an operator of ours that gives one tensor."""
        (found,) = self.call_all(operator, *inputs, **attributes)
        return found

    def call_all(self, operator: str, *inputs: Given, **attributes: Value) -> tuple[Tensor, ...]:
        """Call an operator of ours; all the tensors that it gives."""
        return self.flatten(self.builder.call_all(operator, *inputs, types=None, results=(), **attributes))

    def make(self, operator: str, element: ElementType, *inputs: Given, **attributes: Value) -> Tensor:
        """Call an operator of ours whose first generic type its inputs do not tell."""
        definition = self.builder.library.find_operator(operator)
        generic = [] if definition is None else list(definition.items("dtype"))
        types = {item.name: element for item in generic[:1] if isinstance(item, Dtype)}
        (found,) = self.flatten(
            self.builder.call_all(operator, *inputs, types=types, results=(), **attributes)
        )
        return found

    def flatten(self, outputs: Sequence[Argument]) -> tuple[Tensor, ...]:
        """The tensors of some results, whose number must be known."""
        found: list[Tensor] = []
        for item in outputs:
            if isinstance(item, Pack):
                self.give_up(f"the number of its results is {item.size}, which only the run tells")
            found += (item,) if isinstance(item, Tensor) else item or ()
        return tuple(found)

    def cast(self, value: Tensor | Number, element: ElementType) -> Tensor:
        """A tensor converted where it has another type; a number as a constant."""
        if not isinstance(value, Tensor):
            return self.builder.constant(fit_number(value, element), element)
        if value.element == element:
            return value
        return self.make("aten.to_copy", element, value)

    def padded(self, *tensors: Tensor) -> Result:
        """What the schema gives: one tensor, or a tuple whose results that we do not compute are None."""
        count = len(self.schema.results)
        return tensors[0] if count == 1 else (*tensors, *[None] * (count - len(tensors)))


def fit_number(value: Number, element: ElementType) -> Number:
    """A number as one of an element type; for integers fractions are cut off, and what is too large wraps round."""
    if isinstance(value, Dim):
        return value
    if element.kind is Kind.BOOL:
        return bool(value)
    if element.is_float:
        return float(value)
    if not math.isfinite(value):
        return 0
    return (int(value) - element.minimum) % (1 << element.bits) + element.minimum


def volume(shape: Shape) -> Extent:
    """How many elements a shape has."""
    total: Extent = 1
    for extent in shape:
        total = mul(total, extent)
    return total


def as_extent(value: Operand | Result) -> Extent | None:
    """An integer or an extent; a number without fraction is one too."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, int) else value if isinstance(value, Dim) else None


def show(value: Operand) -> str:
    """An operand in words."""
    if isinstance(value, Tensor):
        return f"tensor {value.name} of {value.element}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, tuple):
        return f"[{', '.join(show(item) for item in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


# --- the operands of a call ---------------------------------------------------------------------------------


def open_site(builder: Builder, call: Call) -> Site:
    """The call with its defaults; Found says which operands it lacks or does not have."""
    schema = call.schema
    site = Site(builder, schema, dict(_fill(schema, call.operands)))
    names = [item.name for item in schema.parameters]
    for name in call.operands.keys() - set(names):
        raise site.problem(OPERAND_UNKNOWN, operand=name, names=", ".join(names) or "none")
    for name in names:
        if name not in site.operands:
            raise site.problem(OPERAND_MISSING, operand=name)
    return site


def _fill(schema: Schema, given: Mapping[str, Operand]) -> Iterator[tuple[str, Operand]]:
    for parameter in schema.parameters:
        if parameter.name in given:
            yield parameter.name, as_list(parameter, given[parameter.name])
        elif parameter.default is not None or parameter.type.endswith("?"):
            yield parameter.name, default_of(parameter)


def default_of(parameter: Parameter) -> Operand:
    """The value that a parameter has where a call does not give it."""
    return as_list(parameter, _operand(ast.literal_eval(parameter.default or "None")))


def as_list(parameter: Parameter, value: Operand) -> Operand:
    """A list where a parameter takes one; a single value stands for a list of known length, or is one of its own."""
    match = _LIST.search(parameter.type)
    if match is None or value is None:
        return value
    items = value if isinstance(value, tuple) else (value,)
    return items * int(match[1] or 1) if len(items) == 1 else items


def _operand(value: object) -> Operand:
    if isinstance(value, list):
        return tuple(_operand(item) for item in value)
    return value if isinstance(value, int | float | str) else None
