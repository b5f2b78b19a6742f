"""What is in a SkriptND model, and what an operator of the library says: the text behind `lamella show`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lamella.base.diagnostic import errors, printable
from lamella.base.dim import Extent, bounds
from lamella.base.errors import InputError, Unsupported
from lamella.base.paths import is_there, shown
from lamella.base.source import EMPTY_SOURCE
from lamella.base.suggest import nearest
from lamella.graph.nodes import Argument, Branch, Graph, Loop, Operation, Pack, Tensor, Value, tensors, walk
from lamella.lang.skriptnd.check.definitions import invoked
from lamella.lang.skriptnd.nodes import Document, Operator
from lamella.lang.skriptnd.write import type_text as write_type
from lamella.lang.skriptnd.write import write, write_expression
from lamella.ops.gradient import STOPPING, as_document, derive, with_formulas
from lamella.ops.instance import Definition, Repeated, singles
from lamella.ops.library import SPECIFICATION, Library
from lamella.pipeline.languages import Description
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.compose import Read, chosen_graph, compose_graph, read_module
from lamella.pipeline.skriptnd.config import SHOWN, missing_config, require_config

VARIABLES = 8
"""Variables that are shown by name."""


def describe(name: str, options: Options) -> Description:
    """A model, a module of the library, or one of its operators by its qualified name."""
    path = Path(name)
    return describe_model(path, options) if is_there(path) or name == "-" else describe_library(name, options)


def describe_library(name: str, options: Options) -> Description:
    """A module of the library with its operators, or one operator as its text defines it."""
    library = Library(options.dialect or SPECIFICATION, None, options.limits)
    if name in library.standard:
        return _describe_module(name, library)
    definition = library.find(name)
    if definition is None:
        raise _not_found(name, library)
    if options.gradient:
        return _describe_gradient(name, definition, library)
    text = write(Document((), (definition.operator,))).rstrip("\n")
    data = {"kind": definition.operator.kind, "name": name, "text": text}
    source = definition.operator.span.source
    place = "derived from formulas" if source is EMPTY_SOURCE else source.name
    return Description(f"# {definition.operator.kind}, {place}\n{text}", data)


def _describe_gradient(name: str, definition: Definition, library: Library) -> Description:
    """The backward operators that are derived from the formulas of an operator, or of those that it is made of."""
    if name in STOPPING:
        text = f"# {name}: gradients stop here"
        return Description(text, {"kind": "gradient", "name": name, "text": text})
    parts = list(dict.fromkeys(_formulas_of(name, definition, library)))
    texts: list[str] = []
    for part, operator in parts:
        module, _, _ = part.rpartition(".")
        for item in operator.parameters("input"):
            try:
                found = derive(with_formulas(part, operator), item.name)
            except Unsupported as problem:
                texts.append(f"# {part}, {item.name}: no gradient: {problem}")
                continue
            if found is None:
                texts.append(f"# {part}, {item.name}: nothing depends on it smoothly")
            else:
                head = f"# gradient of {part} with respect to {item.name}, derived from ops/{module}.sknd"
                texts.append(f"{head}\n{write(as_document([found])).rstrip()}")
    through = f"# {name} is differentiated through its parts: {', '.join(item for item, _ in parts)}\n\n"
    text = ("" if definition.operator.kind == "lower" else through) + "\n\n".join(texts)
    return Description(text, {"kind": "gradient", "name": name, "text": text})


def _formulas_of(name: str, definition: Definition, library: Library) -> Iterator[tuple[str, Operator]]:
    """The operators with formulas that an operator consists of: itself, or what its composition calls."""
    if definition.operator.kind != "compose":
        yield name, definition.operator
        return
    module = name.rpartition(".")[0]
    for called in invoked(definition.operator):
        inner = library.resolve(called, module)
        found = library.find(inner)
        if found is not None:
            yield from _formulas_of(inner, found, library)


def _describe_module(name: str, library: Library) -> Description:
    """The operators of a module on a line each; those that others are made of are not shown."""
    names = [item for item in library.operators(name) if not item.startswith("_")]
    found = [item for item in map(library.find_operator, (f"{name}.{word}" for word in names)) if item]
    lines = [f"{name}: module of the library, {_count(len(found), 'operator')}"]
    lines += [f"  {signature(item)}" for item in found]
    return Description("\n".join(lines), {"kind": "module", "name": name, "operators": names})


def signature(operator: Operator) -> str:
    """What an operator takes and gives, on one line."""
    attributes = ", ".join(_attributes(operator))
    inputs, outputs = (
        ", ".join(f"{item.name}: {write_type(item.type)}" for item in operator.parameters(section))
        for section in ("input", "output")
    )
    return f"{operator.name}{f'{{{attributes}}}' if attributes else ''}({inputs}) -> {outputs}"


def _not_found(name: str, library: Library) -> InputError:
    """That nothing has this name, with what it may have been meant for."""
    module, _, word = name.rpartition(".")
    near = nearest(word, library.operators(module), 3) if module in library.standard else []
    if near:
        hint = f"close to it: {', '.join(f'{module}.{item}' for item in near)}"
    else:
        hint = f"`lamella show MODULE` lists operators; modules are: {', '.join(sorted(library.standard))}"
    return InputError(f"there is no file and no operator '{printable(name, SHOWN)}'", hint=hint)


def describe_model(path: Path, options: Options) -> Description:
    """The graphs of a model with their attributes; the chosen one composed."""
    read = read_module(path, options)
    lines = [
        f"{printable(shown(path))}: SkriptND, {_count(len(read.module.document.declarations), 'definition')}"
    ]
    lines += [f"  {line}" for line in _declarations(read)]
    data: dict[str, object] = {"file": shown(path), "kind": "model", "graphs": _graphs_json(read)}
    findings = list(read.findings)
    if read.sound and (read.module.graphs or options.model):
        operator = chosen_graph(read.module, options).operator
        require_config(read.module.graphs, options.config)
        missing = missing_config(operator, options.config)
        if missing and not options.model:
            lines += ["", f"graph {operator.name} needs {' '.join(f'--set {name}=…' for name in missing)}"]
        else:
            graph, found = compose_graph(read.module, chosen_graph(read.module, options), options)
            findings += found
            if graph is not None:
                lines += ["", *describe_graph(graph)]
                data |= {"graph": graph_to_json(graph)}
    return Description("\n".join(lines), data, tuple(errors(findings)))


def _declarations(read: Read) -> Iterator[str]:
    """Every graph and operator of the main module on a line."""
    for item in read.module.document.declarations:
        word = "graph" if item.graph else "operator"
        attributes = ", ".join(_attributes(item))
        yield f"{word} {item.name}{f'  {{{attributes}}}' if attributes else ''}"


def _attributes(operator: Operator) -> Iterator[str]:
    for item in operator.parameters("attrib"):
        yield f"{item.name}={write_expression(item.value)}" if item.value is not None else item.name


def _graphs_json(read: Read) -> list[dict[str, object]]:
    return [
        {"name": item.operator.name, "attributes": list(_attributes(item.operator))}
        for item in read.module.graphs
    ]


def describe_graph(graph: Graph) -> Iterator[str]:
    """A composed graph in one screen."""
    yield f"graph {graph.name}"
    for title, arguments in (("input", graph.inputs), ("output", graph.outputs)):
        for argument in arguments:
            yield f"  {title:9}{type_text(argument)}"
    known = [_elements(item) for item in graph.variables]
    if known:
        yield f"  {_count(len(known), 'variable')}, {_count(sum(known), 'parameter')}"
        yield from (f"    {type_text(item)}" for item in graph.variables[:VARIABLES])
        if len(graph.variables) > VARIABLES:
            yield f"    … and {len(graph.variables) - VARIABLES} more; --json lists all"
    counts = Counter(_operator(node) for node in walk(graph.nodes))
    yield f"  {_count(sum(counts.values()), 'operation')}"
    for name, count in counts.most_common():
        yield f"    {count:>5} × {name}"
    for item in _quantized(graph):
        yield f"  quantised {item}"


def _operator(node: Operation | Branch | Loop) -> str:
    return node.operator if isinstance(node, Operation) else "if" if isinstance(node, Branch) else "do"


def _quantized(graph: Graph) -> Iterator[str]:
    made = (item for node in walk(graph.nodes) for argument in node.outputs for item in tensors(argument))
    given = (item for argument in graph.inputs for item in tensors(argument))
    for tensor in (*given, *graph.variables, *made):
        if tensor.quantization is not None:
            values = ", ".join(
                f"{key}={value_text(value)}"
                for key, value in tensor.quantization.attributes
                if value is not None
            )
            yield f"{tensor.name}: {tensor.quantization.operator}{{{values}}}"


def _elements(tensor: Tensor) -> int:
    count = 1
    for extent in tensor.shape:
        count *= bounds(extent)[1]
    return count


def type_text(argument: Argument) -> str:
    """A tensor, or a pack of them, as `name: f32[1, 3, n ≤ 224]`."""
    if argument is None:
        return "(none)"
    if isinstance(argument, tuple):
        return _pack_text(argument)
    extents = ", ".join(_extent_text(extent) for extent in argument.shape)
    text = f"{printable(argument.name)}: {argument.element.name}[{extents}]"
    return f"{text}..({_extent_text(argument.size)})" if isinstance(argument, Pack) else text


def _pack_text(pack: tuple[Tensor, ...]) -> str:
    """The tensors of a pack; where all have one type it is said once."""
    types = {(item.element, item.shape) for item in pack}
    if len(pack) < 2 or len(types) > 1:
        return ", ".join(type_text(item) for item in pack) or "(an empty pack)"
    between = ", " if len(pack) == 2 else " … "
    return f"{printable(pack[0].name)}{between}{type_text(pack[-1])}"


def value_text(value: Value) -> str:
    """A value as the language writes it."""
    if isinstance(value, tuple):
        uniform = len(value) > 1 and all(item == value[0] for item in value)
        return value_text(value[0]) if uniform else f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, Repeated):
        item, length = singles(value)
        return f"[{value_text(item)} ..({length})]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{printable(value)}"' if isinstance(value, str) else str(value)


def _extent_text(extent: Extent) -> str:
    if isinstance(extent, int):
        return str(extent)
    return f"{extent} ≤ {bounds(extent)[1]}"


def graph_to_json(graph: Graph) -> dict[str, object]:
    """The same as data."""
    return {
        "name": graph.name,
        "inputs": [type_text(item) for item in graph.inputs],
        "outputs": [type_text(item) for item in graph.outputs],
        "variables": {item.name: [bounds(extent)[1] for extent in item.shape] for item in graph.variables},
        "operations": Counter(_operator(node) for node in walk(graph.nodes)),
        "quantized": list(_quantized(graph)),
    }


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' * (number != 1)}"
