"""What is in a Module DSL file or a Hugging Face folder: the text and the data behind `lamella show`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, printable
from lamella.base.paths import is_folder, is_there, shown
from lamella.bridge.hf_to_module import Folder, find_architecture, is_gguf, open_folder
from lamella.bridge.hf_to_module.checkpoint import INDEX, SINGLE
from lamella.bridge.hf_to_module.folder import CONFIG
from lamella.lang.module.check.settings import read_settings
from lamella.lang.module.instantiate import Instance, Known, instantiate, walk
from lamella.lang.module.instantiate.messages import show
from lamella.lang.module.instantiate.nodes import TensorSlot
from lamella.lang.module.nodes import Module, Port, Preset, Primitive, Recipe
from lamella.lang.module.rules.mappings import ARCHITECTURE
from lamella.lang.module.write.expressions import write_expression, write_type
from lamella.pipeline.languages import Description
from lamella.pipeline.module.folders import FALLS_BACK, Source, read_folder, recipe_lines
from lamella.pipeline.module.program import Program, choose, configure, read_program
from lamella.pipeline.module.weight_plan import plan_weights
from lamella.pipeline.options import Options

_INDEX = re.compile(r"\[(\d+)\]")
_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")
ROWS = 60
"""Rows of parameters that are shown."""
WIDTH = 200
"""Characters of a row that are shown of what a file says."""


def describe(name: str, options: Options) -> Description:
    """The declarations of a file and the chosen one with its parameters; or a folder as the model that it is."""
    path = Path(name)
    return (
        _describe_folder(path, options) if is_folder(path) or is_gguf(path) else _describe_file(path, options)
    )


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
    """A folder as the model that it is; without a model of ours, its config and its tensors as they are."""
    folder = open_folder(path, options.limits)
    broken = [item for item in errors(folder.findings) if not _is_absent(item, path)]
    lines = [*_config_lines(folder), *_store_lines(folder)]
    data = _folder_data(folder)
    source, findings = (None, broken) if broken else _read_folder(folder, options)
    title = "GGUF" if is_gguf(path) else "Hugging Face"
    if source is not None:
        home = source.program.resolved.unit
        title += (
            f", {source.instance.module.name} of {home.name if home.standard else shown(home.path or path)}"
        )
        data |= _instance_data(source.instance)
        findings += _match(source, folder, options)
        lines += [f"  {printable(item.message)}" for item in findings if item.severity != "error"]
        lines += ["", *_instance_lines(source.instance)]
    else:
        lines += [f"  {printable(item.message)}" for item in findings if item.code in FALLS_BACK]
        lines += ["", *_config_values(folder.config), *_tensor_lines(folder)]
        if any(item.code == ARCHITECTURE.code for item in findings):
            lines += ["", *recipe_lines(folder)]
    # What our model does not do is no fault of the folder: PyTorch may read it.
    wrong = [item for item in errors(findings) if item.code not in FALLS_BACK]
    return Description("\n".join([f"{printable(shown(path))}: {title}", *lines]), data, tuple(wrong))


def _is_absent(finding: Diagnostic, path: Path) -> bool:
    """Whether a finding says that a file is not there, which `show` says in its own words."""
    name = Path(finding.span.source.name).name
    return name in (CONFIG, SINGLE) and not is_there(path / name)


def _read_folder(folder: Folder, options: Options) -> tuple[Source | None, list[Diagnostic]]:
    """The model that a folder is, and what there is to say; None where it is none."""
    if not folder.config and options.architecture is None:
        return None, []
    try:
        source = read_folder(folder, options)
    except LamellaError as problem:
        return None, list(problem.findings)
    return source, [item for item in source.findings if item not in folder.findings]


def _match(source: Source, folder: Folder, options: Options) -> list[Diagnostic]:
    """What is wrong between the tensors of a folder and its model; nothing where it has no tensors."""
    if not folder.checkpoint.tensors:
        return []
    try:
        return list(plan_weights(source.instance, folder, options.unused).findings)
    except LamellaError as problem:
        return list(problem.findings)


def _folder_data(folder: Folder) -> dict[str, object]:
    return {
        "file": shown(folder.path),
        "kind": "folder",
        "architectures": list(find_architecture(folder.config)),
        "model_type": folder.config.get("model_type"),
        # JSON has no words for numbers that are not finite; config files have them all the same.
        "config": json.loads(json.dumps(dict(folder.config)), parse_constant=str),
        "checkpoint": {
            item.name: [str(item.dtype), list(item.shape)] for item in folder.checkpoint.tensors.values()
        },
    }


def _config_lines(folder: Folder) -> Iterator[str]:
    if not folder.config:
        is_broken = is_there(folder.path / CONFIG)
        yield f"  {CONFIG} " + (
            "says nothing" if is_broken else "is not there: it says what the tensors belong to"
        )
        return
    names = ", ".join(find_architecture(folder.config)) or "no architecture"
    kind = folder.config.get("model_type")
    type_ = f", model_type {kind}" if isinstance(kind, str) else ""
    yield printable(f"  {CONFIG}: {names}{type_}, {_count(len(folder.config), 'key')}")


def _store_lines(folder: Folder) -> Iterator[str]:
    tensors = folder.checkpoint.tensors.values()
    if not tensors:
        yield f"  no tensors: there is neither {SINGLE} nor {INDEX}"
        return
    coded = folder.checkpoint.coded
    parts = [
        *(item for item in tensors if item.name not in coded),
        *(part for item in coded.values() for part in item.parts),
    ]
    size = sum(item.length for item in parts)
    kinds = {coded[item.name].kind if item.name in coded else str(item.dtype) for item in tensors}
    types = ", ".join(sorted(kinds))
    files = _count(len(folder.checkpoint.files), "file")
    yield f"  {_count(len(tensors), 'tensor')}, {size:,} bytes, {types}, in {files}"


def _config_values(config: Mapping[str, object]) -> Iterator[str]:
    """The keys of a config with their values, each on a line."""
    if config:
        yield f"  {CONFIG}"
    for name, value in list(config.items())[:ROWS]:
        yield printable(f"    {name}: {json.dumps(value, ensure_ascii=False)}", WIDTH)
    if len(config) > ROWS:
        yield f"    and {len(config) - ROWS} more"


def _tensor_lines(folder: Folder) -> Iterator[str]:
    """The tensors of a checkpoint; those of layers that are alike on one line."""
    rows: dict[str, int] = {}
    for item in folder.checkpoint.tensors.values():
        row = f"{_LAYER.sub('{}', item.name)}: {item.dtype}[{', '.join(map(str, item.shape))}]"
        rows[row] = rows.get(row, 0) + 1
    if rows:
        yield "  tensors"
    for row, count in list(rows.items())[:ROWS]:
        yield printable(f"    {row}{f'  × {count}' if count > 1 else ''}", WIDTH)
    if len(rows) > ROWS:
        yield f"    and {len(rows) - ROWS} more"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"
