"""Post-training quantisation of a graph: from a float model and data to codes for its tensors, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np

from lamella.backend.progress import Progress, no_progress
from lamella.base.dtype import F32, I4, I8, I16, ElementType
from lamella.base.errors import InputError
from lamella.base.shape import bytes_for
from lamella.graph.model import Model
from lamella.graph.nodes import Node, Operation, Tensor
from lamella.graph.quantize import TensorCodes, to_normal_form
from lamella.graph.rewrite import members
from lamella.pipeline.options import Options
from lamella.pipeline.quantize.calibrate import Observations, has_moments, observe
from lamella.pipeline.quantize.data import CalibrationData
from lamella.pipeline.quantize.equalise import equalise
from lamella.pipeline.quantize.layers import Layer, LayerRole, Layers, find_layers
from lamella.pipeline.quantize.mixture import Assignment, Mixing, keep_accuracy, keep_size, rank_layers
from lamella.pipeline.quantize.narrow import can_group
from lamella.pipeline.quantize.probe import LayerError, correct_biases, probe_layers
from lamella.pipeline.quantize.ranges import QUANTILE, Calibration, Range
from lamella.pipeline.quantize.scheme import REAL, Scheme, ladder
from lamella.pipeline.quantize.simulate import Codes, Simulation
from lamella.pipeline.quantize.weights import (
    GROUP,
    TENSOR,
    Granularity,
    WeightCodes,
    gptq_weight,
    round_weight,
)
from lamella.pipeline.skriptnd.run_passes import evaluator

CHANNELS = Granularity()
"""A scale for each channel."""
FARTHEST = 3e4
"""Magnitudes beyond which numbers are masks, not measures: a tensor that holds them has no codes."""
TABLE_BITS = 8
"""Bits of tables of rows, whatever those of weights: nothing after them makes up for what they lose."""
JUDGED = 4
"""Batches on which mixed precision and the ranking judge; calibration sees all."""


@dataclass(frozen=True, slots=True)
class QuantizationSettings:
    """How a model is quantised."""

    scheme: Scheme
    method: str = "mse"
    percent: float = QUANTILE
    per: Granularity = CHANNELS
    symmetric: bool = False
    kept: tuple[str, ...] = ()
    """Patterns of layers that compute in real numbers."""
    equalise: bool | None = None
    """None where it is done where it helps: with one scale for a whole weight."""
    correct_biases: bool = True
    gptq: bool | None = None
    """None where it is done where it helps: with fewer than eight bits."""
    wide_outputs: bool = False
    """Whether products that only real operations read give codes of 16 bits."""
    islands: ElementType = F32
    accuracy_budget: float | None = None
    size_budget: int | None = None
    ranked: bool = True
    """Whether the outputs are judged with each layer quantised alone."""

    @property
    def equalises(self) -> bool:
        """Whether neighbours are equalised."""
        return self.per.kind == TENSOR if self.equalise is None else self.equalise

    def rounds_by_gptq(self, bits: int) -> bool:
        """Whether weights of so many bits are rounded by GPTQ."""
        return bits < 8 if self.gptq is None else self.gptq


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen for a model: its graph with corrected weights, and the codes of its tensors."""

    model: Model
    """Prepared, equalised, its biases corrected; weights are what their codes stand for."""
    found: Layers
    layers: Mapping[str, Layer]
    """All that could be quantised, those that stay real too."""
    assignment: Assignment
    activations: Mapping[str, Codes]
    """By the tensor whose range decides."""
    ranges: Mapping[str, Range]
    weights: Mapping[str, WeightCodes]
    errors: Mapping[str, LayerError]
    """What each layer alone loses."""
    tables: frozenset[str] = frozenset()
    """Weights that are no layers' but tables of rows, such as those of an embedding."""
    alone: Mapping[str, float] = field(default_factory=dict)
    """The error of the outputs where one layer alone is quantised."""
    notes: tuple[str, ...] = ()
    corrected: frozenset[str] = frozenset()

    def codes(self) -> dict[str, TensorCodes]:
        """By tensor what its codes mean and their type: of activations and of weights."""
        found = {
            name: TensorCodes(*self.activations[leader])
            for name, leader in self.found.ranges.items()
            if leader in self.activations
        }
        for name, codes in self.weights.items():
            if codes.quant is not None:
                found[name] = TensorCodes(codes.quant, I4 if codes.bits <= 4 else I8)
        return found


