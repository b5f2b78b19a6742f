"""Control flow: branches and loops, decided before the run where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from lamella.base import dim
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import BOOL, I64
from lamella.base.errors import Found
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph import nodes as graph
from lamella.graph.compose.calls import describe, is_single, need
from lamella.graph.compose.operations import as_tensor, give_type
from lamella.graph.compose.scope import BodyScope, ResultNames, ResultPlace, TensorName
from lamella.graph.nodes import Argument, Node, Pack, Region, Tensor
from lamella.lang.skriptnd.nodes import Block, Callee, Carried, Invocation, Loop, Scan
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.instance import Check
from lamella.ops.scalars.values import word_of

# --- regions: parts of a body that the run executes under a condition or again and again --------------------


Compose: TypeAlias = Callable[[BodyScope, Callee, ResultPlace], Sequence[object]]
"""How a callee is composed: the function that knows invocations and blocks."""


class ComposedRegion(NamedTuple):
    """A composed region: its nodes, what it gives, and what the run tests in it."""

    nodes: tuple[Node, ...]
    values: Sequence[object]
    span: Span
    checks: tuple[Check, ...]


def compose_part(
    frame: BodyScope, callee: Callee, label: str | None, compose: Compose
) -> ComposedRegion | None:
    """A callee in a region of its own; None where it failed, which is reported so that the others can go on."""
    try:
        with frame.session.region(callee.span) as (nodes, checks):
            values = need(compose(frame, callee, ResultPlace(None, label, callee.span)))
    except Found as problem:
        frame.session.collect(frame.origin, problem)
        return None
    return ComposedRegion(tuple(nodes), values, callee.span, tuple(checks))


def compose_condition(
    frame: BodyScope, callee: Callee, label: str | None, compose: Compose, inputs: tuple[Tensor, ...] = ()
) -> Region | None:
    """The region of a condition, which gives one bool."""

    def decide(inner: BodyScope, test: Callee, place: ResultPlace) -> Sequence[object]:
        return (_truth(inner, compose(inner, test, place), test.span),)

    part = compose_part(frame, callee, label, decide)
    if part is None:
        return None
    outputs = tuple(item for item in part.values if isinstance(item, Tensor))
    return Region(inputs, part.nodes, outputs, part.checks)


def _truth(frame: BodyScope, values: Sequence[object], span: Span) -> Tensor:
    """A condition as a tensor of one bool; one on extents is computed by the run."""
    value = need(values)[0] if len(values) == 1 else None
    known = isinstance(value, Tensor) and value.element == BOOL and is_single(value)
    if known or (not isinstance(value, Tensor) and word_of(value) == "bool"):
        return as_tensor(frame, value, "the condition", span)
    found = describe(value) if len(values) == 1 else f"{len(values)} tensors"
    raise Found(rules.CONDITION.at(span, found=found))


# --- what every loop starts from: the packs it scans and the values it carries ------------------------------


Scanned: TypeAlias = tuple[object, ...] | Pack


class ScannedPacks(NamedTuple):
    """The packs that a loop scans, and how long they are; None where it scans nothing."""

    packs: tuple[Scanned, ...]
    length: Extent | None


def scan(frame: BodyScope, loop: Loop) -> ScannedPacks:
    """The packs of a loop's `for`, all of one length."""
    packs = tuple(_scanned(frame, item) for item in loop.scans)
    lengths = list(dict.fromkeys(item.size if isinstance(item, Pack) else len(item) for item in packs))
    if len(lengths) > 1:
        words = " and ".join(str(item) for item in lengths)
        raise Found(rules.SCANS_DIFFER.at(loop.span, lengths=words))
    return ScannedPacks(packs, lengths[0] if lengths else None)


def _scanned(frame: BodyScope, item: Scan) -> Scanned:
    value = frame.value(item.value)
    if isinstance(value, tuple | Pack):
        return value
    raise Found(
        rules.WRONG_VALUE.at(
            item.span, what=f"what '{item.name}' scans", found=describe(value), wanted="a pack"
        )
    )


def start_value(frame: BodyScope, item: Carried) -> object:
    """What a carried name means at the start; with a type, a scalar fills a tensor of that type."""
    value = frame.value(item.value)
    return value if item.type is None else give_type(frame, value, item.type, item.name)


def label_of(loop: Loop, label: str | None) -> str | None:
    """The automatic label of a loop is its body's, unless its condition is a call as well."""
    tests = [item for item in (loop.before, loop.after) if isinstance(item, Invocation | Block)]
    return None if tests and isinstance(loop.body, Invocation | Block) else label


