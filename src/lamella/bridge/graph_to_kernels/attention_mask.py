"""Masks of attention (causal, sliding window) as bounds of the keys: what a mask hides is not read.

A row that is `j <= p ? f(s[j]) : -inf`, its maximum, `exp` of the difference and their sum are the same without the
keys behind `p`: those give -inf to a maximum, and 0 to a sum and to the mixture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from lamella.base.affine import Affine
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.contraction import ASSIGNMENTS
from lamella.ops.formula import Apply, Contraction, Element, Index
from lamella.ops.formula import Scalar as Term

NEUTRAL = {">=": -inf, "+=": 0.0}
"""What changes nothing in a reduction."""


@dataclass(frozen=True, slots=True)
class KeyBound:
    """A bound of the keys: a form over the loops of the scores, plus the values of some scalar tensors."""

    form: Form
    scalars: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VisibleKeys:
    """The keys that a query sees: the last one, and the first where there is a window."""

    last: KeyBound
    first: KeyBound | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    """A formula over rows of scores, with its loops in those of the scores."""

    formula: Contraction
    loops: Mapping[str, Form]
    key: str


def find_visible(
    rows: Sequence[tuple[Contraction, Mapping[str, Form]]], key: str, weights: str
) -> VisibleKeys | None:
    """The visible keys of rows of scores; None where all may count. `weights` are what the values are mixed with."""
    found: VisibleKeys | None = None
    masked: dict[str, float] = {}
    for formula, loops in rows:
        own = next((name for name, form in loops.items() if form.coefficient(key)), None)
        if own is None:
            continue
        reading = _Masking(_Row(formula, loops, own), masked)
        value = reading.value(formula.values[0])
        if value is None or (reading.visible is not None and found not in (None, reading.visible)):
            return None
        found = reading.visible or found
        if formula.sign in ASSIGNMENTS:
            masked[formula.targets[0].tensor] = value
        elif NEUTRAL.get(formula.sign) != value:
            return None
    return found if masked.get(weights) == 0.0 else None


class _Masking:
    """Evaluates terms at masked keys, as far as the value is the same for all."""

    def __init__(self, row: _Row, masked: Mapping[str, float]) -> None:
        self._row = row
        self._masked = masked
        self._known: dict[int, float | None] = {}
        self.visible: VisibleKeys | None = None

    def value(self, term: Term) -> float | None:
        """The value; None where it is not known."""
        if isinstance(term, int | float) and not isinstance(term, bool):
            return float(term)
        if isinstance(term, Element):
            return self._masked.get(term.tensor)
        if not isinstance(term, Apply):
            return None
        if id(term) not in self._known:
            self._known[id(term)] = self._apply(term)
        return self._known[id(term)]

    def _apply(self, term: Apply) -> float | None:
        if term.function == "?:":
            return self._choice(term)
        values = [self.value(item) for item in term.operands]
        first = values[0]
        if term.function == "exp":
            return 0.0 if first == -inf else None
        if term.function == "-" and len(values) == 2 and first == -inf:
            # A maximum of -inf would make NaN of it, of the keys that are seen as well.
            return -inf
        if term.function == "/" and first == 0.0:
            return 0.0
        return None

    def _choice(self, term: Apply) -> float | None:
        condition, then, otherwise = term.operands
        visible = _visible(condition, self._row)
        if visible is not None and self.value(otherwise) == -inf:
            if self.visible not in (None, visible):
                return None
            self.visible = visible
            return -inf
        one, other = self.value(then), self.value(otherwise)
        return one if one == other else None


def _visible(condition: Term, row: _Row) -> VisibleKeys | None:
    """The keys for which a condition holds, where it is one about places."""
    last: KeyBound | None = None
    first: KeyBound | None = None
    for test in _conjuncts(condition):
        left, right = test.operands if isinstance(test, Apply) and len(test.operands) == 2 else (None, None)
        if not isinstance(test, Apply) or left is None or right is None:
            return None
        if test.function == "<=" and left == Index(row.key) and last is None:
            last = _bound(right, row)
        elif test.function == "<" and isinstance(left, Apply) and left.function == "-" and first is None:
            place, key = left.operands
            start = _bound(place, row) if key == Index(row.key) and isinstance(right, int) else None
            if start is None or not isinstance(right, int):
                return None
            first = KeyBound(start.form + Affine(1 - right), start.scalars)
        else:
            return None
    return None if last is None else VisibleKeys(last, first)


def _conjuncts(term: Term) -> Iterator[Term]:
    if isinstance(term, Apply) and term.function == "&&":
        for item in term.operands:
            yield from _conjuncts(item)
    else:
        yield term


def _bound(term: Term, row: _Row) -> KeyBound | None:
    """A sum of loops, integers and scalar tensors; no place that depends on the key itself."""
    if isinstance(term, int) and not isinstance(term, bool):
        return KeyBound(Affine(term))
    if isinstance(term, Index):
        form = row.loops.get(term.name)
        return None if form is None or term.name == row.key else KeyBound(form)
    if isinstance(term, Element) and not term.indices:
        return KeyBound(Affine(), (term.tensor,))
    if not isinstance(term, Apply) or term.function != "+" or len(term.operands) != 2:
        return None
    parts = [_bound(item, row) for item in term.operands]
    if parts[0] is None or parts[1] is None:
        return None
    return KeyBound(parts[0].form + parts[1].form, tuple(sorted(parts[0].scalars + parts[1].scalars)))
