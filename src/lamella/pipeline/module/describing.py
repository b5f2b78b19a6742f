"""What is in a Module DSL file or a Hugging Face folder: the text and the data behind `lamella show`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, printable
from lamella.base.paths import is_folder, shown
from lamella.bridge.hf_to_module import Folder
from lamella.lang.module.check.settings import read_settings
from lamella.lang.module.instantiate import Instance, Known, instantiate, walk
from lamella.lang.module.instantiate.nodes import TensorSlot
from lamella.lang.module.instantiate.telling import show
from lamella.lang.module.nodes import Module, Port, Preset, Primitive, Recipe
from lamella.lang.module.write.expressions import write_expression
from lamella.lang.module.write.types import write_type
from lamella.pipeline.languages import Description
from lamella.pipeline.module.folders import read_source
from lamella.pipeline.module.planning import plan_weights
from lamella.pipeline.module.reading import Program, choose, configure, read_program
from lamella.pipeline.options import Options

_INDEX = re.compile(r"\[(\d+)\]")
ROWS = 60
"""Rows of parameters that are shown."""


def describe(path: Path, options: Options) -> Description:
    """The declarations of a file and the chosen one with its parameters; or a folder as the model that it is."""
    return _describe_folder(path, options) if is_folder(path) else _describe_file(path, options)


# --- files ------------------------------------------------------------------------------------------------------


def _describe_file(path: Path, options: Options) -> Description:
    program = read_program(path, options)
    items = program.resolved.unit.document.items
    declared = [item for item in items if isinstance(item, Module | Primitive | Recipe | Preset)]
    lines = [f"{printable(shown(path))}: Module DSL, {_count(len(declared), 'declaration')}"]
    lines += [f"  {_head(item)}" for item in declared]
    settings = read_settings(program.resolved.unit.document)
    lines += [f"  {line}" for line in settings.lines()]
    data: dict[str, object] = {
        "file": shown(path),
        "kind": "module",
        "declarations": [_head(item) for item in declared],
        "settings": list(settings.lines()),
    }
    findings: list[Diagnostic] = list(program.findings)
    if not errors(findings) and program.modules:
        found, wrong = _chosen(program, options)
        findings += wrong
        if found is not None:
            lines += ["", *_instance_lines(found)]
            data |= _instance_data(found)
    return Description("\n".join(lines), data, tuple(errors(findings)))


def _chosen(program: Program, options: Options) -> tuple[Instance | None, tuple[Diagnostic, ...]]:
    """The instance that is meant; one that lacks values is not asked for where no model is named."""
    declared = choose(program, options)
    found = instantiate(
        declared, configure(program, declared, {}, options), program.resolved.scope, options.limits
    )
    return found.instance, found.findings if options.model or found.instance is not None else ()


def _head(item: Module | Primitive | Recipe | Preset) -> str:
    """A declaration on one line."""
    if isinstance(item, Recipe | Preset):
        return f"{type(item).__name__.lower()} {item.name}"
    kind = "primitive" if isinstance(item, Primitive) else item.kind
    params = ", ".join(
        param.name if param.default is None else f"{param.name}={write_expression(param.default)}"
        for param in item.params or ()
    )
    return f"{kind} {item.name}({params})"


def _instance_lines(instance: Instance) -> Iterator[str]:
    module = instance.module
    yield f"{module.kind} {module.name}"
    forward = module.forward
    for title, ports in (
        (("input", forward.inputs), ("output", forward.outputs)) if forward is not None else ()
    ):
        for port in ports or ():
            yield f"  {title:9}{_port(port, title)}"
    yield from _values(instance.values)
    yield from _parameters(list(walk(instance)))


def _port(port: Port, title: str) -> str:
    name = port.name or ("in" if title == "input" else "out")
    return f"{name}: {write_type(port.type)}" if port.type is not None else name


def _values(values: Mapping[str, Known]) -> Iterator[str]:
    width = max((len(name) for name in values), default=0)
    for name, known in values.items():
        source = f"  ({known.source})" if known.source else ""
        yield f"  {name:{width}} = {show(known.value)}{source}"


def _parameters(slots: Sequence[tuple[str, TensorSlot]]) -> Iterator[str]:
    """The parameters, those of the elements of an array on one line."""
    own = [(path, slot) for path, slot in slots if slot.tied is None]
    total = sum(prod(slot.dims) for _, slot in own)
    yield f"  {total:,} parameters in {_count(len(own), 'tensor')}"
    rows = group_paths(slots)
    for path, (slot, count) in list(rows.items())[:ROWS]:
        tied = f"  tied to {slot.tied}" if slot.tied is not None else ""
        times = f"  × {count}" if count > 1 else ""
        yield f"    {path}: [{', '.join(map(str, slot.dims))}]{times}{tied}"
    if len(rows) > ROWS:
        yield f"    and {len(rows) - ROWS} more"


def group_paths(slots: Sequence[tuple[str, TensorSlot]]) -> dict[str, tuple[TensorSlot, int]]:
    """Paths that differ in their indices alone as one, with how many they are."""
    found: dict[str, tuple[TensorSlot, int]] = {}
    for path, slot in slots:
        key = _INDEX.sub("[…]", path)
        first, count = found.get(key, (slot, 0))
        found[key] = (first, count + 1)
    return found


def _instance_data(instance: Instance) -> dict[str, object]:
    slots = list(walk(instance))
    return {
        "model": instance.module.name,
        "values": {
            name: known.value if isinstance(known.value, int | float | str) else show(known.value)
            for name, known in instance.values.items()
        },
        "parameters": sum(prod(slot.dims) for _, slot in slots if slot.tied is None),
        "tensors": {path: list(slot.dims) for path, slot in slots},
    }


# --- folders ----------------------------------------------------------------------------------------------------


def _describe_folder(path: Path, options: Options) -> Description:
    source = read_source(path, True, options)
    folder = source.folder
    lines = [
        f"{printable(shown(path))}: Hugging Face, {source.instance.module.name} of {source.program.resolved.unit.name}"
    ]
    data: dict[str, object] = {"file": shown(path), "kind": "folder", **_instance_data(source.instance)}
    findings: list[Diagnostic] = []
    if folder is not None:
        lines += _store_lines(folder)
        data |= {
            "checkpoint": {
                item.name: [str(item.dtype), list(item.shape)] for item in folder.checkpoint.tensors.values()
            }
        }
        try:
            findings += plan_weights(source.instance, folder, options.allow).findings
        except LamellaError as problem:
            findings += problem.findings
    lines += [f"  {item.message}" for item in findings if item.severity != "error"]
    return Description(
        "\n".join([*lines, "", *_instance_lines(source.instance)]), data, tuple(errors(findings))
    )


def _store_lines(folder: Folder) -> Iterator[str]:
    tensors = folder.checkpoint.tensors.values()
    size = sum(item.length for item in tensors)
    types = ", ".join(sorted({str(item.dtype) for item in tensors}))
    yield f"  {_count(len(tensors), 'tensor')}, {size:,} bytes, {types}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"
