"""Short ways to compose a text and to look at what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.dtype import ElementType
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.graph.compose import Composed, compose
from lamella.graph.nodes import Argument, Branch, Graph, Loop, Node, Operation, Pack, tensors
from lamella.graph.verify import verify
from lamella.ops.instance import Value
from lamella.ops.library import Library, LoadedModule

IMPORTS = "import layer, layout, math, nn, quant;\n"


@cache
def library() -> Library:
    """One library for all texts, so that its operators are read once; the last text is its main module."""
    return Library()


def load(text: str) -> LoadedModule:
    """A main module with the usual imports, read without findings."""
    module = library().load(Source("main.sknd", IMPORTS + text))
    assert not errors(module.findings), "\n".join(map(str, module.findings))
    return module


def attempt(
    text: str,
    graph: str | None = None,
    attributes: Mapping[str, Value] | None = None,
    types: Mapping[str, ElementType] | None = None,
    keep: Callable[[str], bool] | None = None,
    limits: Limits | None = None,
) -> Composed:
    """Compose the text, whatever comes out."""
    return compose(load(text), graph, attributes or {}, types or {}, keep, limits)


def build(
    text: str,
    graph: str | None = None,
    attributes: Mapping[str, Value] | None = None,
    types: Mapping[str, ElementType] | None = None,
    keep: Callable[[str], bool] | None = None,
) -> Graph:
    """Compose the text, which must go well."""
    found = attempt(text, graph, attributes, types, keep)
    assert found.graph is not None, "\n".join(map(str, found.findings))
    wrong = verify(found.graph, library())
    assert not wrong, "\n".join(map(str, wrong))
    return found.graph


def findings(text: str, limits: Limits | None = None) -> list[Diagnostic]:
    """What is found while the text is composed; there is no graph then."""
    found = attempt(text, limits=limits)
    assert found.graph is None
    assert found.findings
    return list(found.findings)


def codes(text: str, limits: Limits | None = None) -> list[str]:
    """The codes of what is found."""
    return [item.code for item in findings(text, limits)]


def flow(components: str, inputs: str = "x: real[4];", outputs: str = "y: real[4];") -> str:
    """A graph with these components."""
    return f"graph G {{\n@input {{ {inputs} }}\n@output {{ {outputs} }}\n@compose {{\n{components}\n}}\n}}\n"


def name(argument: Argument) -> object:
    """The name of an argument, the names of a pack of them."""
    if argument is None or isinstance(argument, Pack):
        return None if argument is None else argument.name
    return [item.name for item in argument] if isinstance(argument, tuple) else argument.name


def line(node: Node) -> str:
    """A node in one line."""
    outputs = ", ".join(str(name(item)) for item in node.outputs)
    if isinstance(node, Operation):
        return f"{outputs} = {node.operator}({', '.join(str(name(item)) for item in node.inputs)})"
    return f"{outputs} = {'if' if isinstance(node, Branch) else 'do'}"


def lines(graph: Graph) -> list[str]:
    """The nodes of a graph, one line each."""
    return [line(node) for node in graph.nodes]


def only_branch(graph: Graph) -> Branch:
    """The one branch of a graph."""
    (found,) = [node for node in graph.nodes if isinstance(node, Branch)]
    return found


def only_loop(graph: Graph) -> Loop:
    """The one loop of a graph."""
    (found,) = [node for node in graph.nodes if isinstance(node, Loop)]
    return found


def elements(arguments: Sequence[Argument]) -> list[ElementType]:
    """The element types of the tensors of some arguments."""
    return [item.element for argument in arguments for item in tensors(argument)]


def operation(graph: Graph, number: int = 0) -> Operation:
    """One operation of a graph."""
    found = graph.nodes[number]
    assert isinstance(found, Operation)
    return found


def shapes(argument: Argument) -> list[list[str]]:
    """The extents of each tensor of an argument."""
    return [[str(extent) for extent in item.shape] for item in tensors(argument)]
