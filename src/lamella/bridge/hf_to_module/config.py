"""Values of config parameters from a `config.json`: found by `param_mapping:`, and of the type that is declared."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import LANGUAGES, name_in
from lamella.base.errors import Malformed
from lamella.base.limits import in_range
from lamella.base.source import Span
from lamella.base.suggest import nearest
from lamella.lang.module.instantiate.nodes import DictValue, Items, Known, Value
from lamella.lang.module.nodes import (
    Bool,
    Call,
    ConfigParam,
    ConfigType,
    Expr,
    Field,
    Integer,
    List,
    Member,
    Name,
    Null,
    Real,
    Rest,
    Text,
    Unary,
)
from lamella.lang.module.rules import mappings as rules

# --- keys of `config.json`, and how versions of transformers spell them -------------------------------------


FIRST_OF = "first_of"
_NESTED, _SCALING = "rope_parameters", "rope_scaling"
_MOVED = ("rope_theta", "partial_rotary_factor")
"""What stood at the top before version 5 of transformers, and beside the other RoPE values since then."""
_RENAMED = MappingProxyType({"dtype": "torch_dtype", "torch_dtype": "dtype"})


class _Missing:
    """The type of what is not there, which None cannot say: null is a value."""


MISSING = _Missing()


def text_of(fields: tuple[Field, ...], name: str) -> str:
    """A text of `hf_config:`, empty where it is not given."""
    found = next((item.value for item in fields if item.name == name), "")
    return found.value if isinstance(found, Text) else ""


def mapped_keys(fields: tuple[Field, ...]) -> Iterator[tuple[Field, tuple[str, ...]]]:
    """The entries of `param_mapping:`, each with its keys, the first to be tried first."""
    for item in fields:
        if item.name == "param_mapping" and isinstance(item.value, tuple):
            yield from ((entry, keys_of(entry.value)) for entry in item.value)


def keys_of(value: Expr | str | tuple[Field, ...]) -> tuple[str, ...]:
    """The keys that an entry names: one, or those of `first_of(…)`; none where it is no such thing."""
    match value:
        case Call(Name(called), arguments) if called == FIRST_OF and arguments:
            found = [key_of(item.value) for item in arguments if item.name is None]
        case List(items):
            found = ["" if isinstance(item, Rest) else key_of(item) for item in items]
        case str() | tuple():
            found = [value] if isinstance(value, str) else [""]
        case _:
            found = [key_of(value)]
    return tuple(found) if all(found) else ()


def key_of(value: Expr) -> str:
    """A key or a dotted path of keys, empty where an expression is neither."""
    fields: list[str] = []
    while isinstance(value, Member):
        fields.append(value.field)
        value = value.operand
    if isinstance(value, Text) and not fields:
        return value.value
    return ".".join([value.id, *reversed(fields)]) if isinstance(value, Name) else ""


def spellings(key: str) -> Iterator[str]:
    """A key as newer and older files spell it, newer ones first."""
    head, _, field = key.partition(".")
    if key in _MOVED:
        yield f"{_NESTED}.{key}"
        yield key
    elif head in (_NESTED, _SCALING) and field:
        yield f"{_NESTED}.{'rope_type' if field == 'type' else field}"
        yield from (field,) if field in _MOVED else (f"{_SCALING}.{field}",)
        if field == "rope_type":
            yield f"{_SCALING}.type"
    else:
        yield key
        if key in _RENAMED:
            yield _RENAMED[key]


def look_up(config: Mapping[str, object], key: str) -> object:
    """The value at a dotted path of keys, or MISSING; a key that holds a dot itself is found too."""
    if key in config:
        return config[key]
    found: object = config
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return MISSING
        found = found[part]
    return found


def find_value(config: Mapping[str, object], keys: tuple[str, ...]) -> tuple[str, object]:
    """The first key that has a value, and the value; null only where no other has one."""
    empty: tuple[str, object] = ("", MISSING)
    for key in keys:
        for spelled in spellings(key):
            found = look_up(config, spelled)
            if found is not MISSING and found is not None:
                return spelled, found
            if found is None:
                empty = (spelled, None)
    return empty


FILE = "config.json"
LARGEST = 3.4028234663852886e38
_PLURALS = MappingProxyType({"int": "integers", "float": "numbers", "string": "texts"})


class ReadConfig(NamedTuple):
    """The values that a config gives, by parameter, and what is wrong with the others."""

    values: Mapping[str, Known]
    findings: tuple[Diagnostic, ...] = ()


def find_architecture(config: Mapping[str, object]) -> tuple[str, ...]:
    """The names under which the architecture of a config may be known, the most exact first; they are only compared."""
    listed = config.get("architectures")
    names = [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
    kind = config.get("model_type")
    if not names and isinstance(kind, str):
        names = [kind]
    return tuple(names)


HEADS = MappingProxyType(
    {"SequenceClassification": "classes", "TokenClassification": "tokens", "QuestionAnswering": "spans"}
)
"""The heads of decoders beside that of words, by how names of architectures end behind `For`."""


def split_head(name: str) -> tuple[str, str | None]:
    """The name of an architecture with the head of words, and the head that it has in its place."""
    stem, _, task = name.rpartition("For")
    return (f"{stem}ForCausalLM", HEADS[task]) if stem and task in HEADS else (name, None)


def with_head(name: str, head: object) -> str:
    """The name of an architecture with another head than that of words."""
    task = next((task for task, item in HEADS.items() if item == head), None)
    return name if task is None else f"{name.removesuffix('ForCausalLM')}For{task}"


def head_of(config: Mapping[str, object]) -> str | None:
    """The head that the architecture of a config has in the place of that of words."""
    return next((head for name in find_architecture(config) if (head := split_head(name)[1])), None)


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
        except Malformed as problem:
            findings.append(_wrong(entry.span, key, found, problem))
    if "head" in declared and (head := head_of(config)) is not None:
        kind = type_of(declared["head"])
        values["head"] = Known(head, f"{FILE} 'architectures'", declared["head"].span, kind.choices)
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


def _wrong(span: Span, key: str, found: object, problem: Malformed) -> Diagnostic:
    wanted, repair = problem.args[0], ""
    if isinstance(found, str) and wanted.endswith(("integer", "number")):
        repair = "write it without quotes"
    return rules.CONFIG.at(span, key=key, file=FILE, found=_shown(found), wanted=wanted, repair=repair)


def _shown(value: object) -> str:
    """A value of JSON as a message names it."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and not isinstance(value, bool) and not in_range(value):
        # Its digits could fill the message, and Python refuses to print very many.
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
    """Whether a parameter is no size, which its default shows."""
    return isinstance(default, Unary) and isinstance(default.operand, Integer)


