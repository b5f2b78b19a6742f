"""Graphs as plans for the API: selected, tiled for a device, checked, saved, bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lamella.backend.reference import compile_model
from lamella.base import arrays
from lamella.base.card import Card, show_html, show_line
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.errors import InputError, Unsupported
from lamella.base.levels import at_level
from lamella.base.source import NOWHERE, Source
from lamella.base.watching import timed_pass
from lamella.base.writer import make_folder, write_text
from lamella.bridge.graph_to_plan import SelectedPlan, graph_to_plan
from lamella.bridge.graph_to_plan.assembly import identifier
from lamella.bridge.graph_to_plan.rules import NOT_TILED
from lamella.graph.model import Model
from lamella.graph.nodes import tensors
from lamella.graph.passes.widen_codes import REALS, widen_codes
from lamella.lang.nem import Document, write
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.documents import SHIPPED
from lamella.lang.nem.nodes import Buffer, DeviceRef, Include, Name, Text
from lamella.lang.nem.resolved import Buffer as PlanBuffer
from lamella.lang.nem.resolved import Plan, Task
from lamella.pipeline.languages import is_stream
from lamella.pipeline.nem.files import devices_of, find_file, read_library
from lamella.pipeline.nem.numbers import (
    ENDING,
    INPUT,
    OUTPUT,
    STATE,
    PlanNumbers,
    list_ports,
    output_buffers,
)
from lamella.pipeline.nem.program import KERNELS, Program, check_program, plan_of
from lamella.pipeline.nem.streams import save_stream
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.run_passes import evaluator
from lamella.plan.bind import bind
from lamella.plan.report import bound_line
from lamella.plan.stcb import Stream
from lamella.plan.tiling import Tiled, TilingOptions, tile
from lamella.plan.tiling.choice import SOLVED, TACTICS
from lamella.plan.tiling.stages import task_name
from lamella.plan.timing import TimingReport, simulate
from lamella.plan.timing.network_bounds import NetworkBounds, find_network_bounds

COMMENT = "# "
"""What a comment of a plan begins with."""
HOW = {
    "opcode": "opcodes",
    "view": "views",
    "decomposed": "what they are made of",
    "compute": "kernels on the VPU",
}
"""How operations are computed, in words."""
ROUNDED = ("f16", "bf16", "f32")
FLOAT_TOLERANCE = 2e-2
"""How far the outputs of a plan may lie from those of its model in f32, in parts of the largest."""
SELECT = "select"
"""The stage before tiling, as --after names it."""


@dataclass(frozen=True, slots=True)
class PlanStage:
    """A plan on its way down: its name, its checked text, and the numbers that fill it."""

    name: str
    program: Program
    numbers: PlanNumbers
    kernels: str = ""
    """The kernels of its compute tasks."""


@dataclass(frozen=True, slots=True)
class LoweredPlan:
    """A graph with its plans, the last of which is what was asked for."""

    model: Model
    selection: SelectedPlan
    stages: tuple[PlanStage, ...]
    tiled: Tiled | None = None
    """What the search for tiles found."""
    device_file: Path | None = None
    """The file of a device that is not shipped: it goes with the plan."""
    stream: Stream | None = None
    """What the plan is bound to, where that was asked for."""

    @property
    def language(self) -> str:
        """The row of the registry that knows it."""
        return "plans"

    __repr__ = show_line
    _repr_html_ = show_html
    at = at_level

    def _card(self) -> Card:
        """The card of the plan that was asked for, and what was selected."""
        card = self.final.program._card()
        return replace(card, kind="plan", facts=(*card.facts, *(("", line) for line in self.lines)))

    @property
    def final(self) -> PlanStage:
        """The plan that was asked for."""
        return self.stages[-1]

    @property
    def operations(self) -> tuple[str, ...]:
        """For each task of the final plan the operation of the model that it computes or moves data for."""
        chosen = self.selection.operations
        if self.tiled is None:
            return chosen
        numbers = {task.number: name for task, name in zip(self._selected_tasks, chosen, strict=True)}
        return tuple(numbers.get(number, "") for number in self.tiled.origins)

    @property
    def _selected_tasks(self) -> list[Task]:
        return list(plan_of(self.stages[0].program).tasks())

    @property
    def lines(self) -> tuple[str, ...]:
        """What was selected, for people: how many operations became what, and in which type real numbers are."""
        report = self.selection.report
        counts = Counter(item.how for item in report)
        tasks = sum(len(item.opcodes) for item in report)
        said = ", ".join(f"{counts[how]} by {words}" for how, words in HOW.items() if counts[how])
        real = f", real numbers in {self.selection.real}" if tolerance_of(self) else ""
        first = f"{len(report)} operations, {tasks} tasks: {said}{real}"
        timing = simulated(self)
        return (first, *([] if timing is None else [bound_line(timing)]), *self._searched())

    def _searched(self) -> Iterator[str]:
        """What the search did: codecs of weights, what a solver gained, what there was no effort for."""
        for buffer in self._coded():
            saved = f"{buffer.stored:,} of {buffer.size:,} bytes"
            yield f"weights through WDM: {buffer.codec} stores {saved}; --no-wdm stores them as they are"
        if self.tiled is None:
            return
        if len(self.tiled.cycles) > 1:
            greedy, solved = self.tiled.cycles[False], self.tiled.cycles[True]
            yield f"what stays in L2: {greedy:,} cycles by the greedy choice, {solved:,} by a solver"
        if self.tiled.untried:
            spent = self.tiled.effort.spent
            yield f"{self.tiled.untried} more plans were not tried after {spent:,} steps; --effort allows more"

    def _coded(self) -> list[PlanBuffer]:
        """The buffers of weights that codecs store."""
        return [item for item in plan_of(self.final.program).buffers if item.codec]

    @property
    def facts(self) -> dict[str, object]:
        """The same as data, operation by operation."""
        rows = [
            {
                "name": item.operation,
                "operator": item.operator,
                "how": item.how,
                "opcodes": list(item.opcodes),
                "reason": item.reason,
                "work": item.work,
                "origin": item.origin,
            }
            for item in self.selection.report
        ]
        timing = simulated(self)
        tried = {} if self.tiled is None else self.tiled.cycles
        return {
            "operations": rows,
            "stages": [item.name for item in self.stages],
            "real": self.selection.real,
            "network": None if timing is None else {"plan_cycles": timing.cycles, **timing.against()},
            "tried": {"solver" if solved else "greedy": cycles for solved, cycles in tried.items()},
            "search": {"steps": self.tiled.effort.spent, "untried": self.tiled.untried}
            if self.tiled
            else None,
            "wdm": {item.codec: {"bytes": item.size, "stored": item.stored} for item in self._coded()},
        }

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """What was found on the way."""
        return (*self.model.findings, *self.final.program.findings)


def simulated(lowered: LoweredPlan) -> TimingReport | None:
    """The simulation of a tiled plan beside the bounds of its network; None where there is none."""
    selected, *tiled = (plan_of(stage.program) for stage in lowered.stages)
    if not tiled:
        return None
    try:
        report = simulate(tiled[-1], detail=0)
    except LamellaError:
        return None
    return replace(report, network=network_of(selected, lowered.stages[0].numbers, tiled[-1].device))


def network_of(selected: Plan, numbers: PlanNumbers | None, device: ResolvedDevice | None) -> NetworkBounds:
    """The bounds of a network from its plan before tiling, and the numbers of that."""
    weights = (
        None if numbers is None else {name: arrays.to_memory(item) for name, item in numbers.arrays.items()}
    )
    return find_network_bounds(selected, device, output_buffers(selected, numbers), weights)


def tolerance_of(lowered: LoweredPlan) -> float:
    """How far a plan may be from its model: not at all where it computes with integers alone."""
    return tolerance(plan_of(lowered.final.program))


def tolerance(plan: Plan) -> float:
    """The same of a plan."""
    types = [
        item.type.elem
        for task in plan.tasks()
        for item in (*task.inputs, *task.outputs)
        if item.type is not None and task.opcode not in ("transfer", "store")
    ]
    return FLOAT_TOLERANCE if any(elem in ROUNDED for elem in types) else 0.0


def from_graph(model: Model, path: Path, options: Options) -> LoweredPlan:
    """The plans of a graph whose extents are known and whose variables have numbers."""
    device, head = find_device(options)
    model = widen_codes(model, REALS)
    evaluate = evaluator(model.library, options.limits)
    with timed_pass(SELECT):
        selection = graph_to_plan(model, evaluate, device)
    document = replace(
        selection.document, includes=head.includes, device=head.device, name=_program_name(model)
    )
    chosen = _stage(SELECT, document, _numbers(model, selection), selection.kernels, options)
    stages, tiled = [chosen], None
    if device is not None and options.after != SELECT:
        with timed_pass("tile"):
            last, tiled = _tile(chosen, device, options)
        stages.append(last)
    file = None if options.device is None or options.device in SHIPPED else Path(options.device)
    return LoweredPlan(model, selection, tuple(stages), tiled, file)


def _program_name(model: Model) -> Name:
    """The name of the graph as one of a program, which must not be that of a port."""
    return Name(f"{identifier(model.graph.name)}_plan")


def find_device(options: Options) -> tuple[ResolvedDevice | None, Document]:
    """The device that the options name, and how a plan refers to it."""
    if options.device is None:
        return None, Document()
    path = find_file(options.device)
    name = options.device if path.name != Path(options.device).name else ""
    library = read_library(path, options.limits)
    if errors(library.findings):
        raise LamellaError(library.findings)
    found = devices_of(library.library, name)
    chosen = next((item for item in found if item.name == path.stem), found[-1] if found else None)
    if chosen is None or chosen.topology is None:
        raise InputError(f"'{options.device[:80]}' is no device that can be a target", path=path)
    if chosen.name == path.stem or len(found) == 1:
        return chosen, Document(device=DeviceRef(Text(path.name)))
    return chosen, Document(includes=(Include(Text(path.name)),), device=DeviceRef(Name(chosen.name)))


def _numbers(model: Model, selection: SelectedPlan) -> PlanNumbers:
    """The numbers of a plan with the ports of its model."""
    graph = model.graph
    states = {item.variable.name for item in graph.updates}
    kinds = {
        INPUT: [item for given in graph.inputs for item in tensors(given)],
        STATE: [item for item in graph.variables if item.name in states],
        OUTPUT: [item for made in graph.outputs for item in tensors(made)],
    }
    picks = any(item.element.is_integer for item in kinds[INPUT])
    ends = compile_model(model).index_ends() if picks else {}
    return PlanNumbers(selection.weights, list_ports(kinds, selection.ports, ends))


def _stage(name: str, document: Document, numbers: PlanNumbers, kernels: str, options: Options) -> PlanStage:
    """A plan, written and checked; LamellaError holds what is wrong with it."""
    text = Source(f"{name}{KERNELS}", kernels) if kernels else None
    source = Source(f"{name}.nem", write(document))
    program = check_program(source, None, options.device, options.limits, kernels=text)
    if errors(program.findings):
        raise LamellaError([_from_model(item) for item in program.findings])
    return PlanStage(name, program, numbers, kernels)


def _from_model(finding: Diagnostic) -> Diagnostic:
    """A finding in a plan that we wrote, with the operation of the model that its task belongs to."""
    source = finding.span.source
    if not source.text:
        return finding
    for number in range(finding.span.line, 0, -1):
        line = source.line(number)
        if line.startswith(COMMENT):
            return finding.from_origin(line.removeprefix(COMMENT))
    return finding


def _tile(chosen: PlanStage, device: ResolvedDevice, options: Options) -> tuple[PlanStage, Tiled]:
    """The plan for the memories of a device."""
    plan = plan_of(chosen.program)
    kept = output_buffers(plan, chosen.numbers)
    images = {name: arrays.to_memory(item) for name, item in chosen.numbers.arrays.items()}
    try:
        tactics = (*TACTICS, *SOLVED) if options.optimal else TACTICS
        known = images if options.wdm else None
        limits = TilingOptions(outputs=kept, tactics=tactics, arrays=known, effort=1000 * options.effort)
        tiled = tile(plan, device, limits)
    except Unsupported as problem:
        words = set(str(problem).split())
        names = ((task, task_name(task)) for task in plan.tasks())
        place = next((task for task, name in names if {name, name.removeprefix("do_")} & words), None)
        span = NOWHERE if place is None else place.span
        raise LamellaError([_from_model(NOT_TILED.at(span, device=device.name, reason=problem))]) from None
    buffers = {item.name.id for item in tiled.document.statements if isinstance(item, Buffer)}
    kept_arrays = {name: item for name, item in chosen.numbers.arrays.items() if name in buffers}
    packed = tiled.pack(images)
    kept_arrays |= {name: item for name, item in packed.items() if name in buffers}
    numbers = replace(chosen.numbers, arrays=kept_arrays)
    return _stage("tiled", tiled.document, numbers, chosen.kernels, options), tiled


def lower(model: LoweredPlan, to: str, options: Options) -> LoweredPlan:
    """The plan itself, or with the stream that it is bound to."""
    if to == "nem":
        return model
    stream, findings = bind(
        plan_of(model.final.program), allow_future=options.allow_future, limits=options.limits
    )
    if stream is None:
        raise LamellaError(errors(findings))
    return replace(model, stream=stream)


def save(model: LoweredPlan, path: Path) -> None:
    """Write the plan that was asked for, or what it is bound to, with its numbers beside it."""
    if path.suffix == ".nem":
        write_stage(model.final, path)
    elif is_stream(path) and model.stream is not None:
        make_folder(path.parent)
        model.final.numbers.write(path.with_suffix(ENDING))
        save_stream(model.stream, path)
    else:
        hint = "plans are written as .nem, and what lower(…, to='stcb') gives as .stcb or .json too"
        raise InputError(f"'{path.name}' is no ending for a plan", hint=hint)


def write_stage(stage: PlanStage, path: Path) -> None:
    """Write one plan and its numbers; the plan is written last."""
    make_folder(path.parent)
    stage.numbers.write(path.with_suffix(ENDING))
    if stage.kernels:
        write_text(path.with_suffix(KERNELS), stage.kernels)
    write_text(path, stage.program.source.text)
