"""A call site of an ATen operation while it is lowered: typed operands, findings, calls of our operators by name."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NoReturn

from lamella.base.diagnostic import Rule
from lamella.base.dim import Dim, Extent, mul
from lamella.base.dtype import BOOL, F32, I64, ElementType, Kind
from lamella.base.errors import Found
from lamella.base.source import NOWHERE
from lamella.bridge.aten.nodes import AtenCall, AtenParameter, AtenSchema, Operand, Result
from lamella.bridge.aten.promotion import Number, number_type
from lamella.graph.build import Builder, Given
from lamella.graph.nodes import Argument, Pack, Shape, Tensor, Value
from lamella.lang.skriptnd.nodes import Dtype, Operator, TypeSpec
from lamella.lang.skriptnd.nodes import Parameter as Declared
from lamella.lang.skriptnd.rules.aten import (
    OPERAND_KIND,
    OPERAND_MISSING,
    OPERAND_REFUSED,
    OPERAND_UNKNOWN,
    UNSAYABLE,
)

_LIST = re.compile(r"\[(\d*)\]")
ATEN_LONG = 4
"""How the schemas of ATen call the type of 64-bit integers where it is a default."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call with every operand that it has, defaults included."""

    builder: Builder
    schema: AtenSchema
    operands: Mapping[str, Operand]

    @classmethod
    def of(cls, builder: Builder, call: AtenCall) -> CallSite:
        """The call with its defaults; a Problem says which operands it lacks or does not have."""
        schema = call.schema
        site = cls(builder, schema, dict(_fill(schema, call.operands)))
        names = [item.name for item in schema.parameters]
        for name in call.operands.keys() - set(names):
            raise site.problem(OPERAND_UNKNOWN, operand=name, names=", ".join(names) or "none")
        for name in names:
            if name not in site.operands:
                raise site.problem(OPERAND_MISSING, operand=name)
        return site

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
        """An operand that says an element type; the default of some is ATen's number of one."""
        found = self.operands.get(name)
        if isinstance(found, int) and found == ATEN_LONG:
            return I64
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
        """Call an operator of ours whose first generic type its inputs do not determine."""
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


def _fill(schema: AtenSchema, given: Mapping[str, Operand]) -> Iterator[tuple[str, Operand]]:
    for parameter in schema.parameters:
        if parameter.name in given:
            yield parameter.name, as_list(parameter, given[parameter.name])
        elif parameter.default is not None or parameter.type.endswith("?"):
            yield parameter.name, default_of(parameter)


def default_of(parameter: AtenParameter) -> Operand:
    """The value that a parameter has where a call does not give it."""
    return as_list(parameter, _operand(ast.literal_eval(parameter.default or "None")))


def as_list(parameter: AtenParameter, value: Operand) -> Operand:
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


# --- calls whose operands are those of our operator, by name ------------------------------------------------


_RESIZED = ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
RENAMED = MappingProxyType(
    {
        "aten.pow": {"other": "exponent"},
        "aten.lerp": {"other": "end"},
        "aten.dropout": {"self": "input"},
        "aten.full_like": {"value": "fill_value"},
        **{f"aten.upsample_{kind}": {"self": "input"} for kind in _RESIZED},
    }
)
"""What ATen calls an input where our operator calls it otherwise."""

NOTHING: Mapping[str, None] = MappingProxyType({})

