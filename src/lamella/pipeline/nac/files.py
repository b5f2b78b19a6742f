"""NAC files for the commands: check, format; without numpy as long as there is no graph to check."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import Mapped, shown
from lamella.lang.nac import disassemble, parse
from lamella.lang.nac.assembly import parse_assembly, write_assembly
from lamella.lang.nac.nodes import File
from lamella.pipeline.languages import nac_graphs
from lamella.pipeline.nac.describe import data_size
from lamella.pipeline.nac.model import check_model, open_either, read_model
from lamella.pipeline.options import Options


def check(path: Path, options: Options) -> list[Diagnostic]:
    """What is wrong with the bytes or the text, with what they say, and with the graph that they say.

    Where nothing describes the inputs, their types are left open: what operations are called and what they are called
    with is looked at all the same.
    """
    model = read_model(path, options.limits)
    found = check_model(model)
    if errors(found) or not model.file.instructions:
        return found
    return sort_findings([*found, *nac_graphs().check_lowering(model, options)])


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """A text and its canonical form; bytes have no text of their own, so that both are their assembly."""
    opened = open_either(path, limits)
    if isinstance(opened, Mapped):
        file, wrong = parse(opened.data, shown(path), limits)
        _refuse_errors(wrong)
        text = _disassembled(path, file, limits)
        return text, text
    assembly, found = parse_assembly(opened, limits)
    _refuse_errors(found)
    return opened.text, write_assembly(assembly)


def _refuse_errors(findings: tuple[Diagnostic, ...]) -> None:
    if errors(findings):
        raise LamellaError(errors(findings))


def _disassembled(path: Path, file: File, limits: Limits) -> str:
    """The assembly of a file, unless its data would make a text that nobody can read."""
    problem = limits.excess("max_file_bytes", data_size(file), f"the data of '{shown(path)}' in bytes")
    if problem:
        hint = f"`lamella convert {path.name} {path.stem}.nacs` puts large data into a file beside the text"
        raise InputError(problem, path=shown(path), hint=hint)
    return disassemble(file)
