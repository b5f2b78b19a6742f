"""Mixed precision: what each layer does to the outputs alone, and a scheme for each layer within a budget.

An accuracy budget promotes the layers that hurt most, first to more bits, then to real numbers, until the outputs are
near enough. A size budget narrows those that hurt least for the bytes that they give back, until the weights fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lamella.backend.progress import Progress
from lamella.base.errors import InputError
from lamella.pipeline.quantize.layers import Layer, Layers
from lamella.pipeline.quantize.scheme import REAL, Scheme
from lamella.pipeline.quantize.simulate import Simulation, WeightChoice

Assignment = dict[str, str]
"""By layer the name of its scheme, or that it computes in real numbers."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """What layers may be, and how a choice is judged."""

    found: Layers
    simulation: Simulation
    schemes: Mapping[str, Scheme]
    """The schemes of the ladder by name, from the narrowest."""
    sizes: Mapping[tuple[str, str], int]
    """The bytes of each weight by layer and scheme; those of real numbers too."""
    progress: Progress
    alone: dict[tuple[str, str], float] = field(default_factory=dict)
    """The error of the outputs where one layer alone has a scheme, as far as it was asked for."""

    def error(self, assignment: Mapping[str, str]) -> float:
        """The relative error of the outputs where layers have these schemes."""
        return self.simulation.error(self._switches(assignment.items()))

    def error_alone(self, layer: str, scheme: str) -> float:
        """The relative error of the outputs where only one layer is quantised."""
        key = layer, scheme
        if key not in self.alone:
            self.alone[key] = self.simulation.error(self._switches([key]))
        return self.alone[key]

    def _switches(self, chosen: Iterable[tuple[str, str]]) -> list[str | WeightChoice]:
        """What is rounded where these layers have these schemes: their weights, what they read, and what they give."""
        on: dict[str | WeightChoice, None] = {}
        for name, scheme in chosen:
            layer = self.found.layers[name]
            if scheme == REAL:
                continue
            if layer.weight is not None:
                on[layer.weight, self.schemes[scheme].weight_bits] = None
            if self.schemes[scheme].is_integer:
                on.update(dict.fromkeys(_leaders(layer, self.found)))
        return list(on)


def _leaders(layer: Layer, found: Layers) -> list[str]:
    names = (layer.name, *(item.name for item in layer.activations))
    return [found.ranges[name] for name in names if name in found.ranges]


def rank_layers(mixing: Mixing, assignment: Mapping[str, str]) -> list[tuple[float, str]]:
    """The layers by what each does to the outputs alone, the worst first."""
    chosen = [(name, scheme) for name, scheme in assignment.items() if scheme != REAL]
    steps = mixing.progress(chosen, len(chosen))
    found = [(mixing.error_alone(name, scheme), name) for name, scheme in steps]
    return sorted(found, key=lambda item: (-item[0], item[1]))


def keep_accuracy(mixing: Mixing, assignment: Assignment, budget: float) -> Assignment:
    """The assignment with as few layers promoted as bring the error of the outputs within a budget."""
    names = list(mixing.schemes)
    for wider in (*names[1:], REAL):
        if mixing.error(assignment) <= budget:
            return assignment
        ranked = [name for _, name in rank_layers(mixing, assignment)]
        movable = [name for name in ranked if _is_below(assignment[name], wider, names)]
        if wider != REAL:
            movable = [name for name in movable if mixing.found.layers[name].weight is not None]
        assignment = _promote(assignment, movable, wider, lambda choice: mixing.error(choice) <= budget)
    return assignment


def _is_below(scheme: str, wider: str, names: Sequence[str]) -> bool:
    return scheme != REAL and (wider == REAL or names.index(scheme) < names.index(wider))


def _promote(
    assignment: Assignment, movable: Sequence[str], wider: str, is_enough: Callable[[Assignment], bool]
) -> Assignment:
    """The assignment with the first of some layers promoted, as few as are enough; all where none of them is.

    Halving assumes that more promoted layers never hurt; what it finds was judged itself, so it is enough.
    """
    low, high = 0, len(movable)
    while low < high:
        middle = (low + high) // 2
        if is_enough({**assignment, **dict.fromkeys(movable[:middle], wider)}):
            high = middle
        else:
            low = middle + 1
    return {**assignment, **dict.fromkeys(movable[:low], wider)}


def keep_size(mixing: Mixing, assignment: Assignment, budget: int, other: int) -> Assignment:
    """The assignment with as many layers narrowed as bring the weights within a budget, beside `other` bytes."""
    narrow, *wider = mixing.schemes
    found = dict(assignment)
    weighted = [
        name
        for name, scheme in found.items()
        if scheme != REAL and mixing.found.layers[name].weight is not None
    ]
    found.update(dict.fromkeys(weighted, wider[-1] if wider else narrow))
    least = other + sum(mixing.sizes[name, narrow] for name in weighted)
    if least > budget:
        hint = f"with all weights at their narrowest, scheme {narrow}, it has {least:,} bytes"
        raise InputError(f"the model does not fit into {budget:,} bytes", hint=hint)

    def price(name: str) -> tuple[float, str]:
        saved = mixing.sizes[name, found[name]] - mixing.sizes[name, narrow]
        return mixing.error_alone(name, narrow) ** 2 / max(saved, 1), name

    size = other + sum(mixing.sizes[name, found[name]] for name in weighted)
    if size <= budget:
        return found
    order = sorted(mixing.progress(weighted, len(weighted)), key=price)
    narrowed = []
    for name in order:
        if size <= budget:
            break
        size -= mixing.sizes[name, found[name]] - mixing.sizes[name, narrow]
        narrowed.append((name, found[name]))
        found[name] = narrow
    # The last one may have given back more than was needed: what hurts most and fits is widened again.
    for name, wide in sorted(narrowed, key=lambda item: (-mixing.error_alone(item[0], narrow), item[0])):
        more = mixing.sizes[name, wide] - mixing.sizes[name, narrow]
        if size + more <= budget:
            size += more
            found[name] = wide
    return found
