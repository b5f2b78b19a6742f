"""Encodings of calls: ATen calls and library calls as NAC names and orders them, and extents that it can compute.

Several ATen overloads share one NAC name. A call is restated as the overload that a reader makes of the name, so that
what is written is read as it was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

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
from lamella.base.dtype import BOOL, ElementType
from lamella.base.errors import Found, Unsupported
from lamella.base.origin import Origin
from lamella.base.source import NOWHERE
from lamella.bridge.aten.nodes import AtenCall, AtenParameter, AtenSchema, Operand
from lamella.bridge.aten.site import default_of
from lamella.bridge.aten.table import find_schema
from lamella.graph.build import bind
from lamella.graph.nodes import Argument, Branch, Constant, Operation, Pack, Single, Tensor, Value
from lamella.lang.nac.operations import canonise
from lamella.lang.nac.rules import graphs as rules
from lamella.ops.instance import Fill, Instance, Repeated, singles
from lamella.ops.library import Library

PASS, SUB = "nac.pass", "nac.sub"


def extent_finding(operator: str, refused: Unsupported) -> Diagnostic:
    """The finding about an operator that needs an extent; `refused` holds the extent and why nothing computes it."""
    extent, problem = refused.args
    return rules.EXTENT.at(NOWHERE, what="operator", name=operator, extent=extent, problem=problem)


# --- extents ------------------------------------------------------------------------------------------------


def lower_extent(extent: Extent, values: Values) -> Extent:
    """An extent by the operations that instructions have, some symbols known; Unsupported where there are none."""
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
        raise Unsupported(atom, "is a choice, and sizes have none")
    left, right = (lower_extent(item, values) for item in atom.operands)
    try:
        return _PARTS[atom.sign](left, right)
    except ZeroDivisionError:
        raise Unsupported(atom, "divides by zero") from None


_PARTS: Mapping[str, Callable[[Extent, Extent], Extent]] = MappingProxyType(
    {
        "/": floor_divide,
        "%": remainder,
        "<<": smaller,
        ">>": larger,
        "\\": lambda left, right: mul(floor_divide(mul(left, -1), right), -1),
    }
)


def lower_operand(operand: Operand, values: Values, tensors: Mapping[str, Tensor]) -> Operand:
    """An operand with other tensors and lowered extents."""
    if isinstance(operand, Tensor):
        return tensors.get(operand.name, operand)
    if isinstance(operand, Dim):
        return lower_extent(operand, values)
    if isinstance(operand, tuple):
        return tuple(lower_operand(item, values, tensors) for item in operand)
    return operand


# --- disambiguation -----------------------------------------------------------------------------------------


def is_pass(call: AtenCall) -> bool:
    """Whether a call gives its first operand as it is, and needs no instruction."""
    return canonise(call.schema.name).name == PASS or call.schema.name == "aten.alias.default"


def disambiguate_call(call: AtenCall, operation: Operation) -> AtenCall:
    """Disambiguates ATen overloads that share a NAC name: the call that a reader makes of what is written."""
    stem = call.schema.name.split(".")[1]
    change = _CHANGES.get(stem)
    return call if change is None else change(call, operation)


def _view(call: AtenCall, operation: Operation) -> AtenCall:
    """Squeezing as a view of the full shape: a shape of one number could be an axis."""
    (result,) = operation.outputs
    shape = result.shape if isinstance(result, Tensor) else ()
    return _other(call, "aten.view.default", {"self": call.operands["self"], "size": shape})


def _subtraction(call: AtenCall, operation: Operation) -> AtenCall:
    other = call.operands["other"]
    if _scaled(call) or not isinstance(other, Tensor):
        return call
    return _other(call, "aten.sub.Tensor", {"self": other, "other": call.operands["self"]})


def _choice(call: AtenCall, operation: Operation) -> AtenCall:
    value = call.operands["value"]
    name = "aten.where.self" if isinstance(value, Tensor) else "aten.where.ScalarSelf"
    given = {"condition": call.operands["mask"], "self": value, "other": call.operands["self"]}
    return _other(call, name, given)


def _filling(call: AtenCall, operation: Operation) -> AtenCall:
    """A truth value as a number of an element type: behind the items of a shape it could be another argument."""
    value, element = call.operands["fill_value"], call.operands.get("dtype") or BOOL
    if not isinstance(value, bool):
        return call
    return replace(call, operands={**call.operands, "fill_value": int(value), "dtype": element})


def _product(call: AtenCall, operation: Operation) -> AtenCall:
    """Products of matrices, and of batches of them, as the one operation that has both."""
    first, second = call.operands.values()
    return _other(call, "aten.matmul.default", {"self": first, "other": second})


def _smaller(call: AtenCall, operation: Operation) -> AtenCall:
    return _other(call, "aten.min.other", dict(call.operands))


def _turned(call: AtenCall, operation: Operation) -> AtenCall:
    """The transposition of a matrix; what has fewer dimensions stays as it is."""
    source = call.operands["self"]
    if not isinstance(source, Tensor) or len(source.shape) != 2:
        return call
    return _other(call, "aten.transpose.int", {"self": source, "dim0": 0, "dim1": 1})


def _shaped(call: AtenCall, operation: Operation) -> AtenCall:
    return _other(call, "aten.view.default", {"self": call.operands["self"], "size": call.operands["shape"]})


def _bounded(call: AtenCall, operation: Operation) -> AtenCall:
    """A bound on one side, where it is a number."""
    ends = [item for name, item in call.operands.items() if name != "self"]
    if any(isinstance(item, Tensor) for item in ends):
        return call
    return _other(call, "aten.clamp.default", dict(call.operands))


def _new(call: AtenCall, operation: Operation) -> AtenCall:
    """A new tensor of the type of another one, as one of that type."""
    (result,), stem = operation.outputs, call.schema.name.split(".")[1].removeprefix("new_")
    if not isinstance(result, Tensor):
        return call
    given = {name: item for name, item in call.operands.items() if name != "self"}
    made = _other(call, f"aten.{stem}.default", {**given, "dtype": result.element})
    return _filling(made, operation) if stem == "full" else made


def _narrowed(call: AtenCall, operation: Operation) -> AtenCall:
    start, length = call.operands["start"], call.operands["length"]
    if not isinstance(start, int) or not isinstance(length, int) or start < 0:
        return call
    given = {"self": call.operands["self"], "dim": call.operands["dim"]}
    return _other(call, "aten.slice.Tensor", {**given, "start": start, "end": start + length})


def _convolved(call: AtenCall, operation: Operation) -> AtenCall:
    """A convolution of two dimensions that is not transposed."""
    given, weight = dict(call.operands), call.operands["weight"]
    turned = given.pop("transposed"), given.pop("output_padding")
    if turned[0] or not isinstance(weight, Tensor) or len(weight.shape) != 4:
        return call
    return _other(call, "aten.conv2d.default", given)


_CHANGES: Mapping[str, Callable[[AtenCall, Operation], AtenCall]] = MappingProxyType(
    {
        **{"squeeze": _view, "flatten": _view, "unflatten": _view, "reshape": _shaped, "rsub": _subtraction},
        **{"masked_fill": _choice, "full": _filling, "mm": _product, "bmm": _product, "minimum": _smaller},
        **{"t": _turned, "clamp_min": _bounded, "clamp_max": _bounded, "narrow": _narrowed},
        **{"new_zeros": _new, "new_ones": _new, "new_full": _new, "convolution": _convolved},
    }
)
"""Operations that another one stands for: the public list has that one, or several share a name there."""
_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {
        **{f"aten.{stem}.Scalar": f"aten.{stem}.Tensor" for stem in ("mul", "div")},
        **{f"aten.bitwise_{word}.Tensor": f"aten.__{word}__.Tensor" for word in ("and", "or")},
    }
)
"""Overloads under the names of others that take the same arguments, since other readers have those alone.

