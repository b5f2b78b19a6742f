"""`for`: one counter where all lanes agree, a mask of running lanes where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from lamella.backend.cpu.emit.control.carry import Merge, choose, settle
from lamella.backend.cpu.emit.control.masks import any_lane, both, less, masked
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.integers import WIDTHS, add, first_of, number, spread
from lamella.backend.cpu.emit.matrices import emit_tile_loop
from lamella.backend.cpu.emit.values import LLVM, Lanes, RunValue
from lamella.lang.tensor.nodes import Coopmatrix, For, Foreach, If, Region, Value

LARGEST_TWICE = 60
"""Statements of a body that is written twice: for whole vectors, and for the rest."""


@dataclass(slots=True)
class Course:
    """A loop while it is written."""

    node: For
    begin: Lanes
    end: Lanes
    step: Lanes
    varying: Sequence[bool]
    """Which carried values differ from lane to lane."""


def emit_for(here: Here, node: For, results: Sequence[Value]) -> list[RunValue]:
    """Write a loop; its results are settled values."""
    if node.carried and isinstance(node.types[0], Coopmatrix):
        tiles = emit_tile_loop(here, node)
        if tiles is not None:
            return list(tiles)
    begin, end = here.scalar(node.begin.name), here.scalar(node.end.name)
    step = here.scalar(node.step.name) if node.step is not None else number(1, begin.element)
    varying = [name.name in here.varying for name, _ in node.carried]
    course = Course(node, begin, end, step, varying)
    start = [
        settle(here, here.values[value.name], wide)
        for (_, value), wide in zip(node.carried, varying, strict=True)
    ]
    if begin.is_uniform and end.is_uniform and step.is_uniform:
        return _agreed(here, course, start)
    if _has_even_lanes(here, course):
        course.begin, start = _whole_vectors(here, course, start)
    return _diverged(here, course, start)


def _agreed(here: Here, course: Course, start: list[RunValue]) -> list[RunValue]:
    """All lanes run the same trips."""
    divisor = gcd(course.begin.divisor, course.step.divisor)
    return _trips(here, course, start, course.begin, course.end.operand, divisor)[1]


def _trips(
    here: Here, course: Course, start: list[RunValue], begin: Lanes, end: str, divisor: int
) -> tuple[Lanes, list[RunValue]]:
    """Count from a uniform number (or the one of lane 0) up to an end; gives the counter and the values after."""
    out, kind = here.out, LLVM[begin.element]
    first = begin.base if begin.base is not None else begin.operand
    body, after, before = out.label("loop"), out.label("done"), out.block
    entered = _is_entered(course, begin, end)
    if not entered:
        out.branch(out.value(f"icmp slt {kind} {first}, {end}"), body, after)
    else:
        out.jump(body)
    out.begin(body)
    counter = replace(begin, parts=(), base=first, constant=None, divisor=divisor)
    if begin.is_uniform:
        counter = Lanes(begin.element, (first,), divisor=divisor)
    merge = Merge(here, [counter, *start])
    merge.receive([counter, *start], before)
    now, *carried = merge.values
    values = _body(here, course, now, carried)
    following = add(here, _as_lanes(now), course.step)
    condition = out.value(f"icmp slt {kind} {first_of(following)}, {end}")
    merge.receive([following, *values], out.block)
    merge.close()
    end_block = out.block
    out.branch(condition, body, after)
    out.begin(after)
    if entered:
        return _as_lanes(following), values
    left = Merge(here, [counter, *start])
    left.receive([counter, *start], before)
    left.receive([following, *values], end_block)
    last, *rest = left.close()
    return _as_lanes(last), rest


def _is_entered(course: Course, begin: Lanes, end: str) -> bool:
    """Whether it is known that there is a trip."""
    known = begin.constant
    return isinstance(known, int) and end.lstrip("-").isdigit() and known < int(end)


def _as_lanes(value: RunValue) -> Lanes:
    if not isinstance(value, Lanes):
        raise TypeError("a loop counts integers")
    return value


def _body(here: Here, course: Course, now: RunValue, carried: Sequence[RunValue]) -> list[RunValue]:
    here.values[course.node.variable.name] = now
    for (name, _), value in zip(course.node.carried, carried, strict=True):
        here.values[name.name] = value
    found = here.walk(here, course.node.body.statements)
    return [settle(here, value, wide) for value, wide in zip(found, course.varying, strict=True)]


def _has_even_lanes(here: Here, course: Course) -> bool:
    """Whether lanes count side by side to a common end, so that whole vectors need no mask."""
    begin, step = course.begin, course.step.constant
    return (
        here.mask is None
        and begin.base is not None
        and begin.step > 0
        and course.end.is_uniform
        and isinstance(step, int)
        and step > 0
        and _ahead(here, begin) < 1 << (WIDTHS[begin.element] - 1)
        and _is_small(course.node.body)
    )


def _ahead(here: Here, begin: Lanes) -> int:
    """How far the last lane is ahead of the first."""
    return (here.lanes - 1) * begin.step


def _is_small(region: Region) -> bool:
    """Whether a body may be written twice."""
    inner = any(isinstance(item.instruction, For | Foreach | If) for item in region.statements)
    return not inner and len(region.statements) <= LARGEST_TWICE


def _whole_vectors(here: Here, course: Course, start: list[RunValue]) -> tuple[Lanes, list[RunValue]]:
    """The trips in which every lane runs: as long as the last one does."""
    begin, kind = course.begin, LLVM[course.begin.element]
    # An end near the least number must not wrap to a limit near the largest.
    operands = f"{kind} {course.end.operand}, {kind} {_ahead(here, begin)}"
    limit = here.out.intrinsic(kind, f"llvm.ssub.sat.{kind}", operands)
    divisor = gcd(begin.divisor, course.step.divisor)
    return _trips(here, course, start, begin, limit, divisor)


def _diverged(here: Here, course: Course, start: list[RunValue]) -> list[RunValue]:
    """Lanes run until each has reached its end."""
    out = here.out
    begin = course.begin
    if begin.is_uniform or (begin.base is not None and course.step.is_uniform):
        begin = replace(begin, constant=None)
    else:
        begin = _plain(here, begin)
    if not course.step.is_uniform:
        begin = _plain(here, begin)
    active = both(here, here.mask, less(here, begin, course.end))
    wide = [settle(here, value, True) for value in start]
    body, after, before = out.label("lanes"), out.label("done"), out.block
    out.branch(any_lane(here, active), body, after)
    out.begin(body)
    running = Lanes("bool", (active,), here.lanes)
    merge = Merge(here, [begin, running, *wide])
    merge.receive([begin, running, *wide], before)
    now, mask, *carried = merge.values
    lanes = _as_lanes(mask).operand
    with masked(here, lanes):
        values = _body(here, course, now, carried)
    values = [choose(here, lanes, new, old) for new, old in zip(values, carried, strict=True)]
    following = add(here, _as_lanes(now), course.step)
    still = both(here, lanes, less(here, following, course.end))
    merge.receive([following, Lanes("bool", (still,), here.lanes), *values], out.block)
    merge.close()
    end = out.block
    out.branch(any_lane(here, still), body, after)
    out.begin(after)
    left = Merge(here, wide)
    left.receive(wide, before)
    left.receive(values, end)
    return left.close()


def _plain(here: Here, value: Lanes) -> Lanes:
    """An integer of each lane of which nothing is known."""
    wide = spread(here, value)
    return Lanes(wide.element, wide.parts, here.lanes)
