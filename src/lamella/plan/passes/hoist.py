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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nem import nodes
from lamella.lang.nem.resolve.scope import declared_names
from lamella.lang.nem.resolved import Plan
from lamella.lang.nem.words import NOTE_DECORATORS
from lamella.plan.passes.invariant import Hoist, Precedence, find_invariant, waited_for
from lamella.plan.passes.rewrite import Edits, declared_in, loops_of, names_in, walk


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
        names = _Names(path, self._declared, self._levels)
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


class _Names:
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
