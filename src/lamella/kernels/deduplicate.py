"""Kernel deduplication: equal kernels are one, and those that run once or seldom leave their sizes open.

Work on weights is as fast with sizes that a launch tells as with constants, and much of it differs in sizes alone: the
operands of all products are packed by a few kernels. Kernels of each run keep their constants.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from lamella.base.records import dataclass
from lamella.kernels.build import names_of
from lamella.kernels.nodes import KernelCall, KernelGraph
from lamella.kernels.rewrite import rename_region, rewrite, walk, with_statements
from lamella.lang.tensor.nodes import (
    INDEX,
    Constant,
    Expand,
    Function,
    Fuse,
    Memref,
    Parameter,
    Program,
    Region,
    Size,
    SizeOf,
    Slice,
    Statement,
    Subview,
    Value,
)

Place = tuple[str, int]
"""A mode of a parameter."""


def deduplicate_kernels(kernels: KernelGraph) -> KernelGraph:
    """The same calls with fewer kernels."""
    functions = {item.name: item for item in kernels.program.functions}
    same = _find_equal(functions.values())
    # One kernel of each run keeps the constants of all that are equal to it.
    often = {
        same[call.kernel]
        for calls in kernels.calls.values()
        for call in calls
        if not (call.once or call.renames)
    }
    often |= {same[call.kernel] for item in kernels.in_place.values() for call in (*item.calls, item.restore)}
    opened = _open_all([functions[name] for name in dict.fromkeys(same.values()) if name not in often])
    found = {name: opened.get(first, functions[first]) for name, first in same.items()}
    names = {name: item.name for name, item in found.items()}
    kept = {item.name: item for item in found.values()}
    calls = {key: tuple(_renamed(call, names) for call in found) for key, found in kernels.calls.items()}
    in_place = {
        name: replace(
            item,
            calls=tuple(_renamed(call, names) for call in item.calls),
            restore=_renamed(item.restore, names),
        )
        for name, item in kernels.in_place.items()
    }
    return replace(kernels, program=Program(tuple(kept.values())), calls=calls, in_place=in_place)


def _renamed(call: KernelCall, names: Mapping[str, str]) -> KernelCall:
    return call if names[call.kernel] == call.kernel else replace(call, kernel=names[call.kernel])


def _find_equal(functions: Collection[Function]) -> dict[str, str]:
    """For each kernel the first one that differs in names alone."""
    alike: dict[object, list[Function]] = defaultdict(list)
    for item in functions:
        alike[tuple(parameter.type for parameter in item.parameters)].append(item)
    found = {item.name: item.name for item in functions}
    for group in alike.values():
        first: dict[Function, str] = {}
        if len(group) > 1:
            found |= {item.name: first.setdefault(_anonymous(item), item.name) for item in group}
    return found


def _anonymous(function: Function) -> Function:
    """A kernel without name, its parameters being called by their places."""
    names = {item.value.name: Value(f"parameter.{place}") for place, item in enumerate(function.parameters)}
    parameters = tuple(replace(item, value=names[item.value.name]) for item in function.parameters)
    return replace(function, name="", parameters=parameters, body=rename_region(function.body, names))


# --- integers of a kernel that may be left open ------------------------------------------------------------------


SIZE, STRIDE, CONSTANT, COUNT = "size", "stride", "constant", "count"
"""Of a parameter; of a parameter or view; an index; how many places a view takes along a mode."""
Visit = Callable[[str, int], int | Place | None]
"""What stands for an integer, by what it is: another one, the size of a parameter, or nothing for `?`."""


@dataclass(frozen=True, slots=True)
class _Integers:
    """A walk over the integers of a kernel that may be left open, in the order of the text."""

    visit: Visit
    sizes: dict[Place, Value]
    """The values that hold sizes of parameters."""

    def change(self, function: Function) -> Function:
        """The kernel with other integers; values of sizes must be made before it begins."""
        parameters = tuple(map(self._parameter, function.parameters))
        body = rewrite(function.body, self._region)
        return replace(function, parameters=parameters, body=body)

    def _parameter(self, parameter: Parameter) -> Parameter:
        if not isinstance(parameter.type, Memref):
            return parameter
        shape, stride = (
            self._open(items, kind)
            for items, kind in ((parameter.type.shape, SIZE), (parameter.type.stride, STRIDE))
        )
        return replace(parameter, type=replace(parameter.type, shape=shape, stride=stride))

    def _open(self, sizes: Sequence[Size], kind: str) -> tuple[Size, ...]:
        found = [None if size is None else self.visit(kind, size) for size in sizes]
        return tuple(item if isinstance(item, int) else None for item in found)

    def _region(self, region: Region, _: bool) -> Region:
        return with_statements(region, list(map(self._statement, region.statements)))

    def _statement(self, statement: Statement) -> Statement:
        instruction = statement.instruction
        if isinstance(instruction, Constant) and instruction.type == INDEX:
            assert isinstance(instruction.value, int)
            found = self.visit(CONSTANT, instruction.value)
            if isinstance(found, tuple):
                return replace(statement, instruction=SizeOf(Value(found[0]), found[1]))
            return replace(statement, instruction=Constant(found or 0, INDEX))
        if isinstance(instruction, Subview):
            slices = tuple(map(self._slice, instruction.slices))
            counts = [item.size for item in slices if item.size != 0]
            shape = tuple(item if isinstance(item, int) else None for item in counts)
            type_ = replace(instruction.type, shape=shape, stride=self._open(instruction.type.stride, STRIDE))
            return replace(statement, instruction=replace(instruction, slices=slices, type=type_))
        return statement

    def _slice(self, item: Slice) -> Slice:
        if not isinstance(item.size, int) or item.size == 0:
            return item
        found = self.visit(COUNT, item.size)
        if isinstance(found, tuple):
            return replace(item, size=self.sizes.setdefault(found, Value(f"size.{found[0]}.{found[1]}")))
        return replace(item, size=found or 0)


def _skeleton(function: Function) -> tuple[Function, list[tuple[str, int]]]:
    """A kernel without name and integers, and the integers with what they are."""
    numbers: list[tuple[str, int]] = []

    def note(kind: str, number: int) -> int:
        numbers.append((kind, number))
        return -1

    return _Integers(note, {}).change(_anonymous(function)), numbers


# --- kernels with open sizes -------------------------------------------------------------------------------------


def _open_all(functions: Sequence[Function]) -> dict[str, Function]:
    """Kernels that differ in sizes alone, each with the one that serves all of them."""
    alike: dict[object, list[tuple[Function, list[tuple[str, int]]]]] = defaultdict(list)
    for function in functions:
        if any(isinstance(item.instruction, Expand | Fuse) for item in walk(function.body)):
            continue  # the types of what they give would have to be found anew
        bare, numbers = _skeleton(function)
        alike[bare].append((function, numbers))
    found: dict[str, Function] = {}
    for members in alike.values():
        for group in _split(members):
            if len(group) > 1:
                opened = _open(group)
                found |= {function.name: opened for function, _ in group}
    return found


Member = tuple[Function, list[tuple[str, int]]]


def _split(members: Sequence[Member]) -> Iterator[list[Member]]:
    """Members apart whose integers differ where no size of a parameter tells them."""
    columns = _columns(members)
    sizes = _sizes(members[0][0], columns)
    fixed = [
        place
        for place, (kind, numbers) in enumerate(columns)
        if kind in (CONSTANT, COUNT) and len(set(numbers)) > 1 and tuple(numbers) not in sizes
    ]
    if not fixed:
        yield list(members)
        return
    groups: dict[tuple[int, ...], list[Member]] = defaultdict(list)
    for member in members:
        groups[tuple(member[1][place][1] for place in fixed)].append(member)
    for group in groups.values():
        yield from _split(group)


def _columns(members: Sequence[Member]) -> list[tuple[str, tuple[int, ...]]]:
    """Each integer of the text with what it is in all members."""
    rows = [numbers for _, numbers in members]
    return [(column[0][0], tuple(number for _, number in column)) for column in zip(*rows, strict=True)]


def _sizes(
    function: Function, columns: Sequence[tuple[str, tuple[int, ...]]]
) -> dict[tuple[int, ...], Place]:
    """The modes of parameters by their sizes in all members."""
    given = (numbers for kind, numbers in columns if kind == SIZE)
    places = (
        (item.value.name, mode)
        for item in function.parameters
        if isinstance(item.type, Memref)
        for mode, size in enumerate(item.type.shape)
        if size is not None
    )
    # What stands first in the text wins: any of them is right.
    return dict(reversed(list(zip(given, places, strict=True))))


def _open(members: Sequence[Member]) -> Function:
    """The first member with what differs left open, or told by the sizes of parameters."""
    function, columns = members[0][0], _columns(members)
    places, following = _sizes(function, columns), iter(columns)

    def choose(kind: str, number: int) -> int | Place | None:
        _, numbers = next(following)
        if len(set(numbers)) == 1:
            return number
        return places[numbers] if kind in (CONSTANT, COUNT) else None

    made: dict[Place, Value] = {}
    found = _Integers(choose, made).change(function)
    names = names_of(found)
    fresh = {value.name: names.new() for value in made.values()}
    body = rename_region(found.body, fresh)
    first = [
        Statement((fresh[value.name],), SizeOf(Value(name), mode)) for (name, mode), value in made.items()
    ]
    return replace(found, body=replace(body, statements=(*first, *body.statements)))
