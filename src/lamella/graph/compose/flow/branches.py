"""Branches: decided before the run where the condition is known, by the run otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph import nodes as graph
from lamella.graph.compose.flow.regions import Compose, Part, compose_condition, compose_part, settle_shape
from lamella.graph.compose.operations import as_tensor
from lamella.graph.compose.scope.frame import Frame, Place
from lamella.graph.compose.scope.session import Named
from lamella.graph.compose.values import describe
from lamella.graph.nodes import Region, Tensor
from lamella.lang.skriptnd.nodes import Block, Branch, Callee, Invocation
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.problem import Problem
from lamella.ops.scalars.values import word_of


def compose_branch(frame: Frame, branch: Branch, place: Place, compose: Compose) -> Sequence[object]:
    """Compose what can be taken: a case that is known to fail vanishes, one that is known to hold is the last."""
    cases: list[tuple[Callee, Callee]] = []
    otherwise = branch.otherwise
    for condition, consequent in branch.cases:
        known = _known_truth(frame, condition)
        if known is True:
            otherwise = consequent
            break
        if known is None:
            cases.append((condition, consequent))
    if not cases:
        return compose(frame, otherwise, place)
    tests, callees = [test for test, _ in cases], [*(then for _, then in cases), otherwise]
    return _compose_cases(frame, tests, callees, place, compose)


def _known_truth(frame: Frame, condition: Callee) -> bool | None:
    """The value of a condition before the run; None where only the run tells."""
    if isinstance(condition, Invocation | Block):
        return None
    value = frame.value(condition)
    if isinstance(value, bool):
        return value
    if isinstance(value, Tensor) or word_of(value) == "bool":
        return None
    raise Problem(rules.CONDITION.at(condition.span, found=describe(value)))


def _compose_cases(
    frame: Frame, tests: Sequence[Callee], callees: Sequence[Callee], place: Place, compose: Compose
) -> Sequence[object]:
    """A branch of the graph: every condition and every consequent is a region of its own."""
    calls = [item for item in (*tests, *callees) if isinstance(item, Invocation | Block)]
    label = place.label if len(calls) == 1 else None
    mark = frame.session.mark()
    conditions = [compose_condition(frame, item, label, compose) for item in tests]
    attempts = [compose_part(frame, item, label, compose) for item in callees]
    parts = [item for item in attempts if item is not None]
    if len(parts) < len(attempts) or None in conditions:
        raise Problem()
    origin = Origin("if", place.span, frame.origin)
    rows = [row for number in range(_count(parts)) for row in _rows(frame, parts, number, place)]
    hidden = frame.session.since(mark)
    outputs = [_output(frame, row, hidden, origin) for row in rows]
    regions = tuple(
        Region((), part.nodes, tuple(row.tensors[branch] for row in rows), part.checks)
        for branch, part in enumerate(parts)
    )
    tests_made = tuple(item for item in conditions if item is not None)
    frame.session.nodes.append(graph.Branch(tests_made, regions, tuple(outputs), origin=origin))
    return _regroup(parts[0].values, outputs)


class Row(NamedTuple):
    """One tensor of the results: its number, what it is called, and which tensor each branch gives for it."""

    number: int
    named: Named
    tensors: tuple[Tensor, ...]
    span: Span


def _count(parts: Sequence[Part]) -> int:
    """How many results the branches give, all the same number."""
    fewest = min(len(part.values) for part in parts)
    if any(len(part.values) != fewest for part in parts):
        number = fewest + 1
        raise Problem(
            rules.BRANCHES_DIFFER.at(parts[-1].span, number=number, first="given", second="missing")
        )
    return fewest


def _rows(frame: Frame, parts: Sequence[Part], number: int, place: Place) -> Iterator[Row]:
    """The tensors of one result, branch by branch; a pack has several."""
    values = [part.values[number] for part in parts]
    sizes = {len(item) if isinstance(item, tuple) else None for item in values}
    wanted = place.names(number + 1)[number]
    if sizes == {None}:
        yield _row(frame, number, wanted.single(), values, parts[-1].span)
    elif len(sizes) == 1:
        packs = [item for item in values if isinstance(item, tuple)]
        for named, items in zip(wanted.items(len(packs[0])), zip(*packs, strict=True), strict=True):
            yield _row(frame, number, named, items, parts[-1].span)
    else:
        raise _differ(number, values, parts[-1].span)


def _row(frame: Frame, number: int, named: Named | None, values: Sequence[object], span: Span) -> Row:
    like = next((item for item in values if isinstance(item, Tensor)), None)
    tensors = tuple(as_tensor(frame, item, f"result {number + 1}", span, like) for item in values)
    if len({(item.element, len(item.shape)) for item in tensors}) > 1:
        raise _differ(number, tensors, span)
    return Row(number, named or Named(frame.scope.name("result")), tensors, span)


def _differ(number: int, values: Sequence[object], span: Span) -> Problem:
    words = list(dict.fromkeys(describe(item) for item in values))
    return Problem(rules.BRANCHES_DIFFER.at(span, number=number + 1, first=words[0], second=words[-1]))


def _output(frame: Frame, row: Row, hidden: frozenset[str], origin: Origin) -> Tensor:
    session = frame.session
    name = session.take(row.named)
    shape = settle_shape(session, name, [item.shape for item in row.tensors], hidden)
    named = Named(name, row.named.exposed)
    return session.tensor(named, row.tensors[0].element, shape, origin, taken=True)


def _regroup(values: Sequence[object], outputs: Sequence[Tensor]) -> Sequence[object]:
    """The outputs in packs where the results are."""
    rest = iter(outputs)
    return tuple(
        tuple(next(rest) for _ in item) if isinstance(item, tuple) else next(rest) for item in values
    )
