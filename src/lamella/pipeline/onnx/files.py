"""ONNX files for the command `check`, by ONNX's own rules and by what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import shown
from lamella.pipeline.onnx.execution import load
from lamella.pipeline.options import Options


def check(path: Path, options: Options) -> list[Diagnostic]:
    """What is wrong with a file, and where nothing is, what keeps it from becoming a graph."""
    try:
        return list(load(path, options).findings)
    except LamellaError as problem:
        return list(problem.findings)


def canonical(path: Path, limits: Limits) -> NoReturn:
    """Say that an ONNX file has no text."""
    hint = f"`lamella convert {path.name} {path.stem}.sknd` writes it as one"
    raise InputError("an ONNX file has no text of its own", path=shown(path), hint=hint)
