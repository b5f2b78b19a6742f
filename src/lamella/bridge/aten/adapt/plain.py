"""Calls whose operands are those of our operator, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.dim import Dim
from lamella.base.dtype import BOOL, F32, I64, ElementType
from lamella.bridge.aten.nodes import Operand, Result
from lamella.bridge.aten.promotion import number_type
from lamella.bridge.aten.site import Site, default_of, fit_number
from lamella.graph.nodes import Argument, Tensor, Value
from lamella.lang.skriptnd.nodes import Operator, TypeSpec
from lamella.lang.skriptnd.nodes import Parameter as Declared

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


def build_plain(site: Site) -> Result:
    """The operator of the table with the operands of its names."""
    return finish(site, call_named(site, site.schema.operator))


def build_first(site: Site) -> Result:
    """The operator of the table gives the first result alone."""
    return site.padded(*site.flatten(call_named(site, site.schema.operator)))


def finish(site: Site, outputs: tuple[Argument, ...]) -> Result:
    """What a call gives: a tensor, or a tuple of them."""
    found = site.flatten(outputs)
    if site.schema.results == ("Tensor[]",):
        return found
    return site.padded(*found)


def call_named(
    site: Site,
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

    site: Site
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
        """The type that the tensors of the call tell."""
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
