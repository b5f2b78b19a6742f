"""The bounds every reader keeps, and the one arithmetic for sizes that come from a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from lamella.base.records import dataclass
from lamella.base.suggest import list_known

MIB = 1 << 20
GIB = 1 << 30
SMALLEST = -(1 << 63)
LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one input may ask of us; raised only by an explicit option."""

    max_file_bytes: int = 64 * MIB
    """Bytes of one text file."""
    max_data_bytes: int = 4 * GIB
    """Bytes of one binary file: arrays, weights, task-control streams."""
    max_includes: int = 256
    """Files that one program may consist of, the main file included."""
    max_depth: int = 200
    """Levels of nesting in a text: parentheses, loops, blocks, chains of parents."""
    max_name: int = 1000
    """Characters of one name or path in a file."""
    max_statements: int = 1_000_000
    """Statements of one program, all its files together."""
    max_total_bytes: int = 4 * GIB
    """Bytes of simulated memory, all levels together."""
    max_expansion: int = 2_000_000
    """Task instances that may be listed one by one (loops are otherwise treated whole)."""
    max_stepped: int = 100_000_000
    """Task instances that the simulator steps through where it finds no steady state: half a minute of machine code."""
    max_records: int = 1_000_000
    """Records that one bound stream executes, those that are repeated counted as often as they are."""
    max_unrolled: int = 20_000
    """Task instances of a program that is bound without looking for what repeats in its loops."""
    max_pairs: int = 1_000_000
    """Pairs of accesses that may be compared one by one where no closed proof exists."""
    max_integer_bits: int = 4096
    """Bits of an integer that is computed before the run."""
    max_pack: int = 1_000_000
    """Items of one pack or list."""
    max_rank: int = 24
    """Dimensions of one tensor."""
    max_operations: int = 200_000
    """Operations of one composed graph, with all that loops and operators unroll to."""
    max_steps: int = 1_000_000
    """Steps of all loops of one run, and of the sequential part of one formula."""

    def excess(self, name: str, value: int, what: str) -> str | None:
        """The sentence that says that a limit is passed, or None where it is kept."""
        limit: int = getattr(self, name)
        return f"{what} is {value}; the limit {name} is {limit}" if value > limit else None


DEFAULT = Limits()


def hint_for(name: str) -> str:
    """How a user raises a limit."""
    return f"raise it with --limit {name}=N"


def from_options(options: Iterable[str], limits: Limits = DEFAULT) -> Limits:
    """Limits changed by options like `max_depth=300`; a ValueError says what an option should be."""
    names = {field.name for field in fields(Limits)}
    for option in options:
        name, _, digits = option.partition("=")
        if name not in names:
            raise ValueError(f"unknown limit '{name}'; {list_known(name, sorted(names), 'the limits are')}")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and 0 < int(digits) <= LARGEST):
            raise ValueError(f"limit {name} needs a positive 64-bit integer, not '{digits[:40]}'")
        limits = replace(limits, **{name: int(digits)})
    return limits


class OutOfRange(ArithmeticError):
    """A size left the signed 64-bit range; callers turn it into a finding at the place they know."""

    def __init__(self, operation: str, *operands: int) -> None:
        super().__init__(operation, *operands)
        self.operation = operation
        self.operands = operands

    def __str__(self) -> str:
        shown = f" {self.operation} ".join(_short(item) for item in self.operands)
        return f"{shown} leaves the signed 64-bit range"


class DividedByZero(OutOfRange):
    """A division or remainder by zero."""

    def __str__(self) -> str:
        return f"{_short(self.operands[0])} {self.operation} 0 divides by zero"


def _short(value: int) -> str:
    """A number as a person reads it, also when it has a million digits."""
    return str(value) if value.bit_length() <= 128 else f"a {value.bit_length()}-bit number"


def in_range(value: int) -> bool:
    """Whether a number is a signed 64-bit integer."""
    return SMALLEST <= value <= LARGEST


def _checked(result: int, operation: str, left: int, right: int) -> int:
    if SMALLEST <= result <= LARGEST:
        return result
    raise OutOfRange(operation, left, right)


def _bounded(operation: str, left: int, right: int) -> None:
    """Refuse operands that are out of range themselves, before any work is done with them."""
    if not (SMALLEST <= left <= LARGEST and SMALLEST <= right <= LARGEST):
        raise OutOfRange(operation, left, right)


def add(left: int, right: int) -> int:
    """The sum of two 64-bit integers, or OutOfRange."""
    _bounded("+", left, right)
    return _checked(left + right, "+", left, right)


def sub(left: int, right: int) -> int:
    """The difference of two 64-bit integers, or OutOfRange."""
    _bounded("-", left, right)
    return _checked(left - right, "-", left, right)


def mul(left: int, right: int) -> int:
    """The product of two 64-bit integers, or OutOfRange."""
    _bounded("*", left, right)
    return _checked(left * right, "*", left, right)


def divide(left: int, right: int) -> int:
    """The quotient truncated toward zero, or OutOfRange, or DividedByZero."""
    _bounded("/", left, right)
    if right == 0:
        raise DividedByZero("/", left, right)
    quotient = abs(left) // abs(right)
    return _checked(quotient if (left < 0) == (right < 0) else -quotient, "/", left, right)


def remainder(left: int, right: int) -> int:
    """What truncating division leaves: it has the sign of the dividend."""
    _bounded("mod", left, right)
    if right == 0:
        raise DividedByZero("mod", left, right)
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def ceil_divide(left: int, right: int) -> int:
    """The quotient of a count by a positive number, rounded up."""
    _bounded("/", left, right)
    if right <= 0:
        raise DividedByZero("/", left, 0) if right == 0 else OutOfRange("/", left, right)
    return -(-left // right)


def product(shape: Iterable[int]) -> int:
    """The product of dimensions; a zero among them does not excuse the others from being in range."""
    whole, empty = 1, False
    for size in shape:
        if size < 0:
            raise OutOfRange("*", whole, size)
        empty = empty or size == 0
        whole = mul(whole, size or 1)
    return 0 if empty else whole
