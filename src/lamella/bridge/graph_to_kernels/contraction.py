"""One kernel for one contraction: work-items over the places it writes, loops inside them over the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from math import prod
from typing import TypeAlias

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form, find_form, find_range
from lamella.bridge.graph_to_kernels.borders import Window, cut_borders, find_windows, settle_guards
from lamella.bridge.graph_to_kernels.functions import I64, apply, extreme
from lamella.bridge.graph_to_kernels.samples import block_of, find_shared_loop, fuse_places, write_out
from lamella.bridge.graph_to_kernels.terms import TensorView, TermWriter, is_picked, stored_type
from lamella.kernels.build import Builder
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import If, Scalar, Value
from lamella.lang.tensor.nodes.types import BOOL, Dictionary, DictionaryEntry
from lamella.ops.formula import Apply, Contraction, Counter, Element, Guard, Index
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import operands, reachable

# --- how the steps of a contraction are taken: which loops may run at once, which one after the -------------


GROUP_STEPS, THREAD_STEPS = 1 << 14, 1 << 6
"""Steps that are worth a work-group of their own."""
MOST_STEPS = 1 << 40
"""Steps of one formula; what takes more is left to the host, which refuses it or knows a shorter way."""
STRIP = 32
"""Elements side by side of rows that data scatter, which a work-group of threads takes one row after the other."""
PARTS, MANY_SENT = 32, 256
"""Parts of a table that work-groups of threads look after where at least so many rows are sent to it: a power of 2."""
AT_ONCE = 4
"""Rows that are added up in one go where they go to one place: memory is slow, and fetches several of them at once."""
TOGETHER, SHORT_ROW, MANY_ROWS = 4, 256, 1 << 12
"""Rows that a work-group of threads takes, how short they are then, and how many there must be."""
FLAT, FEW_GROUPS = 128, 64
"""Places that a work-group of threads takes, where there would be fewer work-groups than so many otherwise."""
ATOMIC = ("i32", "i64")
"""Integers of which a GPU keeps the largest that is stored."""
SHORT = 2
"""Steps of a loop that are written one after the other."""
UNROLLED = Dictionary((DictionaryEntry("unroll", True),))
AHEAD = 8
"""Elements that a thread loads before it needs the first."""
MANY_AT_ONCE = Dictionary((DictionaryEntry("unroll", AHEAD),))
UNKNOWN = ""
"""Stands for the index of a place that no affine form tells."""


@dataclass(frozen=True, slots=True)
class LoopSplit:
    """The loops of a contraction: those over work-groups, over work-items, and inside each work-item.

    Loops over groups and items write to places of their own, so their order does not matter.
    """

    groups: tuple[str, ...]
    items: tuple[str, ...]
    inner: tuple[str, ...]
    extents: Mapping[str, int]
    held: bool
    """Whether each work-item writes one place only, so that the value can be held while the inner loops run."""
    covers: bool
    """Whether the steps write every element of the target."""
    windows: Mapping[str, Window] = field(default_factory=dict)
    """Inner loops that count a tested index itself."""
    rows: bool = False
    """Whether lanes are inside the inner loops, each step of which then goes along what lies side by side."""
    shared: str | None = None
    """A loop over places of their own some steps of which run inside the lanes, which compute the rest once."""
    strip: int = 0
    """How much of the lanes' loop a work-group takes, where there would be one alone; 0 where it takes all."""
    parts: int = 1
    """Parts of the places that rows are sent to, each of which a work-group of every strip looks after."""
    together: int = 1
    """Steps of the last loop over groups that a work-group takes: a thread then waits for memory once for all."""
    flat: int = 0
    """Places of all loops over groups and items together that a work-group takes, each its own work-item's; 0 for
    loops one inside the other."""
    ahead: bool = False
    """Whether the innermost loop loads several elements before it joins them: threads wait for each of them."""
    running: bool = False
    """Whether each step of the inner loop goes on from what the one before wrote: a work-item holds that."""
    latest: bool = False
    """Whether steps that write one place may run at once, because the last of them writes the largest number."""

    @property
    def places(self) -> int:
        """Places of their own that the steps of all such loops have."""
        return _count((*self.groups, *self.items), self)


def fewest_steps(target: Target) -> int:
    """The steps that a work-group should have at least: few where each work-item is a thread."""
    return THREAD_STEPS if target.has_threads else GROUP_STEPS


