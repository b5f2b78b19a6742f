"""Unrolled loops: the body again and again, in place."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.graph.compose.flow.regions import Compose
from lamella.graph.compose.flow.steps import Steps, scan, start_value
from lamella.graph.compose.scope.frame import Frame, Place
from lamella.graph.compose.scope.session import Named
from lamella.graph.compose.scope.wanted import UNNAMED, Simple, Wanted
from lamella.graph.compose.values import describe, need
from lamella.lang.skriptnd.nodes import Loop
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.problem import Problem


def unroll(frame: Frame, loop: Loop, place: Place, compose: Compose) -> Sequence[object]:
    """The body once for each step, with the index as a number and new tensors for what is carried."""
    steps = scan(frame, loop)
    count = _count(frame, loop, steps)
    carried: Sequence[object] = [start_value(frame, item) for item in loop.carried]
    packed: list[Sequence[object]] = []
    frame.session.spend(count, loop.span)
    with frame.session.unrolled(count, loop.span):
        wanted = _wanted(loop, place, count)
        for number in range(count):
            inner = _bind(frame, loop, carried, steps, number)
            names = [
                _step_name(inner, loop, place, number == count - 1, item) for item in range(len(carried))
            ]
            names += [item[number] for item in wanted]
            found = need(compose(inner, loop.body, Place(names, place.label, loop.body.span)))
            carried = _carried(loop, found)
            packed.append(found[len(carried) :])
    if not packed:
        return (*carried, *((),) * (len(place.wanted or ()) - len(carried)))
    return (*carried, *zip(*packed, strict=False))


def _count(frame: Frame, loop: Loop, steps: Steps) -> int:
    """How many steps there are."""
    test = loop.before or loop.after
    if test is not None:
        raise Problem(rules.UNKNOWN_UNROLL.at(test.span, found="up to a condition"))
    expr = loop.iteration.count if loop.iteration is not None else None
    value = None if expr is None else frame.value(expr)
    length = steps.length if value is None else value
    if length is None:
        raise Problem(rules.LOOP_WITHOUT_END.at(loop.span))
    if type(length) is not int or isinstance(steps.length, int | None) is False:
        raise Problem(rules.UNKNOWN_UNROLL.at(loop.span, found=describe(length)))
    most = steps.length
    if length < 0 or (isinstance(most, int) and length > most):
        wanted = "at least 0" if length < 0 else f"at most {most}, the number of scanned items"
        raise Problem(rules.LOOP_COUNT.at(loop.span, found=length, wanted=wanted))
    return length


def _bind(frame: Frame, loop: Loop, carried: Sequence[object], steps: Steps, number: int) -> Frame:
    """A frame in which the names of the loop have their values of one step."""
    inner = frame.inside(frame.scope.at_step(number + 1), {})
    for item, value in zip(loop.carried, carried, strict=True):
        inner.env[item.name] = value
    for scanned, pack in zip(loop.scans, steps.packs, strict=True):
        if isinstance(pack, tuple):
            inner.env[scanned.name] = pack[number]
    if loop.iteration is not None and loop.iteration.index is not None:
        inner.env[loop.iteration.index] = number
    return inner


def _carried(loop: Loop, found: Sequence[object]) -> Sequence[object]:
    if len(found) < len(loop.carried):
        name, after = loop.carried[len(found)].name, f"only {len(found)} results"
        raise Problem(rules.CARRIED.at(loop.body.span, name=name, before="a tensor", after=after))
    return found[: len(loop.carried)]


def _step_name(frame: Frame, loop: Loop, place: Place, last: bool, number: int) -> Wanted:
    """The last value that is carried is the loop's result; those before are named after their step."""
    if last:
        return place.names(number + 1)[number]
    return Simple(Named(frame.scope.name(loop.carried[number].name)))


def _wanted(loop: Loop, place: Place, count: int) -> list[list[Wanted]]:
    """For each packed result the names of its steps."""
    packs = (place.wanted or ())[len(loop.carried) :]
    return [[UNNAMED if item is None else Simple(item) for item in pack.items(count)] for pack in packs]
