"""JSON read without trust: bounded nesting, each key once, and the place of a mistake."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable

from lamella.base.errors import InputError, Malformed
from lamella.base.limits import DEFAULT, Limits, hint_for
from lamella.base.source import Source, Span

REPAIRS = {
    "Expecting property name": "a key in double quotes belongs here; the last entry has no comma behind it",
    "Expecting value": "a value belongs here; the last item has no comma behind it",
    "Expecting ',' delimiter": "a comma or the closing bracket is missing",
    "Expecting ':' delimiter": "a colon stands between a key and its value",
    "Unterminated string": "close the string with a double quote",
    "Extra data": "one file holds one value",
    "Invalid control character": "line breaks in strings are written \\n",
    "Illegal trailing comma": "the last entry has no comma behind it",
}
"""What to do about what Python's parser says, by the start of its sentence."""


def parse_json(
    source: Source, limits: Limits = DEFAULT, read_number: Callable[[str], float] | None = None
) -> object:
    """The value of a JSON text; InputError points at what is wrong with it."""
    try:
        return decode_json(source.text, limits.max_depth, read_number)
    except Malformed as problem:
        key, position, words = (problem.details.get(name) for name in ("key", "position", "python"))
        span, hint = Span(source, 0, 0), ""
        if isinstance(key, str):
            at = source.text.rfind(json.dumps(key))  # the later of the two, where it is spelled plainly
            span = Span(source, max(at, 0), at + len(key) + 2 if at >= 0 else 0)
        elif isinstance(position, int):
            span = Span(source, position, min(position + 1, len(source.text)))
            hint = next((text for start, text in REPAIRS.items() if str(words).startswith(start)), "")
        elif "depth" in problem.details:
            hint = hint_for("max_depth")
        raise InputError(f"this {problem}", span=span, hint=hint) from None


def decode_json(
    text: str | bytes | memoryview,
    max_depth: int | None = DEFAULT.max_depth,
    read_number: Callable[[str], float] | None = None,
) -> object:
    """The value of an untrusted JSON text: each key once, no deeper than `max_depth` where that is not None.

    Malformed says what is wrong, with a `position`, a `key` or a `depth` among its details. The size of a text is
    bounded by whoever read it.
    """
    try:
        plain = text if isinstance(text, str) else bytes(text).decode("utf-8")
        value: object = json.loads(plain, object_pairs_hook=_unique_keys, parse_float=read_number)
    except json.JSONDecodeError as problem:
        words = problem.msg[:1].lower() + problem.msg[1:100]
        raise Malformed(f"is no JSON: {words}", position=problem.pos, python=problem.msg) from None
    except RecursionError:
        raise _too_deep(max_depth) from None
    except ValueError as problem:  # no UTF-8, a number of more digits than Python reads, or none that fits
        raise Malformed(f"is no JSON: {str(problem)[:100]}") from None
    if max_depth is not None and _is_deeper(value, max_depth):
        raise _too_deep(max_depth)
    return value


def decode_object(
    text: str | bytes | memoryview, max_depth: int | None = DEFAULT.max_depth
) -> dict[str, object]:
    """The object of an untrusted JSON text; Malformed where it is none."""
    value = decode_json(text, max_depth)
    if not isinstance(value, dict):
        raise Malformed("is no JSON object")
    return value


def _too_deep(max_depth: int | None) -> Malformed:
    words = "too deeply" if max_depth is None else f"more than {max_depth} levels deep"
    return Malformed(f"nests {words}", depth=max_depth)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Malformed(f"has the key '{key[:200]}' twice", key=key)
    return value


def _is_deeper(value: object, depth: int) -> bool:
    """Whether a value nests more levels deep than a number; level by level, without recursion."""
    level = [value]
    # Python's parser bounds only its own recursion; those who walk the value afterwards recurse too.
    for _ in range(depth + 1):
        level = [inner for item in level for inner in _inside(item)]
        if not level:
            return False
    return True


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
