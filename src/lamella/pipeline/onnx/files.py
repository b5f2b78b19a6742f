"""ONNX files: load, which gives a graph, and check, by ONNX's own rules and by what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.gc import gc_paused
from lamella.base.limits import Limits
from lamella.base.paths import shown
from lamella.bridge.onnx.arrays import ExternalData
from lamella.bridge.onnx.check import check_model
from lamella.bridge.onnx.read import read_model
from lamella.bridge.onnx_to_graph import graph_for, sizes_for
from lamella.graph.model import Model
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents


def load(path: Path, options: Options) -> Model:
    """The graph of an ONNX file; LamellaError holds all findings when something is wrong."""
    with gc_paused():
        external, model = ExternalData(path, options.limits), read_model(path, options.limits)
        findings = check_model(model, external, shown(path))
        if errors(findings):
            raise LamellaError(findings)
        sizes = sizes_for(model, options.shape, options.contents)
        found = graph_for(model, options.contents, external, options.limits, sizes)
        rest = {name: size for name, size in options.shape.items() if name not in sizes}
        whole = replace(found, findings=(*findings, *found.findings))
        return with_extents(whole, replace(options, shape=rest))


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
