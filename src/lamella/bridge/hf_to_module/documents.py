"""The JSON files of a folder, read without trust: bounded, and with each key once."""

from __future__ import annotations

import json
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.jsontext import DuplicateKeyError, is_deeper, unique_keys
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
        found: object = json.loads(text, object_pairs_hook=unique_keys)
    except DuplicateKeyError as problem:
        raise LamellaError(
            [wrong_file(path, f"the key '{str(problem.args[0])[:200]}' stands there twice")]
        ) from None
    except json.JSONDecodeError as problem:
        why = f"it is no JSON: {problem.msg[:1].lower()}{problem.msg[1:100]}"
        place = Span(Source(shown(path), text), problem.pos, min(problem.pos + 1, len(text)))
        raise LamellaError([rules.FOLDER.at(place, file=path.name, why=why, repair="")]) from None
    except (ValueError, RecursionError) as problem:
        deep = isinstance(problem, RecursionError)
        why = "it nests too deeply" if deep else f"it is no JSON: {str(problem)[:100]}"
        raise LamellaError([wrong_file(path, why)]) from None
    if not isinstance(found, dict):
        raise LamellaError([wrong_file(path, "it is no JSON object")])
    if is_deeper(found, limits.max_depth):
        raise LamellaError([wrong_file(path, f"it nests more than {limits.max_depth} levels deep")])
    return found
