"""JSON read without trust: bounded nesting, each key once, and the place of a mistake."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping

from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
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


class DuplicateKeyError(Exception):
    """Carries a key that an object holds twice; readers turn it into a finding of their own."""


def parse_json(
    source: Source, limits: Limits = DEFAULT, read_number: Callable[[str], float] | None = None
) -> object:
    """The value of a JSON text; InputError points at what is wrong with it."""
    try:
        found: object = json.loads(source.text, object_pairs_hook=unique_keys, parse_float=read_number)
    except DuplicateKeyError as problem:
        key = str(problem.args[0])
        at = source.text.rfind(json.dumps(key))  # the later of the two, where it is spelled plainly
        span = Span(source, max(at, 0), at + len(key) + 2 if at >= 0 else 0)
        raise InputError(f"the key '{key[:200]}' stands twice in one object", span=span) from None
    except json.JSONDecodeError as problem:
        hint = next((text for start, text in REPAIRS.items() if problem.msg.startswith(start)), "")
        words = problem.msg[:1].lower() + problem.msg[1:]
        span = Span(source, problem.pos, min(problem.pos + 1, len(source.text)))
        raise InputError(f"this is no JSON: {words}", span=span, hint=hint) from None
    except RecursionError:
        raise _too_deep(source, limits) from None
    except ValueError as problem:  # a number of more digits than Python reads, or none that fits
        raise InputError(f"this is no JSON: {str(problem)[:100]}", span=Span(source, 0, 0)) from None
    if is_deeper(found, limits.max_depth):
        raise _too_deep(source, limits)
    return found


def _too_deep(source: Source, limits: Limits) -> InputError:
    message = f"the text nests more than {limits.max_depth} levels deep"
    return InputError(message, span=Span(source, 0, 0), hint="raise it with --limit max_depth=N")


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The object of some pairs, for `object_pairs_hook`; no key may stand there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DuplicateKeyError(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return found


def is_deeper(value: object, depth: int) -> bool:
    """Whether a value nests more levels deep than a number; level by level, without recursion."""
    level = [value]
    for _ in range(depth + 1):
        level = [inner for item in level for inner in _inside(item)]
    return bool(level)


def _inside(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []
