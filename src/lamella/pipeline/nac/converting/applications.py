"""A model as an application: its tokenizer and its plan put into its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import read_bytes, shown
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.lang.nac.nodes import File
from lamella.lang.nac.notes import find_notes, with_notes
from lamella.pipeline.nac.model import read_model

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
    named = (find_notes(model.file) or {}).get(PLAN)
    made = replace(file, orchestrator=model.file.orchestrator)
    return made if named is None else with_notes(made, {**(find_notes(file) or {}), PLAN: named})
