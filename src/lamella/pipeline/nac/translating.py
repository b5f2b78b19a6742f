"""NAC files as graphs: their weights found, their inputs described."""

from __future__ import annotations

from collections.abc import Mapping

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.paths import shown
from lamella.bridge.nac_to_graph import InputType, Translation, check_translation, nac_to_graph
from lamella.bridge.nac_to_graph.weights import Weights, find_weights, read_external
from lamella.pipeline.nac.model import Model
from lamella.pipeline.nac.types import read_types
from lamella.pipeline.options import Options


def weights_of(model: Model, options: Options) -> Weights:
    """The weights of a file: where the user says, else in it or beside it; LamellaError tells what is wrong."""
    file, limits = model.file, options.limits
    if options.weights is not None:
        found = read_external(file, options.weights, limits)
    else:
        found = find_weights(file, model.path, limits)
    for mapped in (model.mapped, found.mapped):
        if mapped is not None:
            mapped.check_whole()
    if errors(found.findings):
        raise LamellaError(found.findings)
    if options.weights is not None and file.parameters and not found.tensors:
        message = f"no parameter of '{shown(model.path)}' has weights in '{shown(options.weights)}'"
        raise InputError(message, hint="weights bear the names of parameters; `lamella show` lists both")
    return found


def translate(model: Model, options: Options, known: Mapping[str, InputType] | None = None) -> Translation:
    """The graph of a file; inputs are what is known of them, what the user says, or what the file says."""
    inputs = {**read_types(options.types, model.file), **(known or {})}
    return nac_to_graph(model.file, weights_of(model, options), inputs, options.limits)


def check_road(model: Model, options: Options) -> list[Diagnostic]:
    """What keeps a file that describes its inputs from becoming a graph; no numbers are read."""
    try:
        weights = weights_of(model, options)
        return check_translation(model.file, read_types(options.types, model.file), weights, options.limits)
    except LamellaError as problem:
        return list(problem.findings)
