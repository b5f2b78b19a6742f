"""The Module DSL for editors: declarations, parameters, tensors, dimensions; values and where they come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias, cast

from lamella.base.paths import shown
from lamella.base.source import Source, Span
from lamella.bridge.module_to_graph import CompilationSettings, is_complete, module_to_graph
from lamella.lang.module import nodes as mod
from lamella.lang.module import parse, write
from lamella.lang.module.annotations.table import KINDS as ANNOTATIONS
from lamella.lang.module.instantiate import Instance
from lamella.lang.module.instantiate.messages import show
from lamella.lang.module.parse.tokens import LEXER
from lamella.lang.module.resolve import Scope, Workspace, resolve
from lamella.lang.module.words import CONFIG_TYPES, DTYPES, HEADERS, OPENERS, OPERATOR_WORDS, SECTIONS
from lamella.lsp.index import Definition, External, FileIndex, Names, Visit
from lamella.lsp.language import CheckFacts, ForeignDefinition, Word, excerpt
from lamella.lsp.skriptnd import shape_line
from lamella.pipeline.module.declarations import chosen_instances
from lamella.pipeline.module.operators import read_operators
from lamella.pipeline.module.program import read_program
from lamella.pipeline.options import Options

KEYWORDS = (
    OPENERS
    | SECTIONS
    | HEADERS
    | DTYPES
    | OPERATOR_WORDS
    | frozenset(CONFIG_TYPES)
    | {"true", "false", "None"}
)
Ports: TypeAlias = "tuple[mod.Port, ...] | None"
DECLARATION, IMPORT = "declaration", "import"
_IMPORTING = re.compile(r"^\s*(?:import|from)\s+([\w.]*)$")
_ANNOTATION = re.compile(r"@\w*$")
_QUALIFIED = re.compile(r"([\w.]+)\.\w*$")


# --- what the nodes define and use --------------------------------------------------------------------------


def _module(names: Names, node: object) -> None:
    item = cast(mod.Module, node)
    found = names.define(item.name, item.kind, item.span, item)
    with names.inside(item.span, found):
        if item.extends is not None:
            behind = Span(item.span.source, found.span.end, item.span.end)
            _use_dotted(names, item.extends, behind)
        names.walk(item.params or ())
        names.walk((item.bindings, item.constants, item.tensors))
        names.walk((item.forward, item.backward, item.annotations))
        names.walk((item.hf_mapping or (), item.hf_export or ()))


def _use_dotted(names: Names, name: str, within: Span) -> None:
    """A name that may be qualified: what stands before the last dot is a name of its own."""
    first, last = name.partition(".")[0], name.rpartition(".")[2]
    head = names.find_name(first, within)
    if head is None:
        return
    if last != name:
        names.use(first, head, External(name.rpartition(".")[0], kind=IMPORT))
    place = (
        head
        if last == name
        else names.find_name(last, Span(head.source, head.start + len(name) - len(last), within.end))
    )
    names.use(name, place, External(name, kind=DECLARATION))


def _config(names: Names, node: object) -> None:
    item = cast(mod.ConfigParam, node)
    names.define(item.name, "config", item.span, item)
    names.walk(item.default)


def _let(names: Names, node: object) -> None:
    item = cast("mod.Let | mod.RuntimeDim", node)
    names.define(item.name, "dimension" if isinstance(item, mod.RuntimeDim) else "let", item.span, item)
    if isinstance(item, mod.Let):
        names.walk(item.value)


def _constant(names: Names, node: object) -> None:
    item = cast(mod.Constant, node)
    names.define(item.name, "constant", item.span, item)
    names.walk(item.value.arguments)


def _param(names: Names, node: object) -> None:
    item = cast(mod.Param, node)
    first = item.path.parts[0].name
    if len(item.path.parts) == 1:
        kind = "parameter" if isinstance(item.type, mod.TensorType | mod.TiedType) else "instance"
        names.define(first, kind, item.span, item)
    else:
        names.use(first, names.find_name(first, item.span))
    names.walk((item.type, item.condition, item.otherwise, item.annotations))


def _path(names: Names, node: object) -> None:
    item = cast(mod.Path, node)
    first = item.parts[0].name
    names.use(first, names.find_name(first, item.span))


def _port(names: Names, node: object) -> None:
    item = cast(mod.Port, node)
    if item.name is not None:
        names.define(item.name, "tensor", item.span, item)
    names.walk((item.type, item.default, item.annotations))


def _tensor_type(names: Names, node: object) -> None:
    """A dimension that nothing else defines is bound by the first shape that names it."""
    item = cast(mod.TensorType, node)
    for dim in item.dims:
        if isinstance(dim, mod.Name) and names.scope.find(dim.id) is None:
            names.define(dim.id, "dimension", dim.span, item)
        else:
            names.walk(dim)


def _instance(names: Names, node: object) -> None:
    item = cast(mod.InstanceType, node)
    _use_dotted(names, item.module, item.span)
    for argument in item.arguments:
        if argument.name is not None:
            place = names.find_name(argument.name, argument.span)
            names.refer(place, External(item.module, argument.name, DECLARATION))
        names.walk(argument.value)


def _operation(names: Names, node: object) -> None:
    item = cast(mod.Operation, node)
    callee = item.callee
    name = _dotted(callee)
    if name is not None:
        _use_dotted(names, name, callee.span)
    else:
        names.walk(callee)
    for argument in item.arguments:
        if argument.name is not None and name is not None:
            names.refer(
                names.find_name(argument.name, argument.span), External(name, argument.name, DECLARATION)
            )
        names.walk(argument.value)
    names.walk(item.annotations)


def _dotted(value: mod.Expr) -> str | None:
    """`a` or `a.b` as a text; None where it is something else."""
    parts: list[str] = []
    while isinstance(value, mod.Member):
        parts.append(value.field)
        value = value.operand
    return ".".join([value.id, *reversed(parts)]) if isinstance(value, mod.Name) else None


def _flow(names: Names, node: object) -> None:
    item = cast(mod.Flow, node)
    names.walk((item.sources, item.steps, item.annotations))
    for target in item.targets:
        if target.name != "_":
            names.assign(target.name, "tensor", target.span, item)
        names.walk(target.annotations)


def _unnamed(names: Names, within: Span, inputs: Ports, outputs: Ports) -> None:
    """Ports without a name are called by the word that declares them."""
    for word, ports in (("in", inputs), ("out", outputs)):
        port = next((item for item in ports or () if item.name is None), None)
        if port is not None and (place := names.find_name(word, within)):
            names.define(word, "tensor", place.to(port.span), port, place)


def _way(names: Names, node: object) -> None:
    """`forward:` and `backward:` have tensors of their own."""
    item = cast("mod.Forward | mod.Backward", node)
    with names.inside(item.span):
        _unnamed(names, item.span, item.inputs, item.outputs)
        if isinstance(item, mod.Backward):
            names.walk(item.gradients)
        names.walk((item.inputs or (), item.outputs or (), item.graph or ()))
        if isinstance(item, mod.Forward):
            names.walk((item.save, item.recompute))
        names.walk(item.annotations)


def _pattern(names: Names, node: object) -> None:
    item = cast(mod.Pattern, node)
    if item.text.isidentifier():
        names.use(item.text, names.find_name(item.text, item.span))


def _primitive(names: Names, node: object) -> None:
    item = cast(mod.Primitive, node)
    found = names.define(item.name, "primitive", item.span, item)
    with names.inside(item.span, found):
        names.walk(item.params)
        for way in (item.forward, item.backward):
            if way is not None:
                with names.inside(way.span):
                    _unnamed(names, way.span, way.inputs, way.outputs)
                    names.walk((way.inputs or (), way.outputs or (), way.equations))


def _equation(names: Names, node: object) -> None:
    item = cast(mod.Equation, node)
    for target in item.targets:
        names.assign(target, "tensor", item.span, item)
    names.walk(item.value)


def _named_block(names: Names, node: object) -> None:
    item = cast("mod.Recipe | mod.Preset", node)
    names.define(item.name, type(item).__name__.lower(), item.span, item)


def _import(names: Names, node: object) -> None:
    item = cast(mod.Import, node)
    path = ".".join(item.path)
    head = names.find_name(item.path[0], item.span)
    if head is not None:
        end = min(head.start + len(path), item.span.end)
        names.refer(Span(head.source, head.start, end), External(path, kind=IMPORT))
    for wanted in item.names or ():
        place = names.find_name(wanted.name, wanted.span)
        names.refer(place, External(wanted.alias or wanted.name, kind=DECLARATION))


def _export(names: Names, node: object) -> None:
    item = cast(mod.Export, node)
    if item.name:
        _use_dotted(names, item.name, Span(item.span.source, item.span.start + len("export"), item.span.end))


def _name(names: Names, node: object) -> None:
    item = cast(mod.Name, node)
    names.use(item.id, item.span, External(item.id, kind=DECLARATION))


def _call(names: Names, node: object) -> None:
    item = cast(mod.Call, node)
    name = _dotted(item.callee)
    if name is not None:
        _use_dotted(names, name, item.callee.span)
    names.walk(item.arguments)


def _annotation(names: Names, node: object) -> None:
    item = cast(mod.Annotation, node)
    names.refer(names.find_name(item.name, item.span), External(item.name, kind="annotation"))
    names.walk(item.arguments)


def _skip(names: Names, node: object) -> None:
    """What holds no names, or names that only a whole check understands."""


VISITS: Mapping[type, Visit] = MappingProxyType(
    {
        mod.Module: _module,
        mod.ConfigParam: _config,
        mod.Let: _let,
        mod.RuntimeDim: _let,
        mod.Constant: _constant,
        mod.Param: _param,
        mod.Path: _path,
        mod.Port: _port,
        mod.TensorType: _tensor_type,
        mod.InstanceType: _instance,
        mod.Operation: _operation,
        mod.Flow: _flow,
        mod.Forward: _way,
        mod.Backward: _way,
        mod.Pattern: _pattern,
        mod.Primitive: _primitive,
        mod.Equation: _equation,
        mod.Recipe: _named_block,
        mod.Preset: _named_block,
        mod.Import: _import,
        mod.Export: _export,
        mod.Name: _name,
        mod.Call: _call,
        mod.Annotation: _annotation,
        **dict.fromkeys((mod.Setting, mod.Broken, mod.Sublayers), _skip),
    }
)


def index_text(source: Source) -> FileIndex:
    """What the names of a text mean; never raises, whatever the text is."""
    document, findings = parse(source)
    names = Names(source, LEXER, VISITS)
    names.walk(document.items)
    return names.finish(document, findings)


def canonical(index: FileIndex) -> str:
    """The canonical form of a text without syntax errors."""
    return write(cast(mod.Document, index.document))


# --- what an editor shows -----------------------------------------------------------------------------------


def describe(definition: Definition) -> str:
    """A declaration's head with its docstring; of what stands in one its line."""
    node = definition.node
    text = definition.whole.text
    if not isinstance(node, mod.Module | mod.Primitive):
        return excerpt(text)
    head = text.partition(":\n")[0]
    lines = [head]
    if isinstance(node, mod.Primitive) and (operator := node.operator()):
        lines.append(f"  impl: {operator}")
    for way, ports in _ports(node):
        lines += [f"  {way} {port.span.text.strip()}" for port in ports or ()]
    return excerpt("\n".join([*lines, *(f"# {line}" for line in node.doc.splitlines()[:4])]), 20)


