"""From the arguments of a call to the slots that machine code reads.

What depends only on the types and layouts of the arguments is verified once and kept as a plan; each call verifies
what may have changed: addresses, alignment, values of integers, arrays that share memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import repeat
from struct import Struct
from typing import NamedTuple, TypeAlias

import numpy as np

from lamella.backend.arguments import (
    Arrays,
    group_items,
    promised,
    verify_arguments,
    written_parameters,
)
from lamella.backend.cpu.run.agree import Known, Shape, bound_groups, verify_shapes
from lamella.backend.cpu.run.groups import Tables, bounds_of, group_format, make_tables, verify_offset
from lamella.backend.cpu.run.proof import find_open, has_integers, specialise
from lamella.backend.cpu.run.slots import (
    Argument,
    BrokenError,
    Read,
    address_of,
    open_entries,
    reach_of,
    scalar_format,
    scalar_readers,
)
from lamella.backend.named import MOST_GROUPS
from lamella.base.diagnostic import ERROR, Diagnostic, LamellaError
from lamella.lang.tensor.nodes import Function, Group, Memref, Parameter
from lamella.lang.tensor.rules import running as rules

MOST_PLANS = 256


Extent: TypeAlias = tuple[int, int, bool]
"""Where an array begins and ends in memory, and whether it is written."""


class Packed(NamedTuple):
    """The slots of a call, and what must live until it returns."""

    slots: bytes
    kept: object


def pack_arguments(function: Function, arguments: Sequence[object]) -> Packed:
    """The slots for the arguments of one call, verified; LamellaError tells all that does not fit."""
    return Packer(function).pack(arguments)


class Packer:
    """Packs the arguments of one kernel, faster when it has seen their layouts before."""

    __slots__ = ("_function", "_numbers", "_plans", "_proved", "_written")

    def __init__(self, function: Function, proved: bool = False) -> None:
        self._function = function
        self._proved = proved
        """Whether no access needs to be proved any more, whatever the arguments."""
        self._numbers: set[tuple[object, ...]] = set()
        """Layouts and integers for which accesses have been followed."""
        self._written = written_parameters(function)
        self._plans: dict[tuple[object, ...], _Plan] = {}

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What a call packs arguments for."""
        return self._function.parameters

    def pack(self, arguments: Sequence[object], groups: int = 1) -> Packed:
        """The slots for the arguments of one call, verified; LamellaError tells all that does not fit."""
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
        except (BrokenError, OverflowError):
            self._refuse(arguments)
            raise
        if plan.writes and len(extents) > 1 and may_share(extents):
            self._refuse(arguments)
        if groups > plan.most_groups:
            self._refuse_groups(arguments, groups)
        if plan.is_open and groups:
            self._follow(key, plan, arguments)
        return packed

    def _plan(self, key: tuple[object, ...], arguments: Sequence[object]) -> _Plan:
        self._refuse(arguments)
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        plan = self._plans[key] = _Plan(self._function, self._written.keys(), arguments)
        plan.is_open = not self._proved
        return plan

    def _follow(self, key: tuple[object, ...], plan: _Plan, arguments: Sequence[object]) -> None:
        """Refuse sizes and integers with which an access leaves its memory; the same are not followed again."""
        known = know_sizes(self._function, arguments)
        if key not in self._numbers:
            found = find_open(specialise(self._function, known, None))
            _refuse_certain(found)
            plan.is_open = bool(found) and has_integers(self._function)
            self._remember(key)
        numbers = (*key, *(item for item in arguments if isinstance(item, int | np.integer)))
        if plan.is_open and numbers not in self._numbers:
            _refuse_certain(find_open(specialise(self._function, known, arguments)))
            self._remember(numbers)

    def _remember(self, numbers: tuple[object, ...]) -> None:
        if len(self._numbers) >= MOST_PLANS:
            self._numbers.clear()
        self._numbers.add(numbers)

    def _refuse(self, arguments: Sequence[object]) -> None:
        findings = verify_arguments(self._function, arguments) or self._verify_for_machine(arguments)
        if findings:
            raise LamellaError(findings)

    def _refuse_groups(self, arguments: Sequence[object], groups: int) -> None:
        bounds = bound_groups(self._function, know_sizes(self._function, arguments))
        raise LamellaError([bound.finding for bound in bounds if groups > bound.most])

    def _verify_for_machine(self, arguments: Sequence[object]) -> list[Diagnostic]:
        """What the interpreter finds while it runs and machine code would not."""
        pairs = list(zip(self._function.parameters, arguments, strict=True))
        fixed = [item for item, argument in pairs if item.value.name in self._written and _is_fixed(argument)]
        findings = [self._fixed(parameter) for parameter in fixed]
        for parameter, argument in pairs:
            if isinstance(parameter.type, Group):
                findings += verify_offset(parameter, group_items(parameter.type, argument))
        return findings + verify_shapes(self._function, know_sizes(self._function, arguments))

    def _fixed(self, parameter: Parameter) -> Diagnostic:
        name = parameter.value.name
        return rules.READ_ONLY.at(self._written[name], hint=None, labels=(), name=name, place="")


