"""Translates the nodes of an exported graph, one by one, into operations of a graph under construction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from types import MappingProxyType
from typing import TypeAlias, cast

import numpy as np

from lamella.base.arrays import Array
from lamella.base.dim import Dim, TooComplex
from lamella.base.dtype import BOOL, I32, I64, ElementType, Kind, component_of
from lamella.base.errors import Found, Unsupported
from lamella.base.source import NOWHERE
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.nodes import AtenCall, AtenSchema, Operand, Result
from lamella.bridge.aten.promotion import number_type
from lamella.bridge.aten.sizes import compute_size
from lamella.bridge.aten.table import DROP, REFUSE, OverloadRow, find_row, rows
from lamella.bridge.torch_to_graph.complex_parts import LINEAR, ComplexCalls, ComplexParts, is_complex_node
from lamella.bridge.torch_to_graph.program import (
    ExportedProgram,
    FxArgument,
    FxModule,
    FxNode,
    OpenExtents,
    TorchTensor,
    array_of,
    element_of,
    is_complex,
    is_node,
    is_tensor,
    is_type,
    memory_of,
    why_unreadable,
)
from lamella.bridge.torch_to_graph.report import ExportReport, operation_of
from lamella.graph.build import Builder
from lamella.graph.nodes import Single, Tensor
from lamella.lang.skriptnd.rules import exports

# --- the arguments of a node as operands of a call, by the names of ATen's parameters -----------------------


@dataclass(frozen=True, slots=True)
class Lost:
    """A value that could not be computed, because of something that is reported already."""


LOST = Lost()
NodeValue: TypeAlias = "Result | float | bool | str | Lost | ComplexParts"
"""What a node gives in translation."""
_KINDS = ("Device", "Layout", "MemoryFormat", "Generator")
"""Parameters that say where and how a tensor lies, which a graph does not."""


def _call_of(schema: AtenSchema, node: FxNode, value: Callable[[FxNode], NodeValue]) -> AtenCall:
    """The call that a node is; Unsupported where an argument cannot be one of a graph."""
    names = [item.name for item in schema.parameters if not item.keyword]
    given: dict[str, FxArgument] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    kept = {name: item if _is_wanted(schema, name) else None for name, item in given.items()}
    return AtenCall(schema, {name: operand(item, value) for name, item in kept.items()})


def _is_wanted(schema: AtenSchema, name: str) -> bool:
    parameter = schema.find(name)
    return parameter is None or not (parameter.type.startswith(_KINDS) or name == "pin_memory")


def operand(item: FxArgument, value: Callable[[FxNode], NodeValue]) -> Operand:
    """One argument; lists are taken item by item."""
    if item is None or isinstance(item, int | float | str):
        return item
    if is_node(item):
        found = value(cast("FxNode", item))
        if isinstance(found, Lost):
            raise Unsupported
        if isinstance(found, ComplexParts):
            raise Unsupported("there is nothing like it for complex numbers here")
        return found
    if isinstance(item, list | tuple):
        return tuple(operand(part, value) for part in item)
    if is_type(item):
        element = element_of(item)
        if element is None:
            raise Unsupported(f"there is no element type {item}")
        return element
    if isinstance(item, Mapping):
        raise Unsupported("an argument is a dictionary")
    raise Unsupported(f"an argument is of type {type(item).__name__}")


# --- graphs that a program calls: branches, loops, and those that only set a mode ---------------------------


INLINED = frozenset(("wrap_with_set_grad_enabled", "wrap_with_autocast"))
"""Graphs that run where they stand; the operations in them already have what a mode changes."""


def _translate_flow(walk: NodeTranslator, node: FxNode, name: str) -> NodeValue:
    """What an operator of higher order gives; Unsupported where a graph cannot say it."""
    if name in INLINED:
        place = next(index for index, item in enumerate(node.args) if walk.body(item) is not None)
        return _tuple(walk.inline(_body(walk, node.args[place]), _given(walk, node.args[place + 1 :])))
    if name == "cond":
        return _branch(walk, *node.args)
    if name == "while_loop":
        return _loop(walk, *node.args)
    if name == "with_effects":
        return _ordered_call(walk, node)
    if name == "flex_attention":
        return _flexible_attention(walk, *node.args[:6], *node.args[7:])
    if name == "flat_apply" and str(node.args[2]).endswith(".ModIndex"):
        return _picked(walk, node.args[3:])
    raise Unsupported("there is nothing like it here")


def _ordered_call(walk: NodeTranslator, node: FxNode) -> NodeValue:
    """What an operation gives whose order among those that may fail a token says; the token holds nothing."""
    _, target, *given = node.args
    row = find_row(str(target))
    if row is None:
        raise Unsupported(f"it calls '{target}', which has no operator here")
    if row.how == DROP:
        return _tuple([LOST])
    names = [item.name for item in row.schema.parameters if not item.keyword]
    operands = {**dict(zip(names, given, strict=False)), **node.kwargs}
    call = AtenCall(row.schema, {key: operand(item, walk.value_of) for key, item in operands.items()})
    found = build_call(walk.builder, call, walk.report.places.origin(node))
    return _tuple([LOST, *(found if isinstance(found, tuple) else [found])])


def _given(walk: NodeTranslator, items: Sequence[FxArgument]) -> list[NodeValue]:
    return [walk.value_of(item) for item in items]


def _tuple(values: Sequence[NodeValue]) -> NodeValue:
    return cast("NodeValue", tuple(values))


def _body(walk: NodeTranslator, item: FxArgument) -> FxModule:
    found = walk.body(item)
    if found is None:
        raise Unsupported("one of its graphs is missing")
    return found


def _tensors(values: Sequence[NodeValue]) -> tuple[Tensor, ...]:
    if any(isinstance(item, Lost) for item in values):
        raise Unsupported
    found = tuple(item for item in values if isinstance(item, Tensor))
    if len(found) != len(values):
        raise Unsupported("it takes or gives something that is no tensor")
    return found


def _branch(
    walk: NodeTranslator,
    condition: FxArgument,
    then: FxArgument,
    otherwise: FxArgument,
    items: FxArgument = (),
) -> NodeValue:
    bodies = _body(walk, then), _body(walk, otherwise)
    given = _given(walk, cast("Sequence[FxArgument]", items))
    asked = walk.value_of(condition)
    if isinstance(asked, bool):
        return _tuple(walk.inline(bodies[0 if asked else 1], given))
    (tensor,) = _tensors([asked])
    results: list[tuple[Tensor, ...]] = []

    def run(body: FxModule) -> Sequence[Tensor]:
        results.append(_tensors(walk.inline(body, given)))
        if [_type(item) for item in results[0]] != [_type(item) for item in results[-1]]:
            raise Unsupported("its branches give tensors of different types or shapes")
        return results[-1]

    return walk.builder.branch(_single(walk, tensor), lambda: run(bodies[0]), lambda: run(bodies[1]))


def _type(tensor: Tensor) -> tuple[object, object]:
    return tensor.element, tensor.shape


def _single(walk: NodeTranslator, condition: Tensor) -> Tensor:
    """A condition of one element as a tensor without dimensions."""
    if condition.element != BOOL:
        raise Unsupported(f"its condition is of type {condition.element}")
    return condition if not condition.shape else walk.builder.call("aten.view", condition, size=())


def _loop(
    walk: NodeTranslator,
    condition: FxArgument,
    body: FxArgument,
    carried: FxArgument,
    others: FxArgument = (),
) -> NodeValue:
    start = _tensors(_given(walk, cast("Sequence[FxArgument]", carried)))
    outer = _given(walk, cast("Sequence[FxArgument]", others))
    test, step = _body(walk, condition), _body(walk, body)

    def run(*state: Tensor) -> Sequence[Tensor]:
        found = _tensors(walk.inline(step, [*state, *outer]))
        if [_type(item) for item in found] != [_type(item) for item in start]:
            raise Unsupported("what it carries changes its type or shape")
        return found

    def ask(*state: Tensor) -> Tensor:
        (found,) = _tensors(walk.inline(test, [*state, *outer]))
        return _single(walk, found)

    # Carried tensors lose their origins: the loop is the origin of what leaves it.
    plain = [replace(item, origin=None) for item in start]
    return cast("NodeValue", walk.builder.fold(plain, run, condition=ask))


# --- attention whose scores a graph changes -----------------------------------------------------------------


def _flexible_attention(walk: NodeTranslator, *given: FxArgument) -> NodeValue:
    """Attention with scores that a graph changes and another hides: both see all scores and places at once."""
    query, key, value, change, blocks, scale, *rest = given
    tensors = _tensors(_given(walk, (query, key, value)))
    others = [_given(walk, cast("Sequence[FxArgument]", item)) for item in rest] or [[], []]
    mask = cast("Sequence[FxArgument]", blocks)[-1]
    call = walk.builder.call
    wide = _repeated_heads(walk, tensors)
    turned = call("aten.transpose", wide[1], dim0=-2, dim1=-1)
    factor = walk.builder.constant(float(cast("float", scale)), wide[0].element)
    scores = call("aten.mul", call("aten.matmul", wide[0], turned), factor)
    places = [_place(walk, scores, axis) for axis in range(4)]
    (changed,) = _tensors(walk.inline(_body(walk, change), [scores, *places, *others[0]]))
    (seen,) = _tensors(walk.inline(_body(walk, mask), [*places, *others[1]]))
    hidden = walk.builder.constant(float("-inf"), changed.element)
    shown = call("aten.where", seen, changed, hidden)
    schema = rows()["aten._safe_softmax.default"].schema
    (weights,) = _tensors([build_call(walk.builder, AtenCall(schema, {"self": shown, "dim": -1}))])
    narrow = weights if weights.element == wide[2].element else call("aten.type_as", weights, wide[2])
    return _tuple([call("aten.matmul", narrow, wide[2]), LOST, LOST])


def _repeated_heads(walk: NodeTranslator, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Queries, keys and values with as many heads: keys and values serve several queries each."""
    query, *others = tensors
    heads = query.shape[1]
    found = [query]
    for item in others:
        own = item.shape[1]
        if own != heads and isinstance(own, int) and isinstance(heads, int):
            item = walk.builder.call("aten.repeat_interleave", item, repeats=heads // own, dim=1)
        found.append(item)
    return tuple(found)


def _place(walk: NodeTranslator, scores: Tensor, axis: int) -> Tensor:
    """The numbers of the places along an axis of all scores."""
    shape = tuple(extent if place == axis else 1 for place, extent in enumerate(scores.shape))
    numbers = walk.builder.call("aten.arange", types={"T": I32}, start=0, end=scores.shape[axis], step=1)
    return walk.builder.call("aten.view", numbers, size=shape)


def _picked(walk: NodeTranslator, items: Sequence[FxArgument]) -> NodeValue:
    """Elements of a tensor at places, all of one shape."""
    source, *places = items
    schema = rows()["aten.index.Tensor"].schema
    operands = {"self": operand(source, walk.value_of), "indices": operand(tuple(places), walk.value_of)}
    return build_call(walk.builder, AtenCall(schema, operands))


# --- variables: parameters, buffers and constants; their numbers are not copied -----------------------------


SMALL = 16
"""A constant of the code with at most so many elements stands in the graph itself."""


class VariableStore:
    """The tensors of a program; those that share their memory are one variable, under the first of their names."""

    def __init__(self, program: ExportedProgram, builder: Builder, report: ExportReport) -> None:
        self.data: dict[str, Array] = {}
        self._found: dict[str, object] = {**program.constants, **program.state_dict}
        self._first = _first_names(self._found)
        self._builder = builder
        self._report = report
        self._variables: dict[object, Tensor | None] = {}

    def find(self, name: str) -> TorchTensor | None:
        """The tensor of a name in the module."""
        found = self._found.get(name)
        if is_tensor(found):
            return cast("TorchTensor", found)
        reason = "is missing" if found is None else f"is an object of class {type(found).__name__}, no tensor"
        self._report.add(exports.NO_NUMBERS.at(NOWHERE, name=name, reason=reason))
        return None

    def variable(self, name: str, tensor: TorchTensor) -> Tensor | None:
        """The variable that a tensor is; None, and a finding, where it has no numbers."""
        key = memory_of(tensor)
        if key not in self._variables:
            self._variables[key] = self._made(self._first.get(key, name), tensor)
        return self._variables[key]

    def parts(self, name: str, tensor: TorchTensor) -> ComplexParts | None:
        """The variables that hold the parts of a complex tensor; None, and a finding, where it has no numbers."""
        reason = why_unreadable(tensor)
        if reason is not None:
            self._report.add(exports.NO_NUMBERS.at(NOWHERE, name=name, reason=reason))
            return None
        array = array_of(tensor)
        element = component_of(cast("ElementType", element_of(tensor.dtype)))
        real, imag = (
            self.table(f"{name}.{word}", part, element)
            for word, part in (("real", array.real), ("imag", array.imag))
        )
        return ComplexParts(real, imag)

    def table(self, name: str, array: Array, element: ElementType) -> Tensor:
        """A variable of numbers that are known; one that is there already stays the only one of its name."""
        key = "table", name, element
        if key not in self._variables:
            found = self._builder.variable(name, element, array.shape)
            self.data[found.name] = np.ascontiguousarray(array)
            self._variables[key] = found
        return cast("Tensor", self._variables[key])

    def constant(self, name: str, tensor: TorchTensor) -> Tensor | None:
        """A constant of the code: its values stand in the graph where they are few."""
        if why_unreadable(tensor) is None and tensor.numel() <= SMALL:
            element = cast("ElementType", element_of(tensor.dtype))
            values = tuple(array_of(tensor).reshape(-1).tolist())
            if values and element.kind is not Kind.COMPLEX and all(map(isfinite, values)):
                shape = tuple(int(str(item)) for item in tensor.shape)
                # By repr: 0.0 equals -0.0, and they are not one value.
                value = values[0] if len(set(map(repr, values))) == 1 else values
                return self._builder.constant(value, element, shape)
        return self.variable(name, tensor)

    def _made(self, name: str, tensor: TorchTensor) -> Tensor | None:
        reason = why_unreadable(tensor)
        if reason is not None:
            self._report.add(exports.NO_NUMBERS.at(NOWHERE, name=name, reason=reason))
            return None
        array = array_of(tensor)
        found = self._builder.variable(name, cast("ElementType", element_of(tensor.dtype)), array.shape)
        self.data[found.name] = array
        return found


def _first_names(found: Mapping[str, object]) -> dict[object, str]:
    first: dict[object, str] = {}
    for name, item in found.items():
        if is_tensor(item):
            first.setdefault(memory_of(cast("TorchTensor", item)), name)
    return first


TESTS = frozenset(("and_", "or_", "not_", "sym_not", "is_", "is_not"))
"""Questions about several sizes, which only the checks of an export ask."""
HIGHER = "higher_order."
SAME = re.compile(r"aten\.(?:clone|contiguous|alias|lift_fresh|lift_fresh_copy)\.default")
"""Operations that give what they take: a graph has no memory to copy."""
CONVERSIONS = ("aten.to_copy", "aten.type_as")
CASTS = frozenset(("_to_copy", "to", "type_as"))
"""Operations that change the type, or where a tensor lies."""
ITEMS = frozenset(("aten.item.default", "aten._local_scalar_dense.default"))
"""The number that a tensor of one element holds."""
SCALARS: Mapping[str, str] = MappingProxyType(
    {
        **{word: f"aten.{word}.Tensor" for word in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge")},
        **{
            "truediv": "aten.div.Tensor",
            "floordiv": "aten.floor_divide.default",
            "mod": "aten.remainder.Tensor",
        },
        **{"neg": "aten.neg.default", "sym_not": "aten.logical_not.default", "pow": "aten.pow.Tensor_Tensor"},
        **{"and_": "aten.logical_and.default", "or_": "aten.logical_or.default"},
    }
)
"""Python's arithmetic of numbers that only the run tells, and what is called for it."""
DROPOUT = re.compile(r"aten\.(?:feature_)?(?:alpha_)?dropout\.default")


@dataclass(frozen=True, slots=True)
class NodeTranslator:
    """What the nodes of a program became so far."""

    builder: Builder
    symbols: OpenExtents
    report: ExportReport
    stores: VariableStore
    values: dict[FxNode, NodeValue | FxModule] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Tensors that operations give, and what the export calls them."""

    def run(self, body: FxModule) -> list[NodeValue]:
        """Translate all lines that matter, whose inputs are known; gives what the last one returns."""
        needed = _needed(body)
        for node in body.graph.nodes:
            if node not in needed:
                continue
            if node.op == "output":
                given = node.args[0]
                return [
                    self.value_of(item) for item in (given if isinstance(given, list | tuple) else [given])
                ]
            if node.op == "get_attr":
                self.values[node] = self._attribute(body, str(node.target))
            elif node.op == "call_function":
                self.values[node] = self._translated(node)
        return []

    def inline(self, body: FxModule, given: Sequence[NodeValue]) -> list[NodeValue]:
        """Translate a graph that another one calls, in its place."""
        nodes = [node for node in body.graph.nodes if node.op == "placeholder"]
        self.values.update(zip(nodes, given, strict=False))
        return self.run(body)

    def body(self, item: FxArgument) -> FxModule | None:
        """The graph that an argument is."""
        found = self.values.get(cast("FxNode", item)) if is_node(item) else None
        return cast("FxModule", found) if hasattr(found, "graph") else None

    def value_of(self, item: FxArgument) -> NodeValue:
        """What an argument is: the result of a node, or a number."""
        if is_node(item):
            found = self.values.get(cast("FxNode", item), LOST)
            return LOST if hasattr(found, "graph") else found
        return item if item is None or isinstance(item, int | float | str) else LOST

    def _attribute(self, body: FxModule, name: str) -> NodeValue | FxModule:
        """A graph or a tensor that a graph refers to by name."""
        found: object = body
        for word in name.split("."):
            found = getattr(found, word, None)
        if is_tensor(found):
            tensor = cast("TorchTensor", found)
            if is_complex(tensor):
                return self.stores.parts(name, tensor) or LOST
            return self.stores.constant(name, tensor) or LOST
        return cast("FxModule", found) if hasattr(found, "graph") else LOST

    def _translated(self, node: FxNode) -> NodeValue:
        name = operation_of(node)
        row = find_row(name)
        if (row is not None and row.how == DROP) or (name in TESTS and not self._is_scalar(node)):
            return LOST
        try:
            return self._called(node, name, row)
        except Unsupported as problem:
            reason = str(problem)
            # Without a reason an operand is lost, and what lost it is reported already.
            if reason and name.startswith(HIGHER):
                self.report.refused_flow(node, reason)
            elif reason:
                self.report.refused_call(node, reason)
        return LOST

    def _is_scalar(self, node: FxNode) -> bool:
        """Whether a question is about a number that only the run tells."""
        return any(isinstance(self.values.get(item), Tensor) for item in _nodes_in(node.args))

    def _called(self, node: FxNode, name: str, row: OverloadRow | None) -> NodeValue:
        if name.startswith(HIGHER):
            return _translate_flow(self, node, name.removeprefix(HIGHER))
        if not hasattr(node.target, "_schema"):
            return self._size(node, name)
        if self._is_same(node, name, row):
            return self.value_of(node.args[0])
        if is_complex_node(node) or any(
            map(self._is_complex, _nodes_in((*node.args, *node.kwargs.values())))
        ):
            return self._complex(node, name, row)
        if name in ITEMS:
            return self._item(node)
        if row is None:
            self.report.missing(node)
            return LOST
        call = _call_of(row.schema, node, self.value_of)
        try:
            found = build_call(self.builder, call, self.report.places.origin(node))
        except Found as problem:
            if row.how == REFUSE:
                self.report.missing(node)
            else:
                self._refuse(node, problem)
            return LOST
        self._keep_name(node, found)
        return found

    def _is_complex(self, node: FxNode) -> bool:
        return isinstance(self.values.get(node), ComplexParts)

    def _complex(self, node: FxNode, name: str, row: OverloadRow | None) -> NodeValue:
        """What an operation on complex numbers gives, or makes."""
        word = name.split(".")[1]
        self.builder.origin = self.report.places.origin(node)
        calls = ComplexCalls(self.builder, self.stores.table)
        if word in CASTS:
            found = self.value_of(node.args[0])
            wide = calls.parts(found) if isinstance(found, Tensor | ComplexParts) else LOST
            return wide if is_complex_node(node) or isinstance(wide, Lost) else wide.real
        if word in LINEAR and row is not None:
            real, imag = (self._part(node, row, place, calls) for place in (0, 1))
            if isinstance(real, tuple) and isinstance(imag, tuple):
                pairs = zip(real, imag, strict=True)
                return _tuple([ComplexParts(cast("Tensor", one), cast("Tensor", two)) for one, two in pairs])
            return ComplexParts(cast("Tensor", real), cast("Tensor", imag))
        given: list[object] = []
        for item in (*node.args, *node.kwargs.values()):
            value = self.value_of(item) if is_node(item) else item
            if isinstance(value, Lost):
                raise Unsupported
            given.append(value)
        made = calls.call(word, given)
        return _tuple(list(made)) if isinstance(made, tuple) else made

    def _part(self, node: FxNode, row: OverloadRow, place: int, calls: ComplexCalls) -> Result:
        """A call on the real parts of its operands, or on the imaginary ones."""

        def value(item: FxNode) -> NodeValue:
            found = self.value_of(item)
            if isinstance(found, ComplexParts):
                return (found.real, found.imag)[place]
            if isinstance(found, Tensor) and found.element.is_float and place:
                return calls.parts(found).imag
            return found

        return build_call(self.builder, _call_of(row.schema, node, value), self.report.places.origin(node))

    def _is_same(self, node: FxNode, name: str, row: OverloadRow | None) -> bool:
        """Whether an operation gives what it takes."""
        if row is not None and row.schema.operator in CONVERSIONS:
            given = self.value_of(node.args[0])
            wanted = getattr(node.meta.get("val"), "dtype", None)
            return isinstance(given, Tensor) and given.element == element_of(wanted)
        return bool(SAME.fullmatch(name) or (DROPOUT.fullmatch(name) and node.args[2:] == (False,)))

    def _item(self, node: FxNode) -> NodeValue:
        """The number of a tensor: an extent where it cannot be negative, else a tensor of one element."""
        source = operand(node.args[0], self.value_of)
        if not isinstance(source, Tensor):
            raise Unsupported("it is asked of what is no tensor")
        self.builder.origin = self.report.places.origin(node)
        single = source if not source.shape else self.builder.call("aten.view", source, size=())
        value = node.meta.get("val")
        ends = self.symbols.ends(value)
        if ends is None or ends[0] < 0 or not single.element.is_integer:
            return single
        count = (
            single if single.element == I64 else self.builder.call("layout.cast", single, types={"R": I64})
        )
        numbers = self.builder.call("layout.dynamic_range", count, limit=ends[1])
        self.symbols.bind(value, numbers.shape[0])
        return numbers.shape[0]

    def _size(self, node: FxNode, name: str) -> NodeValue:
        """Arithmetic of sizes, or an item of a tuple; of numbers that only the run tells, that of tensors."""
        if name == "getitem" and is_complex_node(node):
            several, place = node.args
            return cast("Sequence[NodeValue]", self.value_of(several))[cast("int", place)]
        operands = [operand(item, self.value_of) for item in node.args]
        if name in SCALARS and any(isinstance(item, Tensor) for item in operands):
            return self._scalar(node, name, operands)
        if name == "getitem" and _is_token(*operands):
            return LOST
        try:
            found = compute_size(name, operands)
        except (Found, TooComplex) as problem:
            known = self.symbols.extent(node.meta.get("val"))
            if known is not None:
                return known
            self._refuse(node, problem)
            return LOST
        return LOST if found is None else found

    def _scalar(self, node: FxNode, name: str, operands: Sequence[Operand]) -> NodeValue:
        """Arithmetic of numbers of which at least one is a tensor of one element."""
        names = ("self", "other") if len(operands) == 2 else ("self",)
        first, *rest = operands
        if not isinstance(first, Tensor):
            found = number_type(first) if isinstance(first, int | float | Dim) else None
            if found is None:
                raise Unsupported("it is asked of what is no number")
            first = self.builder.constant(cast("Single", first), found)
        schema = rows()[SCALARS[name]].schema
        call = AtenCall(schema, dict(zip(names, (first, *rest), strict=True)))
        return build_call(self.builder, call, self.report.places.origin(node))

    def _refuse(self, node: FxNode, problem: Found | TooComplex) -> None:
        given = _nodes_in((*node.args, *node.kwargs.values()))
        if any(operation_of(item) in ITEMS and isinstance(self.values.get(item), Tensor) for item in given):
            self.report.data_dependent(node)
        elif isinstance(problem, Found):
            for item in problem.findings:
                self.report.refused_call(node, item.message, item.hint)
        else:
            self.report.refused_call(node, str(problem))

    def _keep_name(self, node: FxNode, found: Result) -> None:
        """Call a tensor after the line that gives it; an item of a pack has the name of the pack."""
        if isinstance(found, Tensor) and found.name not in self.names and ":" not in found.name:
            self.names[found.name] = node.name


def _is_token(group: Operand, place: Operand = None) -> bool:
    """Whether an item of what an ordered call gives is its token, which holds nothing."""
    items: tuple[object, ...] = group if isinstance(group, tuple) else ()
    return isinstance(place, int) and items[place : place + 1] == (LOST,)


def _needed(body: FxModule) -> set[FxNode]:
    """The lines that the last one depends on: nobody asks what the others compute, such as draws that nobody reads.

    Lines that change something in place, and calls of graphs, count for themselves.
    """
    found: set[FxNode] = set()
    for node in reversed(list(body.graph.nodes)):
        if node in found or node.op == "output" or _has_effect(node):
            found.add(node)
            found.update(_nodes_in((*node.args, *node.kwargs.values())))
    return found


def _has_effect(node: FxNode) -> bool:
    schema: object = getattr(node.target, "_schema", None)
    return node.op == "call_function" and (
        bool(getattr(schema, "is_mutable", False)) or operation_of(node).startswith(HIGHER)
    )


def _nodes_in(items: Iterable[FxArgument]) -> Iterator[FxNode]:
    for item in items:
        if is_node(item):
            yield cast("FxNode", item)
        elif isinstance(item, list | tuple):
            yield from _nodes_in(item)
