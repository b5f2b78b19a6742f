"""The kernels of a group: its stages in runs that are one row kernel each, and single stages that are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels.groups import group_of
from lamella.bridge.graph_to_kernels.inline import Stages, inline
from lamella.bridge.graph_to_kernels.maps import ASSIGNMENTS, reachable
from lamella.bridge.graph_to_kernels.rows import SIZES, RowKernel, write_rows
from lamella.graph.nodes import Argument, Operation, Tensor, tensors
from lamella.ops.formula import Contraction, Element, Index
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
    return found


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
    if stage.sign in ASSIGNMENTS:
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