MOST_LISTED = 12
"""Layers that a message names."""


def _called(layer: Layer) -> tuple[str, ...]:
    """What a pattern may name a layer by."""
    return layer.name, layer.weight or "", layer.operation.operator


class PostTraining:
    """The quantisation of one model: what its data say of it, and from that a choice for every layer."""

    def __init__(
        self,
        model: Model,
        data: CalibrationData,
        settings: QuantizationSettings,
        options: Options,
        progress: Progress = no_progress,
    ) -> None:
        self.model = to_normal_form(model, evaluator(model.library, options.limits))
        self.data, self.settings, self.options, self.progress = data, settings, options, progress
        self.kept: set[str] = set()
        self.notes: list[str] = []
        self.found = self._find()
        self.activations: dict[str, Codes] = {}
        self.ranges: dict[str, Range] = {}
        self.weights: dict[tuple[str, int], WeightCodes] = {}
        self._calibrate()
        self._mixing = self._make_mixing() if self._needs_mixing() else None

    def _calibrate(self) -> None:
        """See the data once, and choose the codes of activations and, in each width, of weights."""
        settings = self.settings
        self._require_kept()
        self.kept |= {name for name, layer in self.found.layers.items() if self._is_kept(layer)}
        self.found = self._find()
        if settings.equalises:
            self.model, pairs = equalise(self.model, self.found)
            self.found = self._find()
            self.notes.append(f"{pairs} pair{'s' * (pairs != 1)} of layers equalised")
        seen = self._observe()
        if settings.scheme.is_integer:
            self._choose_ranges(seen)
        self._choose_weights(seen)

    def choose(self, budget: float | None = None) -> Chosen:
        """A choice for every layer; the simulated error of the outputs keeps to a budget where there is one."""
        assignment, alone = self._mix(budget)
        real = {name for name, scheme in assignment.items() if scheme == REAL}
        layers, found = self.found.layers, self.found
        if real:
            found = self._find(real)
        weights = self._assigned_weights(found, assignment)
        tables = self._tables()
        model, corrected = self.model, set[str]()
        errors = self._probe(found, weights)
        if self.settings.correct_biases:
            model, corrected = correct_biases(model, errors, found.layers.values())
            errors = {name: item.corrected() if name in corrected else item for name, item in errors.items()}
        leaders = set(found.ranges.values())
        stored = {**weights, **tables}
        data = {**(model.data or {}), **{name: codes.values() for name, codes in stored.items()}}
        return Chosen(
            model=replace(model, data=data),
            found=found,
            layers=layers,
            assignment=assignment,
            activations={name: codes for name, codes in self.activations.items() if name in leaders},
            ranges=self.ranges,
            weights=stored,
            tables=frozenset(tables),
            errors=errors,
            alone=alone,
            notes=tuple(self.notes),
            corrected=frozenset(corrected),
        )

    def _find(self, real: Iterable[str] = ()) -> Layers:
        """The layers, but for those that were asked to stay real, and others that are to."""
        found = find_layers(self.model, self.kept, real)
        if self.settings.scheme.is_integer:
            return found
        layers = {name: layer for name, layer in found.layers.items() if layer.weight is not None}
        floats = {name: reason for name, reason in found.floats.items() if name in {*self.kept, *real}}
        return replace(found, layers=layers, ranges={}, floats=floats)

    def _require_kept(self) -> None:
        """A pattern that names no layer would be ignored in silence."""
        layers = list(self.found.layers.values())
        names = [name for layer in layers for name in _called(layer)] + list(self.found.readers)
        for pattern in self.settings.kept:
            if not any(fnmatchcase(name, pattern) for name in names):
                listed = ", ".join(layer.name for layer in layers[:MOST_LISTED]) or "none"
                raise InputError(
                    f"'{pattern[:80]}' names no layer, weight or operator that is quantised",
                    hint=f"layers are: {listed}{' …' * (len(layers) > MOST_LISTED)}",
                )

    def _is_kept(self, layer: Layer) -> bool:
        return any(fnmatchcase(name, pattern) for name in _called(layer) for pattern in self.settings.kept)

    # --- activations ----------------------------------------------------------------------------------------

    def _observe(self) -> Observations:
        """Run the model over all data."""
        wants_moments = any(self.settings.rounds_by_gptq(bits) for bits in self._widths())
        linear = [layer for layer in self.found.layers.values() if wants_moments and has_moments(layer)]
        wanted = self.found.observed()
        if not wanted and not linear:
            return Observations({}, {})
        batches = self.progress(self.data.batches, len(self.data.batches))
        return observe(self.model, wanted, linear, batches, self.options)

    def _choose_ranges(self, seen: Observations) -> None:
        """The codes of activations; layers that read or give what has none compute in real numbers."""
        far = {
            name
            for name, item in seen.histograms.items()
            if item.not_finite or (item.total and max(-item.low, item.high) > FARTHEST)
        }
        if far:
            self.kept |= {
                name
                for name, layer in self.found.layers.items()
                if any(self.found.ranges.get(item) in far for item in _names(layer))
            }
            self.found = self._find()
            self.notes.append(f"{len(far)} tensors hold numbers beyond {FARTHEST:g}, and stay real")
        for tensor in self.found.observed():
            if tensor.name not in seen.histograms:
                continue
            how = self._calibration(tensor.name)
            self.ranges[tensor.name] = how.choose(seen.histograms[tensor.name])
            self.activations[tensor.name] = how.codes(self.ranges[tensor.name]), how.element

    def _calibration(self, name: str) -> Calibration:
        settings = self.settings
        element = I16 if settings.wide_outputs and self._is_wide(name) else I8
        symmetric = settings.symmetric or element is I16
        return Calibration(settings.method, element, symmetric, settings.percent)

    def _is_wide(self, name: str) -> bool:
        """Whether a tensor is the result of a product that nothing reads that computes in integers."""
        layer = self.found.layers.get(name)
        readers = self.found.readers.get(name, ())
        inner = any(
            isinstance(node, Operation)
            and any(item.name in self.found.ranges for item in members(node.outputs))
            for node in readers
        )
        return layer is not None and layer.kind is LayerRole.PRODUCT and not inner

    # --- weights --------------------------------------------------------------------------------------------

    def _schemes(self) -> tuple[Scheme, ...]:
        """The schemes that layers may have, from the narrowest."""
        settings, steps = self.settings, ladder(self.settings.scheme)
        if settings.size_budget is not None:
            return steps
        if settings.accuracy_budget is not None:
            return tuple(item for item in steps if item.weight_bits >= settings.scheme.weight_bits)
        return (settings.scheme,)

    def _widths(self) -> list[int]:
        return [item.weight_bits for item in self._schemes()]

    def _choose_weights(self, seen: Observations) -> None:
        """The codes of all weights, in each width that a layer may have."""
        data = self.model.data or {}
        layers = [layer for layer in self.found.layers.values() if layer.weight is not None]
        for layer in self.progress(layers, len(layers)):
            assert layer.weight is not None
            assert layer.product is not None
            for bits in self._widths():
                if (layer.weight, bits) in self.weights:
                    continue
                array, rows = np.asarray(data[layer.weight], np.float32), layer.product.rows
                per = self.settings.per
                if per.kind == GROUP and not can_group(array.shape, rows, per.size):
                    per = CHANNELS
                moments = seen.moments.get(layer.name) if self.settings.rounds_by_gptq(bits) else None
                self.weights[layer.weight, bits] = (
                    round_weight(array, rows, bits, per)
                    if moments is None
                    else gptq_weight(array, rows, bits, per, moments)
                )

    def _tables(self) -> dict[str, WeightCodes]:
        """Tables of which nothing but rows is read, with a scale for each row.

        Only where weights alone are narrow: plans have no rows with scales of their own. And not where the outputs have
        a budget, which promotes layers, and tables are none.
        """
        if self.settings.scheme.is_integer or self.settings.accuracy_budget is not None:
            return {}
        data = self.model.data or {}
        states = {item.variable.name for item in self.model.graph.updates}
        tables = [
            item.name
            for item in self.model.graph.variables
            if item.element == F32 and len(item.shape) == 2 and item.name in data and item.name not in states
        ]
        return {
            name: round_weight(np.asarray(data[name]), 0, TABLE_BITS, CHANNELS)
            for name in tables
            if self._is_table(name)
        }

    def _is_table(self, name: str) -> bool:
        """Whether rows are all that is taken of a weight, and nobody asked to keep it."""
        readers = self.found.readers.get(name, ())
        kept = any(fnmatchcase(name, pattern) for pattern in self.settings.kept)
        return bool(readers) and not kept and all(_takes_rows(node, name) for node in readers)

    # --- errors ---------------------------------------------------------------------------------------------

    def _probe(self, found: Layers, weights: Mapping[str, WeightCodes]) -> dict[str, LayerError]:
        batches = self.progress(self.data.batches, len(self.data.batches))
        return probe_layers(self.model, found, (self.activations, weights), batches, self.options)

    def _needs_mixing(self) -> bool:
        settings = self.settings
        budgets = settings.accuracy_budget is not None or settings.size_budget is not None
        return (budgets or settings.ranked) and bool(self.found.layers)

    def _mix(self, budget: float | None) -> tuple[Assignment, dict[str, float]]:
        """A scheme for each layer, and what each layer does alone where that was asked for."""
        settings, mixing = self.settings, self._mixing
        assignment = dict.fromkeys(self.found.layers, settings.scheme.name)
        if mixing is None:
            return assignment, {}
        if settings.size_budget is not None:
            assignment = keep_size(mixing, assignment, settings.size_budget, self._other_bytes())
        if budget is not None:
            assignment = keep_accuracy(mixing, assignment, budget)
        if settings.ranked:
            rank_layers(mixing, assignment)
        chosen = (item for item in assignment.items() if item in mixing.alone)
        return assignment, {name: mixing.alone[name, scheme] for name, scheme in chosen}

    def _make_mixing(self) -> Mixing:
        variants: dict[str, list[WeightCodes]] = {}
        for (name, _), codes in self.weights.items():
            variants.setdefault(name, []).append(codes)
        simulation = Simulation(self.model, self.activations, variants, self.options)
        simulation.take(self.data.batches[:JUDGED])
        schemes = {item.name: item for item in self._schemes()}
        sizes = {
            (layer.name, name): self.weights[layer.weight, item.weight_bits].bytes
            for layer in self.found.layers.values()
            if layer.weight is not None
            for name, item in schemes.items()
        }
        return Mixing(self.found, simulation, schemes, sizes, self.progress)

    def _other_bytes(self) -> int:
        """The bytes of all variables that are no weights of layers, and of biases that correction will add."""
        layers = self.found.layers.values()
        weights = {layer.weight for layer in layers}
        there = sum(variable_bytes(item) for item in self.model.graph.variables if item.name not in weights)
        if not self.settings.correct_biases:
            return there
        products = [layer.product for layer in layers if layer.product is not None]
        without = [item for item in products if item.bias is not None and item.operand(item.bias) is None]
        return there + sum(
            variable_bytes(Tensor("bias", F32, (item.result.shape[item.channel],))) for item in without
        )

    def _assigned_weights(self, found: Layers, assignment: Assignment) -> dict[str, WeightCodes]:
        """The codes of weights by name; of layers that share a weight the one with more bits decides."""
        schemes = {item.name: item for item in ladder(self.settings.scheme)}
        weights: dict[str, WeightCodes] = {}
        for name, layer in found.layers.items():
            if layer.weight is None:
                continue
            codes = self.weights[layer.weight, schemes[assignment[name]].weight_bits]
            if layer.weight not in weights or weights[layer.weight].bits < codes.bits:
                weights[layer.weight] = codes
        return weights


def _takes_rows(node: Node, table: str) -> bool:
    """Whether an operation only takes rows of a table."""
    if not isinstance(node, Operation) or node.operator != "layout.gather":
        return False
    read = node.inputs[0]
    return isinstance(read, Tensor) and read.name == table and dict(node.attributes).get("axis") == 0


def _names(layer: Layer) -> Iterable[str]:
    return (layer.name, *(item.name for item in layer.activations))


def variable_bytes(tensor: Tensor) -> int:
    """The bytes of a variable of known extents."""
    count = 1
    for extent in tensor.shape:
        count *= extent if isinstance(extent, int) else 1
    return bytes_for(count, tensor.element.bits)
