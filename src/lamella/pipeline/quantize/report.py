"""The report of a quantisation: layers ranked by what they do to the outputs, what stays real, the whole error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.graph.model import Model
from lamella.graph.nodes import Operation
from lamella.pipeline.diff.flow import listed
from lamella.pipeline.options import Options
from lamella.pipeline.quantize.calibrate import Observer
from lamella.pipeline.quantize.data import Batch, CalibrationData
from lamella.pipeline.quantize.post_training import Chosen, variable_bytes
from lamella.pipeline.quantize.scheme import REAL
from lamella.pipeline.quantize.simulate import decibels, difference, relative_error, squared_norm

MOST_ROWS = 24
"""Layers that are printed; of more, those that hurt most."""
WIDEST = 34


@dataclass(frozen=True, slots=True)
class LayerRow:
    """What was done to one layer, and what it costs."""

    name: str
    operator: str
    weight: str | None
    scheme: str
    low: float | None
    """The range of its result; None where it has no codes of its own."""
    high: float | None
    sqnr: float | None
    """Of its result alone, in dB, in the scheme that was asked for."""
    error: float | None
    """The relative error of the outputs where it alone is quantised."""
    share: float | None
    """Its part in the sum of the squares of all such errors."""
    bytes_before: int
    bytes_after: int
    corrected: bool

    def to_json(self) -> dict[str, object]:
        """As data; what is not finite is null."""
        names = self.__dataclass_fields__
        return {name: _finite(getattr(self, name)) for name in names}


@dataclass(frozen=True, slots=True)
class OutputDistance:
    """How far an output lies from that of the float model, over all data."""

    name: str
    relative: float
    largest: float
    agreement: float | None
    """The share of rows whose largest element is the same; None of an output without rows of several elements."""

    @property
    def sqnr(self) -> float:
        """In dB."""
        return decibels(self.relative)

    def line(self) -> str:
        """For people."""
        same = (
            "" if self.agreement is None else f", the largest of {self.agreement:.2%} of the rows is the same"
        )
        error = f"relative error {self.relative:.3g}, SQNR {self.sqnr:.1f} dB, max |Δ| {self.largest:.3g}"
        return f"output {printable(self.name)}: {error}{same}"

    def to_json(self) -> dict[str, object]:
        """As data."""
        facts = {"relative": self.relative, "sqnr": self.sqnr, "max_abs": self.largest}
        found = {name: _finite(value) for name, value in facts.items()}
        return {"name": self.name, **found, "agreement": self.agreement}


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """What was done to a model."""

    name: str
    scheme: str
    layers: tuple[LayerRow, ...]
    """Ranked: those that hurt the outputs most come first."""
    real: tuple[tuple[str, str, str], ...]
    """Operations that compute in real numbers: result, operator, reason."""
    outputs: tuple[OutputDistance, ...]
    bytes_before: int
    bytes_after: int
    notes: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """The largest relative error of an output."""
        return max((item.relative for item in self.outputs), default=0.0)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield from self.notes
        numbers = f"{'SQNR':>6} {'alone':>9} {'share':>6} {'bytes':>9}"
        yield f"{'layer':<{WIDEST}} {'operator':<14} {'scheme':<6} {'range':>21} {numbers}"
        for row in self.layers[:MOST_ROWS]:
            yield _row(row)
        if len(self.layers) > MOST_ROWS:
            yield f"  and {len(self.layers) - MOST_ROWS} more that hurt less; --json has all"
        for count, operator, reason in _reasons(self.real):
            yield f"stays real: {count} × {printable(operator)}, {printable(reason)}"
        part = f" ({self.bytes_after / self.bytes_before:.1%})" if self.bytes_before else ""
        yield f"weights: {self.bytes_before:,} bytes before, {self.bytes_after:,} after{part}"
        for item in self.outputs:
            yield item.line()

    def to_json(self) -> dict[str, object]:
        """As data."""
        return {
            "scheme": self.scheme,
            "layers": [item.to_json() for item in self.layers],
            "real": [dict(zip(("name", "operator", "reason"), item, strict=True)) for item in self.real],
            "outputs": [item.to_json() for item in self.outputs],
            "error": _finite(self.error),
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
            "notes": list(self.notes),
        }


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _row(row: LayerRow) -> str:
    name = printable(row.name, WIDEST)
    interval = "" if row.low is None or row.high is None else f"{row.low:.4g} .. {row.high:.4g}"
    numbers = f"{number(row.sqnr, '.1f'):>6} {number(row.error, '.2e'):>9} {number(row.share, '.1%'):>6}"
    words = f"{name:<{WIDEST}} {printable(row.operator, 14):<14} {row.scheme:<6} {interval:>21}"
    return f"{words} {numbers} {row.bytes_after:>9,}"


def number(value: float | None, form: str) -> str:
    """A number in a form; a dash where there is none."""
    return "-" if value is None else format(value, form)


def _reasons(real: Sequence[tuple[str, str, str]]) -> list[tuple[int, str, str]]:
    """What stays real, counted by operator and reason."""
    counts: dict[tuple[str, str], int] = {}
    for _, operator, reason in real:
        counts[operator, reason] = counts.get((operator, reason), 0) + 1
    return [(count, *key) for key, count in counts.items()]


# --- from what was chosen -----------------------------------------------------------------------------------


def make_report(
    model: Model,
    chosen: Chosen,
    scheme: str,
    outputs: Sequence[OutputDistance],
    data: CalibrationData,
    real: Mapping[str, str],
) -> QuantizationReport:
    """The report of what was chosen; `real` says why operations compute in real numbers that were to be integers."""
    squares = {name: error * error for name, error in chosen.alone.items() if math.isfinite(error)}
    whole = sum(squares.values())
    rows = [_layer_row(chosen, name, squares, whole) for name in chosen.assignment]
    rows = [replace(row, scheme=_real_scheme(chosen, row)) if row.name in real else row for row in rows]
    rows.sort(key=lambda row: (-(row.error or 0.0), row.sqnr if row.sqnr is not None else math.inf, row.name))
    operators = {
        item.name: node.operator
        for node in chosen.model.graph.nodes
        if isinstance(node, Operation)
        for item in listed(node.outputs)
    }
    reasons = {**real, **chosen.found.floats}
    stays = tuple((name, operators.get(name, "control flow"), why) for name, why in reasons.items())
    sizes = [(variable_bytes(item), item.name) for item in chosen.model.graph.variables]
    after = sum(chosen.weights[name].bytes if name in chosen.weights else size for size, name in sizes)
    notes = (data.note(), *chosen.notes)
    before = sum(variable_bytes(item) for item in model.graph.variables)
    return QuantizationReport(
        chosen.model.graph.name, scheme, tuple(rows), stays, tuple(outputs), before, after, notes
    )


def _real_scheme(chosen: Chosen, row: LayerRow) -> str:
    """What a layer is that the integer graph has no form for: real numbers, with a weight that may be codes."""
    codes = chosen.weights.get(row.weight or "")
    return REAL if codes is None else f"w{codes.bits}"


def _layer_row(chosen: Chosen, name: str, squares: Mapping[str, float], whole: float) -> LayerRow:
    layer = chosen.layers[name]
    leader = chosen.found.ranges.get(name)
    interval = chosen.ranges.get(leader) if leader is not None else None
    variables = {item.name: item for item in chosen.model.graph.variables}
    before = variable_bytes(variables[layer.weight]) if layer.weight in variables else 0
    codes = chosen.weights.get(layer.weight or "")
    is_real = chosen.assignment[name] == REAL
    error = chosen.errors.get(name)
    return LayerRow(
        name=name,
        operator=layer.operation.operator,
        weight=layer.weight,
        scheme=chosen.assignment[name],
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        sqnr=None if error is None or is_real else error.sqnr,
        error=chosen.alone.get(name),
        share=squares[name] / whole if whole and name in squares else None,
        bytes_before=before,
        bytes_after=before if codes is None else codes.bytes,
        corrected=name in chosen.corrected,
    )


# --- the whole error ----------------------------------------------------------------------------------------


def compare_outputs(
    model: Model, quantised: Model, batches: Sequence[Batch], options: Options
) -> list[OutputDistance]:
    """How far the outputs of a quantised model lie from those of the float model; outputs pair by place."""
    pairs = list(zip(listed(model.graph.outputs), listed(quantised.graph.outputs), strict=True))
    pairs = [pair for pair in pairs if pair[0].element.is_float]
    runs = [Observer(item, listed(item.graph.outputs), options) for item in (model, quantised)]
    sums = [_Sums() for _ in pairs]
    for batch in batches:
        exact, found = (run(batch) for run in runs)
        for (one, other), item in zip(pairs, sums, strict=True):
            item.add(exact[one.name], found[other.name])
    return [item.error(pair[0].name) for pair, item in zip(pairs, sums, strict=True)]


class _Sums:
    """What is summed up of an output, batch by batch."""

    def __init__(self) -> None:
        self.lost = self.size = self.largest = 0.0
        self.rows = self.same = 0

    def add(self, exact: Array, found: Array) -> None:
        error = difference(exact, found)
        self.lost += squared_norm(error)
        self.size += squared_norm(np.where(np.isfinite(exact), exact, 0.0))
        self.largest = max(self.largest, float(np.abs(error).max(initial=0.0)))
        if exact.ndim > 1 and exact.shape[-1] > 1 and exact.size:
            same = exact.argmax(axis=-1) == found.argmax(axis=-1)
            self.rows, self.same = self.rows + same.size, self.same + int(same.sum())

    def error(self, name: str) -> OutputDistance:
        agreement = self.same / self.rows if self.rows else None
        return OutputDistance(name, relative_error(self.lost, self.size), self.largest, agreement)
