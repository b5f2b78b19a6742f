"""Loop unrolling for loops that ask for it: whole, or by a factor with a remainder loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from lamella.base.records import dataclass
from lamella.kernels.build import Builder, FreshNames, names_of
from lamella.kernels.rewrite import (
    change_functions,
    constants_of,
    copy_region,
    count_statements,
    rename_region,
    rewrite,
    split_yield,
)
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Dictionary, For, Function, Number, Program, Region, Statement, Value

LOOPS = 5
"""How many loops of the largest size the loops of a function together may become."""
COPIES = 4
"""Trips at a time where all of them are asked for and their number is known only at run time."""


def unroll(program: Program, target: Target) -> Program:
    """A program whose loops are unrolled as their attributes say, as far as the target allows."""
    return change_functions(program, lambda function: _unroll_function(function, target))


def _unroll_function(function: Function, target: Target) -> Function:
    work = _Unrolling(names_of(function), constants_of(function), target.largest_unrolled)
    return replace(function, body=rewrite(function.body, lambda region, _: work.visit(region)))


@dataclass(frozen=True, slots=True)
class _Trips:
    """The trips of a loop whose bounds are known."""

    begin: int
    end: int
    step: int

    @property
    def count(self) -> int:
        """How many trips."""
        return max(0, -(-(self.end - self.begin) // self.step))


@dataclass(slots=True)
class _Unrolling:
    """The state of unrolling one function; loops come from the inside out."""

    names: FreshNames
    constants: Mapping[str, Number]
    limit: int
    """Statements that one loop may become."""
    made: int = 0
    """Statements made so far."""
    aliases: dict[str, Value] = field(default_factory=dict)
    """What stands for the results of loops that are gone, in the region at hand."""

    def visit(self, region: Region) -> Region:
        self.aliases = {}
        found: list[Statement] = []
        for statement in region.statements:
            found += self._replace(statement)
        if len(found) == len(region.statements) and not self.aliases:
            return region
        return rename_region(replace(region, statements=tuple(found)), _resolve(self.aliases))

    def _replace(self, statement: Statement) -> Sequence[Statement]:
        loop = statement.instruction
        wanted = loop.attributes.find("unroll") if isinstance(loop, For) and loop.attributes else None
        if not isinstance(loop, For) or not isinstance(wanted, int) or wanted is False:
            return (statement,)
        trips = self._trips(loop)
        if trips is not None and (wanted is True or wanted >= trips.count):
            return self._whole(statement, loop, trips)
        if wanted is True and trips is None:
            return self._partly(statement, loop, COPIES)
        if wanted is not True and wanted > 1:
            return self._partly(statement, loop, wanted)
        return (statement,)

    def _allow(self, copies: int, loop: For) -> bool:
        """Whether so many copies of a body stay within what one loop and all loops together may become."""
        size = copies * (count_statements(loop.body.statements) + 1)
        if size > self.limit or self.made + size > LOOPS * self.limit:
            return False
        self.made += size
        return True

    def _trips(self, loop: For) -> _Trips | None:
        """The trips where bounds and step are known and the variable never leaves its type."""
        step = 1 if loop.step is None else self._integer(loop.step)
        begin, end = self._integer(loop.begin), self._integer(loop.end)
        if begin is None or end is None or step is None or step < 1:
            return None
        trips = _Trips(begin, end, step)
        return trips if begin + trips.count * step <= _largest(loop.type.name) else None

    def _integer(self, value: Value) -> int | None:
        found = self.constants.get(value.name)
        return found if isinstance(found, int) else None

    def _whole(self, statement: Statement, loop: For, trips: _Trips) -> Sequence[Statement]:
        """One copy of the body for each trip."""
        if not self._allow(trips.count, loop):
            return (statement,)
        builder = Builder(self.names, statement.span)
        carried = [start for _, start in loop.carried]
        for trip in range(trips.count):
            variable = builder.constant(trips.begin + trip * trips.step, loop.type)
            carried = _add_trip(builder, loop, variable, carried)
        self.aliases.update(zip((item.name for item in statement.results), carried, strict=False))
        return builder.statements

    def _partly(self, statement: Statement, loop: For, copies: int) -> Sequence[Statement]:
        """A loop whose body is so many copies, and one for the trips that are left."""
        step = 1 if loop.step is None else self._integer(loop.step)
        if step is None or step < 1:
            return (statement,)
        if copies * step > _largest(loop.type.name) or not self._allow(copies, loop):
            return (statement,)
        builder = Builder(self.names, statement.span)
        middle, stride = _middle(builder, loop, copies * step)
        results = _main_loop(builder, loop, copies, (middle, stride, step))
        rest = replace(
            loop,
            begin=middle,
            carried=tuple((value, start) for (value, _), start in zip(loop.carried, results, strict=True)),
            attributes=_without_unroll(loop.attributes),
        )
        builder.add_statement(replace(statement, instruction=rest))
        return builder.statements


def _add_trip(builder: Builder, loop: For, variable: Value, carried: Sequence[Value]) -> list[Value]:
    """A copy of the body, and what it yields."""
    names = (value.name for value, _ in loop.carried)
    given = {loop.variable.name: variable, **dict(zip(names, carried, strict=True))}
    statements, yielded = split_yield(copy_region(loop.body, builder.names, given))
    for item in statements:
        builder.add_statement(item)
    return list(yielded)


def _middle(builder: Builder, loop: For, stride: int) -> tuple[Value, Value]:
    """Where whole groups of trips end, and the distance from one group to the next."""
    kind = loop.type
    step, none = builder.constant(stride, kind), builder.constant(0, kind)
    end = builder.arith("max", loop.end, loop.begin, type_=kind)
    # A distance too long for its type wraps to less than nothing: then there are no groups, and the rest does all.
    distance = builder.arith("max", builder.arith("sub", end, loop.begin, type_=kind), none, type_=kind)
    groups = builder.arith("div", distance, step, type_=kind)
    length = builder.arith("mul", groups, step, type_=kind)
    return builder.arith("add", loop.begin, length, type_=kind), step


def _main_loop(builder: Builder, loop: For, copies: int, bounds: tuple[Value, Value, int]) -> list[Value]:
    middle, stride, step = bounds
    carried = [(start, kind) for (_, start), kind in zip(loop.carried, loop.types, strict=True)]
    offsets = [builder.constant(trip * step, loop.type) for trip in range(1, copies)]
    attributes = _without_unroll(loop.attributes)
    with builder.loop(loop.begin, middle, stride, carried, attributes, loop.type) as main:
        values = _add_trip(main.body, loop, main.variable, main.carried)
        for offset in offsets:
            variable = main.body.arith("add", main.variable, offset, type_=loop.type)
            values = _add_trip(main.body, loop, variable, values)
        if carried:
            main.body.give(*values)
    return main.results


def _without_unroll(attributes: Dictionary | None) -> Dictionary | None:
    """The attributes of a loop that was unrolled already."""
    entries = () if attributes is None else attributes.entries
    kept = tuple(entry for entry in entries if entry.key != "unroll")
    return Dictionary(kept) if kept else None


def _largest(name: str) -> int:
    return (1 << (8 * BYTES[name] - 1)) - 1


def _resolve(aliases: Mapping[str, Value]) -> dict[str, Value]:
    """Names that lead to their last meaning: a loop may yield the result of another."""
    found: dict[str, Value] = {}
    for name, value in aliases.items():
        while value.name in aliases:
            value = aliases[value.name]
        found[name] = value
    return found
