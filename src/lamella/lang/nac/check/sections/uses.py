"""What the constants of a plan are used for, and whether they can be."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from lamella.lang.nac.check.sections.decode import Step
from lamella.lang.nac.check.sections.flow import SLOTS, Values, model_number
from lamella.lang.nac.check.sections.opcodes import (
    DEBUG_PRINT,
    FORMAT,
    GET_ID,
    LOAD_ARRAY,
    LOAD_DATA,
    LOAD_EXTERN,
    LOAD_MODEL,
    PROMPT,
    TRAIN_STEP,
    Kind,
)
from lamella.lang.nac.nodes import ConstantValue

SELF = "self"
"""The path under which a plan loads the model of its own file."""
_TOKENIZER = 0
_PIECE = re.compile(r"\{\{|\}\}|\{\}|[{}]|[^{}]+")
_TEXTS: Mapping[int, str] = MappingProxyType(
    {
        PROMPT: "a question",
        LOAD_MODEL: "the path of a model",
        LOAD_DATA: "the path of an array",
        LOAD_ARRAY: "the name of an array",
        GET_ID: "a token",
        FORMAT: "a text with {} for each value",
        DEBUG_PRINT: "a text",
        TRAIN_STEP: "the name of a weight",
    }
)
"""Instructions that take a text from the pool, with what it is."""


def text_of(value: ConstantValue) -> str | None:
    """A constant where a text is wanted; compilers write 1 and "1" alike, so numbers are texts too."""
    return str(value) if isinstance(value, str | bool | int | float) else None


def count_fields(text: str) -> int | None:
    """How many `{}` a format has, where `{{` and `}}` are braces; None where there is more between braces."""
    pieces = _PIECE.findall(text)
    return None if "{" in pieces or "}" in pieces else pieces.count("{}")


def fill(text: str, values: Iterable[str]) -> str:
    """A format with its values in place; nothing of a value is looked at or looked up."""
    given = iter(values)
    return "".join(_filled(piece, given) for piece in _PIECE.findall(text))


def _filled(piece: str, given: Iterator[str]) -> str:
    return next(given, "") if piece == "{}" else piece[0] if piece in ("{{", "}}") else piece


def use_problems(step: Step, values: Values, arrays: Collection[str]) -> Iterator[tuple[int, str, str]]:
    """The constants that an instruction cannot use: id, what is wrong, and the repair."""
    for id_ in (*step.values(Kind.CONSTANT), *filter(None, step.values(Kind.OPTIONAL))):
        if id_ not in values:
            continue
        if step.code == LOAD_EXTERN and step.fields[1] == _TOKENIZER:
            if model_number(values[id_]) is None:
                yield id_, "it is no model", f"models have numbers from 0 to {SLOTS - 1}"
        elif step.code in _TEXTS:
            yield from _text_problems(step, id_, values[id_], arrays)


def _text_problems(
    step: Step, id_: int, value: ConstantValue, arrays: Collection[str]
) -> Iterator[tuple[int, str, str]]:
    text = text_of(value)
    if text is None:
        yield id_, "it is no text", f"give {_TEXTS[step.code]}"
    elif step.code == LOAD_ARRAY and text not in arrays:
        yield id_, f"there is no array '{text}'", f"arrays are {', '.join(sorted(arrays)[:8]) or 'not there'}"
    elif step.code == FORMAT:
        given, wanted = len(step.values(Kind.READ)), count_fields(text)
        if wanted is None:
            yield id_, "it has more than {} in braces", "only {} stands for a value; {{ and }} are braces"
        elif wanted > given:
            yield id_, f"it has {wanted} times {{}} for {given} values", "give a slot for each"
