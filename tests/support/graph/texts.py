"""Models from text and back, for tests of what is done to graphs."""

from __future__ import annotations

from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.bridge.graph_to_skriptnd import graph_to_skriptnd
from lamella.graph.compose import compose
from lamella.graph.model import Model
from lamella.lang.skriptnd import check, write
from lamella.ops.library import Library

IMPORTS = "import algo, aten, gradient, image, layer, layout, linalg, llm, math, misc, nn, quant, rand;\n"


def model_of(text: str) -> Model:
    """The model of a text; it must be right."""
    library = Library()
    module = library.load(Source("main.sknd", text))
    composed = compose(module)
    findings = [*module.findings, *check(module.document, "main", library.find_operator), *composed.findings]
    assert not errors(findings), "\n".join(map(str, findings))
    assert composed.graph is not None
    return Model(composed.graph, library)


def graph_text(inputs: str, body: str, outputs: str = "y: real", blocks: str = "") -> str:
    """A whole text around the declarations and the body of a graph."""
    lines = [f"@input {{ {inputs} }}", f"@output {{ {outputs}; }}", blocks, f"@compose {{ {body} }}"]
    return f"{IMPORTS}graph G {{\n" + "\n".join(lines) + "\n}\n"


def small(inputs: str, body: str, outputs: str = "y: real", blocks: str = "") -> Model:
    """The model of a graph with these declarations and this body."""
    return model_of(graph_text(inputs, body, outputs, blocks))


def written(model: Model) -> str:
    """The text of a model."""
    return write(graph_to_skriptnd(model)["main"])


def body_of(model: Model) -> list[str]:
    """The components of a model's text, line by line."""
    lines = [line.strip() for line in written(model).splitlines()]
    start = lines.index("@compose {") + 1
    return lines[start : lines.index("}", start)]
