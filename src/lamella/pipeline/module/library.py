"""The standard library of the Module DSL by its dotted names: `std.models.llama`, `std.primitives.flash_attention`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lamella.base.errors import InputError
from lamella.lang.module.nodes import ConfigParam, Export, Module, Param, Port, Preset, Primitive, Recipe
from lamella.lang.module.resolve import Declared, Workspace
from lamella.lang.module.resolve.lineage import trace_lineage
from lamella.lang.module.resolve.workspace import Located, SearchFolder, locate
from lamella.lang.module.suggest import suggest
from lamella.lang.module.write.expressions import (
    write_config_param,
    write_expression,
    write_param,
    write_port,
)
from lamella.pipeline.languages import Description
from lamella.pipeline.module.program import Program, read_program
from lamella.pipeline.options import Options

STD = "std"
WHOLE = 3
"""Declarations of a file that are shown whole."""


def find_standard(name: str, options: Options) -> Located:
    """What a dotted name of the library leads to: a declaration, a file or a folder; InputError where there is none."""
    place = Workspace((), options.limits).standard
    parts = tuple(name.split("."))[1:]
    if not parts:
        return Located(place, ())
    found = locate((STD, *parts), None, [place]) if all(parts) else None
    if isinstance(found, Located):
        return found
    # The library has more names than are compared: those beside the wrong one come first.
    beside = name.rpartition(".")[0]
    names = sorted(_names(place), key=lambda known: known.rpartition(".")[0] != beside)
    hint = suggest(name, names) or f"lamella show {STD} lists what there is"
    raise InputError(f"there is no '{name[:200]}' in the standard library", hint=hint)


def find_file(name: str, options: Options) -> Path:
    """The file that a dotted name of the library leads to."""
    found = find_standard(name, options)
    if found.file is None:
        raise InputError(
            f"'{name[:200]}' is a folder of the standard library", hint=f"lamella show {name[:200]}"
        )
    return found.place.root / found.file.below


def _names(place: SearchFolder) -> list[str]:
    """All dotted names of the library."""
    found: list[str] = []
    waiting: list[tuple[str, ...]] = [(folder,) for folder in place.folders]
    while waiting:
        folder = waiting.pop()
        found.append(place.dotted(folder))
        waiting += [(*folder, name) for name in place.subfolders(folder)]
        for file in place.files(folder):
            found.append(place.dotted((*folder, file.stem)))
            found += [place.dotted((*folder, file.stem, name)) for name in sorted(place.declares(file))]
            found += [place.dotted((*folder, name)) for name in sorted(place.declares(file))]
    return found


# --- show -------------------------------------------------------------------------------------------------------


def describe(name: str, options: Options) -> Description:
    """What a name of the library is: a declaration with its signature, a file with its own, a folder with its files."""
    found = find_standard(name, options)
    if found.file is None:
        return _describe_place(name, found)
    program = read_program(found.place.root / found.file.below, options)
    items = [item for item in _public(program) if found.name in (None, item.name)]
    home = found.place.dotted((*found.file.folder, found.file.stem))
    lines = [f"{name}: {_file_title(program, found)}"]
    # A short file is shown whole; of a long one each declaration on a line, to be asked for by its name.
    whole = len(items) <= WHOLE
    for item in items:
        lines += (
            ["", *_details(program, item)]
            if whole
            else [f"  {_signature(program, item)}", *_sentence(item, 4)]
        )
    presets = [item.name for item in program.resolved.unit.document.items if isinstance(item, Preset)]
    if presets and found.name is None:
        lines += ["", f"presets: {', '.join(presets)}"]
    data: dict[str, object] = {
        "kind": "standard",
        "name": name,
        "file": home,
        "declarations": [_data(program, item) for item in items],
    }
    return Description("\n".join(lines), data)


def _describe_place(name: str, found: Located) -> Description:
    """A folder of the library: the folders and the files in it, with what they declare."""
    place, folder = found.place, found.parts
    lines = [f"{name}: folder of the standard library"]
    names: list[str] = []
    for inner in place.subfolders(folder):
        names.append(place.dotted((*folder, inner)))
        lines.append(f"  {names[-1]}.…")
    for file in place.files(folder):
        names.append(place.dotted((*folder, file.stem)))
        lines.append(f"  {names[-1]}: {', '.join(sorted(place.declares(file)))}")
    return Description("\n".join(lines), {"kind": "standard", "name": name, "names": names})


def _file_title(program: Program, found: Located) -> str:
    doc = program.resolved.unit.document.doc.strip().splitlines()
    what = "declaration" if found.name is not None else "file"
    return f"{what} of the standard library" + (f"; {doc[0]}" if doc and found.name is None else "")


def _public(program: Program) -> list[Declared]:
    """The declarations of a file, and those that it exports."""
    scope, found = program.resolved.scope, []
    for item in program.resolved.unit.document.items:
        if isinstance(item, Export):
            declared = scope.find(item.name)
            found += [] if declared is None else [declared]
        elif isinstance(item, Module | Primitive | Recipe):
            found.append(Declared(program.resolved.unit, item))
    return found


def _details(program: Program, declared: Declared) -> Iterator[str]:
    """A declaration: signature, sentence, parameters with their types and defaults, shapes."""
    item = declared.declaration
    yield _signature(program, declared)
    yield from _sentence(declared, 2)
    params = _params(program, declared)
    if params:
        yield "  parameters"
        yield from (f"    {write_config_param(param)}" for param in params)
    for title, ports in _ports(program, declared):
        yield from (f"  {title:9}{write_port(port)}" for port in ports)
    tensors = _tensors(program, declared)
    if tensors:
        yield "  tensors and modules"
        yield from (f"    {write_param(param)}" for param in tensors)
    if isinstance(item, Primitive):
        if item.backward is not None:
            gradients = ", ".join(write_port(port) for port in item.backward.outputs or ())
            yield f"  backward gives {gradients}"
        operator = item.operator()
        if operator is not None:
            yield f"  operator {operator}  (lamella show {operator})"


def _signature(program: Program, declared: Declared) -> str:
    item = declared.declaration
    kind = item.kind if isinstance(item, Module) else type(item).__name__.lower()
    params = ", ".join(
        param.name if param.default is None else f"{param.name}={write_expression(param.default)}"
        for param in _params(program, declared)
    )
    parent = f" extends {item.extends}" if isinstance(item, Module) and item.extends else ""
    return f"{kind} {item.name}({params}){parent}" if not isinstance(item, Recipe) else f"{kind} {item.name}"


def _sentence(declared: Declared, indent: int) -> Iterator[str]:
    item = declared.declaration
    lines = item.doc.strip().splitlines() if not isinstance(item, Preset) else []
    if lines:
        yield " " * indent + lines[0]


def _lineage(program: Program, declared: Declared) -> list[Module]:
    """A module and those that it extends, the nearest first."""
    if not isinstance(declared.declaration, Module):
        return []
    scope = program.resolved.scope.of(declared)
    return [item.module for item in reversed(trace_lineage(declared, scope))]


def _params(program: Program, declared: Declared) -> tuple[ConfigParam, ...]:
    item = declared.declaration
    if isinstance(item, Primitive):
        return item.params
    lists = (module.params for module in _lineage(program, declared))
    return next((params for params in lists if params is not None), ())


def _ports(program: Program, declared: Declared) -> Iterator[tuple[str, tuple[Port, ...]]]:
    item = declared.declaration
    forwards = [module.forward for module in _lineage(program, declared)]
    signatures = [item.forward] if isinstance(item, Primitive) else forwards
    forward = next((part for part in signatures if part is not None and part.inputs is not None), None)
    if forward is not None:
        yield "input", forward.inputs or ()
        yield "output", forward.outputs or ()


def _tensors(program: Program, declared: Declared) -> list[Param]:
    lineage = reversed(_lineage(program, declared))
    return [param for module in lineage for param in module.tensors]


def _data(program: Program, declared: Declared) -> dict[str, object]:
    item = declared.declaration
    return {
        "name": item.name,
        "kind": item.kind if isinstance(item, Module) else type(item).__name__.lower(),
        "sentence": next(_sentence(declared, 0), ""),
        "parameters": {
            param.name: None if param.default is None else write_expression(param.default)
            for param in _params(program, declared)
        },
        **{f"{title}s": [write_port(port) for port in ports] for title, ports in _ports(program, declared)},
    }
