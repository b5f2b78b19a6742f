"""After how many iterations the unit index of `@resource` repeats, so that a loop can be treated period by period."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, lcm

from lamella.lang.nem.resolved import Atom, Index, Loop, Operation, Variable

APERIODIC = 0
"""The answer for an expression whose residues follow no period that we can prove."""
LARGEST_PERIOD = 1 << 20


def index_period(index: Index, modulus: int, loop: int, around: Mapping[int, Loop]) -> int:
    """The smallest proved p with index(v + p) ≡ index(v) (mod modulus) for the variable v of a loop, or APERIODIC."""
    if loop not in index.loops():
        return 1
    period = 1
    for atom, factor in index.terms:
        found = _atom_period(atom, modulus // gcd(factor, modulus), loop, around)
        if found == APERIODIC:
            return APERIODIC
        period = lcm(period, found)
    return period if period <= LARGEST_PERIOD else APERIODIC


def _atom_period(atom: Atom, modulus: int, loop: int, around: Mapping[int, Loop]) -> int:
    if isinstance(atom, Variable):
        return modulus if atom.loop == loop else 1
    if atom.sign == "*":
        sides = [index_period(side, modulus, loop, around) for side in (atom.left, atom.right)]
        return APERIODIC if APERIODIC in sides else lcm(*sides)
    return _quotient_period(atom, modulus, loop, around)


def _quotient_period(atom: Operation, modulus: int, loop: int, around: Mapping[int, Loop]) -> int:
    """`a / c` and `a mod c` repeat with a mod c·modulus and a mod c, as long as a never becomes negative."""
    divisor = atom.right.constant
    if not atom.right.is_constant or divisor <= 0 or _least(atom.left, around) < 0:
        return APERIODIC
    return index_period(atom.left, divisor * modulus if atom.sign == "/" else divisor, loop, around)


def _least(index: Index, around: Mapping[int, Loop]) -> int:
    """A lower bound of a sum whose atoms are loop variables; -1 where atoms are operations of unknown sign."""
    total = index.constant
    for atom, factor in index.terms:
        if isinstance(atom, Variable) and atom.loop in around:
            loop = around[atom.loop]
            total += factor * (loop.first if factor > 0 else loop.last)
        elif not _never_negative(atom, around) or factor < 0:
            return -1
    return total


def _never_negative(atom: Atom, around: Mapping[int, Loop]) -> bool:
    if isinstance(atom, Variable):
        return False
    if atom.sign != "*" and not (atom.right.is_constant and atom.right.constant > 0):
        return False
    return all(_least(side, around) >= 0 for side in (atom.left, atom.right))
