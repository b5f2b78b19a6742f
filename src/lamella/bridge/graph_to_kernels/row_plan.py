"""Schedules of row kernels: which loops are work-groups, which one goes over the lanes, what lives in which memory.

All stages share the *row* loops. Inside a row the stages run one after the other, several in one pass where they have
the same loops (loop fusion). Lanes go along a loop inside the row where that is the contiguous one, and reductions are
then combined across lanes; else along a row loop, so that each lane reduces rows of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from lamella.base.affine import Affine
from lamella.base.dtype import ElementType
from lamella.base.errors import Unsupported
from lamella.base.open_extent import OpenExtent, is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.flat import FlatKernel, FlatStage, place_of
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.inline import cost_of
from lamella.bridge.graph_to_kernels.step_plan import MOST_STEPS
from lamella.ops.formula import Apply
from lamella.ops.lower import reachable

GROUP_STEPS = 1 << 15
"""Steps that are worth a work-group of their own."""
FEW_GROUPS = 1024
MANY_ARRAYS = 5
"""Work-groups of threads that leave most of a GPU idle."""
MOST_GROUPS = 512
"""Work-groups beyond which they only become larger."""
THREAD_STEPS, MOST_BLOCKS, FULL_BLOCKS = (1 << 7, 1 << 10), 1 << 20, 1 << 11
"""The same where work-items are threads, the fewer steps as long as there are not so many work-groups as the last."""
MOST_TRIES = 4096
"""Lengths of pieces that are tried."""
LANE_BYTES = 256
"""What the lanes of a subgroup hold of one value: four vectors that do not wait for each other."""
HEAVY = 16
"""What a function costs that is a polynomial of many terms."""
VECTOR = 16
MOST_LOCAL = 1 << 20
"""Bytes of local memory."""
SHARINGS = ((528, 8), (2112, 32))
"""Subgroups that a launch should have, as long as each of them takes so many steps of a row: many, if rows are long."""
MOST_SHARERS = 32
"""The most subgroups of a work-group that share rows."""
FEWEST_SHARED_ELEMENTS = 1 << 14
"""Elements of a launch for which it is worth being no small one, which others might be joined with."""
OPEN_ROOM = 512
"""Elements of local memory for a row of an open length, at least."""
LANE_SUMS = ("+=", "<=", ">=")
"""What can be combined across lanes."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Stages that run in one nest of loops inside a row."""

    stages: tuple[FlatStage, ...]
    outer: tuple[str, ...]
    """Loops round the lanes."""
    lane: str | None
    """The loop over the lanes; None where they go along rows, or where there is nothing to loop over."""
    inner: tuple[str, ...] = ()
    """Loops inside each lane, which a reduction sums over."""


