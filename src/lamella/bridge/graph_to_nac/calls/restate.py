"""Calls and extents in the words that NAC keeps apart: what several operations share one name for is said by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import (
    Atom,
    Dim,
    DimSymbol,
    Extent,
    Values,
    add,
    floor_divide,
    larger,
    mul,
    remainder,
    smaller,
)
from lamella.base.dtype import BOOL
from lamella.base.source import NOWHERE
from lamella.bridge.aten.nodes import Call, Operand, Parameter, Schema
from lamella.bridge.aten.site import default_of
from lamella.bridge.aten.table import find_schema
from lamella.graph.nodes import Operation, Tensor
from lamella.lang.nac.operations import canonise
from lamella.lang.nac.rules import roads as rules

PASS, SUB = "nac.pass", "nac.sub"


class Inexpressible(ValueError):
    """An extent that no instructions compute; its text is the rest of a sentence."""

    def __init__(self, extent: object, problem: str) -> None:
        super().__init__(problem)
        self.extent = extent

    def finding(self, operator: str) -> Diagnostic:
        """The finding about the operator that needs the extent."""
        return rules.EXTENT.at(NOWHERE, operator=operator, extent=self.extent, problem=self)


# --- extents ------------------------------------------------------------------------------------------------


def restate_extent(extent: Extent, values: Values) -> Extent:
    """An extent by the operations that instructions have, some symbols known; Inexpressible where there are none."""
    if isinstance(extent, int):
        return extent
    total: Extent = 0
    for monomial, factor in extent.terms:
        term: Extent = factor
        for item in monomial:
            term = mul(term, _atom(item, values))
        total = add(total, term)
    return total


def _atom(atom: Atom, values: Values) -> Extent:
    if isinstance(atom, DimSymbol):
        return values.get(atom.name, Dim((((atom,), 1),)))
    if atom.condition is not None:
        raise Inexpressible(atom, "is a choice, and sizes have none")
    left, right = (restate_extent(item, values) for item in atom.operands)
    try:
        return _PARTS[atom.sign](left, right)
    except ZeroDivisionError:
        raise Inexpressible(atom, "divides by zero") from None


_PARTS: Mapping[str, Callable[[Extent, Extent], Extent]] = MappingProxyType(
    {
        "/": floor_divide,
        "%": remainder,
        "<<": smaller,
        ">>": larger,
        "\\": lambda left, right: mul(floor_divide(mul(left, -1), right), -1),
    }
)


def restate_operand(operand: Operand, values: Values, tensors: Mapping[str, Tensor]) -> Operand:
    """An operand with other tensors and restated extents."""
    if isinstance(operand, Tensor):
        return tensors.get(operand.name, operand)
    if isinstance(operand, Dim):
        return restate_extent(operand, values)
    if isinstance(operand, tuple):
        return tuple(restate_operand(item, values, tensors) for item in operand)
    return operand


# --- calls --------------------------------------------------------------------------------------------------


def is_pass(call: Call) -> bool:
    """Whether a call gives its first operand as it is, and needs no instruction."""
    return canonise(call.schema.name).name == PASS or call.schema.name == "aten.alias.default"


def restate_call(call: Call, operation: Operation) -> Call:
    """The call that a reader makes of what is written."""
    stem = call.schema.name.split(".")[1]
    change = _CHANGES.get(stem)
    return call if change is None else change(call, operation)


def _view(call: Call, operation: Operation) -> Call:
    """Squeezing as a view of the full shape: a shape of one number could be an axis."""
    (result,) = operation.outputs
    shape = result.shape if isinstance(result, Tensor) else ()
    return _other(call, "aten.view.default", {"self": call.operands["self"], "size": shape})


def _subtraction(call: Call, operation: Operation) -> Call:
    other = call.operands["other"]
    if _scaled(call) or not isinstance(other, Tensor):
        return call
    return _other(call, "aten.sub.Tensor", {"self": other, "other": call.operands["self"]})


def _choice(call: Call, operation: Operation) -> Call:
    value = call.operands["value"]
    name = "aten.where.self" if isinstance(value, Tensor) else "aten.where.ScalarSelf"
    given = {"condition": call.operands["mask"], "self": value, "other": call.operands["self"]}
    return _other(call, name, given)


def _filling(call: Call, operation: Operation) -> Call:
    """A truth value as a number of an element type: behind the items of a shape it could be another argument."""
    value, element = call.operands["fill_value"], call.operands.get("dtype") or BOOL
    if not isinstance(value, bool):
        return call
    return replace(call, operands={**call.operands, "fill_value": int(value), "dtype": element})


def _product(call: Call, operation: Operation) -> Call:
    """Products of matrices, and of batches of them, as the one operation that has both."""
    first, second = call.operands.values()
    return _other(call, "aten.matmul.default", {"self": first, "other": second})


def _smaller(call: Call, operation: Operation) -> Call:
    return _other(call, "aten.min.other", dict(call.operands))


def _turned(call: Call, operation: Operation) -> Call:
    """The transposition of a matrix; what has fewer dimensions stays as it is."""
    source = call.operands["self"]
    if not isinstance(source, Tensor) or len(source.shape) != 2:
        return call
    return _other(call, "aten.transpose.int", {"self": source, "dim0": 0, "dim1": 1})


def _shaped(call: Call, operation: Operation) -> Call:
    return _other(call, "aten.view.default", {"self": call.operands["self"], "size": call.operands["shape"]})


def _bounded(call: Call, operation: Operation) -> Call:
    """A bound on one side, where it is a number."""
    ends = [item for name, item in call.operands.items() if name != "self"]
    if any(isinstance(item, Tensor) for item in ends):
        return call
    return _other(call, "aten.clamp.default", dict(call.operands))


def _new(call: Call, operation: Operation) -> Call:
    """A new tensor of the type of another one, as one of that type."""
    (result,), stem = operation.outputs, call.schema.name.split(".")[1].removeprefix("new_")
    if not isinstance(result, Tensor):
        return call
    given = {name: item for name, item in call.operands.items() if name != "self"}
    made = _other(call, f"aten.{stem}.default", {**given, "dtype": result.element})
    return _filling(made, operation) if stem == "full" else made


def _narrowed(call: Call, operation: Operation) -> Call:
    start, length = call.operands["start"], call.operands["length"]
    if not isinstance(start, int) or not isinstance(length, int) or start < 0:
        return call
    given = {"self": call.operands["self"], "dim": call.operands["dim"]}
    return _other(call, "aten.slice.Tensor", {**given, "start": start, "end": start + length})


def _convolved(call: Call, operation: Operation) -> Call:
    """A convolution of two dimensions that is not transposed."""
    given, weight = dict(call.operands), call.operands["weight"]
    turned = given.pop("transposed"), given.pop("output_padding")
    if turned[0] or not isinstance(weight, Tensor) or len(weight.shape) != 4:
        return call
    return _other(call, "aten.conv2d.default", given)


_CHANGES: Mapping[str, Callable[[Call, Operation], Call]] = MappingProxyType(
    {
        **{"squeeze": _view, "flatten": _view, "unflatten": _view, "reshape": _shaped, "rsub": _subtraction},
        **{"masked_fill": _choice, "full": _filling, "mm": _product, "bmm": _product, "minimum": _smaller},
        **{"t": _turned, "clamp_min": _bounded, "clamp_max": _bounded, "narrow": _narrowed},
        **{"new_zeros": _new, "new_ones": _new, "new_full": _new, "convolution": _convolved},
    }
)
"""What is said by another operation: the public list has it, or several share a name there."""
_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {
        **{f"aten.{stem}.Scalar": f"aten.{stem}.Tensor" for stem in ("mul", "div")},
        **{f"aten.bitwise_{word}.Tensor": f"aten.__{word}__.Tensor" for word in ("and", "or")},
    }
)
"""Overloads under the names of others that take the same arguments, since other readers have those alone.

