"""NAC files for the API: load and save; running them comes with the virtual machine."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from lamella.base.errors import InputError
from lamella.base.paths import shown
from lamella.lang.nac import restate, save_file
from lamella.lang.nac.assembly.files import save_assembly
from lamella.pipeline.nac.model import BINARY, TEXT, Model, read_checked
from lamella.pipeline.options import Options


def load(path: Path, options: Options) -> Model:
    """Read a file or an assembly text; LamellaError holds all findings when something is wrong."""
    return read_checked(path, options.limits)


def compile(
    model: Model, backend: str | None, options: Options
) -> NoReturn:  # the API's word: lamella.compile
    """Say that nothing executes a NAC file yet."""
    hint = "they are checked, shown and converted; `lamella show --listing` prints the instructions"
    raise InputError(
        "NAC files cannot be run yet: their virtual machine is to come", path=shown(model.path), hint=hint
    )


def lower(model: Model, to: str, options: Options) -> NoReturn:
    """Say that no road leads away from a NAC file yet."""
    hint = "NAC files are written as .nac or .nacs: `lamella convert`"
    raise InputError(f"there is no road from NAC to '{to}' yet", path=shown(model.path), hint=hint)


def save(model: Model, path: Path) -> None:
    """Write a model by the ending of the path: .nac (bytes of version 1.6) or .nacs (assembly text)."""
    ending = path.suffix.lower()
    if ending not in (BINARY, TEXT):
        hint = "NAC is written as .nac (binary) or .nacs (text)"
        raise InputError(f"'{path.name}' is no ending for a NAC file", hint=hint)
    if model.mapped is not None:
        model.mapped.check_whole()
    if ending == BINARY:
        save_file(path, restate(model.file))
    else:
        save_assembly(path, model.file)
