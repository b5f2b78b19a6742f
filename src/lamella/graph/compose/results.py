"""What a component gives to the names on its left side."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.graph.compose.operations import rename
from lamella.graph.compose.scope.frame import Frame
from lamella.graph.compose.scope.wanted import names_in, pack_of, spread
from lamella.graph.compose.types import check_type
from lamella.graph.compose.values import describe
from lamella.graph.nodes import Pack, Tensor
from lamella.lang.skriptnd.nodes import Component, Invocation, ListPattern, Omitted, Pattern, Result
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.problem import Problem
from lamella.ops.scalars.values import Unknown


def assign(frame: Frame, component: Component, values: Sequence[object]) -> None:
    """Give the names of a component their values."""
    if len(values) != len(component.results):
        callee = component.value
        what = callee.operator if isinstance(callee, Invocation) else "the right side"
        wanted, found = len(component.results), len(values)
        raise Problem(rules.RESULT_COUNT.at(component.span, wanted=wanted, what=what, found=found))
    for pattern, value in zip(component.results, values, strict=True):
        _assign_pattern(frame, pattern, value)


def _assign_pattern(frame: Frame, pattern: Pattern, value: object) -> None:
    if isinstance(value, Unknown):
        fail(frame, [pattern])
    elif isinstance(pattern, Result):
        _assign_name(frame, pattern, value)
    elif isinstance(pattern, ListPattern):
        if not isinstance(value, tuple):
            raise Problem(
                rules.WRONG_VALUE.at(
                    pattern.span, what="the right side", found=describe(value), wanted="a pack"
                )
            )
        for item, part in spread(pattern, value, frame.known):
            _assign_name(frame, item, part)


def _assign_name(frame: Frame, item: Result, value: object) -> None:
    pack = pack_of(item)
    if pack is not None and pack.length is not None and not isinstance(pack.length, Omitted):
        wanted = frame.value(pack.length)
        found = len(value) if isinstance(value, tuple) else value.size if isinstance(value, Pack) else None
        if wanted != found:
            declared = f"a pack of {wanted}"
            shown = describe(value)
            hint = rules.OPEN_PACK if isinstance(value, Pack) else None
            finding = rules.RESULT_TYPE.at(
                item.span, hint=hint, name=item.name, declared=declared, found=shown
            )
            raise Problem(finding)
    if item.type is not None:
        check_type(frame, value, item.type, item.name)
    frame.env[item.name] = _named(frame, item, value)


def _named(frame: Frame, item: Result, value: object) -> object:
    """The value; another name for a tensor becomes a tensor of its own where `@quantize` speaks of it."""
    wanted = frame.name(item.name).single()
    if not isinstance(value, Tensor) or wanted is None or wanted.name == value.name:
        return value
    if wanted.name not in frame.session.quantizers or not wanted.exposed:
        return value
    return rename(frame, value, wanted, item.span)


def fail(frame: Frame, patterns: Sequence[Pattern]) -> None:
    """Make names unusable; whoever uses them fails without a word, for the reason was reported."""
    for pattern in patterns:
        for item in names_in(pattern):
            frame.env[item.name] = Unknown(Problem())
