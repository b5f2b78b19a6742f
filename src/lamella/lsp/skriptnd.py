"""SkriptND for editors: operators and graphs, their tensors, attributes and extents; formulas; composed shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import cast

from lamella.base.diagnostic import LamellaError
from lamella.base.paths import shipped
from lamella.base.source import ShippedSource, Source, Span
from lamella.graph.nodes import Argument, Graph, Tensor, tensors
from lamella.lang.skriptnd import nodes as sk
from lamella.lang.skriptnd import parse, write
from lamella.lang.skriptnd.parse.tokens import LEXER
from lamella.lang.skriptnd.words import BLOCKS, BUILT_INS, TYPE_WORDS
from lamella.lang.skriptnd.words import KEYWORDS as RESERVED
from lamella.lsp.index import Definition, External, FileIndex, Names, Visit
from lamella.lsp.language import CheckFacts, ForeignDefinition, Word, excerpt
from lamella.ops.library import SPECIFICATION, Library
from lamella.ops.modules import MAIN
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.compose import compose_graph, read_module
from lamella.pipeline.skriptnd.config import config_for, missing_config
from lamella.pipeline.skriptnd.describe import signature

KEYWORDS = RESERVED | {f"@{name}" for name in BLOCKS}
OPERATOR, MODULE = "operator", "namespace"
_QUALIFIED = re.compile(r"(\w+(?:\.\w+)*)\.\w*$")
_IMPORTING = re.compile(r"^\s*import\b[^;]*$")
_ATTRIBUTE = re.compile(r"([A-Za-z_][\w.]*)\s*(?:<[^<>]*>)?\{(?:[^{}()]*,)?\s*\w*$")


# --- what the nodes define and use --------------------------------------------------------------------------


def _operator(names: Names, node: object) -> None:
    item = cast(sk.Operator, node)
    found = names.define(item.name, "graph" if item.graph else OPERATOR, item.span, item)
    with names.inside(item.span, found):
        for section in item.sections:
            names.walk(section.items)


def _dtype(names: Names, node: object) -> None:
    item = cast(sk.Dtype, node)
    names.define(item.name, "type", item.span, item)


def _parameter(names: Names, node: object) -> None:
    item = cast(sk.Parameter, node)
    names.define(item.name, "tensor" if item.type.shape is not None else "attribute", item.span, item)
    names.walk(item.type)
    with names.inside(item.span):
        names.walk((item.bounds, item.value))


def _type(names: Names, node: object) -> None:
    item = cast(sk.TypeSpec, node)
    if item.name not in TYPE_WORDS:
        names.use(item.name, names.find_name(item.name, item.span), External(item.name, kind="type"))
    if item.rank is not None:
        _declare_extent(names, item.rank, item.span, item)
    names.walk((item.shape or (), item.pack))


def _extent(names: Names, node: object) -> None:
    """The first shape that names an extent defines it."""
    item = cast(sk.Extent, node)
    if isinstance(item.value, sk.Name):
        _declare_extent(names, item.value.id, item.value.span, item)
    else:
        names.walk(item.value)
    names.walk((item.bound, item.pack))


def _pack(names: Names, node: object) -> None:
    item = cast(sk.Pack, node)
    if isinstance(item.length, sk.Name):
        _declare_extent(names, item.length.id, item.length.span, item)
    else:
        names.walk(item.length)
    names.walk(item.bound)


def _declare_extent(names: Names, name: str, span: Span, node: object) -> None:
    names.assign(name, "extent", span, node)


def _result(names: Names, node: object) -> None:
    item = cast(sk.Result, node)
    names.assign(item.name, "tensor", item.span, item)
    names.walk((item.type, item.pack))


def _using(names: Names, node: object) -> None:
    item = cast(sk.Using, node)
    names.walk(item.value)
    if isinstance(item.target, sk.Result):
        names.define(item.target.name, "symbol", item.span, item)
        names.walk((item.target.type, item.target.pack))
    else:
        names.walk(item.target)


def _component(names: Names, node: object) -> None:
    """A step: what it computes is known behind it, and nothing of it before."""
    item = cast(sk.Component, node)
    names.walk(item.value)
    for result in item.results:
        if isinstance(result, sk.Result):
            names.assign(result.name, "tensor", result.span, item)
            names.walk((result.type, result.pack))
        else:
            names.walk(result)


def _block(names: Names, node: object) -> None:
    item = cast(sk.Block, node)
    with names.inside(item.span):
        names.walk((item.components, item.results))


def _loop(names: Names, node: object) -> None:
    item = cast(sk.Loop, node)
    entered: tuple[sk.Carried | sk.Scan, ...] = (*item.carried, *item.scans)
    names.walk(tuple(part.value for part in entered))
    with names.inside(item.span):
        for part in entered:
            names.define(part.name, "variable", part.span, part)
        names.walk((item.iteration, item.before, item.body, item.after))


def _iteration(names: Names, node: object) -> None:
    item = cast(sk.Iteration, node)
    if item.index is not None:
        names.define(item.index, "index", item.span, item)
    names.walk(item.count)


def _bound(names: Names, node: object) -> None:
    item = cast(sk.Bound, node)
    names.define(item.index, "index", item.span, item)
    names.walk(item.limit)


def _lowering(names: Names, node: object) -> None:
    """A formula: its indices are its own, those that no bound names included."""
    item = cast(sk.Lowering, node)
    with names.inside(item.span):
        names.walk((item.unroll, item.bounds))
        for local in item.locals:
            names.define(local.name, "variable", local.span, local)
            names.walk(local.value)
        for index in item.target.indices:
            inner = index.operand if isinstance(index, sk.Expand) else index
            if isinstance(inner, sk.Name) and names.scope.find(inner.id) is None:
                names.define(inner.id, "index", inner.span, item)
        names.walk((item.target, item.value, item.condition))


def _access(names: Names, node: object) -> None:
    item = cast(sk.Access, node)
    names.use(item.tensor, names.find_name(item.tensor, item.span))
    names.walk((item.item, item.indices))


def _named(names: Names, node: object) -> None:
    """`x.shape` and `?x`."""
    item = cast("sk.Member | sk.NullTest", node)
    names.use(item.name, names.find_name(item.name, item.span))


def _name(names: Names, node: object) -> None:
    item = cast(sk.Name, node)
    names.use(item.id, item.span)


def _cast(names: Names, node: object) -> None:
    item = cast(sk.Cast, node)
    if item.type not in TYPE_WORDS:
        names.use(item.type, names.find_name(item.type, item.span), External(item.type, kind="type"))
    names.walk(item.operand)


def _invocation(names: Names, node: object) -> None:
    item = cast(sk.Invocation, node)
    _use_operator(names, item.operator, item.span)
    for attribute in item.attributes:
        external = External(item.operator, attribute.name, "attribute")
        names.refer(names.find_name(attribute.name, attribute.span), external)
        names.walk(attribute.value)
    names.walk(item.arguments)


def _use_operator(names: Names, operator: str, within: Span) -> None:
    """`conv` of this file, or `nn.conv`: the module and the operator are two names."""
    module, _, last = operator.rpartition(".")
    if not module:
        names.use(last, names.find_name(last, within), External(last, kind=OPERATOR))
        return
    head = names.find_name(operator.partition(".")[0], within)
    if head is None:
        return
    names.refer(
        Span(head.source, head.start, min(head.start + len(module), within.end)),
        External(module, kind=MODULE),
    )
    place = names.find_name(last, Span(head.source, head.start + len(module), within.end))
    names.refer(place, External(operator, kind=OPERATOR))


def _quantization(names: Names, node: object) -> None:
    item = cast(sk.Quantization, node)
    first = item.tensor.partition(".")[0]
    names.use(first, names.find_name(first, item.span))
    behind = Span(item.span.source, item.span.start + len(item.tensor), item.span.end)
    _use_operator(names, item.operator, behind)
    names.walk(tuple(attribute.value for attribute in item.attributes))


def _import(names: Names, node: object) -> None:
    item = cast(sk.Import, node)
    for module in item.modules:
        head = names.find_name(module.partition(".")[0], item.span)
        if head is not None:
            end = min(head.start + len(module), item.span.end)
            names.refer(Span(head.source, head.start, end), External(module, kind=MODULE))


VISITS: Mapping[type, Visit] = MappingProxyType(
    {
        sk.Operator: _operator,
        sk.Dtype: _dtype,
        sk.Parameter: _parameter,
        sk.TypeSpec: _type,
        sk.Extent: _extent,
        sk.Pack: _pack,
        sk.Result: _result,
        sk.Using: _using,
        sk.Component: _component,
        sk.Block: _block,
        sk.Loop: _loop,
        sk.Iteration: _iteration,
        sk.Bound: _bound,
        sk.Lowering: _lowering,
        sk.Access: _access,
        sk.Member: _named,
        sk.NullTest: _named,
        sk.Name: _name,
        sk.Cast: _cast,
        sk.Invocation: _invocation,
        sk.Quantization: _quantization,
        sk.Import: _import,
    }
)


def index_text(source: Source) -> FileIndex:
    """What the names of a text mean; never raises, whatever the text is."""
    document, findings = parse(source)
    names = Names(source, LEXER, VISITS)
    names.walk((document.imports, document.declarations))
    return names.finish(document, tuple(findings))


def canonical(index: FileIndex) -> str:
    """The canonical form of a text without syntax errors."""
    return write(cast(sk.Document, index.document))


# --- what an editor shows -----------------------------------------------------------------------------------


def describe(definition: Definition) -> str:
    """A declaration; of an operator what it takes and gives, and its formula or composition."""
    node = definition.node
    if not isinstance(node, sk.Operator):
        return excerpt(definition.whole.text)
    word = "graph" if node.graph else OPERATOR
    parts = [f"{word} {signature(node)}"]
    for section in node.sections:
        if section.name in ("lower", "compose"):
            parts.append(excerpt(section.span.text))
    return "\n".join(parts)


def locate(external: External, index: FileIndex, path: Path) -> ForeignDefinition | None:
    """Where a module or an operator of another module is defined: a file of the model, or of the library."""
    if external.kind == "type" or not external.kind:
        return None
    library = Library(SPECIFICATION)
    try:
        library.load(path)
    except LamellaError:
        return None
    if external.kind == MODULE:
        return _module_place(external.name, library)
    operator = library.find_operator(library.resolve(external.name, MAIN))
    if operator is None:
        return None
    found = _path_of(operator.span.source)
    return None if found is None else ForeignDefinition(found, operator.name, external.member)


def _module_place(name: str, library: Library) -> ForeignDefinition | None:
    document = library.documents.get(name)
    if document is not None:
        found = _path_of(document.span.source)
        return None if found is None else ForeignDefinition(found)
    path = shipped("ops") / f"{name}.sknd"
    return ForeignDefinition(path) if name in library.standard and path.is_file() else None


def _path_of(source: Source) -> Path | None:
    """The file of a text; derived operators have none."""
    if not source.name.endswith(".sknd"):
        return None
    return shipped("ops").parent / source.name if isinstance(source, ShippedSource) else Path(source.name)


def explain(external: External) -> str:
    """Nothing has a name that no text defines."""
    return ""


def words(index: FileIndex, path: Path, before: str) -> Iterable[Word]:
    """Modules behind `import`, operators behind the name of a module, attributes in braces, built-in functions."""
    library = Library(SPECIFICATION)
    qualified, called = _QUALIFIED.search(before), _ATTRIBUTE.search(before)
    if _IMPORTING.search(before):
        yield from (Word(name, MODULE) for name in sorted(library.standard))
    elif qualified:
        yield from _operators(qualified[1], library, path)
    elif called:
        yield from _attributes(called[1], library, path)
    else:
        document = cast(sk.Document, index.document)
        yield from (Word(name, MODULE) for name in document.modules)
        yield from (Word(name, "function") for name in sorted(BUILT_INS))


def _loaded(library: Library, path: Path) -> Library:
    # A file that cannot be read sees the shipped library all the same.
    with suppress(LamellaError):
        library.load(path)
    return library


def _operators(module: str, library: Library, path: Path) -> Iterator[Word]:
    for name in _loaded(library, path).operators(library.resolve(f"{module}.x", MAIN).rpartition(".")[0]):
        if not name.startswith("_"):
            yield Word(name, OPERATOR, module)


def _attributes(operator: str, library: Library, path: Path) -> Iterator[Word]:
    found = _loaded(library, path).find_operator(library.resolve(operator, MAIN))
    for item in found.parameters("attrib") if found is not None else ():
        yield Word(item.name, "attribute", item.span.text)


# --- what a whole check knows -------------------------------------------------------------------------------


def find_facts(path: Path) -> CheckFacts:
    """The element type and the shape of every tensor of the graphs that need no values."""
    options = Options()
    read = read_module(path, options)
    names: dict[str, tuple[str, ...]] = {}
    for definition in read.module.graphs if read.sound else ():
        operator = definition.operator
        config = config_for(operator, options.config)
        if missing_config(operator, config):
            continue
        graph, _ = compose_graph(read.module, definition, replace(options, config=config))
        if graph is not None:
            names |= _tensor_lines(graph, operator)
    return CheckFacts(names)


def _tensor_lines(graph: Graph, operator: sk.Operator) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {
        f"{operator.name}/{tensor.name}": (shape_line(tensor),) for tensor in _all_tensors(graph)
    }
    for parameter in operator.parameters("input"):
        tensor = found.get(f"{operator.name}/{parameter.name}")
        shapes = next((item.shape for item in _all_tensors(graph) if item.name == parameter.name), None)
        if tensor is None or shapes is None or len(parameter.type.shape or ()) != len(shapes):
            continue
        for place, (extent, value) in enumerate(zip(parameter.type.shape or (), shapes, strict=True)):
            if isinstance(extent.value, sk.Name) and extent.pack is None:
                line = f"{extent.value.id} = {value}, extent {place} of input {parameter.name}"
                found.setdefault(f"{operator.name}/{extent.value.id}", (line,))
    return found


def _all_tensors(graph: Graph) -> Iterator[Tensor]:
    arguments: list[Argument] = [*graph.inputs, *graph.outputs, *graph.variables]
    arguments += [item.tensor for item in graph.constants]
    for operation in graph.operations():
        arguments += operation.outputs
    for argument in arguments:
        yield from tensors(argument)


def shape_line(tensor: Tensor) -> str:
    """`f32[1, 8, 32, 32]`, and how it is quantised."""
    quant = f", {tensor.quantization.operator}" if tensor.quantization is not None else ""
    return f"{tensor.element}[{', '.join(map(str, tensor.shape))}]{quant}"
