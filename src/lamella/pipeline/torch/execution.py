"""Files of torch.export for the API: load; what is loaded is a graph."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.optional import need
from lamella.base.paths import shown
from lamella.base.source import Binary, Span
from lamella.bridge.torch_to_graph import torch_to_graph
from lamella.bridge.torch_to_graph.faults import faults, first_line
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.lang.skriptnd.rules.exports import BROKEN_FILE
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.shaping import with_extents
from lamella.pipeline.torch.archive import axes_of_file, inspect_archive, trees_of
from lamella.pipeline.torch.containers import known_containers


def load(path: Path, options: Options) -> Model:
    """The graph of a .pt2 file; LamellaError holds all findings when something is wrong.

    PyTorch's own loader runs code that a file brings: it unpickles custom objects, imports compiled libraries and
    evaluates texts. The file is inspected first, and everything of that kind is refused.
    """
    findings = inspect_archive(path, options.limits)
    if findings:
        raise LamellaError(findings)
    axes = axes_of_file(path, options.limits)
    try:
        with known_containers(trees_of(path)):
            found = torch_to_graph(_program(path), options.limits, axes)
    except faults() as problem:
        # A file can say what no export says, and PyTorch finds out anywhere.
        place = Span(Binary(shown(path)), 0, 0)
        raise LamellaError([BROKEN_FILE.at(place, reason=first_line(problem))]) from problem
    _require_open(found, axes, path)
    return with_extents(found, options)


def _require_open(model: Model, axes: Mapping[str, Mapping[int, str]], path: Path) -> None:
    """Refuse names for what is no open extent of an input."""
    shapes = {item.name: item.shape for item in model.graph.inputs if isinstance(item, Tensor)}
    for name, words in axes.items():
        shape = shapes.get(name)
        for axis, word in words.items():
            if shape is None or axis >= len(shape) or isinstance(shape[axis], int):
                hint = f"inputs are: {', '.join(shapes)}"
                raise InputError(
                    f"'{word}' names axis {axis} of '{name}', which is not open", path=path, hint=hint
                )


def _program(path: Path) -> object:
    package = need("torch.export.pt2_archive._package")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = package.load_pt2(str(path)).exported_programs["model"]
    # Guards are Python text from the file, which would be run; a graph checks its extents itself.
    found._guards_code = []
    return cast("object", found)