WITHOUT_EFFECT = frozenset(
    (
        *("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "implicit", "momentum"),
        *("padding_idx", "scale_grad_by_freq", "sparse", "sparse_grad", "cudnn_enable", "cudnn_enabled"),
        *("benchmark", "deterministic", "allow_tf32", "compute_log_sumexp", "stable", "N", "C", "HxW"),
        *("compute_mode", "unsafe", "output_mask", "self_is_result"),
    )
)
"""Operands that change neither the type nor the shape nor the numbers of a result that is asked for."""


def build_plain(site: CallSite) -> Result:
    """The operator of the table with the operands of its names."""
    return finish(site, call_named(site, site.schema.operator))


def build_first(site: CallSite) -> Result:
    """The operator of the table gives the first result alone."""
    return site.padded(*site.flatten(call_named(site, site.schema.operator)))


def finish(site: CallSite, outputs: tuple[Argument, ...]) -> Result:
    """What a call gives: a tensor, or a tuple of them."""
    found = site.flatten(outputs)
    if site.schema.results == ("Tensor[]",):
        return found
    return site.padded(*found)


def call_named(
    site: CallSite,
    operator: str,
    inputs: Mapping[str, Argument] = NOTHING,
    attributes: Mapping[str, Value] = NOTHING,
) -> tuple[Argument, ...]:
    """Call an operator; what is not given here comes from the operands of the same names."""
    definition = site.builder.library.find_operator(operator)
    if definition is None:
        site.give_up(f"there is no operator {operator}")
    named = _Named(site, definition, RENAMED.get(operator, {}), inputs)
    given = {**named.attributes(attributes), **attributes}
    named.keep_defaults(attributes)
    return site.builder.call_all(operator, *named.inputs(), types=None, results=(), **given)


@dataclass(frozen=True, slots=True)
class _Named:
    """One call whose operands are looked up by the names of an operator."""

    site: CallSite
    operator: Operator
    renamed: Mapping[str, str]
    given: Mapping[str, Argument]

    def _name(self, name: str) -> str:
        """What the overload calls an input or attribute."""
        other = self.renamed.get(name, name)
        return other if other in self.site.operands else name

    def _operand(self, name: str) -> Operand:
        return self.site.operands.get(self._name(name))

    def inputs(self) -> list[Argument]:
        return [self._input(item) for item in self.operator.parameters("input")]

    def _input(self, item: Declared) -> Argument:
        if item.name in self.given:
            return self.given[item.name]
        value = self._operand(item.name)
        if value is None:
            return None
        if item.type.pack is not None:
            return self.site.tensors(self._name(item.name))
        if isinstance(value, int | float | Dim):
            return self.site.cast(value, self._element(item.type) or number_type(value))
        return self.site.tensor(self._name(item.name))

    def _element(self, spec: TypeSpec) -> ElementType | None:
        """The type that the tensors of the call determine."""
        for item in self.operator.parameters("input"):
            value = self.given.get(item.name) or self._operand(item.name)
            first = value[0] if isinstance(value, tuple) and value else value
            if item.type.name == spec.name and isinstance(first, Tensor):
                return first.element
        return {"real": F32, "int": I64, "bool": BOOL}.get(spec.name)

    def attributes(self, given: Mapping[str, Value]) -> dict[str, Value]:
        found = {}
        for item in self.operator.parameters("attrib"):
            value = self._operand(item.name)
            if item.name not in given and value is not None:
                found[item.name] = self._attribute(item, value)
        return found

    def _attribute(self, item: Declared, value: Operand) -> Value:
        element = self._element(item.type)
        if isinstance(value, str):
            return value
        parameter = self.site.schema.find(self._name(item.name))
        known = parameter is not None and parameter.type.startswith("int")
        if item.type.pack is None and known:
            return self.site.integer(self._name(item.name))
        if item.type.pack is None:
            number = self.site.number(item.name)
            return number if element is None else fit_number(number, element)
        if element is not None and element.is_float and isinstance(value, tuple):
            return tuple(float(part) for part in value if isinstance(part, int | float))
        return (self.site.integers if known else self.site.extents)(item.name)

    def keep_defaults(self, given: Mapping[str, Value]) -> None:
        """Operands that the operator does not have must be what they are by default."""
        names = {item.name for part in ("input", "attrib") for item in self.operator.parameters(part)}
        known = {*names, *self.renamed.values(), *given, *WITHOUT_EFFECT}
        for parameter in self.site.schema.parameters:
            if parameter.name in known:
                continue
            if parameter.default is None or self.site.operands[parameter.name] != default_of(parameter):
                self.site.refuse(
                    parameter.name, f"the operator has no such input (default {parameter.default})"
                )
