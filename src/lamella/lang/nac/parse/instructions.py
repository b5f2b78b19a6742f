"""OPS and TRNG: instructions, whose fields C and D are as long as their signature says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from lamella.base.errors import InputError
from lamella.lang.nac.layout import Fields, fields_of
from lamella.lang.nac.nodes import OUTPUT, Instruction
from lamella.lang.nac.parse.reading import Section
from lamella.lang.nac.rules import container as rules


def read_instructions(section: Section, signatures: Mapping[int, str], outputs: int) -> Iterator[Instruction]:
    """The instructions of a section; `outputs` is the count in the header."""

    @cache
    def fields(operation: int, variant: int) -> Fields | None:
        return fields_of(operation, variant, signatures.get(variant), outputs)

    reader = section.reader
    for index in section.counted(2, "instructions"):
        start = reader.position
        try:
            operation, variant = reader.integers("B", 2, "an operation")
            known = fields(operation, variant)
            if known is None:
                values = {"index": index, "operation": operation, "variant": variant}
                raise section.give_up(rules.UNKNOWN_FIELDS, start, **values)
            constants = () if known.constants is None else _read_constants(section, known, index)
            offsets = reader.integers("h", known.offsets, "field D") if known.offsets else ()
        except InputError as problem:
            raise InputError(f"instruction {index}: {problem.message}", problem.offset) from None
        if operation == OUTPUT and variant < 2:
            constants = _check_reserved(section, start, index, constants)
        yield Instruction(operation, variant, constants, offsets, section.span(start))


def _read_constants(section: Section, fields: Fields, index: int) -> tuple[int, ...]:
    """Field C without its prefix, which is believed only where nothing else tells the length."""
    reader = section.reader
    start, prefix = reader.position, reader.i16()
    if fields.counted and prefix < 0:
        raise section.give_up(rules.NEGATIVE_COUNT, start, index=index, count=prefix)
    if not fields.counted and prefix not in fields.prefixes:
        section.report(rules.PREFIX, start, index=index, found=prefix, wanted=fields.prefixes[0])
    return reader.integers("h", prefix if fields.counted else fields.constants or 0, "field C")


def _check_reserved(section: Section, start: int, index: int, found: tuple[int, ...]) -> tuple[int, ...]:
    """The values of an output's field C mean nothing and are not kept."""
    if any(found):
        values = ", ".join(str(item) for item in found[:8])
        section.report(rules.RESERVED_VALUES, start, index=index, found=values)
    return ()
