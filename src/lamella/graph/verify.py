"""The verifier of graphs: what must hold of every graph, whoever made it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim
from lamella.base.dtype import BOOL
from lamella.base.errors import Found
from lamella.base.origin import Origin, with_origin
from lamella.base.source import NOWHERE
from lamella.graph.build import base_name, bind, result, result_names
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
    Shape,
    Tensor,
    tensors,
)
from lamella.graph.rewrite import members, results_of
from lamella.lang.skriptnd.rules.data import BAD_GRAPH
from lamella.ops.library import Library


def verify(graph: Graph, library: Library) -> list[Diagnostic]:
    """Names, order, types and shapes, control flow, constants, updates: nothing where the graph is whole."""
    return _Verifier(graph, library).run()


def _takes(item: Tensor | Pack, shape: Shape, exactly: bool) -> bool:
    """Whether a shape can be that of a tensor: an extent that the tensor itself names can be any."""
    if len(item.shape) != len(shape):
        return False
    own = [str(extent) == f"{item.name}.shape[{axis}]" for axis, extent in enumerate(item.shape)]
    return not exactly or all(
        free or extent == other for free, extent, other in zip(own, item.shape, shape, strict=True)
    )


def _type(item: Tensor | Pack) -> str:
    return f"{item.element}[{', '.join(str(extent) for extent in item.shape)}]"


def _types(items: Iterable[Tensor | Pack]) -> str:
    return ", ".join(map(_type, items)) or "nothing"


def _volume(shape: Shape) -> int | None:
    total = 1
    for extent in shape:
        if isinstance(extent, Dim):
            return None
        total *= extent
    return total


class _Verifier:
    """Goes through a graph in the order in which it runs."""

    def __init__(self, graph: Graph, library: Library) -> None:
        self.graph = graph
        self.library = library
        self.findings: list[Diagnostic] = []
        self.names: set[str] = set()

    def run(self) -> list[Diagnostic]:
        graph = self.graph
        visible: dict[str, Tensor | Pack] = {}
        for item in (*members(graph.inputs), *graph.variables, *(item.tensor for item in graph.constants)):
            self._define(item, visible, None)
        for constant in graph.constants:
            self._check_constant(constant)
        self._nodes(graph.nodes, visible)
        for item in members(graph.outputs):
            self._use(item, visible, None, "the graph gives it")
        self._check_updates(visible)
        return self.findings

    def _report(self, problem: str, origin: Origin | None = None) -> None:
        finding = BAD_GRAPH.at(NOWHERE, graph=self.graph.name, problem=problem)
        self.findings.append(with_origin(finding, origin))

    # --- names ----------------------------------------------------------------------------------------------

    def _define(self, item: Tensor | Pack, visible: dict[str, Tensor | Pack], origin: Origin | None) -> None:
        if item.name in self.names:
            self._report(f"'{item.name}' is made twice", origin)
        self.names.add(item.name)
        visible[item.name] = item

    def _use(
        self, item: Tensor | Pack, visible: dict[str, Tensor | Pack], origin: Origin | None, reader: str
    ) -> None:
        known = visible.get(item.name)
        if known is None:
            self._report(f"{reader}, but '{item.name}' is not made before", origin)
        elif known != item:
            problem = f"{reader} as {_type(item)}, but '{item.name}' is {_type(known)}"
            quantized = "" if _type(item) != _type(known) else " with another quantization"
            self._report(problem + quantized, origin)

    # --- nodes ----------------------------------------------------------------------------------------------

    def _nodes(self, nodes: tuple[Node, ...], visible: dict[str, Tensor | Pack]) -> None:
        for node in nodes:
            if isinstance(node, Operation):
                self._operation(node, visible)
            elif isinstance(node, Branch):
                self._branch(node, visible)
            else:
                self._loop(node, visible)
            for item in results_of(node):
                self._define(item, visible, node.origin)

    def _operation(self, node: Operation, visible: dict[str, Tensor | Pack]) -> None:
        for item in members(node.inputs):
            self._use(item, visible, node.origin, f"{node.operator} reads it")
        names = [base_name(argument, name) for argument, name in self._outputs(node)]
        try:
            instance = bind(
                self.library, node.operator, node.inputs, dict(node.attributes), dict(node.types), names
            )
        except Found as problem:
            self._report(f"{node.operator}: {problem.findings[0].message}", node.origin)
            return
        wanted = [result(item, name) for item, name in zip(instance.outputs, names, strict=False)]
        if [_bare(item) for item in node.outputs if item] != [_bare(item) for item in wanted if item]:
            given, found = _types(members(node.outputs)), _types(members(wanted))
            self._report(f"{node.operator} gives {found}; recorded are {given}", node.origin)
        if instance.attributes != node.attributes:
            self._report(
                f"{node.operator} has the attributes {instance.attributes}; recorded are {node.attributes}"
            )

    def _outputs(self, node: Operation) -> Iterator[tuple[Argument, str]]:
        names = result_names(self.library, node.operator)
        return zip(node.outputs, (*names, *[""] * len(node.outputs)), strict=False)

    def _branch(self, node: Branch, visible: dict[str, Tensor | Pack]) -> None:
        for condition in node.conditions:
            self._region(condition, visible, node.origin)
            self._check_condition(condition, node.origin)
        if len(node.branches) != len(node.conditions) + 1:
            self._report(f"{len(node.conditions)} conditions choose among {len(node.branches)} branches")
        for branch in node.branches:
            self._region(branch, visible, node.origin)
            self._agree("a branch gives", branch.outputs, node.outputs, node.origin, shapes=False)

    def _loop(self, node: Loop, visible: dict[str, Tensor | Pack]) -> None:
        read = (*node.carried, *node.scans, node.count if isinstance(node.count, Tensor) else None)
        for item in members(read):
            self._use(item, visible, node.origin, "a loop reads it")
        self._region(node.body, visible, node.origin)
        carried = len(node.carried)
        items = [scan if isinstance(scan, Pack) else scan[0] for scan in node.scans if scan]
        self._agree(
            "a loop starts with",
            (*node.carried, *items),
            node.body.inputs[: carried + len(items)],
            node.origin,
        )
        self._agree("a step gives", node.body.outputs[:carried], node.body.inputs[:carried], node.origin)
        outputs = [
            item if isinstance(item, Tensor | Pack) else next(members([item]), None) for item in node.outputs
        ]
        collected = [item for item in outputs if item is not None]
        if len(collected) == len(node.body.outputs):
            self._agree("a step gives", node.body.outputs, collected, node.origin)
        if node.condition is not None:
            self._region(node.condition, visible, node.origin)
            self._check_condition(node.condition, node.origin)
            self._agree(
                "the condition sees", node.condition.inputs[:carried], node.body.inputs[:carried], node.origin
            )

    def _region(self, region: Region, visible: dict[str, Tensor | Pack], origin: Origin | None) -> None:
        for item in region.inputs:
            self._define(item, visible, origin)
        self._nodes(region.nodes, visible)
        for item in region.outputs:
            self._use(item, visible, origin, "a region gives it")
        inner = [item.name for node in region.nodes for item in results_of(node)]
        for name in (*inner, *(item.name for item in region.inputs)):
            visible.pop(name, None)

    def _check_condition(self, region: Region, origin: Origin | None) -> None:
        good = len(region.outputs) == 1 and region.outputs[0].element == BOOL
        if not good or _volume(region.outputs[0].shape) not in (1, None):
            self._report(f"a condition is one bool, not {_types(region.outputs)}", origin)

    def _agree(
        self,
        words: str,
        given: Sequence[Tensor | Pack],
        wanted: Sequence[Tensor | Pack],
        origin: Origin | None,
        shapes: bool = True,
    ) -> None:
        """Tensors that take each other's place have the same types; where extents may differ, the same ranks."""
        fine = len(given) == len(wanted) and all(
            item.element == other.element and _takes(other, item.shape, shapes)
            for item, other in zip(given, wanted, strict=True)
        )
        if not fine:
            self._report(f"{words} {_types(given)} where {_types(wanted)} is wanted", origin)

    # --- constants and updates --------------------------------------------------------------------------------

    def _check_constant(self, constant: Constant) -> None:
        if not isinstance(constant.value, tuple):
            return
        volume = _volume(constant.tensor.shape)
        if volume != len(constant.value):
            self._report(
                f"constant '{constant.tensor.name}' has {len(constant.value)} values for {_type(constant.tensor)}"
            )

    def _check_updates(self, visible: dict[str, Tensor | Pack]) -> None:
        updated: set[str] = set()
        variables = set(self.graph.variables)
        for update in self.graph.updates:
            name = update.variable.name
            if update.variable not in variables:
                self._report(f"'{name}' is updated and is no variable")
            if name in updated:
                self._report(f"variable '{name}' is updated twice")
            updated.add(name)
            self._use(update.value, visible, None, f"'{name}' is updated with it")
            self._agree(f"'{name}' is updated with", (update.value,), (update.variable,), None)


def _bare(argument: Argument) -> object:
    """What must be equal of a result: its type and shape, not its name or quantization."""
    if isinstance(argument, Pack):
        return argument.element, argument.shape, argument.size
    return [(item.element, item.shape) for item in tensors(argument)]
