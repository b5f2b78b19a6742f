"""Strings, numbers and constants of the assembly text, written and read so that every bit returns."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from types import MappingProxyType

from lamella.lang.nac.assembly.words import is_bare
from lamella.lang.nac.nodes import ConstantType, ConstantValue

MOST_DIGITS = 9
"""Digits that tell every single-precision number from all others."""
_ESCAPES = MappingProxyType({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_LETTERS = MappingProxyType({"n": "\n", "r": "\r", "t": "\t"})
_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]+)\}|(.))", re.DOTALL)


def write_string(text: str) -> str:
    """A string in quotes; what cannot be seen is escaped."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def read_string(token: str) -> str | None:
    """The text that a string token stands for; None where an escape is no character."""
    inner = token[1:-1]
    if "\\" not in inner:
        return inner
    points = [int(found, 16) for found in re.findall(r"(?<!\\)(?:\\\\)*\\u\{([0-9A-Fa-f]+)\}", inner)]
    if any(point > 0x10FFFF or 0xD800 <= point <= 0xDFFF for point in points):
        return None
    return _ESCAPE.sub(_character, inner)


def _character(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _LETTERS.get(found[2], found[2])


def write_name(name: str) -> str:
    """A name without quotes where it can stand so."""
    return name if is_bare(name) else write_string(name)


def single(value: float) -> float | None:
    """The nearest single-precision number; None where it is too large for one."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return None
    return math.nan if math.isnan(rounded) else rounded


def write_single(value: float) -> str:
    """The shortest digits that are read as this single-precision number."""
    for digits in range(6, MOST_DIGITS):
        text = f"{value:.{digits}g}"
        if single(float(text)) == value:
            return _with_point(text)
    return write_double(value)


def write_double(value: float) -> str:
    """The shortest digits that are read as this number."""
    return _with_point(repr(value))


def _with_point(text: str) -> str:
    return text if any(sign in text for sign in ".einf") else f"{text}.0"


def write_singles(values: Sequence[float]) -> str:
    """Single-precision numbers in brackets."""
    return f"[{', '.join(map(write_single, values))}]"


def write_integers(values: Sequence[int]) -> str:
    """Integers in brackets."""
    return f"[{', '.join(map(str, values))}]"


def write_value(type_: ConstantType, value: ConstantValue) -> str:
    """A constant as the text says it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return write_string(value)
        case float():
            return write_double(value)
        case int():
            return str(value)
    if type_ is ConstantType.FLOAT32_LIST:
        return write_singles(value) if value else "floats[]"
    return write_integers([int(item) for item in value])


def unpack_singles(data: bytes | memoryview) -> tuple[float, ...] | None:
    """The numbers that bytes hold, or None where they would not give the same bytes again."""
    whole = bytes(data)
    if len(whole) % 4:
        return None
    numbers = struct.unpack(f"<{len(whole) // 4}f", whole)
    return numbers if pack_singles(numbers) == whole and not any(map(math.isnan, numbers)) else None


def pack_singles(numbers: Sequence[float]) -> bytes:
    """Single-precision numbers as bytes."""
    return struct.pack(f"<{len(numbers)}f", *numbers)