# --- loops that the run executes: `for`, folds, `while`, counts, and what they pack up step by step ---------


class LoopStart(NamedTuple):
    """What a loop begins with, and how often it can run at most (None: nothing says); `exact`: it runs that often."""

    carried: tuple[Tensor, ...]
    scans: tuple[tuple[Tensor, ...] | Pack, ...]
    times: Tensor | Extent | None
    most: Extent | None
    exact: bool


def compose_loop(frame: BodyScope, loop: Loop, place: ResultPlace, compose: Compose) -> Sequence[object]:
    """A loop of the graph: its body is a region, and its condition another."""
    start = _start(frame, loop)
    if start.scans and start.most == 0:
        return (*start.carried, *((),) * (len(place.wanted or ()) - len(start.carried)))
    label, mark = label_of(loop, place.label), frame.session.mark()
    inner, inputs = _bind(frame, loop, start)
    part = compose_part(inner, loop.body, label, compose)
    condition, fine = _condition(frame, loop, start, label, compose)
    if part is None or not fine:
        raise Found()
    results = _results(inner, loop, start, part)
    origin = Origin("do", place.span, frame.origin)
    names = place.names(len(results))
    outputs: list[Argument] = [
        _carried_output(frame, item.name, wanted, tensor, origin)
        for item, wanted, tensor in zip(loop.carried, names, start.carried, strict=False)
    ]
    hidden = frame.session.since(mark)
    outputs += [
        _scan_output(frame, ScanResult(wanted, tensor, hidden, origin), start, loop)
        for wanted, tensor in list(zip(names, results, strict=True))[len(start.carried) :]
    ]
    frame.session.nodes.append(
        graph.Loop(
            start.carried,
            start.scans,
            Region(inputs, part.nodes, results, part.checks),
            tuple(outputs),
            count=start.times,
            condition=condition,
            pretest=loop.before is not None,
            index=_index(loop) is not None,
            origin=origin,
        )
    )
    return outputs


# --- what a loop begins with --------------------------------------------------------------------------------


def _start(frame: BodyScope, loop: Loop) -> LoopStart:
    steps = scan(frame, loop)
    count = _count(frame, loop)
    ends = [item for item in (steps.length, count) if isinstance(item, int | Dim)]
    tested = loop.before is not None or loop.after is not None
    if not ends and count is None and not tested:
        raise Found(rules.LOOP_WITHOUT_END.at(loop.span))
    if isinstance(count, int) and isinstance(steps.length, int) and count > steps.length:
        wanted = f"at most {steps.length}, the number of scanned items"
        raise Found(rules.LOOP_COUNT.at(loop.span, found=count, wanted=wanted))
    most = None if not ends else dim.smaller(ends[0], ends[-1])
    carried = tuple(
        as_tensor(frame, start_value(frame, item), f"'{item.name}'", item.span) for item in loop.carried
    )
    scans = tuple(
        pack if isinstance(pack, Pack) else _items(frame, item, pack)
        for item, pack in zip(loop.scans, steps.packs, strict=True)
    )
    return LoopStart(carried, scans, count, most, not tested and not isinstance(count, Tensor))


def _items(frame: BodyScope, item: Scan, pack: Sequence[object]) -> tuple[Tensor, ...]:
    """The tensors that are scanned one after the other, all of one type and rank."""
    found = tuple(as_tensor(frame, value, f"'{item.name}'", item.span) for value in pack)
    if len({(tensor.element, len(tensor.shape)) for tensor in found}) > 1:
        words = " and ".join(dict.fromkeys(describe(tensor) for tensor in found))
        what, wanted = f"what '{item.name}' scans", "one type and rank"
        raise Found(rules.WRONG_VALUE.at(item.span, what=what, found=words, wanted=wanted))
    return found


def _count(frame: BodyScope, loop: Loop) -> Tensor | Extent | None:
    """The loop's count: a number, a tensor of one integer, or nothing."""
    expr = loop.iteration.count if loop.iteration is not None else None
    value = None if expr is None else frame.value(expr)
    if value is None or expr is None:
        return None
    if isinstance(value, Tensor) and value.element.is_integer and is_single(value):
        return value
    if isinstance(value, Dim) or (type(value) is int and value >= 0):
        return value
    wanted = "a number of steps or a tensor of one int"
    raise Found(rules.LOOP_COUNT.at(expr.span, found=describe(value), wanted=wanted))


def _index(loop: Loop) -> str | None:
    return loop.iteration.index if loop.iteration is not None else None


