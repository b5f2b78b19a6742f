"""Bodies: the components of operators and blocks, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.dim import Condition, Dim, Extent
from lamella.base.errors import Found
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph import nodes as graph
from lamella.graph.compose.calls import BoundCall, bind_call, describe, describe_type, need
from lamella.graph.compose.declare import declare, expect_quantized, open_body, update
from lamella.graph.compose.flow import (
    Compose,
    ComposedRegion,
    ScannedPacks,
    compose_condition,
    compose_loop,
    compose_part,
    scan,
    start_value,
)
from lamella.graph.compose.operations import as_tensor, check_type, fits, keep_whole, rename
from lamella.graph.compose.scope import (
    UNNAMED,
    BodyScope,
    ResultNames,
    ResultPlace,
    SingleName,
    TensorName,
    names_in,
    pack_of,
    spread,
)
from lamella.graph.nodes import Pack, Region, Shape, Tensor
from lamella.lang.skriptnd.nodes import (
    Block,
    Branch,
    Callee,
    Component,
    Expr,
    Invocation,
    ListPattern,
    Loop,
    Name,
    Omitted,
    Operator,
    Pattern,
    Result,
)
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.instance import Check, Declared
from lamella.ops.scalars.values import Unknown, word_of

# --- branches: decided before the run where the condition is known, by the run otherwise --------------------


def compose_branch(
    frame: BodyScope, branch: Branch, place: ResultPlace, compose: Compose
) -> Sequence[object]:
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


def _known_truth(frame: BodyScope, condition: Callee) -> bool | None:
    """The value of a condition before the run; None where only the run tells."""
    if isinstance(condition, Invocation | Block):
        return None
    value = frame.value(condition)
    if isinstance(value, bool):
        return value
    if isinstance(value, Tensor) or word_of(value) == "bool":
        return None
    raise Found(rules.CONDITION.at(condition.span, found=describe(value)))


def _compose_cases(
    frame: BodyScope, tests: Sequence[Callee], callees: Sequence[Callee], place: ResultPlace, compose: Compose
) -> Sequence[object]:
    """A branch of the graph: every condition and every consequent is a region of its own."""
    calls = [item for item in (*tests, *callees) if isinstance(item, Invocation | Block)]
    label = place.label if len(calls) == 1 else None
    mark = frame.session.mark()
    conditions = [compose_condition(frame, item, label, compose) for item in tests]
    attempts = [compose_part(frame, item, label, compose) for item in callees]
    parts = [item for item in attempts if item is not None]
    if len(parts) < len(attempts) or None in conditions:
        raise Found()
    origin = Origin("if", place.span, frame.origin)
    rows = [row for number in range(_branches_count(parts)) for row in _rows(frame, parts, number, place)]
    hidden = frame.session.since(mark)
    outputs = [_output(frame, row, hidden, origin) for row in rows]
    regions = tuple(
        Region((), part.nodes, tuple(row.tensors[branch] for row in rows), part.checks)
        for branch, part in enumerate(parts)
    )
    tests_made = tuple(item for item in conditions if item is not None)
    frame.session.nodes.append(graph.Branch(tests_made, regions, tuple(outputs), origin=origin))
    return _regroup(parts[0].values, outputs)


class BranchResult(NamedTuple):
    """One tensor of the results: its number, what it is called, and which tensor each branch gives for it."""

    number: int
    named: TensorName
    tensors: tuple[Tensor, ...]
    span: Span


def _branches_count(parts: Sequence[ComposedRegion]) -> int:
    """How many results the branches give, all the same number."""
    fewest = min(len(part.values) for part in parts)
    if any(len(part.values) != fewest for part in parts):
        number = fewest + 1
        raise Found(rules.BRANCHES_DIFFER.at(parts[-1].span, number=number, first="given", second="missing"))
    return fewest


def _rows(
    frame: BodyScope, parts: Sequence[ComposedRegion], number: int, place: ResultPlace
) -> Iterator[BranchResult]:
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


def _row(
    frame: BodyScope, number: int, named: TensorName | None, values: Sequence[object], span: Span
) -> BranchResult:
    like = next((item for item in values if isinstance(item, Tensor)), None)
    tensors = tuple(as_tensor(frame, item, f"result {number + 1}", span, like) for item in values)
    if len({(item.element, len(item.shape)) for item in tensors}) > 1:
        raise _differ(number, tensors, span)
    return BranchResult(number, named or TensorName(frame.scope.name("result")), tensors, span)


def _differ(number: int, values: Sequence[object], span: Span) -> Found:
    words = list(dict.fromkeys(describe(item) for item in values))
    return Found(rules.BRANCHES_DIFFER.at(span, number=number + 1, first=words[0], second=words[-1]))


def _output(frame: BodyScope, row: BranchResult, hidden: frozenset[str], origin: Origin) -> Tensor:
    session = frame.session
    name = session.take(row.named)
    shape = session.settle(name, [item.shape for item in row.tensors], hidden)
    named = TensorName(name, row.named.exposed)
    return session.tensor(named, row.tensors[0].element, shape, origin, taken=True)


def _regroup(values: Sequence[object], outputs: Sequence[Tensor]) -> Sequence[object]:
    """The outputs in packs where the results are."""
    rest = iter(outputs)
    return tuple(
        tuple(next(rest) for _ in item) if isinstance(item, tuple) else next(rest) for item in values
    )


# --- the outputs of a body: what was composed for them, held against what is declared -----------------------


def give_outputs(frame: BodyScope, call: BoundCall) -> tuple[object, ...]:
    """The values of the declared outputs; one that failed is unusable and spoils no other.

    What only the run can compare is left to it.
    """
    values = tuple(_give(frame, call, declared) for declared in call.instance.outputs)
    seen: dict[Extent, Extent] = {}
    for declared, value in zip(call.instance.outputs, values, strict=True):
        for found, wanted in _shapes(declared, value):
            pairs = zip(found, wanted, strict=True)
            for condition, bound in [item for pair in pairs for item in _compare(seen, *pair)]:
                span = _span(call.instance.definition.operator, declared.name)
                details = f"{_finding(call, declared, value, span).message}{bound}"
                frame.session.leave([Check(condition, details, span)])
    return values


def _shapes(declared: Declared, value: object) -> Iterator[tuple[Shape, Shape]]:
    """The shapes of an output, each with the declared one."""
    if declared.shape is None:
        return
    if isinstance(value, Pack) and declared.size is not None:
        yield (value.size, *value.shape), (declared.size, *declared.shape)
    elif isinstance(value, Tensor):
        yield value.shape, declared.shape
    elif isinstance(value, tuple):
        yield from ((item.shape, shape) for item, shape in zip(value, declared.items or (), strict=True))


def _compare(seen: dict[Extent, Extent], found: Extent, wanted: Extent) -> Iterator[tuple[Condition, str]]:
    """What must hold of an extent: it is the declared one, within its bound, and the same wherever that stands."""
    if not isinstance(found, Dim) or found == wanted == seen.setdefault(wanted, found):
        return
    high = dim.bounds(wanted)[1]
    equal = (dim.equal(found, wanted), dim.equal(found, seen.setdefault(wanted, found)))
    yield from ((item, "") for item in equal if not isinstance(item, bool))
    within = dim.less_equal(found, high)
    if not isinstance(within, bool):
        yield within, f", with an extent of at most {high}"


def _give(frame: BodyScope, call: BoundCall, declared: Declared) -> object:
    value = frame.env.find(declared.name)
    if isinstance(value, Unknown):
        return value
    try:
        return _checked(frame, call, declared, value)
    except Found as problem:
        frame.session.collect(frame.origin, problem)
        return Unknown(Found())


def _checked(frame: BodyScope, call: BoundCall, declared: Declared, value: object) -> object:
    """A composed output; a scalar is a constant of rank 0."""
    operator = call.instance.definition.operator
    span = _span(operator, declared.name)
    if isinstance(value, tuple) and declared.items is not None and len(value) == len(declared.items):
        shapes = declared.items if declared.shape is not None else (None,) * len(value)
        pairs = zip(value, shapes, strict=True)
        return tuple(_tensor(frame, call, declared, item, shape) for item, shape in pairs)
    if isinstance(value, Pack) and declared.size is not None:
        shape = value.shape if declared.shape is None else declared.shape
        if value.element == declared.element and fits(value.shape, shape):
            return value
    elif declared.items is None and declared.size is None and not isinstance(value, tuple | Pack | None):
        return _tensor(frame, call, declared, value, declared.shape)
    raise Found(_finding(call, declared, value, span))


def _tensor(
    frame: BodyScope, call: BoundCall, declared: Declared, value: object, shape: Shape | None
) -> Tensor:
    span = _span(call.instance.definition.operator, declared.name)
    like = Tensor("", declared.element, ())
    found = as_tensor(frame, value, f"output '{declared.name}'", span, like)
    if found.element == declared.element and (shape is None or fits(found.shape, shape)):
        return found
    raise Found(_finding(call, declared, found, span))


def _finding(call: BoundCall, declared: Declared, value: object, span: Span) -> Diagnostic:
    name = call.instance.definition.name
    found = "never" if value is None else describe(value)
    hint = rules.OPEN_PACK if isinstance(value, Pack) else None
    origin = value.origin if isinstance(value, Tensor | Pack) else None
    labels = [Label(origin.span, "composed here")] if origin is not None and origin.span is not None else []
    words = _words(declared)
    return rules.OUTPUT_SHAPE.at(
        span, hint=hint, labels=labels, name=declared.name, operator=name, declared=words, found=found
    )


def _words(declared: Declared) -> str:
    """The declared type of an output."""
    word = describe_type(declared.element, [None] if declared.shape is None else declared.shape)
    if declared.items is not None:
        return f"a pack of {len(declared.items)} tensors" + (f" {word}" if declared.items else "")
    return word if declared.size is None else f"{word}..({declared.size})"


def _span(operator: Operator, name: str) -> Span:
    found = (item.span for item in operator.parameters("output") if item.name == name)
    return next(found, operator.span)


# --- unrolled loops: the body again and again, in place -----------------------------------------------------


def unroll(frame: BodyScope, loop: Loop, place: ResultPlace, compose: Compose) -> Sequence[object]:
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
            found = need(compose(inner, loop.body, ResultPlace(names, place.label, loop.body.span)))
            carried = _carried(loop, found)
            packed.append(found[len(carried) :])
    if not packed:
        return (*carried, *((),) * (len(place.wanted or ()) - len(carried)))
    return (*carried, *zip(*packed, strict=False))


def _count(frame: BodyScope, loop: Loop, steps: ScannedPacks) -> int:
    """How many steps there are."""
    test = loop.before or loop.after
    if test is not None:
        raise Found(rules.UNKNOWN_UNROLL.at(test.span, found="up to a condition"))
    expr = loop.iteration.count if loop.iteration is not None else None
    value = None if expr is None else frame.value(expr)
    length = steps.length if value is None else value
    if length is None:
        raise Found(rules.LOOP_WITHOUT_END.at(loop.span))
    if type(length) is not int or isinstance(steps.length, int | None) is False:
        raise Found(rules.UNKNOWN_UNROLL.at(loop.span, found=describe(length)))
    most = steps.length
    if length < 0 or (isinstance(most, int) and length > most):
        wanted = "at least 0" if length < 0 else f"at most {most}, the number of scanned items"
        raise Found(rules.LOOP_COUNT.at(loop.span, found=length, wanted=wanted))
    return length


def _bind(
    frame: BodyScope, loop: Loop, carried: Sequence[object], steps: ScannedPacks, number: int
) -> BodyScope:
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
        raise Found(rules.CARRIED.at(loop.body.span, name=name, before="a tensor", after=after))
    return found[: len(loop.carried)]


def _step_name(frame: BodyScope, loop: Loop, place: ResultPlace, last: bool, number: int) -> ResultNames:
    """The last value that is carried is the loop's result; those before are named after their step."""
    if last:
        return place.names(number + 1)[number]
    return SingleName(TensorName(frame.scope.name(loop.carried[number].name)))


