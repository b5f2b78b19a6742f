"""Whether accesses and views stay inside: proved, refuted by a counter-example, or not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TypeVar

from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.lang.tensor.check.memory.forms.affine import ONE, ZERO, Affine
from lamella.lang.tensor.check.memory.forms.symbols import FREE, GROUP, RANGED, Symbols
from lamella.lang.tensor.check.memory.state import MemoryState, MemrefGroup, MemrefView
from lamella.lang.tensor.nodes import (
    Blas,
    CoopLoad,
    Coopmatrix,
    CoopStore,
    Expand,
    Fuse,
    IndexOrSize,
    Slice,
    Subview,
    Value,
)
from lamella.lang.tensor.rules import memory as rules
from lamella.lang.tensor.rules import running

# --- counter-examples: work-items and trips of loops for which a form is less than 0 although it ------------


MOST_TRIES = 12


@dataclass(frozen=True, slots=True)
class Violation:
    """A choice of trips and work-items; certain where they are executed in every launch."""

    values: tuple[tuple[int, Affine], ...]
    """Values of symbols, the newest first; each may speak of older symbols."""
    certain: bool

    def apply(self, form: Affine) -> Affine:
        """A form at these values."""
        for symbol, value in self.values:
            form = form.replace(symbol, value)
        return form


def find_violation(state: MemoryState, form: Affine) -> Violation | None:
    """Values for which a form is less than 0; a doubtful one is preferred to none, a certain one to both."""
    doubtful = None
    for values in _assignments(state, form):
        tried = Violation(values, False)
        if not state.symbols.refutes(tried.apply(form), assuming=False):
            continue
        certain = _executes(state, tried)
        if certain:
            return Violation(values, True)
        if certain is not None and doubtful is None:
            doubtful = tried
    return doubtful


def _assignments(state: MemoryState, form: Affine) -> Iterator[tuple[tuple[int, Affine], ...]]:
    """Choices of trips and work-items, those first for which the form is least."""
    waiting: list[tuple[Affine, tuple[tuple[int, Affine], ...], frozenset[int]]] = [(form, (), frozenset())]
    others = _choosable(state)
    for _ in range(8 * MOST_TRIES):
        if not waiting:
            return
        rest, values, done = waiting.pop(0)
        # The newest first: its range may speak of older symbols, which are replaced after it.
        symbol = max((item for item in others - done), default=None)
        if symbol is None:
            yield values
            continue
        for value in _values(state.symbols, rest, symbol):
            waiting.append((rest.replace(symbol, value), (*values, (symbol, value)), done | {symbol}))
        del waiting[MOST_TRIES:]


def _choosable(state: MemoryState) -> set[int]:
    """The symbols that a counter-example chooses: work-items, trips and, of a launch, work-groups."""
    groups = state.builtins.get("group_id", ZERO).symbols if state.launch is not None else frozenset()
    return {*groups, *state.item_symbols(), *(trip for trip in state.trips() if trip is not None)}


def _values(symbols: Symbols, form: Affine, number: int) -> list[Affine]:
    """Values of a symbol at which the form is least: the ends of its range, and where conditions end.

    Of trips without a known last one, the first is all that is known.
    """
    symbol = symbols.table[number]
    if symbol.kind != RANGED:
        return [symbol.first]
    wanted = form.coefficient(number)
    ends = [symbol.last, symbol.first] if wanted < 0 else [symbol.first, symbol.last]
    for fact in symbols.assumed_about(number)[:4]:
        if abs(fact.coefficient(number)) == 1:
            rest = fact.without(number)
            ends.append(rest.times(-fact.coefficient(number)))
    return list(dict.fromkeys(ends if wanted else ends[:1] + ends[2:]))


def _executes(state: MemoryState, tried: Violation) -> bool | None:
    """Whether the statement is executed for certain (True), for some launch (False), or nobody knows (None)."""
    symbols = state.symbols
    needed = [form for loop in state.loops for form in loop.needed]
    for number in _choosable(state):
        symbol, value = symbols.table[number], Affine(0, ((number, 1),))
        if symbol.kind == RANGED:
            needed += [value - symbol.first, symbol.last - value]
    for guard in state.guards:
        needed += guard.facts.forms
        if not guard.facts.exact and not guard.parameter:
            return None
    parameters = {guard.parameter for guard in state.guards if guard.parameter}
    if any("!" + name in parameters for name in parameters):
        return None
    at_values = [tried.apply(form) for form in needed]
    unproved = [form for form in at_values if not symbols.proves(form, assuming=False)]
    if not unproved:
        return not parameters
    return False if _can_hold(symbols, unproved) else None


def _can_hold(symbols: Symbols, forms: list[Affine]) -> bool:
    """Whether whoever launches the kernel can make all forms 0 or more: they are of different symbols, all free."""
    seen: set[int] = set()
    for form in dict.fromkeys(forms):
        high = symbols.interval(form)[1]
        if any(symbols.table[item].kind != FREE for item in form.symbols) or (high is not None and high < 0):
            return False
        if seen & form.symbols:
            return False
        seen |= form.symbols
    return True


SHOWN = 3


@dataclass(frozen=True, slots=True)
class Position:
    """What an access takes of one mode: the first and the last position, and how many there are."""

    what: str
    first: Affine
    last: Affine
    size: Affine
    least: int = 0
    """The least that the first position may be."""

    @property
    def needed(self) -> tuple[Affine, Affine]:
        """What has to be 0 or more."""
        return self.first - Affine(self.least), self.size - ONE - self.last


@dataclass(frozen=True, slots=True)
class AccessSite:
    """Where findings are: the function, the statement, the memref."""

    function: str
    span: Span
    name: str


def positions_of_indices(
    state: MemoryState, memory: MemrefView | MemrefGroup, indices: tuple[Value, ...]
) -> list[Position]:
    """What a load or a store takes."""
    sizes = memory.sizes if isinstance(memory, MemrefView) else (memory.size,)
    found = []
    for mode, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        form = state.form(index)
        found.append(Position(f"index {_spell(index)} of mode {mode}", form, form, size))
    return found


def _spell(item: IndexOrSize) -> str:
    return str(item) if isinstance(item, int) else f"%{item.name}"


def positions_of_slices(state: MemoryState, view: MemrefView, item: Subview) -> Iterator[Position]:
    """What a view takes; what is written in the program has been checked already."""
    for mode, (part, size) in enumerate(zip(item.slices, view.sizes, strict=True)):
        first, count = state.form(part.offset), ONE if part.size == 0 else state.form(part.size)
        if state.launch is not None or not _is_written(part, view.type.shape[mode]):
            yield Position(f"slice {_spell_slice(part)} of mode {mode}", first, first + count - ONE, size)
        if isinstance(part.size, Value):
            yield Position(
                f"the size of slice {_spell_slice(part)} of mode {mode}", count, count - ONE, size, 1
            )


def _is_written(part: Slice, bound: int | None) -> bool:
    written = isinstance(part.offset, int) and isinstance(part.size, int)
    if bound is None:
        return False
    offset = part.offset if isinstance(part.offset, int) else 0
    size = part.size if isinstance(part.size, int) else 1
    return written or offset + (size or 1) > bound


def _spell_slice(part: Slice) -> str:
    return _spell(part.offset) if part.size == 0 else f"{_spell(part.offset)}:{_spell(part.size)}"


def positions_of_matrix(
    state: MemoryState, view: MemrefView, item: CoopLoad | CoopStore, matrix: Coopmatrix
) -> Iterator[Position]:
    """What a cooperative access takes of the modes that no flag leaves unchecked; a packed one has three."""
    counts = [matrix.rows, matrix.columns]
    checked = [item.checked in ("rows", "both"), item.checked in ("cols", "both")]
    if isinstance(item, CoopLoad) and item.transposed:
        counts.reverse()
        checked.reverse()
    sizes = list(view.sizes)
    if len(sizes) == 3:
        sizes = [sizes[1], sizes[2].times(view.type.shape[0] or 1)]
    starts = (item.row, item.column)
    for mode, (start, count, size, left_out) in enumerate(zip(starts, counts, sizes, checked, strict=True)):
        if not left_out:
            first = state.form(start)
            what = f"block {_spell(start)}:{count} of mode {mode + len(view.sizes) - 2}"
            yield Position(what, first, first + Affine(count - 1), size)


def check_pack(state: MemoryState, place: AccessSite, view: MemrefView, item: CoopLoad | CoopStore) -> None:
    """Prove that a packed access begins with the first element of a pack, or report what is known of that."""
    pack = view.type.shape[0] if len(view.sizes) == 3 else 1
    if state.dead or not pack:
        return
    column = state.form(item.column)
    if all(number % pack == 0 for number in (column.constant, *(factor for _, factor in column.terms))):
        return
    state.leave_open()
    if not column.terms and _is_executed(state):
        rule = running.PACKED_POSITION
        state.report(rule.at(place.span, column=column.constant, name=place.name, pack=pack, place=""))
        return
    what, stays = f"packed column {_spell(item.column)}", f"is a multiple of {pack}"
    unknown = _unknown(state, column)
    state.report(
        rules.UNPROVED.at(
            place.span, hint=None, labels=(), what=what, name=place.name, stays=stays, unknown=unknown
        )
    )


def check_positions(state: MemoryState, place: AccessSite, positions: list[Position]) -> None:
    """Prove that positions lie inside, or report the worst that is known of them."""
    if state.dead:
        return
    # One finding for an access: what is certain, else what can happen, else what is not proved.
    unproved = []
    is_proved = True
    doubtful: tuple[Position, Affine, Violation] | None = None
    for position in positions:
        for form in position.needed:
            if state.symbols.proves(form):
                continue
            if is_proved:
                is_proved = False
                state.leave_open()
            found = find_violation(state, form)
            if found is None:
                unproved.append((position, form))
            elif found.certain:
                _report(state, place, (position, form, found))
                return
            else:
                doubtful = doubtful or (position, form, found)
    if doubtful is not None:
        _report(state, place, doubtful)
    elif unproved:
        _note(state, place, unproved)


def _report(state: MemoryState, place: AccessSite, found: tuple[Position, Affine, Violation]) -> None:
    position, form, violation = found
    reached = position.first if form == position.needed[0] else position.last
    words = {
        "what": position.what,
        "name": place.name,
        "value": _show(state, violation.apply(reached)),
        "example": _example(state, form, violation),
        "size": show_size(state, violation.apply(position.size)),
    }
    rule = rules.LEAVES if violation.certain else rules.CAN_LEAVE
    state.report(rule.at(place.span, hint=None, labels=(), **words))


def show_size(state: MemoryState, size: Affine) -> str:
    """How many elements a mode has, in words."""
    return "1 element" if size == ONE else f"{_show(state, size)} elements"


def _show(state: MemoryState, form: Affine) -> str:
    text = state.symbols.show(form)
    return f"'{text}'" if form.terms else text


def _example(state: MemoryState, form: Affine, violation: Violation) -> str:
    """The values of the variables on which a form depends."""
    parts = []
    for number in sorted(form.symbols):
        symbol = state.symbols.table[number]
        if symbol.kind == RANGED:
            shown = Affine(0, ((number, 1),)) if symbol.shown is None else symbol.shown
            parts.append(f"{symbol.name}={state.symbols.show(violation.apply(shown))}")
    return f" (with {', '.join(parts)})" if parts else ""


def _note(state: MemoryState, place: AccessSite, unproved: list[tuple[Position, Affine]]) -> None:
    if state.launch is None and all(_is_up_to_launch(state, form) for _, form in unproved):
        if not state.told_of_groups:
            state.told_of_groups = True
            state.report(rules.UP_TO_LAUNCH.at(place.span, function=place.function, name=place.name))
        return
    position, form = unproved[0]
    below = form == position.needed[0] and (position, position.needed[1]) not in unproved
    stays = f"is {position.least} or more" if below else f"stays inside {show_size(state, position.size)}"
    unknown = _unknown(state, position.needed[0] if below else position.needed[1])
    words = {"what": position.what, "name": place.name, "stays": stays, "unknown": unknown}
    state.report(rules.UNPROVED.at(place.span, hint=None, labels=(), **words))


def _unknown(state: MemoryState, form: Affine) -> str:
    """What is not known of a form: its symbols, a variable by what it runs to."""
    names: dict[str, None] = {}
    for number in sorted(form.symbols):
        symbol = state.symbols.table[number]
        ends = sorted(symbol.last.symbols) if symbol.kind == RANGED else [number]
        names.update(dict.fromkeys(state.symbols.table[item].name for item in ends))
    listed = ", ".join([name for name in names if name][:SHOWN])
    return f" for every {listed}" if listed else ""


def _is_up_to_launch(state: MemoryState, form: Affine) -> bool:
    """Whether nothing is open but how many work-groups are launched on memory of which size."""
    symbols = [state.symbols.table[number] for number in form.symbols]
    sizes = [symbol for symbol in symbols if symbol.kind == FREE and not symbol.name.startswith("%")]
    known = sum(symbol.kind in (GROUP, RANGED) for symbol in symbols) + len(sizes)
    return known == len(symbols) and any(symbol.name == "group_id" for symbol in symbols)


def check_expansion(state: MemoryState, place: AccessSite, view: MemrefView, item: Expand) -> None:
    """New sizes that are known to make another size than the mode has."""
    factors = [state.form(size) for size in item.sizes]
    size = view.sizes[item.mode]
    if state.launch is not None:
        _prove_expansion(state, place, item, size, factors)
        return
    if size.terms or any(factor.terms for factor in factors) or all(isinstance(i, int) for i in item.sizes):
        return
    product = prod(factor.constant for factor in factors)
    if product != size.constant:
        words = {"mode": item.mode, "size": show_size(state, size), "product": product}
        state.report(rules.WRONG_EXPANSION.at(place.span, hint=None, labels=(), name=place.name, **words))


def _prove_expansion(
    state: MemoryState, place: AccessSite, item: Expand, size: Affine, factors: Sequence[Affine]
) -> None:
    """Leave an expanded mode of a launch open whose new sizes are not seen to make the old one."""
    known = not size.terms and not any(factor.terms for factor in factors)
    sizes = [factor.constant for factor in factors]
    if known and min(sizes) >= 0 and prod(sizes) == size.constant:
        return
    state.leave_open()
    if known and _is_executed(state):
        words = {
            "mode": item.mode,
            "name": place.name,
            "size": size.constant,
            "sizes": "x".join(map(str, sizes)),
        }
        state.report(running.WRONG_EXPANSION.at(place.span, hint=None, labels=(), place="", **words))


def _is_executed(state: MemoryState) -> bool:
    """Whether the statement at hand is executed for certain."""
    found = find_violation(state, Affine(-1))
    return found is not None and found.certain


def check_fusion(state: MemoryState, view: MemrefView, item: Fuse) -> None:
    """Leave a launch to the interpreter whose modes are not seen to lie one behind the other: no test could tell."""
    for mode in range(item.first, item.last):
        stride, size, following = view.strides[mode], view.sizes[mode], view.strides[mode + 1]
        if (
            stride is None
            or (stride.terms and size.terms)
            or (stride.times(size.constant) if not size.terms else size.times(stride.constant)) != following
        ):
            state.give_up()


def check_shapes(state: MemoryState, place: AccessSite, item: Blas, views: Sequence[MemrefView]) -> None:
    """Leave a collective instruction of a launch open whose shapes are not seen to agree."""
    pairs = shape_pairs(item, [view.sizes for view in views])
    open_ = [
        (one, other)
        for one, other in pairs
        if not (state.symbols.proves(one - other) and state.symbols.proves(other - one))
    ]
    if open_:
        state.leave_open()
    if any(one.terms == other.terms for one, other in open_) and _is_executed(state):
        shapes = [[state.symbols.show(size) for size in view.sizes] for view in views]
        words = {"function": item.function, "shapes": show_shapes(item, shapes)}
        state.report(running.SHAPES_DISAGREE.at(place.span, hint=None, labels=(), place="", **words))


def show_shapes(item: Blas, shapes: Sequence[Sequence[object]]) -> str:
    """The shapes of a collective instruction as it sees them, transposed where it says so."""
    names, flags = "ABC" if len(shapes) == 3 else "AB", (*item.transposes, *[False] * len(shapes))
    seen = [shape[::-1] if flag else shape for shape, flag in zip(shapes, flags, strict=False)]
    parts = ("x".join(map(str, shape)) or "scalar" for shape in seen)
    return ", ".join(f"{name}={part}" for name, part in zip(names, parts, strict=True))


Part = TypeVar("Part")


def shape_pairs(item: Blas, shapes: Sequence[Sequence[Part]]) -> list[tuple[Part, Part]]:
    """The sizes that must be equal for a collective instruction, of the shapes of its memrefs with the result last."""
    *sources, result = shapes
    flags = (*item.transposes, *[False] * len(sources))
    seen = [shape[::-1] if flag else shape for shape, flag in zip(sources, flags, strict=False)]
    first, second = seen[0], seen[-1]
    wanted: dict[str, tuple[Sequence[Part], Sequence[Part]]] = {
        "axpby": (first, result),
        "cumsum": (first, result),
        "sum": (first[:-1], result),
        "gemm": ((*first, *second[1:]), (result[0], second[0], *result[1:]))
        if item.function == "gemm"
        else ((), ()),
        "gemv": ((*first[:1], *first[1:]), (*result, *second)),
        "ger": ((*first, *second), result),
        "hadamard": ((*first, *second), (*result, *result)),
    }
    return list(zip(*wanted[item.function], strict=True))
