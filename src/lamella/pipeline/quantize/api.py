"""`lamella.quantize`, and what the command shares with it: a model in any language becomes a quantised graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Unpack, cast

import numpy as np
import numpy.typing as npt

from lamella.backend.progress import Progress, no_progress
from lamella.base import dtype
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.suggest import list_known
from lamella.graph.model import Model
from lamella.graph.quantize import to_integers
from lamella.pipeline.api_options import QuantizeOptions
from lamella.pipeline.convert import refuse_own_weights
from lamella.pipeline.diff.flow import listed
from lamella.pipeline.diff.sides import as_graph
from lamella.pipeline.given import options_of
from lamella.pipeline.languages import SKRIPTND, language_of
from lamella.pipeline.languages import Model as AnyModel
from lamella.pipeline.options import Options
from lamella.pipeline.quantize.data import CalibrationData, draw_batches, read_batches, split_batches
from lamella.pipeline.quantize.narrow import narrow_weights, widen_codes
from lamella.pipeline.quantize.post_training import Chosen, PostTraining, QuantizationSettings
from lamella.pipeline.quantize.ranges import METHODS, QUANTILE
from lamella.pipeline.quantize.report import QuantizationReport, compare_outputs, make_report
from lamella.pipeline.quantize.scheme import SCHEMES, read_granularity
from lamella.pipeline.signatures import documented
from lamella.pipeline.skriptnd.execution import with_numbers

ENDINGS = (".sknd", ".nac", ".nacs", ".onnx")
BYTES = (".nac", ".nacs")
"""Endings of formats whose narrowest integers are bytes."""
PERCENTILE = "percentile"
ON_CODES = frozenset({"quant.conv", "quant.matmul", "quant.add", "quant.mul", "quant.avg_pool", "quant.mean"})
"""Operators of integer graphs that no model of real numbers has."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantised model, and the report of what was done to it."""

    model: Model
    report: QuantizationReport
    findings: tuple[Diagnostic, ...] = ()

    def __repr__(self) -> str:
        return f"<quantised, {self.report.scheme}, relative error {self.report.error:.3g}: {self.model!r}>"

    def _repr_html_(self) -> str:
        lines = "\n".join(self.report.lines())
        return f"{self.model._repr_html_()}<pre>{escape(lines)}</pre>"

    def save(self, path: str | Path) -> None:
        """Write the model by the ending of the path."""
        target = Path(path)
        model = widen_codes(self.model) if target.suffix.lower() in BYTES else self.model
        SKRIPTND.save(model, target)


@documented(QuantizeOptions)
def quantize(
    source: object,
    /,
    *,
    data: str | Path | Mapping[str, npt.ArrayLike] | None = None,
    **options: Unpack[QuantizeOptions],
) -> Quantized:
    """Quantise a loaded model, or the model of a path in any language.

    `data` are arrays by the names of inputs, cut along their first axes into batches, or the path of such arrays;
    without it inputs are random. Options are those of the command: `scheme=`, `method=`, `per=`, `symmetric=`, `kept=`,
    `accuracy_budget=`, `size_budget=`, `seed=` and others, and those of loading.
    """
    arrays = data if isinstance(data, Mapping) else None
    words: dict[str, object] = {**options, "data": None if isinstance(data, Mapping) else data}
    chosen = replace(options_of(words, by_command=True), random=True)
    graph = load_graph(Path(source), chosen) if isinstance(source, str | Path) else _as_given(source, chosen)
    return quantize_graph(graph, chosen, arrays)


def _as_given(model: object, options: Options) -> Model:
    # What has a language is a model.
    graph = as_graph(cast(AnyModel, model), options) if hasattr(model, "language") else None
    if graph is None:
        raise InputError(f"a {type(model).__name__} is no model that can be quantised")
    return with_numbers(graph, options, all_or_none=False)


def load_graph(path: Path, options: Options) -> Model:
    """The graph of a file in any language that has one, with numbers for all its weights."""
    language = language_of(path, options.language)
    graph = as_graph(language.load(path, options), options)
    if graph is None:
        hint = "quantise .sknd, .nac, .module, .pt2, .onnx, compiled units or Hugging Face folders"
        raise InputError(f"'{path}' is no graph but {language.name}", hint=hint)
    return with_numbers(graph, options, all_or_none=False)


def quantize_graph(
    model: Model,
    options: Options,
    arrays: Mapping[str, npt.ArrayLike] | None = None,
    progress: Progress = no_progress,
) -> Quantized:
    """A quantised graph of a float one, by arrays or by the data that the options name."""
    settings = settings_of(options)
    _require_real(model)
    data = _calibration_data(model, options, arrays)
    work = PostTraining(model, data, settings, options, progress)
    for budget in _simulated_budgets(settings.accuracy_budget):
        chosen = work.choose(budget)
        quantised, real = _lowered(chosen, settings)
        outputs = compare_outputs(model, quantised, data.batches, options)
        report = make_report(model, chosen, settings.scheme.name, outputs, data, real)
        if settings.accuracy_budget is None or report.error <= settings.accuracy_budget:
            break
    _require_accuracy(report, settings)
    _require_size(report, settings)
    return Quantized(quantised, report, model.findings)


