"""Operations of a graph as ATen calls: the inverse of lowering them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from lamella.base.dim import Condition, Dim
from lamella.base.dtype import F32, I64, ElementType
from lamella.bridge.aten.nodes import AtenCall, AtenParameter, AtenSchema, Operand
from lamella.bridge.aten.promotion import Number, number_type, result_type
from lamella.bridge.aten.site import RENAMED, as_list, default_of, fit_number, volume
from lamella.bridge.aten.table import OverloadRow, calling
from lamella.graph.nodes import Argument, Constant, Operation, Pack, Tensor, Value
from lamella.ops.instance import Repeated, singles
from lamella.ops.library import Library

_FIXED: Mapping[str, Operand] = MappingProxyType(
    {
        **{"train": False, "training": False, "p": 0.5, "momentum": 0.1},
        **{"cudnn_enabled": True, "half_to_float": False, "compute_mode": None},
        **{"self_is_result": False, "align_corners": False},
    }
)
"""Operands that ATen asks for and our operators have no use for."""
_PROMOTING = frozenset(("arithmetic", "division", "common", "power", "extreme", "compare", "where", "clamp"))
"""Where a number must not change the type in which the operands are computed."""
_ALL_DIMS = frozenset(("total", "norm", "extremum", "spread", "logsumexp"))
"""Where an empty list of dimensions stands for all of them."""


def describe(operation: Operation, constants: Mapping[str, Constant]) -> AtenCall | None:
    """The call that makes an operation; None where ATen has none.

    Constants without dimensions are numbers where ATen takes numbers. Operands stand in the order of the schema:
    positional ones up to the last that is not what it is by default, then those that are given by name.
    """
    if not operation.operator.startswith("aten."):
        return None
    for numbers in (True, False):
        for row in calling(operation.operator):
            found = _CallDescriber(row, operation, constants, numbers).write()
            if found is not None:
                return found
    return None


@cache
def _input_names(operator: str) -> tuple[str, ...]:
    definition = Library().find_operator(operator)
    return () if definition is None else tuple(item.name for item in definition.parameters("input"))


def _number_of(constant: Constant | None) -> Number | None:
    """The number that a constant without dimensions is."""
    if constant is None or constant.tensor.shape:
        return None
    value = constant.value
    single = value[0] if isinstance(value, tuple) else value
    if isinstance(single, int | float | Dim):
        return fit_number(single, constant.tensor.element)
    return None


@dataclass(frozen=True, slots=True)
class _CallDescriber:
    """One operation as a call of one overload; where `numbers` is false, constants may stay tensors."""

    row: OverloadRow
    operation: Operation
    constants: Mapping[str, Constant]
    numbers: bool

    @property
    def schema(self) -> AtenSchema:
        return self.row.schema

    def write(self) -> AtenCall | None:
        given = self._operands()
        if given is None:
            return None
        given = {**self._fixed(), **given}
        if self.schema.find("output_mask") is not None:
            given["output_mask"] = self._asked(given)
        if not self._complete(given) or not self._keeps_type(given):
            return None
        return AtenCall(self.schema, dict(_ordered(self.schema, given)))

    def _fixed(self) -> dict[str, Operand]:
        """What the operation does not say and ATen asks for."""
        found = {name: value for name, value in _FIXED.items() if self.schema.find(name) is not None}
        if self.row.how == "batch_stats":
            found["training"] = True
        first = self.operation.inputs[0] if self.operation.inputs else None
        if self.schema.find("HxW") is not None and isinstance(first, Tensor):
            found |= {"N": first.shape[0], "C": first.shape[1], "HxW": volume(first.shape[2:])}
        return found

    def _asked(self, given: Mapping[str, Operand]) -> Operand:
        """Which gradients there are: torch has none of a scale or shift that is not given."""
        scale = given.get("weight") is not None
        return (True, scale, scale if self.schema.find("bias") is None else given.get("bias") is not None)

    def _operands(self) -> dict[str, Operand] | None:
        """All operands that the operation says; None where the overload has no room for one."""
        names = RENAMED.get(self.operation.operator, {})
        found: dict[str, Operand] = {}
        for name, argument in zip(_input_names(self.operation.operator), self.operation.inputs, strict=False):
            parameter = self._find(name, names)
            if parameter is None or isinstance(argument, Pack):
                if argument is not None:
                    return None
                continue
            if not self._takes(parameter, argument):
                return None
            found[parameter.name] = self._argument(parameter, argument)
        for name, value in self.operation.attributes:
            parameter = self._find(name, names)
            if parameter is not None and self._says(name, value):
                found[parameter.name] = _plain(value)
            elif value is not None and not self._is_implied(name, value):
                return None
        return found | self._types() | self._places()

    def _find(self, name: str, names: Mapping[str, str]) -> AtenParameter | None:
        return self.schema.find(names.get(name, name)) or self.schema.find(name)

    # --- inputs ---------------------------------------------------------------------------------------------

    def _takes(self, parameter: AtenParameter, argument: Argument) -> bool:
        """Whether a parameter is of the kind of an argument."""
        if not isinstance(argument, Tensor):
            return True
        number = _number_of(self.constants.get(argument.name))
        if _takes_number(parameter):
            return number is not None or not self.numbers
        return number is None or not self.numbers or not _has_numbers(self.operation.operator, parameter.name)

    def _argument(self, parameter: AtenParameter, argument: Argument) -> Operand:
        if isinstance(argument, Tensor) and _takes_number(parameter):
            number = _number_of(self.constants.get(argument.name))
            return argument if number is None else number
        return argument if isinstance(argument, Tensor | tuple) else None

    def _keeps_type(self, given: Mapping[str, Operand]) -> bool:
        """Whether the operands still determine the type of the operation."""
        if self.row.how not in _PROMOTING:
            return True
        names = (*("self", "other", "exponent"), *(("min", "max") if self.row.how == "clamp" else ()))
        values = [given[name] for name in names if name in given]
        operands = [item for item in values if isinstance(item, Tensor | int | float | Dim)]
        typed = [item for item in self.operation.inputs[-2:] if isinstance(item, Tensor)]
        return not typed or result_type(operands) == typed[0].element

    # --- attributes -----------------------------------------------------------------------------------------

    def _says(self, name: str, value: Value) -> bool:
        """Whether an attribute can be written as it is."""
        return not (name == "dim" and value == () and self.row.how in _ALL_DIMS and self._rank() > 0)

    def _is_implied(self, name: str, value: Value) -> bool:
        """Whether an attribute that the overload does not have is what it stands for."""
        if name == "dim" and self.row.how in (*_ALL_DIMS, "truth"):
            return value == tuple(range(self._rank()))
        if name == "dims" and self.row.how in ("index", "index_put"):
            return True
        return name == "keepdim" and value is False

    def _rank(self) -> int:
        tensor = self.operation.inputs[0] if self.operation.inputs else None
        return len(tensor.shape) if isinstance(tensor, Tensor) else 0

    def _types(self) -> dict[str, Operand]:
        """The type of the result, where the operands do not determine it."""
        operator, types = self.operation.operator, dict(self.operation.types)
        if operator == "aten.to_copy":
            return {"dtype": types["R"]}
        if operator in (
            "aten.zeros",
            "aten.ones",
            "aten.scalar_tensor",
            "aten.empty",
            "aten.empty_strided",
            "aten.empty_permuted",
            "aten.eye",
        ):
            return _unless(types["T"], F32)
        if operator == "aten.arange":
            numbers = [value for _, value in self.operation.attributes]
            return _unless(types["T"], F32 if any(isinstance(item, float) for item in numbers) else I64)
        if operator in ("aten.sum", "aten.prod", "aten.cumsum", "aten.cumprod") and types["T"].is_integer:
            return _unless(types["T"], I64)
        value = self.operation.inputs[0] if self.operation.inputs else None
        if operator.endswith("softmax_backward_data") and isinstance(value, Tensor):
            return {"input_dtype": value.element}
        if operator == "aten.full" and isinstance(value, Tensor):
            number = _number_of(self.constants.get(value.name))
            return {} if number is None else _unless(value.element, number_type(number))
        return {}

    def _places(self) -> dict[str, Operand]:
        """The indices with None for the dimensions that stay whole."""
        if self.operation.operator not in ("aten.index", "aten.index_put"):
            return {}
        operand, tensors = self.operation.inputs[:2]
        dims = dict(self.operation.attributes)["dims"]
        if not isinstance(operand, Tensor) or not isinstance(tensors, tuple) or not isinstance(dims, tuple):
            return {}
        known = [item % len(operand.shape) for item in dims if isinstance(item, int)]
        placed = dict(zip(known, tensors, strict=False))
        return {"indices": tuple(placed.get(place) for place in range(max(known, default=-1) + 1))}

    def _complete(self, given: Mapping[str, Operand]) -> bool:
        """Whether the overload asks for nothing else, and a list has the length that it asks for."""
        for item in self.schema.parameters:
            if item.name not in given and item.default is None and not item.type.endswith("?"):
                return False
            value = given.get(item.name)
            if isinstance(value, tuple) and "[" not in item.type and len(value) != 1:
                return False
        return True


def _unless(element: ElementType, usual: ElementType) -> dict[str, Operand]:
    return {} if element == usual else {"dtype": element}


def _takes_number(parameter: AtenParameter) -> bool:
    return parameter.type.startswith(("Scalar", "float")) and "Type" not in parameter.type


@cache
def _has_numbers(operator: str, name: str) -> bool:
    """Whether some overload takes a number here."""
    found = (row.schema.find(name) for row in calling(operator))
    return any(item is not None and _takes_number(item) for item in found)


def _plain(value: Value) -> Operand:
    """An attribute as an operand."""
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, Repeated):
        return _plain(singles(value)[0])  # one value stands for a whole list of ATen
    return None if isinstance(value, Condition) else value


def _ordered(schema: AtenSchema, given: Mapping[str, Operand]) -> Iterator[tuple[str, Operand]]:
    """The operands that must be written, in the order of the schema."""
    differing = [item.name for item in schema.parameters if _differs(item, given)]
    positional = [item.name for item in schema.parameters if not item.keyword]
    last = max((place for place, name in enumerate(positional) if name in differing), default=-1)
    for item in schema.parameters:
        if item.name in (differing if item.keyword else positional[: last + 1]):
            yield item.name, _operand(item, given)


def _operand(parameter: AtenParameter, given: Mapping[str, Operand]) -> Operand:
    value = given.get(parameter.name)
    if value is None and parameter.default is not None:
        return default_of(parameter)
    return value[0] if isinstance(value, tuple) and "[" not in parameter.type else value


def _differs(parameter: AtenParameter, given: Mapping[str, Operand]) -> bool:
    """Whether an operand is not what it is by default; one without default always is."""
    if parameter.default is None:
        return not parameter.keyword or parameter.name in given
    value = given.get(parameter.name)
    return value is not None and as_list(parameter, value) != default_of(parameter)
