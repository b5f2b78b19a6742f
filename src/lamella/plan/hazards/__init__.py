"""Hazards: accesses to the same bytes that nothing orders, proved on whole loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice, takewhile
from math import gcd
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic, Label, Rule
from lamella.base.dim import TooComplex
from lamella.base.limits import DEFAULT, Limits, hint_for
from lamella.lang.nem.registry import opcode
from lamella.lang.nem.resolved import Index, Plan, Task
from lamella.lang.nem.rules import (
    HOISTABLE,
    IDEMPOTENT_RELOAD,
    IMPORTED_ALIAS,
    NOT_PROVED,
    OVERLAPPING_MOVE,
    OVERLAPPING_OUTPUT,
    READ_AFTER_WRITE,
    WRITE_AFTER_READ,
    WRITE_AFTER_WRITE,
)
from lamella.lang.nem.words import MOVES
from lamella.plan.diophantine import StepBudget
from lamella.plan.hazards.accesses import (
    Accesses,
    Footprint,
    OperandAccess,
    Point,
    Touched,
    Writes,
    may_alias,
)
from lamella.plan.hazards.find import Finder, Hazard, HazardTable, Meeting, OverlapQueries, members
from lamella.plan.order import LoopExtent, Order, Site

# --- how hazards are reported: bytes, iterations, places --------------------------------------------------------


IRREGULAR = "the offsets are too irregular to be compared within the budget"
TOO_MANY = "there are more pairs of accesses than may be compared"


def show_bytes(low: int, high: int) -> str:
    """A byte range as sentences have it."""
    return f"bytes [{low}, {high})"


def show_iteration(site: Site, point: Point) -> str:
    """One iteration in the program's variables: `i=3, j=0`; empty outside loops."""
    return ", ".join(
        f"{loop.variable}={loop.first + number}" for loop, number in zip(site.loops, point, strict=True)
    )


def window_hint(early: tuple[Site, Point], late: tuple[Site, Point]) -> str | None:
    """What a window that is too wide would have to be; None where the two are in the same iterations."""
    common = zip(early[0].loops, late[0].loops, early[1], late[1], strict=False)
    for one, other, before, after in common:
        if one.number != other.number:
            return None
        if before != after:
            distance = abs(after - before)
            return (
                f"iterations of {one.variable} that are {distance} apart use the same bytes, "
                f"and @max_in_flight({one.window}) lets them overlap; lower it to {distance}, or use more slots"
            )
    return None


def show_iterations(*instances: tuple[Site, Point]) -> str:
    """The iterations of instances in the order in which a sentence names them, each named once."""
    shown = dict.fromkeys(show_iteration(site, point) for site, point in instances)
    places = " and ".join(text for text in shown if text)
    return f" ({places})" if places else ""


# --- overlap of the operands of one task --------------------------------------------------------------------


MOST_OVERLAPS = 20
"""Findings about the operands of one task; of thousands that overlap the first ones say it."""


def check_operands(accesses: Accesses, questions: OverlapQueries) -> Iterator[Diagnostic]:
    """A move keeps off its own source unless @memmove; an output meets only identical inputs, elementwise."""
    for touched in accesses.of:
        if len(touched) < 2 or (touched[0].site.task.memmove and touched[0].site.task.opcode in MOVES):
            continue
        pairs = ((one, other) if one.write else (other, one) for one, other in _meeting(touched))
        found = (_check_pair(output, second, questions) for output, second in pairs)
        yield from islice((finding for finding in found if finding is not None), MOST_OVERLAPS)


def _meeting(touched: Sequence[OperandAccess]) -> Iterator[tuple[OperandAccess, OperandAccess]]:
    """Pairs of operands, one of them an output, whose bytes over all iterations meet."""
    outputs: list[OperandAccess] = []
    inputs: list[OperandAccess] = []
    for access in sorted(touched, key=lambda item: (item.footprint.buffer.name, item.footprint.low)):
        outputs = [other for other in outputs if other.footprint.meets(access.footprint)]
        yield from ((other, access) for other in outputs)
        if access.write:
            inputs = [other for other in inputs if other.footprint.meets(access.footprint)]
            yield from ((other, access) for other in inputs)
        (outputs if access.write else inputs).append(access)


def _check_pair(output: OperandAccess, other: OperandAccess, questions: OverlapQueries) -> Diagnostic | None:
    task = output.site.task
    free = _may_coincide(task, output, other)
    try:
        if free:
            met = questions.apart(output.footprint, other.footprint)
        else:
            met = questions.in_one_iteration(output.footprint, other.footprint, {})
    except TooComplex:
        what = f"that {output.what} of {task.opcode} keeps off {other.what}"
        return NOT_PROVED.at(output.span, hint=hint_for("max_pairs"), what=what, cause=IRREGULAR)
    return None if met is None else _report(output, other, met)


