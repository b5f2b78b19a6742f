"""Dynamic sizes: sizes and constants of a kernel become parameters, so that one code serves many sizes.

A kernel that was written for known extents has their numbers in its constants and types. Kernels of other extents
mostly differ in these numbers alone. What they have in common is the *form*; where two kernels of one form differ, the
number is opened: a constant becomes a parameter, an extent or a stride of a memref becomes `?`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from lamella.base.records import dataclass
from lamella.kernels.rewrite import make_names_unique, rename_region, rewrite, walk, with_statements
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import (
    Constant,
    Expand,
    Function,
    Fuse,
    IndexOrSize,
    Memref,
    Parameter,
    Program,
    Region,
    Scalar,
    Slice,
    Statement,
    Subview,
    Type,
    Value,
)
from lamella.lang.tensor.nodes.types import INDEX, Size

Numbers = tuple[float | int | None, ...]
"""The numbers of a kernel that can be opened, in the order of its text; None for those that are open already."""


@dataclass(frozen=True, slots=True)
class KernelForm:
    """A kernel as its form, which is a text without the numbers that can be opened, and these numbers."""

    function: Function
    text: str
    numbers: Numbers


def form_of(function: Function) -> KernelForm:
    """The form of a kernel, whatever its name."""
    function = make_names_unique(function)
    numbers = tuple(_numbers(function))
    blank = _Opening(function, frozenset(range(len(numbers))), False).run()
    return KernelForm(function, write(Program((replace(blank, name="kernel"),))), numbers)


def differing(first: KernelForm, second: KernelForm) -> frozenset[int]:
    """The places of the numbers in which two kernels of one form differ."""
    if first.text != second.text:
        return frozenset()
    pairs = zip(first.numbers, second.numbers, strict=True)
    return frozenset(place for place, (one, other) in enumerate(pairs) if not _same(one, other))


def _same(one: float | None, other: float | None) -> bool:
    # 0.0 is not -0.0; an integer and a real never stand at one place of a form.
    return one == other and (not isinstance(one, float) or repr(one) == repr(other))


@dataclass(frozen=True, slots=True)
class OpenKernel:
    """A kernel some of whose numbers are open, and the places of those that a launch hands over, in order."""

    function: Function
    form: KernelForm
    open: frozenset[int]
    handed: tuple[int, ...]

    def serves(self, form: KernelForm) -> bool:
        """Whether it computes what a kernel computes, given the numbers of that one."""
        return form.text == self.form.text and differing(self.form, form) <= self.open

    def arguments(self, form: KernelForm) -> list[float | int]:
        """The numbers that a launch hands over behind the other arguments, to be the kernel of a form."""
        return [number for place in self.handed if (number := form.numbers[place]) is not None]


def open_numbers(form: KernelForm, places: Collection[int]) -> OpenKernel:
    """A kernel whose numbers at some places are open; the new parameters stand behind its own."""
    opening = _Opening(form.function, frozenset(places), True)
    return OpenKernel(opening.run(), form, frozenset(places), tuple(opening.handed))


# --- the numbers of a kernel ------------------------------------------------------------------------------------


def _numbers(function: Function) -> Iterator[float | int | None]:
    """The numbers that can be opened: those of parameters, then those of statements in the order of the text."""
    for parameter in function.parameters:
        yield from _numbers_of_type(parameter.type)
    for statement in walk(function.body):
        yield from _numbers_of_statement(statement)


def _numbers_of_type(type_: Type) -> Iterator[Size]:
    if isinstance(type_, Memref):
        yield from (*type_.shape, *type_.stride)


def _numbers_of_statement(statement: Statement) -> Iterator[float | int | None]:
    node = statement.instruction
    if isinstance(node, Constant):
        if isinstance(node.type, Scalar) and isinstance(node.value, int | float):
            yield node.value
    elif isinstance(node, Subview):
        for item in node.slices:
            yield from (part if isinstance(part, int) else None for part in (item.offset, item.size))
        yield from _numbers_of_type(node.type)
    elif isinstance(node, Expand):
        yield from (size if isinstance(size, int) else None for size in node.sizes)
        yield from _numbers_of_type(node.type)
    elif isinstance(node, Fuse):
        yield from _numbers_of_type(node.type)


# --- the kernel without them ------------------------------------------------------------------------------------


class _Opening:
    """A kernel while numbers of it are opened; where nothing is `handed` over, they are only left out."""

    def __init__(self, function: Function, places: frozenset[int], hands: bool) -> None:
        self._function = function
        self._places = places
        self._hands = hands
        self._given: list[Parameter] = []
        self._renaming: dict[str, Value] = {}
        self._first: dict[int, int] = {}
        """The place of the first number of each statement, by the identity of the statement."""
        self.handed: list[int] = []

    def run(self) -> Function:
        """The function."""
        place = 0
        parameters = []
        for item in self._function.parameters:
            parameters.append(replace(item, type=self._type(item.type, place)))
            place += len(tuple(_numbers_of_type(item.type)))
        for statement in walk(self._function.body):
            self._first[id(statement)] = place
            place += len(tuple(_numbers_of_statement(statement)))
        body = rewrite(self._function.body, self._visit)
        body = rename_region(body, self._renaming)
        return replace(self._function, parameters=(*parameters, *self._given), body=body)

    def _visit(self, region: Region, _: bool) -> Region:
        found = [new for item in region.statements if (new := self._statement(item)) is not None]
        return with_statements(region, found)

    def _statement(self, statement: Statement) -> Statement | None:
        node = statement.instruction
        place = self._first.get(id(statement), -1)
        if isinstance(node, Constant) and place in self._places and isinstance(node.type, Scalar):
            if not isinstance(node.value, int | float):
                return statement
            if not self._hands:
                return replace(statement, instruction=replace(node, value=type(node.value)(0)))
            self._renaming[statement.results[0].name] = self._hand(place, node.type)
            return None
        if isinstance(node, Subview):
            slices = []
            for item in node.slices:
                slices.append(Slice(self._size(item.offset, place), self._size(item.size, place + 1)))
                place += 2
            return replace(
                statement,
                instruction=replace(node, slices=tuple(slices), type=self._memref(node.type, place)),
            )
        if isinstance(node, Expand):
            sizes = tuple(self._size(size, place + number) for number, size in enumerate(node.sizes))
            type_ = self._memref(node.type, place + len(sizes))
            return replace(statement, instruction=replace(node, sizes=sizes, type=type_))
        if isinstance(node, Fuse):
            return replace(statement, instruction=replace(node, type=self._memref(node.type, place)))
        return statement

    def _size(self, size: IndexOrSize, place: int) -> IndexOrSize:
        if place not in self._places or not isinstance(size, int):
            return size
        # A slice of size 0 removes its mode, so that is no number that could be another one.
        return self._hand(place, INDEX) if self._hands else min(size, 1)

    def _hand(self, place: int, type_: Scalar) -> Value:
        value = Value(f"open{place}")
        self._given.append(Parameter(value, type_))
        self.handed.append(place)
        return value

    def _type(self, type_: Type, place: int) -> Type:
        return self._memref(type_, place) if isinstance(type_, Memref) else type_

    def _memref(self, type_: Memref, place: int) -> Memref:
        sizes = [
            None if place + number in self._places else size
            for number, size in enumerate((*type_.shape, *type_.stride))
        ]
        order = type_.order
        return replace(type_, shape=tuple(sizes[:order]), stride=tuple(sizes[order:]))
