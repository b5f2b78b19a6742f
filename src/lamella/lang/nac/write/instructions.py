"""OPS as bytes: fields C and D in the spelling of the public compiler."""

from __future__ import annotations

from lamella.lang.nac.layout import Fields, fields_of
from lamella.lang.nac.nodes import OUTPUT, File, Instruction
from lamella.lang.nac.rules import writing as rules
from lamella.lang.nac.write.image import Image
from lamella.lang.nac.write.tables import write_count


def write_instructions(image: Image, file: File) -> None:
    """The instructions of a file, which its signatures give their form."""
    codes = {item.id: item.codes for item in file.signatures}
    write_count(image, file.instructions)
    for index, item in enumerate(file.instructions):
        image.number("B", item.operation, f"the operation of instruction {index}", item.span)
        image.number("B", item.variant, f"the variant of instruction {index}", item.span)
        fields = fields_of(item.operation, item.variant, codes.get(item.variant), file.header.outputs)
        if fields is None:
            values = {"index": index, "operation": item.operation, "variant": item.variant}
            image.report(rules.UNWRITABLE_OPERATION, item.span, **values)
        elif _agrees(image, index, item, fields):
            _write_fields(image, index, item, fields)


def _agrees(image: Image, index: int, item: Instruction, fields: Fields) -> bool:
    """Whether an instruction has as many constants and offsets as its operation."""
    wanted = 0 if _is_output(item) else fields.constants or 0
    right = True
    if len(item.constants) != wanted and (fields.constants is None or not fields.counted):
        right = _report(image, index, item, "C", wanted)
    if len(item.offsets) != fields.offsets:
        right = _report(image, index, item, "D", fields.offsets)
    return right


def _report(image: Image, index: int, item: Instruction, field: str, wanted: int) -> bool:
    given = len(item.constants if field == "C" else item.offsets)
    image.report(rules.FIELDS, item.span, index=index, field=field, given=given, wanted=wanted)
    return False


def _is_output(item: Instruction) -> bool:
    """Whether field C means nothing and is written as zeros."""
    return item.operation == OUTPUT and item.variant < 2


def _write_fields(image: Image, index: int, item: Instruction, fields: Fields) -> None:
    if fields.constants is not None:
        constants = (0,) * fields.constants if _is_output(item) else item.constants
        prefix = len(constants) if fields.counted else fields.prefixes[0]
        image.number("h", prefix, f"the length of field C of instruction {index}", item.span)
        image.numbers("h", constants, f"field C of instruction {index}", item.span)
    image.numbers("h", item.offsets, f"field D of instruction {index}", item.span)
