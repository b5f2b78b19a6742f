"""Graphs as NAC files: simplified, written with roles, ready to be saved."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import Found, InputError
from lamella.bridge.graph_to_nac import Writing, graph_to_nac
from lamella.graph.model import Model as GraphModel
from lamella.graph.passes.optimise import Optimised, optimise
from lamella.pipeline.nac.model import Model
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.execution import with_numbers
from lamella.pipeline.skriptnd.passing import evaluator

LEVELS = ("none", "exact", "relaxed")
"""How much a graph is simplified; what is exact gives the same bits."""


def to_nac(model: GraphModel, path: Path, options: Options) -> Model:
    """The file of a graph; weights that it lacks are random, from the seed. LamellaError tells what cannot be said."""
    model = with_numbers(model, options, all_or_none=False)
    written = graph_to_nac(model, Writing(plain_signatures=options.plain_signatures))
    if errors(written.findings):
        raise LamellaError(written.findings)
    return Model(path, written.file, (*model.findings, *written.findings))


def simplify(model: GraphModel, options: Options, default: str) -> Optimised | None:
    """The graph after the optimiser, as far as the options allow; None where they do not."""
    level = options.optimize or default
    if level not in LEVELS:
        raise InputError(f"there is no way '{level[:40]}' to optimize", hint=f"ways are: {', '.join(LEVELS)}")
    if level == "none":
        return None
    try:
        return optimise(model, evaluator(model.library, options.limits), relaxed=level == "relaxed")
    except Found as problem:
        raise LamellaError(problem.findings) from None
