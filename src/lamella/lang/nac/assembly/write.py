"""Assembly nodes to canonical text: one row on a line, comments where they were."""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from lamella.base.lines import Lines
from lamella.base.source import Trivia
from lamella.lang.nac.assembly import words
from lamella.lang.nac.assembly.nodes import (
    Argument,
    Assembly,
    AssemblySection,
    Blob,
    Bytes,
    FileSlice,
    Id,
    InlineConstant,
    Label,
    Line,
    MemoryOrder,
    Moment,
    OperationCall,
    ProgramStep,
    Raw,
    RowItem,
    Scaled,
    StepOperand,
    System,
    WeightRow,
    Zeros,
)
from lamella.lang.nac.assembly.words import (
    write_integers,
    write_name,
    write_single,
    write_singles,
    write_string,
    write_value,
)
from lamella.lang.nac.nodes import Constant, Input, Operation, Parameter, Signature

HEX_PIECE, BASE64_PIECE, TEXT_PIECE = 32, 57, 80
"""Bytes, or characters, that one string of a list of pieces holds."""
IN_A_ROW = 8
"""Scales on one line."""
INDENT = "    "
_ACTION_WORDS: Mapping[int, str] = MappingProxyType({number: word for word, number in words.ACTIONS.items()})


def write_assembly(assembly: Assembly) -> str:
    """The canonical text of an assembly."""
    lines = Lines()
    for field in assembly.fields:
        lines.place(field.notes, [f"{field.name} {field.value}"])
    for section in assembly.sections:
        _write_section(lines, section)
    if assembly.end.above:
        lines.above(assembly.end)
    return lines.text()


def _write_section(lines: Lines, section: AssemblySection) -> None:
    lines.open_block(section.notes, f".{section.name}", apart=True)
    for index, row in enumerate(section.rows):
        notes = Trivia(row.notes.above, row.notes.behind) if index == 0 else row.notes
        lines.place(notes, [INDENT + line for line in write_item(row.item)])
    lines.level -= 1


def write_item(item: RowItem) -> list[str]:
    """The lines of a row; only data takes more than one."""
    match item:
        case Operation(id, name) | Parameter(id, name) | Input(id, name):
            return [f"{id} = {write_name(name)}"]
        case Signature(id, codes):
            return [f"{id} = {write_name(codes)}"]
        case Constant(id, type_, value):
            return [f"{id} = {write_value(type_, value)}"]
        case Line():
            head = f"%{item.label.name} = {write_body(item.body)}"
            return [" ".join([head, *map(write_order, item.orders)])]
        case ProgramStep(name, operands):
            return [f"{name}({', '.join(map(_step_operand, operands))})"]
        case Moment():
            return [" ".join([f"{item.index} =", *map(write_order, item.orders)])]
        case Blob():
            return _with_data("" if item.name is None else f"{write_name(item.name)} = ", item.data)
        case WeightRow():
            return _weights(item)


# --- instructions -------------------------------------------------------------------------------------------


def write_body(body: System | OperationCall | Raw) -> str:
    """What stands behind the label of an instruction."""
    match body:
        case Raw(operation, variant, constants, offsets):
            return f"raw({operation}, {variant}, {write_integers(constants)}, {write_integers(offsets)})"
        case System("branch" | "converge" as word, operands, labels):
            return f"{word}({_joined(labels)}, {_joined(operands)})"
        case System(word, operands, labels):
            return f"{word}({_joined([*operands, *labels])})"
        case OperationCall(operation, signature, arguments):
            codes = "" if signature is None else f":{write_name(signature)}"
            return f"{_operation(operation)}{codes}({_joined(arguments)})"


def _operation(operation: str | Id) -> str:
    if isinstance(operation, Id):
        return write_operand(operation)
    return write_string(operation) if operation in words.RESERVED else write_name(operation)


def _joined(operands: Sequence[Argument | int | str]) -> str:
    return ", ".join(map(write_operand, operands))


