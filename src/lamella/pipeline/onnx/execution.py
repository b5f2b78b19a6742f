"""ONNX files for the API: load; what is loaded is a graph."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import LamellaError, errors
from lamella.base.gc import gc_paused
from lamella.base.paths import shown
from lamella.bridge.onnx.arrays import ExternalData
from lamella.bridge.onnx.check import check_model
from lamella.bridge.onnx.nodes import Model as OnnxModel
from lamella.bridge.onnx.read import read_model
from lamella.bridge.onnx_to_graph import onnx_to_graph
from lamella.graph.model import Model
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents


def load(path: Path, options: Options) -> Model:
    """The graph of an ONNX file; LamellaError holds all findings when something is wrong."""
    with gc_paused():
        external = ExternalData(path, options.limits)
        return with_extents(translate(read_model(path, options.limits), external, path, options), options)


def translate(model: OnnxModel, external: ExternalData, path: Path, options: Options) -> Model:
    """The graph of a model that was read, checked first."""
    findings = check_model(model, external, shown(path))
    if errors(findings):
        raise LamellaError(findings)
    found = onnx_to_graph(model, external, options.limits)
    return Model(found.graph, found.library, found.data, (*findings, *found.findings), found.hints)
