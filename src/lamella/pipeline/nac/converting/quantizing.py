"""What quantisation does to a file: the error of each tensor, and that of the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, printable
from lamella.base.errors import InputError
from lamella.bridge.nac_to_graph.weights import Report, quantise_file, report_lines
from lamella.lang.nac.nodes import Method
from lamella.pipeline.nac.model import Model
from lamella.pipeline.nac.running import compile_file
from lamella.pipeline.options import Options, drawing

METHODS: Mapping[str, Method] = {item.name.lower(): item for item in Method}
"""The methods as the command line names them."""


@dataclass(frozen=True, slots=True)
class OutputError:
    """How far an output is from the one of the original weights, on random inputs."""

    name: str
    largest: float
    mean: float
    scale: float
    """The largest number of the original output."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The errors of a quantised file: of its tensors, and of its outputs or why they are not known."""

    report: Report
    outputs: tuple[OutputError, ...]
    unknown: str = ""


def quantize(model: Model, options: Options) -> tuple[Model, Cost]:
    """The file with its weights under another method, and what that costs; the weights must stand in the file."""
    word = (options.quantize or "").lower()
    if word not in METHODS:
        hint = f"methods are: {', '.join(METHODS)}"
        raise InputError(f"there is no method '{word[:40]}' to quantise by", hint=hint)
    file, report = quantise_file(model.file, METHODS[word], options.axis)
    made = Model(model.path, file, model.findings)
    options = drawing(options)
    try:
        wanted = compile_file(model, options)()
    except LamellaError as problem:
        return made, Cost(report, (), problem.findings[0].message)
    found = compile_file(made, options)()
    return made, Cost(report, tuple(_error(name, wanted[name], found[name]) for name in wanted))


def _error(name: str, wanted: Array, found: Array) -> OutputError:
    exact, given = wanted.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where(exact == given, 0.0, np.abs(given - exact))
    scale = float(np.abs(exact).max(initial=0.0))
    return OutputError(name, float(apart.max(initial=0.0)), float(apart.mean()) if apart.size else 0.0, scale)


def cost_lines(cost: Cost) -> list[str]:
    """The errors as people read them: a line for each tensor, then one for each output."""
    lines = report_lines(cost.report)
    if cost.unknown:
        return [*lines, f"outputs: not compared: {cost.unknown}"]
    return [*lines, *(_output_line(item) for item in cost.outputs)]


def _output_line(item: OutputError) -> str:
    return (
        f"output {printable(item.name, 80)}: max abs {item.largest:.3g}, mean {item.mean:.3g},"
        f" of numbers up to {item.scale:.3g}"
    )


def cost_to_json(cost: Cost) -> dict[str, object]:
    """The errors as data."""
    return {
        "method": cost.report.method.name.lower(),
        "bytes": {"before": cost.report.before, "after": cost.report.after},
        "tensors": [
            {"name": item.name, "stored": item.stored, "max_abs": item.largest, "mean_abs": item.mean}
            for item in cost.report.tensors
        ],
        "outputs": _outputs_to_json(cost.outputs),
        "not_compared": cost.unknown or None,
    }


def _outputs_to_json(outputs: Sequence[OutputError]) -> list[dict[str, object]]:
    return [
        {"name": item.name, "max_abs": item.largest, "mean_abs": item.mean, "scale": item.scale}
        for item in outputs
    ]
