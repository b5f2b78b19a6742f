"""Two-stage reductions: a long sum of few elements is split into partial sums, which a second stage adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count as count_up
from math import prod
from types import MappingProxyType
from typing import TypeVar, cast

from lamella.base.open_extent import is_open
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.inline import Stages
from lamella.bridge.graph_to_kernels.maps import ASSIGNMENTS
from lamella.bridge.graph_to_kernels.row_plan import GROUP_STEPS
from lamella.bridge.graph_to_kernels.scans import find_scan
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup, Loop, Scalar
from lamella.ops.lower import reachable

_Term = TypeVar("_Term")

MOST_REUSE = 8
"""Data reuse (steps for each element) beyond which a sum wants tiles and not rows."""
PARTIAL = "/partial"
"""How the names of tensors of partial sums end."""
SHARED_STEPS, THREAD_SHARED_STEPS = 1 << 17, 1 << 13
"""Steps of one sum for which it is worth sharing them out, on a processor and on a GPU."""
MOST_PARTS, MOST_THREAD_PARTS = 64, 1 << 11
THREAD_STEPS = 1 << 12
"""Steps of a part for one subgroup of a GPU."""
WIDE_PART, FEW_PARTS = 128, 512
"""Neighbours that threads read at once, and parts that keep a GPU busy."""
COLUMN_STEPS = 32
"""Steps of a sum that a thread of a GPU takes one after the other, where there are few threads otherwise."""
MOST_COLUMNS = 1 << 17
"""Sums for which a GPU has threads enough without parts."""
MOST_COUNTS = 1 << 12
"""Sums of the same elements for which threads are few."""
FEW_SUMS = 4
"""Sums that leave threads idle if each is one work-group's."""


def split_reductions_over_threads(stages: Stages, has_threads: bool = False) -> Stages:
    """The stages with long reductions of few elements split in two, so that threads share them.

    The number of parts depends on extents alone, so that every number of threads adds in the same order.
    """
    found, tensors = list[Contraction](), dict(stages.tensors)
    waiting = list(stages.contractions)
    for number in count_up():
        if not waiting:
            break
        stage, now = waiting.pop(0), replace(stages, tensors=tensors)
        parts = _choose_split(stage, now, has_threads)
        if parts is None and has_threads:
            parts = _split_column_sums(stage, now) or _split_counts(stage, now)
        if parts is None:
            found.append(stage)
            continue
        loop, count = parts
        held = tensors[stage.targets[0].tensor]
        # By its number too: several formulas may add to one target, each in parts of its own.
        partial = GroupTensor(f"{held.name}/{number}{PARTIAL}", held.element, (count, *held.shape))
        tensors[partial.name] = partial
        first, rest = two_stage_sum(stage, loop, count, partial.name)
        found.append(first)
        waiting.insert(0, rest)  # the sum of many parts may be worth parts itself
    return replace(stages, contractions=tuple(found), tensors=tensors)


