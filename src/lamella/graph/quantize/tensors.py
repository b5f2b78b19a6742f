"""The tensors of an integer graph under construction: each as codes, as real numbers, or both, made when asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.base.dtype import F64, I8, I32, ElementType
from lamella.base.errors import Unsupported
from lamella.base.origin import Origin
from lamella.base.quant import PerTensor
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Constant, Node, Single, Tensor, Value
from lamella.graph.passes.fold_constants import array_of
from lamella.graph.quantize.codes import TensorCodes, encode, encode_bias, stored_type
from lamella.graph.quantize.forms import known_shape
from lamella.graph.rewrite import FreshNames, defined, members


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """The codes of a weight and their scales, one or one for each channel."""

    codes: Tensor
    scales: Tensor


@dataclass(slots=True)
class TensorForms:
    """What there is of each tensor so far, and the nodes, variables and constants that make it."""

    model: Model
    chosen: Mapping[str, TensorCodes]
    nodes: list[Node] = field(default_factory=list)
    variables: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    data: dict[str, Array] = field(default_factory=dict)
    origin: Origin | None = None
    """What the operations are made from that are called from now on."""
    coded: dict[str, Tensor] = field(default_factory=dict)
    """Tensors as codes, by the name that they have in the model."""
    meaning: dict[str, TensorCodes] = field(default_factory=dict)
    """What the codes of these stand for."""
    reals: dict[tuple[str, ElementType], Tensor] = field(default_factory=dict)
    """Tensors as real numbers of a type."""
    _stored: dict[tuple[str, ElementType, bytes], Tensor] = field(default_factory=dict)
    _scales: dict[tuple[str, tuple[int, ...], bytes], Tensor] = field(default_factory=dict)
    _fixed: dict[str, Array] = field(default_factory=dict)
    _names: FreshNames = field(default_factory=FreshNames)
    _ends: frozenset[str] = frozenset()
    _outputs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        graph = self.model.graph
        self._names = FreshNames(item.name for item in defined(graph))
        inputs, outputs = ({item.name for item in members(side)} for side in (graph.inputs, graph.outputs))
        self._ends, self._outputs = frozenset(inputs | outputs), frozenset(outputs - inputs)
        states = {item.variable.name for item in graph.updates}
        given = self.model.data or {}
        for item in graph.variables:
            if item.name in states and item.name in self.chosen:
                self._add_state(item, given.get(item.name))
                continue
            self.variables[item.name] = item
            # Real numbers of a weight that has codes are those of the codes.
            if item.name in states or item.name not in self.chosen:
                self.reals[item.name, item.element] = item
            if item.name in given:
                self.data[item.name] = given[item.name]
                if item.name not in states:
                    self._fixed[item.name] = given[item.name]
        for constant in graph.constants:
            self.constants[constant.tensor.name] = constant
            self.reals[constant.tensor.name, constant.tensor.element] = constant.tensor
            known = array_of(constant)
            if known is not None:
                self._fixed[constant.tensor.name] = known
        for given_input in members(graph.inputs):
            if isinstance(given_input, Tensor):
                self.reals[given_input.name, given_input.element] = given_input

    def _add_state(self, state: Tensor, start: Array | None) -> None:
        """A state that is held in codes."""
        codes = self.chosen[state.name]
        if codes.single is None:
            raise Unsupported(f"the state '{state.name}' must have one scale")
        found = replace(state, element=codes.element)
        self.variables[state.name] = self.coded[state.name] = found
        self.meaning[state.name] = codes
        if start is not None:
            self.data[state.name] = encode(start, codes)

    # --- calls ------------------------------------------------------------------------------------------------

    def call(
        self,
        operator: str,
        inputs: Sequence[Argument],
        name: str,
        attributes: Mapping[str, Value] | None = None,
        element: ElementType | None = None,
    ) -> Tensor:
        """Call an operator of one result and at most one type of its own, which then is the first it declares."""
        types = {} if element is None else {self._first_type(operator): element}
        made = call(self.model.library, operator, inputs, attributes or {}, [name], types)
        self.nodes.append(replace(made, origin=self.origin))
        (found,) = made.outputs
        if not isinstance(found, Tensor):
            raise Unsupported(f"{operator} does not make one tensor")
        return found

    def _first_type(self, operator: str) -> str:
        return (
            "Q"
            if operator.startswith("quant.") and operator not in ("quant.dequantize", "quant.decode")
            else "R"
        )

    def fresh(self, stem: str) -> str:
        """A name that no tensor has."""
        return self._names.take(stem)

    def code_name(self, name: str) -> str:
        """What a tensor is called in codes where its maker makes codes: as in the model, but at its borders."""
        return self.fresh(f"{name}.codes") if name in self._ends else name

    def real_name(self, tensor: Tensor, element: ElementType) -> str:
        """What a tensor is called where its maker makes real numbers of a type."""
        border = tensor.name in self._ends and tensor.element != element
        return self.fresh(f"{tensor.name}.{element}") if border else tensor.name

    def add_codes(self, name: str, codes: Tensor, meaning: TensorCodes) -> None:
        """Note that a tensor is there in codes, and what they stand for."""
        self.coded[name], self.meaning[name] = codes, meaning

    # --- known values -----------------------------------------------------------------------------------------

    def fixed(self, tensor: Argument) -> Array | None:
        """The numbers of a weight or a constant; None for what a run computes."""
        return self._fixed.get(tensor.name) if isinstance(tensor, Tensor) else None

    def uniform(self, tensor: Argument) -> float | None:
        """The one number that a constant is full of."""
        found = self.fixed(tensor)
        if found is None or not found.size or found.dtype.kind not in "fiu" or (found != found.flat[0]).any():
            return None
        return float(found.flat[0])

    def constant(self, value: Single, element: ElementType, shape: tuple[int, ...] = ()) -> Tensor:
        """A constant tensor, one value everywhere."""
        tensor = Tensor(self.fresh("c"), element, shape)
        self.constants[tensor.name] = Constant(tensor, value)
        return tensor

    def variable(self, name: str, values: Array, element: ElementType) -> Tensor:
        """A variable with its values."""
        tensor = Tensor(name, element, values.shape)
        self.variables[name], self.data[name] = tensor, values
        return tensor

    def weight(self, tensor: Tensor, codes: TensorCodes, scales: Array) -> StoredWeight:
        """A weight in codes, stored once for equal scales; under its own name the first time."""
        key = tensor.name, codes.element, scales.tobytes()
        if key not in self._stored:
            values = self.fixed(tensor)
            if values is None:
                raise Unsupported(f"the numbers of its weight '{tensor.name}' are not known")
            first = tensor.name in self.variables and not any(key[0] == tensor.name for key in self._stored)
            name = tensor.name if first else self.fresh(f"{tensor.name}.codes")
            self._stored[key] = self.variable(name, encode(values, codes), stored_type(codes.element))
        return StoredWeight(self._stored[key], self._scale(tensor.name, scales))

    def _scale(self, name: str, scales: Array) -> Tensor:
        key = name, scales.shape, scales.tobytes()
        if key not in self._scales:
            self._scales[key] = (
                self.constant(float(scales.flat[0]), F64, scales.shape)
                if scales.size == 1
                else self.variable(self.fresh(f"{name}.scale"), scales, F64)
            )
        return self._scales[key]

    def bias(self, tensor: Tensor, units: Array) -> Tensor:
        """A bias in units of the sums that it is added to."""
        values = self.fixed(tensor)
        if values is None:
            raise Unsupported(f"its bias '{tensor.name}' is computed")
        return self.variable(self.fresh(f"{tensor.name}.codes"), encode_bias(values, units), I32)

    # --- forms ------------------------------------------------------------------------------------------------

    def codes(self, tensor: Tensor, wanted: TensorCodes | None = None) -> Tensor:
        """A tensor as codes that stand for what is wanted, or for what they stand for already."""
        if self.fixed(tensor) is not None:
            return self._fixed_codes(tensor, wanted)
        if tensor.name not in self.coded:
            self._quantize(tensor, wanted)
        if wanted is None or self.meaning[tensor.name] == wanted:
            return self.coded[tensor.name]
        source, target = self.single(tensor), wanted.single
        if target is None:
            raise Unsupported(f"'{tensor.name}' has several scales")
        return self.call(
            "quant.requantize",
            [self.coded[tensor.name]],
            self.fresh(f"{tensor.name}.codes"),
            {**ends("x", source), **ends("y", target)},
            wanted.element,
        )

    def _quantize(self, tensor: Tensor, wanted: TensorCodes | None) -> None:
        chosen = wanted or self.chosen.get(tensor.name)
        single = None if chosen is None else chosen.single
        if chosen is None or single is None:
            raise Unsupported(f"no codes were chosen for '{tensor.name}'")
        source = next(item for (name, _), item in self.reals.items() if name == tensor.name)
        attributes: dict[str, Value] = {"scale": single.scale, "zero_point": single.zero_point}
        name = self.fresh(f"{tensor.name}.codes")
        found = self.call("quant.quantize", [source], name, attributes, chosen.element)
        self.add_codes(tensor.name, found, chosen)

    def _fixed_codes(self, tensor: Tensor, wanted: TensorCodes | None) -> Tensor:
        """A weight or a constant as codes; what nobody chose codes for gets those that tell it best."""
        meaning = wanted or self.meaning_of(tensor)
        if tensor.name in self.coded and self.meaning[tensor.name] == meaning:
            return self.coded[tensor.name]
        values, single = self.fixed(tensor), meaning.single
        if values is None or single is None:
            raise Unsupported(f"'{tensor.name}' has several scales")
        found = encode(values, meaning)
        uniform = self.uniform(tensor)
        if uniform is not None:
            stored = self.constant(int(found.flat[0]), stored_type(meaning.element), found.shape)
        else:
            stored = self.weight(tensor, meaning, np.asarray([single.scale])).codes
        if wanted is None:
            self.coded[tensor.name], self.meaning[tensor.name] = stored, meaning
        return stored

    def meaning_of(self, tensor: Tensor) -> TensorCodes:
        """What the codes of a tensor stand for: those that it has, were chosen, or tell its numbers best."""
        if tensor.name in self.meaning:
            return self.meaning[tensor.name]
        chosen = self.chosen.get(tensor.name)
        values, uniform = self.fixed(tensor), self.uniform(tensor)
        if uniform is not None and chosen is None and np.isfinite(uniform):
            return TensorCodes(PerTensor(abs(uniform) or 1.0))
        if chosen is None and values is not None and values.size:
            largest = float(np.abs(values.astype(np.float64)).max())
            if not np.isfinite(largest):
                raise Unsupported(f"'{tensor.name}' holds what no code stands for")
            return TensorCodes(PerTensor(largest / I8.maximum or 1.0))
        if chosen is None:
            raise Unsupported(f"no codes were chosen for '{tensor.name}'")
        return chosen

    def single(self, tensor: Tensor) -> PerTensor:
        """The one scale and zero point of a tensor."""
        found = self.meaning_of(tensor).single
        if found is None:
            raise Unsupported(f"'{tensor.name}' has several scales")
        return found

    def real(self, tensor: Tensor, element: ElementType) -> Tensor:
        """A tensor as real numbers of a type."""
        key = tensor.name, element
        if key not in self.reals:
            self.reals[key] = self._make_real(tensor, element)
        return self.reals[key]

    def _make_real(self, tensor: Tensor, element: ElementType) -> Tensor:
        chosen = self.chosen.get(tensor.name)
        if self.fixed(tensor) is not None and chosen is not None:
            return self._decoded(tensor, chosen, element)
        if self.fixed(tensor) is None and tensor.name in self.coded:
            source, found = self.coded[tensor.name], self.single(tensor)
            attributes: dict[str, Value] = {"scale": found.scale, "zero_point": found.zero_point}
            return self.call(
                "quant.dequantize", [source], self._real_form(tensor, element), attributes, element
            )
        return self._cast(tensor, element)

    def _real_form(self, tensor: Tensor, element: ElementType) -> str:
        """What the real numbers of a tensor in codes are called: an output of the graph keeps its name."""
        output = tensor.name in self._outputs and tensor.element == element and self.fixed(tensor) is None
        return tensor.name if output else self.fresh(f"{tensor.name}.real")

    def _decoded(self, tensor: Tensor, chosen: TensorCodes, element: ElementType) -> Tensor:
        """A weight from its codes: what is stored of it are these alone."""
        scale, zero = arrays.scales_along(chosen.quant, known_shape(tensor))
        name, single = self.fresh(f"{tensor.name}.real"), chosen.single
        found = self.weight(tensor, chosen, block_scales(chosen, scale))
        if single is not None:
            attributes: dict[str, Value] = {"scale": single.scale, "zero_point": single.zero_point}
            return self.call("quant.dequantize", [found.codes], name, attributes, element)
        if zero.any():
            raise Unsupported(f"the weight '{tensor.name}' has zero points")
        return self.call("quant.decode", [found.codes, found.scales], name, {}, element)

    def _cast(self, tensor: Tensor, element: ElementType) -> Tensor:
        """Real numbers in another type; those of weights and constants are stored in it."""
        values = self.fixed(tensor)
        if values is None:
            source = next(item for (name, _), item in self.reals.items() if name == tensor.name)
            output = tensor.name in self._outputs and tensor.element == element
            name = tensor.name if output else self.fresh(f"{tensor.name}.{element}")
            return self.call("layout.cast", [source], name, {}, element)
        uniform, shape = self.uniform(tensor), values.shape
        if uniform is not None:
            return self.constant(uniform, element, shape)
        return self.variable(self.fresh(f"{tensor.name}.{element}"), arrays.cast(values, element), element)


def block_scales(codes: TensorCodes, spread: Array) -> Array:
    """Scales that are given for every index of their axis, once for each block of it."""
    group = getattr(codes.quant, "group_size", 1)
    axis = next((place for place, size in enumerate(spread.shape) if size > 1), None)
    if axis is None or group == 1:
        return spread
    if spread.shape[axis] % group:
        raise Unsupported("its last group is short")
    places = np.arange(0, spread.shape[axis], group)
    return np.ascontiguousarray(np.take(spread, places, axis=axis))


def ends(prefix: str, quant: PerTensor) -> dict[str, Value]:
    """The attributes that say what the codes of an operand stand for."""
    return {f"{prefix}_scale": quant.scale, f"{prefix}_zero": quant.zero_point}