def _may_coincide(task: Task, output: OperandAccess, other: OperandAccess) -> bool:
    """An elementwise task may work in place: the same bytes, read as the same elements."""
    known = opcode(task.opcode)
    if known is None or "eltwise" not in known.families or other.write:
        return False
    one, two = output.region.type, other.region.type
    return (
        one is None or two is None or (one.elem, one.shape, one.strides) == (two.elem, two.shape, two.strides)
    )


def _report(output: OperandAccess, other: OperandAccess, met: Meeting) -> Diagnostic:
    task = output.site.task
    rule: Rule = OVERLAPPING_MOVE if task.opcode in MOVES else OVERLAPPING_OUTPUT
    first, second = output.first_byte(met.late), other.first_byte(met.late)
    end = min(first + output.footprint.extent, second + other.footprint.extent)
    return rule.at(
        output.span,
        labels=[Label(other.span, f"{other.what} is here")],
        opcode=task.opcode,
        output=output.what.partition(" ")[2],
        other=other.what,
        range=show_bytes(max(first, second), end),
        buffer=output.footprint.buffer.name,
        iterations=show_iterations((output.site, met.late)),
    )


# --- idempotent reload: unordered writes that all put the same bytes in the same place do no harm -----------


class Reloads:
    """Sorts hazards into errors and reloads."""

    def __init__(self, order: Order, accesses: Accesses, writes: Writes, found: HazardTable) -> None:
        self._accesses, self._writes, self._found = accesses, writes, found
        self._hazards = list(found.hazards.values())
        self._unordered = self._sets(order)
        harmless = {id(hazard): self._harmless(hazard) for hazard in self._hazards}
        faulty = {
            writer.site.index
            for hazard in self._hazards
            for writer in _writers(hazard)
            if not harmless[id(hazard)]
        }
        self.reloads = [
            hazard
            for hazard in self._hazards
            if harmless[id(hazard)] and all(writer.site.index not in faulty for writer in _writers(hazard))
        ]
        kept = {id(hazard) for hazard in self.reloads}
        self.errors = [hazard for hazard in self._hazards if id(hazard) not in kept]

    def _sets(self, order: Order) -> dict[int, int]:
        """The unordered earlier sites of each reader in a hazard with a move."""
        readers = {
            reader.site.index
            for hazard in self._hazards
            for reader in _readers(hazard)
            if all(writer.site.task.opcode in MOVES for writer in _writers(hazard))
        }
        if not readers:
            return {}
        return {site.index: mask for site, mask in order.sweep() if site.index in readers}

    def _harmless(self, hazard: Hazard) -> bool:
        shared, loads = self._found.shared(hazard), [self._load(writer) for writer in _writers(hazard)]
        known = [load for load in loads if load is not None]
        if len(known) < len(loads) or self._writes.reach(known[0][1]):
            return False
        if len(known) == 2:
            return _same_bytes(known[0], known[1], shared)
        (reader,) = _readers(hazard)
        return _same_bytes(known[0], known[0], shared) and any(
            self._loads_before(target, reader, known[0], shared) for target in self._writes.meeting(reader)
        )

    def _load(self, writer: OperandAccess) -> Load | None:
        """What a move writes and reads; None for other tasks."""
        if writer.site.task.opcode not in MOVES:
            return None
        source = next((access for access in self._accesses.of[writer.site.index] if not access.write), None)
        return None if source is None else (writer, source)

    def _loads_before(self, target: OperandAccess, reader: OperandAccess, writer: Load, shared: int) -> bool:
        """Whether a move always comes before a reader and gives it the same bytes as the writer does."""
        load = self._load(target)
        if load is None or not self._always_before(target.site, reader.site):
            return False
        common = _common_loops(target.site, reader.site)
        # The load is in the reader's iteration of these loops alone, and so is a writer that the reader meets.
        if not _same_bytes(load, writer, min(shared, common)):
            return False
        at, of_writer = target.footprint, writer[0].footprint
        distance = reader.footprint.offset.plus(at.offset, -1)
        covers = 0 <= distance.constant <= at.extent - reader.footprint.extent
        same = at.offset == of_writer.offset and _is_shared(at.offset, min(shared, common))
        whole = distance.is_constant and covers and _runs_through(at, reader.footprint, common)
        return whole or (same and at.extent >= of_writer.extent)

    def _always_before(self, early: Site, late: Site) -> bool:
        """Whether a site earlier in the text is complete before another starts, in one common iteration."""
        if early.index >= late.index:
            return False
        if _common_loops(early, late) < len(early.loops):
            return True
        return not self._unordered.get(late.index, -1) >> early.index & 1


