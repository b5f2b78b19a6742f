"""Types of config parameters: what they take, and what it becomes."""

from __future__ import annotations

from dataclasses import replace

from lamella.base.dim import Dim
from lamella.base.source import Span
from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.instantiate.nodes import Items, Known, Record, Value
from lamella.lang.module.instantiate.telling import describe
from lamella.lang.module.nodes import (
    Bool,
    ConfigParam,
    ConfigType,
    Dict,
    Integer,
    List,
    Name,
    Null,
    Real,
    Text,
)
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.rules import constants as rules
from lamella.lang.module.words import DTYPES

ANYTHING = ConfigType("")
"""The type of a parameter whose default is an expression of no certain kind."""
_WANTED = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "string": "a string",
    "dict": "a dict",
}


def type_of(param: ConfigParam) -> ConfigType:
    """The type of a parameter: the declared one, else that of its default, else an integer."""
    if param.type is not None:
        return param.type
    match param.default:
        case None | Integer():
            return ConfigType("int")
        case Real():
            return ConfigType("float")
        case Bool():
            return ConfigType("bool")
        case Text():
            return ConfigType("string")
        case List(items) if items and isinstance(items[0], Integer | Text):
            return ConfigType("int" if isinstance(items[0], Integer) else "string", listed=True)
        case Dict():
            return ConfigType("dict")
        case Null() | Name() | _:
            return ANYTHING


def takes_words(kind: ConfigType) -> bool:
    """Whether a bare name may be a value of this type."""
    return kind.name in ("enum", "dtype", "dict") or kind is ANYTHING


def fit(known: Known, kind: ConfigType, what: str) -> Known:
    """A value as a parameter of some type holds it; Problem where it does not fit."""
    value = _convert(known.value, kind, what, known.span)
    return replace(known, value=value, choices=kind.choices)


def _convert(value: Value, kind: ConfigType, what: str, span: Span) -> Value:
    if kind is ANYTHING or (value is None and kind.optional):
        return value
    if not kind.listed:
        return _single(value, kind, what, span)
    if not isinstance(value, tuple):
        raise _wrong(what, value, f"a list of {_wanted(kind)}", span)
    return Items.of(_single(item, kind, f"an element of {what}", span) for item in value)


def _single(value: Value, kind: ConfigType, what: str, span: Span) -> Value:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind.name == "float" and isinstance(value, int) and whole:
        return float(value)
    fits = {
        "int": whole or isinstance(value, Dim),
        "float": isinstance(value, float),
        "bool": isinstance(value, bool),
        "string": isinstance(value, str),
        "dtype": isinstance(value, str) and value in DTYPES,
        "enum": isinstance(value, str) and value in kind.choices,
        "dict": isinstance(value, Record),
    }
    if fits.get(kind.name, True):
        return value
    raise _wrong(what, value, _wanted(kind), span, _repair(value, kind))


def _wanted(kind: ConfigType) -> str:
    if kind.name == "enum":
        return f"one of {', '.join(kind.choices)}"
    return _WANTED.get(kind.name, f"a {kind.name}")


def _repair(value: Value, kind: ConfigType) -> str:
    if isinstance(value, str) and kind.name in ("enum", "dtype"):
        return guess(value, kind.choices if kind.name == "enum" else DTYPES)
    return "None is taken by a type with '?'" if value is None else ""


def _wrong(what: str, value: Value, wanted: str, span: Span, repair: str = "") -> Problem:
    return Problem(rules.KIND.at(span, what=what, found=describe(value), wanted=wanted, repair=repair))
