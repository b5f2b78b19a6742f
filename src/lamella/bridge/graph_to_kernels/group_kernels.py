"""The kernels of a group: its stages in runs that are one row kernel each, and single stages that are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels.groups import GroupTensor, group_of
from lamella.bridge.graph_to_kernels.inline import Stages, inline
from lamella.bridge.graph_to_kernels.maps import ASSIGNMENTS, reachable
from lamella.bridge.graph_to_kernels.row_plan import GROUP_STEPS
from lamella.bridge.graph_to_kernels.rows import SIZES, RowKernel, write_rows
from lamella.bridge.graph_to_kernels.scans import find_scan
from lamella.graph.nodes import Argument, Operation, Tensor, tensors
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup, Loop, Scalar
from lamella.ops.library import Library

MOST_REUSE = 8
"""Steps for each element of the tensors of a sum beyond which it wants tiles and not rows."""
TEMPORARY = "."
"""How the name of an operand begins that no one outside of the operation sees."""


@dataclass(frozen=True, slots=True)
class Run:
    """Stages one after the other: one row kernel, or a single stage that is none."""

    stages: tuple[Contraction, ...]
    kernel: RowKernel | None
    reason: str = ""


def distinct(operation: Operation) -> Operation:
    """The operation with a name of its own for each input: kernels are shared by calls that pass other tensors."""
    count = 0

    def rename(argument: Argument) -> Argument:
        nonlocal count
        if isinstance(argument, tuple):
            return tuple(item for part in argument for item in tensors(rename(part)))
        if not isinstance(argument, Tensor):
            return argument
        count += 1
        return replace(argument, name=f"input {count}")

    return replace(operation, inputs=tuple(rename(item) for item in operation.inputs))


def stages_of(library: Library, operation: Operation, extents: Mapping[str, int], wide: bool) -> Stages:
    """The stages of an operation, compound or not."""
    found = inline(library, group_of(library, operation), extents, wide)
    if found.constants:
        raise Unsupported("a constant of a component has many values")
    return share_sums(found)


def split_runs(stem: str, stages: Stages, sizes: Sequence[int] = SIZES) -> Iterator[Run]:
    """The stages in runs, each as long as one kernel can do it."""
    rest = stages.contractions
    number = 0
    while rest:
        run = _longest(f"{stem}_{number}", stages, rest, sizes)
        yield run
        rest = rest[len(run.stages) :]
        number += 1


def _longest(name: str, stages: Stages, rest: Sequence[Contraction], sizes: Sequence[int]) -> Run:
    reason = ""
    for count in range(len(rest), 0, -1):
        first, others = tuple(rest[:count]), rest[count:]
        try:
            for stage in first:
                _verify(stage, stages)
            _keep_parts_apart(first)
            kernel = write_rows(name, first, stages.tensors, _leaving(first, others, stages), sizes=sizes)
        except Unsupported as problem:
            reason = str(problem)
            continue
        return Run(first, kernel)
    return Run(tuple(rest[:1]), None, reason)


def _verify(stage: Contraction, stages: Stages) -> None:
    if is_product(stage, stages):
        raise Unsupported("a stage is a product")
    target = stage.targets[0].tensor
    first = next(item for item in stages.contractions if item.targets[0].tensor == target)
    if stage.sign not in ASSIGNMENTS and first is not stage:
        raise Unsupported("a sum goes on from what its target holds")


def _keep_parts_apart(first: Sequence[Contraction]) -> None:
    """Refuse a kernel that sums the parts that it has made: one work-group would make all of them."""
    made = {item.tensor for stage in first for item in stage.targets if item.tensor.endswith(PARTIAL)}
    read = {item.tensor for stage in first for item in elements_of(stage) if item not in stage.targets}
    if made & read:
        raise Unsupported("threads share a sum")


def _leaving(first: Sequence[Contraction], others: Sequence[Contraction], stages: Stages) -> frozenset[str]:
    """The tensors that some stages write for others."""
    read = {item.tensor for stage in others for item in elements_of(stage)}
    return frozenset(
        item.tensor for stage in first for item in stage.targets if item.tensor in (*stages.outputs, *read)
    )


def elements_of(stage: Contraction) -> Iterator[Element]:
    """Every element that a stage names."""
    roots = (*stage.targets, *stage.values, stage.condition)
    return (item for item in reachable(*roots) if isinstance(item, Element))


def is_product(stage: Contraction, stages: Stages) -> bool:
    """Whether a reduction uses elements again and again: two tensors that each lack an index of the other's."""
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
    crossed = any(one - other and other - one for one in seen for other in seen)
    return crossed or prod(extents.values()) > MOST_REUSE * max(touched, 1)