def _choose_split(stage: Contraction, stages: Stages, has_threads: bool) -> tuple[Loop, int] | None:
    """The loop of a reduction that is split, and into how many parts."""
    extents = {loop.index: loop.extent for loop in stage.loops if isinstance(loop.extent, int)}
    target = stage.targets[0]
    kept = prod(extents.get(name, 1) for name in _loops_of(target))
    plain = stage.sign not in ASSIGNMENTS and len(stage.targets) == 1 and not reuses(stage, stages)
    if find_scan(stage, stages.tensors) is not None:
        return None
    least = THREAD_SHARED_STEPS if has_threads else SHARED_STEPS
    if not plain or kept > FEW_SUMS or prod(extents.values()) // max(kept, 1) < least:
        return None
    most, each = (MOST_THREAD_PARTS, THREAD_STEPS) if has_threads else (MOST_PARTS, GROUP_STEPS)
    wanted = min(most, prod(extents.values()) // each)
    inner = [item for item in stage.loops if item.index not in _loops_of(target)]
    cuts = [
        (loop, max(size for size in range(1, wanted + 1) if loop.extent % size == 0))
        for loop in inner
        if isinstance(loop.extent, int) and wanted > 1
    ]
    cuts = [item for item in cuts if item[1] > 1]
    if not cuts:
        return None
    # The first loop will do for a few threads.
    return max(cuts, key=lambda item: _worth(stage, *item)) if has_threads else cuts[0]


def _worth(stage: Contraction, loop: Loop, count: int) -> tuple[int, bool, int]:
    """How good a split is for a GPU: parts for all of it, and coalesced loads inside a part."""
    closest = {name for item in elements_of(stage) for name in _names_of(item.indices[-1:])}
    length = loop.extent // count if isinstance(loop.extent, int) else 0
    return min(count, FEW_PARTS), loop.index not in closest or length >= WIDE_PART, count


def _split_column_sums(stage: Contraction, stages: Stages) -> tuple[Loop, int] | None:
    """The split of reductions along columns, where each thread has one and there are too few of them."""
    extents = {loop.index: loop.extent for loop in stage.loops if isinstance(loop.extent, int)}
    target = stage.targets[0]
    names = _loops_of(target)
    kept = prod(extents.get(name, 1) for name in names)
    steps = prod(extents.values()) // max(kept, 1)
    plain = stage.sign not in ASSIGNMENTS and len(stage.targets) == 1 and len(extents) == len(stage.loops)
    large = [item for item in elements_of(stage) if item.indices and _loops_of(item) & names]
    closest = {name for item in large for name in _names_of(item.indices[-1:])}
    if (
        not plain
        or not large
        or not closest <= names
        or any(map(is_open, extents.values()))
        or reuses(stage, stages)
    ):
        return None
    if steps < 2 * COLUMN_STEPS or kept > MOST_COLUMNS or find_scan(stage, stages.tensors) is not None:
        return None
    summed = [loop for loop in stage.loops if loop.index not in names and isinstance(loop.extent, int)]
    longest = max(summed, key=lambda loop: extents[loop.index])
    wanted = min(steps // COLUMN_STEPS, MOST_COLUMNS // kept)
    fitting = [size for size in range(2, wanted + 1) if extents[longest.index] % size == 0]
    return (longest, max(fitting)) if fitting else None


def _split_counts(stage: Contraction, stages: Stages) -> tuple[Loop, int] | None:
    """The split of reductions that all read the same elements, such as counts (histograms)."""
    extents = {loop.index: loop.extent for loop in stage.loops if isinstance(loop.extent, int)}
    names = _loops_of(stage.targets[0])
    kept = prod(extents.get(name, 1) for name in names)
    steps = prod(extents.values()) // max(kept, 1)
    plain = stage.sign not in ASSIGNMENTS and len(stage.targets) == 1 and len(extents) == len(stage.loops)
    if not plain or kept > MOST_COUNTS or steps < 2 * COLUMN_STEPS or any(map(is_open, extents.values())):
        return None
    if any(_loops_of(item) & names for item in elements_of(stage)) or not names:
        return None
    summed = [loop for loop in stage.loops if loop.index not in names and isinstance(loop.extent, int)]
    longest = max(summed, key=lambda loop: extents[loop.index])
    fitting = [size for size in range(2, steps // COLUMN_STEPS + 1) if extents[longest.index] % size == 0]
    return (longest, max(fitting)) if fitting else None


def _names_of(indices: Sequence[object]) -> set[str]:
    return {item.name for item in reachable(*indices) if isinstance(item, Index)}


def two_stage_sum(stage: Contraction, loop: Loop, count: int, name: str) -> tuple[Contraction, Contraction]:
    """Partial sums over a part of a loop each, in a tensor of a name, and the sum of all parts."""
    part, inner = f"{loop.index}/", f"{loop.index}%"
    length = loop.extent // count if isinstance(loop.extent, int) else 1
    index = Apply("+", (Apply("*", (Index(part), length), "int"), Index(inner)), "int")
    (target,) = stage.targets
    first = replace_terms(stage, {loop.index: index})
    loops = [Loop(inner, length) if item is loop else item for item in stage.loops]
    kept = tuple(item for item in stage.loops if item.index in _loops_of(target))
    place = Element(name, (Index(part), *target.indices), target.type)
    sums = replace(first, targets=(place,), loops=(Loop(part, count), *loops))
    return sums, Contraction((target,), stage.sign, (place,), (*kept, Loop(part, count)))


def replace_terms(
    stage: Contraction, indices: Mapping[str, Scalar], elements: Mapping[str, Scalar] = MappingProxyType({})
) -> Contraction:
    """A contraction with terms substituted for loop indices and for elements; shared terms stay shared."""
    known: dict[int, object] = {}

    def rebuild(term: _Term) -> _Term:
        if isinstance(term, Index):
            return cast(_Term, indices.get(term.name, term))
        if not isinstance(term, Apply | Element | Lookup | Guard):
            return term
        if id(term) not in known:
            known[id(term)] = again(term)
        return cast(_Term, known[id(term)])

    def again(term: Apply | Element | Lookup | Guard) -> object:
        if isinstance(term, Apply):
            return replace(term, operands=tuple(map(rebuild, term.operands)))
        if isinstance(term, Element):
            if term.tensor in elements:  # whose value may be 0
                return elements[term.tensor]
            return replace(term, indices=tuple(map(rebuild, term.indices)))
        if isinstance(term, Lookup):
            return replace(term, table=tuple(map(rebuild, term.table)), index=rebuild(term.index))
        return Guard(rebuild(term.index), rebuild(term.below), rebuild(term.above))

    return replace(
        stage,
        targets=tuple(map(rebuild, stage.targets)),
        values=tuple(map(rebuild, stage.values)),
        condition=rebuild(stage.condition),
    )


def elements_of(stage: Contraction) -> Iterator[Element]:
    """Every element that a stage reads or writes."""
    roots = (*stage.targets, *stage.values, stage.condition)
    return (item for item in reachable(*roots) if isinstance(item, Element))


def reuses(stage: Contraction, stages: Stages) -> bool:
    """Whether a reduction has data reuse, as a product of matrices has: two tensors each lack an index of the other."""
    if stage.sign in ASSIGNMENTS or find_scan(stage, stages.tensors) is not None:
        return False
    extents = {loop.index: loop.extent for loop in stage.loops if isinstance(loop.extent, int)}
    kept = {name for target in stage.targets for name in _loops_of(target)} & {
        name for name, extent in extents.items() if extent > 1
    }
    touched, seen = 0, list[set[str]]()
    for element in elements_of(stage):
        names = _loops_of(element)
        touched += min(prod(extents.get(name, 1) for name in names), stages.tensors[element.tensor].volume)
        if names - kept:
            seen.append(names & kept)
    crossed = any(_crosses(one, other, extents) for one in seen for other in seen)
    return crossed or prod(extents.values()) > MOST_REUSE * max(touched, 1)


def _crosses(one: set[str], other: set[str], extents: Mapping[str, int]) -> bool:
    """Whether two tensors each lack indices of the other's that count more than a few elements."""
    return all(
        prod(extents.get(name, 1) for name in names) >= FEW_SUMS for names in (one - other, other - one)
    )


def _loops_of(element: Element) -> set[str]:
    return {item.name for item in reachable(*element.indices) if isinstance(item, Index)}


# --- sums that threads share --------------------------------------------------------------------------------
