"""Suggestions: the closest name to one that nothing declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from lamella.base.suggest import nearest

_MOST = 500
_LONGEST = 200
_MOST_SUGGESTIONS = 100


def suggest(name: str, names: Iterable[str]) -> str:
    """A hint with the name that was probably meant, or an empty text."""
    if len(name) > _LONGEST:
        return ""
    # Hints may be asked for thousands of names: those that begin otherwise are not worth the comparison.
    first = name[:1].lower()
    alike = (item for item in names if len(item) <= _LONGEST and item[:1].lower() == first)
    known = dict.fromkeys(islice(alike, _MOST))
    same_letters = [item for item in known if item.lower() == name.lower() and item != name]
    close = same_letters or nearest(name, known)
    return f"did you mean '{close[0]}'?" if close else ""


class Suggestions:
    """The names that could have been meant, for hints that stay cheap where a whole file is misspelt."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._read = names
        self._names: list[str] | None = None
        self._left = _MOST_SUGGESTIONS

    def suggest(self, name: str) -> str:
        """A hint with the name that was probably meant; nothing after many of them."""
        self._left -= 1
        if self._left < 0:
            return ""
        if self._names is None:
            self._names = sorted(set(self._read()))
        return suggest(name, self._names)
