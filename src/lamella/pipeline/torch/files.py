"""Files of torch.export for the commands: check and show, by what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from lamella.base.diagnostic import Diagnostic, LamellaError, printable
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import shown
from lamella.pipeline.languages import Description
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.describe import describe_graph, graph_to_json
from lamella.pipeline.torch.execution import load


def check(path: Path, options: Options) -> list[Diagnostic]:
    """What keeps a file from becoming a graph."""
    try:
        return list(load(path, options).findings)
    except LamellaError as problem:
        return list(problem.findings)


def canonical(path: Path, limits: Limits) -> NoReturn:
    """Say that an archive has no text."""
    hint = f"`lamella convert {path.name} {path.stem}.sknd` writes it as one"
    raise InputError("a file of torch.export has no text of its own", path=shown(path), hint=hint)


def describe(name: str, options: Options) -> Description:
    """The graph of a file in one screen."""
    graph = load(Path(name), options).graph
    text = "\n".join([f"{printable(shown(Path(name)))}: torch.export", "", *describe_graph(graph)])
    return Description(text, {"file": name, "kind": "torch", "graph": graph_to_json(graph)})