A number may stand in the place of a tensor: so does the public compiler write it.
"""


def _other(call: AtenCall, name: str, operands: Mapping[str, Operand]) -> AtenCall:
    """A call of another overload; the same where there is none."""
    schema = find_schema(name)
    return call if schema is None else replace(call, schema=schema, operands=operands)


def _scaled(call: AtenCall) -> bool:
    return call.operands.get("alpha", 1) != 1


# --- what is written ----------------------------------------------------------------------------------------

_SILENT = frozenset(("layout", "device", "pin_memory", "memory_format", "non_blocking"))
"""Parameters that say nothing about numbers."""


def written_name(call: AtenCall) -> str:
    """What a call is called in the file."""
    name = call.schema.name
    if name.startswith(("aten.where.", "aten.arange.")):
        return f"nac.{name.split('.')[1]}"
    if name.startswith("aten.rsub."):
        return name if _scaled(call) or name != "aten.rsub.Scalar" else SUB
    canonical = canonise(_SPELLINGS.get(name, name))
    return name if canonical.order is not None else canonical.name


def written_operands(call: AtenCall) -> tuple[tuple[str, Operand], ...]:
    """The operands in the order of the file: by the schema, up to the last one that says more than its default."""
    if written_name(call) == SUB and call.schema.name.startswith("aten.rsub."):
        return tuple((name, call.operands[name]) for name in ("other", "self"))
    found = [(item.name, _operand(call, item.name)) for item in _spoken(call.schema)]
    while found and _is_default(call.schema, *found[-1]):
        found.pop()
    return tuple(found)


def _spoken(schema: AtenSchema) -> list[AtenParameter]:
    return [item for item in schema.parameters if item.name not in _SILENT]


def _operand(call: AtenCall, name: str) -> Operand:
    parameter = call.schema.find(name)
    if name in call.operands or parameter is None:
        return call.operands.get(name)
    return default_of(parameter)


def _is_default(schema: AtenSchema, name: str, operand: Operand) -> bool:
    """Whether an operand is what a reader takes anyway; 1, 1.0 and True are not the same."""
    parameter = schema.find(name)
    if parameter is None or parameter.default is None:
        return False
    return repr(default_of(parameter)) == repr(operand)


# --- call encodings and the plan that holds them ------------------------------------------------------------


CallInput: TypeAlias = Tensor | tuple[Tensor, ...] | Single | None
"""An input of a call: what a graph passes, or the number that is the same everywhere in a constant."""


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call of an operator of the library: inputs, all attributes, types that tensors do not determine."""

    operator: str
    inputs: tuple[CallInput, ...]
    attributes: tuple[tuple[str, Value], ...]
    types: Mapping[str, ElementType]
    names: tuple[str, ...] = ()
    """What the operator calls its inputs."""


