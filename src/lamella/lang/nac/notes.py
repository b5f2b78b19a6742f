"""The resource `lamella.json`: what a file says beyond the fields of the format, as one object of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from lamella.lang.nac.nodes import File, Resource

NAME = "lamella.json"
FORMAT_KEY, FORMAT = "format", 1
_LONGEST = 1 << 24


def find_notes(file: File) -> dict[str, object] | None:
    """What the resource holds: nothing where a file has none, None where it is no object."""
    resource = next((item for item in file.resources if item.name == NAME), None)
    if resource is None:
        return {}
    try:
        found = json.loads(bytes(resource.data)) if len(resource.data) <= _LONGEST else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def notes_resource(notes: Mapping[str, object]) -> Resource:
    """The resource that holds these notes, always in the same bytes."""
    text = json.dumps(notes, sort_keys=True, separators=(",", ":"))
    return Resource(NAME, text.encode())


def with_notes(file: File, notes: Mapping[str, object]) -> File:
    """The file with these notes, in the place of those it has; without any where they say nothing."""
    made = [notes_resource({FORMAT_KEY: FORMAT, **notes})] if notes.keys() - {FORMAT_KEY} else []
    places = [index for index, item in enumerate(file.resources) if item.name == NAME]
    at = places[0] if places else len(file.resources)
    return replace(file, resources=(*file.resources[:at], *made, *file.resources[at + 1 :]))
