"""The vocabulary of the assembly text and its literals: words with their numbers, strings and numbers to the bit."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lamella.lang.nac.nodes import (
    CONTROL_FLOW,
    CONVERGENCE,
    INPUT,
    OUTPUT,
    V1_5,
    V1_6,
    V1_7,
    V1_8,
    Action,
    ConstantType,
    ConstantValue,
    Method,
)
from lamella.lang.nac.operations import (
    FINAL,
    LIFTED,
    PARAMETER,
    SAVED,
    STATE,
    SUBGRAPH,
    TARGET,
    TRAINED,
    UPDATE,
    USER,
)

VERSIONS = (V1_5, V1_6, V1_7, V1_8)
NUMBERS = ("inputs", "outputs", "d_model")
STORAGE = ("internal", "external")
FIELDS = ("weights", "quantization", *NUMBERS)
"""The fields behind `nac VERSION`, in their canonical order."""

OPERATIONS, SIGNATURES, CONSTANTS = "operations", "signatures", "constants"
PARAMETERS, INPUTS, CODE, SCHEDULE, TRAINING = "parameters", "inputs", "code", "schedule", "training"
TENSORS, ARRAYS, MANIFEST, ORCHESTRATOR = "tensors", "arrays", "manifest", "orchestrator"
RESOURCES = "resources"
SECTIONS = (
    *(OPERATIONS, SIGNATURES, CONSTANTS, PARAMETERS, INPUTS, CODE, SCHEDULE, TRAINING),
    *(TENSORS, ARRAYS, MANIFEST, ORCHESTRATOR, RESOURCES),
)
"""The sections in their canonical order: what is read before what is only carried."""

METHODS: Mapping[str, Method] = MappingProxyType({method.name.lower(): method for method in Method})
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int16", "int8", "uint8", "bool")
"""The element types; the place in this list is the number in a file."""
ACTIONS: Mapping[str, int] = MappingProxyType(
    {
        **{"save": Action.SAVE_RESULT, "free": Action.FREE, "forward": Action.FORWARD},
        **{"preload": Action.PRELOAD, "save_for_grad": Action.SAVE_FOR_GRAD},
        **{"free_after_trng": Action.FREE_AFTER_TRNG},
    }
)
SYSTEM: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        **{"input": (INPUT, USER), "parameter": (INPUT, PARAMETER), "state": (INPUT, STATE)},
        **{"constant": (INPUT, LIFTED), "saved": (INPUT, SAVED), "target": (INPUT, TARGET)},
        **{"output": (OUTPUT, FINAL), "suboutput": (OUTPUT, SUBGRAPH), "update": (OUTPUT, UPDATE)},
        **{"finish": (OUTPUT, TRAINED), "branch": (CONTROL_FLOW, 0)},
        **{"converge": (CONVERGENCE, 0)},
    }
)
"""The instructions that have no signature: field A and field B; that of `converge` is its threshold."""
RAW = "raw"
RESERVED = frozenset({*SYSTEM, RAW, "inf", "nan"})
"""Words that are not read as the name of an operation."""
ZEROS, HEX, BASE64, TEXT, FILE = "zeros", "hex", "base64", "text", "file"

_BARE = re.compile(r"[A-Za-z_][0-9A-Za-z_]*+(?:\.[0-9A-Za-z_]++)*+")


def is_bare(name: str) -> bool:
    """Whether a name can be written without quotes."""
    return _BARE.fullmatch(name) is not None and name not in ("inf", "nan")


# --- strings, numbers and constants of the assembly text, written and read so that every bit returns --------


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


def pack_singles(numbers: Sequence[float]) -> bytes:
    """Single-precision numbers as bytes."""
    return struct.pack(f"<{len(numbers)}f", *numbers)
