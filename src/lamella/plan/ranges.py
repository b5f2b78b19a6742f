"""Offsets over iteration boxes: exact minimum and maximum, exact search, witnesses.

An `Index` is a sum of loop variables and operations on such sums. A box of iterations is cut into cells until every
`/` and `mod` is linear in its cell: a variable that passes through whole periods of a divisor is written as
`period·h + l`, other cuts are made where a quotient changes. Products of variables are cut until one factor is fixed.
So an offset is linear on every cell, with new variables that are again independent of each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import TypeAlias

from lamella.base.affine import Affine, corners, divisors, multiply, truncated_remainder, weighted_sum
from lamella.base.dim import TooComplex
from lamella.lang.nem.resolved import Atom, Index, Operation, Variable
from lamella.plan.diophantine import Box, StepBudget, solve

# --- variables that occur only together are one variable: in `(40·i + j) mod 3` nothing but 40·i + ----------


@dataclass(frozen=True, slots=True)
class Combined:
    """An index in fewer variables; each group of old ones, with factors, became the variable that names it."""

    index: Index
    box: Box
    groups: dict[int, dict[int, int]]

    def take_apart(self, values: dict[int, int], box: Box, budget: StepBudget) -> dict[int, int] | None:
        """The old variables at a place of the new ones; None where a combination cannot take its value."""
        found = dict(values)
        for name, factors in self.groups.items():
            target = found.pop(name)
            parts = solve(0, factors, box, target, target, budget)
            if parts is None:
                return None
            found |= parts
        return found


def combine(index: Index, box: Box) -> Combined | None:
    """The index with its combinations made variables; None where there are none."""
    columns: dict[int, list[int]] = {}
    for place, row in enumerate(_sums(index)):
        for variable, factor in row.items():
            column = columns.setdefault(variable, [])
            column += [0] * (place - len(column)) + [factor]
    groups: dict[tuple[int, ...], dict[int, int]] = {}
    for variable, column in columns.items():
        scale = gcd(*column) * (1 if next(filter(None, column)) > 0 else -1)
        groups.setdefault(tuple(factor // scale for factor in column), {})[variable] = scale
    joined = {min(group): group for group in groups.values() if len(group) > 1}
    if not joined:
        return None
    members = {variable for group in joined.values() for variable in group}
    kept = {variable: ends for variable, ends in box.items() if variable not in members}
    ranges = {name: _range(group, box) for name, group in joined.items()}
    return Combined(_rewrite(index, joined, members), {**kept, **ranges}, joined)


def _sums(index: Index) -> Iterator[dict[int, int]]:
    """The linear part of an index, then those of the sides of its operations."""
    yield {atom.loop: factor for atom, factor in index.terms if isinstance(atom, Variable)}
    for atom, _ in index.terms:
        if isinstance(atom, Operation):
            yield from _sums(atom.left)
            yield from _sums(atom.right)


def _range(group: dict[int, int], box: Box) -> tuple[int, int]:
    low = sum(factor * box[variable][factor < 0] for variable, factor in group.items())
    return low, sum(factor * box[variable][factor > 0] for variable, factor in group.items())


def _rewrite(index: Index, joined: dict[int, dict[int, int]], members: set[int]) -> Index:
    """The index in the variables that name groups; the other members are gone."""
    terms: list[tuple[Atom, int]] = []
    for atom, factor in index.terms:
        if isinstance(atom, Operation):
            sides = _rewrite(atom.left, joined, members), _rewrite(atom.right, joined, members)
            terms.append((Operation(atom.sign, *sides), factor))
        elif atom.loop not in members:
            terms.append((atom, factor))
        elif atom.loop in joined:
            terms.append((atom, factor // joined[atom.loop][atom.loop]))
    return Index(index.constant, tuple(terms))


Assignment = Mapping[int, int]
# Variables of which all combinations of first and last are looked at before anything is cut.
MOST_CORNERS = 5


Form: TypeAlias = Affine[int]


@dataclass(frozen=True, slots=True)
class _Split:
    """How a cell is to be cut: at a value of a variable, or into digits with a period."""

    variable: int
    at: int = 0
    period: int = 0


@dataclass(frozen=True, slots=True)
class _Cell:
    """A box in its own variables, and the variables of the question as forms in them."""

    box: Box
    forms: Mapping[int, Form]

    def assignment(self, values: Assignment) -> dict[int, int]:
        """The variables of the question where those of the cell have these values (the least where free)."""
        known = {variable: values.get(variable, low) for variable, (low, _) in self.box.items()}
        return {name: form.at(known) for name, form in self.forms.items()}

    def substitute(self, variable: int, form: Form, added: Box) -> _Cell:
        """The cell with one variable replaced by a form in added ones."""
        box = {v: ends for v, ends in self.box.items() if v != variable} | dict(added)
        return _Cell(box, {name: old.replace(variable, form) for name, old in self.forms.items()})


def extremes(
    index: Index, box: Box, budget: StepBudget
) -> tuple[tuple[int, Assignment], tuple[int, Assignment]]:
    """The exact smallest and largest value over a box, each with where it is taken; TooComplex if too hard."""
    # Where a divisor varies it may be zero somewhere: then every cell must be seen.
    steady = not _divides_by_variable(index)
    corners = [(index.at(corner), corner) for corner in _corners(box)] if steady else []
    least: tuple[int, Assignment] | None = min(corners, key=lambda item: item[0], default=None)
    most: tuple[int, Assignment] | None = max(corners, key=lambda item: item[0], default=None)
    budget.begin()
    price = _price(index, box)
    todo = [_whole(box)]
    while todo:
        cell = todo.pop()
        if steady and least and most:
            low, high = _bounds(index, cell)
            if low >= least[0] and high <= most[0]:
                continue
        form = _flatten(index, cell)
        budget.spend(price)
        if isinstance(form, _Split):
            todo += _cut(cell, form)
            continue
        low, high = form.bounds(cell.box)
        if least is None or low < least[0]:
            least = low, cell.assignment(_corner(form, cell.box, largest=False))
        if most is None or high > most[0]:
            most = high, cell.assignment(_corner(form, cell.box, largest=True))
    if least is None or most is None:
        raise TooComplex
    return least, most


def _corner(form: Form, box: Box, largest: bool) -> dict[int, int]:
    """Where a form is smallest or largest in a box."""
    return {v: box[v][(a > 0) == largest] for v, a in form.terms}


def _corners(box: Box) -> Iterator[Assignment]:
    """Iterations where the ends often are."""
    if len(box) > MOST_CORNERS:
        return iter(())
    return (dict(zip(box, corner, strict=True)) for corner in product(*box.values()))


def _divides_by_variable(index: Index) -> bool:
    operations = [atom for atom, _ in index.terms if isinstance(atom, Operation)]
    return any(
        (operation.sign != "*" and not operation.right.is_constant)
        or _divides_by_variable(operation.left)
        or _divides_by_variable(operation.right)
        for operation in operations
    )


def search(index: Index, box: Box, low: int, high: int, budget: StepBudget) -> Assignment | None:
    """Where an index lies in [low, high], or None if nowhere; TooComplex if that is too hard to say."""
    budget.begin()
    linear = all(isinstance(atom, Variable) for atom, _ in index.terms)
    # A combination may be zero where its parts never are.
    combined = None if linear or _divides_by_variable(index) else combine(index, box)
    if combined is None:
        return _search(index, box, low, high, budget)
    place = _search(combined.index, combined.box, low, high, budget)
    apart = None if place is None else combined.take_apart(place, box, budget)
    return apart if place is None or apart is not None else _search(index, box, low, high, budget)


def _search(index: Index, box: Box, low: int, high: int, budget: StepBudget) -> dict[int, int] | None:
    price = _price(index, box)
    todo = [_whole(box)]
    while todo:
        cell = todo.pop()
        budget.spend(price)
        least, most = _bounds(index, cell)
        if least > high or most < low:
            continue
        form = _flatten(index, cell)
        if isinstance(form, _Split):
            todo += _cut(cell, form)
            continue
        values = solve(form.constant, dict(form.terms), cell.box, low, high, budget)
        if values is not None:
            return cell.assignment(values)
    return None


def _price(index: Index, box: Box) -> int:
    """Steps that one cell counts for: forms of many variables are copied variable by variable."""
    return 1 + (len(box) // 16) ** 2 + index.size()[0] // 16


def bounds(index: Index, box: Box) -> tuple[int, int]:
    """Limits that hold over a box but need not be reached; a divisor that may be zero gives what others give."""
    return _bounds(index, _whole(box))


def _whole(box: Box) -> _Cell:
    wide = {v: ends for v, ends in box.items() if ends[0] != ends[1]}
    fixed: dict[int, Form] = {v: Affine(low) for v, (low, high) in box.items() if low == high}
    return _Cell(wide, {**fixed, **{v: Affine(0, ((v, 1),)) for v in wide}})


# --- cutting ------------------------------------------------------------------------------------------------


def _cut(cell: _Cell, split: _Split) -> Iterator[_Cell]:
    """The parts of a cell, the last in iteration order first."""
    variable = split.variable
    low, high = cell.box[variable]
    if not split.period:
        yield _narrow(cell, variable, split.at, high)
        yield _narrow(cell, variable, low, split.at - 1)
        return
    wholes, rest = divmod(high - low + 1, split.period)
    fresh = max(cell.box) + 1
    if rest:
        yield _narrow(cell, variable, high - rest + 1, high)
    digits = {fresh: (0, wholes - 1), fresh + 1: (0, split.period - 1)}
    if wholes == 1:
        yield _narrow(cell, variable, low, low + split.period - 1)
    else:
        yield cell.substitute(variable, Affine(low, ((fresh, split.period), (fresh + 1, 1))), digits)


def _narrow(cell: _Cell, variable: int, low: int, high: int) -> _Cell:
    if low == high:
        return cell.substitute(variable, Affine(low), {})
    return _Cell({**cell.box, variable: (low, high)}, cell.forms)


def _halve(cell: _Cell, *forms: Form) -> _Split:
    """Cut the widest variable of the form that is nearest to being fixed."""
    sizes = [sorted((cell.box[v][1] - cell.box[v][0], v) for v, _ in form.terms) for form in forms]
    _, variable = min(sizes, key=lambda size: sum(width for width, _ in size))[-1]
    low, high = cell.box[variable]
    return _Split(variable, (low + high + 1) // 2)


# --- flattening ---------------------------------------------------------------------------------------------


def _flatten(index: Index, cell: _Cell) -> Form | _Split:
    """An index as a form of the cell, or the cut that is needed first."""
    parts: list[tuple[Form, int]] = []
    for atom, factor in index.terms:
        part = cell.forms[atom.loop] if isinstance(atom, Variable) else _operate(atom, cell)
        if isinstance(part, _Split):
            return part
        parts.append((part, factor))
    return weighted_sum(index.constant, parts)


def _operate(operation: Operation, cell: _Cell) -> Form | _Split:
    left, right = _flatten(operation.left, cell), _flatten(operation.right, cell)
    if isinstance(left, _Split):
        return left
    if isinstance(right, _Split):
        return right
    if operation.sign == "*":
        if left.terms and right.terms:
            return _halve(cell, left, right)
        return left.times(right.constant) if left.terms else right.times(left.constant)
    if right.terms:
        return _halve(cell, right)
    if right.constant == 0:
        raise ZeroDivisionError(cell.assignment({}))
    return _divide(operation.sign, left, right.constant, cell)


def _divide(sign: str, left: Form, divisor: int, cell: _Cell) -> Form | _Split:
    """Truncating division: the sign goes before the floor."""
    low, high = left.bounds(cell.box)
    # Truncation is not monotonic across zero in the way the floor is: each side of it is a cell of its own.
    if low < 0 < high:
        return _cut_at(left, 0, cell)
    negative = low < 0
    size = left.times(-1) if negative else left
    found = _divide_floor(sign, size, abs(divisor), cell)
    if isinstance(found, _Split):
        return found
    negate = negative != (divisor < 0 and sign == "/")
    return found.times(-1) if negate else found


def _divide_floor(sign: str, left: Form, divisor: int, cell: _Cell) -> Form | _Split:
    """Quotient or remainder of a form that is not negative, or the cut after which it is linear."""
    whole, rest = _parts(left, divisor)
    low, high = rest.bounds(cell.box)
    if low // divisor != high // divisor:
        return _cut_period(rest, divisor, cell)
    quotient = whole.plus(Affine(low // divisor))
    return quotient if sign == "/" else left.plus(quotient, -divisor)


def _parts(left: Form, divisor: int) -> tuple[Form, Form]:
    """`left = divisor · whole + rest`, the coefficients of the rest as small as possible."""
    whole: list[tuple[int, int]] = []
    rest: list[tuple[int, int]] = []
    for name, coefficient in left.terms:
        quotient = (2 * coefficient + divisor) // (2 * divisor)  # rounded to nearest: the rest stays small
        if quotient:
            whole.append((name, quotient))
        if coefficient != quotient * divisor:
            rest.append((name, coefficient - quotient * divisor))
    quotient, constant = divmod(left.constant, divisor)
    return Affine(quotient, tuple(whole)), Affine(constant, tuple(rest))


def _cut_period(rest: Form, divisor: int, cell: _Cell) -> _Split:
    """Take whole periods apart where a variable passes through several; else cut where the quotient changes."""
    for name, coefficient in rest.terms:
        low, high = cell.box[name]
        period = divisor // gcd(divisor, coefficient)
        if high - low + 1 > period:
            return _Split(name, period=period)
    low, _ = rest.bounds(cell.box)
    return _cut_at(rest, (low // divisor + 1) * divisor, cell)


def _cut_at(form: Form, value: int, cell: _Cell) -> _Split:
    """Cut where a form passes a value, which it does; several variables are halved instead."""
    if len(form.terms) > 1:
        widest, _ = max(
            form.terms, key=lambda item: abs(item[1]) * (cell.box[item[0]][1] - cell.box[item[0]][0])
        )
        low, high = cell.box[widest]
        return _Split(widest, (low + high + 1) // 2)
    ((name, coefficient),) = form.terms
    distance = value - form.constant
    if coefficient > 0:
        return _Split(name, -(-distance // coefficient))
    return _Split(name, distance // coefficient + 1)


# --- limits without cutting ---------------------------------------------------------------------------------


def _bounds(index: Index, cell: _Cell) -> tuple[int, int]:
    linear: list[tuple[Form, int]] = []
    low = high = 0
    for atom, factor in index.terms:
        if isinstance(atom, Variable):
            linear.append((cell.forms[atom.loop], factor))
            continue
        ends = [factor * end for end in _operation_bounds(atom, cell)]
        low, high = low + min(ends), high + max(ends)
    # The variables together: the same one in two terms may cancel, where bounds of single terms would add up.
    first, last = weighted_sum(index.constant, linear).bounds(cell.box)
    return low + first, high + last


def _operation_bounds(operation: Operation, cell: _Cell) -> tuple[int, int]:
    left, right = _bounds(operation.left, cell), _bounds(operation.right, cell)
    if operation.sign == "*":
        return multiply(left, right)
    if operation.sign == "/":
        return corners(_truncate, left, divisors(right))
    return truncated_remainder(left, right)


def _truncate(dividend: int, divisor: int) -> int:
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient
