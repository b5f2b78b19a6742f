"""The pass that writes `foreach` as `parallel`: one variable runs over the work-items, the others in loops.

That is the first one, along which memory usually runs, unless it leaves nearly all work-items without work. Where a
subgroup has an index for each of its work-items nothing is tested, so that machine code needs no mask; what is left
over at the end of the range is done by one subgroup behind an `if`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from lamella.base.records import dataclass
from lamella.kernels.build import Builder, FreshNames, names_of
from lamella.kernels.rewrite import change_functions, constants_of, copy_region, rewrite
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import (
    INDEX,
    Foreach,
    Function,
    Number,
    Program,
    Region,
    Scalar,
    Statement,
    Value,
)

I32 = Scalar("i32")
FEWEST = 8
"""The first variable runs over the lanes where it gives more than one in so many of them something to do."""
Body: TypeAlias = Callable[[Builder, Sequence[Value]], None]
"""Writes what is done for the values of the variables."""


def lower_foreach(program: Program, _: Target) -> Program:
    """A program without `foreach`."""
    return change_functions(program, _lower_function)


def _lower_function(function: Function) -> Function:
    sizes = default_sizes(function)
    items = sizes.work_group_size[0] * sizes.work_group_size[1]
    places = _WorkItems(sizes.subgroup_size, max(1, items // sizes.subgroup_size), constants_of(function))
    names = names_of(function)

    def visit(region: Region, _: bool) -> Region:
        if not any(isinstance(item.instruction, Foreach) for item in region.statements):
            return region
        found = [new for item in region.statements for new in _lower(item, names, places)]
        return replace(region, statements=tuple(found))

    return replace(function, body=rewrite(function.body, visit))


@dataclass(frozen=True, slots=True)
class _WorkItems:
    """The work-items of a work-group, and what is known before the run."""

    lanes: int
    subgroups: int
    constants: Mapping[str, Number]

    def integer(self, value: Value) -> int | None:
        """A constant; None where the value is known only at run time."""
        found = self.constants.get(value.name)
        return found if isinstance(found, int) else None


@dataclass(frozen=True, slots=True)
class _Range:
    """One variable of a foreach: its bounds, and how many indices it has where that is known."""

    begin: Value
    end: Value
    first: int | None
    count: int | None


def _lower(statement: Statement, names: FreshNames, places: _WorkItems) -> Sequence[Statement]:
    foreach = statement.instruction
    if not isinstance(foreach, Foreach):
        return (statement,)
    ranges = [_range(*pair, places) for pair in zip(foreach.begins, foreach.ends, strict=True)]
    if any(item.count == 0 for item in ranges):
        return ()
    builder = Builder(names, statement.span)
    wide = foreach.type.name in ("index", "i64") or (foreach.type == I32 and _is_small(ranges))
    kind = foreach.type if wide else INDEX
    with builder.parallel() as inner:
        _write(inner, foreach, ranges, _Mapping(places, kind))
    return builder.statements


def _range(begin: Value, end: Value, places: _WorkItems) -> _Range:
    first, last = places.integer(begin), places.integer(end)
    count = None if first is None or last is None else max(0, last - first)
    return _Range(begin, end, first, count)


def _is_small(ranges: Sequence[_Range]) -> bool:
    """Whether indices stay so small that none is near the end of i32, whatever is added to them."""
    bound = 1 << 30
    return all(
        item.first is not None and item.count is not None and abs(item.first) + item.count < bound
        for item in ranges
    )


@dataclass(frozen=True, slots=True)
class _Mapping:
    """How indices are found: the places, and the type that they are computed in."""

    places: _WorkItems
    kind: Scalar


def _write(builder: Builder, foreach: Foreach, ranges: Sequence[_Range], mapping: _Mapping) -> None:
    """The body for all indices: loops over the other variables, lanes inside."""
    kind, narrow = mapping.kind, foreach.type != mapping.kind
    ranges = [_widen(builder, item, kind) if narrow else item for item in ranges]

    def body(inner: Builder, indices: Sequence[Value]) -> None:
        found = [inner.cast(item, foreach.type) for item in indices] if narrow else indices
        names = (item.name for item in foreach.variables)
        copied = copy_region(foreach.body, inner.names, dict(zip(names, found, strict=True)))
        for item in copied.statements:
            inner.add_statement(item)

    places, chosen = mapping.places, _spread(ranges, mapping.places.lanes)
    count = ranges[chosen].count
    shared = len(ranges) > 1 and places.subgroups > 1 and count is not None and count <= places.lanes
    lane, subgroup = _cast(builder, "subgroup_local_id", kind), _subgroup(builder, mapping)
    start = builder.constant(0, kind)
    if subgroup is not None and not shared:
        size = builder.constant(places.lanes, kind)
        start = builder.arith("mul", subgroup, size, type_=kind)
    lanes = _Lanes(mapping, lane, subgroup, start, shared, chosen)
    _write_loops(builder, ranges, lanes, body)


def _spread(ranges: Sequence[_Range], lanes: int) -> int:
    """Which variable runs over the work-items of a subgroup."""
    counts = [lanes if item.count is None else min(lanes, item.count) for item in ranges]
    return 0 if FEWEST * counts[0] > lanes else counts.index(max(counts))


def _widen(builder: Builder, item: _Range, kind: Scalar) -> _Range:
    return replace(item, begin=builder.cast(item.begin, kind), end=builder.cast(item.end, kind))


def _cast(builder: Builder, name: str, kind: Scalar) -> Value:
    found = builder.builtin(name, I32)
    return found if kind == I32 else builder.cast(found, kind)


def _subgroup(builder: Builder, mapping: _Mapping) -> Value | None:
    """The number of the subgroup; None where there is one alone."""
    return _cast(builder, "subgroup_id", mapping.kind) if mapping.places.subgroups > 1 else None


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Who does what: the work-item's number in its subgroup, the subgroup's number, where a subgroup starts.

    `shared` tells that the subgroups share the outermost loop and not the variable `chosen` for the lanes.
    """

    mapping: _Mapping
    lane: Value
    subgroup: Value | None
    start: Value
    shared: bool
    chosen: int

    def constant(self, builder: Builder, number: int) -> Value:
        """A number of the type of the indices."""
        return builder.constant(number, self.mapping.kind)

    def arith(self, builder: Builder, function: str, *operands: Value) -> Value:
        """Arithmetic in the type of the indices."""
        return builder.arith(function, *operands, type_=self.mapping.kind)

    def shift(self, builder: Builder, item: _Range, offset: Value) -> Value:
        """An index from its distance to the first."""
        return offset if item.first == 0 else self.arith(builder, "add", item.begin, offset)


def _write_loops(builder: Builder, ranges: Sequence[_Range], lanes: _Lanes, body: Body) -> None:
    """Loops over all variables but the one for the lanes, the last of them outermost."""
    others: list[Value] = []
    with ExitStack() as loops:
        for item in reversed([*ranges[: lanes.chosen], *ranges[lanes.chosen + 1 :]]):
            begin, step = item.begin, None
            if lanes.shared and lanes.subgroup is not None and not others:
                begin = lanes.shift(builder, item, lanes.subgroup)
                step = lanes.constant(builder, lanes.mapping.places.subgroups)
            kind = lanes.mapping.kind
            loop = loops.enter_context(builder.loop(begin, item.end, step, type_=kind))
            builder = loop.body
            others.insert(0, loop.variable)
        before, behind = others[: lanes.chosen], others[lanes.chosen :]
        _write_lanes(
            builder,
            ranges[lanes.chosen],
            lanes,
            lambda inner, index: body(inner, [*before, index, *behind]),
        )


One: TypeAlias = Callable[[Builder, Value], None]


def _write_lanes(builder: Builder, item: _Range, lanes: _Lanes, body: One) -> None:
    """The variable for the lanes: whole subgroups in a loop, the rest behind an `if`."""
    count = item.count
    if count is None:
        _write_dynamic(builder, item, lanes, body)
        return
    size = lanes.mapping.places.lanes
    full = count // size * size
    if full:
        _write_full(builder, item, lanes, (full, lanes.constant(builder, full)), body)
    if count > full:
        owner = lanes.constant(builder, full // size % lanes.mapping.places.subgroups)
        rest = lanes.constant(builder, count - full)
        _write_rest(
            builder, lanes, owner, rest, partial(_at, item, lanes, lanes.constant(builder, full), body)
        )


def _at(item: _Range, lanes: _Lanes, offset: Value, body: One, builder: Builder) -> None:
    """The body for the indices of a subgroup that begin at a distance from the first."""
    body(builder, lanes.shift(builder, item, lanes.arith(builder, "add", offset, lanes.lane)))


def _write_full(
    builder: Builder, item: _Range, lanes: _Lanes, full: tuple[int | None, Value], body: One
) -> None:
    """Indices that come in whole subgroups; a subgroup takes every so manieth of them."""
    places = lanes.mapping.places
    distance = places.lanes if lanes.shared else places.lanes * places.subgroups
    if full[0] == distance:
        _at(item, lanes, lanes.start, body, builder)
        return
    step = lanes.constant(builder, distance)
    with builder.loop(lanes.start, full[1], step, type_=lanes.mapping.kind) as loop:
        _at(item, lanes, loop.variable, body, loop.body)


def _write_rest(
    builder: Builder, lanes: _Lanes, owner: Value, rest: Value, body: Callable[[Builder], None]
) -> None:
    """Indices of a subgroup that is not full: one subgroup does them, with its first work-items."""
    if lanes.subgroup is None or lanes.shared:
        with builder.condition(builder.compare("lt", lanes.lane, rest)) as inner:
            body(inner)
        return
    mine = builder.condition(builder.compare("eq", lanes.subgroup, owner))
    with mine as outer, outer.condition(outer.compare("lt", lanes.lane, rest)) as inner:
        body(inner)


def _write_dynamic(builder: Builder, item: _Range, lanes: _Lanes, body: One) -> None:
    """The same where the number of indices is known only at run time; there may be none."""
    places = lanes.mapping.places
    size = lanes.constant(builder, places.lanes)
    count = item.end if item.first == 0 else lanes.arith(builder, "sub", item.end, item.begin)
    rest = lanes.arith(builder, "rem", count, size)
    full = lanes.arith(builder, "sub", count, rest)
    _write_full(builder, item, lanes, (None, full), body)
    chunks = lanes.arith(builder, "div", full, size)
    owner = lanes.arith(builder, "rem", chunks, lanes.constant(builder, places.subgroups))
    _write_rest(builder, lanes, owner, rest, partial(_at, item, lanes, full, body))