def write_operand(operand: Argument | int | str, sigil: str = "%") -> str:
    """What an instruction takes: a result, a constant, an id or a name."""
    match operand:
        case Label(name):
            return f"{sigil}{name}"
        case InlineConstant(type_, value):
            return write_value(type_, value)
        case Id(number):
            return f"#{number}"
        case int():
            return str(operand)
        case str():
            return write_name(operand)


def write_order(order: MemoryOrder) -> str:
    """Memory commands of one action."""
    return f"@{_ACTION_WORDS.get(order.action, order.action)}({_joined(order.targets)})"


def _step_operand(operand: StepOperand) -> str:
    if isinstance(operand, tuple):
        return f"[{', '.join(map(_atom, operand))}]"
    return _atom(operand)


def _atom(atom: int | str) -> str:
    return write_string(atom) if isinstance(atom, str) else str(atom)


# --- data ---------------------------------------------------------------------------------------------------


def _weights(item: WeightRow) -> list[str]:
    key = item.key if isinstance(item.key, int) else write_name(item.key)
    dtype = words.DTYPES[item.dtype] if 0 <= item.dtype < len(words.DTYPES) else f"#{item.dtype}"
    lines = [f"{key} = {dtype}{write_integers(item.shape)} "]
    if item.scaled is not None:
        lines = _appended(lines, _scaled(item.scaled))
        lines[-1] += " "
    return _appended(lines, _with_data("", item.data))


def _appended(lines: list[str], more: list[str]) -> list[str]:
    """Lines that go on where others end."""
    return [*lines[:-1], lines[-1] + more[0], *more[1:]]


def _scaled(item: Scaled) -> list[str]:
    if item.method == "fp16":
        return [item.method]
    if item.method == "int8_tensor":
        return [f"int8_tensor({_joined_scales(item)})"]
    shape = f"{write_integers(item.shape)}, " if item.method == "block_fp8" else ""
    head = f"{item.method}({item.size}, {shape}"
    scales = _singles(item.scales) if isinstance(item.scales, tuple) else _with_data("", item.scales)
    return _appended(_appended([head], scales), [")"])


def _joined_scales(item: Scaled) -> str:
    return ", ".join(map(write_single, item.scales)) if isinstance(item.scales, tuple) else ""


def _singles(values: Sequence[float]) -> list[str]:
    """Numbers in brackets; many of them stand in rows."""
    if len(values) <= IN_A_ROW:
        return [write_singles(values)]
    rows = [values[start : start + IN_A_ROW] for start in range(0, len(values), IN_A_ROW)]
    inner = [f"{INDENT}{', '.join(map(write_single, row))}," for row in rows]
    return ["[", *inner[:-1], inner[-1].removesuffix(","), "]"]


def _with_data(head: str, data: Bytes) -> list[str]:
    """Data behind what stands before it; many pieces stand one below the other."""
    match data:
        case Zeros(size):
            return [f"{head}zeros({size})"]
        case FileSlice(name, offset, size):
            return [f"{head}file({write_string(name)}, {offset}, {size})"]
    pieces = list(_pieces(data.encoding, data.data)) or [""]
    written = [write_string(piece) for piece in pieces]
    if len(written) == 1:
        return [f"{head}{data.encoding}({written[0]})"]
    inner = [f"{INDENT}{piece}," for piece in written[:-1]]
    return [f"{head}{data.encoding}(", *inner, INDENT + written[-1], ")"]


def _pieces(encoding: str, data: bytes) -> Iterator[str]:
    if encoding == words.TEXT:
        yield from _lines_of(data.decode("utf-8"))
        return
    size = HEX_PIECE if encoding == words.HEX else BASE64_PIECE
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        yield (
            piece.hex()
            if encoding == words.HEX
            else binascii.b2a_base64(piece, newline=False).decode("ascii")
        )


def _lines_of(text: str) -> Iterator[str]:
    """Lines with their ends, long ones in parts."""
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), TEXT_PIECE):
            yield line[start : start + TEXT_PIECE]
