"""Types and attributes on their own: sizes, strides, how far they reach, what dictionaries may say."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.limits import LARGEST
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    Alloca,
    Attribute,
    Coopmatrix,
    Dictionary,
    DictionaryEntry,
    For,
    Function,
    Group,
    Memref,
    Parameter,
    Size,
    Text,
    Type,
)
from lamella.lang.tensor.rules import types as rules
from lamella.lang.tensor.rules.syntax import EXTENSION
from lamella.lang.tensor.write import write_type

# --- attributes of parameters, functions, allocas and loops -------------------------------------------------


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
    "unchanging": BOOLEAN,
    "native": BOOLEAN,
    "settled": BOOLEAN,
    "settles": BOOLEAN,
    "registers": INTEGER,
}


@dataclass(frozen=True, slots=True)
class AttributeOwner:
    """What carries a dictionary, in words, with the keys that mean something on it."""

    what: str
    keys: tuple[str, ...]


PROMISES = ("alignment", "shape_gcd", "stride_gcd")
OWN_PROMISES = ("streamed", "unchanging", "settled")
"""Attributes of ours."""
MEMORY = AttributeOwner("a parameter of this type", (*PROMISES, *OWN_PROMISES))
SCALAR = AttributeOwner("a parameter of this type", ())
SIZES, OWN_WORDS = ("subgroup_size", "work_group_size"), ("native", "settles", "registers")
"""Attributes of functions, and those of ours."""
FUNCTION = AttributeOwner("a function", (*SIZES, *OWN_WORDS))
ALLOCA = AttributeOwner("an alloca", ("alignment", "stack_offset"))
FOR = AttributeOwner("a for", ("unroll",))


def check_attributes(owner: Function | Parameter | Alloca | For) -> Iterator[Diagnostic]:
    """What is wrong with the attributes of a function, a parameter, an alloca or a loop."""
    if owner.attributes is None:
        return
    match owner:
        case Function():
            yield from _check_function(owner.attributes)
        case Parameter(type=type_):
            yield from _check_parameter(owner.attributes, type_)
        case Alloca(type=type_):
            yield from _check_alloca(owner.attributes, type_)
        case For():
            yield from _check_for(owner.attributes)


def _check_parameter(dictionary: Dictionary, type_: Type) -> Iterator[Diagnostic]:
    """The promises that a parameter makes about its memory."""
    memref = type_.memref if isinstance(type_, Group) else type_
    if not isinstance(memref, Memref):
        yield from _check_entries(dictionary, SCALAR)
        return
    yield from _check_entries(dictionary, MEMORY)
    for entry in _usable(dictionary, MEMORY):
        if entry.key == "alignment":
            yield from _check_alignment(entry, memref)
        elif entry.key in OWN_PROMISES:
            yield EXTENSION.at(entry.span, feature=f"attribute '{entry.key}'", instead=", ".join(PROMISES))
        else:
            values = memref.shape if entry.key == "shape_gcd" else memref.stride
            yield from _check_divisors(entry, values)


def _check_alloca(dictionary: Dictionary, type_: Memref) -> Iterator[Diagnostic]:
    """The alignment of an alloca."""
    yield from _check_entries(dictionary, ALLOCA)
    for entry in _usable(dictionary, ALLOCA):
        if entry.key != "alignment":  # where a pass has placed it
            continue
        yield from _check_alignment(entry, type_)
        alignment = _integer(entry.value)
        if alignment > DEFAULT_ALIGNMENT:
            yield rules.ALIGNMENT_LARGE.at(entry.span, alignment=alignment, limit=DEFAULT_ALIGNMENT)


def _check_for(dictionary: Dictionary) -> Iterator[Diagnostic]:
    """How a loop asks to be unrolled."""
    yield from _check_entries(dictionary, FOR)
    for entry in _usable(dictionary, FOR):
        if not isinstance(entry.value, bool) and _integer(entry.value) < 1:
            yield rules.UNROLL.at(entry.span, value=_integer(entry.value))


def _check_function(dictionary: Dictionary) -> Iterator[Diagnostic]:
    """Work-group and subgroup sizes that a function asks for."""
    yield from _check_entries(dictionary, FUNCTION)
    for entry in _usable(dictionary, FUNCTION):
        if entry.key in OWN_WORDS:
            yield EXTENSION.at(entry.span, feature=f"attribute '{entry.key}'", instead=", ".join(SIZES))
    found = {entry.key: entry for entry in reversed(list(_usable(dictionary, FUNCTION)))}
    group, subgroup = found.get("work_group_size"), found.get("subgroup_size")
    sizes = _integers(group.value) if group else ()
    if group and (len(sizes) != 2 or min(sizes) < 1):
        yield rules.WORK_GROUP_SIZE.at(group.span, sizes=", ".join(map(str, sizes[:8])))
        sizes = ()
    if subgroup and _integer(subgroup.value) < 1:
        yield rules.SUBGROUP_SIZE.at(subgroup.span, size=_integer(subgroup.value))
    elif group and subgroup and sizes and sizes[0] % _integer(subgroup.value):
        yield _not_a_multiple(group, subgroup)


def _not_a_multiple(group: DictionaryEntry, subgroup: DictionaryEntry) -> Diagnostic:
    labels = [Label(subgroup.span, "the subgroup size is given here")]
    rows, size = _integers(group.value)[0], _integer(subgroup.value)
    return rules.WORK_GROUP_MULTIPLE.at(group.span, rows=rows, size=size, labels=labels)


def _integer(value: Attribute) -> int:
    """The value of an attribute that is an integer."""
    return value if isinstance(value, int) else 0


def _integers(value: Attribute) -> tuple[int, ...]:
    """The values of an attribute that is an array of integers."""
    return tuple(map(_integer, value)) if isinstance(value, tuple) else ()


def _check_entries(dictionary: Dictionary, owner: AttributeOwner) -> Iterator[Diagnostic]:
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


def _usable(dictionary: Dictionary, owner: AttributeOwner) -> Iterator[DictionaryEntry]:
    """The first entry of each key that means something and is of the right kind."""
    seen: set[str] = set()
    for entry in dictionary.entries:
        if entry.key in owner.keys and entry.key not in seen and _has_kind(entry):
            yield entry
        seen.add(entry.key)


def _has_kind(entry: DictionaryEntry) -> bool:
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


def _check_alignment(entry: DictionaryEntry, memref: Memref) -> Iterator[Diagnostic]:
    alignment, size = _integer(entry.value), BYTES[memref.element]
    if alignment < 1 or alignment & (alignment - 1):
        yield rules.ALIGNMENT_POWER.at(entry.span, alignment=alignment)
    elif alignment % size:
        yield rules.ALIGNMENT_ELEMENT.at(entry.span, alignment=alignment, size=size, element=memref.element)


def _check_divisors(entry: DictionaryEntry, values: tuple[Size, ...]) -> Iterator[Diagnostic]:
    divisors = _integers(entry.value)
    if len(divisors) > len(values):
        yield rules.GCD_COUNT.at(entry.span, key=entry.key, count=len(divisors), order=len(values))
        return
    for mode, (divisor, value) in enumerate(zip(divisors, values, strict=False)):
        if divisor < 1:
            yield rules.GCD_POSITIVE.at(entry.span, key=entry.key, mode=mode, divisor=divisor)
        elif value is not None and value % divisor:
            yield rules.GCD_BROKEN.at(entry.span, key=entry.key, mode=mode, divisor=divisor, value=value)


# --- types --------------------------------------------------------------------------------------------------


def check_type(type_: Type, span: Span) -> Iterator[Diagnostic]:
    """What makes a type impossible."""
    if isinstance(type_, Memref):
        yield from _check_memref(type_, span)
    elif isinstance(type_, Group):
        yield from _check_memref(type_.memref, span)
        if type_.size is not None and type_.size < 0:
            yield rules.GROUP_SIZE.at(span, type=write_type(type_), size=type_.size)
    elif isinstance(type_, Coopmatrix) and (type_.rows < 1 or type_.columns < 1):
        yield rules.COOPMATRIX_SIZE.at(span, type=write_type(type_), rows=type_.rows, columns=type_.columns)


def _check_memref(type_: Memref, span: Span) -> Iterator[Diagnostic]:
    if len(type_.stride) == type_.order and _reach(type_) > LARGEST:
        # such numbers may be too long to be written
        yield rules.TYPE_TOO_LARGE.at(span, order=type_.order)
        return
    text = write_type(type_)
    if len(type_.stride) != type_.order:
        yield rules.STRIDE_COUNT.at(span, type=text, strides=len(type_.stride), order=type_.order)
        return
    sizes = [(mode, size) for mode, size in enumerate(type_.shape) if size is not None and size < 0]
    if sizes:
        yield rules.NEGATIVE_SIZE.at(span, type=text, mode=sizes[0][0], size=sizes[0][1])
        return
    strides = [(mode, step) for mode, step in enumerate(type_.stride) if step is not None and step < 0]
    if strides:
        yield rules.NEGATIVE_STRIDE.at(span, type=text, mode=strides[0][0], stride=strides[0][1])


def _reach(type_: Memref) -> int:
    """The bytes from the first to the last element, at least; modes of unknown size count as one element."""
    pairs = [
        (1 if size is None else size, stride or 0)
        for size, stride in zip(type_.shape, type_.stride, strict=True)
    ]
    elements = sum((size - 1) * stride for size, stride in pairs if size > 0) + 1
    return max(elements * BYTES[type_.element], *(abs(stride) for _, stride in pairs), 0)


def warn_of_layout(type_: Type, span: Span) -> Iterator[Diagnostic]:
    """What is odd about the layout of memory that a program is given or makes."""
    memref = type_.memref if isinstance(type_, Group) else type_
    if not isinstance(memref, Memref):
        return
    if 0 in memref.shape:
        yield rules.ZERO_SIZE.at(span, type=write_type(memref), mode=memref.shape.index(0))
        return
    for mode, stride in enumerate(memref.stride):
        least = _least_stride(memref, mode)
        if stride is not None and least is not None and stride < least:
            yield rules.OVERLAPPING_STRIDE.at(
                span, type=write_type(memref), mode=mode, stride=stride, least=least
            )
            return


def _least_stride(memref: Memref, mode: int) -> int | None:
    """The stride from which on a mode does not overlap the one before it; None where that is unknown."""
    if mode == 0:
        return 1
    size, stride = memref.shape[mode - 1], memref.stride[mode - 1]
    return None if size is None or stride is None else size * stride