def _bind(frame: BodyScope, loop: Loop, start: LoopStart) -> tuple[BodyScope, tuple[Tensor, ...]]:
    """A frame in which the names of the loop are tensors of its region."""
    session = frame.session
    inner = frame.inside(frame.scope, {})
    inputs: list[Tensor] = []

    def add(name: str, like: Sequence[Tensor | Pack]) -> None:
        found = session.names.fresh(frame.scope.name(name))
        shape = session.settle(found, [item.shape for item in like])
        inputs.append(Tensor(found, like[0].element, shape))
        inner.env[name] = inputs[-1]

    for carried, tensor in zip(loop.carried, start.carried, strict=True):
        add(carried.name, [tensor])
    for item, pack in zip(loop.scans, start.scans, strict=True):
        add(item.name, [pack] if isinstance(pack, Pack) else pack)
    index = _index(loop)
    if index is not None:
        add(index, [Tensor("", I64, ())])
    return inner, tuple(inputs)


def _condition(
    frame: BodyScope, loop: Loop, start: LoopStart, label: str | None, compose: Compose
) -> tuple[Region | None, bool]:
    """The region of the condition, and whether all went well."""
    test = loop.before if loop.before is not None else loop.after
    if test is None:
        return None, True
    inner, inputs = _bind(frame, loop, start)
    region = compose_condition(inner, test, label, compose, inputs)
    return region, region is not None


# --- what a loop gives --------------------------------------------------------------------------------------


def _results(frame: BodyScope, loop: Loop, start: LoopStart, part: ComposedRegion) -> tuple[Tensor, ...]:
    """The results of the body: the carried values, which keep their types, then those that are packed up."""
    count = len(start.carried)
    if len(part.values) < count:
        found = f"only {len(part.values)} results"
        name = loop.carried[len(part.values)].name
        raise Found(rules.CARRIED.at(part.span, name=name, before="a tensor", after=found))
    made: list[Tensor] = []
    for number, value in enumerate(part.values):
        like = start.carried[number] if number < count else None
        if isinstance(value, tuple | Pack):
            reason = f"its body gives {describe(value)}, and each step gives one tensor"
            raise Found(rules.LOOP_RESULT.at(part.span, name=f"result {number + 1}", reason=reason))
        made.append(as_tensor(frame, value, f"result {number + 1} of the loop", part.span, like))
        if like is not None and (like.element, like.shape) != (made[-1].element, made[-1].shape):
            before, after = describe(like), describe(made[-1])
            raise Found(
                rules.CARRIED.at(part.span, name=loop.carried[number].name, before=before, after=after)
            )
    return tuple(made)


def _carried_output(frame: BodyScope, name: str, wanted: ResultNames, like: Tensor, origin: Origin) -> Tensor:
    named = wanted.single() or TensorName(frame.scope.name(name))
    return frame.session.tensor(named, like.element, like.shape, origin)


class ScanResult(NamedTuple):
    """One result that is packed up: its name, the body's tensor, the symbols that only the body knows."""

    wanted: ResultNames
    tensor: Tensor
    hidden: frozenset[str]
    origin: Origin


def _scan_output(frame: BodyScope, item: ScanResult, start: LoopStart, loop: Loop) -> Argument:
    """One tensor for each step where the number of steps is known, otherwise a pack that the run fills."""
    session, tensor = frame.session, item.tensor
    base = item.wanted.single() or TensorName(frame.scope.name("steps"))
    if start.most is None:
        reason = "nothing says how many steps there are at most; give a count or scan a pack"
        raise Found(rules.LOOP_RESULT.at(loop.span, name=base.name, reason=reason))
    if start.exact and isinstance(start.most, int):
        session.spend(start.most, loop.span)
        named = item.wanted.items(start.most)
        places = [one or TensorName(f"{base.name}:{number + 1}") for number, one in enumerate(named)]
        return tuple(_step_output(frame, one, item) for one in places)
    most = dim.bounds(start.most)[1]
    name = session.take(base)
    size = start.most if start.exact else session.symbol(f"{name}.size", most)
    if isinstance(size, int):
        return ()
    shape = session.settle(name, [tensor.shape], item.hidden)
    return Pack(name, tensor.element, shape, size, origin=item.origin)


def _step_output(frame: BodyScope, named: TensorName, item: ScanResult) -> Tensor:
    name = frame.session.take(named)
    shape = frame.session.settle(name, [item.tensor.shape], item.hidden)
    return frame.session.tensor(
        TensorName(name, named.exposed), item.tensor.element, shape, item.origin, taken=True
    )