A number may stand in the place of a tensor: so does the public compiler write it.
"""


def _other(call: Call, name: str, operands: Mapping[str, Operand]) -> Call:
    """A call of another overload; the same where there is none."""
    schema = find_schema(name)
    return call if schema is None else replace(call, schema=schema, operands=operands)


def _scaled(call: Call) -> bool:
    return call.operands.get("alpha", 1) != 1


# --- what is written ----------------------------------------------------------------------------------------

_SILENT = frozenset(("layout", "device", "pin_memory", "memory_format", "non_blocking"))
"""Parameters that say nothing about numbers."""


def written_name(call: Call) -> str:
    """What a call is called in the file."""
    name = call.schema.name
    if name.startswith(("aten.where.", "aten.arange.")):
        return f"nac.{name.split('.')[1]}"
    if name.startswith("aten.rsub."):
        return name if _scaled(call) or name != "aten.rsub.Scalar" else SUB
    canonical = canonise(_SPELLINGS.get(name, name))
    return name if canonical.order is not None else canonical.name


def written_operands(call: Call) -> tuple[tuple[str, Operand], ...]:
    """The operands in the order of the file: by the schema, up to the last one that says more than its default."""
    if written_name(call) == SUB and call.schema.name.startswith("aten.rsub."):
        return tuple((name, call.operands[name]) for name in ("other", "self"))
    found = [(item.name, _operand(call, item.name)) for item in _spoken(call.schema)]
    while found and _is_default(call.schema, *found[-1]):
        found.pop()
    return tuple(found)


def _spoken(schema: Schema) -> list[Parameter]:
    return [item for item in schema.parameters if item.name not in _SILENT]


def _operand(call: Call, name: str) -> Operand:
    parameter = call.schema.find(name)
    if name in call.operands or parameter is None:
        return call.operands.get(name)
    return default_of(parameter)


def _is_default(schema: Schema, name: str, operand: Operand) -> bool:
    """Whether an operand is what a reader takes anyway; 1, 1.0 and True are not the same."""
    parameter = schema.find(name)
    if parameter is None or parameter.default is None:
        return False
    return repr(default_of(parameter)) == repr(operand)