Load: TypeAlias = tuple[OperandAccess, OperandAccess]
"""What a move writes, and what it reads."""


def _writers(hazard: Hazard) -> Iterator[OperandAccess]:
    return (access for access in (hazard.early, hazard.late) if access.write)


def _readers(hazard: Hazard) -> Iterator[OperandAccess]:
    return (access for access in (hazard.early, hazard.late) if not access.write)


def _common_loops(one: Site, other: Site) -> int:
    """How many loops two sites stand in together."""
    pairs = zip(one.loops, other.loops, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].number == pair[1].number, pairs))


def _is_shared(offset: Index, shared: int) -> bool:
    """Whether an offset depends on so many outer loops alone."""
    return all(depth < shared for depth in offset.loops())


def _runs_through(load: Footprint, reader: Footprint, common: int) -> bool:
    """Whether loops of its own take a load through all iterations of those in which a reader does the same."""
    inner = [depth for depth in load.offset.loops() if depth >= common]
    return all(load.trips[depth] >= reader.trips[depth] for depth in inner)


def _same_bytes(one: Load, two: Load, shared: int) -> bool:
    """Whether two moves give the same value to each byte that both write, in any two iterations.

    The `shared` outer loops are in the same iteration for both.
    """
    (target_one, source_one), (target_two, source_two) = one, two
    if source_one.footprint.buffer.name != source_two.footprint.buffer.name:
        return False
    if target_one.footprint.buffer.name != target_two.footprint.buffer.name:
        return False
    shift = source_one.footprint.offset.plus(target_one.footprint.offset, -1)
    other = source_two.footprint.offset.plus(target_two.footprint.offset, -1)
    if shift == other and _is_shared(shift, shared):
        return True
    source = source_one.footprint.offset
    fixed = source == source_two.footprint.offset and _is_shared(source, shared)
    return fixed and _never_partly(target_one, target_two, shared)


def _never_partly(one: OperandAccess, two: OperandAccess, shared: int) -> bool:
    """Whether two ranges are identical whenever they overlap: slots that are at least as far apart as long."""
    first, second = one.footprint, two.footprint
    between = first.offset.plus(second.offset, -1)
    moving = [
        Index(0, tuple(term for term in item.offset.terms if not _is_shared(Index(0, (term,)), shared)))
        for item in (first, second)
    ]
    apart = between.plus(moving[0], -1).plus(moving[1])
    slot = gcd(*(factor for item in moving for _, factor in item.terms))
    aligned = slot > 0 and apart.is_constant and apart.constant % slot == 0
    return aligned and max(first.extent, second.extent) <= slot


# --- hazards as findings ------------------------------------------------------------------------------------


_RULES = {"RAW": READ_AFTER_WRITE, "WAR": WRITE_AFTER_READ, "WAW": WRITE_AFTER_WRITE}
_ROLES = {"RAW": ("reader", "writer"), "WAR": ("writer", "reader"), "WAW": ("second", "first")}


def report_hazards(hazards: Iterable[Hazard]) -> Iterator[Diagnostic]:
    """One error for each pair of tasks."""
    reported: dict[tuple[int, int], Hazard] = {}
    for hazard in hazards:
        known = reported.setdefault(hazard.sites, hazard)
        if hazard.rank < known.rank:
            reported[hazard.sites] = hazard
    return (_report_hazard(hazard) for hazard in reported.values())


def _report_hazard(hazard: Hazard) -> Diagnostic:
    """An error at the later access, with the earlier one as a second place."""
    late, early = hazard.late, hazard.early
    roles = _ROLES[hazard.kind]
    names = {roles[0]: late.site.task.title, roles[1]: early.site.task.title}
    if late.site is early.site and hazard.kind == "WAW":
        names["first"] = "itself"
    later, earlier = (late.site, hazard.late_point), (early.site, hazard.early_point)
    return _RULES[hazard.kind].at(
        late.span,
        hint=window_hint(earlier, later),
        labels=() if early.span == late.span else [_label(early)],
        range=show_bytes(*hazard.range),
        buffer=late.footprint.buffer.name,
        iterations=show_iterations(later, earlier),
        **names,
    )


