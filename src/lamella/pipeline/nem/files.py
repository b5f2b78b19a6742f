"""NEM files for the commands: check, format, show; loads no numpy."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, printable
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import STANDARD_INPUT, is_there, shipped, suggest_path
from lamella.kernels.target import TARGETS
from lamella.lang.nem import Checked, parse, write
from lamella.lang.nem import check as nem_check
from lamella.lang.nem.describe import describe_device, device_to_json
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.devices import resolve_device
from lamella.lang.nem.documents import SHIPPED, DeviceLibrary, device_hint
from lamella.lang.nem.nodes import TypeFamily
from lamella.lang.nem.resolved import Loop, Plan, Region, Wait
from lamella.pipeline.languages import Description, is_stream, language_of, plan_kernels, standard_modules
from lamella.pipeline.nem.program import read_program, read_source
from lamella.pipeline.nem.streams import load_stream
from lamella.pipeline.options import Options
from lamella.plan.stcb import list_stream, to_json

# --- what is in a file: the text behind `lamella show` ------------------------------------------------------


def find_file(name: str) -> Path:
    """The file that a user means: a path, or the name of a shipped device."""
    path, file = Path(name), SHIPPED.get(name, name)
    # A folder of that name is no device: people write plans into folders called like their devices.
    is_device = name in SHIPPED and path.is_dir()
    if path == STANDARD_INPUT or (is_there(path) and not is_device):
        return path
    if file in SHIPPED.values():
        return shipped("devices") / file
    if path.suffix or path.name != name:
        return path
    meant = device_hint(name, [*SHIPPED, *TARGETS, *standard_modules()])
    listed = f"a file is named with its ending; the shipped devices are {', '.join(SHIPPED)}"
    problem = f"there is no file, device, target or library module '{name}'"
    raise InputError(problem, hint=f"{meant or suggest_path(path)} {listed}".strip())


def read_library(path: Path, limits: Limits, root: Path | None = None) -> Checked:
    """A NEM document with what it includes, its plan when it is a program, and what is wrong with it."""
    return nem_check(read_source(path, limits), path, None, limits, root)


def devices_of(library: DeviceLibrary, only: str = "") -> list[ResolvedDevice]:
    """The devices that a document declares itself, resolved."""
    names = [item.name.id for item in library.own_devices if only in ("", item.name.id)]
    resolved = [resolve_device(library, name)[0] for name in names]
    return [device for device in resolved if device is not None]


def describe_library(library: DeviceLibrary, plan: Plan | None, only: str = "") -> str:
    """A configuration's families and devices, or a program's buffers, loops and tasks."""
    if plan is not None:
        return describe_plan(plan)
    parts = [f"{printable(library.source.name)}: NEM configuration"]
    own = [item.name.id for item in library.document.declarations if isinstance(item, TypeFamily)]
    if own:
        parts.append(f"{len(own)} type families: {', '.join(own)}")
    parts += [describe_device(device, library.variants) for device in devices_of(library, only)]
    return "\n\n".join(parts)


def library_to_json(library: DeviceLibrary, plan: Plan | None, only: str = "") -> dict[str, object]:
    """The same as data."""
    if plan is not None:
        return _plan_to_json(plan)
    devices = [device_to_json(device, library.variants) for device in devices_of(library, only)]
    return {"file": library.source.name, "kind": "configuration", "devices": devices}


def describe_plan(plan: Plan) -> str:
    """A program in one screen: target, memory, loops, tasks."""
    device = f"device {plan.device.name}" if plan.device else "no device named"
    title = f"{printable(plan.source.name)}: NEM program {plan.name or '(anonymous)'}, {device}"
    tasks = sum(1 for _ in plan.tasks())
    lines = [title, f"{tasks} tasks, {plan.instances()} task instances", "", "memory"]
    for level, total in _memory(plan).items():
        lines.append(f"  {level:6} {total:>12,} bytes")
        for buffer in plan.buffers:
            if buffer.level == level:
                flag = "  import" if buffer.imported else ""
                flag += f"  {buffer.codec}, {buffer.stored:,} stored" if buffer.codec else ""
                name = f"{buffer.name}{f' @{printable(buffer.debug)}' if buffer.debug else ''}"
                lines.append(f"    {name:20} {buffer.size:>12,}  align {buffer.align}{flag}")
    return "\n".join([*lines, "", "program", *_items(plan)])


def _memory(plan: Plan) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for buffer in plan.buffers:
        totals[buffer.level] += buffer.size
    return dict(sorted(totals.items()))


def _items(plan: Plan) -> list[str]:
    lines: list[str] = []
    for item, around in plan.walk():
        indent = "  " * (len(around) + 1)
        place = f"{item.span.line:>5} {indent}"
        if isinstance(item, Loop):
            lines.append(f"{place}loop {item.variable} × {item.trips}, {item.window} in flight")
        elif isinstance(item, Wait):
            lines.append(f"{place}wait for {len(item.deps)}")
        else:
            operands = f"{_regions(item.inputs)} -> {_regions(item.outputs)}"
            variant = f"  [{item.variant}]" if item.variant else ""
            lines.append(f"{place}{printable(item.title)}: {operands}{variant}")
    return lines


def _regions(regions: tuple[Region, ...]) -> str:
    return ", ".join(f"{item.buffer.name} {item.type or f'{item.extent} B'}" for item in regions)


def _plan_to_json(plan: Plan) -> dict[str, object]:
    return {
        "file": plan.source.name,
        "kind": "program",
        "name": plan.name,
        "device": plan.device.name if plan.device else None,
        "tasks": sum(1 for _ in plan.tasks()),
        "instances": plan.instances(),
        "memory": _memory(plan),
        "buffers": [
            {
                "name": item.name,
                "level": item.level,
                "size": item.size,
                "align": item.align,
                "import": item.imported,
            }
            for item in plan.buffers
        ],
    }


def check(path: Path, options: Options) -> list[Diagnostic]:
    """The rules of the language and of the plan; a stream is read with all its checks."""
    if options.language is None and is_stream(path):
        stream = load_stream(path, options.limits)
        if stream.kernels:
            plan_kernels().check_stream(stream)
        return []
    return list(read_program(path, options.device, options.limits, options.root).findings)


def need_program(path: Path, language: str | None) -> None:
    """Say what a file is, where a NEM program is needed."""
    if language is None:
        refuse_stream(path)
    name = language_of(path, language).name
    if name != "nem":
        raise InputError(f"'{path.name}' is {name}, not a NEM program", path=path)


def refuse_stream(path: Path) -> None:
    """A bound stream is not a program."""
    if is_stream(path):
        hint = "streams are checked, shown and run; programs in .nem are simulated, bound and formatted"
        raise InputError(f"'{path.name}' is a bound stream, not a program", path=path, hint=hint)


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """The text of a file and its canonical form; a text with syntax errors raises."""
    refuse_stream(path)
    source = read_source(path, limits)
    document, findings = parse(source, limits)
    if errors(findings):
        raise LamellaError(errors(findings))
    return source.text, write(document)


def describe(name: str, options: Options) -> Description:
    """A program, a configuration, a stream, or a shipped device by its name."""
    path = find_file(name)
    if options.language is None and is_stream(path):
        stream = load_stream(path, options.limits)
        return Description("\n".join(list_stream(stream)), json.loads(to_json(stream)))
    only = "" if path.name == Path(name).name else name
    checked = read_library(path, options.limits, options.root)
    text = describe_library(checked.library, checked.plan, only)
    data = library_to_json(checked.library, checked.plan, only)
    return Description(text, data, tuple(checked.findings))
