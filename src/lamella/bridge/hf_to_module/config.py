"""Values of config parameters from a `config.json`: found by `param_mapping:`, and of the type that is declared."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import LANGUAGES, name_in
from lamella.base.limits import in_range
from lamella.base.source import Span
from lamella.base.suggest import nearest
from lamella.bridge.hf_to_module.keys import MISSING, find_value, mapped_keys
from lamella.lang.module.instantiate.nodes import Known, Value
from lamella.lang.module.nodes import (
    Bool,
    ConfigParam,
    ConfigType,
    Expr,
    Field,
    Integer,
    List,
    Null,
    Real,
    Rest,
    Text,
    Unary,
)
from lamella.lang.module.rules import mappings as rules

FILE = "config.json"
_PLURALS = MappingProxyType({"int": "integers", "float": "numbers", "string": "texts"})


class ReadConfig(NamedTuple):
    """The values that a config gives, by parameter, and what is wrong with the others."""

    values: Mapping[str, Known]
    findings: tuple[Diagnostic, ...] = ()


class _WrongError(Exception):
    """Says what a value should be; never leaves this module."""


def find_architecture(config: Mapping[str, object]) -> tuple[str, ...]:
    """The names under which the architecture of a config may be known, the most exact first; they are only compared."""
    listed = config.get("architectures")
    names = [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
    kind = config.get("model_type")
    if not names and isinstance(kind, str):
        names = [kind]
    return tuple(names)


def read_config(
    fields: tuple[Field, ...], params: Sequence[ConfigParam], config: Mapping[str, object]
) -> ReadConfig:
    """What a config says of the parameters of a model; where it says nothing, the default of the model stands.

    null is None for a parameter that may be None, and nothing for another.
    """
    declared = {item.name: item for item in params}
    values: dict[str, Known] = {}
    findings: list[Diagnostic] = []
    seen: set[str] = set()
    for entry, keys in mapped_keys(fields):
        wrong = _check_entry(entry, keys, declared, seen)
        seen.add(entry.name)
        if wrong is not None:
            findings.append(wrong)
            continue
        key, found = find_value(config, keys)
        try:
            values |= _value(declared[entry.name], key, found, entry.span)
        except _WrongError as problem:
            findings.append(_wrong(entry.span, key, found, problem))
    return ReadConfig(values, tuple(findings))


def _check_entry(
    entry: Field, keys: tuple[str, ...], declared: Mapping[str, ConfigParam], seen: Container[str]
) -> Diagnostic | None:
    """What is wrong with an entry of `param_mapping:` itself."""
    if entry.name not in declared:
        return rules.PARAMETER.at(entry.span, name=entry.name, repair=_nearest(entry.name, declared))
    if entry.name in seen:
        return rules.TWICE.at(entry.span, path=entry.name)
    return None if keys else rules.KEY.at(entry.span, name=entry.name)


def _nearest(name: str, declared: Mapping[str, ConfigParam]) -> str:
    close = nearest(name, declared)
    return f"did you mean '{close[0]}'?" if close else ""


def _wrong(span: Span, key: str, found: object, problem: _WrongError) -> Diagnostic:
    wanted, repair = problem.args[0], ""
    if isinstance(found, str) and wanted.endswith(("integer", "number")):
        repair = "write it without quotes"
    return rules.CONFIG.at(span, key=key, file=FILE, found=_tell(found), wanted=wanted, repair=repair)


def _tell(value: object) -> str:
    """A value of JSON as a message names it."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and not isinstance(value, bool) and not in_range(value):
        return f"a {value.bit_length()}-bit number"
    return json.dumps(value, ensure_ascii=False)[:80]


def _value(param: ConfigParam, key: str, found: object, span: Span) -> dict[str, Known]:
    """The value of a parameter under its name, or nothing."""
    kind = type_of(param)
    if found is MISSING or (found is None and not kind.optional):
        return {}
    value = None if found is None else _listed(kind, found, _may_be_negative(param.default))
    return {param.name: Known(value, f"{FILE} '{key}'", span, kind.choices)}


def type_of(param: ConfigParam) -> ConfigType:
    """The type of a parameter: the one that is declared, else that of its default, else `int`."""
    if param.type is not None:
        return param.type
    match param.default:
        case List(items):
            first = items[0] if items and not isinstance(items[0], Rest) else None
            return ConfigType(_name_of(first), listed=True)
        case Null():
            return ConfigType("int", optional=True)
        case _:
            return ConfigType(_name_of(param.default))


def _name_of(default: Expr | None) -> str:
    while isinstance(default, Unary):
        default = default.operand
    names = ((Real, "float"), (Bool, "bool"), (Text, "string"))
    return next((name for node, name in names if isinstance(default, node)), "int")


def _may_be_negative(default: Expr | None) -> bool:
    """Whether a parameter is no size, which its default tells."""
    return isinstance(default, Unary) and isinstance(default.operand, Integer)


def _listed(kind: ConfigType, found: object, negative: bool) -> Value:
    if not kind.listed:
        return _one(kind, found, negative)
    if not isinstance(found, list):
        raise _WrongError(f"a list of {_PLURALS.get(kind.name, kind.name)}")
    return tuple(_item(kind, item, negative) for item in found)


def _item(kind: ConfigType, found: object, negative: bool) -> Value:
    """An item of a list; one that is wrong is named itself."""
    try:
        return _one(kind, found, negative)
    except _WrongError as problem:
        raise _WrongError(f"a list in which {_tell(found)} is {problem.args[0]}") from None


def _one(kind: ConfigType, found: object, negative: bool) -> Value:
    match kind.name:
        case "int":
            return _integer(found, negative)
        case "float":
            return _number(found)
        case "bool":
            return _truth(found)
        case "dtype":
            return _dtype(found)
        case _:
            return _word(kind, found)


def _integer(found: object, negative: bool) -> int:
    if type(found) is not int or not in_range(found):
        raise _WrongError("a 64-bit integer" if type(found) is int else "an integer")
    if found < 0 and not negative:
        raise _WrongError("a number that is not negative")
    return found


def _number(found: object) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise _WrongError("a number")
    if (isinstance(found, int) and not in_range(found)) or not math.isfinite(found):
        raise _WrongError("a finite number")
    return float(found)


def _truth(found: object) -> bool:
    if not isinstance(found, bool):
        raise _WrongError("true or false")
    return found


def _dtype(found: object) -> str:
    """Our word for an element type; files say `bfloat16` or `torch.bfloat16`."""
    plain = found.removeprefix("torch.") if isinstance(found, str) else ""
    element = LANGUAGES["nac"].get(plain) or LANGUAGES["module"].get(plain)
    word = name_in("module", element) if element is not None else None
    if word is None:
        raise _WrongError("the name of an element type")
    return word


def _word(kind: ConfigType, found: object) -> str:
    if not isinstance(found, str):
        raise _WrongError("a text")
    if kind.choices and found not in kind.choices:
        raise _WrongError(f"one of {', '.join(kind.choices)}")
    return found
