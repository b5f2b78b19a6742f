"""Files that travel in a NAC file: put in, taken out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lamella.base.diagnostic import LamellaError, printable
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import map_bytes, shown
from lamella.base.writer import make_folder, write_pieces
from lamella.lang.nac.check.data import check_resources
from lamella.lang.nac.nodes import File, Resource
from lamella.lang.nac.notes import NAME
from lamella.pipeline.nac.model import Model


def embed(file: File, paths: Mapping[str, Path], limits: Limits) -> File:
    """The file with other files in it, by the names they get; one that is there already is replaced."""
    taken = {name: map_bytes(path, limits).data for name, path in paths.items()}
    kept = tuple(item for item in file.resources if item.name not in taken)
    made = replace(file, resources=(*kept, *(Resource(name, data) for name, data in taken.items())))
    if NAME in taken:
        hint = "it says what the inputs and outputs are, and is written by lamella"
        raise InputError(f"resource '{NAME}' belongs to the file itself", hint=hint)
    findings = list(check_resources(made))
    if findings:
        raise LamellaError(findings)
    return made


def extract(model: Model, folder: Path) -> list[Path]:
    """Write every resource of a file into a folder; names that could lead elsewhere are refused before."""
    findings = list(check_resources(model.file))
    if findings:
        raise LamellaError(findings)
    if not model.file.resources:
        raise InputError(f"'{printable(shown(model.path))}' has no resources", path=shown(model.path))
    if model.mapped is not None:
        model.mapped.check_whole()
    make_folder(folder)
    written = []
    for item in model.file.resources:
        target = folder / item.name
        write_pieces(target, [item.data], through_links=False)
        written.append(target)
    return written