def plan_steps(
    contraction: Contraction,
    shapes: Mapping[str, tuple[int, ...]],
    strides: Sequence[int] = (),
    least: int = GROUP_STEPS,
) -> LoopSplit:
    """Decide how the steps are taken; `shapes` are those of the targets, `strides` those of the first of them.

    A work-group has at least so many steps, where there are as many.
    """
    extents = {loop.index: _known(loop.extent) for loop in contraction.loops}
    if prod(extents.values()) > MOST_STEPS:
        raise Unsupported(f"it takes more than {MOST_STEPS} steps")
    forms = [_forms(target, extents) for target in contraction.targets]
    free = _free(contraction, forms, extents)
    order = [name for name in _order(forms[0], strides) if name in free]
    summed = [loop.index for loop in contraction.loops if loop.index not in free and extents[loop.index] != 1]
    shared = find_shared_loop(contraction, order[-1], order[:-1], summed) if order else None
    order = [name for name in order if name != shared]
    loops = [loop.index for loop in contraction.loops if extents[loop.index] != 1]
    inner = tuple(name for name in loops if name not in free)
    reads = _reads_target(contraction)
    depends = {name for position in forms[0] for name, _ in position.terms}
    held = len(contraction.targets) == 1 and not reads and not depends & {UNKNOWN, *inner}
    covers = held and _covers(forms[0], extents, shapes[contraction.targets[0].tensor])
    groups = _over_groups(order, (*inner, *([shared] if shared else [])), extents, least)
    items = tuple(name for name in order if name not in groups)
    rows = not held and bool(items) and _lies_closest(forms[0], items[-1], strides)
    alone = rows and not groups and least == THREAD_STEPS and shared is None
    strip = STRIP if alone and extents[items[-1]] % STRIP == 0 and extents[items[-1]] > STRIP else 0
    found = LoopSplit(groups, items, inner, extents, held, covers, rows=rows, shared=shared, strip=strip)
    if (
        strip
        and prod(extents[name] for name in inner) >= MANY_SENT
        and _sending(contraction, items[-1]) is not None
    ):
        found = replace(found, parts=PARTS)
    if least == THREAD_STEPS and order and shared is None and _runs_on(contraction, forms[0], inner, extents):
        return replace(found, rows=False, strip=0, flat=FLAT, running=True)
    is_map = contraction.sign in ASSIGNMENTS and not (inner or shared or rows or reads)
    found = replace(found, together=_together_steps(found) if is_map and least == THREAD_STEPS else 1)
    few = _count(groups, found) < FEW_GROUPS and found.places > FLAT and found.together == 1
    plain = not (rows or shared or any(is_open(extent) for extent in extents.values()))
    ahead = least == THREAD_STEPS and held and bool(inner) and extents[inner[-1]] >= 2 * AHEAD
    return replace(found, flat=FLAT if few and plain and least == THREAD_STEPS else 0, ahead=ahead)


def _runs_on(
    contraction: Contraction, target: list[Form], inner: tuple[str, ...], extents: Mapping[str, int]
) -> bool:
    """Whether all that a formula reads of its target is what the step before wrote to the place beside it."""
    if len(contraction.targets) != 1 or contraction.sign not in ASSIGNMENTS or len(inner) != 1:
        return False
    plain = contraction.condition is None and not any(isinstance(item, Guard) for item in terms(contraction))
    name = contraction.targets[0].tensor
    found = [item for item in elements(contraction) if item.tensor == name]
    places = [[_read_form(item, place, extents) for place in range(len(target))] for item in found]
    return plain and bool(found) and all(_is_before(item, target, inner[0]) for item in places)


def _is_before(place: Sequence[Form | None], target: Sequence[Form], loop: str) -> bool:
    """Whether a place is where the step before writes."""
    moved = 0
    for read, written in zip(place, target, strict=True):
        step = written.coefficient(loop)
        if read is None or read != written + Affine(-step):
            return False
        moved += bool(step)
    return moved == 1


def writes_latest(contraction: Contraction, floor: int, steps: LoopSplit) -> bool:
    """Whether places that data tell get the largest number that is sent to them: those of later steps are larger."""
    if len(contraction.targets) != 1 or contraction.sign not in ASSIGNMENTS or steps.items or steps.groups:
        return False
    form = find_form(contraction.values[0], steps.extents)
    integer = contraction.targets[0].type == "int"
    grows = form is not None and form.constant >= floor and len(steps.inner) == 1
    grows = grows and form is not None and len(form.terms) == 1 and form.coefficient(steps.inner[0]) > 0
    return integer and grows and not _reads_target(contraction)