def _wanted(loop: Loop, place: ResultPlace, count: int) -> list[list[ResultNames]]:
    """For each packed result the names of its steps."""
    packs = (place.wanted or ())[len(loop.carried) :]
    return [[UNNAMED if item is None else SingleName(item) for item in pack.items(count)] for pack in packs]


# --- what a component gives to the names on its left side ---------------------------------------------------


def assign(frame: BodyScope, component: Component, values: Sequence[object]) -> None:
    """Give the names of a component their values."""
    if len(values) != len(component.results):
        callee = component.value
        what = callee.operator if isinstance(callee, Invocation) else "the right side"
        wanted, found = len(component.results), len(values)
        raise Found(rules.RESULT_COUNT.at(component.span, wanted=wanted, what=what, found=found))
    for pattern, value in zip(component.results, values, strict=True):
        _assign_pattern(frame, pattern, value)


def _assign_pattern(frame: BodyScope, pattern: Pattern, value: object) -> None:
    if isinstance(value, Unknown):
        fail(frame, [pattern])
    elif isinstance(pattern, Result):
        _assign_name(frame, pattern, value)
    elif isinstance(pattern, ListPattern):
        if not isinstance(value, tuple):
            raise Found(
                rules.WRONG_VALUE.at(
                    pattern.span, what="the right side", found=describe(value), wanted="a pack"
                )
            )
        for item, part in spread(pattern, value, frame.known):
            _assign_name(frame, item, part)