def _ports(node: mod.Module | mod.Primitive) -> Iterator[tuple[str, Ports]]:
    if node.forward is not None:
        yield "in", node.forward.inputs
        yield "out", node.forward.outputs


def _scope(index: FileIndex, path: Path) -> Scope:
    """What the imports of a text bring into it."""
    workspace = Workspace()
    source = Source(shown(path), index.source.text)
    return resolve(workspace.take(source, path), workspace).scope


def locate(external: External, index: FileIndex, path: Path) -> ForeignDefinition | None:
    """Where an imported declaration or a primitive is declared."""
    if external.kind == "annotation":
        return None
    scope = _scope(index, path)
    found = scope.find(external.name) or (
        scope.standard(external.name.rpartition(".")[2]) if external.kind == IMPORT else None
    )
    if found is not None and found.unit.path is not None:
        return ForeignDefinition(found.unit.path, found.name, external.member)
    unit = next((item for item in scope.scopes if external.name == item.name), None)
    return ForeignDefinition(unit.path) if unit is not None and unit.path is not None else None


def explain(external: External) -> str:
    """The arguments of an annotation, and where it may stand."""
    kind = ANNOTATIONS.get(external.name) if external.kind == "annotation" else None
    if kind is None:
        return ""
    arguments = ", ".join(
        f"{item.name}: {' | '.join(item.choices) or item.kind}{'' if item.required else f' = {show(item.default)}'}"
        for item in kind.parameters
    )
    return f"@{kind.name}({arguments})\n# on {', '.join(kind.places)}"


