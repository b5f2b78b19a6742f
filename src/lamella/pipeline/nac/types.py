"""What an input is, where a file does not say: `f32[2, 8]` as a user writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lamella.base.dtype import LANGUAGES, ElementType
from lamella.base.errors import InputError
from lamella.bridge.nac_to_graph import InputType
from lamella.lang.nac.nodes import File

LARGEST = 2**31
ELEMENTS: Mapping[str, ElementType] = {**LANGUAGES["skriptnd"], **LANGUAGES["nac"]}
PATTERN = re.compile(r"\s*([a-z][a-z0-9_]*)\s*\[([\d,\s]*)\]\s*")


def read_types(words: Mapping[str, str], file: File) -> dict[str, InputType]:
    """The inputs that a user describes; each must be one of the file's."""
    names = [item.name for item in file.inputs]
    unknown = next((name for name in words if name not in names), None)
    if unknown is not None:
        raise InputError(
            f"there is no input '{unknown[:80]}'", hint=f"inputs are: {', '.join(names) or 'none'}"
        )
    return {name: read_type(name, word) for name, word in words.items()}


def read_type(name: str, word: str) -> InputType:
    """The element type and the shape that a text says."""
    match = PATTERN.fullmatch(word)
    element = ELEMENTS.get(match[1]) if match else None
    extents = [item.strip() for item in match[2].split(",") if item.strip()] if match else []
    if element is None or any(len(item) > 10 or int(item) > LARGEST for item in extents):
        hint = f"write {name}=f32[2,8]; element types are {', '.join(ELEMENTS)}"
        raise InputError(f"'{word[:80]}' is no type for input '{name[:80]}'", hint=hint)
    return InputType(element, tuple(int(item) for item in extents))
