"""Values and texts as messages show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lamella.base.dim import Dim
from lamella.base.source import Span
from lamella.lang.module.instantiate.nodes import DictValue, Known

_LONGEST_QUOTE = 80
_READ = 1000
_SHOWN_ITEMS = 6
_MOST_SHOWN = 8


def format_values(names: Iterable[str], known: Mapping[str, Known]) -> str:
    """The values of some names and where they came from: ` (d_model = 64 by default, H = 6 from let)`, or nothing."""
    found = [name for name in dict.fromkeys(names) if name in known]
    parts = [f"{name} = {_with_source(known[name])}" for name in found[:_MOST_SHOWN]]
    return f" ({', '.join(parts)}{', …' if len(found) > _MOST_SHOWN else ''})" if parts else ""


def _with_source(known: Known) -> str:
    shown = show(known.value)
    if not known.source:
        return shown
    first = known.source.partition(" ")[0]
    preposition = {"default": "by", "inherited": "by", "argument": "as", "example": "for"}.get(first, "from")
    return f"{shown} {preposition} {known.source}"


def show(value: object) -> str:
    """A value as the language writes it, shortened."""
    if isinstance(value, tuple):
        items = [show(item) for item in value[:_SHOWN_ITEMS]]
        return f"[{', '.join(items)}{', …' if len(value) > _SHOWN_ITEMS else ''}]"
    if isinstance(value, DictValue):
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
    if isinstance(value, DictValue):
        return f"the dict {show(value)}"
    kind = {int: "the integer ", float: "the number ", str: "the string "}.get(type(value), "")
    return f"{kind}{show(value)}"


def quote(span: Span, otherwise: str) -> str:
    """The text of a place on one line, shortened; something else where there is no text."""
    text = " ".join(span.source.text[span.start : min(span.end, span.start + _READ)].split()) or otherwise
    return text if len(text) <= _LONGEST_QUOTE else f"{text[: _LONGEST_QUOTE - 1]}…"
