"""What is proved of a program's memory: bounds, races, aliases, local memory that is written before it is read.

A position is an affine form over loop trips, work-items and sizes, bounded by the loops and conditions around it. What
is proved is silent, what has a counter-example is an error or a warning, what is not known is a note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from lamella.base.diagnostic import ERROR, Diagnostic
from lamella.base.records import dataclass
from lamella.lang.tensor.check.memory.bounds import shape_pairs, show_shapes
from lamella.lang.tensor.check.memory.forms.affine import ONE, ZERO, Affine
from lamella.lang.tensor.check.memory.forms.integers import type_range
from lamella.lang.tensor.check.memory.forms.symbols import NOBODY, RANGED, UNKNOWN, Symbol
from lamella.lang.tensor.check.memory.scalars import MOST_ITEMS, evaluate_scalar, unknown_value
from lamella.lang.tensor.check.memory.state import (
    AbstractValue,
    ConditionFacts,
    ConditionGuard,
    KnownCondition,
    KnownScalar,
    Launch,
    MemoryState,
    OpenLoop,
    SpmdRegion,
    SubgroupSizes,
)
from lamella.lang.tensor.check.memory.statements import MemoryStatements
from lamella.lang.tensor.extensions import lower_extensions
from lamella.lang.tensor.nodes import (
    Arith,
    Builtin,
    Cast,
    Compare,
    Constant,
    For,
    Foreach,
    Function,
    If,
    Math,
    Parallel,
    Region,
    Scalar,
    Statement,
    Type,
    Value,
    Yield,
)
from lamella.lang.tensor.rules import memory as rules
from lamella.lang.tensor.rules import running

# --- the walk over a function that follows what is known of its values; without recursion, each -------------


MOST_NARROW = (1 << 31) - 1
"""The largest number of the types whose loops over work-items are counted in a wider one."""


@dataclass(slots=True)
class WalkedRegion:
    """A region that is being walked, and what is done when it begins and ends."""

    region: Region
    enter: Callable[[], None]
    leave: Callable[[list[AbstractValue]], None]
    next: int = -1
    yielded: list[AbstractValue] = field(default_factory=list)


class MemoryWalk:
    """Visits the statements of a function in order."""

    def __init__(self, function: Function, sizes: SubgroupSizes, launch: Launch | None = None) -> None:
        self.state = MemoryState(sizes, launch=launch)
        self._statements = MemoryStatements(self.state, function)
        self._frames: list[WalkedRegion] = []
        self._guards = 0

    def run(self, region: Region) -> list[Diagnostic]:
        """Walk a region and those inside it."""
        self._frames.append(WalkedRegion(region, lambda: None, lambda _: None))
        while self._frames:
            frame = self._frames[-1]
            if frame.next < 0:
                self.state.depth += 1
                frame.enter()
            frame.next += 1
            if frame.next < len(frame.region.statements):
                self._visit(frame, frame.region.statements[frame.next])
            else:
                self._frames.pop()
                self.state.depth -= 1
                frame.leave(frame.yielded)
        return [*self.state.findings, *self._statements.local.findings()]

    def _visit(self, frame: WalkedRegion, statement: Statement) -> None:
        state, item = self.state, statement.instruction
        state.position += 1
        state.current = statement
        match item:
            case Constant() | Arith() | Compare() | Math() | Cast() | Builtin():
                self._bind(statement, evaluate_scalar(state, item))
            case Yield(values=values):
                known = (state.values.get(value.name) for value in values)
                frame.yielded = [KnownScalar() if value is None else value for value in known]
            case For():
                self._enter_for(statement, item)
            case If():
                self._enter_if(statement, item)
            case Foreach():
                self._enter_foreach(item)
            case Parallel(body=body):
                self._frames.append(WalkedRegion(body, self._begin_parallel, lambda _: self._end_spmd()))
            case _:
                self._statements.visit(statement)

    def _bind(self, statement: Statement, known: AbstractValue) -> None:
        """Name a result."""
        for value in statement.results[:1]:
            self.state.values[value.name] = known
            if isinstance(known, KnownScalar) and known.form is not None:
                self.state.symbols.name(known.form, f"%{value.name}")

    # --- loops ----------------------------------------------------------------------------------------------

    def _enter_for(self, statement: Statement, loop: For) -> None:
        begin, end = self.state.form(loop.begin), self.state.form(loop.end)
        step = ONE if loop.step is None else self.state.form(loop.step)
        depends = self.state.symbols.depends((begin, end, step))
        starts = [self._known(start) for _, start in loop.carried]
        around = OpenLoop([], depends, (end - ONE - begin,), 0, 0)

        def enter() -> None:
            self._open_loop(around)
            around.trips.append(self._define_trip(loop.variable, (begin, end, step), loop.type.name))
            # Carried values change from trip to trip: of them the type alone is known inside.
            for (value, _), start, type_ in zip(loop.carried, starts, loop.types, strict=True):
                depends = self.state.depends_of(start)
                self.state.values[value.name] = unknown_value(self.state, type_, depends, f"%{value.name}")

        def leave(yielded: list[AbstractValue]) -> None:
            self._close_loop(around)
            self._define_results(statement, loop.types, [starts, yielded], depends)

        self._frames.append(WalkedRegion(loop.body, enter, leave))

    def _known(self, value: Value) -> AbstractValue:
        return self.state.values.get(value.name, KnownScalar())

    def _open_loop(self, loop: OpenLoop) -> None:
        loop.start, loop.depth = self.state.position, self.state.depth
        loop.dead = self._is_never(loop.needed)
        self.state.dead += loop.dead
        self.state.loops.append(loop)

    def _close_loop(self, loop: OpenLoop) -> None:
        loop.end = self.state.position
        self.state.loops.pop()
        self.state.dead -= loop.dead

    def _is_never(self, needed: tuple[Affine, ...]) -> bool:
        """Whether a region is never executed, because what it needs is never so."""
        return any(self.state.symbols.refutes(form) for form in needed)

    def _define_trip(
        self, variable: Value, bounds: tuple[Affine, Affine, Affine], type_: str, itself: bool = False
    ) -> int | None:
        """Make the variable of a loop `begin + step * trip`; the trip is None where steps are not known."""
        state, (begin, end, step) = self.state, bounds
        name, depends = f"%{variable.name}", state.symbols.depends(bounds)
        wraps = self._wraps(bounds, type_range(type_)[1], itself)
        if step.terms or step.constant < 1 or wraps:
            self._define_stepping(variable, bounds, type_, wraps)
            return None
        number = len(state.symbols.table)
        trip = Affine(0, ((number, 1),))
        fact = (end - ONE - begin).plus(trip, -step.constant).tightened()
        # The fact was divided by its common factor; the last trip is exact only where that leaves the trip alone.
        exact = fact.coefficient(number) == -1
        high = state.symbols.interval(end - ONE - begin)[1]
        most = None if high is None else max(0, high) // step.constant
        own = frozenset((number,)) if itself else depends
        shown = begin.plus(trip, step.constant)
        last = fact.without(number) if exact else ZERO
        kind = RANGED if exact else UNKNOWN
        state.symbols.add(Symbol(name, kind, 0, most, ZERO, last, depends=own, shown=shown))
        state.symbols.state(fact)
        state.values[variable.name] = KnownScalar(shown, own | depends)
        return number

    def _wraps(self, bounds: tuple[Affine, Affine, Affine], most: int, spread: bool) -> bool:
        """Whether a loop may pass the largest number of its type; of a launch that must be seen not to be so.

        A foreach is spread over work-items, so that its variable is computed up to a work-group beyond its end.
        """
        _, end, step = bounds
        is_counted = not spread and not any(form.terms for form in bounds)
        if self.state.launch is None or is_counted:
            return _may_wrap(bounds, most)
        beyond = Affine(MOST_ITEMS) if spread and most > MOST_NARROW else step - ONE
        return not self.state.symbols.proves(Affine(most) - end - beyond, assuming=False)

    def _define_stepping(
        self, variable: Value, bounds: tuple[Affine, Affine, Affine], type_: str, wraps: bool
    ) -> None:
        """A variable whose steps are not known: it is less than the end, and not before the beginning if it grows."""
        state, (begin, end, step) = self.state, bounds
        form = state.integers.unknown(type_, state.symbols.depends(bounds), f"%{variable.name}")
        state.symbols.state(end - ONE - form)
        if not wraps and state.symbols.proves(step - ONE, assuming=False):
            state.symbols.state(form - begin)
        grows = state.symbols.proves(step - ONE)
        if wraps or not grows:
            most = type_range(type_)[1]
            why = f"it may step past {most}" if grows else "its step may be less than 1"
            state.report(rules.MAY_NOT_END.at(variable.span, name=variable.name, why=why))
        state.values[variable.name] = KnownScalar(form, state.symbols.depends([form]))

    def _enter_foreach(self, loop: Foreach) -> None:
        pairs = [
            (self.state.form(a), self.state.form(b)) for a, b in zip(loop.begins, loop.ends, strict=True)
        ]
        around = OpenLoop([], NOBODY, tuple(end - ONE - begin for begin, end in pairs), 0, 0)

        def enter() -> None:
            self._open_loop(around)
            for variable, (begin, end) in zip(loop.variables, pairs, strict=True):
                around.trips.append(self._define_trip(variable, (begin, end, ONE), loop.type.name, True))
            items = [trip for trip in around.trips if trip is not None]
            self.state.spmd = SpmdRegion(items, True, len(self.state.guards))

        def leave(_: list[AbstractValue]) -> None:
            self._close_loop(around)
            self._end_spmd()

        self._frames.append(WalkedRegion(loop.body, enter, leave))

    def _begin_parallel(self) -> None:
        state = self.state
        for name in ("subgroup_id", "subgroup_local_id"):
            evaluate_scalar(state, Builtin(name, Scalar("i32")))
        state.spmd = SpmdRegion(state.item_symbols(), False, len(state.guards))

    def _end_spmd(self) -> None:
        self.state.spmd = None

    # --- conditions -----------------------------------------------------------------------------------------

    def _enter_if(self, statement: Statement, choice: If) -> None:
        known = self.state.values.get(choice.condition.name)
        condition = known if isinstance(known, KnownCondition) else KnownCondition()
        results: list[list[AbstractValue]] = []
        frames = [self._branch(choice.then, condition.holds, (condition, condition.parameter), results)]
        if choice.otherwise is not None:
            opposite = "!" + condition.parameter if condition.parameter else ""
            frames.append(self._branch(choice.otherwise, condition.fails, (condition, opposite), results))
        last, ending = frames[-1], frames[-1].leave

        def leave(yielded: list[AbstractValue]) -> None:
            ending(yielded)
            self._define_results(statement, choice.types, results, condition.depends, len(frames) == 2)

        last.leave = leave
        self._frames += reversed(frames)

    def _branch(
        self,
        region: Region,
        facts: ConditionFacts,
        decided: tuple[KnownCondition, str],
        results: list[list[AbstractValue]],
    ) -> WalkedRegion:
        state, (condition, parameter) = self.state, decided

        never = False

        def enter() -> None:
            nonlocal never
            self._guards += 1
            never = self._is_never(facts.forms)
            state.dead += never
            state.guards.append(ConditionGuard(self._guards, facts, condition.depends, parameter))
            for form in facts.forms:
                state.symbols.assume(form)

        def leave(yielded: list[AbstractValue]) -> None:
            state.guards.pop()
            for _ in facts.forms:
                state.symbols.retract()
            state.dead -= never
            results.append(yielded)

        return WalkedRegion(region, enter, leave)

    def _define_results(
        self,
        statement: Statement,
        types: tuple[Type, ...],
        sources: list[list[AbstractValue]],
        depends: frozenset[int],
        one_of_them: bool = False,
    ) -> None:
        """Name the results of a for or an if: what its regions yield, one of several values."""
        state = self.state
        for position, (value, type_) in enumerate(zip(statement.results, types, strict=False)):
            known = [source[position] for source in sources if position < len(source)]
            everybody = depends.union(*(state.depends_of(item) for item in known))
            forms = tuple(
                item.form for item in known if isinstance(item, KnownScalar) and item.form is not None
            )
            if one_of_them and forms and len(forms) == len(sources):
                state.values[value.name] = KnownScalar(state.integers.choice(forms, everybody), everybody)
            else:
                state.values[value.name] = unknown_value(state, type_, everybody, f"%{value.name}")


def _may_wrap(bounds: tuple[Affine, Affine, Affine], most: int) -> bool:
    """Whether a loop with a known end may pass the largest number of its type instead of reaching the end."""
    begin, end, step = bounds
    if end.terms:
        return False
    if begin.terms or step.terms or step.constant < 1:
        return end.constant - 1 + step.constant > most
    # ceil((end - begin) / step), as the trips leave the loop at the first value that is not below the end.
    trips = max(0, -((begin.constant - end.constant) // step.constant))
    return begin.constant + trips * step.constant > most


__all__ = ["Launch", "Proof", "SubgroupSizes", "check_memory", "prove_launch", "shape_pairs", "show_shapes"]

_ACCESSES = (rules.LEAVES, rules.CAN_LEAVE, rules.UNPROVED)
ACCESSES = frozenset(rule.code for rule in (*_ACCESSES, running.SHAPES_DISAGREE, running.WRONG_EXPANSION))


def check_memory(function: Function) -> list[Diagnostic]:
    """What is wrong or doubtful with the memory of a function that has no errors."""
    function = lower_extensions(function)
    return MemoryWalk(function, _sizes(function)).run(function.body)


@dataclass(frozen=True, slots=True)
class Proof:
    """What is proved of the accesses of a launch."""

    wrong: tuple[Diagnostic, ...]
    """Accesses that leave their memory for certain."""
    doubts: tuple[Diagnostic, ...]
    """Accesses of which it is not known, in words."""
    open: tuple[Statement, ...]
    """The statements that are not proved to stay inside their memory."""
    opaque: bool
    """Whether something cannot be followed, so that only the interpreter can run it."""

    @property
    def is_complete(self) -> bool:
        """Whether no access leaves its memory, whatever the data are."""
        return not self.open and not self.opaque


def prove_launch(function: Function, sizes: SubgroupSizes, launch: Launch) -> Proof:
    """Prove the accesses of a function whose types have the sizes and strides of a launch; no integer is too large."""
    walk = MemoryWalk(function, sizes, launch)
    findings = [item for item in walk.run(function.body) if item.code in ACCESSES]
    wrong = tuple(item for item in findings if item.severity == ERROR)
    doubts = tuple(item for item in findings if item.severity != ERROR)
    return Proof(wrong, doubts, tuple(walk.state.open.values()), walk.state.opaque)


def _sizes(function: Function) -> SubgroupSizes:
    attributes = function.attributes
    if attributes is None:
        return SubgroupSizes(least=2)
    subgroup, whole = attributes.find("subgroup_size"), attributes.find("work_group_size")
    size = subgroup if isinstance(subgroup, int) else None
    items = [item for item in whole if isinstance(item, int)] if isinstance(whole, tuple) else []
    if len(items) != 2:
        return SubgroupSizes(size, None, 1 if whole is not None else 2)
    return SubgroupSizes(size, None if size is None else items[0] // size * items[1])
