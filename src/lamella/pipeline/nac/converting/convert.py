"""Models into NAC files: optimised, with other weights, quantised, with weights in the file or beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from lamella.base.diagnostic import NOTE, Diagnostic
from lamella.base.errors import InputError
from lamella.bridge.nac_to_graph.weights import companion, with_external, with_internal
from lamella.graph.model import Model as GraphModel
from lamella.lang.nac.nodes import File
from lamella.pipeline.languages import Model as AnyModel
from lamella.pipeline.nac.converting.applications import (
    CONFIG,
    TOKENIZER,
    carry_application,
    with_answers,
    with_plan,
    with_tokenizer,
)
from lamella.pipeline.nac.converting.quantizing import Cost, cost_lines, cost_to_json, quantize
from lamella.pipeline.nac.converting.resources import embed
from lamella.pipeline.nac.converting.training import carry_training
from lamella.pipeline.nac.converting.writing import simplify, to_nac
from lamella.pipeline.nac.execution import save, to_graph
from lamella.pipeline.nac.model import Model, stays_whole
from lamella.pipeline.nac.translating import weights_of
from lamella.pipeline.options import Options


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was written, and what there is to tell about it."""

    written: tuple[Path, ...]
    findings: tuple[Diagnostic, ...]
    lines: tuple[str, ...] = ()
    data: Mapping[str, object] | None = None


def convert_to_nac(model: AnyModel, target: Path, options: Options) -> Conversion:
    """Write a model as a NAC file, its text, with all that the options ask for."""
    lines: list[str] = []
    if isinstance(model, GraphModel):
        made = _written(model, target, options, "exact", lines)
    elif isinstance(model, Model):
        made = _rewritten(model, target, options, lines)
    else:
        hint = "graphs become NAC: .sknd, .pt2, .nac"
        raise InputError(f"a file of {model.language} is no graph", hint=hint)
    file, told = _with_attachments(made.file, options)
    made = replace(made, file=file, findings=(*made.findings, *told))
    external = _is_external(model, options)
    cost = None
    if options.quantize is not None:
        made, cost = quantize(made, options)
        lines += cost_lines(cost)
    written = [target]
    if external and made.file.header.internal and made.file.tensors:
        made = replace(made, file=with_external(made.file, target))
        written.insert(0, companion(target))
    save(made, target)
    return Conversion(tuple(written), made.findings, tuple(lines), _data(cost))


def _with_attachments(file: File, options: Options) -> tuple[File, tuple[Diagnostic, ...]]:
    """The file with the tokenizer, the plan and the files that it is to carry.

    What was a Hugging Face folder with a tokenizer, and so carries both, answers prompts where nobody gives it a plan.
    """
    if options.tokenizer is not None:
        file = with_tokenizer(file, options.tokenizer, options.limits)
    if options.plan is not None:
        file = with_plan(file, options.plan, options.limits)
    paths = {name: Path(path) for name, path in options.embed.items()}
    file = embed(file, paths, options.limits) if paths else file
    carried = options.tokenizer is not None or TOKENIZER in options.embed
    if options.plan is None and CONFIG in options.embed and carried:
        return with_answers(file, options.cache, options.limits)
    return file, ()


def _data(cost: Cost | None) -> Mapping[str, object]:
    return {} if cost is None else {"quantization": cost_to_json(cost)}


def _is_external(model: AnyModel, options: Options) -> bool:
    """Whether weights are to lie beside the file: as the user says, else as they do now."""
    if options.external is not None:
        return options.external
    return isinstance(model, Model) and not model.file.header.internal


def _written(model: GraphModel, target: Path, options: Options, default: str, lines: list[str]) -> Model:
    found = simplify(model, options, default)
    if found is not None:
        lines += found.lines()
        model = found.model
    return to_nac(model, target, options)


def _rewritten(model: Model, target: Path, options: Options, lines: list[str]) -> Model:
    """A file from a file: its code stays unless the user wants it optimised, or other extents or signatures."""
    model = replace(model, findings=tuple(item for item in model.findings if item.severity != NOTE))
    if options.optimize is not None or options.plain_signatures or options.shape:
        graph = cast("GraphModel", to_graph(model, options))
        made = _written(graph, target, options, "none", lines)
        made = replace(made, file=carry_application(made.file, model.file))
        return carry_training(made, model.file)
    if options.weights is not None:
        weights_of(model, options)
    if not _needs_weights(model, target, options):
        return model
    weights = weights_of(model, options)
    file, findings = with_internal(model.file, dict(weights.tensors))
    return Model(model.path, file, (*model.findings, *weights.findings, *findings), model.mapped)


def _needs_weights(model: Model, target: Path, options: Options) -> bool:
    """Whether the weights themselves are touched; a text or a file beside the old one keeps its store."""
    if not model.file.parameters:
        return False
    taken = options.weights is not None or options.quantize is not None or options.external is not None
    return taken or not stays_whole(model, target)
