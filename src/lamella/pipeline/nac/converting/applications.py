"""A model as an application: its tokenizer and its plan put into its file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import read_bytes, shown
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.lang.nac.nodes import File, Resource
from lamella.pipeline.nac.model import NOTES, read_model

PLAN = "plan"
"""The key of `lamella.json` that names constants of a plan."""


def with_tokenizer(file: File, path: Path, limits: Limits) -> File:
    """The file with the tokenizer of a `tokenizer.json`."""
    parts = tokenizer_to_nac(read_bytes(path, limits))
    new = {item.name for item in parts.resources}
    kept = tuple(item for item in file.resources if item.name not in new)
    return replace(file, manifest=parts.manifest, resources=(*kept, *parts.resources))


def with_plan(file: File, path: Path, limits: Limits) -> File:
    """The file with the plan of another one, and the names that its constants have."""
    model = read_model(path, limits)
    if errors(model.findings):
        raise LamellaError(errors(model.findings))
    if not model.file.orchestrator.bytecode:
        raise InputError(f"'{shown(path)}' has no plan", path=shown(path), hint="write it as .orchestrator")
    notes = _notes(model.file).get(PLAN)
    made = replace(file, orchestrator=model.file.orchestrator)
    return made if notes is None else _noted(made, notes)


def _notes(file: File) -> dict[str, object]:
    """What the resource says; nothing where it is no object."""
    data = next((item.data for item in file.resources if item.name == NOTES), b"{}")
    try:
        content = json.loads(bytes(data).decode("utf-8"))
    except (ValueError, RecursionError):
        content = None
    return content if isinstance(content, dict) else {}


def _noted(file: File, plan: object) -> File:
    content = {"format": 1, **_notes(file), PLAN: plan}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    others = tuple(item for item in file.resources if item.name != NOTES)
    return replace(file, resources=(Resource(NOTES, text.encode()), *others))
