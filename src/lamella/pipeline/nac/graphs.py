"""NAC files as graphs: their weights found, their inputs described."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.dtype import LANGUAGES, ElementType
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import STANDARD_INPUT, is_there, shown
from lamella.base.suggest import list_known
from lamella.bridge.nac_to_graph import InputType, Translation, check_translation, find_unknown, nac_to_graph
from lamella.bridge.nac_to_graph.training import check_training, has_training
from lamella.bridge.nac_to_graph.weights import StoredWeights, companion, find_weights, read_external
from lamella.graph.model import Model as GraphModel
from lamella.graph.passes.mark_codes import mark_codes
from lamella.lang.nac.nodes import File
from lamella.lang.nac.rules.graphs import INPUT_TYPE_MISSING
from lamella.pipeline.nac.model import Model, is_described
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents


def weights_of(model: Model, options: Options) -> StoredWeights:
    """The weights of a file: where the user says, else in it or beside it; LamellaError holds what is wrong."""
    file, limits = model.file, options.limits
    if options.weights is not None and not file.parameters:
        raise InputError(f"'{shown(model.path)}' has no parameters that could take weights")
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


def to_graph(model: Model, options: Options, known: Mapping[str, InputType] | None = None) -> GraphModel:
    """The graph of a file, with the extents that the user gives; `known` are types of inputs."""
    return mark_codes(with_extents(translate(model, options, known).model, options))


def find_foreign(model: Model, limits: Limits) -> list[Diagnostic]:
    """The operations of a checked file that no table knows, each at the first instruction that names it."""
    return find_unknown(model.file, limits)


def refuse_wrong(
    model: Model, known: Mapping[str, InputType], weights: StoredWeights, limits: Limits
) -> None:
    """What is wrong with a file although some of its inputs are described by nobody yet; LamellaError holds it."""
    found = errors(check_translation(model.file, known, weights, limits, partial=True))
    if found:
        raise LamellaError(found)


def check_lowering(model: Model, options: Options) -> list[Diagnostic]:
    """What keeps a file from becoming a graph; no numbers are read.

    Where nothing describes the inputs their types are left open, and so are those of weights that are not there.
    """
    partial = not is_described(model, options)
    try:
        weights = None if partial and _lacks_weights(model, options) else weights_of(model, options)
        known = read_types(options.types, model.file)
        found = check_translation(model.file, known, weights, options.limits, partial=partial)
        if found or weights is None:
            return found
        return _check_training(model, known, weights, options)
    except LamellaError as problem:
        return list(problem.findings)


def _lacks_weights(model: Model, options: Options) -> bool:
    """Whether a file leaves its weights to another one that does not lie beside it."""
    if model.file.header.internal or options.weights is not None:
        return False
    return model.path == STANDARD_INPUT or not is_there(companion(model.path))


def _check_training(
    model: Model, known: Mapping[str, InputType], weights: StoredWeights, options: Options
) -> list[Diagnostic]:
    """What keeps the training graph of a file from being a step, where it is known what its targets are."""
    if not has_training(model.file):
        return []
    found = check_training(model.file, known, weights, options.limits)
    return [] if any(item.code == INPUT_TYPE_MISSING.code for item in found) else found


# --- what an input is, where a file does not say: `f32[2, 8]` as a user writes it ---------------------------


LARGEST = 2**31
ELEMENTS: Mapping[str, ElementType] = {**LANGUAGES["skriptnd"], **LANGUAGES["nac"]}
PATTERN = re.compile(r"\s*([a-z][a-z0-9_]*)\s*\[([\d,\s]*)\]\s*")


def read_types(words: Mapping[str, str], file: File) -> dict[str, InputType]:
    """The inputs that a user describes; each must be one of the file's."""
    names = [item.name for item in file.inputs]
    unknown = next((name for name in words if name not in names), None)
    if unknown is not None:
        raise InputError(
            f"there is no input '{unknown[:80]}'", hint=list_known(unknown, names, "inputs are:")
        )
    return {name: read_type(name, word) for name, word in words.items()}


def read_type(name: str, word: str) -> InputType:
    """The element type and the shape that a text says."""
    match = PATTERN.fullmatch(word)
    element = ELEMENTS.get(match[1]) if match else None
    extents = [item.strip() for item in match[2].split(",") if item.strip()] if match else []
    if element is None or any(len(item) > 10 or int(item) > LARGEST for item in extents):
        hint = f"write {name}=f32[2,8]; element types are {', '.join(ELEMENTS)}"
        raise InputError(f"'{word[:80]}' is no type for input '{name[:80]}'", hint=hint)
    return InputType(element, tuple(int(item) for item in extents))
