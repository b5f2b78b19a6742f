"""The standard library of the Module DSL by its dotted names: `std.models.llama`, `std.primitives.flash_attention`."""

from __future__ import annotations

from pathlib import Path

from lamella.base.errors import InputError
from lamella.lang.module.resolve import Workspace
from lamella.lang.module.resolve.locate import Located, locate
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.resolve.places import Place
from lamella.pipeline.options import Options

STD = "std"


def is_standard(name: str) -> bool:
    """Whether a word is a name of the standard library, and not that of a file."""
    return name == STD or name.startswith(f"{STD}.")


def find_standard(name: str, options: Options) -> Located:
    """What a dotted name of the library leads to: a declaration, a file or a folder; InputError where there is none."""
    place = Workspace((), options.limits).standard
    parts = tuple(name.split("."))[1:]
    if not parts:
        return Located(place, ())
    found = locate((STD, *parts), None, [place]) if all(parts) else None
    if isinstance(found, Located):
        return found
    hint = guess(name, _names(place)) or f"lamella show {STD} lists what there is"
    raise InputError(f"there is no '{name[:200]}' in the standard library", hint=hint)


def find_file(name: str, options: Options) -> Path:
    """The file that a dotted name of the library leads to."""
    found = find_standard(name, options)
    if found.file is None:
        raise InputError(
            f"'{name[:200]}' is a folder of the standard library", hint=f"lamella show {name[:200]}"
        )
    return found.place.root / found.file.below


def _names(place: Place) -> list[str]:
    """All dotted names of the library."""
    found: list[str] = []
    waiting: list[tuple[str, ...]] = [(folder,) for folder in place.folders]
    while waiting:
        folder = waiting.pop()
        found.append(place.dotted(folder))
        waiting += [(*folder, name) for name in place.subfolders(folder)]
        for file in place.files(folder):
            found.append(place.dotted((*folder, file.stem)))
            found += [place.dotted((*folder, file.stem, name)) for name in sorted(place.declares(file))]
            found += [place.dotted((*folder, name)) for name in sorted(place.declares(file))]
    return found
