"""Loop nests: one kernel for one contraction, work-items over the places it writes, sequential loops inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TypeAlias

from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.bridge.graph_to_kernels.affine import find_range
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.functions import I64, apply, extreme
from lamella.bridge.graph_to_kernels.peel_borders import Window, eliminate_guards, find_windows, peel_borders
from lamella.bridge.graph_to_kernels.samples import block_of, fuse_places, write_out
from lamella.bridge.graph_to_kernels.step_plan import (
    ASSIGNMENTS,
    AT_ONCE,
    ATOMIC,
    FLAT,
    GROUP_STEPS,
    MANY_AT_ONCE,
    SHORT,
    THREAD_STEPS,
    UNKNOWN,
    UNROLLED,
    Held,
    LoopSplit,
    count_steps,
    depends_on,
    elements,
    fewest_steps,
    find_sending,
    known_extent,
    plan_steps,
    terms,
    tested_term,
    writes_latest,
)
from lamella.bridge.graph_to_kernels.terms import TensorView, TermWriter, is_picked, stored_type
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import If, Scalar, Value
from lamella.lang.tensor.nodes.types import BOOL, Dictionary
from lamella.ops.formula import Apply, Contraction, Element, Guard
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import operands

__all__ = [
    "ASSIGNMENTS",
    "Held",
    "elements",
    "fewest_steps",
    "join",
    "neutral_value",
    "plan_steps",
    "write_contraction",
]
Test: TypeAlias = tuple[Guard | Term, int]
"""A tested index with the size of its dimension, or the condition of a formula."""
BRANCHES = ("?:", "&&", "||", "=>")
"""Functions whose operands behind the first may not be computed."""
JOINS = {"+=": "+", "*=": "*", "&=": "&&", "|=": "||", "<=": "<<", ">=": ">>"}


def write_contraction(
    builder: Builder,
    contraction: Contraction,
    tensors: Mapping[tuple[str, int | None], TensorView],
    real: Scalar,
    fault: Value,
    begun: Held,
    least: int = GROUP_STEPS,
) -> tuple[int, bool]:
    """Write the body of a kernel; gives the number of its work-groups and whether steps may have no value.

    `begun` says what the target holds before, `least` how many steps a work-group should have.
    """
    if any(is_picked(target) for target in contraction.targets):
        raise Unsupported("the run picks the tensor that it writes")
    shapes = {target.tensor: _shape(tensors, target) for target in contraction.targets}
    steps = plan_steps(contraction, shapes, _strides(tensors, contraction.targets[0]), least)
    held = tensors.get((contraction.targets[0].tensor, None))
    atomic = held is not None and stored_type(held.element) in ATOMIC and least == THREAD_STEPS
    if atomic and begun.floor is not None and writes_latest(contraction, begun.floor, steps):
        (loop,) = steps.inner
        steps = replace(steps, items=(loop,), inner=(), rows=False, strip=0, flat=FLAT, latest=True)
    written = frozenset(target.tensor for target in contraction.targets)
    if not begun.started and contraction.sign not in ASSIGNMENTS and not steps.covers:
        raise Unsupported("its target must be filled first")
    sizes = {key: held.shape for key, held in tensors.items()}
    if steps.shared is not None:
        contraction, steps = write_out(contraction, steps.inner, sizes), replace(steps, inner=())
        contraction, tensors = fuse_places(contraction, tensors, builder)
        sizes = {key: held.shape for key, held in tensors.items()}
    parts = peel_borders(contraction, steps.items[-1], sizes) if steps.items else [contraction]
    steps = steps if len(parts) == 1 else replace(steps, strip=0, parts=1, flat=0)
    opened = TermWriter(real, tensors, steps.extents, [builder], written=written, fault=fault)
    opened.latest = steps.latest
    if not steps.flat:
        _open_groups(opened, steps)
    outer = () if steps.flat else steps.items[:-1]
    with _open_outer(opened, outer), _open_block(opened, steps.shared):
        faults = [_write_part(opened, eliminate_guards(part, sizes), steps, begun.started) for part in parts]
    strips = steps.parts * steps.extents[steps.items[-1]] // steps.strip if steps.strip else 0
    count = strips or (-(-steps.places // steps.flat) if steps.flat else count_steps(steps.groups, steps))
    return count // steps.together, any(faults)


def _write_part(opened: TermWriter, part: Contraction, steps: LoopSplit, started: bool) -> bool:
    """Write some steps of the lanes inside loops that are open; gives whether one may have no value."""
    extents = {loop.index: known_extent(loop.extent) for loop in part.loops}
    writing = opened.inside(extents)
    lane = steps.items[-1] if steps.items else None
    shapes = {key: held.shape for key, held in writing.tensors.items()}
    windows = find_windows(part, steps.inner, lane, shapes) if steps.held else {}
    found = replace(steps, extents=extents, windows=windows)
    if steps.rows:
        _write_rows(writing, part, found)
        return writing.faults
    with _open_lanes(writing, found), _open_shared(writing, steps.shared):
        for number in range(steps.together):
            row = writing if number == 0 else _row_behind(writing, steps.groups[-1], number)
            _write_steps(row, part, found, started)
            writing.faults |= row.faults
    return writing.faults


def _row_behind(writing: TermWriter, name: str, number: int) -> TermWriter:
    """A writer for so many steps of a loop later."""
    found = writing.inside(writing.extents)
    first = writing.indices[name]
    found.open_index(name, found.here.arith("add", first, found.here.constant(number)))
    return found


def _write_rows(writing: TermWriter, part: Contraction, steps: LoopSplit) -> None:
    """Scattered rows: some at a time where they are accumulated, else one by one."""
    if steps.parts > 1:
        _write_own_rows(writing, part, steps)
        return
    *outer, name = steps.inner or (UNKNOWN,)
    count = writing.extents.get(name, 0)
    alike = _row_tests(writing, part, steps.items[-1])
    apart = is_open(count) or len(part.targets) > 1 or part.sign in ASSIGNMENTS or name in steps.windows
    places = [tested_term(index) for index in part.targets[0].indices]
    apart |= any(depends_on(place, name) and depends_on(place, steps.items[-1]) for place in places)
    if apart or count < AT_ONCE or alike is None or _split(writing, alike)[1]:
        with _open_loops(writing, steps, steps.inner, ()):
            _write_row(writing, part, steps)
        return
    with _open_loops(writing, steps, outer, ()):
        here, whole = writing.here, count - count % AT_ONCE
        for begin, end, step in ((0, whole, AT_ONCE), (whole, count, 1)):
            if begin == end:
                continue
            with here.loop(here.constant(begin), here.constant(end), here.constant(step)) as loop:
                rows = [writing.inside(writing.extents) for _ in range(step)]
                for number, row in enumerate(rows):
                    row.levels.append(loop.body)
                    row.open_index(name, loop.body.arith("add", loop.variable, loop.body.constant(number)))
                _write_together(rows, part, steps, alike)
            writing.faults |= any(row.faults for row in rows)


def _write_own_rows(writing: TermWriter, part: Contraction, steps: LoopSplit) -> None:
    """Scattered rows one by one; each work-group takes those of its own places, in their order (deterministic)."""
    index = find_sending(part, steps.items[-1])
    if index is None:
        raise Unsupported("data do not tell where rows go")
    group = writing.here.builtin("group_id", Scalar("index"))
    own = writing.here.cast(writing.here.arith("rem", group, writing.here.constant(steps.parts)), I64)
    with _open_loops(writing, steps, steps.inner, (), MANY_AT_ONCE):
        here = writing.here
        # Of a negative number, which is no place, the low bits are those of one: who looks after that one reports it.
        bits = here.arith("and", writing.value(index), here.constant(steps.parts - 1, I64), type_=I64)
        mine = here.compare("eq", bits, own)
        with writing.region() as inner:
            _write_row(writing, part, steps)
        here.put(If(mine, inner.region()))


def _write_together(
    rows: Sequence[TermWriter], part: Contraction, steps: LoopSplit, alike: Sequence[Test]
) -> None:
    """Scattered rows with one target are accumulated and stored once, in their order; others one by one."""
    first, here, target = rows[0], rows[0].here, part.targets[0]
    if len(rows) == 1:
        _write_row(first, part, steps)
        return
    condition = here.constant(True, BOOL)
    for row in rows:
        condition = here.arith("and", condition, _together(row, alike), type_=BOOL)
        for place in target.indices if row is not first else ():
            index = tested_term(place)
            if not depends_on(index, steps.items[-1]):
                same = here.compare("eq", first.value(index), row.value(index))
                condition = here.arith("and", condition, same, type_=BOOL)
    with ExitStack() as inside:
        branch = inside.enter_context(first.region())
        for row in rows[1:]:
            inside.enter_context(row.region(branch))
        for row in rows:
            _keep_places(row, part, steps.items[-1])
        with _open_lanes(first, steps):
            for row in rows[1:]:
                row.levels = first.levels
                row.open_index(steps.items[-1], first.indices[steps.items[-1]])
            held = first.load(target)
            for row in rows:
                held = _next(row, part, held, target)
            first.store(held, target)
    otherwise = here.inner()
    for row in rows:
        # What a writer has found out inside the lanes of one branch is not known in the other.
        other = row.inside(row.extents)
        with other.region(otherwise):
            _write_row(other, part, steps)
        row.faults |= other.faults
    here.put(If(condition, branch.region(), otherwise.region()))


def _row_tests(writing: TermWriter, part: Contraction, lane: str) -> Sequence[Test] | None:
    """What must hold for a row to be taken; None where that is another thing for each lane."""
    tests = _tests(writing, part)
    return None if any(depends_on(tested_term(test[0]), lane) for test in tests) else tests


def _write_row(writing: TermWriter, part: Contraction, steps: LoopSplit) -> None:
    """One step of the inner loops along the lanes; what no lane changes is hoisted before them."""
    alike = _row_tests(writing, part, steps.items[-1])

    def row() -> None:
        _keep_places(writing, part, steps.items[-1])
        with _open_lanes(writing, steps):
            _step_in_place(writing, part, _tests(writing, part) if alike is None else [])

    _run_active(writing, alike or [], row)


def _keep_places(writing: TermWriter, part: Contraction, lane: str) -> None:
    """Write the indices that every lane of a row reads at, before the lanes."""
    for element in _surely_read(part):
        for index, size in zip(element.indices, writing.held(element).shape, strict=True):
            if not isinstance(index, Guard) and not depends_on(index, lane):
                writing.keep_place(index, size)


def _surely_read(part: Contraction) -> Iterator[Element]:
    """The elements that every step reads which is taken, whatever branches its values have."""
    waiting: list[object] = list(part.values)
    done: set[int] = set()
    while waiting:
        term = waiting.pop()
        if id(term) in done:
            continue
        done.add(id(term))
        if isinstance(term, Element) and not is_picked(term):
            yield term
        inside = operands(term)
        waiting += inside[:1] if isinstance(term, Apply) and term.function in BRANCHES else inside


def _shape(tensors: Mapping[tuple[str, int | None], TensorView], target: Element) -> tuple[int, ...]:
    found = next((held for (name, _), held in tensors.items() if name == target.tensor), None)
    if found is None:
        raise Unsupported(f"'{target.tensor}' is no tensor here")
    return found.shape


def _strides(tensors: Mapping[tuple[str, int | None], TensorView], target: Element) -> tuple[int, ...]:
    item = target.item if isinstance(target.item, int) else None
    found = tensors.get((target.tensor, item))
    return () if found is None else found.lies.strides


@contextmanager
def _open_lanes(writing: TermWriter, steps: LoopSplit) -> Iterator[None]:
    """The lanes, which run along the last dimension, or along all of them."""
    if steps.flat:
        with _open_flat(writing, steps):
            yield
        return
    builder, lane = writing.here, steps.items[-1:]
    ends = [builder.constant(steps.extents[name]) for name in lane] or [builder.constant(1)]
    begins = list[Value]()
    if steps.strip:
        size = builder.constant(steps.strip)
        group = builder.builtin("group_id", Scalar("index"))
        if steps.parts > 1:
            group = builder.arith("div", group, builder.constant(steps.parts))
        begins = [builder.arith("mul", group, size)]
        ends = [builder.arith("add", begins[0], size)]
    with builder.foreach(ends, begins) as (inner, variables):
        writing.levels.append(inner)
        for name, variable in zip(lane, variables, strict=False):
            writing.open_index(name, variable)
        yield
    writing.levels.pop()


@contextmanager
def _open_flat(writing: TermWriter, steps: LoopSplit) -> Iterator[None]:
    """The places of a work-group: a work-item finds the steps of all loops from the number of its place."""
    builder = writing.here
    group = builder.builtin("group_id", Scalar("index"))
    begin = builder.arith("mul", group, builder.constant(steps.flat))
    end = builder.arith("add", begin, builder.constant(steps.flat))
    if steps.places % steps.flat:
        end = builder.arith("min", end, builder.constant(steps.places))
    with builder.foreach([end], [begin]) as (inner, (place,)):
        writing.levels.append(inner)
        first, *others = (*steps.groups, *steps.items)
        for name in reversed(others):
            size = inner.constant(steps.extents[name])
            writing.open_index(name, inner.arith("rem", place, size))
            place = inner.arith("div", place, size)
        writing.open_index(first, place)
        yield
    writing.levels.pop()


@contextmanager
def _open_outer(writing: TermWriter, names: Sequence[str]) -> Iterator[None]:
    """Loops round the lanes."""
    if not names:
        yield
        return
    builder = writing.here
    with builder.loop(builder.constant(0), builder.constant(writing.extents[names[0]])) as loop:
        writing.levels.append(loop.body)
        writing.open_index(names[0], loop.variable)
        with _open_outer(writing, names[1:]):
            yield
        writing.levels.pop()


@contextmanager
def _open_block(writing: TermWriter, name: str | None) -> Iterator[None]:
    """A loop over the first of the steps that run inside the lanes."""
    if name is None:
        yield
        return
    builder, extent = writing.here, writing.extents[name]
    ends = builder.constant(0), builder.constant(extent), builder.constant(block_of(extent))
    with builder.loop(*ends) as loop:
        writing.levels.append(loop.body)
        writing.indices[name] = loop.variable
        yield
        writing.levels.pop()


@contextmanager
def _open_shared(writing: TermWriter, name: str | None) -> Iterator[None]:
    """The steps of a block inside the lanes."""
    if name is None:
        yield
        return
    builder, first = writing.here, writing.indices[name]
    end = builder.arith("add", first, builder.constant(block_of(writing.extents[name])))
    with builder.loop(first, end) as loop:
        writing.levels.append(loop.body)
        writing.open_index(name, loop.variable)
        yield
        writing.levels.pop()


def _open_groups(writing: TermWriter, steps: LoopSplit) -> None:
    counts, builder = dict(steps.extents), writing.here
    for name in steps.groups[-1:]:
        counts[name] //= steps.together
    numbers = delinearize_group(builder, steps.groups, counts)
    for place, name in enumerate(reversed(steps.groups)):
        number = numbers[name]
        if place == 0 and steps.together > 1:
            number = builder.arith("mul", number, builder.constant(steps.together))
        writing.open_index(name, number)


# --- the steps of a work-item -------------------------------------------------------------------------------


def _run_on(writing: TermWriter, contraction: Contraction, steps: LoopSplit) -> None:
    """The steps of a work-item that holds what the last one wrote."""
    target = contraction.targets[0]
    before = [item for item in elements(contraction) if item.tensor == target.tensor]
    start = writing.inside(writing.extents)
    start.open_index(steps.inner[0], start.here.constant(0))
    first, element, kind = start.load(before[0]), writing.held(target).element, writing.kind(target)
    with _open_loops(writing, steps, steps.inner, ((first, kind),), MANY_AT_ONCE) as found:
        for item in before:
            writing.hold(item, found[0])
        value = writing.saturated(contraction.values[0], element)
        writing.store(value, target)
        found.append(writing.rounded(value, element, kind))


def _write_steps(writing: TermWriter, contraction: Contraction, steps: LoopSplit, started: bool) -> None:
    if steps.running:
        _run_on(writing, contraction, steps)
        return
    if not steps.held:
        with _open_loops(writing, steps, steps.inner, ()) as _:
            _step_in_place(writing, contraction)
        return
    target = contraction.targets[0]
    if writing.is_risky(target) or (contraction.sign in ASSIGNMENTS and not steps.inner):
        with _open_loops(writing, steps, steps.inner, ()):
            _step_in_place(writing, contraction)
        return
    if started or contraction.sign in ASSIGNMENTS:
        first = writing.load(target)
    else:
        first = neutral_value(writing, contraction.sign, target)
    kind = writing.kind(target)
    counted = {id(guard) for item in steps.windows.values() for guard in item.guards}
    tests = [item for item in _tests(writing, contraction) if id(item[0]) not in counted]
    attributes = MANY_AT_ONCE if steps.ahead else None
    with _open_loops(writing, steps, steps.inner, ((first, kind),), attributes) as found:
        found.append(_joined(writing, contraction, found[0], tests))
    writing.store(found[-1], target)


@contextmanager
def _open_loops(
    writing: TermWriter,
    steps: LoopSplit,
    names: Sequence[str],
    carried: Sequence[tuple[Value, Scalar]],
    attributes: Dictionary | None = None,
) -> Iterator[list[Value]]:
    """Loops one inside the other; a carried value comes in first, and the last of the list leaves them."""
    if not names:
        found = [value for value, _ in carried]
        yield found
        return
    builder = writing.here
    window = steps.windows.get(names[0])
    zero, end = builder.constant(0), builder.constant(writing.extents[names[0]])
    ends = (zero, end) if window is None else _ends(writing, window)
    extent = writing.extents[names[0]]
    short = window is None and not is_open(extent) and extent <= SHORT
    wanted = attributes if len(names) == 1 else None
    with builder.loop(*ends, carried=carried, attributes=UNROLLED if short else wanted) as loop:
        writing.levels.append(loop.body)
        writing.open_index(names[0], loop.variable)
        for guard in () if window is None else window.guards:
            writing.know(guard.index, names[0])
        inner = [(value, kind) for value, (_, kind) in zip(loop.carried, carried, strict=True)]
        with _open_loops(writing, steps, names[1:], inner, attributes) as found:
            yield found
        if carried:
            loop.body.give(found[-1])
        writing.levels.pop()
    found[-1:] = loop.results or found[-1:]


def _ends(writing: TermWriter, window: Window) -> tuple[Value, Value]:
    """Where a window begins and ends inside its tensor."""
    here = writing.here
    base = here.constant(window.base.constant)
    for name, factor in window.base.terms:
        part = here.arith("mul", writing.indices[name], here.constant(factor))
        base = here.arith("add", base, part)
    end = here.arith("add", base, here.constant(writing.extents[window.loop]))
    size = here.constant(window.size)
    return here.arith("max", base, here.constant(0)), here.arith("min", end, size)


def _step_in_place(
    writing: TermWriter, contraction: Contraction, tests: Sequence[Test] | None = None
) -> None:
    """Assign or join to memory in each step; `tests` are those that are left to make."""

    def step() -> None:
        values = [
            writing.saturated(item, writing.held(target).element) for item, target in _pairs(contraction)
        ]
        for value, target in zip(values, contraction.targets, strict=True):
            if contraction.sign not in ASSIGNMENTS:
                value = join(writing, contraction.sign, writing.load(target), value, target)
            writing.store(value, target)

    _run_active(writing, _tests(writing, contraction) if tests is None else tests, step)


def _run_active(writing: TermWriter, tests: Sequence[Test], step: Callable[[], None]) -> None:
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


def _joined(writing: TermWriter, contraction: Contraction, held: Value, tests: Sequence[Test]) -> Value:
    """The accumulated value after one step; a step that is skipped changes nothing."""
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


def _next(writing: TermWriter, contraction: Contraction, held: Value, target: Element) -> Value:
    value = writing.saturated(contraction.values[0], writing.held(target).element)
    if contraction.sign in ASSIGNMENTS:
        return value
    return join(writing, contraction.sign, held, value, target)


def join(writing: TermWriter, sign: str, held: Value, value: Value, target: Element) -> Value:
    """The combiner of a reduction: an accumulation and one more value."""
    kind, function = writing.kind(target), JOINS[sign]
    if function in ("<<", ">>") and kind != BOOL:
        return extreme(writing.here, "min" if function == "<<" else "max", kind, held, value)
    if kind == BOOL and function in ("<<", ">>"):
        function = "&&" if function == "<<" else "||"
    return apply(writing.here, function, kind, [held, value])


def neutral_value(writing: TermWriter, sign: str, target: Element) -> Value:
    """The identity of a reduction: what an accumulation starts from."""
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


def _tests(writing: TermWriter, contraction: Contraction) -> list[Test]:
    """The predicates of a step: tested indices with the sizes they are tested against, and the condition."""
    found: list[Test] = []
    for term in terms(contraction):
        if isinstance(term, Element):
            found += _tests_of(writing, term)
    # A step that one index skips is skipped even if another has no value: what always has one is tested first.
    found.sort(key=lambda test: writing.is_risky(tested_term(test[0])))
    return found if contraction.condition is None else [*found, (contraction.condition, 0)]


def _tests_of(writing: TermWriter, element: Element) -> Iterator[Test]:
    for index, size in zip(element.indices, writing.held(element).shape, strict=True):
        skips = isinstance(index, Guard) and None in (index.below, index.above)
        if skips and isinstance(index, Guard) and not writing.is_within(index.index, size):
            yield index, size


def _split(writing: TermWriter, tests: Sequence[Test]) -> tuple[Sequence[Test], Sequence[Test]]:
    """The tests that can be made at once, because none of them needs another to have held; and the others."""
    count = 1
    while count < len(tests) and not writing.is_risky(tested_term(tests[count][0])):
        count += 1
    return tests[:count], tests[count:]


def _together(writing: TermWriter, tests: Sequence[Test]) -> Value:
    found: Value | None = None
    for test, size in tests:
        for value in _conditions(writing, test, size):
            found = value if found is None else writing.here.arith("and", found, value, type_=BOOL)
    return writing.here.constant(True, BOOL) if found is None else found


def _conditions(writing: TermWriter, test: Guard | Term, size: int) -> Iterator[Value]:
    if not isinstance(test, Guard):
        yield writing.value(test)
        return
    index, known = writing.value(test.index), find_range(test.index, writing.extents)
    if test.below is None and (known is None or known[0] < 0):
        yield writing.here.compare("ge", index, writing.here.constant(0, I64))
    if test.above is None and (known is None or known[1] >= size):
        yield writing.here.compare("lt", index, writing.here.constant(size, I64))