def _loops_of(element: Element) -> set[str]:
    return {item.name for item in reachable(*element.indices) if isinstance(item, Index)}


# --- sums that threads share --------------------------------------------------------------------------------

PARTIAL = "/partial"
"""How the name of a tensor ends that holds sums of parts."""
SHARED_STEPS = 1 << 17
"""Steps of one sum for which it is worth sharing them out."""
MOST_PARTS = 64
FEW_SUMS = 4
"""Sums that leave threads without work if each is one work-group's."""


def share_sums(stages: Stages) -> Stages:
    """Long sums of few elements as two stages, so that threads share them: sums of parts, and the sum of those.

    How many parts there are depends on the extents alone, so that every number of threads adds in the same order.
    """
    found, tensors = list[Contraction](), dict(stages.tensors)
    for stage in stages.contractions:
        parts = _shared(stage, stages)
        if parts is None:
            found.append(stage)
            continue
        loop, count = parts
        held = tensors[stage.targets[0].tensor]
        partial = GroupTensor(f"{held.name}{PARTIAL}", held.element, (count, *held.shape))
        tensors[partial.name] = partial
        found += _parted(stage, loop, count, partial.name)
    return replace(stages, contractions=tuple(found), tensors=tensors)


def _shared(stage: Contraction, stages: Stages) -> tuple[Loop, int] | None:
    """The loop of a sum that is shared out, and in how many parts."""
    extents = {loop.index: loop.extent for loop in stage.loops if isinstance(loop.extent, int)}
    target = stage.targets[0]
    kept = max(1, prod(extents.get(name, 1) for name in _loops_of(target)))
    plain = stage.sign not in ASSIGNMENTS and len(stage.targets) == 1 and not is_product(stage, stages)
    plain = plain and find_scan(stage, stages.tensors) is None
    if not plain or kept > FEW_SUMS or prod(extents.values()) < SHARED_STEPS * kept:
        return None
    wanted = min(MOST_PARTS, prod(extents.values()) // GROUP_STEPS)
    for loop in stage.loops:
        if loop.index in _loops_of(target) or not isinstance(loop.extent, int):
            continue
        fitting = [size for size in range(2, wanted + 1) if loop.extent % size == 0]
        if fitting:
            return loop, max(fitting)
    return None


def _parted(stage: Contraction, loop: Loop, count: int, name: str) -> tuple[Contraction, Contraction]:
    """A sum for each part of a loop, and the sum of all parts."""
    part, inner = f"{loop.index}/", f"{loop.index}%"
    length = loop.extent // count if isinstance(loop.extent, int) else 1
    index = Apply("+", (Apply("*", (Index(part), length), "int"), Index(inner)), "int")
    (target,) = stage.targets
    first = replace_index(stage, loop.index, index)
    loops = [Loop(inner, length) if item is loop else item for item in stage.loops]
    kept = tuple(item for item in stage.loops if item.index in _loops_of(target))
    place = Element(name, (Index(part), *target.indices), target.type)
    sums = replace(first, targets=(place,), loops=(Loop(part, count), *loops))
    return sums, Contraction((target,), stage.sign, (place,), (*kept, Loop(part, count)))


def replace_index(stage: Contraction, name: str, index: Scalar) -> Contraction:
    """A contraction with a term for a loop index; what its terms share stays shared."""
    known: dict[int, object] = {}

    def rebuild(term: Any) -> Any:
        if isinstance(term, Index):
            return index if term.name == name else term
        if not isinstance(term, Apply | Element | Lookup | Guard):
            return term
        if id(term) not in known:
            known[id(term)] = again(term)
        return known[id(term)]

    def again(term: Apply | Element | Lookup | Guard) -> object:
        if isinstance(term, Apply):
            return replace(term, operands=tuple(map(rebuild, term.operands)))
        if isinstance(term, Element):
            return replace(term, indices=tuple(map(rebuild, term.indices)))
        if isinstance(term, Lookup):
            return replace(term, table=tuple(map(rebuild, term.table)), index=rebuild(term.index))
        return Guard(rebuild(term.index), rebuild(term.below), rebuild(term.above))

    return replace(
        stage,
        values=tuple(map(rebuild, stage.values)),
        condition=rebuild(stage.condition),
    )