def _listed(kind: ConfigType, found: object, negative: bool) -> Value:
    if not kind.listed:
        return _one(kind, found, negative)
    if isinstance(found, str) and kind.choices:
        # As DeBERTa writes it: "c2p|p2c".
        found = [word.strip() for word in found.lower().split("|")]
    if not isinstance(found, list):
        raise Malformed(f"a list of {_PLURALS.get(kind.name, kind.name)}")
    return tuple(_item(kind, item, negative) for item in found)


def _item(kind: ConfigType, found: object, negative: bool) -> Value:
    """An item of a list; one that is wrong is named itself."""
    if kind.name == "float" and found in (math.inf, {"__float__": "Infinity"}):
        # As a bound it is the largest number of 32 bits: constants are finite.
        return LARGEST
    try:
        return _one(kind, found, negative)
    except Malformed as problem:
        raise Malformed(f"a list in which {_shown(found)} is {problem.args[0]}") from None


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
        case "dict":
            return _dict(found)
        case _:
            return _word(kind, found)


def _integer(found: object, negative: bool) -> int:
    # Not isinstance: true and false are integers in Python.
    if type(found) is not int or not in_range(found):
        raise Malformed("a 64-bit integer" if type(found) is int else "an integer")
    if found < 0 and not negative:
        raise Malformed("a number that is not negative")
    return found


def _number(found: object) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise Malformed("a number")
    if (isinstance(found, int) and not in_range(found)) or not math.isfinite(found):
        raise Malformed("a finite number")
    return float(found)


def _truth(found: object) -> bool:
    if not isinstance(found, bool):
        raise Malformed("true or false")
    return found


def _dtype(found: object) -> str:
    """Our word for an element type; files say `bfloat16` or `torch.bfloat16`."""
    plain = found.removeprefix("torch.") if isinstance(found, str) else ""
    element = LANGUAGES["nac"].get(plain) or LANGUAGES["module"].get(plain)
    word = name_in("module", element) if element is not None else None
    if word is None:
        raise Malformed("the name of an element type")
    return word


def _dict(found: object) -> DictValue:
    """An object, with numbers, words, truths, lists of them, and further objects."""
    if not isinstance(found, dict):
        raise Malformed("an object")
    return DictValue(tuple((key, _any(value)) for key, value in found.items() if isinstance(key, str)))


def _any(found: object) -> Value:
    """A value of JSON whose type nobody declares."""
    if found is None or isinstance(found, bool | str):
        return found
    if isinstance(found, dict):
        return _dict(found)
    if isinstance(found, list):
        return Items.of(_any(item) for item in found)
    return _integer(found, negative=True) if isinstance(found, int) else _number(found)


def _word(kind: ConfigType, found: object) -> str:
    if not isinstance(found, str):
        raise Malformed("a text")
    if kind.choices and found not in kind.choices:
        raise Malformed(f"one of {', '.join(kind.choices)}")
    return found
