"""The memory of a training before it runs: what its step works in, what of it is alive when, what policies save.

The plan is the one by which the launches of the step run: they share an arena of exactly these bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.util import find_spec
from math import prod
from pathlib import Path

import numpy as np

from lamella.backend.executor.kernels import KernelExecutable
from lamella.backend.executor.segments import Segment
from lamella.base.arena import LiveBlock
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.liveness import changes
from lamella.base.packing import least_bytes, pack, pack_exactly
from lamella.base.writer import write_text
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.passes.recompute import AFTER, AGAIN, OFFLOAD
from lamella.graph.rewrite import members, operands_of, results_of
from lamella.kernels.arena_plan import ALIGNMENT
from lamella.pipeline.backends.kernels import compile_open
from lamella.pipeline.languages import Description
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents
from lamella.train.gradients import trainable
from lamella.train.settings import StepSettings
from lamella.train.sources import TrainableGraph, halves
from lamella.train.step import StepBuilder

ACTIVATION, GRADIENT, WORKSPACE = "activations", "gradients", "workspace"
KINDS = (ACTIVATION, GRADIENT, WORKSPACE)
WIDTH, HEIGHT = 720, 240
COLOURS = {ACTIVATION: "#2563eb", GRADIENT: "#d97706", WORKSPACE: "#64748b"}

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SMALLEST = 4096
"""Bytes of a tensor that is worth a file."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory of one step, in bytes."""

    parameters: int
    slots: int
    """What the optimiser remembers."""
    arena: int
    """What launches share: everything that is neither given nor lasts."""
    outside: int
    """What lies in a file until the way back reads it."""
    blocks: tuple[LiveBlock, ...]
    """What shares the arena, and between which launches each is alive."""
    kinds: Mapping[str, str]
    """Whether each block is an activation, a gradient, or the workspace of a launch."""
    recomputed: tuple[str, ...]
    """The tensors that are computed a second time."""
    moved: tuple[str, ...]
    streamed: int = 0
    """Bytes of parameters and slots that lie in files but around their uses."""

    @property
    def total(self) -> int:
        """The bytes that a step takes: what lasts and is not streamed, and the arena."""
        return self.parameters + self.slots - self.streamed + self.arena

    @property
    def least(self) -> int:
        """The most bytes that are alive at once: no arena can be smaller."""
        return max(self.alive(), default=0)

    def peak(self, kind: str) -> int:
        """The most bytes of a kind that are alive at once."""
        return max(self.alive((kind,)), default=0)

    def alive(self, kinds: Sequence[str] = KINDS) -> list[int]:
        """The bytes that are alive from each launch at which that changes."""
        chosen = {item.name: _size(item) for item in self.blocks if self.kinds[item.name] in kinds}
        ranges = ((item.name, item.first, item.last + 1) for item in self.blocks if item.name in chosen)
        found, total = [], 0
        for _, begun, ended in changes(ranges):
            total += sum(chosen[name] for name in begun) - sum(chosen[name] for name in ended)
            found.append(total)
        return found


def plan_memory(source: TrainableGraph, settings: StepSettings, options: Options) -> MemoryPlan:
    """The plan of a step for the extents that the options give; InputError names those that they leave open.

    Where gradients are collected the extents are those of one part of a batch, and two graphs have an arena each.
    """
    builder = StepBuilder(source, settings)
    is_split = settings.is_split or settings.accumulation > 1
    graphs = (builder.collection(), builder.application()) if is_split else (builder.step(),)
    # An update alone has no extents of a batch.
    models = [with_extents(graphs[0].model, options), *(item.model for item in graphs[1:])]
    runs = [_planned(model, options) for model in models]
    blocks: list[LiveBlock] = []
    kinds: dict[str, str] = {}
    for model, run in zip(models, runs, strict=True):
        own = [
            item._replace(name=f"{number}:{item.name}" if number else item.name)
            for number, segment in enumerate(run, len(runs[0]) if blocks else 0)
            for item in segment.each.blocks
        ]
        blocks += own
        kinds |= _kinds(model, source, own)
    lasting = {item.name: tensor_bytes(item) for model in models for item in model.graph.variables}
    weights = {name for name in lasting if name in source.gradients or name in source.policies}
    nodes = [node for model in models for node in model.graph.operations()]
    return MemoryPlan(
        sum(lasting[name] for name in weights),
        sum(lasting[name] for name in lasting if name not in weights),
        sum(max((item.each.arena_bytes for item in run), default=0) for run in runs),
        sum(item.each.outside_bytes for run in runs for item in run),
        tuple(blocks),
        kinds,
        tuple(
            item.name.removesuffix(AGAIN)
            for node in nodes
            if node.operator != AFTER
            for item in results_of(node)
            if item.name.endswith(AGAIN)
        ),
        tuple(item.name for node in nodes if node.operator == OFFLOAD for item in operands_of(node)),
        sum(size for name, size in lasting.items() if any(name in model.streams for model in models)),
    )


