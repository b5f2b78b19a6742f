"""Gradient check: adjoints against central differences of the forward graph, on random numbers in 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from lamella.base import dim
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.dtype import F64
from lamella.bridge.module_to_graph import module_to_graph
from lamella.bridge.module_to_graph.backward import differentiate
from lamella.bridge.module_to_graph.backward.blame import places_of
from lamella.bridge.module_to_graph.backward.tape import Differentiated
from lamella.bridge.module_to_graph.constant_tables import compute_table
from lamella.bridge.module_to_graph.nodes import CompilationSettings
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate import children
from lamella.lang.module.instantiate.nodes import Instance
from lamella.lang.module.rules import gradients

DIRECTIONS = 3
"""Random directions that each tensor is moved along; the derivative along one tests all elements at once."""
SMALL = 32
"""Tensors of at most so many elements are moved element by element."""
DRAWN, LARGEST = 4, 4
"""Elements of a larger one that are moved: drawn ones, and those with the largest gradients."""
NEGLIGIBLE = 1e-3
"""Elements are compared in parts of the largest gradient of their tensor where they are less than this of it."""
SIZES: Mapping[str, int] = {"B": 2, "T": 8}
OTHER = 4
"""The size of a dimension that nothing else says."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How gradients are compared: the step of the differences, the relative error that is allowed, the sizes."""

    epsilon: float = 1e-4
    tolerance: float = 1e-3
    shapes: Mapping[str, int] = field(default_factory=dict)
    """The sizes of open dimensions by name."""


class DifferenceModel(Protocol):
    """A model that can be run."""

    @property
    def state(self) -> MutableMapping[str, Array]:
        """The numbers of its variables."""

    def __call__(self, /, **inputs: Array) -> Mapping[str, Array]:
        """The outputs for these inputs."""


Compile = Callable[[Model], DifferenceModel]
"""Makes a model executable in 64 bits; a backend gives it."""


@dataclass(frozen=True, slots=True)
class ComparedGradient:
    """One gradient: its slope along the direction where it is worst, and that of the differences."""

    name: str
    found: float
    wanted: float
    error: float
    """The difference of the two over the larger of them."""
    where: str = "along a random direction"


@dataclass(frozen=True, slots=True)
class Verification:
    """What comparing gradients gave; the worst is the first."""

    judged: tuple[ComparedGradient, ...]
    findings: tuple[Diagnostic, ...]
    extents: frozenset[str] = frozenset()
    """The names of the open dimensions."""

    def lines(self) -> Iterator[str]:
        """The comparison as text."""
        if self.judged:
            worst = self.judged[0]
            yield f"{len(self.judged)} gradients compared, the worst is '{worst.name}': {worst.error:.1e}"
        for item in self.judged:
            found = f"{item.found:.9g} {item.where}, by differences {item.wanted:.9g}"
            yield f"{item.name}: {found}, error {item.error:.1e}"


def verify_backward(
    instance: Instance, settings: CompilationSettings, trial: Trial, compile: Compile
) -> Verification:
    """Compare each gradient of an instance with differences of its forward graph along random directions.

    What `@gradient` changes is no derivative any more: then nothing is reported, but the comparison is still given.
    """
    settings = replace(settings, element=F64)
    found, forward = differentiate(instance, settings), module_to_graph(instance, settings).model
    if found.model is None or forward is None:
        return Verification((), tuple(errors(found.findings)))
    judge = _DifferenceTest(found, compile(found.model), compile(forward), trial)
    judged = tuple(sorted(judge.judge(), key=lambda item: -item.error))
    changed = any(mark.annotation.name == "gradient" for mark in found.compiled.marks)
    wrong = [item for item in judged if item.error > trial.tolerance and not changed]
    for part in _written_parts(instance) if wrong else ():
        # A wrong gradient of a part makes others wrong all the way back: the part says where it is.
        inner = verify_backward(part, settings, trial, compile)
        if inner.judged and inner.findings:
            return Verification(judged, inner.findings, judge.extents)
    spans = places_of(
        instance, [item.name for item in wrong], [item.name for item in judged if item not in wrong]
    )
    findings = [
        gradients.DIFFERS.at(
            spans[item.name],
            name=item.name,
            module=instance.name,
            found=f"{item.found:.6g} {item.where}",
            wanted=f"{item.wanted:.6g}",
        )
        for item in wrong
    ]
    return Verification(judged, tuple(findings), judge.extents)


def _written_parts(instance: Instance) -> Iterator[Instance]:
    """The instances below that have a backward graph of their own, those inside first, equal ones once."""
    seen: set[int] = set()
    for _, child in children(instance):
        if id(child) in seen:
            continue
        seen.add(id(child))
        yield from _written_parts(child)
        backward = child.module.backward
        if backward is not None and backward.graph is not None:
            yield child


