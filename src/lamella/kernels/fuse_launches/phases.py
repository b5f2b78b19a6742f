"""Launches as phases of a larger kernel: each of their work-groups is done by one subgroup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.build import regions
from lamella.kernels.launches import FILL, Launch
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

    @property
    def is_small(self) -> bool:
        """Whether one work-group does it in little time."""
        rounds = -(-self.launch.groups // MOST_SUBGROUPS)
        return rounds <= MOST_ROUNDS and rounds * self.steps <= MOST_STEPS


def find_phase(launch: Launch, functions: Mapping[str, Function]) -> Phase | None:
    """A launch as a phase; None where its kernel does what a subgroup of a larger work-group cannot."""
    function = functions.get(launch.kernel)
    if function is None or launch.kernel == FILL:
        return None
    try:
        return Phase(launch, function, _steps_of(function))
    except Unsupported:
        return None


def _steps_of(function: Function) -> int:
    """The trips of the loops of a subgroup; Unsupported where the kernel is no phase."""
    given = Dictionary() if function.attributes is None else function.attributes
    if given.find("subgroup_size") != WARP or not all(map(_is_known, function.parameters)):
        raise Unsupported("its sizes are others")
    nodes = [item.instruction for item in walk(function.body)]
    if any(isinstance(item, Parallel) for item in nodes) and given.find("work_group_size") != (WARP, 1):
        raise Unsupported("its work-groups have several subgroups")
    function = make_names_unique(function)
    return _count(function.body, _Lengths(constants_of(function), find_spans(function.body)), inside=False)


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


def find_levels(phases: Sequence[Phase]) -> list[list[Phase]]:
    """Phases in the order in which they run: those of one level touch nothing that another of it writes."""
    levels: list[int] = []
    for number, item in enumerate(phases):
        before = [levels[other] + 1 for other in range(number) if _conflict(phases[other], item)]
        levels.append(max(before, default=0))
    return [
        [item for item, level in zip(phases, levels, strict=True) if level == place]
        for place in range(max(levels) + 1)
    ]


def _conflict(one: Phase, other: Phase) -> bool:
    """Whether one of two launches writes memory that the other touches."""
    touched = [{view.buffer for view in item.launch.arguments} for item in (one, other)]
    written = [{item.launch.arguments[place].buffer for place in item.launch.writes} for item in (one, other)]
    return bool(written[0] & touched[1] or written[1] & touched[0])
