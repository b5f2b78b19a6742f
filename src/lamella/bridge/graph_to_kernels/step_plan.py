"""Loop parallelism of a contraction (dependence analysis): which loops are parallel, and which sequential."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form, find_form
from lamella.bridge.graph_to_kernels.peel_borders import Window
from lamella.bridge.graph_to_kernels.samples import find_shared_loop
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes.types import Dictionary, DictionaryEntry
from lamella.ops.formula import Contraction, Counter, Element, Guard, Index
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import operands, reachable

ASSIGNMENTS = ("=", ":=")
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
"""Steps of a loop that is unrolled."""
UNROLLED = Dictionary((DictionaryEntry("unroll", True),))
AHEAD = 8
"""Software pipelining: elements that a thread loads before it needs the first."""
MANY_AT_ONCE = Dictionary((DictionaryEntry("unroll", AHEAD),))
UNKNOWN = ""
"""Stands for the index of a place that no affine form tells."""


@dataclass(frozen=True, slots=True)
class Held:
    """The initial content of a target, before the steps of a contraction."""

    started: bool
    """Whether they go on from it."""
    floor: int | None = None
    """The number that stands everywhere, where that is known."""


@dataclass(frozen=True, slots=True)
class LoopSplit:
    """The loops of a contraction: over work-groups, over work-items, and sequential ones inside each work-item.

    Iterations over groups and items write to places of their own, so they are independent.
    """

    groups: tuple[str, ...]
    items: tuple[str, ...]
    inner: tuple[str, ...]
    extents: Mapping[str, int]
    held: bool
    """Whether each work-item writes one place only, so that the value stays in a register while the inner loops run."""
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
    """Whether the innermost loop loads several elements before it combines them: threads wait for each of them."""
    running: bool = False
    """Whether it is a recurrence: each step of the inner loop goes on from the one before, held in a register."""
    latest: bool = False
    """Whether steps that write one place may run at once, because the last of them writes the largest number."""

    @property
    def places(self) -> int:
        """Places of their own that the steps of all such loops have."""
        return count_steps((*self.groups, *self.items), self)


def fewest_steps(target: Target) -> int:
    """The steps that a work-group should have at least: few where each work-item is a thread."""
    return THREAD_STEPS if target.has_threads else GROUP_STEPS


def plan_steps(
    contraction: Contraction,
    shapes: Mapping[str, tuple[int, ...]],
    strides: Sequence[int] = (),
    least: int = GROUP_STEPS,
) -> LoopSplit:
    """The parallel and sequential loops; `shapes` are those of the targets, `strides` those of the first of them.

    A work-group has at least so many steps, where there are as many.
    """
    extents = {loop.index: known_extent(loop.extent) for loop in contraction.loops}
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
        and find_sending(contraction, items[-1]) is not None
    ):
        found = replace(found, parts=PARTS)
    if least == THREAD_STEPS and order and shared is None and _runs_on(contraction, forms[0], inner, extents):
        return replace(found, rows=False, strip=0, flat=FLAT, running=True)
    is_map = contraction.sign in ASSIGNMENTS and not (inner or shared or rows or reads)
    found = replace(found, together=_together_steps(found) if is_map and least == THREAD_STEPS else 1)
    few = count_steps(groups, found) < FEW_GROUPS and found.places > FLAT and found.together == 1
    plain = not (rows or shared or any(is_open(extent) for extent in extents.values()))
    ahead = least == THREAD_STEPS and held and bool(inner) and extents[inner[-1]] >= 2 * AHEAD
    return replace(found, flat=FLAT if few and plain and least == THREAD_STEPS else 0, ahead=ahead)


def _runs_on(
    contraction: Contraction, target: list[Form], inner: tuple[str, ...], extents: Mapping[str, int]
) -> bool:
    """Whether a recurrence carries one step: all it reads of its target is what the step before wrote beside it."""
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
    """Whether a scatter keeps the largest number sent to a place, because later steps send larger ones."""
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


def find_sending(contraction: Contraction, lane: str) -> Term | None:
    """The one scattered index of a target, which data tell and which is the same for all lanes; else None."""
    if len(contraction.targets) != 1:
        return None
    found = [tested_term(item) for item in contraction.targets[0].indices]
    told = [item for item in found if any(isinstance(part, Element) for part in reachable(item))]
    return told[0] if len(told) == 1 and not depends_on(told[0], lane) else None


def _lies_closest(forms: Sequence[Form], loop: str, strides: Sequence[int]) -> bool:
    """Whether the steps of a loop write contiguously."""
    dense = strides or (*[0] * (len(forms) - 1), 1)
    return sum(form.coefficient(loop) * stride for form, stride in zip(forms, dense, strict=True)) == 1


def known_extent(extent: object) -> int:
    """An extent that is a number."""
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
    """The parallel loops: their steps touch places of their own, in every target and in every read of one."""
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


def count_steps(names: Sequence[str], steps: LoopSplit) -> int:
    """The number of iterations of some loops together."""
    found = 1
    for name in names:
        found *= steps.extents[name]
    return found


def tested_term(test: Guard | Term) -> Term:
    """The term that a test looks at."""
    return test.index if isinstance(test, Guard) else test


def depends_on(term: object, loop: str) -> bool:
    """Whether a term depends on a loop."""
    return any(isinstance(item, Index) and item.name == loop for item in reachable(term))
