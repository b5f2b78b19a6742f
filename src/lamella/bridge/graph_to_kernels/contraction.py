"""One kernel for one contraction: work-items over the places it writes, loops inside them over the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from lamella.bridge.graph_to_kernels.affine import find_range
from lamella.bridge.graph_to_kernels.functions import I64, apply, extreme
from lamella.bridge.graph_to_kernels.steps import Steps, Unsupported, plan_steps, terms
from lamella.bridge.graph_to_kernels.terms import Held, Writing, is_picked
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import If, Scalar, Value
from lamella.lang.tensor.nodes.types import BOOL
from lamella.ops.formula import Apply, Contraction, Element, Guard
from lamella.ops.formula import Scalar as Term

Test: TypeAlias = tuple[Guard | Term, int]
"""A tested index with the size of its dimension, or the condition of a formula."""
ASSIGNMENTS = ("=", ":=")
JOINS = {"+=": "+", "*=": "*", "&=": "&&", "|=": "||", "<=": "<<", ">=": ">>"}


def write_contraction(
    builder: Builder,
    contraction: Contraction,
    tensors: Mapping[tuple[str, int | None], Held],
    real: Scalar,
    fault: Value,
    started: bool,
) -> tuple[int, bool]:
    """Write the body of a kernel; gives the number of its work-groups and whether it may find steps without value.

    `started` says that the target holds values to go on from.
    """
    if any(is_picked(target) for target in contraction.targets):
        raise Unsupported("the run picks the tensor that it writes")
    shapes = {target.tensor: _shape(tensors, target) for target in contraction.targets}
    steps = plan_steps(contraction, shapes)
    written = frozenset(target.tensor for target in contraction.targets)
    writing = Writing(real, tensors, steps.extents, [builder], written=written, fault=fault)
    if not started and contraction.sign not in ASSIGNMENTS and not steps.covers:
        raise Unsupported("its target must be filled first")
    with _open_items(writing, steps):
        _write_steps(writing, contraction, steps, started)
    return _count(steps.groups, steps), writing.faults


def _shape(tensors: Mapping[tuple[str, int | None], Held], target: Element) -> tuple[int, ...]:
    found = next((held for (name, _), held in tensors.items() if name == target.tensor), None)
    if found is None:
        raise Unsupported(f"'{target.tensor}' is no tensor here")
    return found.shape


def _count(names: Sequence[str], steps: Steps) -> int:
    found = 1
    for name in names:
        found *= steps.extents[name]
    return found


@contextmanager
def _open_items(writing: Writing, steps: Steps) -> Iterator[None]:
    """The loops over work-groups and work-items; lanes run along the last dimension."""
    _open_groups(writing, steps)
    builder = writing.here
    names = list(reversed(steps.items))
    ends = [builder.constant(steps.extents[name]) for name in names] or [builder.constant(1)]
    with builder.foreach(ends) as (inner, variables):
        writing.levels.append(inner)
        for name, variable in zip(names, variables, strict=False):
            writing.open_index(name, variable)
        yield
    writing.levels.pop()


def _open_groups(writing: Writing, steps: Steps) -> None:
    builder = writing.here
    rest = builder.builtin("group_id", Scalar("index")) if steps.groups else None
    for place, name in enumerate(reversed(steps.groups)):
        if rest is None:
            return
        extent = builder.constant(steps.extents[name])
        last = place == len(steps.groups) - 1
        writing.open_index(name, rest if last else builder.arith("rem", rest, extent))
        rest = rest if last else builder.arith("div", rest, extent)


# --- the steps of a work-item -------------------------------------------------------------------------------


def _write_steps(writing: Writing, contraction: Contraction, steps: Steps, started: bool) -> None:
    if not steps.held:
        with _open_loops(writing, steps.inner, ()) as _:
            _step_in_place(writing, contraction)
        return
    target = contraction.targets[0]
    if writing.is_risky(target) or (contraction.sign in ASSIGNMENTS and not steps.inner):
        with _open_loops(writing, steps.inner, ()):
            _step_in_place(writing, contraction)
        return
    if started or contraction.sign in ASSIGNMENTS:
        first = writing.load(target)
    else:
        first = neutral_value(writing, contraction.sign, target)
    kind = writing.kind(target)
    with _open_loops(writing, steps.inner, ((first, kind),)) as found:
        found.append(_joined(writing, contraction, found[0], _tests(writing, contraction)))
    writing.store(found[-1], target)


@contextmanager
def _open_loops(
    writing: Writing, names: Sequence[str], carried: Sequence[tuple[Value, Scalar]]
) -> Iterator[list[Value]]:
    """Loops one inside the other; a carried value comes in first, and the last of the list leaves them."""
    if not names:
        found = [value for value, _ in carried]
        yield found
        return
    builder = writing.here
    zero, end = builder.constant(0), builder.constant(writing.extents[names[0]])
    with builder.loop(zero, end, carried=carried) as loop:
        writing.levels.append(loop.body)
        writing.open_index(names[0], loop.variable)
        inner = [(value, kind) for value, (_, kind) in zip(loop.carried, carried, strict=True)]
        with _open_loops(writing, names[1:], inner) as found:
            yield found
        if carried:
            loop.body.give(found[-1])
        writing.levels.pop()
    found[-1:] = loop.results or found[-1:]


def _step_in_place(writing: Writing, contraction: Contraction) -> None:
    """Assign or join to memory in each step."""

    def step() -> None:
        values = [_saturated(writing, item, target) for item, target in _pairs(contraction)]
        for value, target in zip(values, contraction.targets, strict=True):
            if contraction.sign not in ASSIGNMENTS:
                value = _join(writing, contraction.sign, writing.load(target), value, target)
            writing.store(value, target)

    _run_active(writing, _tests(writing, contraction), step)


def _run_active(writing: Writing, tests: Sequence[Test], step: Callable[[], None]) -> None:
    """Run a step inside a branch for its tests."""
    if not tests:
        step()
        return
    first, rest = _split(writing, tests)
    condition, outer = _together(writing, first), writing.here
    with writing.region() as inner:
        _run_active(writing, rest, step)
    outer.put(If(condition, inner.region()))


def _pairs(contraction: Contraction) -> Iterator[tuple[Term, Element]]:
    return zip(contraction.values, contraction.targets, strict=True)


def _joined(writing: Writing, contraction: Contraction, held: Value, tests: Sequence[Test]) -> Value:
    """The held value after one step, which changes nothing where it is skipped."""
    target = contraction.targets[0]
    if not tests:
        return _next(writing, contraction, held, target)
    first, rest = _split(writing, tests)
    condition, outer = _together(writing, first), writing.here
    with writing.region() as inner:
        inner.give(_joined(writing, contraction, held, rest))
    otherwise = outer.inner()
    otherwise.give(held)
    result = outer.names.new()
    kinds = (writing.kind(target),)
    outer.put(If(condition, inner.region(), otherwise.region(), kinds), (result,))
    return result


def _next(writing: Writing, contraction: Contraction, held: Value, target: Element) -> Value:
    value = _saturated(writing, contraction.values[0], target)
    if contraction.sign in ASSIGNMENTS:
        return value
    return _join(writing, contraction.sign, held, value, target)


def _join(writing: Writing, sign: str, held: Value, value: Value, target: Element) -> Value:
    kind, function = writing.kind(target), JOINS[sign]
    if function in ("<<", ">>") and kind != BOOL:
        return extreme(writing.here, "min" if function == "<<" else "max", kind, held, value)
    if kind == BOOL and function in ("<<", ">>"):
        function = "&&" if function == "<<" else "||"
    return apply(writing.here, function, kind, [held, value])


def _saturated(writing: Writing, term: Term, target: Element) -> Value:
    """A value to store: a real cast to a narrow integer goes to the nearest one."""
    value = writing.value(term)
    element = writing.held(target).element
    if not element.is_integer or element.bits == 64 or not isinstance(term, Apply) or term.function != "cast":
        return value
    if writing.kind(term.operands[0]) in (I64, BOOL):
        return value
    here = writing.here
    most = here.arith("min", value, here.constant(element.maximum, I64), type_=I64)
    return here.arith("max", most, here.constant(element.minimum, I64), type_=I64)


def neutral_value(writing: Writing, sign: str, target: Element) -> Value:
    """What an accumulation starts from."""
    kind, element, here = writing.kind(target), writing.held(target).element, writing.here
    if kind == BOOL:
        return here.constant(sign in ("*=", "&=", "<="), BOOL)
    if kind == I64:
        bounds = {"<=": min(element.maximum, (1 << 63) - 1), ">=": max(element.minimum, 1 - (1 << 63))}
        found = bounds.get(sign, int(sign in ("*=", "&=")))
        if sign == ">=" and element.bits == 64:
            one = here.constant(1, I64)
            return here.arith("sub", here.constant(found, I64), one, type_=I64)
        return here.constant(found, I64)
    if sign not in ("<=", ">="):
        return here.constant(float(sign == "*="), kind)
    infinity = here.arith("div", here.constant(1.0, kind), here.constant(0.0, kind), type_=kind)
    return infinity if sign == "<=" else here.arith("neg", infinity, type_=kind)


# --- steps that are skipped ---------------------------------------------------------------------------------


def _tests(writing: Writing, contraction: Contraction) -> list[Test]:
    """What must hold for a step to be taken: tested indices with the sizes they are tested against, the condition."""
    found: list[Test] = []
    for term in terms(contraction):
        if isinstance(term, Element):
            found += _tests_of(writing, term)
    # A step that one index skips is skipped even if another has no value: what always has one is tested first.
    found.sort(key=lambda test: writing.is_risky(_tested(test[0])))
    return found if contraction.condition is None else [*found, (contraction.condition, 0)]


def _tests_of(writing: Writing, element: Element) -> Iterator[Test]:
    for index, size in zip(element.indices, writing.held(element).shape, strict=True):
        skips = isinstance(index, Guard) and None in (index.below, index.above)
        if skips and isinstance(index, Guard) and not writing.is_within(index.index, size):
            yield index, size


def _split(writing: Writing, tests: Sequence[Test]) -> tuple[Sequence[Test], Sequence[Test]]:
    """The tests that can be made at once, because none of them needs another to have held; and the others."""
    count = 1
    while count < len(tests) and not writing.is_risky(_tested(tests[count][0])):
        count += 1
    return tests[:count], tests[count:]


def _tested(test: Guard | Term) -> Term:
    return test.index if isinstance(test, Guard) else test


def _together(writing: Writing, tests: Sequence[Test]) -> Value:
    found: Value | None = None
    for test, size in tests:
        for value in _conditions(writing, test, size):
            found = value if found is None else writing.here.arith("and", found, value, type_=BOOL)
    return writing.here.constant(True, BOOL) if found is None else found


def _conditions(writing: Writing, test: Guard | Term, size: int) -> Iterator[Value]:
    if not isinstance(test, Guard):
        yield writing.value(test)
        return
    index, known = writing.value(test.index), find_range(test.index, writing.extents)
    if test.below is None and (known is None or known[0] < 0):
        yield writing.here.compare("ge", index, writing.here.constant(0, I64))
    if test.above is None and (known is None or known[1] >= size):
        yield writing.here.compare("lt", index, writing.here.constant(size, I64))