def _together_steps(steps: LoopSplit) -> int:
    """How many short rows a work-group of threads takes, where there are many of them."""
    rows = prod(steps.extents[name] for name in steps.groups)
    short = prod(steps.extents[name] for name in steps.items) <= SHORT_ROW
    if not steps.groups or not short or rows < MANY_ROWS or steps.extents[steps.groups[-1]] % TOGETHER:
        return 1
    return TOGETHER


def _sending(contraction: Contraction, lane: str) -> Term | None:
    """The one index of a target that data tell, the same for all lanes; None where there is none such."""
    if len(contraction.targets) != 1:
        return None
    found = [_tested(item) for item in contraction.targets[0].indices]
    told = [item for item in found if any(isinstance(part, Element) for part in reachable(item))]
    return told[0] if len(told) == 1 and not _depends(told[0], lane) else None


def _lies_closest(forms: Sequence[Form], loop: str, strides: Sequence[int]) -> bool:
    """Whether the steps of a loop write side by side."""
    dense = strides or (*[0] * (len(forms) - 1), 1)
    return sum(form.coefficient(loop) * stride for form, stride in zip(forms, dense, strict=True)) == 1


def _known(extent: object) -> int:
    if not isinstance(extent, int):
        raise Unsupported("an extent is not known before the run")
    return extent


def _forms(target: Element, extents: Mapping[str, int]) -> list[Form]:
    found = []
    for index in target.indices:
        form = None
        if not isinstance(index, Guard):
            form = find_form(index, extents)
        elif index.below is None and index.above is None:
            form = find_form(index.index, extents)
        found.append(form or Affine(0, ((UNKNOWN, 1),)))
    return found


def _free(contraction: Contraction, forms: list[list[Form]], extents: Mapping[str, int]) -> set[str]:
    """The loops whose steps touch places of their own, in every target and in every read of one."""
    written = {target.tensor for target in contraction.targets}
    reads = [item for item in elements(contraction) if item.tensor in written]
    found: set[str] = set()
    for place, form in enumerate(forms[0]):
        if len(form.terms) == 1 and form.terms[0][0] in extents:
            others = [items[place] if place < len(items) else None for items in forms]
            others += [_read_form(item, place, extents) for item in reads]
            if all(item == form for item in others):
                found.add(form.terms[0][0])
    return found


def _read_form(element: Element, place: int, extents: Mapping[str, int]) -> Form | None:
    if place >= len(element.indices):
        return None
    index = element.indices[place]
    return None if isinstance(index, Guard) else find_form(index, extents)


def _order(forms: list[Form], strides: Sequence[int]) -> list[str]:
    """The indices of the target as it lies in memory, the closest last; one that counts several dimensions once."""
    places = sorted(range(len(forms)), key=lambda place: -strides[place] if strides else 0)
    return list(dict.fromkeys(forms[place].terms[0][0] for place in places if len(forms[place].terms) == 1))


def _reads_target(contraction: Contraction) -> bool:
    written = {target.tensor for target in contraction.targets}
    return any(item.tensor in written for item in elements(contraction))


def _covers(forms: list[Form], extents: Mapping[str, int], shape: tuple[int, ...]) -> bool:
    """Whether each dimension is counted through by an index of its own, from 0 to its end."""
    used: list[str] = []
    for form, size in zip(forms, shape, strict=True):
        if not form.terms and form.constant == 0 and size == 1:
            continue
        if form.constant or len(form.terms) != 1 or form.terms[0][1] != 1:
            return False
        used.append(form.terms[0][0])
        if extents.get(used[-1]) != size:
            return False
    return len(set(used)) == len(used)


def _over_groups(
    order: list[str], inner: tuple[str, ...], extents: Mapping[str, int], least: int
) -> tuple[str, ...]:
    """The outermost loops, as long as enough steps stay for each work-group; one is always left for the lanes."""
    rest = 1
    for name in (*order, *inner):
        rest *= extents[name]
    found: list[str] = []
    for name in order[:-1]:
        # Whether there are enough steps another call decides anew, and it runs the same code.
        if rest // max(extents[name], 1) < least and not is_open(extents[name]):
            break
        found.append(name)
        rest //= max(extents[name], 1)
    return tuple(found)


def elements(contraction: Contraction) -> Iterator[Element]:
    """Every element that a contraction reads, those in the indices of its targets included."""
    for term in terms(contraction):
        if isinstance(term, Element) and not any(term is target for target in contraction.targets):
            yield term


