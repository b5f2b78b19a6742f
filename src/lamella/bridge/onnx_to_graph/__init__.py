"""The bridge from ONNX: models as graphs, with shape arithmetic folded into extents."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lamella.base import dim
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError, printable
from lamella.base.dim import Extent
from lamella.base.errors import Found
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NOWHERE
from lamella.bridge.onnx import rules
from lamella.bridge.onnx.arrays import ExternalData
from lamella.bridge.onnx.nodes import EXTENT, STATE, Node, TensorType, ValueInfo, plain_domain, subgraphs
from lamella.bridge.onnx.nodes import Graph as OnnxGraph
from lamella.bridge.onnx.nodes import Model as OnnxModel
from lamella.bridge.onnx_to_graph.integers import integer_form
from lamella.bridge.onnx_to_graph.values import Value, known_value
from lamella.bridge.onnx_to_graph.walk import Scope, Translator
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Tensor
from lamella.graph.rewrite import defined, rename
from lamella.ops.library import Library

UNBOUNDED = 1 << 20
"""The largest value of an extent that a file only names."""
WHOLE = 1, UNBOUNDED
"""Not from 0: the -1 of Reshape, and slices of the last item, would have no extent known before the run."""
_ODD = re.compile(r"\W+")
_RANGE = re.compile(r"([0-9]{1,12}) ([0-9]{1,12})")


class ContentsNeeded(LamellaError):
    """A model can become a graph once the contents of some of its inputs are given."""

    def __init__(self, findings: list[Diagnostic], inputs: tuple[str, ...]) -> None:
        super().__init__(findings)
        self.inputs = inputs


def onnx_to_graph(
    model: OnnxModel,
    external: ExternalData | None = None,
    limits: Limits = DEFAULT,
    given: Mapping[str, Array] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Model:
    """The graph of a model; LamellaError holds everything that a graph cannot express.

    Inputs that are `given` are constants of the graph. ContentsNeeded names those that have to be. `sizes` are those of
    open extents that are known: only so they can be 0.
    """
    found = _Translation(model, external or ExternalData(None, limits), limits, given or {})
    found.extents.update(sizes or {})
    return found.run()


def graph_for(
    model: OnnxModel,
    contents: Mapping[str, Array],
    external: ExternalData | None = None,
    limits: Limits = DEFAULT,
    sizes: Mapping[str, int] | None = None,
) -> Model:
    """The graph of a model, made for the contents of the inputs that must be known; `fixed` tells which these are."""
    fixed: dict[str, Array] = {}
    while True:
        try:
            found = onnx_to_graph(model, external, limits, fixed, sizes)
            return replace(found, fixed=tuple(fixed))
        except ContentsNeeded as problem:
            more = [name for name in problem.inputs if name in contents and name not in fixed]
            if not more:
                raise
            fixed |= {name: contents[name] for name in more}


def open_extents(model: OnnxModel) -> dict[str, tuple[int, int]]:
    """The extents that the inputs of a model leave open, and between which numbers each stays."""
    return {name: _range(model, size) for name, size, _, _ in _open_axes(model)}


def sizes_for(model: OnnxModel, shape: Mapping[str, int], arrays: Mapping[str, Array]) -> dict[str, int]:
    """The open extents that are known before a model is translated: those that are wanted, and those that are 0.

    As symbols extents begin at 1, since the -1 of Reshape has no meaning where one is 0.
    """
    axes = [(name, port, axis) for name, _, port, axis in _open_axes(model) if port in arrays]
    empty = {name: 0 for name, port, axis in axes if arrays[port].shape[axis : axis + 1] == (0,)}
    ranges = open_extents(model)
    return {
        name: size
        for name, size in (*shape.items(), *empty.items())
        if name in ranges
        and (ranges[name][0] <= size <= ranges[name][1] or (size, ranges[name]) == (0, WHOLE))
    }


def _open_axes(model: OnnxModel) -> Iterator[tuple[str, int | str | None, str, int]]:
    """The axes of inputs that a file leaves open: the name of the extent, what the file says, the input, the axis."""
    for port in model.graph.inputs:
        shape = port.type.shape if isinstance(port.type, TensorType) else None
        for axis, size in enumerate(shape or ()):
            if not (isinstance(size, int) and size >= 0):
                yield extent_name(size, port.name, axis), size, port.name, axis


def _range(model: OnnxModel, size: int | str | None) -> tuple[int, int]:
    """Between which numbers an extent stays: as a file of ours says, else as far as any."""
    said = next((text for key, text in model.metadata if key == f"{EXTENT}{size}"), "")
    found = _RANGE.fullmatch(said)
    return WHOLE if found is None or not int(found[1]) <= int(found[2]) else (int(found[1]), int(found[2]))


def extent_name(size: int | str | None, name: str, axis: int) -> str:
    """What an extent is called that a file leaves open: as the file does, else after the input and the axis."""
    named = size if isinstance(size, str) else ""  # a negative number says as little as none
    word = _ODD.sub("_", named).strip("_") or f"{_ODD.sub('_', name)}_{axis}"
    return f"n{word}" if word[0].isdigit() else word


class _Translation:
    """One model on its way to a graph."""

    def __init__(
        self, model: OnnxModel, external: ExternalData, limits: Limits, given: Mapping[str, Array]
    ) -> None:
        self._model = model
        self._given = given
        graph = model.graph
        name = graph.name if graph.name.isidentifier() else "main"
        self._builder = Builder(Library(limits=limits), name)
        functions = {(plain_domain(item.domain), item.name, item.overload): item for item in model.functions}
        self._walk = Translator(self._builder, model.opsets, functions, external)
        self.extents: dict[str, Extent] = {}
        """Open extents by name, and those that are numbers already."""
        pairs = {key.removeprefix(STATE): name for key, name in model.metadata if key.startswith(STATE)}
        known = {item.name for item in graph.initializers}, {item.name for item in graph.outputs}
        self._states = {
            state: name for state, name in pairs.items() if state in known[0] and name in known[1]
        }
        """What follows a state, by the names of both: what a graph of ours kept between runs."""
        self._outputs = [item for item in graph.outputs if item.name not in self._states.values()]

    def run(self) -> Model:
        """The model."""
        graph = self._model.graph
        scope: Scope = {}
        entering = {port.name for port in graph.inputs}
        reserved = self._reserve({}, but=entering)
        try:
            self._walk.enter_initializers(graph, scope)
            self._enter_states(scope)
            for port in graph.inputs:
                if port.name not in scope:
                    scope[port.name] = self._input(port)
        except Found as problem:
            raise LamellaError(problem.findings) from None
        # An input that is a result too keeps its name: the result, a copy of it, has the next.
        reserved = self._reserve(reserved)
        self._walk.run(graph.nodes, scope)
        self._require_whole(graph, scope)
        return self._finish(scope, list(reserved.values()))

    def _reserve(self, known: Mapping[int, str], but: Collection[str] = ()) -> dict[int, str]:
        """The names of results, by their places, of which some are known."""
        return {
            place: known.get(place) or self._builder.fresh(item.name or "output")
            for place, item in enumerate(self._outputs)
            if item.name not in but
        }

    def _enter_states(self, scope: Scope) -> None:
        """States are variables, whatever their size, and nothing is computed from them before the run."""
        for name in self._states:
            value = scope[name]
            if value.known is not None:
                tensor = self._builder.variable(name, value.element, value.known.shape)
                self._walk.data[tensor.name] = value.known
                scope[name] = Value(tensor, None, value.element, name)

    # --- inputs ---------------------------------------------------------------------------------------------

    def _input(self, port: ValueInfo) -> Value:
        if port.name in self._given:
            return known_value(self._given[port.name], port.name)
        kind = port.type
        if not isinstance(kind, TensorType):
            what = "of no type" if kind is None else f"a {kind.kind}"
            raise Found(rules.NOT_A_TENSOR.at(NOWHERE, name=port.name, kind=what))
        if kind.element is None:
            raise Found(rules.NO_ELEMENT.at(NOWHERE, name=port.name, type=kind.data_type))
        if kind.shape is None:
            raise Found(rules.NO_RANK.at(NOWHERE, name=port.name))
        shape = [self._extent(size, port.name, axis) for axis, size in enumerate(kind.shape)]
        return Value(self._builder.input(port.name, kind.element, shape), None, kind.element, port.name)

    def _extent(self, size: int | str | None, name: str, axis: int) -> Extent:
        if isinstance(size, int) and size >= 0:
            return size
        word = extent_name(size, name, axis)
        if word not in self.extents:
            low, high = _range(self._model, size)
            self.extents[word] = dim.symbol(word, high, low)
        return self.extents[word]

    # --- results --------------------------------------------------------------------------------------------

    def _require_whole(self, graph: OnnxGraph, scope: Scope) -> None:
        findings = self._walk.findings
        missing = [item.name for item in graph.outputs if item.name not in scope]
        if missing and not findings:
            findings = [rules.OUTPUT_NOT_DEFINED.at(NOWHERE, name=name) for name in missing]
        if not findings:
            return
        inputs = _sources(graph, self._walk.needed, {item.name for item in graph.inputs} - set(self._given))
        if inputs:
            raise ContentsNeeded([_with_way_out(item, inputs) for item in findings], inputs)
        raise LamellaError(findings)

    def _finish(self, scope: Scope, reserved: list[str]) -> Model:
        outputs = [self._walk.materialise(scope[item.name]) for item in self._outputs]
        for state, name in self._states.items():
            self._builder.update(self._walk.materialise(scope[state]), self._walk.materialise(scope[name]))
        finished = self._named(self._builder.finish(*outputs), reserved)
        return integer_form(Model(finished, self._builder.library, self._walk.data))

    def _named(self, graph: Graph, reserved: list[str]) -> Graph:
        """The graph with tensors called as in the file."""
        results = {
            item.name: name
            for item, name in zip(graph.outputs, reserved, strict=True)
            if isinstance(item, Tensor)
        }
        kept = {item.name for item in graph.inputs if isinstance(item, Tensor)}
        kept |= {item.name for item in graph.variables}
        # Tensors of a pack have names like `outputs:1`, which the builder does not know as given away.
        items = {item.name for item in defined(graph) if ":" in item.name}
        inner = {
            name: self._builder.fresh(wanted.replace(":", "_") if wanted in items else wanted)
            for name, wanted in self._walk.names.items()
            if name not in results and name not in kept and name != wanted and ":" not in name
        }
        return rename(graph, {**inner, **results})


def _with_way_out(finding: Diagnostic, inputs: Sequence[str]) -> Diagnostic:
    """A finding about a content that is needed, with the inputs that it comes from and how they are given."""
    if finding.code != rules.VALUE_NEEDED.code:
        return finding
    names = [printable(name, 60) for name in inputs[:3]]
    files = " ".join(f"--input {name}=FILE.npy" for name in names)
    return replace(
        finding, hint=f"{rules.GIVEN}: `run` and `diff` take {files}, lamella.load(…, contents={{…}}) arrays"
    )


def _sources(graph: OnnxGraph, names: list[str], inputs: set[str]) -> tuple[str, ...]:
    """The inputs of a graph that some values are computed from, inner graphs included."""
    reads: dict[str, tuple[str, ...]] = {}
    for node in _all_nodes(graph.nodes):
        inner = [name for _, part in subgraphs(node) for name in _names_in(part)]
        reads.update(dict.fromkeys(node.outputs, (*node.inputs, *inner)))
        for _, part in subgraphs(node):
            reads.update({port.name: node.inputs for port in part.inputs})
    waiting, seen, found = list(names), set(names), []
    while waiting:
        name = waiting.pop()
        if name in inputs:
            found.append(name)
            continue
        for source in reads.get(name, ()):
            if source not in seen:
                seen.add(source)
                waiting.append(source)
    return tuple(dict.fromkeys(found))


def _all_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for _, graph in subgraphs(node):
            yield from _all_nodes(graph.nodes)


def _names_in(graph: OnnxGraph) -> Iterator[str]:
    """What the nodes of a graph read, and what it gives."""
    for node in graph.nodes:
        yield from node.inputs
    for port in graph.outputs:
        yield port.name


__all__ = ["ContentsNeeded", "graph_for", "onnx_to_graph", "sizes_for"]