def words(index: FileIndex, path: Path, before: str) -> Iterable[Word]:
    """Annotations behind `@`, paths behind `import`, what is declared elsewhere and may be named here."""
    importing, qualified = _IMPORTING.search(before), _QUALIFIED.search(before)
    if _ANNOTATION.search(before):
        yield from (Word(name, "annotation", ", ".join(kind.places)) for name, kind in ANNOTATIONS.items())
    elif importing:
        yield from _importable(importing[1])
    else:
        scope = _scope(index, path)
        prefix = f"{qualified[1]}." if qualified else ""
        for name in scope.names():
            if name.startswith(prefix) and "." not in name[len(prefix) :]:
                yield Word(name[len(prefix) :], DECLARATION)


def _importable(written: str) -> Iterator[Word]:
    """What may follow the parts of a path of the standard library."""
    standard = Workspace().standard
    parts = tuple(written.split(".")[:-1])
    if not parts:
        yield Word("std", "folder")
    elif parts == ("std",):
        yield from (Word(name, "folder") for name in standard.folders)
    elif len(parts) == 2 and parts[0] == "std":
        yield from (Word(name, DECLARATION) for name in standard.index(parts[1:]))


# --- what a whole check knows -------------------------------------------------------------------------------


def find_facts(path: Path) -> CheckFacts:
    """Values and where they come from, shapes of parameters and tensors: of the declarations that need no values."""
    options = Options()
    program = read_program(path, options)
    library, _ = read_operators(program, options)
    names: dict[str, tuple[str, ...]] = {}
    for instance in chosen_instances(program, options):
        names |= dict(_instance_lines(instance))
        if is_complete(instance):
            compiled = module_to_graph(instance, CompilationSettings(library=library, once=True))
            for name, tensor in compiled.names:
                names.setdefault(f"{instance.name}/{name}", (shape_line(tensor),))
    return CheckFacts(names)


def _instance_lines(instance: Instance) -> Iterable[tuple[str, tuple[str, ...]]]:
    owner = instance.name
    for name, known in instance.values.items():
        yield f"{owner}/{name}", (f"{name} = {show(known.value)} ({known.source})",)
    for name, slot in instance.tensors.items():
        shape = f"{slot.dtype or ''}[{', '.join(map(str, slot.dims))}]"
        tied = f", tied to {slot.tied}" if slot.tied is not None else ""
        yield f"{owner}/{name}", (f"{shape}{tied}",)