def report_reloads(reloads: list[Hazard]) -> Iterator[tuple[Site, Diagnostic]]:
    """One warning for each task that reloads, with the other side as a second place."""
    reported: set[int] = set()
    for hazard in reloads:
        for access, other in ((hazard.late, hazard.early), (hazard.early, hazard.late)):
            if access.write and access.site.index not in reported:
                reported.add(access.site.index)
                yield access.site, _report_reload(access, other)


def _label(access: OperandAccess) -> Label:
    deed = "writes" if access.write else "reads"
    return Label(access.span, f"{access.site.task.title} {deed} it here")


def _report_reload(access: OperandAccess, other: OperandAccess) -> Diagnostic:
    labels = [] if other.site is access.site else [_label(other)]
    return IDEMPOTENT_RELOAD.at(
        access.span, labels=labels, task=access.site.task.title, buffer=access.footprint.buffer.name
    )


def report_unproved(found: HazardTable) -> Iterator[Diagnostic]:
    """A warning for each pair that could not be decided and is no hazard otherwise, and where the search ended."""
    if found.stopped is not None:
        name = found.stopped.footprint.buffer.name
        what = f"the order of all accesses to '{name}'"
        yield NOT_PROVED.at(found.stopped.span, hint=hint_for("max_pairs"), what=what, cause=TOO_MANY)
    wrong = {hazard.sites for hazard in found.hazards.values()}
    reported: set[tuple[int, int]] = set()
    for early, late in found.unproved.values():
        sites = early.site.index, late.site.index
        pair = min(sites), max(sites)
        if pair not in wrong and pair not in reported:
            reported.add(pair)
            yield _report_unproved(early, late)


def _report_unproved(early: OperandAccess, late: OperandAccess) -> Diagnostic:
    first, second = early.site.task.title, late.site.task.title
    what = f"the order of {first} and {second} on '{late.footprint.buffer.name}'"
    labels = [] if early.span == late.span else [Label(early.span, f"{first} is here")]
    return NOT_PROVED.at(late.span, hint=hint_for("max_pairs"), labels=labels, what=what, cause=IRREGULAR)


def report_hoistable(site: Site) -> Diagnostic:
    """A note at the task."""
    return HOISTABLE.at(site.task.span, task=site.task.title)


# --- imported buffers of one memory may be the same bytes: accesses to two of them need an order ------------


Clash = tuple[OperandAccess, Point, OperandAccess, Point]


class Aliases:
    """Finds one clash per pair of imported buffers; accesses to @readonly regions take no part."""

    def __init__(self, plan: Plan, order: Order, accesses: Accesses) -> None:
        self._order = order
        imported = [buffer for buffer in plan.buffers if buffer.imported]
        pairs = [(a.name, b.name) for a, b in combinations(imported, 2) if may_alias(a, b)]
        names = {name for pair in pairs for name in pair}
        self._others: dict[str, list[str]] = {}
        for one, other in pairs:
            self._others.setdefault(one, []).append(other)
            self._others.setdefault(other, []).append(one)
        self._of = [_taking_part(touched, names) for touched in accesses.of] if pairs else []
        self._masks: dict[tuple[str, bool], int] = {}
        for access in (access for touched in self._of for access in touched):
            for key in {(access.region.buffer.name, access.write), (access.region.buffer.name, False)}:
                self._masks[key] = self._masks.get(key, 0) | 1 << access.site.index
        self._found: dict[frozenset[str], Clash] = {}

    def look_at(self, site: Site, unordered: int) -> None:
        """Compare a site with itself and with the earlier ones that are not always before it."""
        if not self._of:
            return
        start = (0,) * len(site.loops)
        moves = site.task.opcode in MOVES and site.task.memmove
        for access in self._of[site.index]:
            for name in self._others[access.region.buffer.name]:
                near = 0 if moves else 1 << site.index
                mask = (unordered | near) & self._masks.get((name, not access.write), 0)
                self._take(access, start, name, mask)

    def look_across(self) -> None:
        """Compare what several iterations of a loop in flight access."""
        for extent in self._order.loops if self._of else ():
            if extent.loop.window > 1 and extent.loop.trips > 1:
                self._across(extent)

    def _across(self, extent: LoopExtent) -> None:
        inside = (1 << extent.end) - (1 << extent.first)
        for touched in self._of[extent.first : extent.end]:
            for access in touched:
                later = [0] * len(access.site.loops)
                later[extent.depth] = 1
                for name in self._others[access.region.buffer.name]:
                    mask = inside & self._masks.get((name, not access.write), 0)
                    self._take(access, tuple(later), name, mask)

    def _take(self, access: OperandAccess, point: Point, name: str, mask: int) -> None:
        """Keep the first site of a set as the other side of a clash."""
        pair = frozenset((access.region.buffer.name, name))
        index = next(members(mask), None)
        if index is None or pair in self._found:
            return
        other = next(
            item
            for item in self._of[index]
            if item.region.buffer.name == name and (item.write or access.write)
        )
        self._found[pair] = access, point, other, (0,) * len(other.site.loops)

    def findings(self) -> Iterator[Diagnostic]:
        """One finding per pair of buffers."""
        for access, point, other, other_point in self._found.values():
            yield IMPORTED_ALIAS.at(
                access.span,
                labels=[Label(other.span, f"'{other.region.buffer.name}' is accessed here")],
                first=access.region.buffer.name,
                second=other.region.buffer.name,
                iterations=show_iterations((access.site, point), (other.site, other_point)),
            )


