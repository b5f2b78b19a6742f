"""NEM for editors: buffers, regions, tasks, loops, devices and type families; what a task costs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import cast

from lamella.base.limits import DEFAULT
from lamella.base.paths import Refusal, default_root, shipped
from lamella.base.source import Source, Span
from lamella.lang.nem import nodes as nem
from lamella.lang.nem import parse, write
from lamella.lang.nem.documents import DEVICE_ALIASES, SHIPPED, load
from lamella.lang.nem.documents import locate as locate_file
from lamella.lang.nem.parse.tokens import LEXER
from lamella.lang.nem.registry import Opcode, OperandSpec, load_registry
from lamella.lang.nem.resolved import Region, Task
from lamella.lang.nem.words import ELEMENTS, LEVELS, NOTE_DECORATORS, UNITS
from lamella.lang.nem.words import KEYWORDS as RESERVED
from lamella.lsp.index import Definition, External, FileIndex, Names, Visit
from lamella.lsp.language import CheckFacts, ForeignDefinition, Word, excerpt
from lamella.pipeline.nem.program import read_program
from lamella.plan.timing.cost import MachineModel, cost_of

KEYWORDS = RESERVED | ELEMENTS | LEVELS | UNITS
OPCODE, FILE, DEVICE = "opcode", "file", "device"
_SHIPPED = "lamella/devices/"
_TASK = re.compile(r"\b(\w+)\.(?:async|sync)\b.*\bout\b")


# --- what the nodes define and use --------------------------------------------------------------------------


def _name(names: Names, node: object) -> None:
    item = cast(nem.Name, node)
    names.use(item.id, item.span)


def _defined(names: Names, node: object) -> None:
    """`const`, `let`, `buffer` and named regions."""
    item = cast("nem.Const | nem.Let | nem.RegionDef | nem.Buffer", node)
    kind = {nem.Const: "constant", nem.Let: "constant", nem.RegionDef: "region"}.get(type(item), "buffer")
    names.define(item.name.id, kind, item.span, item, item.name.span)
    match item:
        case nem.RegionDef():
            names.walk((item.region, item.decorators))
        case nem.Buffer():
            names.walk((item.index, item.size, item.align, item.decorators, item.stored))
        case _:
            names.walk(item.value)


def _task(names: Names, node: object) -> None:
    item = cast(nem.Task, node)
    if item.token is not None:
        names.define(item.token.id, "task", item.span, item, item.token.span)
    names.refer(item.opcode.span, External(item.opcode.id, kind=OPCODE))
    names.walk((item.inputs, item.outputs, item.deps, item.decorators))
    names.walk(tuple(attribute.value for attribute in item.attributes))


def _loop(names: Names, node: object) -> None:
    item = cast(nem.Loop, node)
    names.walk((item.first, item.last, item.decorators))
    with names.inside(item.span):
        names.define(item.variable.id, "variable", item.span, item, item.variable.span)
        names.walk(item.body)


def _region(names: Names, node: object) -> None:
    item = cast(nem.Region, node)
    names.use(item.buffer.id, item.buffer.span)
    # Most places and sizes are numbers, of which there is nothing to say.
    for value in (item.offset, item.extent):
        if type(value) is not nem.Integer:
            names.walk(value)
    if item.type is not None:
        sizes = (*(item.type.shape or ()), *(item.type.strides or ()))
        names.walk(tuple(value for value in sizes if type(value) is not nem.Integer))
        for attribute in item.type.quant.fields if item.type.quant is not None else ():
            names.walk(attribute.value)


def _declaration(names: Names, node: object) -> None:
    item = cast("nem.Device | nem.TypeFamily", node)
    kind = DEVICE if isinstance(item, nem.Device) else "family"
    found = names.define(item.name.id, kind, item.span, item, item.name.span)
    with names.inside(item.span, found):
        if isinstance(item, nem.Device):
            if item.parent is not None:
                names.use(item.parent.id, item.parent.span, External(item.parent.id, kind=DEVICE))
            names.walk((item.mandatory or (), item.extended or ()))


def _variant(names: Names, node: object) -> None:
    item = cast(nem.VariantRef, node)
    end = item.span.start + len(item.family)
    if item.span.source.text[item.span.start : end] == item.family:
        span = Span(item.span.source, item.span.start, end)
        names.use(item.family, span, External(item.family, kind="family"))


def _target(names: Names, node: object) -> None:
    item = cast(nem.DeviceRef, node)
    if isinstance(item.target, nem.Name):
        names.use(item.target.id, item.target.span, External(item.target.id, kind=DEVICE))
    else:
        names.refer(item.target.span, External(item.target.value, kind=FILE))


def _include(names: Names, node: object) -> None:
    item = cast(nem.Include, node)
    names.refer(item.path.span, External(item.path.value, kind=FILE))


def _broken(names: Names, node: object) -> None:
    """What a statement that cannot be read would have defined."""
    item = cast(nem.Broken, node)
    for name in item.names:
        names.define(name.id, "variable", item.span, item, name.span)


def _decorator(names: Names, node: object) -> None:
    """What @debug and @profile call a thing is no name of the program."""
    item = cast(nem.Decorator, node)
    if item.name not in NOTE_DECORATORS:
        names.walk(item.arguments)


def _attribute(names: Names, node: object) -> None:
    names.walk(cast(nem.Attribute, node).value)


VISITS: Mapping[type, Visit] = MappingProxyType(
    {
        nem.Name: _name,
        **dict.fromkeys((nem.Const, nem.Let, nem.RegionDef, nem.Buffer), _defined),
        nem.Task: _task,
        nem.Loop: _loop,
        nem.Region: _region,
        nem.Device: _declaration,
        nem.TypeFamily: _declaration,
        nem.VariantRef: _variant,
        nem.DeviceRef: _target,
        nem.Include: _include,
        nem.Attribute: _attribute,
        nem.Decorator: _decorator,
        nem.Broken: _broken,
    }
)


def index_text(source: Source) -> FileIndex:
    """What the names of a text mean; never raises, whatever the text is."""
    document, findings = parse(source)
    names = Names(source, LEXER, VISITS)
    names.walk((document.includes, document.declarations, document.device))
    if document.name is not None:
        names.define(document.name.id, "program", document.name.span, document, document.name.span)
    names.walk(document.statements)
    return names.finish(document, findings)


def canonical(index: FileIndex) -> str:
    """The canonical form of a text without syntax errors."""
    return write(cast(nem.Document, index.document))


def describe(definition: Definition) -> str:
    """The statement; of a loop its first line."""
    text = definition.whole.text
    return text.partition("\n")[0] if isinstance(definition.node, nem.Loop) else excerpt(text)


# --- what stands elsewhere ----------------------------------------------------------------------------------


def locate(external: External, index: FileIndex, path: Path) -> ForeignDefinition | None:
    """Where a name that the text does not define is defined."""
    if external.kind == FILE:
        found = locate_file(external.name, path, default_root(path), DEFAULT)
        return None if isinstance(found, Refusal) else ForeignDefinition(found[0])
    if external.kind == OPCODE:
        return None
    library = load(index.source, path)
    name = DEVICE_ALIASES.get(external.name, external.name)
    node = library.device(external.name) or library.families.get(external.name)
    if node is not None:
        return ForeignDefinition(_path_of(node.span.source.name), node.name.id)
    return ForeignDefinition(shipped("devices") / SHIPPED[name], name) if name in SHIPPED else None


def _path_of(name: str) -> Path:
    """The file that findings call so."""
    return shipped("devices") / name.removeprefix(_SHIPPED) if name.startswith(_SHIPPED) else Path(name)


def explain(external: External) -> str:
    """What an opcode takes and gives."""
    opcode = load_registry().get(external.name) if external.kind == OPCODE else None
    return "" if opcode is None else "\n".join(_signature(opcode))


def _signature(opcode: Opcode) -> Iterator[str]:
    inputs, outputs = (", ".join(map(_operand, items)) for items in (opcode.inputs, opcode.outputs))
    yield f"{opcode.name}({inputs}) -> {outputs}"
    for item in opcode.attributes.values():
        default = "required" if item.required else f"default {item.default}"
        yield f"  {item.name}: {item.type}, {default}"
    yield f"  runs on {', '.join(opcode.units)}; {opcode.status}"


def _operand(item: OperandSpec) -> str:
    rank = f" rank {item.rank}" if item.rank else f" rank ≥ {item.rank_min}" if item.rank_min else ""
    return f"{item.name}{'…' if item.variadic else ''}{'?' if item.optional else ''}{rank}"


def words(index: FileIndex, path: Path, before: str) -> Iterable[Word]:
    """Opcodes, behind the operands of a task its attributes, devices behind `device`."""
    task = _TASK.search(before)
    opcode = load_registry().get(task[1]) if task else None
    if opcode is not None:
        yield from (Word(item.name, "attribute", item.type) for item in opcode.attributes.values())
        return
    if re.search(r"\b(?:device|extends)\s+\w*$", before):
        yield from (Word(name, DEVICE, file) for name, file in SHIPPED.items())
        return
    for item in load_registry().values():
        yield Word(item.name, OPCODE, next(_signature(item)))


# --- what a whole check knows -------------------------------------------------------------------------------


def find_facts(path: Path) -> CheckFacts:
    """The cost of each task on its device, the bytes of each region and buffer."""
    plan = read_program(path).plan
    if plan is None:
        return CheckFacts()
    machine = MachineModel(plan.device)
    names: dict[str, tuple[str, ...]] = {
        f"/{item.name}": (_region_line(item),) for item in plan.declared if item.name
    }
    names |= {f"/{item.name}": (f"{item.size:,} bytes in {item.level}",) for item in plan.buffers}
    places = {}
    for task in plan.tasks():
        lines = (_cost_line(task, machine), *(_region_line(item) for item in (*task.inputs, *task.outputs)))
        places[task.node.opcode.span.start] = lines
        if task.token:
            names[f"/{task.token}"] = lines
    return CheckFacts(names, places)


def _cost_line(task: Task, machine: MachineModel) -> str:
    cost = cost_of(task, machine)
    variant = f"; {task.variant}" if task.variant else ""
    return (
        f"{cost.cycles:,} cycles on {cost.unit} of {machine.name}: "
        f"{cost.work:,} {cost.kind} at {cost.rate:,} a cycle{variant}"
    )


def _region_line(region: Region) -> str:
    kind = f" {region.type}" if region.type is not None else ""
    start = f"+{region.offset.constant:,}" if region.offset.is_constant else "+…"
    name = region.name or region.buffer.name
    return f"{name}:{kind} {region.extent:,} bytes at {region.buffer.name}{start} in {region.buffer.level}"
