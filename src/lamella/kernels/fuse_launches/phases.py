"""Launches as phases of a larger kernel: each of their work-groups is done by one subgroup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.build import regions
from lamella.kernels.launches import ELEMENT_BYTES, FILL, BufferView, Launch
from lamella.kernels.rewrite import constants_of, make_names_unique, walk
from lamella.lang.tensor.nodes import (
    Arith,
    Builtin,
    Cast,
    Compare,
    Constant,
    Dictionary,
    For,
    Foreach,
    Function,
    If,
    Load,
    Math,
    Memref,
    Parallel,
    Parameter,
    Region,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Value,
    Yield,
)

WARP = 32
MOST_SUBGROUPS = 32
"""Subgroups of the one work-group that runs small launches."""
MOST_STEPS = 512
"""Trips of the loops of a subgroup, over all its work-groups, up to which a launch is small."""
MOST_ROUNDS = 2
"""Work-groups of a small launch for each subgroup that takes them."""
LAUNCH_BYTES = 1 << 17
"""The bytes that one multiprocessor moves in the time that a launch costs, 1.8 µs."""
PURE = (Constant, Arith, Cast, Compare, Math, Load)
INSIDE = (*PURE, Store, Yield, SubgroupBroadcast, SubgroupOperation)
"""Instructions of work-items that phases may have, beside loops and branches."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A launch whose work-groups are done by one subgroup each."""

    launch: Launch
    function: Function
    steps: int
    """Trips of the loops of one work-group."""
    moved: int = 0
    """Bytes that all of them load and store, at most."""

    @property
    def is_small(self) -> bool:
        """Whether one work-group does it in little time."""
        rounds = -(-self.launch.groups // MOST_SUBGROUPS)
        return rounds <= MOST_ROUNDS and rounds * self.steps <= MOST_STEPS

    @property
    def is_heavy(self) -> bool:
        """Whether it is bandwidth-bound: slower on one multiprocessor than a launch begins that has all of them."""
        return self.moved > LAUNCH_BYTES


def find_phase(launch: Launch, functions: Mapping[str, Function]) -> Phase | None:
    """A launch as a phase; None where its kernel does what a subgroup of a larger work-group cannot."""
    function = functions.get(launch.kernel)
    if function is None or launch.kernel == FILL:
        return None
    try:
        steps, moved = _cost_of(function)
    except Unsupported:
        return None
    # What data decide, such as rows of a table, may be all of it or little.
    return Phase(
        launch, function, steps, min(moved * launch.groups, sum(item.reach for item in launch.arguments))
    )


def _cost_of(function: Function) -> tuple[int, int]:
    """The trips of the loops of a subgroup, and the bytes that it moves; Unsupported where the kernel is no phase."""
    given = Dictionary() if function.attributes is None else function.attributes
    if given.find("subgroup_size") != WARP or not all(map(_is_known, function.parameters)):
        raise Unsupported("its sizes are others")
    nodes = [item.instruction for item in walk(function.body)]
    if any(isinstance(item, Parallel) for item in nodes) and given.find("work_group_size") != (WARP, 1):
        raise Unsupported("its work-groups have several subgroups")
    function = make_names_unique(function)
    elements = {
        item.value.name: ELEMENT_BYTES[item.type.element]
        for item in function.parameters
        if isinstance(item.type, Memref)
    }
    lengths = _Lengths(constants_of(function), find_spans(function.body), elements)
    return _count(function.body, lengths, inside=False), _bytes(function.body, lengths, 1)


def _is_known(parameter: Parameter) -> bool:
    """Whether a parameter is memory of known sizes."""
    type_ = parameter.type
    return isinstance(type_, Memref) and None not in (*type_.shape, *type_.stride)


def find_spans(region: Region) -> dict[tuple[str, str], int]:
    """How far one value lies behind another, where that is a constant which is added to it."""
    numbers: dict[str, int] = {}
    found: dict[tuple[str, str], int] = {}
    for statement in walk(region):
        node = statement.instruction
        if isinstance(node, Constant) and isinstance(node.value, int):
            numbers[statement.results[0].name] = node.value
        if isinstance(node, Arith) and node.function == "add":
            one, other = (item.name for item in node.operands)
            for base, more in ((one, other), (other, one)):
                if more in numbers:
                    found[base, statement.results[0].name] = numbers[more]
    return found


@dataclass(frozen=True, slots=True)
class _Lengths:
    """What is known of the ends of loops."""

    numbers: Mapping[str, object]
    spans: Mapping[tuple[str, str], int]
    elements: Mapping[str, int]
    """The bytes of an element of each parameter."""

    def trips(self, begin: Value, end: Value, step: int) -> int:
        """The trips of a loop; Unsupported where nothing says how many."""
        first, last = self.numbers.get(begin.name), self.numbers.get(end.name)
        span = self.spans.get((begin.name, end.name))
        if isinstance(first, int) and isinstance(last, int):
            span = last - first
        if span is None:
            raise Unsupported("a loop has no known length")
        return max(0, -(-span // step))


def _count(region: Region, lengths: _Lengths, inside: bool) -> int:
    """The trips of a region; outside of what work-items do there may be nothing but numbers and branches."""
    total = 1
    for statement in region.statements:
        node = statement.instruction
        match node:
            case Parallel():
                total += _count(node.body, lengths, True)
            case Foreach() if not inside:
                trips = 1
                for place, (begin, end) in enumerate(zip(node.begins, node.ends, strict=True)):
                    trips *= lengths.trips(begin, end, WARP if place == 0 else 1)
                total += trips * _count(node.body, lengths, True)
            case For() if inside:
                step = 1 if node.step is None else lengths.numbers.get(node.step.name)
                if not isinstance(step, int) or step < 1:
                    raise Unsupported("a loop has no known step")
                total += lengths.trips(node.begin, node.end, step) * _count(node.body, lengths, True)
            case If():
                total += sum(_count(item, lengths, inside) for item in regions(node))
                if node.types and not inside:
                    raise Unsupported("a branch of all gives numbers")
            case Builtin():
                if node.name not in (("group_id", "subgroup_local_id") if inside else ("group_id",)):
                    raise Unsupported("it asks for its work-group")
            case _:
                if not isinstance(node, INSIDE if inside else PURE):
                    raise Unsupported("it does more than work-items do alone")
                if isinstance(node, Store) and node.flag:
                    raise Unsupported("it adds atomically")
    return total


def _bytes(region: Region, lengths: _Lengths, lanes: int) -> int:
    """What the loads and stores of a region move, of each of so many work-items."""
    total = 0
    for statement in region.statements:
        node = statement.instruction
        match node:
            case Parallel():
                total += _bytes(node.body, lengths, WARP)
            case Foreach():
                trips = 1
                for begin, end in zip(node.begins, node.ends, strict=True):
                    trips *= lengths.trips(begin, end, 1)
                total += trips * _bytes(node.body, lengths, 1)
            case For():
                step = None if node.step is None else lengths.numbers.get(node.step.name)
                trips = lengths.trips(node.begin, node.end, step if isinstance(step, int) else 1)
                total += trips * _bytes(node.body, lengths, lanes)
            case If():
                total += max(_bytes(item, lengths, lanes) for item in regions(node))
            case Load() | Store():
                total += lanes * lengths.elements.get(node.operand.name, 0)
            case _:
                continue
    return total


def find_levels(phases: Sequence[Phase]) -> list[list[Phase]]:
    """Phases in topological order: those of one level are independent of each other."""
    levels: list[int] = []
    for number, item in enumerate(phases):
        before = [levels[other] + 1 for other in range(number) if _conflict(phases[other], item)]
        levels.append(max(before, default=0))
    return [
        [item for item, level in zip(phases, levels, strict=True) if level == place]
        for place in range(max(levels) + 1)
    ]


def _conflict(one: Phase, other: Phase) -> bool:
    """Whether one of two launches writes memory that the other touches (a data hazard)."""
    touched, written = (one.launch.arguments, other.launch.arguments), (_written(one), _written(other))
    return any(
        _meet(first, second)
        for made, used in ((written[0], touched[1]), (written[1], touched[0]))
        for first in made
        for second in used
    )


def _written(phase: Phase) -> list[BufferView]:
    return [phase.launch.arguments[place] for place in phase.launch.writes]


def _meet(one: BufferView, other: BufferView) -> bool:
    """Whether two views reach the same bytes of a buffer; parts of one that is stacked lie one behind the other."""
    if one.buffer != other.buffer:
        return False
    begins = [ELEMENT_BYTES[item.element] * item.offset for item in (one, other)]
    return begins[0] < begins[1] + other.reach and begins[1] < begins[0] + one.reach
