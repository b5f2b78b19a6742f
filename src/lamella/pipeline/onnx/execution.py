"""ONNX files for the API: load; what is loaded is a graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lamella.base.diagnostic import LamellaError, errors
from lamella.base.gc import gc_paused
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