class _DifferenceTest:
    """A graph with random numbers in all its inputs and parameters."""

    def __init__(
        self, found: Differentiated, both: DifferenceModel, forward: DifferenceModel, trial: Trial
    ) -> None:
        self.found, self.both, self.forward = found, both, forward
        self._rng = np.random.default_rng(0)
        self._step, self._tolerance = trial.epsilon, trial.tolerance
        self._sizes = {**SIZES, **trial.shapes}
        self._known: set[str] = set()
        model = found.model
        inputs = model.graph.inputs if model is not None else ()
        self._inputs = {item.name: self._draw(item) for item in inputs if isinstance(item, Tensor)}
        for weight in found.compiled.weights:
            self._set(weight.tensor.name, self._draw(weight.tensor))
        for name, built in found.compiled.constants.items():
            self._set(name, compute_table(built))

    @property
    def extents(self) -> frozenset[str]:
        """The names of the open dimensions that were met."""
        return frozenset(self._known)

    def _set(self, name: str, array: Array) -> None:
        self.both.state[name] = self.forward.state[name] = array

    def _draw(self, tensor: Tensor) -> Array:
        """Numbers for a tensor; indices are 0 or 1, which every table has."""
        shape = tuple(self._size(item) for item in tensor.shape)
        if not tensor.element.is_float:
            return self._rng.integers(0, 2, shape)
        return self._rng.normal(size=shape) * 0.5

    def _size(self, extent: dim.Extent) -> int:
        self._known |= {item.name for item in dim.symbols(extent)}
        known = {item.name: self._sizes.get(item.name, OTHER) for item in dim.symbols(extent)}
        found = dim.substitute(extent, known)
        return found if isinstance(found, int) else OTHER

    def _loss(self) -> float:
        """The outputs, each weighed with its incoming gradient."""
        given = {name: array for name, array in self._inputs.items() if name not in self.found.seeds.values()}
        results = self.forward(**given)
        return float(
            sum((results[name] * self._inputs[seed]).sum() for name, seed in self.found.seeds.items())
        )

    def judge(self) -> Iterator[ComparedGradient]:
        """Every gradient where it is worst."""
        results = self.both(**self._inputs)
        size = abs(self._loss())
        for name, output in self.found.input_gradients.items():
            yield self._worst(output, self._inputs, name, results[output], size)
        for weight in self.found.compiled.weights:
            gradient = self.found.gradients.get(weight.path)
            if gradient is not None:
                state = self.forward.state
                yield self._worst(gradient, state, weight.tensor.name, results[gradient], size)

    def _worst(
        self, name: str, place: MutableMapping[str, Array], key: str, gradient: Array, size: float
    ) -> ComparedGradient:
        start = place[key]
        # Slopes below this are rounding noise of the loss: relative to them every error would be large.
        least = 1e-6 * max(1.0, size)
        found: list[ComparedGradient] = []
        try:
            for _ in range(DIRECTIONS):
                direction = self._rng.normal(size=start.shape)
                ours, theirs = float((gradient * direction).sum()), self._slope(place, key, start, direction)
                found.append(ComparedGradient(name, ours, theirs, _error(ours, theirs, least)))
            least = max(least, NEGLIGIBLE * float(np.abs(gradient).max(initial=0.0)))
            for at in self._elements(gradient):
                direction = np.zeros(start.shape)
                direction[at] = 1.0
                ours, theirs = float(gradient[at]), self._slope(place, key, start, direction)
                where = f"at [{', '.join(map(str, at))}]"
                found.append(ComparedGradient(name, ours, theirs, _error(ours, theirs, least), where))
        finally:
            place[key] = start
        # An element that is wrong says more than a direction in which others are, too.
        wrong = [item for item in found[DIRECTIONS:] if item.error > self._tolerance]
        return max(wrong or found, key=lambda item: item.error)

    def _slope(self, place: MutableMapping[str, Array], key: str, start: Array, direction: Array) -> float:
        """The derivative of the loss along a direction, by central differences."""
        losses = []
        for sign in (1.0, -1.0):
            place[key] = start + sign * self._step * direction
            losses.append(self._loss())
        return (losses[0] - losses[1]) / (2 * self._step)

    def _elements(self, gradient: Array) -> Iterator[tuple[int, ...]]:
        """The elements that are compared one by one: all of a small tensor, some of a large one."""
        flat: Sequence[int] = range(gradient.size)
        if gradient.size > SMALL:
            drawn = self._rng.choice(gradient.size, DRAWN, replace=False)
            largest = np.argsort(-np.abs(gradient), axis=None, kind="stable")[:LARGEST]
            flat = sorted({*map(int, drawn), *map(int, largest)})
        for number in flat:
            yield tuple(map(int, np.unravel_index(number, gradient.shape)))


def _error(ours: float, theirs: float, least: float) -> float:
    return abs(ours - theirs) / max(abs(ours), abs(theirs), least)