CallEncoding: TypeAlias = AtenCall | LibraryCall


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """An operation and its encoding, with the tensors of the graph it comes from."""

    operation: Operation
    encoding: CallEncoding

    @property
    def origin(self) -> Origin | None:
        """What the operation was made from."""
        return self.operation.origin


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """A block: what runs in it, and the tensors that it hands over."""

    steps: tuple[PlannedStep, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class PlannedFork:
    """A branch or a convergence with its blocks, and the condition or the tensor that the blocks share."""

    node: Branch | Operation
    given: Tensor
    parts: tuple[PlannedBlock, ...]

    @property
    def origin(self) -> Origin | None:
        """What the node was made from."""
        return self.node.origin


PlannedStep: TypeAlias = PlannedCall | PlannedFork


@dataclass(slots=True)
class CallPlan:
    """All operations in order; tensors that are others; constants that are stored like weights."""

    steps: list[PlannedStep] = field(default_factory=list)
    aliases: dict[str, Tensor] = field(default_factory=dict)
    stored: dict[str, Constant] = field(default_factory=dict)
    """By the names of the constants in the graph; equal ones share one."""
    outputs: list[Tensor] = field(default_factory=list)
    updates: dict[str, Tensor] = field(default_factory=dict)
    """By the names of the variables that are states, what they become."""

    def root(self, tensor: Tensor) -> Tensor:
        """The tensor that another one is."""
        while tensor.name in self.aliases:
            tensor = self.aliases[tensor.name]
        return tensor


def tensors_of(encoding: CallEncoding) -> Iterator[Tensor]:
    """The tensors that a call reads."""
    operands = encoding.inputs if isinstance(encoding, LibraryCall) else encoding.operands.values()
    for operand in operands:
        yield from tensors_in(operand)


def tensors_in(operand: Operand | CallInput) -> Iterator[Tensor]:
    """The tensors in an operand."""
    if isinstance(operand, Tensor):
        yield operand
    elif isinstance(operand, tuple):
        for item in operand:
            yield from tensors_in(item)


def rebind_call(encoding: CallEncoding, values: Values, tensors: Mapping[str, Tensor]) -> CallEncoding:
    """A call with other tensors and lowered extents; Unsupported where an extent cannot be."""
    if isinstance(encoding, AtenCall):
        operands = {name: lower_operand(item, values, tensors) for name, item in encoding.operands.items()}
        return AtenCall(encoding.schema, operands)
    inputs = tuple(_input(item, values, tensors) for item in encoding.inputs)
    attributes = tuple((name, _value(item, values)) for name, item in encoding.attributes)
    return replace(encoding, inputs=inputs, attributes=attributes)


def _input(item: CallInput, values: Values, tensors: Mapping[str, Tensor]) -> CallInput:
    if isinstance(item, tuple):
        return tuple(tensors.get(tensor.name, tensor) for tensor in item)
    if isinstance(item, Tensor):
        return tensors.get(item.name, item)
    return lower_extent(item, values) if isinstance(item, Dim) else item


def _value(value: Value, values: Values) -> Value:
    if isinstance(value, tuple):
        return tuple(lower_extent(item, values) if isinstance(item, Dim) else item for item in value)
    if isinstance(value, Repeated):
        item, length = (
            lower_extent(part, values) if isinstance(part, Dim) else part for part in singles(value)
        )
        return Repeated(item, length) if isinstance(length, Dim) else value
    return lower_extent(value, values) if isinstance(value, Dim) else value


def type_of(tensor: Tensor) -> str:
    """The element type and the shape of a tensor, in words."""
    return f"{tensor.element}[{', '.join(map(str, tensor.shape))}]"


# --- library calls: operators under their own names; which constants are numbers, which types are written ---


def encode_library_call(
    library: Library, operation: Operation, constants: dict[str, Constant]
) -> LibraryCall:
    """The call of an operation; a constant is passed as a number where that makes the same constant again."""
    numbers = {
        place: constants[item.name]
        for place, item in enumerate(operation.inputs)
        if isinstance(item, Tensor) and item.name in constants and _is_uniform(constants[item.name])
    }
    while numbers:
        call = _call(library, operation, numbers)
        wrong = _differing(library, call, operation, numbers)
        if not wrong:
            return call
        numbers = {place: item for place, item in numbers.items() if place not in wrong}
    return _call(library, operation, numbers)


def _is_uniform(constant: Constant) -> bool:
    return not isinstance(constant.value, tuple)


def _call(library: Library, operation: Operation, numbers: dict[int, Constant]) -> LibraryCall:
    definition = library.find(operation.operator)
    names = () if definition is None else tuple(i.name for i in definition.operator.parameters("input"))
    given = (*operation.inputs, *[None] * (len(names) - len(operation.inputs)))
    inputs = tuple(
        _single(numbers[place]) if place in numbers else _given(item) for place, item in enumerate(given)
    )
    attributes, types = _attributes(library, operation), _open_types(library, operation, inputs)
    return LibraryCall(operation.operator, inputs, attributes, types, names)


def _single(constant: Constant) -> Single | None:
    return None if isinstance(constant.value, tuple) else constant.value


def _given(argument: Argument) -> CallInput:
    return None if isinstance(argument, Pack) else argument


def _attributes(library: Library, operation: Operation) -> tuple[tuple[str, Value], ...]:
    definition = library.find(operation.operator)
    given = dict(operation.attributes)
    names = [] if definition is None else [item.name for item in definition.operator.parameters("attrib")]
    return tuple((name, given.get(name)) for name in names)


def _open_types(
    library: Library, operation: Operation, inputs: Sequence[CallInput]
) -> dict[str, ElementType]:
    """The generic types that no tensor determines, in the order of the definition."""
    definition = library.find(operation.operator)
    if definition is None:
        return {}
    plan, found = library.plan(definition), dict(operation.types)
    determined = {
        item.type.name
        for item, value in zip(plan.inputs, inputs, strict=False)
        if isinstance(value, Tensor) or (isinstance(value, tuple) and value)
    }
    return {name: found[name] for name in plan.dtypes if name not in determined and name in found}


def _differing(
    library: Library, call: LibraryCall, operation: Operation, numbers: dict[int, Constant]
) -> set[int]:
    """The places at which a number would become another constant."""
    names = [f"result {place}" for place in range(len(operation.outputs))]
    try:
        instance = bind(library, call.operator, call.inputs, dict(call.attributes), call.types, names)
    except Found:
        return set(numbers)
    return {place for place, item in numbers.items() if not _is_same(instance, place, item)}


def _is_same(instance: Instance, place: int, constant: Constant) -> bool:
    filled = instance.symbols.get(instance.inputs[place][0])
    wanted = constant.tensor
    return (
        isinstance(filled, Fill)
        and (filled.element, filled.shape) == (wanted.element, wanted.shape)
        and repr(filled.value) == repr(constant.value)
    )
