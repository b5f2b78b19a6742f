"""The files of a compiled unit: written as they are, read without trust."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Malformed
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import is_there
from lamella.base.writer import make_folder, remove_file, write_text
from lamella.bridge.hf_to_module.checkpoint import read_object, wrong_file
from lamella.bridge.module_to_ir import codec
from lamella.bridge.module_to_ir import nodes as ir
from lamella.bridge.module_to_ir.graph import GRAPH_FORMAT, SymbolValues
from lamella.bridge.module_to_ir.schedule import SCHEDULE_FORMAT
from lamella.bridge.module_to_ir.schemas import CONFIG_FORMAT, METADATA_FORMAT, WEIGHTS_FORMAT
from lamella.graph.data import write_safetensors

GRAPH, SCHEDULE, WEIGHTS = "graph.json", "schedule.json", "weights.json"
CONFIG, METADATA = "config_schema.json", "metadata.json"
TRAINING, TRAINING_SCHEDULE = "training.json", "training_schedule.json"
NUMBERS = "numbers.safetensors"
FORMATS: Mapping[str, str] = MappingProxyType(
    {
        GRAPH: GRAPH_FORMAT,
        SCHEDULE: SCHEDULE_FORMAT,
        WEIGHTS: WEIGHTS_FORMAT,
        CONFIG: CONFIG_FORMAT,
        METADATA: METADATA_FORMAT,
        TRAINING: GRAPH_FORMAT,
        TRAINING_SCHEDULE: SCHEDULE_FORMAT,
    }
)
"""The files, and what each says in its field `format`."""
OPTIONAL = (TRAINING, TRAINING_SCHEDULE, NUMBERS)
"""Files that not every unit has."""
Kind = TypeVar("Kind")


def write_ir(unit: ir.UnitIR, folder: Path, numbers: Mapping[str, Array] | None = None) -> tuple[Path, ...]:
    """Write the files of a unit into a folder, and give their paths; the same unit gives the same bytes.

    With `numbers`, by the names that the graph has for its variables, those of the parameters are written too.
    """
    parts: dict[str, object] = {
        GRAPH: unit.graph,
        SCHEDULE: unit.schedule,
        WEIGHTS: unit.weights,
        CONFIG: unit.config,
        METADATA: unit.metadata,
    }
    if unit.training is not None:
        parts |= {TRAINING: unit.training.graph, TRAINING_SCHEDULE: unit.training.schedule}
    make_folder(folder)
    for name, part in parts.items():
        write_text(folder / name, codec.write_text(part))
    files = tuple(folder / name for name in parts)
    # What a unit that lay here before had and this one has not would be read as parts of this one.
    for name in OPTIONAL:
        if name not in parts and (name != NUMBERS or numbers is None):
            remove_file(folder / name)
    if numbers is None:
        return files
    own = {item.name for item in unit.graph.params if not item.is_none}
    write_safetensors(folder / NUMBERS, {name: numbers[name] for name in numbers if name in own})
    return (*files, folder / NUMBERS)


def is_unit(folder: Path) -> bool:
    """Whether a folder holds a compiled unit."""
    return all(is_there(folder / name) for name in (GRAPH, SCHEDULE, METADATA))


def read_unit(folder: Path, limits: Limits = DEFAULT) -> ir.UnitIR:
    """The unit of a folder; LamellaError says what is wrong with a file."""
    graph = read_part(folder, GRAPH, ir.GraphIR, limits)
    return ir.UnitIR(
        graph,
        _read_schedule(folder, SCHEDULE, graph, limits),
        read_part(folder, WEIGHTS, ir.WeightSchema, limits),
        read_part(folder, CONFIG, ir.ConfigSchema, limits),
        read_part(folder, METADATA, ir.Metadata, limits),
        _read_training(folder, limits),
    )


def _read_training(folder: Path, limits: Limits) -> ir.TrainingParts | None:
    if not is_there(folder / TRAINING):
        return None
    graph = read_part(folder, TRAINING, ir.GraphIR, limits)
    return ir.TrainingParts(graph, _read_schedule(folder, TRAINING_SCHEDULE, graph, limits))


def _read_schedule(folder: Path, name: str, graph: ir.GraphIR, limits: Limits) -> ir.ScheduleIR:
    schedule = read_part(folder, name, ir.ScheduleIR, limits)
    try:
        check_schedule(schedule, graph)
    except Malformed as problem:
        raise LamellaError([wrong_file(folder / name, str(problem))]) from None
    return schedule


def read_part(folder: Path, name: str, kind: type[Kind], limits: Limits = DEFAULT) -> Kind:
    """One part of a unit; LamellaError where the file is not what it should be."""
    value = read_object(folder, name, limits)
    found, wanted = value.get("format"), FORMATS[name]
    if found != wanted:
        shown = f"'{found[:60]}'" if isinstance(found, str) else "missing"
        raise LamellaError([wrong_file(folder / name, f"its format is {shown}, not '{wanted}'")])
    try:
        return codec.decode(kind, value, name.removesuffix(".json"))
    except Malformed as problem:
        raise LamellaError([wrong_file(folder / name, str(problem))]) from None


def check_schedule(schedule: ir.ScheduleIR, graph: ir.GraphIR) -> None:
    """Whether a plan is one of a graph, and speaks only of buffers and pools that it has; Malformed where not."""
    meanings = SymbolValues(schedule.symbols)
    buffers = {item.id: item for item in schedule.buffers}
    pools = {item.name for item in schedule.pools}
    if [item.node for item in schedule.ops] != [item.id for item in graph.nodes]:
        raise Malformed("the ops are not the nodes of the graph")
    if [item.order for item in schedule.ops] != list(range(len(schedule.ops))):
        raise Malformed("the ops do not count")
    if len(buffers) != len(schedule.buffers):
        raise Malformed("a buffer stands there twice")
    for buffer in schedule.buffers:
        if buffer.pool not in pools or not -1 <= buffer.first <= buffer.last < max(len(schedule.ops), 1):
            raise Malformed(f"the buffer '{buffer.id[:100]}' has no pool or no time")
    used = [item for op in schedule.ops for item in (*op.inputs, *op.outputs)]
    named = [item.buffer for item in used] + [of.buffer for item in schedule.buffers for of in item.aliases]
    unknown = next((name for name in named if name not in buffers), None)
    if unknown is not None:
        raise Malformed(f"there is no buffer '{unknown[:100]}'")
    sizes = [size for item in schedule.buffers for size in (item.bytes, item.offset)]
    sizes += [size for item in used for size in (item.offset, item.size)]
    for size in dict.fromkeys(sizes):
        meanings.extent(size)