def _refuse_certain(findings: Sequence[Diagnostic]) -> None:
    certain = [item for item in findings if item.severity == ERROR]
    if certain:
        raise LamellaError(certain)


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


def know_sizes(function: Function, arguments: Sequence[object]) -> Known:
    """What the arguments of a launch tell about sizes."""
    shapes: dict[str, Shape] = {}
    groups: dict[str, tuple[int, Shape]] = {}
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        if isinstance(argument, np.ndarray):
            shapes[parameter.value.name] = tuple(int(size) for size in argument.shape)
        elif isinstance(parameter.type, Group):
            groups[parameter.value.name] = _know_group(parameter.type, argument)
    return Known(shapes, groups)


def _know_group(kind: Group, argument: object) -> tuple[int, Shape]:
    """How many arrays there are, and the sizes that they have in common."""
    shapes = [item.shape for item in group_items(kind, argument).items]
    if not shapes:
        return 0, kind.memref.shape
    columns = [set(column) for column in zip(*shapes, strict=True)]
    return len(shapes), tuple(column.pop() if len(column) == 1 else None for column in columns)


# --- plans --------------------------------------------------------------------------------------------------


class _Plan:
    """How arguments of certain layouts are packed; what never changes already stands in the template."""

    __slots__ = ("_arrays", "_groups", "_numbers", "_pack", "_template", "is_open", "most_groups", "writes")

    def __init__(self, function: Function, written: Collection[str], arguments: Sequence[object]) -> None:
        self.writes = bool(written)
        self.is_open = False
        """Whether integers of the host may still decide where an access goes."""
        bounds = bound_groups(function, know_sizes(function, arguments))
        self.most_groups = min((bound.most for bound in bounds), default=MOST_GROUPS)
        self._template: list[object] = []
        self._arrays: list[tuple[int, int, int, int, bool]] = []
        self._numbers: list[tuple[int, int, Read]] = []
        self._groups: list[tuple[int, int, Group, int, bool]] = []
        letters = "="
        for place, (parameter, argument) in enumerate(zip(function.parameters, arguments, strict=True)):
            letters += self._add(place, parameter, argument, parameter.value.name in written)
        self._pack = Struct(letters).pack

    def _add(self, place: int, parameter: Parameter, argument: object, written: bool) -> str:
        """Make room for an argument; the letters of its slots."""
        kind, slot = parameter.type, len(self._template)
        alignment = math.lcm(*promised(parameter.attributes, "alignment"))
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

    def pack(self, arguments: Sequence[Argument]) -> tuple[Packed, list[Extent]]:
        """The slots, and the memory of all arrays."""
        slots, extents = self._template.copy(), []
        for place, slot, read in self._numbers:
            slots[slot] = read(arguments[place])
        for place, slot, alignment, reach, written in self._arrays:
            slots[slot] = address = address_of(arguments[place])
            if address % alignment and reach:
                raise BrokenError
            if reach:
                extents.append((address, address + reach, written))
        kept = [self._pack_group(group, arguments, slots, extents) for group in self._groups]
        return Packed(self._pack(*slots), (arguments, kept)), extents

    def _pack_group(
        self,
        group: tuple[int, int, Group, int, bool],
        arguments: Sequence[object],
        slots: list[object],
        extents: list[Extent],
    ) -> Tables:
        place, slot, kind, alignment, written = group
        tables = make_tables(kind, arguments[place])
        filled = tables.slots(kind)
        slots[slot : slot + len(filled)] = filled
        lows, highs = bounds_of(tables)
        if (lows[lows < highs] % alignment).any():
            raise BrokenError
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