@dataclass(frozen=True, slots=True)
class LocalTensor:
    """A tensor in local memory: its elements for each row, and the strides of its loops."""

    count: int
    strides: Mapping[str, int]

    def place(self, form: Form) -> Form:
        """The place in local memory of a place of the whole tensor."""
        return Affine(
            0, tuple(sorted((name, self.strides[name]) for name, _ in form.terms if name in self.strides))
        )


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The schedule of a row kernel."""

    kernel: FlatKernel
    passes: tuple[Pass, ...]
    across: str | None
    """The row loop along which the lanes go, where they do."""
    lanes: int
    shared: tuple[str, ...]
    """Parallel row loops: their steps are work-groups."""
    cut: str | None
    """The tiled row loop."""
    piece: int
    looped: tuple[str, ...]
    """Sequential row loops inside a work-group."""
    registers: frozenset[str]
    """Tensors of which a row has one element."""
    locals: Mapping[str, LocalTensor]
    """Tensors that are kept in local memory."""
    at_once: int = 1
    """Unrolling: steps over the lanes that are in flight at once, for threads wait long for memory."""
    sharers: int = 1
    """Subgroups of a work-group that share the steps of each lane's row; where several do, it has no other rows."""

    def shared_loop(self, item: Pass) -> str | None:
        """The loop of a pass whose steps several subgroups share."""
        return _longest(self.kernel, item)[0] if self.sharers > 1 else None

    @property
    def groups(self) -> int:
        """The number of work-groups."""
        found = prod(self.kernel.extents[name] for name in self.shared)
        return found if self.cut is None else found * -(-self.kernel.extents[self.cut] // self.piece)


def plan_rows(
    kernel: FlatKernel,
    tensors: Mapping[str, GroupTensor],
    outputs: frozenset[str],
    sizes: Sequence[int],
    threads: bool = False,
) -> RowPlan:
    """The schedule of a kernel; Unsupported where lanes would need what others have computed.

    `sizes` are those that a subgroup may have; `threads` says that work-items are threads.
    """
    for stage in kernel.stages:
        _verify(stage, kernel, tensors[stage.tensor])
    if sum(_steps(kernel, stage) for stage in kernel.stages) > MOST_STEPS:
        raise Unsupported(f"it takes more than {MOST_STEPS} steps")
    if not kernel.rows and (len(kernel.stages) > 1 or not kernel.stages[0].is_reduction):
        raise Unsupported("the stages have no rows in common")
    registers = frozenset(item.tensor for item in kernel.stages if not set(item.kept) - set(kernel.rows))
    groups = list(_passes(kernel, registers))
    across = _choose_lanes(kernel, groups)
    passes = tuple(_nest(kernel, stages, across) for stages in groups)
    kept = _kept(kernel, passes, registers, outputs)
    widest = max(_bytes(tensors[name].element) for name in _named(kernel))
    counts = (
        [kernel.extents[across]] if across else [kernel.extents[item.lane] for item in passes if item.lane]
    )
    most = LANE_BYTES // 2 if _is_heavy(kernel) else LANE_BYTES
    lanes = _lane_count(
        MOST_STEPS if any(map(is_open, counts)) else max(counts, default=1), widest, sizes, most
    )
    local = {name: _room(kernel, name) for name in kept}
    share = lanes if across else 1
    if sum(room.count * share * _bytes(tensors[name].element) for name, room in local.items()) > MOST_LOCAL:
        raise Unsupported("a row is too long for local memory")
    shared, cut, piece, looped = _share(kernel, across, lanes, threads)
    found = RowPlan(kernel, passes, across, lanes, shared, cut, piece, looped, registers, local)
    if not threads:
        return found
    # Where there are few work-groups nobody hides the wait for memory but the loads of one.
    few = found.groups <= FEW_GROUPS
    # Many arrays are many loads as it is.
    many = 8 if len(set(_named(kernel))) < MANY_ARRAYS else 4
    found = replace(
        found, at_once=(4 if few or many > 4 else 2) if _is_heavy(kernel) else 32 if few else many
    )
    return _shared_by_several(found)


def _steps(kernel: FlatKernel, stage: FlatStage) -> int:
    return prod(kernel.extents[name] for name in stage.loops)


def _bytes(element: ElementType) -> int:
    return max(element.bits // 8, 1)


def _named(kernel: FlatKernel) -> Iterator[str]:
    for stage in kernel.stages:
        yield stage.tensor
        yield from (item.tensor for item in stage.reads())


def _verify(stage: FlatStage, kernel: FlatKernel, held: GroupTensor) -> None:
    """Refuse what writes a place in several steps, or what leaves part of a tensor without a start."""
    reach = 0
    for _, factor, extent in sorted(
        (abs(factor), factor, kernel.extents[name]) for name, factor in stage.place.terms
    ):
        if factor <= reach:
            raise Unsupported("several steps write one place")
        reach += factor * (extent - 1)
    if stage.reduced and not stage.is_reduction:
        raise Unsupported("the last of several steps counts")
    whole = prod(kernel.extents[name] for name in stage.kept) == held.volume
    used = any(read.tensor == stage.tensor for item in kernel.stages for read in item.reads())
    if not whole and (stage.is_reduction or used):
        raise Unsupported("a stage leaves part of its target as it is")


# --- passes -------------------------------------------------------------------------------------------------


def inside(kernel: FlatKernel, stage: FlatStage) -> tuple[str, ...]:
    """The loops of a stage inside a row."""
    return tuple(name for name in stage.loops if name not in kernel.rows)


def _is_partial(kernel: FlatKernel, stage: FlatStage) -> bool:
    """Whether a reduction keeps loops inside the row."""
    return stage.is_reduction and bool(set(stage.kept) - set(kernel.rows))


def _passes(kernel: FlatKernel, registers: frozenset[str]) -> Iterator[list[FlatStage]]:
    """Stages one after the other, joined where they run in the same loops."""
    current: list[FlatStage] = []
    for stage in kernel.stages:
        if current and not _joins(kernel, current, stage, registers):
            yield current
            current = []
        current.append(stage)
    yield current


def _joins(
    kernel: FlatKernel, current: Sequence[FlatStage], stage: FlatStage, registers: frozenset[str]
) -> bool:
    if any(_is_partial(kernel, item) for item in (*current, stage)):
        return False
    if set(inside(kernel, stage)) != set(inside(kernel, current[0])):
        return False
    made = {item.tensor: item for item in current}
    for read in stage.reads():
        writer = made.get(read.tensor)
        if writer is not None and (writer.is_reduction or place_of(read, kernel.table) != writer.place):
            return False
    return True


def _nest(kernel: FlatKernel, stages: Sequence[FlatStage], across: str | None) -> Pass:
    loops = inside(kernel, stages[0])
    if _is_partial(kernel, stages[0]):
        (stage,) = stages
        kept = [name for name in loops if name in stage.kept]
        summed = tuple(name for name in loops if name not in stage.kept)
        if across is not None:
            return Pass(tuple(stages), tuple(kept), None, summed)
        lane = _best(kernel, stages, kept)[0]
        return Pass(tuple(stages), tuple(name for name in kept if name != lane), lane, summed)
    if across is not None or not loops:
        return Pass(tuple(stages), loops, None)
    lane = _best(kernel, stages, loops)[0]
    if any(item.is_reduction and item.sign not in LANE_SUMS for item in stages):
        raise Unsupported("lanes cannot be multiplied or joined by logic")
    if any(item.is_reduction and item.type == "bool" for item in stages):
        raise Unsupported("lanes of bool cannot be joined")
    return Pass(tuple(stages), tuple(name for name in loops if name != lane), lane)


# --- lanes --------------------------------------------------------------------------------------------------


def _choose_lanes(kernel: FlatKernel, groups: Sequence[Sequence[FlatStage]]) -> str | None:
    """The row loop along which the lanes go; None where they go along loops inside the row."""
    within = 0.0
    for stages in groups:
        loops = inside(kernel, stages[0])
        if loops:
            partial = _is_partial(kernel, stages[0])
            within += _best(
                kernel, stages, [name for name in loops if name in stages[0].kept or not partial]
            )[1]
    scores = {name: sum(_score(kernel, stages, name) for stages in groups) for name in kernel.rows}
    best = max(scores, key=lambda name: scores[name], default=None)
    if not any(inside(kernel, stage) for stage in kernel.stages):
        return best
    return best if best is not None and scores[best] > within else None


def _best(kernel: FlatKernel, stages: Sequence[FlatStage], loops: Sequence[str]) -> tuple[str, float]:
    found = {name: _score(kernel, stages, name) for name in loops}
    best = max(found, key=lambda name: found[name])
    return best, found[best]


def _score(kernel: FlatKernel, stages: Sequence[FlatStage], lane: str) -> float:
    """How coalesced the accesses of some stages are, if the lanes go along a loop."""
    extent = kernel.extents[lane]
    filled = 1.0 if is_open(extent) else extent / (-(-extent // VECTOR) * VECTOR)
    total = 0.0
    for stage in stages:
        steps = _steps(kernel, stage)
        for form in stage.forms(kernel.table):
            if form.terms:
                total += steps * filled * _closeness(form.coefficient(lane))
    return total


def _closeness(stride: int) -> float:
    """1 for elements side by side, less than nothing for elements far apart."""
    return {0: 0.5, 1: 1.0}.get(stride, -1.0)


def _is_heavy(kernel: FlatKernel) -> bool:
    """Whether polynomials of many terms are computed: they hide their own latency, and are a lot of code."""
    inside = (item for stage in kernel.stages for item in reachable(stage.value))
    return any(isinstance(item, Apply) and cost_of(item) >= HEAVY for item in inside)


def _lane_count(extent: int, widest: int, sizes: Sequence[int], most: int) -> int:
    """Lanes of a subgroup: as many as fill vectors well, and no more bytes than given."""
    fitting = [size for size in sizes if size * widest <= most] or [min(sizes)]
    return min(fitting, key=lambda size: (-(-extent // size) * (size // VECTOR + 1), -size))


# --- memory -------------------------------------------------------------------------------------------------


def _kept(
    kernel: FlatKernel, passes: Sequence[Pass], registers: frozenset[str], outputs: frozenset[str]
) -> list[str]:
    """The tensors that a later pass reads and that are no outputs."""
    made: dict[str, tuple[int, FlatStage]] = {}
    found: list[str] = []
    for number, item in enumerate(passes):
        for stage in item.stages:
            for read in stage.reads():
                place, writer = made.get(read.tensor, (number, stage))
                if place == number or read.tensor in registers:
                    continue
                _verify_lane(kernel, (passes[place], item), writer.place, place_of(read, kernel.table))
                if read.tensor not in (*outputs, *found):
                    found.append(read.tensor)
            made[stage.tensor] = (number, stage)
    return found


def _verify_lane(kernel: FlatKernel, pair: tuple[Pass, Pass], written: Form, read: Form) -> None:
    """Refuse a lane that reads what another one has written."""
    writer, reader = pair
    if written != read:
        raise Unsupported("a row is read at other places than it is written")
    if writer.lane is None and reader.lane is None:
        return
    if writer.lane != reader.lane or not written.coefficient(writer.lane or ""):
        raise Unsupported("a lane reads what another has computed")


def _room(kernel: FlatKernel, tensor: str) -> LocalTensor:
    """The local memory of a tensor: its loops inside a row, one behind the other without gaps."""
    stage = next(item for item in kernel.stages if item.tensor == tensor)
    strides: dict[str, int] = {}
    stride = 1
    for name in reversed(inside(kernel, stage)):
        if name in stage.kept:
            strides[name] = stride
            stride *= kernel.extents[name]
    # Memory of a kernel's own has a known size: rows of an open length get room for longer ones too.
    room = max(OPEN_ROOM, 1 << (stride - 1).bit_length()) if is_open(stride) else stride
    return LocalTensor(room, strides)


# --- work-groups --------------------------------------------------------------------------------------------


def _share(
    kernel: FlatKernel, across: str | None, lanes: int, threads: bool
) -> tuple[tuple[str, ...], str | None, int, tuple[str, ...]]:
    """Row loops over work-groups, the one that is tiled and its tile length, and those that are left."""
    last = kernel.stages[-1].place
    order = sorted(kernel.rows, key=lambda name: (name == across, -abs(last.coefficient(name))))
    rest = sum(_steps(kernel, stage) for stage in kernel.stages)
    least, most = GROUP_STEPS, MOST_GROUPS
    if threads:
        # Fewer steps where there are too few work-groups for all multiprocessors.
        least, most = min(THREAD_STEPS[1], max(THREAD_STEPS[0], rest // FULL_BLOCKS)), MOST_BLOCKS
    wanted = max(least, rest // most)
    shared: list[str] = []
    for name in order:
        extent = kernel.extents[name]
        if name == across or rest // extent < wanted or is_open(extent):
            break
        shared.append(name)
        rest //= extent
    left = order[len(shared) :]
    if left and is_open(kernel.extents[left[0]]):
        return (
            tuple(shared),
            left[0],
            _open_piece(kernel, left[0], (rest, wanted), lanes if left[0] == across else 1),
            tuple(left),
        )
    if not left or rest < 2 * wanted:
        return tuple(shared), None, 0, tuple(left)
    extent = kernel.extents[left[0]]
    unit = lanes if left[0] == across else 1
    piece = _piece(extent, -(-extent * wanted // rest), unit)
    if piece >= extent:
        return tuple(shared), None, 0, tuple(left)
    return tuple(shared), left[0], piece, tuple(left)


def _shared_by_several(plan: RowPlan) -> RowPlan:
    """The schedule with several subgroups for the rows of a work-group, where lanes go along few rows.

    Each lane would take all steps of its row one after the other, with too few loads in flight. The number of subgroups
    depends on the extents alone, so that every GPU adds in the same order.
    """
    kernel, across = plan.kernel, plan.across
    if across is None or any(map(is_open, kernel.extents.values())):
        return plan
    if any(item.is_reduction and item.type == "bool" for item in kernel.stages):
        return plan
    groups = prod(kernel.extents[name] for name in kernel.rows if name != across)
    groups *= -(-kernel.extents[across] // plan.lanes)
    steps = max((_longest(kernel, item)[1] for item in plan.passes), default=1)
    elements = sum(_steps(kernel, stage) for stage in kernel.stages)
    wanted = min(MOST_SHARERS, max(min(full // groups, steps // least) for full, least in SHARINGS))
    if wanted < 2 or elements < FEWEST_SHARED_ELEMENTS:
        return plan
    shared = tuple(name for name in kernel.rows if name != across)
    sharers = 1 << (wanted.bit_length() - 1)
    return replace(plan, shared=shared, cut=across, piece=plan.lanes, looped=(across,), sharers=sharers)


def _longest(kernel: FlatKernel, item: Pass) -> tuple[str | None, int]:
    """The longest loop of a pass round its lanes, and its steps."""
    found = max(item.outer, key=lambda name: kernel.extents[name], default=None)
    return found, 1 if found is None else kernel.extents[found]


def _open_piece(kernel: FlatKernel, name: str, steps: tuple[int, int], unit: int) -> int:
    """The tile length of a loop of open extent, which is always tiled: all of it where sharing is not worth it."""
    extent, (total, wanted) = kernel.extents[name], steps
    least = extent if total < 2 * wanted else -(-extent * wanted // total)
    return OpenExtent(-(-least // unit) * unit)


def _piece(extent: int, least: int, unit: int) -> int:
    """The tile length of a loop: a divisor where there is a fitting one, whole lanes at least."""
    first = -(-least // unit) * unit
    for piece in range(first, min(4 * first, extent, first + MOST_TRIES * unit) + 1, unit):
        if extent % piece == 0:
            return piece
    return first
