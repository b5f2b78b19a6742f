"""Steps of training as graphs, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.limits import DEFAULT, Limits
from lamella.bridge.nac_to_graph.nodes import InputType, Translation, describe
from lamella.bridge.nac_to_graph.training.find import find_backward
from lamella.bridge.nac_to_graph.training.join import join_training
from lamella.bridge.nac_to_graph.training.nodes import Step
from lamella.bridge.nac_to_graph.translate import nac_to_graph
from lamella.bridge.nac_to_graph.weights import Weights, own_weights
from lamella.graph.nodes import Tensor
from lamella.lang.nac.nodes import File
from lamella.lang.nac.rules import sections as rules

ANY_RATE = 1.0


def step_of(file: File, weights: Weights, rate: float | None = None) -> Step:
    """The step of training that a checked file describes, with its own learning rate or another one.

    LamellaError tells what is wrong with it, InputError that there is none.
    """
    return join_training(find_backward(file, weights), weights, rate)


def translate_step(
    step: Step,
    weights: Weights | None = None,
    inputs: Mapping[str, InputType] | None = None,
    limits: Limits = DEFAULT,
) -> Translation:
    """The graph of a step, in which the parameters that change are variables with updates; as `nac_to_graph`.

    Gradients have the types of their parameters, also where arithmetic would take others; rates are single numbers.
    """
    try:
        found = nac_to_graph(step.file, weights, inputs, limits)
    except LamellaError as problem:
        wrong = _find_wrong(step, nac_to_graph(_unchanged(step), weights, inputs, limits))
        raise LamellaError(wrong or problem.findings) from None
    wrong = _find_wrong(step, found)
    if wrong:
        raise LamellaError(wrong)
    return found


def check_training(
    file: File,
    inputs: Mapping[str, InputType] | None = None,
    weights: Weights | None = None,
    limits: Limits = DEFAULT,
) -> list[Diagnostic]:
    """What keeps the training graph of a checked file from being a step, element types and shapes included."""
    found = own_weights(file) if weights is None else weights
    try:
        backward = find_backward(file, found)
        has_rates = all(item.rate is not None or item.source is not None for item in backward.changes)
        step = join_training(backward, found, None if has_rates else ANY_RATE)
        return list(translate_step(step, found, inputs, limits).findings)
    except LamellaError as problem:
        return list(problem.findings)


def _unchanged(step: Step) -> File:
    """The program of a step that leaves every parameter as it is: what it computes can be seen all the same."""
    code = list(step.file.instructions)
    for item in step.trained:
        for place in range(item.old + 1, item.new + 1):
            code[place] = code[item.old]
    return replace(step.file, instructions=tuple(code))


def _type_of(tensor: Tensor) -> str:
    return f"{tensor.element}[{', '.join(map(str, tensor.shape))}]"


def _find_wrong(step: Step, found: Translation) -> list[Diagnostic]:
    return list(_check_results(step, found))


def _check_results(step: Step, found: Translation) -> Iterator[Diagnostic]:
    for item in step.trained:
        change, gradient = item.change, found.results[item.gradient]
        if not isinstance(gradient, Tensor) or _type_of(gradient) != item.type:
            told = describe(gradient)
            yield rules.TRAINING_GRADIENT.at(change.span, name=item.name, found=told, type=item.type)
        rate = None if item.rate is None else found.results[item.rate]
        if item.rate is not None and not (isinstance(rate, Tensor) and rate.shape == ()):
            index = item.rate - step.first
            told = describe(rate)
            yield rules.TRAINING_RATE.at(change.span, index=index, id=change.parameter, found=told)