def _planned(model: Model, options: Options) -> Sequence[Segment]:
    """The launches of a model with their arenas."""
    _require_closed(model)
    run: KernelExecutable = compile_open(replace(model, data=_Nothing(model)), "cpu", options)
    return run.segments({})


def _require_closed(model: Model) -> None:
    inputs = [item for item in members(model.graph.inputs) if isinstance(item, Tensor)]
    left = sorted({str(size) for item in inputs for size in item.shape if not isinstance(size, int)})
    if left:
        said = ",".join(f"{name}=…" for name in left)
        raise InputError(
            f"how much memory a step takes depends on {', '.join(left)}", hint=f"say --shape {said}"
        )


def _kinds(model: Model, source: TrainableGraph, blocks: Iterable[LiveBlock]) -> dict[str, str]:
    """The kind of each block: a gradient depends on that of an output, but for what is computed again."""
    late = set(source.seeds.values())
    for node in model.graph.nodes:
        if any(item.name in late for item in operands_of(node)):
            late |= {item.name for item in results_of(node) if not item.name.endswith((AGAIN, "_later"))}
    return {item.name: _kind(item.name, late) for item in blocks}


def _kind(name: str, late: set[str]) -> str:
    if "\n" in name:
        return WORKSPACE
    # What an operation is decomposed into is called after its result.
    parts = name.partition(":")[2].split(".") if name[:1].isdigit() else name.split(".")
    stems = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return GRADIENT if any(stem in late for stem in stems) else ACTIVATION


def _size(block: LiveBlock) -> int:
    return block.size if isinstance(block.size, int) else 0


def tensor_bytes(tensor: Tensor) -> int:
    """The bytes of a tensor, as far as its extents are known."""
    return prod(item for item in tensor.shape if isinstance(item, int)) * tensor.element.bits // 8


@dataclass(frozen=True, slots=True)
class _Nothing(Mapping[str, Array]):
    """Zeros for every variable, which take no memory until somebody reads them."""

    model: Model

    def __getitem__(self, name: str) -> Array:
        tensor = next(item for item in self.model.graph.variables if item.name == name)
        shape = tuple(item for item in tensor.shape if isinstance(item, int))
        real = np.float64 if tensor.element.bits == 64 else np.float32
        return np.zeros(shape, np.int64 if tensor.element.is_integer else real)

    def __iter__(self) -> Iterator[str]:
        return (item.name for item in self.model.graph.variables)

    def __len__(self) -> int:
        return len(self.model.graph.variables)


# --- a budget ---------------------------------------------------------------------------------------------------
#
# Where all fits, all is kept, and nothing is computed twice or moved, whatever the text says: numbers are the same.
# Otherwise what is offloaded is what has to be, and no more. Candidates are the activations with `@memory(offload)`,
# those of lower priority first, then what the way back reads and no word of the text keeps in memory, large ones first.


