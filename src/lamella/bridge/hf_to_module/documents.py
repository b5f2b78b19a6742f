"""The JSON files of a folder, read without trust: bounded, and with each key once."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import Malformed
from lamella.base.jsontext import decode_object
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import read_text_in, shown, stored_in
from lamella.base.source import Source, Span
from lamella.lang.module.rules import mappings as rules


def whole(path: Path) -> Span:
    """The place of findings about a file as a whole."""
    return Span(Source(shown(path), ""), 0, 0)


def wrong_file(path: Path, why: str, repair: str = "") -> Diagnostic:
    """The finding that a file of a folder cannot be taken."""
    return rules.FOLDER.at(whole(path), file=path.name, why=why, repair=repair)


def refuse_link(folder: Path, name: str) -> None:
    """Leave with a finding where a file of a folder is a link; those of a hub's cache stay inside of it."""
    if (folder / name).is_symlink() and stored_in(folder, name) == (folder, [name]):
        hint = "copy the folder with what its links lead to: cp -rL FOLDER COPY"
        raise LamellaError([wrong_file(folder / name, "it is a symbolic link, which is not followed", hint)])


def read_object(folder: Path, name: str, limits: Limits = DEFAULT) -> dict[str, object]:
    """The object that a JSON file of a folder holds; LamellaError says what is wrong with it."""
    path = folder / name
    refuse_link(folder, name)
    text = read_text_in(folder, name, limits)
    try:
        return decode_object(text, limits.max_depth)
    except Malformed as problem:
        position = problem.details.get("position")
        place = whole(path)
        if isinstance(position, int):
            place = Span(Source(shown(path), text), position, min(position + 1, len(text)))
        raise LamellaError([rules.FOLDER.at(place, file=path.name, why=f"it {problem}", repair="")]) from None
