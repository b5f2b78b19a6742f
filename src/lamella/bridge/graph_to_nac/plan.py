"""Instruction selection: the encoding of each operation, what NAC cannot express, and constants stored like weights."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array, cast
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim, DimSymbol, Extent, Logic, Test
from lamella.base.dtype import name_in
from lamella.base.errors import Found
from lamella.base.origin import with_origin
from lamella.base.source import NOWHERE
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.describe import describe
from lamella.bridge.aten.nodes import AtenCall, Result
from lamella.bridge.aten.table import find_schema
from lamella.bridge.graph_to_nac.calls import (
    CallEncoding,
    CallPlan,
    PlannedBlock,
    PlannedCall,
    PlannedFork,
    PlannedStep,
    disambiguate_call,
    encode_library_call,
    is_pass,
    tensors_of,
    type_of,
    written_name,
)
from lamella.bridge.nac_to_graph.operators import shadows
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import (
    Argument,
    Branch,
    Constant,
    Graph,
    Loop,
    Node,
    Operation,
    Pack,
    Region,
    Single,
    Tensor,
    Value,
    tensors,
    walk,
)
from lamella.graph.passes.mark_codes import OPERATOR
from lamella.graph.rewrite import copy_of, defined, members, operands_of, results_of
from lamella.lang.nac.operations import is_public
from lamella.lang.nac.regions import MOST_NESTED
from lamella.lang.nac.rules import graphs as rules
from lamella.lang.nac.rules.graphs import OPERATOR_SHADOWS
from lamella.ops.library import SPECIFICATION, Library

# --- public calls: operators of the library as ATen operations that other readers of NAC implement ----------
#
# ATen operations are compositions of the library, so that this changes no number. It is done only where the
# result is on the public list and makes the same tensors.


Change = Callable[[Operation, Mapping[str, Value]], Operation | AtenCall | None]
"""How an operation of the library becomes one of ATen; None where it has none."""


def encode_public_call(
    library: Library, node: Operation, constants: Mapping[str, Constant]
) -> AtenCall | None:
    """The call of an operation of ATen that other readers have, and that makes what a node makes.

    Operations of ATen are made of the library of the specification, so operators of another dialect stay what they are.
    """
    change = _CHANGES.get(node.operator) if library.dialect == SPECIFICATION else None
    found = None if change is None else change(node, dict(node.attributes))
    call = describe(found, constants) if isinstance(found, Operation) else found
    if call is None:
        return None
    call = disambiguate_call(call, node)
    return call if is_public(written_name(call)) and _makes(library, call, node) else None


def _makes(library: Library, call: AtenCall, node: Operation) -> bool:
    """Whether a call makes the tensors of a node, by one operation: nothing is cast or turned around it."""
    builder = Builder(library, "")
    try:
        found = list(_tensors(build_call(builder, call)))
    except (Found, ArithmeticError, ValueError):
        return False
    wanted = [(item.element, item.shape) for item in results_of(node) if isinstance(item, Tensor)]
    return wanted == [(item.element, item.shape) for item in found] and len(builder.finish().nodes) == 1


def _tensors(result: Result) -> Iterable[Tensor]:
    if isinstance(result, tuple):
        return [tensor for item in result for tensor in _tensors(item)]
    return [result] if isinstance(result, Tensor) else []


# --- how operators become operations of ATen ----------------------------------------------------------------


def _other(
    node: Operation, name: str, inputs: tuple[Argument, ...] | None = None, /, **attributes: Value
) -> Operation:
    given = node.inputs if inputs is None else inputs
    # Operators of reals have no generic type where those of ATen have one.
    made_types = [("T", item.element) for item in results_of(node) if isinstance(item, Tensor)]
    types = node.types if "T" in dict(node.types) else (*node.types, *made_types[:1])
    return replace(
        node, operator=f"aten.{name}", inputs=given, attributes=tuple(attributes.items()), types=types
    )


def _same(name: str) -> Change:
    """The same inputs in the same order; an attribute that says something, such as an alignment, is in the way."""
    return lambda node, given: None if _says(given) else _other(node, name)


def _says(given: Mapping[str, Value]) -> bool:
    return any(value is not None for value in given.values())


def _reduced(name: str) -> Change:
    return lambda node, given: (
        _other(node, name, dim=given["axes"], keepdim=not given["squeeze"]) if given["axes"] else None
    )


def _along(name: str, attribute: str) -> Change:
    return lambda node, given: _other(node, name, dim=given[attribute])


def _softmax(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    match given["axes"]:
        case (axis,):
            return _other(node, "softmax", dim=axis)
    return None


def _gelu(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    words: Mapping[Value, str] = {None: "none", "TANH": "tanh"}
    word = words.get(given["approximate"])
    return None if word is None else _other(node, "gelu", approximate=word)


def _cumsum(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    plain = not given["exclusive"] and not given["reverse"]
    return _other(node, "cumsum", dim=given["axis"]) if plain else None


def _transpose(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    axis, perm, source = given["axis"], given["perm"], node.inputs[0]
    if not isinstance(axis, int) or not isinstance(perm, tuple) or not isinstance(source, Tensor):
        return None
    return _other(node, "permute", dims=(*range(axis % (len(source.shape) or 1)), *perm))


def _unsqueeze(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    match given["axes"]:
        case (axis,):
            return _other(node, "unsqueeze", dim=axis)
    return _view(node, given)


def _view(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """A view of the whole shape; an extent that is no number and no name of its own is left to be found."""
    (result,) = node.outputs
    shape = result.shape if isinstance(result, Tensor) else ()
    unknown = [item for item in shape if isinstance(item, Dim) and not _is_lone(item)]
    if not isinstance(result, Tensor) or len(unknown) > 1:
        return None
    size: tuple[Extent, ...] = tuple(-1 if item in unknown else item for item in shape)
    return _other(node, "view", node.inputs[:1], size=size)


def _reshaped(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """Without a shape, heads are put side by side, which turns axes."""
    return None if given["shape"] is None else _view(node, given)


def _is_lone(extent: Dim) -> bool:
    (monomial, factor), *rest = extent.terms
    return not rest and factor == 1 and len(monomial) == 1 and isinstance(monomial[0], DimSymbol)


def _expand(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    (result,), source = node.outputs, node.inputs[0]
    if not isinstance(result, Tensor) or not isinstance(source, Tensor):
        return None
    alike = len(result.shape) == len(source.shape) and all(isinstance(item, int) for item in result.shape)
    return _other(node, "expand", size=result.shape) if alike else None


def _slice(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    match given["axes"], given["begin"], given["end"], given["stride"]:
        case (axis,), (begin,), (end,), (stride,) if isinstance(stride, int) and stride > 0:
            return _other(node, "slice", dim=axis, start=begin, end=end, step=stride)
    return None


def _split(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """Parts of one size."""
    sizes = given["sizes"]
    if not isinstance(sizes, tuple) or len(set(sizes)) != 1:
        return None
    return _other(node, "split", split_size=sizes[0], dim=given["axis"])


def _embedding(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """Rows of a table by their numbers."""
    table = node.inputs[0]
    if given["axis"] != 0 or not isinstance(table, Tensor) or len(table.shape) != 2:
        return None
    return _other(node, "embedding")


def _range(node: Operation, given: Mapping[str, Value]) -> Operation:
    return _other(node, "arange", start=given["first"], end=given["last"], step=given["stride"])


def _convolution(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """Two dimensions, channels first, as much padding behind as before."""
    formats = (given["data_format"], given["filter_format"])
    padding = _even(given["padding"])
    if formats != ("NCX", "NCX") or given["ceil_mode"] or not given["groups"] or padding is None:
        return None
    others = {name: given[name] for name in ("stride", "dilation", "groups")}
    return _other(node, "conv2d", padding=padding, **others)


def _max_pool(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    padding, source = _even(given["padding"]), node.inputs[0]
    last = given["axes"] == (2, 3) and isinstance(source, Tensor) and len(source.shape) == 4
    if not last or given["ceil_mode"] or padding is None:
        return None
    others = {name: given[name] for name in ("stride", "dilation")}
    return _other(node, "max_pool2d", kernel_size=given["size"], padding=padding, ceil_mode=False, **others)


def _even(padding: Value) -> Value:
    """The padding before two dimensions, where that behind them is the same."""
    match padding:
        case (a, b, c, d) if (a, b) == (c, d):
            return (a, b)
    return None


def _product(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """A product of matrices, or with the rows of a weight."""
    if given["transA"]:
        return None
    return _multiplied(node, "NT" if given["transB"] else "NN")


def _scaled_product(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    return _multiplied(node, str(given["transpose"])) if given["alpha"] == 1.0 else None


def _multiplied(node: Operation, way: str) -> Operation | None:
    left, right, *rest = node.inputs
    if rest not in ([], [None]) or not isinstance(right, Tensor):
        return None
    if way == "NT" and len(right.shape) == 2:
        return _other(node, "linear", (left, right, None))
    return _other(node, "matmul", (left, right)) if way == "NN" else None


def _scaled(node: Operation, given: Mapping[str, Value]) -> AtenCall | None:
    schema, source, factor = find_schema("aten.mul.Scalar"), node.inputs[0], given["factor"]
    if schema is None or not isinstance(source, Tensor) or not isinstance(factor, int | float):
        return None
    return AtenCall(schema, {"self": source, "other": factor})


_CHANGES: Mapping[str, Change] = MappingProxyType(
    {
        **{
            f"math.{name}": _same(name)
            for name in ("neg", "exp", "log", "sin", "cos", "tanh", "abs", "rsqrt")
        },
        **{f"math.{name}": _same(name) for name in ("add", "sub", "mul", "div", "pow", "clamp")},
        **{f"math.{name}": _same(name) for name in ("lt", "gt", "le", "ge", "eq", "ne")},
        **{f"nn.{name}": _same(name) for name in ("relu", "sigmoid", "silu", "linear")},
        **{"math.iden": _same("clone"), "math.min": _same("min_other"), "math.select": _same("where")},
        **{"math.and": _same("bitwise_and"), "math.or": _same("bitwise_or"), "layout.cast": _same("to_copy")},
        **{"math.sum_reduce": _reduced("sum"), "math.mean_reduce": _reduced("mean")},
        **{"math.cumsum": _cumsum, "nn.softmax": _softmax, "nn.gelu": _gelu},
        **{"nn.conv": _convolution, "nn.max_pool": _max_pool, "linalg.matmul": _product},
        **{"layout.concat": _along("cat", "axis"), "layout.split": _split, "layout.slice": _slice},
        **{"layout.transpose": _transpose, "layout.unsqueeze": _unsqueeze, "layout.broadcast": _expand},
        **{f"layout.{name}": _view for name in ("reshape", "flatten", "unflatten", "squeeze")},
        **{"layout.gather": _embedding, "layout.range": _range},
        **{"llm.matmul": _scaled_product, "llm.bias_add": _same("add"), "llm.scale": _scaled},
        **{
            "llm.softmax": _along("softmax", "dim"),
            "llm.concat": _along("cat", "dim"),
            "llm.reshape": _reshaped,
        },
        "llm.embedding": lambda node, given: _other(node, "embedding", node.inputs[::-1]),
    }
)


# --- convergences: what only one of the merged tensors needs stands in its block ----------------------------


CONVERGE = "nac.converge"
DEEPEST = 16
"""Blocks of convergences that stand inside each other; what is deeper stands before them."""
BlockKey: TypeAlias = tuple[int, int]
"""A block: the node that merges, and the number of the tensor that it makes."""


@dataclass(frozen=True, slots=True)
class ArrangedMerge:
    """A convergence, what each of its blocks holds, and a tensor from outside that the blocks may share."""

    node: Operation
    blocks: tuple[tuple[Arranged, ...], ...]
    shared: Tensor

    @property
    def merged(self) -> tuple[Tensor, ...]:
        """The tensors that the blocks hand over."""
        return merged(self.node)


Arranged: TypeAlias = "Node | ArrangedMerge"


def merged(node: Node) -> tuple[Tensor, ...]:
    """The tensors that a node merges, none where it is no convergence."""
    if isinstance(node, Operation) and node.operator == CONVERGE:
        return tuple(item for argument in node.inputs for item in tensors(argument))
    return ()


def arrange(nodes: Sequence[Node], kept: Collection[str], constants: Collection[str]) -> tuple[Arranged, ...]:
    """Nodes in an order in which they can run, those of blocks inside their convergences.

    `kept` are the tensors that are used elsewhere, `constants` those that no instruction gives.
    """
    if not any(map(merged, nodes)):
        return tuple(nodes)
    plain: set[int] = set()
    while True:
        found = _Arranger(nodes, kept, constants, plain)
        lonely = {place for place, node in enumerate(nodes) if merged(node) and found.shared(place) is None}
        if lonely <= plain:
            return found.build(found.rows[()])
        plain |= lonely


class _Arranger:
    """Finds for each node the innermost block that holds all that use it."""

    def __init__(
        self, nodes: Sequence[Node], kept: Collection[str], constants: Collection[str], plain: Collection[int]
    ) -> None:
        self.nodes, self.constants, self.plain = nodes, constants, plain
        self.paths: list[tuple[BlockKey, ...]] = [()] * len(nodes)
        users: dict[str, list[tuple[BlockKey, ...]]] = {name: [()] for name in kept}
        for place in reversed(range(len(nodes))):
            ways = [way for item in results_of(nodes[place]) for way in users.get(item.name, ())]
            self.paths[place] = _common(ways)
            for name, way in self._uses(place):
                users.setdefault(name, []).append(way)
        self.rows: defaultdict[tuple[BlockKey, ...], list[int]] = defaultdict(list)
        for place, path in enumerate(self.paths):
            self.rows[path].append(place)

    def _uses(self, place: int) -> Iterator[tuple[str, tuple[BlockKey, ...]]]:
        """What a node reads, and the block that this is for."""
        path, node = self.paths[place], self.nodes[place]
        opens = place not in self.plain and len(path) < DEEPEST
        found = merged(node)
        for number, item in enumerate(found):
            yield item.name, (*path, (place, number)) if opens else path
        yield from ((item.name, path) for item in operands_of(node) if not found)

    def shared(self, place: int) -> Tensor | None:
        """The first tensor from outside that the blocks of a convergence read, or merge."""
        depth = len(self.paths[place])
        inside = [number for number in range(place) if self._is_in(self.paths[number], depth, place)]
        own = {item.name for number in inside for item in results_of(self.nodes[number])}
        read = [item for number in inside for item in operands_of(self.nodes[number])]
        for item in (*read, *merged(self.nodes[place])):
            if isinstance(item, Tensor) and item.name not in own and item.name not in self.constants:
                return item
        return None

    @staticmethod
    def _is_in(path: tuple[BlockKey, ...], depth: int, place: int) -> bool:
        return len(path) > depth and path[depth][0] == place

    def build(self, row: Sequence[int]) -> tuple[Arranged, ...]:
        """The nodes of a block, convergences with what stands in theirs."""
        return tuple(self._one(place) for place in row)

    def _one(self, place: int) -> Arranged:
        node = self.nodes[place]
        if not isinstance(node, Operation) or not merged(node):
            return node
        shared = self.shared(place) or merged(node)[0]
        paths = [(*self.paths[place], (place, number)) for number in range(len(merged(node)))]
        return ArrangedMerge(node, tuple(self.build(self.rows[path]) for path in paths), shared)


def _common(ways: Sequence[tuple[BlockKey, ...]]) -> tuple[BlockKey, ...]:
    """What all ways begin with."""
    if not ways:
        return ()
    first, last = min(ways), max(ways)
    count = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[: min(len(first), len(last)) if count is None else count]


COPY = "math.iden"
ATEN = "aten."
OUTPUT_KEY = "\0output "


def _find_refused(model: Model) -> Iterator[Diagnostic]:
    """What of a graph NAC has no words for, once for each thing."""
    graph = model.graph
    for update in graph.updates:
        before, after = update.variable, update.value
        if (before.element, before.shape) != (after.element, after.shape):
            yield rules.UPDATED.at(NOWHERE, name=before.name, type=type_of(before), found=type_of(after))
    for item in defined(graph):
        if isinstance(item, Pack):
            finding = rules.OPEN_PACK.at(NOWHERE, name=item.name, size=item.size)
            yield with_origin(finding, item.origin)
        elif item.quantization is not None and item.quantization.operator != OPERATOR:
            finding = rules.QUANTIZED.at(NOWHERE, name=item.name, operator=item.quantization.operator)
            yield with_origin(finding, item.origin)
    for node in walk(graph.nodes):
        yield from _find_in_node(node, model.library)


def _find_in_node(node: Node, library: Library) -> Iterator[Diagnostic]:
    name = _first_name(node)
    if isinstance(node, Loop):
        yield with_origin(rules.CONTROL_FLOW.at(NOWHERE, tensor=name, what="'do'"), node.origin)
    if not isinstance(node, Operation):
        return
    definition = library.find(node.operator)
    if definition is None:
        yield with_origin(rules.NOT_SHIPPED.at(NOWHERE, operator=node.operator, tensor=name), node.origin)
    elif shadows(definition, library):
        yield with_origin(OPERATOR_SHADOWS.at(NOWHERE, operator=node.operator), node.origin)


def _first_name(node: Node) -> str:
    first = next(results_of(node), None)
    return "" if first is None else first.name


def plan_graph(model: Model) -> CallPlan:
    """The encoding of every operation of a graph; a Problem holds what NAC cannot express."""
    refused = list(_find_refused(model))
    if refused:
        raise Found(*refused)
    planner = _Planner(model)
    findings: list[Diagnostic] = []
    graph = model.graph
    kept = (*members(graph.outputs), *(update.value for update in graph.updates))
    for node in arrange(graph.nodes, {item.name for item in kept}, planner.constants):
        try:
            planner.take_node(node)
        except Found as problem:
            origin = node.node.origin if isinstance(node, ArrangedMerge) else node.origin
            findings += (with_origin(item, origin) for item in problem.findings)
    if findings:
        raise Found(*findings)
    planner.take_outputs()
    planner.take_updates()
    return planner.plan


def constant_array(constant: Constant) -> Array:
    """The elements of a constant of known shape and values, rounded to its element type."""
    tensor, value = constant.tensor, constant.value
    shape = tuple(extent for extent in tensor.shape if isinstance(extent, int))
    items = value if isinstance(value, tuple) else (value,) * math.prod(shape)
    numbers = [item for item in items if isinstance(item, int | float)]
    if name_in("nac", tensor.element) is None or len(numbers) != len(items):
        raise Found(rules.ELEMENT.at(NOWHERE, what="constant", name=tensor.name, element=tensor.element))
    flat = np.array(numbers, np.float64 if tensor.element.is_float else np.int64)
    return cast(flat, tensor.element).reshape(shape)


def _require_numbers(constant: Constant) -> None:
    """Found where the shape of a constant, or what it holds, is an extent that only the run tells."""
    content = constant.value if isinstance(constant.value, tuple) else (constant.value,)
    for what, items in (("an extent", constant.tensor.shape), ("an element", content)):
        found = next((item for item in items if isinstance(item, Dim | Test | Logic)), None)
        if found is not None:
            problem = f"is {what} of it that only the run tells; stored are numbers"
            name = constant.tensor.name
            raise Found(rules.EXTENT.at(NOWHERE, what="constant", name=name, extent=found, problem=problem))


def stored_constant(constant: Constant) -> Constant:
    """The constant as it is read again: rounded, and one value where all elements have the same bits."""
    values = constant_array(constant)
    flat = np.ascontiguousarray(values).reshape(-1)
    bits = flat.view(f"u{flat.dtype.itemsize}")
    wide = flat.astype(np.float64) if constant.tensor.element.is_float else flat
    items: tuple[Single, ...] = tuple(math.nan if item != item else item for item in wide.tolist())
    same = bits.size > 0 and bool((bits == bits[0]).all())
    return Constant(constant.tensor, items[0] if same else items)


def _united(constant: Constant) -> Constant:
    """A constant whose elements are all the same as one that says so."""
    if not isinstance(constant.value, tuple) or any(isinstance(item, Dim) for item in constant.tensor.shape):
        return constant
    try:
        found = stored_constant(constant)
    except Found:
        return constant
    return constant if isinstance(found.value, tuple) else found


class _Planner:
    """Goes through the operations in order."""

    def __init__(self, model: Model) -> None:
        self.library = model.library
        self.graph: Graph = model.graph
        self.constants = {item.tensor.name: _united(item) for item in model.graph.constants}
        self.outputs = {item.name for item in members(model.graph.outputs)}
        self.made: set[str] = set()
        self.claimed: set[str] = set()
        self.plan = CallPlan()
        self.steps: list[PlannedStep] = self.plan.steps
        """Where steps go: those of the graph, or of the block that is being planned."""
        self.depth = 0
        self._equal: dict[tuple[str, object, object], str] = {}

    def take_node(self, node: Arranged) -> None:
        """An operation, or a branch or a convergence with its blocks."""
        if isinstance(node, ArrangedMerge):
            self._take_merge(node)
        elif isinstance(node, Branch):
            self._take_branch(node)
        elif isinstance(node, Operation):
            self.take(node)

    def _take_branch(self, node: Branch) -> None:
        """A branch of one condition; further ones are tested in the block of those that fail."""
        if not node.outputs:
            return
        test, *tests = node.conditions
        self._take_all(test)
        condition, first = self._handed(test.outputs[0]), self._part(node.branches[0])
        second = node.branches[1]
        if tests:
            outputs = tuple(replace(item, name=f"{item.name}\0") for item in node.outputs)
            rest = Branch(tuple(tests), node.branches[1:], outputs, origin=node.origin)
            second = Region((), (rest,), outputs)
        self._add(PlannedFork(node, condition, (first, self._part(second))))

    def _take_merge(self, node: ArrangedMerge) -> None:
        parts = [
            self._part(Region((), (), (tensor,)), block)
            for tensor, block in zip(node.merged, node.blocks, strict=True)
        ]
        self._add(PlannedFork(node.node, self._handed(node.shared), tuple(parts)))

    def _add(self, fork: PlannedFork) -> None:
        self.steps.append(fork)
        self.made.update(item.name for item in results_of(fork.node))

    def _part(self, region: Region, nodes: Sequence[Arranged] | None = None) -> PlannedBlock:
        """The block that a region becomes; of a convergence its nodes are given."""
        outer, self.steps = self.steps, []
        self.depth += 1
        if self.depth > MOST_NESTED:
            what = "blocks inside each other"
            raise Found(rules.TOO_MANY.at(NOWHERE, count=self.depth, what=what, limit=MOST_NESTED))
        try:
            if nodes is None:
                self._take_all(region)
            for node in nodes or ():
                self.take_node(node)
            return PlannedBlock(tuple(self.steps), tuple(map(self._handed, region.outputs)))
        finally:
            self.steps = outer
            self.depth -= 1

    def _take_all(self, region: Region) -> None:
        kept = {item.name for item in region.outputs}
        for node in arrange(region.nodes, kept, self.constants):
            self.take_node(node)

    def _handed(self, tensor: Tensor) -> Tensor:
        """A tensor that an instruction gives: a constant is stored."""
        root = self.plan.root(tensor)
        self._store_tensor(root)
        return root

    def take(self, node: Operation) -> None:
        """One operation: an alias of what it reads, or a step."""
        node = replace(node, inputs=tuple(map(self._renewed, node.inputs)))
        source = node.inputs[0] if node.inputs else None
        if node.operator == COPY and isinstance(source, Tensor) and self._takes_name(node, source):
            self._alias(node, source)
            return
        encoding = self._say(node)
        if not isinstance(encoding, Tensor):
            self._store(encoding)
            self.steps.append(PlannedCall(node, encoding))
            self.made.update(item.name for item in results_of(node))
        else:
            self._alias(node, encoding)

    def take_outputs(self) -> None:
        """The outputs; a constant is none by itself."""
        for item in members(self.graph.outputs):
            if isinstance(item, Tensor):
                self.plan.outputs.append(self._given(item))

    def take_updates(self) -> None:
        """What states become; a variable that becomes itself is none. The last update of a variable counts."""
        for update in self.graph.updates:
            self.plan.updates.pop(update.variable.name, None)
            if self.plan.root(update.value).name != update.variable.name:
                self.plan.updates[update.variable.name] = self._given(update.value)

    def _given(self, tensor: Tensor) -> Tensor:
        """The tensor that an output is; a constant is copied."""
        root = self.plan.root(tensor)
        if root.name not in self.constants:
            return root
        copy = copy_of(root, replace(root, name=f"{OUTPUT_KEY}{len(self.plan.steps)}"))
        self.take(copy)
        return next(found for found in results_of(copy) if isinstance(found, Tensor))

    def _renewed(self, argument: Argument) -> Argument:
        if isinstance(argument, Tensor):
            return self.plan.root(argument)
        return tuple(map(self.plan.root, argument)) if isinstance(argument, tuple) else argument

    def _takes_name(self, node: Operation, source: Tensor) -> bool:
        """Whether a copy is nothing but the name of an output."""
        (result,) = tensors(node.outputs[0])
        free = source.name in self.made and not {source.name} & (self.outputs | self.claimed)
        return free and result.name in self.outputs

    def _alias(self, node: Operation, source: Tensor) -> None:
        for item in results_of(node):
            self.plan.aliases[item.name] = source
            if item.name in self.outputs:
                self.claimed.add(source.name)

    def _say(self, node: Operation) -> CallEncoding | Tensor:
        if not node.operator.startswith(ATEN):
            public = encode_public_call(self.library, node, self.constants)
            return public or encode_library_call(self.library, node, self.constants)
        call = describe(node, self.constants)
        if call is None:
            finding = rules.NOT_SHIPPED.at(NOWHERE, operator=node.operator, tensor=_first_name(node))
            raise Found(finding)
        if is_pass(call):
            source = next(iter(call.operands.values()))
            if isinstance(source, Tensor):
                return source
        return disambiguate_call(call, node)

    # --- constants ------------------------------------------------------------------------------------------

    def _store(self, encoding: CallEncoding) -> None:
        for tensor in tensors_of(encoding):
            self._store_tensor(tensor)

    def _store_tensor(self, tensor: Tensor) -> None:
        """Store a constant, where the tensor is one, under the name of the first that is equal to it."""
        constant = self.constants.get(tensor.name)
        if constant is None or tensor.name in self.plan.stored:
            return
        _require_numbers(constant)
        found = stored_constant(constant)
        key = (repr(found.value), tensor.element, tensor.shape)
        self.plan.stored[tensor.name] = self.plan.stored.get(self._equal.setdefault(key, tensor.name), found)
