"""Integer arithmetic on affine forms; what is not affine becomes a symbol with the facts that bound it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.affine import Bound, multiply
from lamella.lang.tensor.check.memory.forms.affine import ONE, Affine
from lamella.lang.tensor.check.memory.forms.symbols import GROUP, UNKNOWN, Symbol, Symbols

BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}
MOST_TERMS = 8
LARGEST_COEFFICIENT = 1 << 64
OPEN_COEFFICIENT, OPEN_CONSTANT = 1 << 20, 1 << 60
"""In a sum of 64 bits whose symbols have no bounds: larger ones may make it wrap."""


def type_range(type_: str) -> tuple[int, int]:
    """The least and the largest integer of a type."""
    half = 1 << (BITS[type_] - 1)
    return -half, half - 1


def wrap(value: int, type_: str) -> int:
    """An integer modulo the range of a type."""
    low, high = type_range(type_)
    return (value - low) % (high - low + 1) + low


def assumed_range(type_: str, strict: bool = False) -> tuple[Bound, Bound]:
    """Bounds of an unknown integer; one of 64 bits counts as unbounded, and sums of such are not thought to wrap.

    A strict proof does not count on that: it must hold for every integer there is.
    """
    return type_range(type_) if strict or BITS[type_] < 64 else (None, None)


def _is_modest(form: Affine) -> bool:
    """Whether a form does not wrap for integers of a size that somebody may mean."""
    return abs(form.constant) <= OPEN_CONSTANT and all(
        abs(item) <= OPEN_COEFFICIENT for _, item in form.terms
    )


def _is_shift(amount: Affine, type_: str) -> bool:
    """Whether a shift by this amount has a result: by a constant, of less than all bits."""
    return not amount.terms and 0 <= amount.constant < BITS[type_]


class Integers:
    """Evaluates integer instructions; where it is strict, no sum is thought not to wrap."""

    def __init__(self, symbols: Symbols, strict: bool = False) -> None:
        self.symbols = symbols
        self.strict = strict
        self._quotients: dict[tuple[Affine, int, bool], Affine | None] = {}
        self._rests: dict[Affine, int] = {}
        """What quotients leave, with the largest that it can be: constants bound it less narrowly, symbol by symbol."""

    def unknown(self, type_: str, depends: frozenset[int], name: str = "") -> Affine:
        """An integer of which only the type is known."""
        low, high = assumed_range(type_, self.strict)
        return self.new(Symbol(name, low=low, high=high, depends=depends))

    def new(self, symbol: Symbol) -> Affine:
        """The form of a new symbol."""
        return Affine(0, ((self.symbols.add(symbol), 1),))

    def evaluate(self, function: str, operands: tuple[Affine, ...], type_: str) -> Affine | None:
        """The form of a result; None where nothing is known of it but its type."""
        if function in ("shl", "shr") and not _is_shift(operands[-1], type_):
            return None
        if len(operands) == 2 and function in BINARY:
            found = BINARY[function](self, operands[0], operands[1])
        elif len(operands) == 1 and function in UNARY:
            found = UNARY[function](self, operands[0])
        else:
            return None
        return None if found is None else self.fit(found, type_)

    def fit(self, form: Affine, type_: str) -> Affine | None:
        """A form as a value of a type: a constant wraps, another form must be seen not to."""
        if not form.terms:
            return Affine(wrap(form.constant, type_))
        if len(form.terms) > MOST_TERMS or any(abs(item) > LARGEST_COEFFICIENT for _, item in form.terms):
            return None
        least, largest = type_range(type_)
        low, high = self.symbols.interval(form)
        wide = BITS[type_] == 64 and not self.strict and _is_modest(form)
        fits_below = wide if low is None else low >= least
        fits_above = wide if high is None else high <= largest
        fits_below = fits_below or self.symbols.proves(form - Affine(least))
        fits_above = fits_above or self.symbols.proves(Affine(largest) - form)
        return form if fits_below and fits_above else None

    # --- operations -----------------------------------------------------------------------------------------

    def multiply(self, left: Affine, right: Affine) -> Affine | None:
        """A product; of two unknown factors the constant bounds remain."""
        if not left.terms:
            return right.times(left.constant)
        if not right.terms:
            return left.times(right.constant)
        sides = [*self.symbols.interval(left), *self.symbols.interval(right)]
        known = [side for side in sides if side is not None]
        if len(known) == len(sides):
            low, high = multiply((known[0], known[1]), (known[2], known[3]))
            return self._bounded(low, high, (left, right))
        if self.symbols.proves(left) and self.symbols.proves(right):
            return self._bounded(0, None, (left, right))
        return None

    def _bounded(self, low: Bound, high: Bound, forms: tuple[Affine, ...]) -> Affine:
        name, kind = self._origin(forms)
        return self.new(Symbol(name, kind, low, high, depends=self.symbols.depends(forms)))

    def _origin(self, forms: tuple[Affine, ...]) -> tuple[str, str]:
        """The name and kind of what is computed from forms: what comes from a work-group's number stays that."""
        symbols = (self.symbols.table[number] for form in forms for number, _ in form.terms)
        return next(((item.name, item.kind) for item in symbols if item.kind == GROUP), ("", UNKNOWN))

    def quotient(self, form: Affine, divisor: int, floors: bool) -> Affine | None:
        """A quotient by a positive constant that rounds down; None where rounding towards 0 may differ."""
        key = (form, divisor, floors)
        if key not in self._quotients:
            self._quotients[key] = form if divisor == 1 else self._divide(form, divisor, floors)
        return self._quotients[key]

    def _divide(self, form: Affine, divisor: int, floors: bool) -> Affine | None:
        if not floors and not self.symbols.proves(form, assuming=False):
            return None
        low, high = self.symbols.interval(form)
        if form in self._rests:
            most = self._rests[form]
            low, high = max(low or 0, 0), most if high is None else min(high, most)
        low, high = (None if end is None else end // divisor for end in (low, high))
        if not form.terms:
            return Affine(form.constant // divisor)
        if low is None and not floors:
            low = 0
        found = self._bounded(low, high, (form,))
        rest = form.plus(found, -divisor)
        self._rests[rest] = divisor - 1
        self.symbols.state(rest)
        self.symbols.state(Affine(divisor - 1) - rest)
        return found

    def divide(self, left: Affine, right: Affine) -> Affine | None:
        """`arith.div`, by a positive constant."""
        if right.terms or right.constant < 1:
            return None
        if not left.terms and left.constant < 0:
            return Affine(-(-left.constant // right.constant))
        return self.quotient(left, right.constant, False)

    def remainder(self, left: Affine, right: Affine) -> Affine | None:
        """`arith.rem`, by a positive constant: what the quotient leaves, of the sign of the dividend."""
        if right.terms or right.constant < 1:
            return None
        if not left.terms and left.constant < 0:
            return Affine(-(-left.constant % right.constant))
        found = self.quotient(left, right.constant, False)
        if found is None:
            return self._bounded(1 - right.constant, right.constant - 1, (left,))
        return left.plus(found, -right.constant)

    def least(self, left: Affine, right: Affine) -> Affine | None:
        """`arith.min`."""
        return self._choose(left, right, -1)

    def largest(self, left: Affine, right: Affine) -> Affine | None:
        """`arith.max`."""
        return self._choose(left, right, 1)

    def _choose(self, left: Affine, right: Affine, sign: int) -> Affine:
        """One of two forms, which is on one side of both."""
        difference = (left - right).times(sign)
        if self.symbols.proves(difference, assuming=False):
            return left
        if self.symbols.proves(difference.times(-1), assuming=False):
            return right
        found = self.choice((left, right), sign=sign)
        for form in (left, right):
            self.symbols.state((found - form).times(sign))
        return found

    def choice(
        self, forms: tuple[Affine, ...], depends: frozenset[int] = frozenset(), sign: int = 0
    ) -> Affine:
        """A value that equals one of several forms: the largest or the least of them where there is a sign."""
        if len(set(forms)) == 1:
            return forms[0]
        ends = [self.symbols.interval(form) for form in forms]
        lows = [low for low, _ in ends if low is not None]
        highs = [high for _, high in ends if high is not None]
        low = min(lows) if len(lows) == len(ends) else None
        high = max(highs) if len(highs) == len(ends) else None
        if sign > 0 and lows:
            low = max(lows)
        if sign < 0 and highs:
            high = min(highs)
        everybody = depends | self.symbols.depends(forms)
        name, kind = self._origin(forms)
        return self.new(Symbol(name, kind, low, high, choices=forms, depends=everybody))

    def mask(self, left: Affine, right: Affine) -> Affine | None:
        """`arith.and` with a constant that is not negative."""
        if not left.terms:
            left, right = right, left
        if right.terms or right.constant < 0:
            return None
        if not left.terms:
            return Affine(left.constant & right.constant)
        size = right.constant + 1
        if size & (size - 1):
            return self._bounded(0, right.constant, (left,))
        found = self.quotient(left, size, True)
        return None if found is None else left.plus(found, -size)

    def shift_left(self, left: Affine, right: Affine) -> Affine | None:
        """`arith.shl` by a constant."""
        return left.times(1 << right.constant) if not right.terms and 0 <= right.constant < 63 else None

    def shift_right(self, left: Affine, right: Affine) -> Affine | None:
        """`arith.shr` by a constant, which rounds down."""
        if right.terms or not 0 <= right.constant < 63:
            return None
        return self.quotient(left, 1 << right.constant, True)

    def absolute(self, form: Affine) -> Affine | None:
        """`arith.abs`."""
        return self.largest(form, form.times(-1))


Binary: TypeAlias = Callable[[Integers, Affine, Affine], Affine | None]
Unary: TypeAlias = Callable[[Integers, Affine], Affine | None]
BINARY: Mapping[str, Binary] = MappingProxyType(
    {
        "add": lambda _, left, right: left + right,
        "sub": lambda _, left, right: left - right,
        "mul": Integers.multiply,
        "div": Integers.divide,
        "rem": Integers.remainder,
        "min": Integers.least,
        "max": Integers.largest,
        "and": Integers.mask,
        "shl": Integers.shift_left,
        "shr": Integers.shift_right,
    }
)
UNARY: Mapping[str, Unary] = MappingProxyType(
    {
        "neg": lambda _, form: form.times(-1),
        "not": lambda _, form: form.times(-1) - ONE,
        "abs": Integers.absolute,
    }
)