def _assign_name(frame: BodyScope, item: Result, value: object) -> None:
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
            raise Found(finding)
    if item.type is not None:
        check_type(frame, value, item.type, item.name)
    frame.env[item.name] = _named(frame, item, value)


def _named(frame: BodyScope, item: Result, value: object) -> object:
    """The value; another name for a tensor becomes a tensor of its own where `@quantize` speaks of it."""
    wanted = frame.name(item.name).single()
    if not isinstance(value, Tensor) or wanted is None or wanted.name == value.name:
        return value
    if wanted.name not in frame.session.quantizers or not wanted.exposed:
        return value
    return rename(frame, value, wanted, item.span)


def fail(frame: BodyScope, patterns: Sequence[Pattern]) -> None:
    """Make names unusable; whoever uses them fails without a word, for the reason was reported."""
    for pattern in patterns:
        for item in names_in(pattern):
            frame.env[item.name] = Unknown(Found())


def compose_body(frame: BodyScope, call: BoundCall) -> Sequence[object]:
    """The components of a call's operator, in the place of the call; gives the values of its outputs."""
    with frame.session.deeper(call.span):
        inner = open_body(frame, call)
        expect_quantized(inner, call.instance.definition)
        return compose_inside(inner, call)


def compose_inside(frame: BodyScope, call: BoundCall) -> Sequence[object]:
    """The components of an operator, in a frame in which its inputs have their meaning."""
    operator = call.instance.definition.operator
    frame.session.leave(call.instance.checks)
    declare(frame, call)
    components = [item for item in operator.items("compose") if isinstance(item, Component)]
    compose_components(frame, components, labelled=not passes_scope(call, components))
    update(frame, call, compose_components)
    return give_outputs(frame, call)


