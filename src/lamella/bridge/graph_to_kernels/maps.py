"""Pointwise producers (maps): formulas that write each element of a tensor once, so that they can be inlined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from lamella.base.dtype import F32, F64, I64, ElementType
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import find_form, is_integer
from lamella.bridge.graph_to_kernels.groups import GroupFormulas, GroupTensor, MemberFormula
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Scalar
from lamella.ops.lower import reachable

ASSIGNMENTS = ("=", ":=")


def resolve(names: Mapping[tuple[str, int | None], str], element: Element) -> str:
    """The tensor of the group that an element of a member belongs to."""
    if element.item is not None and not is_integer(element.item):
        raise Unsupported("the run picks a tensor of a pack")
    found = names.get((element.tensor, element.item))
    if found is None:
        raise Unsupported(f"'{element.tensor}' is no tensor here")
    return found


@dataclass(frozen=True, slots=True)
class MapFormula:
    """A pointwise producer: how its loops follow from the indices of the element that is read."""

    member: MemberFormula
    target: Element
    value: Scalar
    whole: Mapping[int, str]
    """The loop that a dimension counts, by its number."""
    split: Mapping[int, tuple[tuple[str, int, int], ...]]
    """The loops of a dimension that several count, each with its stride and its extent."""
    risky: bool
    """Whether it may have no value in some step, so that every step must be taken."""


def find_map(member: MemberFormula, place: int, shape: Sequence[int]) -> MapFormula | None:
    """The map that assigns a target of a formula; None where it is no map, or where it skips steps."""
    formula = member.contraction
    target, value = formula.targets[place], formula.values[place]
    if formula.sign not in ASSIGNMENTS or formula.condition is not None or any(map(_skips, target.indices)):
        return None
    extents = {loop.index: loop.extent for loop in formula.loops if isinstance(loop.extent, int)}
    inside = list(reachable(value, *target.indices))
    if len(extents) < len(formula.loops) or any(map(_skips, inside)):
        return None
    written = {item.tensor for item in formula.targets}
    if any(isinstance(item, Element) and item.tensor in written for item in inside):
        return None
    whole: dict[int, str] = {}
    split: dict[int, tuple[tuple[str, int, int], ...]] = {}
    for number, (index, size) in enumerate(zip(target.indices, shape, strict=True)):
        parts = _count_through(index, size, extents)
        if parts is None:
            return None
        if len(parts) == 1:
            whole[number] = parts[0][0]
        elif parts:
            split[number] = parts
    counted = [*whole.values(), *(name for parts in split.values() for name, _, _ in parts)]
    if sorted(counted) != sorted(name for name, extent in extents.items() if extent != 1):
        return None
    risky = any(_may_fail(item, extents) for item in inside)
    return MapFormula(member, target, value, whole, split, risky)


def _skips(item: object) -> bool:
    return isinstance(item, Guard) and None in (item.below, item.above)


def _may_fail(item: object, extents: Mapping[str, int]) -> bool:
    """Whether a term may have no value: an index that data decide, a quotient of integers."""
    if isinstance(item, Element):
        return any(
            not isinstance(index, Guard) and find_form(index, extents) is None for index in item.indices
        )
    return isinstance(item, Apply) and item.type == "int" and item.function in ("/", "\\", "%")


def _count_through(
    index: Scalar | Guard, size: int, extents: Mapping[str, int]
) -> tuple[tuple[str, int, int], ...] | None:
    """The loops that together count every place of a dimension once, outermost first."""
    form = None if isinstance(index, Guard) else find_form(index, extents)
    if form is None or form.constant:
        return None
    stride = 1
    found: list[tuple[str, int, int]] = []
    for name, factor in sorted(form.terms, key=lambda item: item[1]):
        if factor != stride:
            return None
        found.append((name, stride, extents[name]))
        stride *= extents[name]
    return tuple(reversed(found)) if stride == size else None


# --- accumulations that start from a map ---------------------------------------------------------------------

JOINS = MappingProxyType({"+=": "+", "*=": "*", "&=": "&&", "|=": "||", "<=": "<<", ">=": ">>"})
ACCUMULATED = "/acc"
"""How the name of a tensor ends that is accumulated apart from what it starts from."""


def separate_starts(formulas: GroupFormulas) -> GroupFormulas:
    """Split `y = b; y += x * w` into `acc += x * w; y = b + acc`, so that the start can be inlined like others.

    A sum of a narrow type is accumulated in the computing type, and rounded by a map. What accumulates one step only is
    a map.
    """
    found, named = list[MemberFormula](), dict(formulas.tensors)
    writers = writers_of(formulas.formulas)
    waiting = list(formulas.formulas)
    while waiting:
        member = waiting.pop(0)
        target = resolve(member.names, member.contraction.targets[0])
        held, numbers = named[target], {number for number, _ in writers[target]}
        if len(numbers) == 1:
            member = _without_sum(member, held.shape)
        start, total = _start_and_sum(member, waiting[:1], len(numbers), held)
        if total is None:
            found.append(member)
            continue
        if start is not None:
            waiting.pop(0)
        summed = GroupTensor(f"{target}{ACCUMULATED}", _computing(held.element), held.shape)
        named[summed.name] = summed
        accumulated, joined = _split_start(start, total, summed.name)
        found += [_without_sum(accumulated, held.shape), joined]
    return GroupFormulas(tuple(found), named, formulas.constants)


def _start_and_sum(
    member: MemberFormula, following: Sequence[MemberFormula], count: int, held: GroupTensor
) -> tuple[MemberFormula | None, MemberFormula | None]:
    """A map and the sum that goes on from it, or a sum of a narrow type alone; None for what is neither."""
    if count == 1 and _is_accumulation(member, held.shape) and _computing(held.element) != held.element:
        return None, member
    if count != 2 or not following or not _is_start(member, held.shape):
        return None, None
    (total,) = following
    same = resolve(total.names, total.contraction.targets[0]) == resolve(
        member.names, member.contraction.targets[0]
    )
    return (member, total) if same and _is_accumulation(total, held.shape) else (None, None)


def writers_of(formulas: Sequence[MemberFormula]) -> dict[str, list[tuple[int, int]]]:
    """The formulas that write each tensor by their numbers, with the number of the target."""
    found: dict[str, list[tuple[int, int]]] = {}
    for number, member in enumerate(formulas):
        for place, target in enumerate(member.contraction.targets):
            found.setdefault(resolve(member.names, target), []).append((number, place))
    return found


def _without_sum(member: MemberFormula, shape: Sequence[int]) -> MemberFormula:
    """A reduction over nothing as the map that it is."""
    formula = member.contraction
    if formula.sign not in JOINS or len(formula.targets) != 1:
        return member
    assigned = replace(member, contraction=replace(formula, sign="="))
    return member if find_map(assigned, 0, shape) is None else assigned


def _is_start(member: MemberFormula, shape: Sequence[int]) -> bool:
    return len(member.contraction.targets) == 1 and find_map(member, 0, shape) is not None


def _is_accumulation(member: MemberFormula, shape: Sequence[int]) -> bool:
    """Whether a formula accumulates every element of a tensor, and reads none."""
    formula = member.contraction
    if formula.sign not in JOINS or len(formula.targets) != 1:
        return False
    target = formula.targets[0]
    extents = {loop.index: loop.extent for loop in formula.loops if isinstance(loop.extent, int)}
    counted = [
        _count_through(index, size, extents) for index, size in zip(target.indices, shape, strict=True)
    ]
    names = [name for parts in counted if parts is not None for name, _, _ in parts]
    plain = len(extents) == len(formula.loops) and None not in counted and len(set(names)) == len(names)
    inside = reachable(*formula.values, formula.condition)
    return plain and not any(isinstance(item, Element) and item.tensor == target.tensor for item in inside)


def _split_start(
    first: MemberFormula | None, second: MemberFormula, name: str
) -> tuple[MemberFormula, MemberFormula]:
    """The accumulation into a tensor of its own, and the map that joins what it starts from with it."""
    rest = second.contraction
    (target,) = rest.targets
    accumulated = replace(rest, targets=(replace(target, tensor=ACCUMULATED, item=None),))
    if first is None:
        inside = {item.name for item in reachable(*target.indices) if isinstance(item, Index)}
        loops = tuple(loop for loop in rest.loops if loop.index in inside)
        value: Scalar = replace(target, tensor=ACCUMULATED, item=None)
        joined, names = Contraction((target,), "=", (value,), loops), second.names
    else:
        start, names = first.contraction, first.names
        read = replace(start.targets[0], tensor=ACCUMULATED, item=None)
        value = Apply(JOINS[rest.sign], (start.values[0], read), target.type)
        joined = replace(start, values=(value,))
    return (
        MemberFormula(accumulated, {**second.names, (ACCUMULATED, None): name}),
        MemberFormula(joined, {**names, (ACCUMULATED, None): name}),
    )


def _computing(element: ElementType) -> ElementType:
    """The type in which elements are accumulated."""
    if element.is_float:
        return F64 if element == F64 else F32
    return I64 if element.is_integer else element
