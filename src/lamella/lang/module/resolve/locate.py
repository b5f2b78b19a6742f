"""What the path of an import leads to: a declaration in a file, a file, or a folder of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lamella.lang.module.resolve.places import File, Place


@dataclass(frozen=True, slots=True)
class Located:
    """A file, a name in a file, or, where there is no file, a folder."""

    place: Place
    parts: tuple[str, ...]
    file: File | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Wrong:
    """A path that leads nowhere with its version; the versions that are there."""

    versions: tuple[int, ...] = ()


def locate(path: tuple[str, ...], version: int | None, places: Iterable[Place]) -> Located | Wrong:
    """Where a path leads: the first place that has it decides."""
    others: set[int] = set()
    for place in places:
        for parts in _spellings(path, place):
            for found in candidates(place, parts):
                number = None if found.file is None else found.file.version
                if version is None or number is None or number == version:
                    return found
                others.add(number)
    return Wrong(tuple(sorted(others)))


def _spellings(path: tuple[str, ...], place: Place) -> Iterator[tuple[str, ...]]:
    """A path as a place spells it: the standard library with and without `std`, other places never with it."""
    if path[0] != "std":
        yield path
    elif place.standard and len(path) > 1:
        yield path[1:]


def candidates(place: Place, parts: tuple[str, ...]) -> Iterator[Located]:
    """All that a path may mean in one place, the likeliest first and the highest version before others."""
    above, last = parts[:-1], parts[-1]
    if above:
        for file in reversed(place.versions(above)):
            if last in place.declares(file):
                yield Located(place, above, file, last)
    for file in reversed(place.versions(parts)):
        yield Located(place, parts, file)
    if above:
        for file in reversed(place.index(above).get(last, ())):
            yield Located(place, (*file.folder, file.stem), file, last)
    if place.files(parts):
        yield Located(place, parts)
