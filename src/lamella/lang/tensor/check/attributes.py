"""Attributes of parameters, functions, allocas and loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.source import Span
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Attribute, Dictionary, Entry, Group, Memref, Size, Text, Type
from lamella.lang.tensor.rules import types as rules
from lamella.lang.tensor.rules.syntax import EXTENSION

DEFAULT_ALIGNMENT = 128
INTEGER, INTEGERS, UNROLLED = "an integer", "an array of integers", "true, false or an integer"
BOOLEAN = "true or false"
KINDS = {
    "alignment": INTEGER,
    "shape_gcd": INTEGERS,
    "stride_gcd": INTEGERS,
    "subgroup_size": INTEGER,
    "work_group_size": INTEGERS,
    "unroll": UNROLLED,
    "stack_offset": INTEGER,
    "streamed": BOOLEAN,
}


@dataclass(frozen=True, slots=True)
class Owner:
    """What carries a dictionary, in words, with the keys that mean something on it."""

    what: str
    keys: tuple[str, ...]


PROMISES = ("alignment", "shape_gcd", "stride_gcd")
MEMORY = Owner("a parameter of this type", (*PROMISES, "streamed"))
SCALAR = Owner("a parameter of this type", ())
FUNCTION = Owner("a function", ("subgroup_size", "work_group_size"))
ALLOCA = Owner("an alloca", ("alignment", "stack_offset"))
FOR = Owner("a for", ("unroll",))


def check_parameter_attributes(dictionary: Dictionary, type_: Type) -> Iterator[Diagnostic]:
    """The promises that a parameter makes about its memory."""
    memref = type_.memref if isinstance(type_, Group) else type_
    if not isinstance(memref, Memref):
        yield from _check_entries(dictionary, SCALAR)
        return
    yield from _check_entries(dictionary, MEMORY)
    for entry in _usable(dictionary, MEMORY):
        if entry.key == "alignment":
            yield from _check_alignment(entry, memref)
        elif entry.key == "streamed":
            yield EXTENSION.at(entry.span, feature="attribute 'streamed'", instead=", ".join(PROMISES))
        else:
            values = memref.shape if entry.key == "shape_gcd" else memref.stride
            yield from _check_divisors(entry, values)


def check_alloca_attributes(dictionary: Dictionary, type_: Memref) -> Iterator[Diagnostic]:
    """The alignment of an alloca."""
    yield from _check_entries(dictionary, ALLOCA)
    for entry in _usable(dictionary, ALLOCA):
        if entry.key != "alignment":  # where a pass has placed it
            continue
        yield from _check_alignment(entry, type_)
        alignment = integer(entry.value)
        if alignment > DEFAULT_ALIGNMENT:
            yield rules.ALIGNMENT_LARGE.at(entry.span, alignment=alignment, limit=DEFAULT_ALIGNMENT)


def check_for_attributes(dictionary: Dictionary) -> Iterator[Diagnostic]:
    """How a loop asks to be unrolled."""
    yield from _check_entries(dictionary, FOR)
    for entry in _usable(dictionary, FOR):
        if not isinstance(entry.value, bool) and integer(entry.value) < 1:
            yield rules.UNROLL.at(entry.span, value=integer(entry.value))


def check_function_attributes(dictionary: Dictionary) -> Iterator[Diagnostic]:
    """Work-group and subgroup sizes that a function asks for."""
    yield from _check_entries(dictionary, FUNCTION)
    found = {entry.key: entry for entry in reversed(list(_usable(dictionary, FUNCTION)))}
    group, subgroup = found.get("work_group_size"), found.get("subgroup_size")
    sizes = integers(group.value) if group else ()
    if group and (len(sizes) != 2 or min(sizes) < 1):
        yield rules.WORK_GROUP_SIZE.at(group.span, sizes=", ".join(map(str, sizes[:8])))
        sizes = ()
    if subgroup and integer(subgroup.value) < 1:
        yield rules.SUBGROUP_SIZE.at(subgroup.span, size=integer(subgroup.value))
    elif group and subgroup and sizes and sizes[0] % integer(subgroup.value):
        yield _not_a_multiple(group, subgroup)


def _not_a_multiple(group: Entry, subgroup: Entry) -> Diagnostic:
    labels = [Label(subgroup.span, "the subgroup size is given here")]
    rows, size = integers(group.value)[0], integer(subgroup.value)
    return rules.WORK_GROUP_MULTIPLE.at(group.span, rows=rows, size=size, labels=labels)


def integer(value: Attribute) -> int:
    """The value of an attribute that is an integer."""
    return value if isinstance(value, int) else 0


def integers(value: Attribute) -> tuple[int, ...]:
    """The values of an attribute that is an array of integers."""
    return tuple(map(integer, value)) if isinstance(value, tuple) else ()


def _check_entries(dictionary: Dictionary, owner: Owner) -> Iterator[Diagnostic]:
    seen: dict[str, Span] = {}
    for entry in dictionary.entries:
        if entry.key in seen:
            labels = [Label(seen[entry.key], "given here first")]
            yield rules.DUPLICATE_ATTRIBUTE.at(entry.span, key=entry.key, labels=labels)
        elif entry.key not in owner.keys:
            yield rules.UNUSED_ATTRIBUTE.at(entry.span, key=entry.key, what=owner.what)
        elif not _has_kind(entry):
            wanted, found = KINDS[entry.key], _kind_of(entry.value)
            yield rules.ATTRIBUTE_KIND.at(entry.span, key=entry.key, wanted=wanted, found=found)
        seen.setdefault(entry.key, entry.span)


def _usable(dictionary: Dictionary, owner: Owner) -> Iterator[Entry]:
    """The first entry of each key that means something and is of the right kind."""
    seen: set[str] = set()
    for entry in dictionary.entries:
        if entry.key in owner.keys and entry.key not in seen and _has_kind(entry):
            yield entry
        seen.add(entry.key)


def _has_kind(entry: Entry) -> bool:
    kind, value = KINDS[entry.key], entry.value
    if kind == INTEGERS:
        return isinstance(value, tuple) and all(map(_is_integer, value))
    return (kind != BOOLEAN and _is_integer(value)) or (
        kind in (UNROLLED, BOOLEAN) and isinstance(value, bool)
    )


def _is_integer(value: Attribute) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _kind_of(value: Attribute) -> str:
    match value:
        case bool():
            return "a boolean"
        case int():
            return INTEGER
        case Text():
            return "a string"
        case Dictionary():
            return "a dictionary"
        case _:
            return "an array" if not all(map(_is_integer, value)) else INTEGERS


def _check_alignment(entry: Entry, memref: Memref) -> Iterator[Diagnostic]:
    alignment, size = integer(entry.value), BYTES[memref.element]
    if alignment < 1 or alignment & (alignment - 1):
        yield rules.ALIGNMENT_POWER.at(entry.span, alignment=alignment)
    elif alignment % size:
        yield rules.ALIGNMENT_ELEMENT.at(entry.span, alignment=alignment, size=size, element=memref.element)


def _check_divisors(entry: Entry, values: tuple[Size, ...]) -> Iterator[Diagnostic]:
    divisors = integers(entry.value)
    if len(divisors) > len(values):
        yield rules.GCD_COUNT.at(entry.span, key=entry.key, count=len(divisors), order=len(values))
        return
    for mode, (divisor, value) in enumerate(zip(divisors, values, strict=False)):
        if divisor < 1:
            yield rules.GCD_POSITIVE.at(entry.span, key=entry.key, mode=mode, divisor=divisor)
        elif value is not None and value % divisor:
            yield rules.GCD_BROKEN.at(entry.span, key=entry.key, mode=mode, divisor=divisor, value=value)
