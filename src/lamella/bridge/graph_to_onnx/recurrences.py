"""Formulas whose steps read what earlier steps wrote: which loops are ordered, and which are plain recurrences."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.bridge.graph_to_kernels.affine import find_form
from lamella.bridge.graph_to_onnx.loops import LoopSpace
from lamella.ops.formula import Contraction, Element, Guard, Index, Loop
from lamella.ops.lower import reachable


@dataclass(frozen=True, slots=True)
class Recurrence:
    """`y[…, j + start, …] := f(y[…, j + start - 1, …])`: each step reads the slice before the one that it writes."""

    loop: Loop
    axis: int
    """The dimension of the target that the steps run along."""
    start: int
    """Where the first step writes."""
    reads: tuple[Element, ...]
    order: tuple[str, ...]
    """The loops along the other dimensions of the target."""


def own_reads(contraction: Contraction) -> list[Element]:
    """The places where a formula reads what it assigns."""
    written = {target.tensor for target in contraction.targets}
    inside = [index for target in contraction.targets for index in target.indices]
    found = reachable(*inside, *contraction.values, contraction.condition)
    return [term for term in found if isinstance(term, Element) and term.tensor in written]


def ordered_loops(contraction: Contraction) -> list[str]:
    """The loops whose steps are taken one after the other, because steps read what others write; none mostly."""
    reads = own_reads(contraction)
    if not reads:
        return []
    free: set[str] = set()
    for place, index in enumerate(contraction.targets[0].indices):
        others = (*reads, *contraction.targets)
        if isinstance(index, Index) and all(
            len(item.indices) > place and item.indices[place] == index for item in others
        ):
            free.add(index.name)
    return [loop.index for loop in contraction.loops if loop.index not in free]


def find_recurrence(contraction: Contraction, names: list[str], space: LoopSpace) -> Recurrence | None:
    """The recurrence that a formula is, along its one ordered loop; None where it is something else."""
    target, reads = contraction.targets[0], own_reads(contraction)
    if len(names) != 1 or len(contraction.targets) > 1 or contraction.condition is not None:
        return None
    (name,) = names
    along = [place for place, index in enumerate(target.indices) if not isinstance(index, Index)]
    along = along or [place for place, index in enumerate(target.indices) if index == Index(name)]
    if len(along) != 1 or target.item is not None:
        return None
    (axis,) = along
    written = _shift(target, axis, name, space)
    rest = [index for place, index in enumerate(target.indices) if place != axis]
    order = tuple(index.name for index in rest if isinstance(index, Index))
    if written is None or written < 1 or len(order) != len(rest) or len(set(order)) != len(order):
        return None
    if name in order or any(_shift(item, axis, name, space) != written - 1 for item in reads):
        return None
    if len(order) + 1 != len(contraction.loops):
        return None
    loop = next(item for item in contraction.loops if item.index == name)
    return Recurrence(loop, axis, written, tuple(reads), order)


def _shift(element: Element, axis: int, name: str, space: LoopSpace) -> int | None:
    """How far behind a loop's index an element lies along a dimension."""
    index = element.indices[axis]
    # An index of one step would be left out of its own form.
    form = None if isinstance(index, Guard) else find_form(index, {**space.longest, name: 2})
    if form is None or form.terms != ((name, 1),):
        return None
    return form.constant
