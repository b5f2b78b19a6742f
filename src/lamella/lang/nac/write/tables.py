"""CMAP, PERM, CNST and MMAP as bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from lamella.base.source import NOWHERE
from lamella.lang.nac.nodes import Constant, ConstantType, Operation, Signature, Tick
from lamella.lang.nac.rules import writing as rules
from lamella.lang.nac.write.image import Image


def write_count(image: Image, records: Sequence[object]) -> None:
    """How many records follow."""
    image.number("I", len(records), f"the number of records of {image.section}", NOWHERE)


def write_operations(image: Image, operations: Sequence[Operation]) -> None:
    """The records of CMAP."""
    write_count(image, operations)
    for item in operations:
        image.number("H", item.id, "an operation id", item.span)
        image.text("B", item.name, f"the name of operation {item.id}", item.span)


def write_signatures(image: Image, signatures: Sequence[Signature]) -> None:
    """The records of PERM."""
    write_count(image, signatures)
    for item in signatures:
        image.number("H", item.id, "a signature id", item.span)
        image.text("B", item.codes, f"signature {item.id}", item.span)


def write_schedule(image: Image, schedule: Sequence[Tick]) -> None:
    """The records of MMAP."""
    write_count(image, schedule)
    for tick in schedule:
        image.number("H", tick.index, "a tick", tick.span)
        image.number("B", len(tick.commands), f"the number of commands of tick {tick.index}", tick.span)
        for command in tick.commands:
            image.number("B", command.action, f"an action of tick {tick.index}", command.span)
            image.number("H", command.target, f"a target of tick {tick.index}", command.span)


def write_constants(image: Image, constants: Sequence[Constant]) -> None:
    """Constants one behind the other, without their number."""
    for item in constants:
        image.number("H", item.id, "a constant id", item.span)
        image.number("B", item.type, f"the type of constant {item.id}", item.span)
        if not _write_value(image, item):
            problem = f"is of type {item.type.name}, but its value is {repr(item.value)[:80]}"
            image.report(rules.VALUE, item.span, what=f"constant {item.id}", problem=problem)


def _write_value(image: Image, item: Constant) -> bool:
    """The length and the value of a constant; says whether its value is of its type."""
    what, span = f"constant {item.id}", item.span
    match item.type, item.value:
        case ConstantType.NULL, None:
            image.number("H", 0, what, span)
        case ConstantType.BOOL, bool(truth):
            image.block(struct.pack("<HB", 1, truth))
        case ConstantType.INT64, int(value) if not isinstance(value, bool):
            image.number("H", 8, what, span)
            image.number("q", value, what, span)
        case ConstantType.FLOAT64, float(real):
            image.block(struct.pack("<Hd", 8, real))
        case ConstantType.STRING, str(text):
            image.text("H", text, what, span)
        case ConstantType.INT32_LIST, tuple(items):
            return _write_integers(image, items, item)
        case ConstantType.FLOAT32_LIST, tuple(items):
            return _write_reals(image, items, item)
        case _:
            return False
    return True


def _write_integers(image: Image, items: Sequence[float], item: Constant) -> bool:
    whole = tuple(value for value in items if isinstance(value, int))
    image.number("H", len(items), f"the length of constant {item.id}", item.span)
    image.numbers("i", whole, f"constant {item.id}", item.span)
    return len(whole) == len(items)


def _write_reals(image: Image, items: Sequence[float], item: Constant) -> bool:
    image.number("H", len(items), f"the length of constant {item.id}", item.span)
    try:
        image.block(struct.pack(f"<{len(items)}f", *items))
    except OverflowError:
        return False
    return all(isinstance(value, float) for value in items)
