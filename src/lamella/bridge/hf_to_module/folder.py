"""A Hugging Face folder: its `config.json` and its checkpoint, opened without trust and without reading weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import is_folder, is_there
from lamella.bridge.hf_to_module.checkpoint import (
    EMPTY,
    INDEX,
    SINGLE,
    Checkpoint,
    open_checkpoint,
    read_object,
    whole,
    wrong_file,
)
from lamella.bridge.hf_to_module.gguf import ENDING, open_gguf
from lamella.bridge.hf_to_module.quantised import decode_checkpoint
from lamella.lang.module.rules import mappings as rules

CONFIG = "config.json"


@dataclass(frozen=True, slots=True, eq=False)
class Folder:
    """A folder with a model: what its config says, its tensors, and what is wrong with either."""

    path: Path
    config: Mapping[str, object]
    checkpoint: Checkpoint
    findings: tuple[Diagnostic, ...] = ()


def is_model_folder(path: Path) -> bool:
    """Whether a path leads to a folder with a `config.json`, or to a file that is one: GGUF."""
    return is_gguf(path) or (is_folder(path) and is_there(path / CONFIG))


def is_gguf(path: Path) -> bool:
    """Whether a path leads to a GGUF file."""
    return path.suffix.lower() == ENDING and not is_folder(path)


def open_folder(path: Path, limits: Limits = DEFAULT) -> Folder:
    """A folder as it is; where a part cannot be used it is empty, and the findings say why.

    Code that the folder brings along is neither imported nor run.
    """
    if is_gguf(path):
        try:
            return Folder(path, *open_gguf(path, limits))
        except LamellaError as problem:
            return Folder(path, {}, EMPTY, tuple(problem.findings))
    if not is_folder(path):
        return Folder(path, {}, EMPTY, (wrong_file(path, "it is no folder"),))
    findings: list[Diagnostic] = []
    config: dict[str, object] = {}
    checkpoint = EMPTY
    try:
        config = read_object(path, CONFIG, limits)
        findings += _ignored(path, config)
    except LamellaError as problem:
        findings += problem.findings
    try:
        # Also where the config is wrong: all that is wrong with a folder is reported at once.
        checkpoint, wrong = open_checkpoint(path, limits)
        findings += wrong
        checkpoint, notes = decode_checkpoint(checkpoint, config, path / CONFIG)
        findings += notes
    except LamellaError as problem:
        findings += problem.findings
    return Folder(path, config, checkpoint, tuple(findings))


def _ignored(path: Path, config: Mapping[str, object]) -> list[Diagnostic]:
    """Notes on what is there and not used."""
    place, found = whole(path / CONFIG), []
    if "auto_map" in config:
        why = "code that comes with weights is never run; the architecture is one of our own models"
        found.append(rules.IGNORED.at(place, what="'auto_map' in config.json", why=why))
    if is_there(path / SINGLE) and is_there(path / INDEX):
        found.append(rules.IGNORED.at(place, what=INDEX, why=f"{SINGLE} holds the whole checkpoint"))
    return found
