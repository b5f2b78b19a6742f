"""A tree of a pattern as a pattern of Python's own matcher, for patterns that it runs in linear time."""

from __future__ import annotations

import re

from lamella.backend.tisa.patterns.nodes import Begin, Choice, Look, Node, One, Repeat, Row
from lamella.backend.tisa.patterns.sets import Chars


def translate(node: Node, last: int) -> str:
    """The pattern for texts without characters beyond a code point."""
    match node:
        case One(chars):
            return _set(chars.up_to(last))
        case Look(chars, end):
            beyond = (~chars).up_to(last)
            return f"(?!{_set(beyond)})" if end else f"(?={_set(chars.up_to(last))})"
        case Begin():
            return r"\A"
        case Row(items):
            return "".join(translate(item, last) for item in items)
        case Choice(options):
            return f"(?:{'|'.join(translate(item, last) for item in options)})"
        case Repeat(item, low, high):
            inner = translate(item, last)
            grouped = inner if isinstance(item, One) else f"(?:{inner})"
            return f"{grouped}{_count(low, high)}{'+' if node.final else '' if node.eager else '?'}"


def _count(low: int, high: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    return short or f"{{{low},{'' if high is None else high}}}"


def _set(chars: Chars) -> str:
    if not chars.ranges:
        return r"(?!)"
    if len(chars) == 1:
        return re.escape(chr(chars.ranges[0][0]))
    return "[" + "".join(f"{_code(start)}-{_code(end)}" for start, end in chars.ranges) + "]"


def _code(code: int) -> str:
    return f"\\U{code:08x}"