def passes_scope(call: BoundCall, components: Sequence[Component]) -> bool:
    """Whether an operator is nothing but one component, which then stands in the scope of the operator itself."""
    return len(components) == 1 and not call.instance.variables and not call.instance.constants


def compose_components(frame: BodyScope, components: Sequence[Component], labelled: bool = True) -> None:
    """Compose components in order; one that fails leaves its results unusable and the rest goes on."""
    names = frame.session.names
    for component in components:
        for result in (item for pattern in component.results for item in names_in(pattern)):
            if result.name not in frame.outputs and names.promise(frame.scope.name(result.name)):
                frame.promised.add(result.name)
    for component in components:
        frame.session.spend(1, component.span)
        try:
            _compose_component(frame, component, labelled)
        except Found as problem:
            frame.session.collect(frame.origin, problem)
            fail(frame, component.results)


def _compose_component(frame: BodyScope, component: Component, labelled: bool) -> None:
    wanted = [frame.wanted(pattern) for pattern in component.results]
    place = ResultPlace(wanted, _automatic_label(component) if labelled else None, component.span)
    value = component.value
    if isinstance(value, Branch):
        found = compose_branch(frame, value, place, compose_callee)
    elif isinstance(value, Loop):
        found = (unroll if value.unroll else compose_loop)(frame, value, place, compose_callee)
    else:
        found = compose_callee(frame, value, place)
    assign(frame, component, found)


def _automatic_label(component: Component) -> str | None:
    """The name of the only result labels a call that has no label."""
    names = [item.name for pattern in component.results for item in names_in(pattern)]
    return names[0] if len(names) == 1 else None


def compose_callee(frame: BodyScope, callee: Callee, place: ResultPlace) -> Sequence[object]:
    """The results of an invocation, a block or an expression."""
    if isinstance(callee, Invocation):
        call = bind_call(frame, callee, place)
        whole = frame.session.keep(call.instance.definition)
        return keep_whole(frame, call) if whole else compose_body(frame, call)
    if isinstance(callee, Block):
        return _compose_block(frame, callee, place)
    return (frame.value(callee),)


def _compose_block(frame: BodyScope, block: Block, place: ResultPlace) -> Sequence[object]:
    with frame.session.deeper(block.span):
        wanted = place.names(len(block.results))
        inner = frame.inside(frame.behind(block.label or place.label), dict(_yielded(block, wanted)))
        compose_components(inner, block.components)
        return [_settle(inner, item) for item in block.results]


def _settle(frame: BodyScope, result: Expr) -> object:
    """What a block yields; what cannot be had spoils no other result."""
    try:
        return frame.value(result)
    except Found as problem:
        frame.session.collect(frame.origin, problem)
        return Unknown(Found())


def _yielded(block: Block, wanted: Sequence[ResultNames]) -> Iterator[tuple[str, ResultNames]]:
    """What a block yields under the name it has inside goes by the name it gets outside."""
    own = {item.name for part in block.components for pattern in part.results for item in names_in(pattern)}
    seen: set[str] = set()
    for result, name in zip(block.results, wanted, strict=True):
        if name is UNNAMED or not isinstance(result, Name):
            continue
        if result.id in own and result.id not in seen:
            seen.add(result.id)
            yield result.id, name