def terms(contraction: Contraction) -> Iterator[object]:
    """Every term of a contraction once, guards too, each after the terms it is made of."""
    done: set[int] = set()
    roots = [*contraction.values, *([] if contraction.condition is None else [contraction.condition])]
    waiting: list[tuple[object, bool]] = [(item, False) for item in (*contraction.targets, *roots)]
    while waiting:
        term, ready = waiting.pop()
        if isinstance(term, Counter):
            raise Unsupported("it counts its steps")
        if ready:
            yield term
        elif id(term) not in done:
            done.add(id(term))
            waiting.append((term, True))
            waiting += [(item, False) for item in operands(term)]


Test: TypeAlias = tuple[Guard | Term, int]
"""A tested index with the size of its dimension, or the condition of a formula."""
ASSIGNMENTS = ("=", ":=")
BRANCHES = ("?:", "&&", "||", "=>")
"""Functions whose operands behind the first may not be computed."""
JOINS = {"+=": "+", "*=": "*", "&=": "&&", "|=": "||", "<=": "<<", ">=": ">>"}


def write_contraction(
    builder: Builder,
    contraction: Contraction,
    tensors: Mapping[tuple[str, int | None], TensorView],
    real: Scalar,
    fault: Value,
    started: bool,
    least: int = GROUP_STEPS,
    floor: int | None = None,
) -> tuple[int, bool]:
    """Write the body of a kernel; gives the number of its work-groups and whether it may find steps without value.

    `started` says that the target holds values to go on from, `least` how many steps a work-group should have, `floor`
    the number that stands everywhere in the target, where that is known.
    """
    if any(is_picked(target) for target in contraction.targets):
        raise Unsupported("the run picks the tensor that it writes")
    shapes = {target.tensor: _shape(tensors, target) for target in contraction.targets}
    steps = plan_steps(contraction, shapes, _strides(tensors, contraction.targets[0]), least)
    held = tensors.get((contraction.targets[0].tensor, None))
    atomic = held is not None and stored_type(held.element) in ATOMIC and least == THREAD_STEPS
    if atomic and floor is not None and writes_latest(contraction, floor, steps):
        (loop,) = steps.inner
        steps = replace(steps, items=(loop,), inner=(), rows=False, strip=0, flat=FLAT, latest=True)
    written = frozenset(target.tensor for target in contraction.targets)
    if not started and contraction.sign not in ASSIGNMENTS and not steps.covers:
        raise Unsupported("its target must be filled first")
    sizes = {key: held.shape for key, held in tensors.items()}
    if steps.shared is not None:
        contraction, steps = write_out(contraction, steps.inner, sizes), replace(steps, inner=())
        contraction, tensors = fuse_places(contraction, tensors, builder)
        sizes = {key: held.shape for key, held in tensors.items()}
    parts = cut_borders(contraction, steps.items[-1], sizes) if steps.items else [contraction]
    steps = steps if len(parts) == 1 else replace(steps, strip=0, parts=1, flat=0)
    opened = TermWriter(real, tensors, steps.extents, [builder], written=written, fault=fault)
    opened.latest = steps.latest
    if not steps.flat:
        _open_groups(opened, steps)
    outer = () if steps.flat else steps.items[:-1]
    with _open_outer(opened, outer), _open_block(opened, steps.shared):
        faults = [_write_part(opened, settle_guards(part, sizes), steps, started) for part in parts]
    strips = steps.parts * steps.extents[steps.items[-1]] // steps.strip if steps.strip else 0
    count = strips or (-(-steps.places // steps.flat) if steps.flat else _count(steps.groups, steps))
    return count // steps.together, any(faults)


def _write_part(opened: TermWriter, part: Contraction, steps: LoopSplit, started: bool) -> bool:
    """Write some steps of the lanes inside loops that are open; gives whether one may have no value."""
    extents = {loop.index: _known(loop.extent) for loop in part.loops}
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
    """Rows that data send to their places: some at a time where they are added up, else one by one."""
    if steps.parts > 1:
        _write_own_rows(writing, part, steps)
        return
    *outer, name = steps.inner or (UNKNOWN,)
    count = writing.extents.get(name, 0)
    alike = _row_tests(writing, part, steps.items[-1])
    apart = is_open(count) or len(part.targets) > 1 or part.sign in ASSIGNMENTS or name in steps.windows
    places = [_tested(index) for index in part.targets[0].indices]
    apart |= any(_depends(place, name) and _depends(place, steps.items[-1]) for place in places)
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
    """Rows one by one, those alone that go to the places of this work-group: each place gets its own in their order."""
    index = _sending(part, steps.items[-1])
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
    """Rows that go to one place are added to what is loaded and stored once, in their order; others one by one."""
    first, here, target = rows[0], rows[0].here, part.targets[0]
    if len(rows) == 1:
        _write_row(first, part, steps)
        return
    condition = here.constant(True, BOOL)
    for row in rows:
        condition = here.arith("and", condition, _together(row, alike), type_=BOOL)
        for place in target.indices if row is not first else ():
            index = _tested(place)
            if not _depends(index, steps.items[-1]):
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
    return None if any(_depends(_tested(test[0]), lane) for test in tests) else tests


def _write_row(writing: TermWriter, part: Contraction, steps: LoopSplit) -> None:
    """One step of the inner loops along the lanes; what no lane changes is tested and computed before them."""
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
            if not isinstance(index, Guard) and not _depends(index, lane):
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


def _depends(term: object, loop: str) -> bool:
    return any(isinstance(item, Index) and item.name == loop for item in reachable(term))


def _shape(tensors: Mapping[tuple[str, int | None], TensorView], target: Element) -> tuple[int, ...]:
    found = next((held for (name, _), held in tensors.items() if name == target.tensor), None)
    if found is None:
        raise Unsupported(f"'{target.tensor}' is no tensor here")
    return found.shape


def _strides(tensors: Mapping[tuple[str, int | None], TensorView], target: Element) -> tuple[int, ...]:
    item = target.item if isinstance(target.item, int) else None
    found = tensors.get((target.tensor, item))
    return () if found is None else found.lies.strides


def _count(names: Sequence[str], steps: LoopSplit) -> int:
    found = 1
    for name in names:
        found *= steps.extents[name]
    return found


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
    builder = writing.here
    rest = builder.builtin("group_id", Scalar("index")) if steps.groups else None
    for place, name in enumerate(reversed(steps.groups)):
        if rest is None:
            return
        extent = builder.constant(steps.extents[name] // (1 if place else steps.together))
        last = place == len(steps.groups) - 1
        number = rest if last else builder.arith("rem", rest, extent)
        if place == 0 and steps.together > 1:
            number = builder.arith("mul", number, builder.constant(steps.together))
        writing.open_index(name, number)
        rest = rest if last else builder.arith("div", rest, extent)


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


def _next(writing: TermWriter, contraction: Contraction, held: Value, target: Element) -> Value:
    value = writing.saturated(contraction.values[0], writing.held(target).element)
    if contraction.sign in ASSIGNMENTS:
        return value
    return join(writing, contraction.sign, held, value, target)


def join(writing: TermWriter, sign: str, held: Value, value: Value, target: Element) -> Value:
    """What an accumulation holds after one more value."""
    kind, function = writing.kind(target), JOINS[sign]
    if function in ("<<", ">>") and kind != BOOL:
        return extreme(writing.here, "min" if function == "<<" else "max", kind, held, value)
    if kind == BOOL and function in ("<<", ">>"):
        function = "&&" if function == "<<" else "||"
    return apply(writing.here, function, kind, [held, value])


def neutral_value(writing: TermWriter, sign: str, target: Element) -> Value:
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


def _tests(writing: TermWriter, contraction: Contraction) -> list[Test]:
    """What must hold for a step to be taken: tested indices with the sizes they are tested against, the condition."""
    found: list[Test] = []
    for term in terms(contraction):
        if isinstance(term, Element):
            found += _tests_of(writing, term)
    # A step that one index skips is skipped even if another has no value: what always has one is tested first.
    found.sort(key=lambda test: writing.is_risky(_tested(test[0])))
    return found if contraction.condition is None else [*found, (contraction.condition, 0)]


def _tests_of(writing: TermWriter, element: Element) -> Iterator[Test]:
    for index, size in zip(element.indices, writing.held(element).shape, strict=True):
        skips = isinstance(index, Guard) and None in (index.below, index.above)
        if skips and isinstance(index, Guard) and not writing.is_within(index.index, size):
            yield index, size


def _split(writing: TermWriter, tests: Sequence[Test]) -> tuple[Sequence[Test], Sequence[Test]]:
    """The tests that can be made at once, because none of them needs another to have held; and the others."""
    count = 1
    while count < len(tests) and not writing.is_risky(_tested(tests[count][0])):
        count += 1
    return tests[:count], tests[count:]


def _tested(test: Guard | Term) -> Term:
    return test.index if isinstance(test, Guard) else test


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
