"""From the arguments of a call to the slots that machine code reads.

What depends only on the types and layouts of the arguments is verified once and kept as a plan; each call verifies
what may have changed: addresses, alignment, values of integers, arrays that share memory.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import repeat
from struct import Struct
from typing import Any, NamedTuple, TypeAlias, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from lamella.backend.arguments import (
    Arrays,
    dtype_of,
    group_items,
    layout_strides,
    promised,
    verify_arguments,
    written_parameters,
)
from lamella.backend.cpu.run.prepared import ArraySlot, address_of
from lamella.backend.cpu.run.proof import LaunchFacts, Shape, integers_of, prove
from lamella.backend.named import MOST_GROUPS
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import Malformed
from lamella.base.records import dataclass
from lamella.kernels.rewrite import walk
from lamella.kernels.sizes import Sizes, default_sizes
from lamella.lang.tensor.check.kinds import BYTES, component_of
from lamella.lang.tensor.check.memory import Proof
from lamella.lang.tensor.nodes import Builtin, Function, Group, Memref, Parameter
from lamella.lang.tensor.rules import running as rules

# --- how one argument becomes slots of 8 bytes, by the calling convention -----------------------------------


Argument: TypeAlias = Any
"""A number whose type was verified when the first of its kind came."""
Read: TypeAlias = Callable[[Argument], float]
"""Reads a number off an argument."""
Integers: TypeAlias = npt.NDArray[np.int64]

LARGEST_F32 = float(np.finfo(np.float32).max)


# --- scalars ------------------------------------------------------------------------------------------------


def scalar_format(element: str) -> str:
    """The letters of `struct` for the slots of a scalar."""
    return {"f32": "f4x", "f64": "d", "c32": "ff", "c64": "dd"}.get(element, "q")


def scalar_readers(element: str) -> tuple[Read, ...]:
    """How the numbers that a scalar consists of are read off an argument: two for a complex number, else one."""
    readers: dict[str, tuple[Read, ...]] = {
        "bool": (int,),
        "f16": (_read_f16,),
        "bf16": (_read_bf16,),
        "f32": (read_f32,),
        "f64": (float,),
        "c32": (lambda argument: read_f32(argument.real), lambda argument: read_f32(argument.imag)),
        "c64": (lambda argument: float(argument.real), lambda argument: float(argument.imag)),
    }
    return readers[element] if element in readers else (_integer_reader(element),)


def _integer_reader(element: str) -> Read:
    bounds = np.iinfo(dtype_of(element))
    low, high = int(bounds.min), int(bounds.max)

    def read(argument: Argument) -> int:
        value = int(argument)
        if not low <= value <= high:
            raise Malformed("no argument as those before it; verification says why")
        return value

    return read


def read_f32(argument: Argument) -> float:
    """A number that `struct` takes for f32; what is too large is infinite, as in a cast."""
    value = float(argument)
    return value if -LARGEST_F32 <= value <= LARGEST_F32 else ctypes.c_float(value).value


def _read_f16(argument: Argument) -> int:
    with np.errstate(all="ignore"):
        return int(np.float64(argument).astype(np.float16).view(np.uint16))


def _read_bf16(argument: Argument) -> int:
    """Rounded through f32, as casts of the language are."""
    single = np.float32(ctypes.c_float(float(argument)).value)
    return int(single.astype(ml_dtypes.bfloat16).view(np.uint16))


# --- arrays -------------------------------------------------------------------------------------------------


def open_entries(kind: Memref, array: Array) -> list[int]:
    """The sizes, then the strides, that the type of a memref leaves open."""
    sizes = [given for given, known in zip(array.shape, kind.shape, strict=True) if known is None]
    steps = zip(layout_strides(kind, array), kind.stride, strict=True)
    return sizes + [given for given, known in steps if known is None]


def count_open(kind: Memref) -> int:
    """How many sizes and strides the type of a memref leaves open."""
    return (*kind.shape, *kind.stride).count(None)


def reach_of(array: Array) -> int:
    """The bytes from the first element of an array to the end of its last; strides are not negative."""
    if not array.size:
        return 0
    steps = zip(array.shape, array.strides, strict=True)
    return int(array.itemsize + sum((size - 1) * step for size, step in steps))


def fill_table(rows: Sequence[Sequence[int]]) -> Integers:
    """Integers of each element of a group, one column for each open entry, each column in one piece."""
    return np.asfortranarray(np.array(rows, np.int64))


# --- arguments that are groups: their tables of addresses and sizes, built at each launch -------------------


@dataclass(frozen=True, slots=True)
class GroupTables:
    """The arrays of a group with their addresses, and what its memref type leaves open, a column for each."""

    given: Arrays
    addresses: Integers
    entries: Integers

    def slots(self, kind: Group) -> list[object]:
        """The slots of the group."""
        found: list[object] = [self.addresses.ctypes.data]
        found += [self.entries[:, column].ctypes.data for column in range(self.entries.shape[1])]
        found += [len(self.addresses)] if kind.size is None else []
        return found + ([self.given.offset] if kind.offset is None else [])


def group_format(kind: Group) -> str:
    """The letters of `struct` for the slots of a group."""
    return "q" * (1 + count_open(kind.memref) + (kind.size is None) + (kind.offset is None))


def make_tables(kind: Group, argument: object) -> GroupTables:
    """The tables of an argument whose layouts are verified."""
    given = group_items(kind, argument)
    count = count_open(kind.memref)
    rows = [open_entries(kind.memref, item) for item in given.items] if count else []
    # One more than there are: where a position leaves an empty group, its first address is read and never used.
    addresses = np.array([*(address_of(item) for item in given.items), 0], np.int64)[:-1]
    entries = fill_table(rows) if rows else np.zeros((max(1, len(addresses)), count), np.int64, order="F")
    return GroupTables(given, addresses, entries)


def bounds_of(tables: GroupTables) -> tuple[Integers, Integers]:
    """Where the arrays of a group begin and end in memory."""
    layouts = {(item.shape, item.strides, item.itemsize): reach_of(item) for item in tables.given.items}
    reaches = [layouts[item.shape, item.strides, item.itemsize] for item in tables.given.items]
    widths = [tables.given.offset * item.itemsize for item in tables.given.items]
    lows = tables.addresses + np.array(widths, np.int64)
    return lows, lows + np.array(reaches, np.int64)


def verify_offset(parameter: Parameter, given: Arrays) -> list[Diagnostic]:
    """What leaves the memory of its array when the offset moves it; machine code would not notice."""
    return [
        _moved(parameter, item, given.offset)
        for item in given.items
        if not reaches_offset(item, given.offset)
    ]


def reaches_offset(array: Array, offset: int) -> bool:
    """Whether the memory of an array holds it when an offset moves it on."""
    return not offset or not array.size or _last(array, offset) < _size_behind(array)


def _last(array: Array, offset: int) -> int:
    return offset + reach_of(array) // array.itemsize - 1


def _size_behind(array: Array) -> int:
    """The elements from the first one of an array to the end of the memory that it is a part of."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    first = (array.ctypes.data - owner.ctypes.data) // array.itemsize
    return int(owner.nbytes // array.itemsize - first)


def _moved(parameter: Parameter, array: Array, offset: int) -> Diagnostic:
    words = {"name": parameter.value.name, "low": offset, "high": _last(array, offset), "place": ""}
    return rules.OUT_OF_MEMORY.at(parameter.span, hint=None, labels=(), size=_size_behind(array), **words)


MOST_PLANS = 256


Extent: TypeAlias = tuple[int, int, bool]
"""Where an array begins and ends in memory, and whether it is written."""


class PackedArguments(NamedTuple):
    """The slots of a call, what must live until it returns, and what is not proved of its accesses."""

    slots: bytes
    kept: object
    doubts: Proof | None = None
    tables: Sequence[GroupTables] = ()
    """Those of the arguments that are groups, in order."""


def pack_arguments(function: Function, arguments: Sequence[object]) -> PackedArguments:
    """The slots for the arguments of one call, verified; LamellaError tells all that does not fit."""
    return ArgumentPacker(function).pack(arguments)


class ArgumentPacker:
    """Packs the arguments of one kernel, faster when it has seen their layouts before."""

    __slots__ = ("_function", "_integers", "_is_counted", "_plans", "_proved", "_sizes", "_written")

    def __init__(self, function: Function, proved: bool = False, sizes: Sizes | None = None) -> None:
        self._function = function
        self._proved = proved
        """Whether no access needs to be proved any more, whatever the arguments."""
        self._sizes = sizes or default_sizes(function)
        self._written = written_parameters(function)
        self._integers = integers_of(function)
        self._is_counted = any(
            isinstance(item.instruction, Builtin) and item.instruction.name == "group_size"
            for item in walk(function.body)
        )
        """Whether the number of work-groups is read, so that fewer of them are no part of more."""
        self._plans: dict[tuple[object, ...], _PackingPlan] = {}

    @property
    def function(self) -> Function:
        """The function whose accesses are proved."""
        return self._function

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What a call packs arguments for."""
        return self._function.parameters

    def pack(self, arguments: Sequence[object], groups: int = 1) -> PackedArguments:
        """The slots for the arguments of one call, verified; LamellaError tells all that does not fit."""
        return self._pack(arguments, groups)[0]

    def pack_placed(
        self, arguments: Sequence[object], groups: int = 1
    ) -> tuple[PackedArguments, list[ArraySlot]]:
        """The same, with the slots that hold addresses: for calls with other memory of the same layout."""
        packed, plan = self._pack(arguments, groups, False)
        return packed, plan.array_slots()

    def _pack(
        self, arguments: Sequence[object], groups: int, every: bool = True
    ) -> tuple[PackedArguments, _PackingPlan]:
        """Pack; what is proved is tried for `every` value of the integers first, unless they never change."""
        arguments = [item if type(item) is np.ndarray else _plain(item) for item in arguments]
        key = tuple(
            [
                (item.dtype, item.shape, item.strides, item.flags.writeable)
                if type(item) is np.ndarray
                else _describe(item)
                for item in arguments
            ]
        )
        plan = self._plans.get(key) or self._plan(key, arguments)
        try:
            packed, extents = plan.pack(arguments)
        except (Malformed, OverflowError):
            self._refuse(arguments)
            raise
        if plan.writes and len(extents) > 1 and may_share(extents):
            self._refuse(arguments)
        if groups > plan.proved_groups and groups not in plan.proved_counts:
            doubts = self._prove(plan, arguments, groups, every)
            return (packed if doubts is None else packed._replace(doubts=doubts)), plan
        return packed, plan

    def _plan(self, key: tuple[object, ...], arguments: Sequence[object]) -> _PackingPlan:
        self._refuse(arguments)
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        plan = self._plans[key] = _PackingPlan(self._function, self._written.keys(), arguments)
        plan.proved_groups = MOST_GROUPS if self._proved else 0
        return plan

    def _prove(
        self, plan: _PackingPlan, arguments: Sequence[object], groups: int, every: bool
    ) -> Proof | None:
        """What is not proved of a launch; one that leaves its memory for certain is refused.

        What holds for all integers is remembered for the layout, else for the integers at hand.
        """
        numbers = tuple([int(cast(int, arguments[place])) for place in self._integers])
        if (groups, numbers) in plan.proofs:
            return plan.proofs[groups, numbers]
        known = know_sizes(self._function, arguments)
        found: Proof | None = None
        if plan.tries_all and (every or not numbers):
            found = prove(self._function, known, None, groups, self._sizes)
            if found.is_complete:
                plan.remember(groups, self._is_counted)
                return None
            plan.tries_all = not numbers
        if numbers or found is None:
            found = prove(self._function, known, arguments, groups, self._sizes)
        if found.wrong:
            raise LamellaError(found.wrong)
        if len(plan.proofs) >= MOST_PLANS:
            plan.proofs.clear()
        plan.proofs[groups, numbers] = None if found.is_complete else found
        return plan.proofs[groups, numbers]

    def _refuse(self, arguments: Sequence[object]) -> None:
        findings = verify_arguments(self._function, arguments) or self._verify_for_machine(arguments)
        if findings:
            raise LamellaError(findings)

    def _verify_for_machine(self, arguments: Sequence[object]) -> list[Diagnostic]:
        """What the interpreter finds while it runs and machine code would not."""
        pairs = list(zip(self._function.parameters, arguments, strict=True))
        fixed = [item for item, argument in pairs if item.value.name in self._written and _is_fixed(argument)]
        findings = [self._fixed(parameter) for parameter in fixed]
        for parameter, argument in pairs:
            findings += _verify_places(parameter, argument)
            if isinstance(parameter.type, Group):
                findings += verify_offset(parameter, group_items(parameter.type, argument))
        return findings

    def _fixed(self, parameter: Parameter) -> Diagnostic:
        name = parameter.value.name
        return rules.READ_ONLY.at(self._written[name], hint=None, labels=(), name=name, place="")


def _verify_places(parameter: Parameter, argument: object) -> Iterator[Diagnostic]:
    """Arrays whose numbers do not lie at multiples of their own size, as machine code takes it for granted."""
    width = _width(parameter)
    if isinstance(parameter.type, Group):
        arrays = group_items(parameter.type, argument).items
    else:
        arrays = [argument] if isinstance(argument, np.ndarray) else []
    for array in arrays:
        rest = address_of(array) % width
        if rest and array.size:
            values = {"name": parameter.value.name, "rest": rest, "width": width}
            yield rules.ARGUMENT_MISALIGNED.at(parameter.span, hint=None, labels=(), **values)
            return


def _width(parameter: Parameter) -> int:
    """The bytes of a number of an array's elements, to which its place must be aligned; 1 of what is no array."""
    kind = parameter.type.memref if isinstance(parameter.type, Group) else parameter.type
    return BYTES[component_of(kind.element)] if isinstance(kind, Memref) else 1


def _plain(argument: object) -> object:
    """An array of a class of its own as NumPy holds it: such a class may tell any shape and any strides."""
    match argument:
        case np.ndarray():
            return np.asarray(argument)
        case list() | tuple():
            return [_plain(item) for item in argument]
        case Arrays():
            return Arrays(cast(Sequence[Array], _plain(argument.items)), argument.offset)
        case _:
            return argument


def _describe(argument: object) -> object:
    """What a plan depends on: the layout of an array, the layouts in a group, the type of a number."""
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.shape, argument.strides, argument.flags.writeable
    if isinstance(argument, list | tuple):
        return len(argument), frozenset([_describe(item) for item in argument])
    if isinstance(argument, Arrays):
        return argument.offset, len(argument.items), frozenset([_describe(item) for item in argument.items])
    return type(argument)


def _is_fixed(argument: object) -> bool:
    """Whether an argument has memory that must not be written."""
    if isinstance(argument, np.ndarray):
        return not argument.flags.writeable
    items = argument.items if isinstance(argument, Arrays) else argument
    return isinstance(items, list | tuple) and any(not item.flags.writeable for item in items)


def know_sizes(function: Function, arguments: Sequence[object]) -> LaunchFacts:
    """What the arguments of a launch tell about sizes."""
    shapes: dict[str, Shape] = {}
    strides: dict[str, Shape] = {}
    groups: dict[str, tuple[int, Shape]] = {}
    ends: dict[str, tuple[tuple[int, int], ...]] = {}
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        name, kind = parameter.value.name, parameter.type
        if isinstance(argument, np.ndarray) and isinstance(kind, Memref):
            shapes[name], strides[name] = tuple(map(int, argument.shape)), layout_strides(kind, argument)
        elif isinstance(kind, Group):
            items = group_items(kind, argument).items
            groups[name] = len(items), kind.memref.shape
            if items:
                groups[name] = len(items), _common([item.shape for item in items])
                strides[name] = _common([layout_strides(kind.memref, item) for item in items])
                ends[name] = _ends(items)
    return LaunchFacts(shapes, groups, strides, ends)


def _common(rows: Sequence[tuple[int, ...]]) -> Shape:
    """The numbers that all rows have, column by column."""
    columns = [set(column) for column in zip(*rows, strict=True)]
    return tuple(column.pop() if len(column) == 1 else None for column in columns)


def _ends(items: Sequence[Array]) -> tuple[tuple[int, int], ...]:
    """The least and the largest size of each mode."""
    columns = zip(*(item.shape for item in items), strict=True)
    return tuple((min(column), max(column)) for column in columns)


# --- plans --------------------------------------------------------------------------------------------------


class _PackingPlan:
    """How arguments of certain layouts are packed; what never changes already stands in the template."""

    __slots__ = (
        "_arrays",
        "_groups",
        "_numbers",
        "_pack",
        "_template",
        "proofs",
        "proved_counts",
        "proved_groups",
        "tries_all",
        "writes",
    )

    def __init__(self, function: Function, written: Collection[str], arguments: Sequence[object]) -> None:
        self.writes = bool(written)
        self.proved_groups = 0
        """So many work-groups, or fewer, are proved for all integers."""
        self.proved_counts: set[int] = set()
        """Numbers of work-groups that are proved for all integers, where fewer are not proved with more."""
        self.proofs: dict[tuple[int, tuple[int, ...]], Proof | None] = {}
        """What is not proved, for a number of work-groups and integers; None where all is."""
        self.tries_all = True
        """Whether a proof for all integers has not failed yet."""
        self._template: list[object] = []
        self._arrays: list[tuple[int, int, int, int, bool]] = []
        self._numbers: list[tuple[int, int, Read]] = []
        self._groups: list[tuple[int, int, Group, int, bool]] = []
        letters = "="
        for place, (parameter, argument) in enumerate(zip(function.parameters, arguments, strict=True)):
            letters += self._add(place, parameter, argument, parameter.value.name in written)
        self._pack = Struct(letters).pack

    def remember(self, groups: int, is_counted: bool) -> None:
        """A proof for all integers; where the number of work-groups is read, for that number alone."""
        if not is_counted:
            self.proved_groups = groups
        elif len(self.proved_counts) < MOST_PLANS:
            self.proved_counts.add(groups)

    def array_slots(self) -> list[ArraySlot]:
        """Where the addresses of arrays stand."""
        return [ArraySlot(place, slot, alignment) for place, slot, alignment, _, _ in self._arrays]

    def _add(self, place: int, parameter: Parameter, argument: object, written: bool) -> str:
        """Make room for an argument; the letters of its slots."""
        kind, slot = parameter.type, len(self._template)
        alignment = math.lcm(_width(parameter), *promised(parameter.attributes, "alignment"))
        if isinstance(kind, Memref) and isinstance(argument, np.ndarray):
            self._arrays.append((place, slot, alignment, reach_of(argument), written))
            self._template += [0, *open_entries(kind, argument)]
            return "q" * (len(self._template) - slot)
        if isinstance(kind, Group):
            self._groups.append((place, slot, kind, alignment, written))
            letters = group_format(kind)
            self._template += [0] * len(letters)
            return letters
        for index, read in enumerate(scalar_readers(str(kind))):
            self._numbers.append((place, slot + index, read))
            self._template.append(0)
        return scalar_format(str(kind))

    def pack(self, arguments: Sequence[Argument]) -> tuple[PackedArguments, list[Extent]]:
        """The slots, and the memory of all arrays."""
        slots, extents = self._template.copy(), []
        for place, slot, read in self._numbers:
            slots[slot] = read(arguments[place])
        for place, slot, alignment, reach, written in self._arrays:
            slots[slot] = address = address_of(arguments[place])
            if address % alignment and reach:
                raise Malformed("no argument as those before it")
            if reach:
                extents.append((address, address + reach, written))
        kept = [self._pack_group(group, arguments, slots, extents) for group in self._groups]
        return PackedArguments(self._pack(*slots), (arguments, kept), tables=kept), extents

    def _pack_group(
        self,
        group: tuple[int, int, Group, int, bool],
        arguments: Sequence[object],
        slots: list[object],
        extents: list[Extent],
    ) -> GroupTables:
        place, slot, kind, alignment, written = group
        tables = make_tables(kind, arguments[place])
        if not all(reaches_offset(item, tables.given.offset) for item in tables.given.items):
            raise Malformed(
                "no argument as those before it"
            )  # arrays of one layout may lie in memory of different sizes
        filled = tables.slots(kind)
        slots[slot : slot + len(filled)] = filled
        lows, highs = bounds_of(tables)
        if (lows[lows < highs] % alignment).any():
            raise Malformed("no argument as those before it")
        extents.extend(zip(lows.tolist(), highs.tolist(), repeat(written)))
        return tables


def may_share(extents: list[Extent]) -> bool:
    """Whether memory that is written reaches into that of another array."""
    extents.sort()
    reached = written_to = 0
    for low, high, written in extents:
        if low < written_to or (written and low < reached):
            return True
        if high > reached:
            reached = high
        if written and high > written_to:
            written_to = high
    return False