def _simulated_budgets(budget: float | None) -> tuple[float | None, ...]:
    """The errors that a simulation is asked for, one after the other, until the integer graph keeps to a budget.

    The simulation sees some of the data, and integers round a little otherwise. Less than nothing is what only a model
    of real numbers has.
    """
    return (None,) if budget is None else (budget, budget / 2, budget / 8, -1.0)


def _require_real(model: Model) -> None:
    """A model on codes is quantised: doing it again would only round what is rounded."""
    codes = [item for item in model.graph.operations() if item.operator in ON_CODES]
    if codes:
        raise InputError(
            f"the model is quantised already: {len(codes)} operation{'s' * (len(codes) > 1)} compute on codes",
            hint="quantise the model of real numbers that it was made from",
        )


def _require_accuracy(report: QuantizationReport, settings: QuantizationSettings) -> None:
    """InputError where not even real layers keep to a budget: those of islands are rounded."""
    if settings.accuracy_budget is not None and report.error > settings.accuracy_budget:
        rounded = f"what stays real is rounded to {settings.islands.name}: --islands f32 keeps it as it is"
        hint = "allow more" if settings.islands == dtype.F32 else rounded
        asked = f"the budget is {settings.accuracy_budget:.3g}"
        raise InputError(f"outputs are off by {report.error:.3g} with every layer real; {asked}", hint=hint)


def _require_size(report: QuantizationReport, settings: QuantizationSettings) -> None:
    """InputError where layers that were promoted for accuracy are too large for the other budget."""
    if settings.size_budget is not None and report.bytes_after > settings.size_budget:
        size = f"{report.bytes_after:,} bytes for an error of {report.error:.3g}"
        hint = f"it takes {size}; allow more of either"
        raise InputError("the budgets of accuracy and size cannot both be kept", hint=hint)


def _lowered(chosen: Chosen, settings: QuantizationSettings) -> tuple[Model, Mapping[str, str]]:
    """The graph with codes in it, and why operations compute in real numbers that were to be integers."""
    if not settings.scheme.is_integer:
        tables = {name: codes for name, codes in chosen.codes().items() if name in chosen.tables}
        with_tables = to_integers(chosen.model, tables).model if tables else chosen.model
        layers = {name: codes for name, codes in chosen.weights.items() if name not in tables}
        return narrow_weights(with_tables, layers), {}
    found = to_integers(chosen.model, chosen.codes(), settings.islands, chosen.found.floats)
    return found.model, {item.tensor: item.reason for item in found.floats}


def _calibration_data(
    model: Model, options: Options, arrays: Mapping[str, npt.ArrayLike] | None
) -> CalibrationData:
    if arrays is not None:
        wanted = {item.name: item for item in listed(model.graph.inputs)}
        given = {name: np.asarray(value) for name, value in arrays.items()}
        batches, rest = split_batches(given, wanted, None)
        return CalibrationData(batches[: options.samples], "given arrays", left_over=rest)
    if options.data is not None:
        return read_batches(options.data, model, options.samples, options.limits)
    return draw_batches(model, options.start_seed, options.limits)


def settings_of(options: Options) -> QuantizationSettings:
    """How a model is quantised, by what was given; InputError where that makes no sense."""
    scheme = SCHEMES.get(options.scheme)
    if scheme is None:
        raise InputError(
            f"there is no scheme '{options.scheme[:40]}'",
            hint=list_known(options.scheme, SCHEMES, "schemes are:"),
        )
    method, percent = _method(options.method or "mse")
    islands = dtype.find(options.islands or "f32")
    assert islands is not None  # one of the choices
    return QuantizationSettings(
        scheme=scheme,
        method=method,
        percent=percent,
        per=read_granularity(options.per, scheme),
        symmetric=options.symmetric,
        kept=options.kept,
        equalise=options.equalize,
        correct_biases=options.bias_correction is not False,
        gptq=options.gptq,
        wide_outputs=options.wide_outputs,
        islands=islands,
        accuracy_budget=options.accuracy_budget,
        size_budget=options.size_budget,
        ranked=options.rank is not False,
    )


def _method(text: str) -> tuple[str, float]:
    """`mse` or `percentile:99.9` as a method and the percent that it keeps."""
    name, colon, words = text.partition(":")
    try:
        percent = float(words) if colon else QUANTILE
    except ValueError:
        percent = -1.0
    if name not in METHODS or (colon and (name != PERCENTILE or not 50.0 < percent <= 100.0)):
        known = ", ".join(METHODS)
        hint = f"methods are: {known}; percentile:99.9 keeps 99.9 % of the numbers"
        raise InputError(f"'{text[:40]}' is no method of calibration", hint=hint)
    return name, percent


def require_target(model: Model, source: Path, target: Path, options: Options) -> None:
    """See that a file can take the quantised model: it is a graph's, and replaces nothing of the model itself."""
    if target.suffix.lower() not in ENDINGS:
        raise InputError(
            f"'{target.name}' has no ending of a graph", hint=f"endings are: {', '.join(ENDINGS)}"
        )
    if source.resolve() == target.resolve():
        hint = "give the output another name"
        raise InputError(f"'{target.name}' is the model itself, and would be replaced", hint=hint)
    refuse_own_weights(model, source, target, options)
