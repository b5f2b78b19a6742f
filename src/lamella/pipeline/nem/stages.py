"""The plans of a graph for `lamella lower`: printed, or written stage by stage, read again and compared."""

from __future__ import annotations

from pathlib import Path

from lamella.backend.npu import compile_plan
from lamella.backend.npu.stream import compile_stream
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.paths import read_bytes, read_text
from lamella.base.source import Source
from lamella.base.writer import make_folder, write_text
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, tensors
from lamella.lang.nem.documents import SHIPPED
from lamella.lang.nem.parse import parse
from lamella.pipeline.languages import Compared
from lamella.pipeline.nem.lowering import LoweredPlan, tolerance_of, write_stage
from lamella.pipeline.nem.numbers import PlanNumbers, PortedPlan, read_numbers
from lamella.pipeline.nem.program import Program, plan_of, read_checked
from lamella.pipeline.nem.streams import save_stream
from lamella.pipeline.options import Options
from lamella.plan.stcb import Stream, read_stream

BOUND = ".stcb"
STAGES = "stages"
"""The folder of the plans on the way to the last one."""


def printed(model: LoweredPlan) -> str:
    """The text of the plan that was asked for."""
    return model.final.program.source.text


def write_into(model: LoweredPlan, folder: Path, stem: str) -> Path:
    """Write the plan into a folder, those before it into `stages`; gives the plan."""
    make_folder(folder)
    # Each plan looks for its device beside itself.
    for place in (folder, folder / STAGES)[: len(model.stages)]:
        for name, text in _device_files(model.device_file).items():
            make_folder((place / name).parent)
            write_text(place / name, text)
    for number, stage in enumerate(model.stages[:-1], 1):
        write_stage(stage, folder / STAGES / f"{number}_{stage.name}.nem")
    path = folder / f"{_plan_stem(stem, model)}.nem"
    write_stage(model.final, path)
    if model.stream is None:
        return path
    save_stream(model.stream, path.with_suffix(BOUND))
    return path.with_suffix(BOUND)


def _device_files(path: Path | None) -> dict[str, str]:
    """The texts of a device file and of those that it includes, by their names beside it."""
    found: dict[str, str] = {}
    todo = [] if path is None else [path.name]
    while path is not None and todo:
        name = todo.pop()
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        if inside and name not in found and (path.parent / name).is_file():
            found[name] = read_text(path.parent / name)
            todo += [item.path.value for item in parse(Source(name, found[name])).document.includes]
    return found


def _plan_stem(stem: str, model: LoweredPlan) -> str:
    """The name of the plan, which must not be that of a device: then each would be taken for the other."""
    taken = {Path(name).stem for name in SHIPPED.values()}
    if model.device_file is not None:
        taken.add(model.device_file.stem)
    return f"{stem}_plan" if stem in taken else stem


def compare(before: object, lowered: LoweredPlan, path: Path, options: Options) -> Compared:
    """The numbers of the graph on the reference, and by each plan; the last one is read again from its file."""
    graph = before if isinstance(before, Model) else lowered.model
    reference = compile_model(graph, seed=options.start_seed, limits=options.limits)
    inputs = reference.draw_inputs()
    wanted = reference(**inputs)
    numbers: dict[str, tuple[Array, Array]] = {}
    for stage in lowered.stages:
        program, given = stage.program, stage.numbers
        if stage is lowered.final:
            program = read_checked(path.with_suffix(".nem"), options.device, options.limits)
            given = read_numbers(path, options.limits) or given
        found = executable(program, given, graph.graph, options)(**inputs)
        numbers |= {f"{stage.name}: {name}": (wanted[name], found[name]) for name in wanted}
    if lowered.stream is not None:
        again = read_stream(read_bytes(path, options.limits), options.limits)
        found = executable(again, lowered.final.numbers, graph.graph, options)(**inputs)
        numbers |= {f"bound: {name}": (wanted[name], found[name]) for name in wanted}
    return Compared(numbers, tolerance=tolerance_of(lowered))


def executable(
    program: Program | Stream, numbers: PlanNumbers, graph: Graph | None, options: Options
) -> PortedPlan:
    """A plan or a stream as something that is called like its model."""
    seed, order, limits = options.start_seed, options.order, options.limits
    inner = (
        compile_stream(program, seed=seed, order=order, limits=limits)
        if isinstance(program, Stream)
        else compile_plan(plan_of(program), seed=seed, order=order, limits=limits)
    )
    inner.draws = options.draws
    return PortedPlan(inner, numbers, {} if graph is None else shapes_of(graph), seed, limits)


def shapes_of(graph: Graph) -> dict[str, tuple[int, ...]]:
    """The shapes of results, which a plan has with one axis at least."""
    made = [item for argument in graph.outputs for item in tensors(argument)]
    return {item.name: tuple(extent for extent in item.shape if isinstance(extent, int)) for item in made}