def read_budget(text: str) -> int:
    """The bytes of a text such as `300MB`."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]{0,2})", text.strip())
    if found is None or found[2].upper() not in UNITS:
        raise InputError(f"'{text[:40]}' is no amount of memory", hint="say --memory-budget 300MB, or 2GB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def within_budget(
    source: TrainableGraph, settings: StepSettings, options: Options, budget: int
) -> tuple[TrainableGraph, MemoryPlan]:
    """The model whose step takes no more bytes than that, and its plan; InputError where none does."""
    whole = keep_all(source)
    plan = plan_memory(whole, settings, options)
    if plan.total <= budget:
        return whole, plan
    order = _candidates(source, options)
    everything = frozenset(item.name for node in source.model.graph.nodes for item in results_of(node))
    kept = everything if source.kept is None else source.kept

    def take(count: int) -> tuple[TrainableGraph, MemoryPlan]:
        made = replace(source, kept=kept, moved=frozenset(order[:count]))
        return made, plan_memory(made, settings, options)

    low, high, best = 0, len(order), take(len(order))
    if best[1].total > budget:
        raise InputError(
            f"a step takes {shown_bytes(best[1].total)} even where {len(order)} tensors are offloaded, "
            f"and {shown_bytes(budget)} are its budget",
            hint="take smaller batches, @checkpoint blocks, or @memory(stream) on large parameters",
        )
    while low < high:
        middle = (low + high) // 2
        found = take(middle)
        if found[1].total <= budget:
            high, best = middle, found
        else:
            low = middle + 1
    return best


def _candidates(source: TrainableGraph, options: Options) -> list[str]:
    """What may lie in a file until the way back reads it, first what goes first."""
    model = with_extents(source.model, options)
    forward, backward = halves(model.graph.nodes, source.gradient_inputs)
    made = {item.name: item for node in forward for item in results_of(node) if isinstance(item, Tensor)}
    read = {item.name for node in backward for item in operands_of(node)}
    outputs = {item.name for item in members(model.graph.outputs)}
    found = [
        item
        for name, item in made.items()
        if name in source.moved
        or (
            name in read - outputs
            and name not in source.pinned
            and (source.kept is None or name in source.kept)
            and tensor_bytes(item) >= SMALLEST
        )
    ]
    streams = source.model.streams

    def place(item: Tensor) -> tuple[bool, int, int]:
        is_said = item.name in source.moved
        return not is_said, streams[item.name].priority if item.name in streams else 0, -tensor_bytes(item)

    return [item.name for item in sorted(found, key=place)]


# --- as text, as data, as a picture -----------------------------------------------------------------------------


def describe_memory(path: Path, options: Options) -> Description:
    """The memory of a step of training the model of a file, and what it would be if everything were kept."""
    source = trainable(path, options)
    settings = StepSettings(dtype=options.dtype or "f32")
    if options.memory_budget is None:
        plan = plan_memory(source, settings, options)
    else:
        source, plan = within_budget(source, settings, options, read_budget(options.memory_budget))
    saves = bool(plan.recomputed or plan.moved)
    whole = plan_memory(keep_all(source), settings, options) if saves else plan
    best = smallest_arena(plan) if options.optimal else None
    if options.picture is not None:
        write_text(options.picture, draw(plan, f"{source.model.graph.name}: memory of a step"))
    lines, data = [*_lines(source, plan, whole)], _data(plan, whole)
    if best is not None:
        lines.append(best.line(plan))
        data["optimal"] = {"arena": best.arena, "least": best.least, "is_proved": best.is_proved}
    return Description("\n".join(lines), data)


@dataclass(frozen=True, slots=True)
class SmallestArena:
    """The smallest arena that a search found for the blocks of a step, and what none can be smaller than."""

    arena: int
    least: int

    @property
    def is_proved(self) -> bool:
        """Whether no arena is smaller."""
        return self.arena == self.least

    def line(self, plan: MemoryPlan) -> str:
        """How far above it the arena of a plan lies."""
        gap = plan.arena / max(1, self.arena) - 1
        hint = "" if find_spec("ortools") else " (lamella[plan] proves more)"
        proof = (
            "which is the smallest" if self.is_proved else f"none is below {shown_bytes(self.least)}{hint}"
        )
        return f"  a search finds {shown_bytes(self.arena)}, {proof}: the arena is {gap:.1%} above it"


def smallest_arena(plan: MemoryPlan) -> SmallestArena:
    """The smallest arena that is found, by a solver too where there is one; segments are searched apart."""
    parts: dict[str, list[LiveBlock]] = {}
    for item in plan.blocks:
        number = item.name.partition(":")[0] if item.name[:1].isdigit() and ":" in item.name else ""
        parts.setdefault(number, []).append(item)
    found = [*map(_smallest, parts.values())]
    return SmallestArena(
        max((item.arena for item in found), default=0), max((item.least for item in found), default=0)
    )


def _smallest(blocks: Sequence[LiveBlock]) -> SmallestArena:
    """The smallest arena of blocks: a search is enough where it comes to what is alive at once."""
    found, least = pack(blocks, ALIGNMENT), least_bytes(blocks, ALIGNMENT)
    if found.total != least and find_spec("ortools"):
        found, least = pack_exactly(blocks, ALIGNMENT, found)
    return SmallestArena(found.total if isinstance(found.total, int) else 0, least)


def keep_all(source: TrainableGraph) -> TrainableGraph:
    """The same without a memory policy: the way back reads what the way forward left."""
    made = (item.name for node in source.model.graph.nodes for item in results_of(node))
    return replace(source, kept=frozenset(made), moved=frozenset())


def _lines(source: TrainableGraph, plan: MemoryPlan, whole: MemoryPlan) -> Iterator[str]:
    yield f"{source.model.graph.name}: memory of a training step on cpu, adamw"
    parts = ", ".join(f"{kind} at most {shown_bytes(plan.peak(kind))}" for kind in KINDS)
    rows = [
        ("parameters", plan.parameters, ""),
        ("optimiser", plan.slots, ""),
        ("arena", plan.arena, f"{parts}; {shown_bytes(plan.least)} at once"),
    ]
    if plan.moved:
        rows.append(("in a file", plan.outside, f"{len(plan.moved)} tensors until the way back reads them"))
    if plan.streamed:
        rows.append(
            ("streamed", plan.streamed, "of parameters and optimiser, in files but around their uses")
        )
    for name, size, text in rows:
        yield f"  {name:<12}{shown_bytes(size):>10}  {text}".rstrip()
    if plan.recomputed:
        yield f"  {len(plan.recomputed)} tensors are computed twice"
    if whole is not plan:
        fall = 1 - plan.peak(ACTIVATION) / max(1, whole.peak(ACTIVATION))
        yield (
            f"  if all were kept: arena {shown_bytes(whole.arena)}, activations at most "
            f"{shown_bytes(whole.peak(ACTIVATION))} (the policy takes {fall:.0%} of them away)"
        )


def _data(plan: MemoryPlan, whole: MemoryPlan) -> dict[str, object]:
    peaks = {kind: plan.peak(kind) for kind in KINDS}
    return {
        "memory": {
            "parameters": plan.parameters,
            "optimiser": plan.slots,
            "arena": plan.arena,
            "at_once": plan.least,
            "outside": plan.outside,
            "streamed": plan.streamed,
            "peaks": peaks,
            "recomputed": list(plan.recomputed),
            "moved": list(plan.moved),
            "if_all_were_kept": {"arena": whole.arena, "activations": whole.peak(ACTIVATION)},
        }
    }


def shown_bytes(size: int) -> str:
    """An amount of memory as a reader wants it."""
    for unit, most in (("bytes", 10_000), ("KB", 10_000_000), ("MB", 10_000_000_000)):
        if size < most:
            scale = {"bytes": 1, "KB": 1_000, "MB": 1_000_000}[unit]
            return f"{size:,} bytes" if scale == 1 else f"{size / scale:,.1f} {unit}"
    return f"{size / 1e9:,.1f} GB"


def draw(plan: MemoryPlan, title: str) -> str:
    """What is alive from the first launch to the last, one kind above the other, as an SVG picture."""
    last = max((item.last for item in plan.blocks), default=0) + 1
    curves = [_curve(plan, kind, last) for kind in KINDS]
    top = max((sum(column) for column in zip(*curves, strict=True)), default=1) or 1
    below = [0] * last
    areas = []
    for kind, curve in zip(KINDS, curves, strict=True):
        upper = [a + b for a, b in zip(below, curve, strict=True)]
        points = [*_points(upper, last, top), *reversed(_points(below, last, top))]
        areas.append(
            f'<polygon fill="{COLOURS[kind]}" points="{" ".join(points)}"><title>{kind}</title></polygon>'
        )
        below = upper
    legend = "".join(
        f'<text x="{8 + 170 * number}" y="{HEIGHT + 34}" fill="{COLOURS[kind]}">'
        f"{kind} ≤ {shown_bytes(plan.peak(kind))}</text>"
        for number, kind in enumerate(KINDS)
    )
    heading = f"{escape(title)}: {shown_bytes(plan.least)} at once, arena {shown_bytes(plan.arena)}, {last} launches"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 44}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="8" y="14">{heading}</text>{"".join(areas)}{legend}</svg>\n'
    )


def _curve(plan: MemoryPlan, kind: str, last: int) -> list[int]:
    steps = [0] * (last + 1)
    for item in plan.blocks:
        if plan.kinds[item.name] == kind:
            steps[item.first] += _size(item)
            steps[item.last + 1] -= _size(item)
    total, found = 0, []
    for step in steps[:last]:
        total += step
        found.append(total)
    return found


def _points(values: Sequence[int], last: int, top: int) -> list[str]:
    """The corners of a curve of steps."""
    found = []
    for number, value in enumerate(values):
        height = HEIGHT + 18 - value * (HEIGHT - 4) / top
        found += [
            f"{number * WIDTH / last:.1f},{height:.1f}",
            f"{(number + 1) * WIDTH / last:.1f},{height:.1f}",
        ]
    return found


__all__ = ["MemoryPlan", "describe_memory", "draw", "plan_memory", "read_budget", "within_budget"]
