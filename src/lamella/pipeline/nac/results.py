"""What the instructions of a file give, and how much memory that takes: known where the inputs are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamella.backend.nacvm.program import Result, size_of
from lamella.base.diagnostic import LamellaError
from lamella.base.dim import Dim
from lamella.bridge.nac_to_graph.nodes import KeptState
from lamella.bridge.nac_to_graph.notes import read_notes
from lamella.graph.nodes import Tensor
from lamella.lang.nac.nodes import File
from lamella.lang.nac.schedule import ScheduleReport, describe_schedule
from lamella.pipeline.nac.graphs import translate
from lamella.pipeline.nac.model import Model
from lamella.pipeline.options import Options


@dataclass(frozen=True, slots=True)
class Results:
    """The type of each result in words, and what the schedule keeps where all extents are numbers."""

    types: Mapping[int, str]
    schedule: ScheduleReport | None = None
    reason: str = ""
    """Why nothing is known."""


def find_results(model: Model, options: Options) -> Results:
    """What the instructions of a file give; a reason where it is no graph, or its inputs are not known."""
    try:
        results = translate(model, options).results
    except LamellaError as problem:
        return Results({}, reason=problem.findings[0].message)
    types = {index: _words(item) for index, item in enumerate(results) if item is not None}
    if not model.file.schedule or any(_is_open(item) for item in results):
        return Results(types)
    sizes = {index: size_of(item) for index, item in enumerate(results)}
    return Results(types, describe_schedule(model.file, sizes))


def find_states(file: File) -> list[KeptState]:
    """What a file keeps between runs, as far as its notes can be read."""
    return read_notes(file).states or []


def _words(result: Result) -> str:
    if isinstance(result, Tensor):
        return f"{result.element}[{', '.join(map(str, result.shape))}]"
    if isinstance(result, tuple):
        return f"({', '.join('-' if item is None else _words(item) for item in result)})"
    return str(result)


def _is_open(result: Result) -> bool:
    """Whether an extent of a result is only known in a run."""
    if isinstance(result, Tensor):
        return any(isinstance(extent, Dim) for extent in result.shape)
    return any(map(_is_open, result)) if isinstance(result, tuple) else isinstance(result, Dim)
