"""How the steps of a contraction are taken: which loops may run at once, which one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from lamella.base.affine import Affine
from lamella.bridge.graph_to_kernels.affine import Form, find_form
from lamella.ops.formula import Contraction, Counter, Element, Guard
from lamella.ops.lower import operands

GROUP_STEPS = 1 << 14
"""Steps that are worth a work-group of their own."""
MOST_STEPS = 1 << 40
"""Steps of one formula; what takes more is left to the host, which refuses it or knows a shorter way."""
UNKNOWN = ""
"""Stands for the index of a place that no affine form tells."""


class Unsupported(Exception):
    """A formula that no kernel is written for; the host computes it."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The loops of a contraction: those over work-groups, over work-items, and inside each work-item.

    Loops over groups and items write to places of their own, so their order does not matter.
    """

    groups: tuple[str, ...]
    items: tuple[str, ...]
    inner: tuple[str, ...]
    extents: Mapping[str, int]
    held: bool
    """Whether each work-item writes one place only, so that the value can be held while the inner loops run."""
    covers: bool
    """Whether the steps write every element of the target."""


def plan_steps(contraction: Contraction, shapes: Mapping[str, tuple[int, ...]]) -> Steps:
    """Decide how the steps are taken; `shapes` are those of the targets."""
    extents = {loop.index: _known(loop.extent) for loop in contraction.loops}
    if prod(extents.values()) > MOST_STEPS:
        raise Unsupported(f"it takes more than {MOST_STEPS} steps")
    forms = [_forms(target, extents) for target in contraction.targets]
    free = _free(contraction, forms, extents)
    order = [name for name in _order(forms[0]) if name in free]
    loops = [loop.index for loop in contraction.loops if extents[loop.index] != 1]
    inner = tuple(name for name in loops if name not in free)
    reads = _reads_target(contraction)
    depends = {name for position in forms[0] for name, _ in position.terms}
    held = len(contraction.targets) == 1 and not reads and not depends & {UNKNOWN, *inner}
    covers = held and _covers(forms[0], extents, shapes[contraction.targets[0].tensor])
    groups = _over_groups(order, inner, extents)
    items = tuple(name for name in order if name not in groups)
    return Steps(groups, items, inner, extents, held, covers)


def _known(extent: object) -> int:
    if not isinstance(extent, int):
        raise Unsupported("an extent is not known before the run")
    return extent


def _forms(target: Element, extents: Mapping[str, int]) -> list[Form]:
    found = []
    for index in target.indices:
        form = None
        if not isinstance(index, Guard):
            form = find_form(index, extents)
        elif index.below is None and index.above is None:
            form = find_form(index.index, extents)
        found.append(form or Affine(0, ((UNKNOWN, 1),)))
    return found


def _free(contraction: Contraction, forms: list[list[Form]], extents: Mapping[str, int]) -> set[str]:
    """The loops whose steps touch places of their own, in every target and in every read of one."""
    written = {target.tensor for target in contraction.targets}
    reads = [item for item in elements(contraction) if item.tensor in written]
    found: set[str] = set()
    for place, form in enumerate(forms[0]):
        if len(form.terms) == 1 and form.terms[0][0] in extents:
            others = [items[place] if place < len(items) else None for items in forms]
            others += [_read_form(item, place, extents) for item in reads]
            if all(item == form for item in others):
                found.add(form.terms[0][0])
    return found


def _read_form(element: Element, place: int, extents: Mapping[str, int]) -> Form | None:
    if place >= len(element.indices):
        return None
    index = element.indices[place]
    return None if isinstance(index, Guard) else find_form(index, extents)


def _order(forms: list[Form]) -> list[str]:
    """The indices of the target in the order of its dimensions, one that counts several of them once."""
    return list(dict.fromkeys(form.terms[0][0] for form in forms if len(form.terms) == 1))


def _reads_target(contraction: Contraction) -> bool:
    written = {target.tensor for target in contraction.targets}
    return any(item.tensor in written for item in elements(contraction))


def _covers(forms: list[Form], extents: Mapping[str, int], shape: tuple[int, ...]) -> bool:
    """Whether each dimension is counted through by an index of its own, from 0 to its end."""
    used: list[str] = []
    for form, size in zip(forms, shape, strict=True):
        if not form.terms and form.constant == 0 and size == 1:
            continue
        if form.constant or len(form.terms) != 1 or form.terms[0][1] != 1:
            return False
        used.append(form.terms[0][0])
        if extents.get(used[-1]) != size:
            return False
    return len(set(used)) == len(used)


def _over_groups(order: list[str], inner: tuple[str, ...], extents: Mapping[str, int]) -> tuple[str, ...]:
    """The outermost loops, as long as enough steps stay for each work-group; one is always left for the lanes."""
    rest = 1
    for name in (*order, *inner):
        rest *= extents[name]
    found: list[str] = []
    for name in order[:-1]:
        if rest // max(extents[name], 1) < GROUP_STEPS:
            break
        found.append(name)
        rest //= max(extents[name], 1)
    return tuple(found)


def elements(contraction: Contraction) -> Iterator[Element]:
    """Every element that a contraction reads, those in the indices of its targets included."""
    for term in terms(contraction):
        if isinstance(term, Element) and not any(term is target for target in contraction.targets):
            yield term


def terms(contraction: Contraction) -> Iterator[object]:
    """Every term of a contraction once, guards too, each after the terms it is made of."""
    done: set[int] = set()
    roots = [*contraction.values, *([] if contraction.condition is None else [contraction.condition])]
    waiting: list[tuple[object, bool]] = [(item, False) for item in (*contraction.targets, *roots)]
    while waiting:
        term, ready = waiting.pop()
        if isinstance(term, Counter):
            raise Unsupported("it counts its steps")
        if ready:
            yield term
        elif id(term) not in done:
            done.add(id(term))
            waiting.append((term, True))
            waiting += [(item, False) for item in operands(term)]
