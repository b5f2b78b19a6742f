"""The bridge from PyTorch: programs of torch.export as graphs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import BuiltinFunctionType
from typing import cast

from lamella.base.diagnostic import LamellaError
from lamella.base.dim import Dim
from lamella.base.dtype import I64
from lamella.base.limits import DEFAULT, Limits, hint_for
from lamella.base.optional import need
from lamella.base.source import NOWHERE
from lamella.bridge.aten.table import REFUSE, find_row
from lamella.bridge.torch_to_graph.complex_parts import ComplexParts
from lamella.bridge.torch_to_graph.program import (
    ExportedProgram,
    FxModule,
    FxNode,
    OpenExtents,
    OutputTree,
    PortSpec,
    TorchTensor,
    element_of,
    expression_of,
    first_line,
    is_complex,
    is_tensor,
    kind_of,
    torch_errors,
)
from lamella.bridge.torch_to_graph.report import ExportReport, NodeOrigins, modules_of, operation_of
from lamella.bridge.torch_to_graph.walk import LOST, NodeTranslator, NodeValue, VariableStore
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Tensor
from lamella.graph.rewrite import rename
from lamella.lang.skriptnd.rules import exports, graphs
from lamella.lang.skriptnd.rules.exports import EXPORT_FAILED
from lamella.ops.library import Library

# --- decomposition: what has an operator here stays whole, the rest becomes core ATen -----------------------


READY = frozenset(
    (
        "higher_order.cond",
        "higher_order.while_loop",
        "higher_order.wrap_with_set_grad_enabled",
        "sym_max",
        "sym_min",
    )
)
"""What is taken as it is beside operations; `wrap_with_autocast` changes types, which PyTorch writes out."""


def decompose(program: ExportedProgram, broken: Collection[str] = ()) -> ExportedProgram:
    """The program without changes in place, in operations that we know; `broken` ones are not kept whole."""
    if _is_ready(program.graph_module, broken):
        return program
    table = need("torch").export.default_decompositions()
    for operation in list(cast("Mapping[object, object]", table)):
        if stays_whole(str(operation)) and str(operation) not in broken:
            del table[operation]
    with warnings.catch_warnings():
        # PyTorch warns of its own ways with trees.
        warnings.simplefilter("ignore")
        try:
            return program.run_decompositions(table)
        except torch_errors() as problem:
            reason = first_line(problem)
            finding = EXPORT_FAILED.at(NOWHERE, what="simpler operations for the program", reason=reason)
            raise LamellaError([finding]) from problem


def _is_ready(body: FxModule, broken: Collection[str]) -> bool:
    """Whether every line of a graph, and of those that it calls, can be translated as it is."""
    return all(_is_known(body, node, broken) for node in body.graph.nodes)


def _is_known(body: FxModule, node: FxNode, broken: Collection[str]) -> bool:
    if node.op == "get_attr":
        called = getattr(body, str(node.target), None)
        return hasattr(called, "graph") and _is_ready(cast("FxModule", called), broken)
    if node.op != "call_function" or isinstance(node.target, BuiltinFunctionType):
        return True
    schema = getattr(node.target, "_schema", None)
    name = operation_of(node)
    if schema is None:
        return name in READY
    return not schema.is_mutable and stays_whole(name) and name not in broken


def stays_whole(operation: str) -> bool:
    """Whether an overload has an operator here."""
    row = find_row(operation)
    return row is not None and row.how != REFUSE


def can_decompose(operation: str) -> bool:
    """Whether PyTorch can say an overload in simpler ones."""
    return any(str(item) == operation for item in need("torch").export.default_decompositions())


CHANGES = ("BUFFER_MUTATION", "PARAMETER_MUTATION")
ATTEMPTS = 3
SINGLE = "output"
_ODD = re.compile(r"\W+")
Axes = Mapping[str, Mapping[int, str]]
"""Names of open extents: for each input, by axis."""


def torch_to_graph(program: object, limits: Limits = DEFAULT, axes: Axes | None = None) -> Model:
    """The model that a `torch.export.ExportedProgram` is; LamellaError holds everything that a graph cannot express.

    Parameters and buffers keep the names of the state dictionary, inputs those of the arguments, results those of the
    tree in which the module gives them. Numbers share memory with the tensors. Where an operator of ours does not take
    a call, PyTorch says it in simpler operations.
    """
    broken: set[str] = set()
    for _ in range(ATTEMPTS):
        found = _Translation(decompose(cast("ExportedProgram", program), broken), limits, axes or {})
        model = found.run()
        # Calls that our operators refuse are decomposed in the next attempt.
        more = {operation_of(node) for node in found.report.refused} - broken
        broken |= {name for name in more if can_decompose(name)}
        findings = found.report.findings()
        if not findings:
            return model
        if not more & broken:
            break
    raise LamellaError(findings)


class _Translation:
    """One attempt."""

    def __init__(self, program: ExportedProgram, limits: Limits, axes: Axes) -> None:
        self._program = program
        self._axes = axes
        self._limits = limits
        self.report = ExportReport(NodeOrigins())
        nodes = list(program.graph_module.graph.nodes)
        self._require_room(len(nodes))
        self._builder = Builder(Library(limits=limits), _graph_name(nodes))
        self._stores = VariableStore(program, self._builder, self.report)
        self._walk = NodeTranslator(
            self._builder, OpenExtents(program.range_constraints), self.report, self._stores
        )
        self._inputs = {node.name: node for node in nodes if node.op == "placeholder"}
        self._variables: dict[str, Tensor] = {}

    def _require_room(self, count: int) -> None:
        """Refuse a program that is larger than the limits allow."""
        limit = self._limits.max_operations
        if count > limit:
            raise LamellaError([graphs.TOO_MANY.at(NOWHERE, hint=hint_for("max_operations"), limit=limit)])

    def run(self) -> Model:
        """The model, which is whole where the report is empty."""
        signature = self._program.graph_signature
        changed = {item.target for item in signature.output_specs if kind_of(item) in CHANGES}
        self._declare_extents(signature.input_specs)
        for item in signature.input_specs:
            node = self._inputs[item.arg.name]
            if node.users or item.target in changed or kind_of(item) == "USER_INPUT":
                self._walk.values[node] = self._enter(item, node)
        results = [item for item in signature.output_specs if kind_of(item) == "USER_OUTPUT"]
        names = output_names(self._program.call_spec.out_spec, len(results))
        reserved = [self._builder.fresh(name) for name in names]
        values = self._walk.run(self._program.graph_module)
        return self._finish(dict(zip(map(id, results), reserved, strict=True)), values)

    # --- inputs ---------------------------------------------------------------------------------------------

    def _declare_extents(self, items: Sequence[PortSpec]) -> None:
        for node in (self._inputs[item.arg.name] for item in items if kind_of(item) == "USER_INPUT"):
            value = node.meta.get("val")
            axes = self._axes.get(node.name, {})
            if is_tensor(value):
                for axis, size in enumerate(cast("TorchTensor", value).shape):
                    self._walk.symbols.declare(size, axes.get(axis, f"{node.name}_{axis}"))

    def _enter(self, item: PortSpec, node: FxNode) -> NodeValue:
        kind = kind_of(item)
        if kind == "USER_INPUT":
            return self._user_input(node)
        if kind == "TOKEN":
            # It orders operations that may fail, and holds nothing.
            return LOST
        tensor = self._stores.find(item.target or node.name)
        if tensor is None:
            return LOST
        name = item.target or node.name
        if is_complex(tensor):
            return self._stores.parts(name, tensor) or LOST
        if kind == "CONSTANT_TENSOR":
            return self._stores.constant(name, tensor) or LOST
        found = self._stores.variable(name, tensor)
        if found is not None:
            self._variables[name] = found
        return found or LOST

    def _user_input(self, node: FxNode) -> NodeValue:
        value = node.meta.get("val")
        if is_tensor(value):
            return self._tensor_input(node.name, cast("TorchTensor", value))
        if expression_of(value) is not None:
            if node.users:
                self._refuse_input(node.name, f"an open number of type {type(value).__name__}")
            return LOST
        return value if value is None or isinstance(value, int | float | str) else LOST

    def _tensor_input(self, name: str, value: TorchTensor) -> NodeValue:
        element = element_of(value.dtype)
        if element is None:
            self._refuse_input(name, f"a tensor of {value.dtype}")
            return LOST
        shape = [self._walk.symbols.extent(size) for size in value.shape]
        known = [size for size in shape if size is not None]
        if len(known) != len(shape):
            self._refuse_input(name, f"a tensor of shape {list(value.shape)}")
            return LOST
        return self._builder.input(name, element, known)

    def _refuse_input(self, name: str, what: str) -> None:
        self.report.add(exports.OPEN_NUMBER.at(NOWHERE, name=name, what=what))

    # --- results --------------------------------------------------------------------------------------------

    def _finish(self, names: Mapping[int, str], values: Sequence[NodeValue]) -> Model:
        outputs: list[Tensor] = []
        called: list[str] = []
        for item, value in zip(self._program.graph_signature.output_specs, values, strict=False):
            if kind_of(item) in CHANGES:
                self._update(item.target or "", value)
            elif kind_of(item) == "USER_INPUT_MUTATION":
                self.report.add(exports.CHANGED_INPUT.at(NOWHERE, name=item.target))
            elif isinstance(value, ComplexParts) and id(item) in names:
                outputs += [value.real, value.imag]
                called += [f"{names[id(item)]}_{word}" for word in ("real", "imag")]
            elif isinstance(value, Tensor | Dim) and id(item) in names:
                outputs.append(value if isinstance(value, Tensor) else self._builder.constant(value, I64))
                called.append(names[id(item)])
        return Model(self._named(outputs, called), self._builder.library, self._stores.data)

    def _update(self, name: str, value: NodeValue) -> None:
        if isinstance(value, Tensor) and name in self._variables:
            self._builder.update(self._variables[name], value)

    def _named(self, outputs: Sequence[Tensor], called: Sequence[str]) -> Graph:
        """The graph; tensors are called as the export calls them, results as the module does."""
        graph = self._builder.finish(*outputs)
        results = {cast("Tensor", item).name: name for item, name in zip(graph.outputs, called, strict=True)}
        kept = {cast("Tensor", item).name for item in graph.inputs} | {item.name for item in graph.variables}
        inner = {
            name: self._builder.fresh(wanted)
            for name, wanted in self._walk.names.items()
            if name not in results and name not in kept and name != wanted
        }
        return rename(graph, {**inner, **results})


def _graph_name(nodes: Sequence[FxNode]) -> str:
    """The class of the exported module, else `main`."""
    found = next((modules_of(node) for node in nodes if modules_of(node)), [])
    return found[0][1] if found and found[0][1].isidentifier() else "main"


# --- names of results ---------------------------------------------------------------------------------------


def output_names(tree: OutputTree | None, count: int) -> list[str]:
    """A name for each leaf: keys and fields by their names, items by their places, a single tensor `output`."""
    paths = list(_leaves(tree, ())) if tree is not None else []
    if len(paths) != count:
        return [f"{SINGLE}_{number}" for number in range(count)]
    return [_joined(path) for path in paths]


def _joined(path: tuple[str, ...]) -> str:
    words = (SINGLE, *path) if not path or path[0].isdigit() else path
    return _ODD.sub("_", "_".join(words)) or SINGLE


def _leaves(tree: OutputTree, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if tree.type is None:
        yield path
        return
    children = tree.children()
    for word, child in zip(_words(tree, len(children)), children, strict=True):
        yield from _leaves(child, (*path, word))


def _words(tree: OutputTree, count: int) -> list[str]:
    """The names of the children: the fields of a named tuple, the keys of a mapping, the fields of a dataclass."""
    context = tree.context
    candidates = [getattr(context, "_fields", None), getattr(tree.type, "_fields", None), context]
    candidates += list(context) if isinstance(context, list | tuple) else []
    found = next((words for words in map(_as_words, candidates) if len(words) == count), None)
    return [str(number) for number in range(count)] if found is None else found


def _as_words(found: object) -> list[str]:
    """The words that a list holds; none where it holds anything else."""
    if not isinstance(found, list | tuple):
        return []
    words = [item for item in found if isinstance(item, str)]
    return words if len(words) == len(found) else []


__all__ = ["torch_to_graph"]