def _taking_part(touched: Sequence[OperandAccess], names: set[str]) -> list[OperandAccess]:
    return [access for access in touched if access.region.buffer.name in names and not access.region.readonly]


# --- moves that do the same in every iteration and could stand before their loop ----------------------------


def find_hoistable(order: Order, accesses: Accesses) -> Iterator[tuple[Site, LoopExtent]]:
    """Moves, with their innermost loop, whose source and target the loop neither moves nor touches otherwise.

    The source is not written in the loop; the target is written by nothing else in it and not read before the move;
    the move waits for no task of the loop.
    """
    for extent in order.loops:
        if extent.loop.trips < 2:
            continue
        own = [
            site
            for site in order.sites[extent.first : extent.end]
            if len(site.loops) == extent.depth + 1 and site.task.opcode in MOVES
        ]
        inside = [access for touched in accesses.of[extent.first : extent.end] for access in touched]
        fixed = [site for site in own if _is_fixed(accesses.of[site.index], extent.depth)]
        if fixed:
            yield from _without_conflict(fixed, inside, order, accesses, extent)


def _is_fixed(touched: tuple[OperandAccess, ...], depth: int) -> bool:
    return len(touched) == 2 and all(depth not in access.footprint.offset.loops() for access in touched)


def _without_conflict(
    fixed: list[Site], inside: list[OperandAccess], order: Order, accesses: Accesses, extent: LoopExtent
) -> Iterator[tuple[Site, LoopExtent]]:
    writes, touched = Writes(inside), Touched(inside)
    numbers = {site.task.number for site in order.sites[extent.first : extent.end]}
    for site in fixed:
        source, target = accesses.of[site.index]
        if writes.reach(source) or writes.reach(target, but=target) or numbers & set(site.task.deps):
            continue
        if not any(access.site.index < site.index for access in touched.meeting(target)):
            yield site, extent


def budget_of(limits: Limits) -> StepBudget:
    """The steps that all questions of one kind about a plan may take together, and each of them."""
    return StepBudget(limits.max_pairs // 20, limits.max_pairs // 100)


def find_hazards(plan: Plan, limits: Limits = DEFAULT) -> HazardTable:
    """The pairs of tasks that race, each with one witness; reloads are not distinguished here."""
    order = Order(plan)
    accesses = Accesses(order, budget_of(limits))
    finder = Finder(order, accesses, OverlapQueries(budget_of(limits)), limits.max_pairs)
    for site, unordered in order.sweep():
        finder.look_at(site, unordered)
    finder.look_across()
    return finder.found


def check_hazards(
    plan: Plan, order: Order, accesses: Accesses, limits: Limits = DEFAULT
) -> Iterator[Diagnostic]:
    """All findings about bytes that tasks share."""
    questions = OverlapQueries(budget_of(limits))
    yield from check_operands(accesses, questions)
    finder = Finder(order, accesses, questions, limits.max_pairs)
    aliases = Aliases(plan, order, accesses)
    for site, unordered in order.sweep():
        finder.look_at(site, unordered)
        aliases.look_at(site, unordered)
    finder.look_across()
    aliases.look_across()
    yield from aliases.findings()
    writes = Writes(access for touched in accesses.of for access in touched)
    reloads = Reloads(order, accesses, writes, finder.found)
    yield from report_hazards(reloads.errors)
    yield from report_unproved(finder.found)
    reported: set[int] = set()
    for site, finding in report_reloads(reloads.reloads):
        reported.add(site.index)
        yield finding
    for site, _ in find_hoistable(order, accesses):
        if site.index not in reported:
            yield report_hoistable(site)
