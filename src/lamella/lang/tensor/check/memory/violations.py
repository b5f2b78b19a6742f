"""Counter-examples: work-items and trips of loops for which a form is less than 0 although it should not be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamella.lang.tensor.check.memory.forms.affine import ZERO, Affine
from lamella.lang.tensor.check.memory.forms.symbols import FREE, RANGED, Symbols
from lamella.lang.tensor.check.memory.state import State

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


def find_violation(state: State, form: Affine) -> Violation | None:
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


def _assignments(state: State, form: Affine) -> Iterator[tuple[tuple[int, Affine], ...]]:
    """Choices of trips and work-items, those first for which the form is least."""
    waiting: list[tuple[Affine, tuple[tuple[int, Affine], ...], frozenset[int]]] = [(form, (), frozenset())]
    others = _choosable(state)
    for _ in range(8 * MOST_TRIES):
        if not waiting:
            return
        rest, values, done = waiting.pop(0)
        symbol = max((item for item in others - done), default=None)
        if symbol is None:
            yield values
            continue
        for value in _values(state.symbols, rest, symbol):
            waiting.append((rest.replace(symbol, value), (*values, (symbol, value)), done | {symbol}))
        del waiting[MOST_TRIES:]


def _choosable(state: State) -> set[int]:
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


def _executes(state: State, tried: Violation) -> bool | None:
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
