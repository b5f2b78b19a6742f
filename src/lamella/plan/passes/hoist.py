"""Hoisting: `loop i: t; rest` = `t; loop i: rest` for a move t that does the same in every iteration.

It does when neither its source nor its target moves with i, nothing in the loop writes its source, nothing else in the
loop writes its target, and nothing in the loop touches its target before t in the text. Its token is visible inside
the loop, so deps and waits that name it stay and readers stay ordered. A `.sync` move leaves a wait at its place; one
that nothing in its loop waits for leaves one at the end of the body, for the loop ended after it. By its deps the move
comes after whatever it came after outside the loop; what it came after inside is waited for by those that wait for it.

Named regions of L1 move with it; those of L2 and DDR are written in place, because a typed region that is named outside
loops is an input or output of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nem import nodes
from lamella.lang.nem.resolve.scope import declared_names
from lamella.lang.nem.resolved import Item, Loop, Plan, Task
from lamella.lang.nem.words import MOVES, NOTE_DECORATORS
from lamella.plan.hazards import budget_of
from lamella.plan.hazards.accesses import Accesses, OperandAccess, Touched, Writes
from lamella.plan.order import LoopExtent, Order, Site
from lamella.plan.passes.rewrite import Edits, declared_in, loops_of, names_in, walk

# --- moves that do the same in every iteration of loops around them, and what they come after ---------------


@dataclass(frozen=True, slots=True)
class Hoist:
    """A move and the loops it can leave, outermost first; `depth` loops stay around it."""

    task: Task
    loops: tuple[Loop, ...]
    depth: int

    @property
    def trips(self) -> int:
        """How often the move is executed for each time it would be executed outside."""
        return prod(loop.trips for loop in self.loops)

    def leaves(self, loop: Loop) -> bool:
        """Whether this loop is among those left."""
        return any(item.number == loop.number for item in self.loops)


def find_invariant(
    plan: Plan, limits: Limits = DEFAULT, accept: Callable[[Hoist], bool] = bool
) -> list[Hoist]:
    """In textual order, the moves that can leave a loop of several iterations, given that those accepted do."""
    search, found = _HoistSearch(plan, limits), []
    for site in search.order.sites:
        if site.task.opcode in MOVES and site.loops:
            depth = search.outermost(site)
            item = Hoist(site.task, site.loops[depth:], depth)
            if item.trips > 1 and accept(item):
                search.left[site.index] = depth
                found.append(item)
    return found


class _HoistSearch:
    """Asks for one loop after the other, from the innermost outwards; `left` has the depth each site moves to."""

    def __init__(self, plan: Plan, limits: Limits) -> None:
        self.order = Order(plan)
        self.left: dict[int, int] = {}
        self._accesses = Accesses(self.order, budget_of(limits))
        self._extents = {extent.loop.number: extent for extent in self.order.loops}
        self._inside: dict[int, tuple[Touched, Writes]] = {}

    def outermost(self, site: Site) -> int:
        """The depth at which the move can stand; its own where it can leave no loop."""
        depth = len(site.loops)
        if len(self._accesses.of[site.index]) == 2:
            while depth and self._may_leave(site, self._extents[site.loops[depth - 1].number]):
                depth -= 1
        return depth

    def _may_leave(self, site: Site, extent: LoopExtent) -> bool:
        source, target = self._accesses.of[site.index]
        if any(extent.depth in access.footprint.offset.loops() for access in (source, target)):
            return False
        touched, writes = self._touched(extent)
        if writes.aliasing(source) or touched.aliasing(target):
            return False
        # Another task that writes the target, or one that sees it as it was before the first iteration.
        others = (access for access in self._staying(touched, target, extent) if access.site is not site)
        if any(access.write or access.site.index < site.index for access in others):
            return False
        return not any(True for _ in self._staying(writes, source, extent))

    def _touched(self, extent: LoopExtent) -> tuple[Touched, Writes]:
        number = extent.loop.number
        if number not in self._inside:
            accesses = [access for of in self._accesses.of[extent.first : extent.end] for access in of]
            self._inside[number] = Touched(accesses), Writes(accesses)
        return self._inside[number]

    def _staying(
        self, touched: Touched, access: OperandAccess, extent: LoopExtent
    ) -> Iterator[OperandAccess]:
        """Accesses to the same bytes by tasks that stay inside the loop."""
        for other in touched.meeting(access):
            if self.left.get(other.site.index, extent.depth + 1) > extent.depth:
                yield other


# --- order inside a loop ------------------------------------------------------------------------------------


class Precedence:
    """What each task of a loop directly comes after, through deps, waits, `.sync` and the ends of inner loops."""

    def __init__(self, loop: Loop) -> None:
        self._before: dict[int, frozenset[int]] = {}
        self._collect(loop.body, frozenset())

    def _collect(self, body: tuple[Item, ...], gate: frozenset[int]) -> frozenset[int]:
        """Walk one list behind a gate; all its tasks."""
        made: set[int] = set()
        for item in body:
            if isinstance(item, Loop):
                inside = self._collect(item.body, gate)
                made |= inside
                gate = inside or gate
            elif isinstance(item, Task):
                self._before[item.number] = gate.union(item.deps)
                made.add(item.number)
                gate = gate | {item.number} if item.sync else gate
            else:
                gate = gate.union(item.deps)
        return frozenset(made)

    def outside(self, task: Task, gone: set[int]) -> list[int]:
        """The tasks outside the loop, or `gone` from it, that a task comes after by way of tasks inside."""
        todo, seen, found = list(self._before[task.number]), set[int](), []
        while todo:
            number = todo.pop()
            if number in seen:
                continue
            seen.add(number)
            if number in gone or number not in self._before:
                found.append(number)
            else:
                todo += self._before[number]
        return sorted(found)


def waited_for(task: Task, loop: Loop, hoisted: Mapping[int, Collection[int]]) -> bool:
    """Whether something executed in a loop waits for a task; of those hoisted, only what they need outside counts."""
    todo: list[Item] = list(loop.body)
    while todo:
        item = todo.pop()
        if isinstance(item, Loop):
            todo += item.body if item.trips > 0 else ()
            continue
        deps: Collection[int] = item.deps
        if isinstance(item, Task) and item.number in hoisted:
            deps = hoisted[item.number]
        if task.number in deps:
            return True
    return False


def hoist(
    document: nodes.Document, plan: Plan, limits: Limits = DEFAULT, only: frozenset[int] | None = None
) -> nodes.Document | None:
    """The document with moves before the outermost loop they do not depend on; `only` picks tasks by number."""
    hoisting = _Hoisting(document, plan)
    wanted = find_invariant(
        plan, limits, lambda item: (only is None or item.task.number in only) and hoisting.take(item)
    )
    return hoisting.apply() if wanted else None


def find_hoists(document: nodes.Document, plan: Plan, limits: Limits = DEFAULT) -> list[Hoist]:
    """The moves that `hoist` moves: those that are invariant and whose text can stand outside."""
    return find_invariant(plan, limits, _Hoisting(document, plan).take)


@dataclass(frozen=True, slots=True)
class _Moved:
    """A statement as it will stand before a loop at some depth; `place` is its old place in the text."""

    place: int
    statement: nodes.Statement
    made: nodes.Task | nodes.RegionDef | nodes.Let
    depth: int
    loop: nodes.Loop


class _Hoisting:
    """Turns invariant moves into edits, in textual order."""

    def __init__(self, document: nodes.Document, plan: Plan) -> None:
        self._hoists: dict[int, Hoist] = {}
        self._needs: dict[int, list[int]] = {}
        self._before: dict[int, Precedence] = {}
        self._document = document
        self._loops = loops_of(document)
        self._places = {id(item): place for place, (item, _) in enumerate(walk(document))}
        self._declared = declared_in(document)
        self._levels = {buffer.name: buffer.memory for buffer in plan.buffers}
        self._tokens = {task.number: task.token for task in plan.tasks()}
        self._edits = Edits()
        self._moved: dict[int, _Moved] = {}

    def take(self, item: Hoist) -> bool:
        """Move a task and the declarations it needs; False where its text names what cannot leave the loops."""
        path = [self._loops[loop.number] for loop in item.loops]
        names = _LoopNames(path, self._declared, self._levels)
        task = item.task.node
        made = replace(
            task,
            inputs=tuple([names.outside(operand) for operand in task.inputs]),
            outputs=tuple([names.outside(operand) for operand in task.outputs]),
            decorators=_fixed_decorators(item),
        )
        needed = names.follow(made)
        if needed is None:
            return False
        number = item.task.number
        self._needs[number] = self._find_needs(item)
        name = item.task.token
        self._tokens[number] = name if name and self._declared[name] == 1 else self._fresh(name or "t")
        self._hoists[number] = item
        deps = self._named(self._needs[number])
        token = nodes.Name(self._tokens[number])
        self._move(task, replace(made, token=token, deps=deps, form="async"), item.depth, path[0])
        for statement in needed:
            self._move(statement, statement, item.depth, path[0])
        return True

    def _move(
        self,
        statement: nodes.Statement,
        made: nodes.Task | nodes.RegionDef | nodes.Let,
        depth: int,
        loop: nodes.Loop,
    ) -> None:
        earlier = self._moved.get(id(statement))
        if earlier is None or depth < earlier.depth:
            place = self._places[id(statement)]
            self._moved[id(statement)] = _Moved(place, statement, made, depth, loop)

    def apply(self) -> nodes.Document:
        """The document with everything at its new place; what stands first takes the blank line of its loop."""
        begun: set[int] = set()
        for item in sorted(self._moved.values(), key=lambda item: item.place):
            notes = item.loop.notes
            blank = notes.blank and id(item.loop) not in begun
            begun.add(id(item.loop))
            made = replace(item.made, notes=replace(item.made.notes, blank=blank))
            self._edits.put_before(item.loop, made)
            self._edits.annotate(item.loop, replace(notes, blank=notes.blank and bool(notes.above)))
            self._edits.drop(item.statement)
        ties: dict[int, list[str]] = {}
        for hoisted in self._hoists.values():
            self._order(hoisted, ties)
        return self._edits.apply(self._document)

    # --- order ----------------------------------------------------------------------------------------------

    def _find_needs(self, item: Hoist) -> list[int]:
        """The tasks before the loop that the move came after inside it."""
        gone = {number for number, other in self._hoists.items() if other.leaves(item.loops[0])}
        loop = item.loops[0]
        if loop.number not in self._before:
            self._before[loop.number] = Precedence(loop)
        return self._before[loop.number].outside(item.task, gone)

    def _named(self, numbers: Iterable[int]) -> tuple[nodes.Name, ...]:
        return tuple(nodes.Name(self._tokens[number]) for number in numbers)

    def _fresh(self, name: str) -> str:
        number = 2
        while f"{name}_{number}" in self._declared:
            number += 1
        self._declared[f"{name}_{number}"] = 1
        return f"{name}_{number}"

    def _order(self, item: Hoist, ties: dict[int, list[str]]) -> None:
        """Keep the order inside the loop: by the waits that name the move, or by one that is left there."""
        names = [self._tokens[number] for number in (item.task.number, *self._left_behind(item))]
        wait = nodes.Wait(tuple(map(nodes.Name, dict.fromkeys(names))))
        if item.task.token:
            self._tie_users(item, names, ties)
        if item.task.sync:
            self._edits.put_before(item.task.node, wait)
        elif not waited_for(item.task, item.loops[-1], self._needs):
            self._edits.put_last(self._loops[item.loops[-1].number], nodes.Wait(wait.tokens[:1]))

    def _left_behind(self, item: Hoist) -> Iterator[int]:
        """The tasks inside that the move named in its deps, and what those left behind themselves."""
        for number in item.task.deps:
            if number not in self._needs[item.task.number]:
                yield number
                if number in self._hoists:
                    yield from self._left_behind(self._hoists[number])

    def _tie_users(self, item: Hoist, names: list[str], ties: dict[int, list[str]]) -> None:
        """Let those that wait for the move, behind it in its list and the lists inside, wait for all of these."""
        place = self._places[id(item.task.node)]
        inner = self._loops[item.loops[-1].number]
        for statement, _ in walk(replace(self._document, statements=inner.body)):
            if not isinstance(statement, nodes.Task | nodes.Wait) or self._places[id(statement)] <= place:
                continue
            used = statement.deps if isinstance(statement, nodes.Task) else statement.tokens
            if any(name.id == item.task.token for name in used):
                known = ties.get(id(statement), [name.id for name in used])
                tied = [one for name in known for one in (names if name == item.task.token else [name])]
                ties[id(statement)] = list(dict.fromkeys(tied))
                self._edits.tie(statement, tuple(map(nodes.Name, ties[id(statement)])))


def _fixed_decorators(item: Hoist) -> tuple[nodes.Decorator, ...]:
    """The decorators of a move without a unit that changes from iteration to iteration."""
    resource = item.task.resource
    left = {loop.number for loop in item.loops}
    if resource is None or not left & resource.index.loops():
        return item.task.node.decorators
    return tuple(decorator for decorator in item.task.node.decorators if decorator.name != "resource")


# --- names --------------------------------------------------------------------------------------------------


_Using: TypeAlias = nodes.Operand | nodes.RegionDef | nodes.Let | nodes.Decorator


class _LoopNames:
    """The names that the lists of some loops declare, seen from a statement that leaves them."""

    def __init__(
        self, path: list[nodes.Loop], declared: Mapping[str, int], levels: Mapping[str, str]
    ) -> None:
        self._declared, self._levels = declared, levels
        self._scope: dict[str, nodes.Statement] = {loop.variable.id: loop for loop in path}
        for loop in path:
            self._scope.update((name.id, item) for item in loop.body for name in declared_names(item))

    def outside(self, operand: nodes.Operand) -> nodes.Operand:
        """An operand as it stands outside: a region that cannot move there is written in place, as bytes."""
        known = self._scope.get(operand.value.id) if isinstance(operand.value, nodes.Name) else None
        if not isinstance(known, nodes.RegionDef) or self._may_move(known):
            return operand
        decorators = {item.name: item for item in (*known.decorators, *operand.decorators)}
        return nodes.Operand(replace(known.region, type=None), tuple(decorators.values()))

    def _may_move(self, statement: nodes.RegionDef) -> bool:
        inside = statement.region.type is None or self._levels[statement.region.buffer.id] == "L1"
        return inside and self._declared[statement.name.id] == 1

    def follow(self, task: nodes.Task) -> list[nodes.RegionDef | nodes.Let] | None:
        """The declarations that a task needs outside; None where it needs what cannot be there."""
        found: dict[int, nodes.RegionDef | nodes.Let] = {}
        parts: list[_Using] = [*task.inputs, *task.outputs, *task.decorators]
        todo = [name for part in parts for name in _used(part)]
        while todo:
            name = todo.pop()
            statement = self._scope.get(name.id)
            if statement is None or id(statement) in found:
                continue
            if not isinstance(statement, nodes.RegionDef | nodes.Let) or self._declared[name.id] > 1:
                return None
            found[id(statement)] = statement
            todo += _used(statement)
        return list(found.values())


def _used(part: _Using) -> Iterator[nodes.Name]:
    """The names that a part looks up: not the layout and element type of regions, not the words of notes."""
    if isinstance(part, nodes.Decorator):
        if part.name not in NOTE_DECORATORS:
            yield from names_in(part.arguments)
        return
    value = part.region if isinstance(part, nodes.RegionDef) else part.value
    if isinstance(value, nodes.Region):
        type_ = value.type
        yield from names_in((value.offset, value.extent))
        if type_ is not None:
            yield from names_in((type_.shape, type_.strides, type_.quant))
    else:
        yield from names_in(value)
