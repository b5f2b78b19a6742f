"""Values as messages name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lamella.base.dim import Dim
from lamella.base.source import Span
from lamella.lang.module.instantiate.nodes import Known, Record
from lamella.lang.module.nodes import (
    Argument,
    Call,
    Chain,
    Dict,
    Expr,
    Index,
    List,
    Member,
    Name,
    Rest,
    Select,
    Set,
    Slice,
    Star,
    Subscript,
    Unary,
    Unchanged,
)

_LONGEST_QUOTE = 80
_READ = 1000
_SHOWN_ITEMS = 6
_MOST_TOLD = 8


def tell(names: Iterable[str], known: Mapping[str, Known]) -> str:
    """The values of some names and where they came from: ` (d_model = 64 by default, H = 6 from let)`, or nothing."""
    found = [name for name in dict.fromkeys(names) if name in known]
    parts = [f"{name} = {_with_source(known[name])}" for name in found[:_MOST_TOLD]]
    return f" ({', '.join(parts)}{', …' if len(found) > _MOST_TOLD else ''})" if parts else ""


def _with_source(known: Known) -> str:
    shown = show(known.value)
    if not known.source:
        return shown
    first = known.source.partition(" ")[0]
    preposition = {"default": "by", "inherited": "by", "argument": "as"}.get(first, "from")
    return f"{shown} {preposition} {known.source}"


def show(value: object) -> str:
    """A value as the language writes it, shortened."""
    if isinstance(value, tuple):
        items = [show(item) for item in value[:_SHOWN_ITEMS]]
        return f"[{', '.join(items)}{', …' if len(value) > _SHOWN_ITEMS else ''}]"
    if isinstance(value, Record):
        entries = [f"{key}: {show(item)}" for key, item in value.entries[:_SHOWN_ITEMS]]
        return f"{{{', '.join(entries)}{', …' if len(value.entries) > _SHOWN_ITEMS else ''}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= _LONGEST_QUOTE else f'"{value[:_LONGEST_QUOTE]}…"'
    return str(value)


def describe(value: object) -> str:
    """A value with its kind."""
    if isinstance(value, Dim):
        return f"the runtime dimension {value}"
    if isinstance(value, tuple):
        return f"the list {show(value)}"
    if isinstance(value, Record):
        return f"the dict {show(value)}"
    kind = {int: "the integer ", float: "the number ", str: "the string "}.get(type(value), "")
    return f"{kind}{show(value)}"


def quote(span: Span, otherwise: str) -> str:
    """The text of a place on one line, shortened; something else where there is no text."""
    text = " ".join(span.source.text[span.start : min(span.end, span.start + _READ)].split()) or otherwise
    return text if len(text) <= _LONGEST_QUOTE else f"{text[: _LONGEST_QUOTE - 1]}…"


def names_in(*parts: Expr | Star | Unchanged) -> Iterator[str]:
    """The names that expressions use, from left to right, without recursion."""
    todo: list[Subscript | Star | Unchanged] = list(reversed(parts))
    while todo:
        item = todo.pop()
        if isinstance(item, Name):
            yield item.id
        elif not isinstance(item, Rest | Star | Unchanged):
            todo += reversed(parts_of(item))


def parts_of(expr: Expr | Slice) -> list[Subscript]:
    """What stands directly in an expression; the callee of a call is no value."""
    match expr:
        case Chain(first, rest):
            return [first, *(operand for _, operand in rest)]
        case Unary(_, operand) | Member(operand, _):
            return [operand]
        case Select(value, condition, otherwise):
            return [value, condition, otherwise]
        case Index(operand, items):
            return [operand, *items]
        case Slice(begin, end):
            return [bound for bound in (begin, end) if bound is not None]
        case List(items) | Set(items):
            return list(items)
        case Dict(entries):
            return [entry.value for entry in entries]
        case Call(_, arguments):
            return [_value(argument) for argument in arguments]
    return []


def _value(argument: Argument) -> Expr:
    return argument.value
