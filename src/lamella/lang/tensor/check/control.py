"""Loops, conditions and what their regions yield."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lamella.base.source import Span
from lamella.lang.tensor.check.attributes import check_for_attributes
from lamella.lang.tensor.check.here import Here
from lamella.lang.tensor.check.types import check_type
from lamella.lang.tensor.nodes import (
    BOOL,
    Coopmatrix,
    For,
    Foreach,
    ForeachTile,
    If,
    Scalar,
    Type,
    Value,
    Yield,
)
from lamella.lang.tensor.rules import values as rules
from lamella.lang.tensor.write.types import write_type, write_types


@dataclass(frozen=True, slots=True)
class Target:
    """What a region is in words and the types of the values it yields; None where it may not yield."""

    where: str
    types: tuple[Type, ...] | None = None


def check_for(here: Here, loop: For) -> None:
    """Check the head of a for."""
    bounds = [loop.begin, loop.end, *([] if loop.step is None else [loop.step])]
    _check_bounds(here, bounds, loop.variable, loop.type)
    _check_step(here, loop.step)
    _check_returned(here, loop.types)
    starts = [start for _, start in loop.carried]
    types = [here.context.type_of(start) for start in starts]
    if len(starts) != len(loop.types):
        here.say(rules.CARRIED_COUNT, here.span, carried=len(starts), types=write_types(loop.types))
    for start, type_, wanted in zip(starts, types, loop.types, strict=False):
        if type_ is not None and type_ != wanted:
            words = {"name": start.name, "type": write_type(type_), "wanted": write_type(wanted)}
            here.say(rules.CARRIED_TYPE, start.span, [start], **words)
    if loop.attributes is not None:
        here.say_all(check_for_attributes(loop.attributes))


def _check_step(here: Here, step: Value | None) -> None:
    entry = None if step is None else here.context.find(step)
    if step is None or entry is None or entry.type is None:
        return
    if isinstance(entry.constant, int) and entry.constant < 1:
        here.say(rules.STEP, step.span, [step], name=step.name, step=entry.constant)


def _check_bounds(here: Here, values: Iterable[Value], variable: Value, wanted: Scalar) -> None:
    for value in values:
        type_ = here.context.type_of(value)
        if type_ is not None and type_ != wanted:
            words = {
                "name": value.name,
                "type": write_type(type_),
                "wanted": wanted,
                "variable": variable.name,
            }
            here.say(rules.BOUND_TYPE, value.span, [value], **words)


def _check_returned(here: Here, types: tuple[Type, ...]) -> None:
    for type_ in types:
        wrong = list(check_type(type_, here.span))
        here.say_all(wrong)
        if not wrong and not isinstance(type_, Scalar | Coopmatrix):
            here.say(rules.RETURNED_TYPE, here.span, type=write_type(type_))


def check_foreach(here: Here, loop: Foreach) -> None:
    """Check the head of a foreach."""
    counts = (len(loop.variables), len(loop.begins), len(loop.ends))
    if len(set(counts)) > 1 or not all(counts):
        words = dict(zip(("variables", "begins", "ends"), counts, strict=True))
        here.say(rules.FOREACH_COUNT, here.span, (), **words)
    else:
        _check_bounds(here, (*loop.begins, *loop.ends), loop.variables[0], loop.type)


def check_foreach_tile(here: Here, loop: ForeachTile) -> None:
    """Check the head of a foreach_tile."""
    here.context.note_extension(here.span, "'foreach_tile'", "foreach, and parallel with loops over tiles")
    lists = {name: len(getattr(loop, name)) for name in ("variables", "begins", "ends", "sizes", "tile")}
    if len(set(lists.values())) > 1:
        here.say(rules.TILE_COUNT, here.span, (), **lists)
    else:
        _check_bounds(here, (*loop.begins, *loop.ends), loop.variables[0], loop.type)
    for size in loop.tile:
        if size < 1:
            here.say(rules.TILE_SIZE, here.span, size=size)


def check_if(here: Here, choice: If) -> None:
    """Check the head of an if."""
    type_ = here.context.type_of(choice.condition)
    if type_ is not None and type_ != BOOL:
        words = {"name": choice.condition.name, "type": write_type(type_)}
        here.say(rules.CONDITION, choice.condition.span, [choice.condition], **words)
    _check_returned(here, choice.types)
    if choice.types and choice.otherwise is None:
        here.say(rules.ELSE_MISSING, here.span, types=write_types(choice.types))


def check_yield(here: Here, given: Yield, target: Target) -> None:
    """Check that a yield gives what the region around it is to give."""
    types = [here.context.type_of(value) for value in given.values]
    if target.types is None:
        here.say(rules.YIELD_OUTSIDE, here.span, where=target.where)
        return
    if len(types) != len(target.types):
        words = {"found": len(types), "where": target.where, "types": write_types(target.types)}
        here.say(rules.YIELD_COUNT, here.span, given.values, **words)
        return
    for position, (value, type_, wanted) in enumerate(zip(given.values, types, target.types, strict=True)):
        if type_ is not None and type_ != wanted:
            words = {"position": position, "type": write_type(type_), "wanted": write_type(wanted)}
            here.say(rules.YIELD_TYPE, value.span, [value], **words)


def closing_brace(span: Span) -> Span:
    """The place of the brace that ends a region."""
    return Span(span.source, span.end - 1, span.end) if span.end > span.start else span
