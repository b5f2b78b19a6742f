"""QDQ graphs as integer graphs: pairs of QuantizeLinear and DequantizeLinear say which codes a tensor has.

    quantize(dequantize(x) op dequantize(w)) = quant.op(x, w)

Without the pairs a graph is one of real numbers with chosen codes, which the pass to integers takes. What does not fit
stays as it is written.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lamella.base.arrays import Array
from lamella.base.dtype import F32, I8, I32, U8
from lamella.base.quant import PerChannel, PerTensor, Quant
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Constant, Node, Operation, Tensor, tensors
from lamella.graph.passes import PASSES
from lamella.graph.passes.fold_constants import array_of
from lamella.graph.passes.moves import KnownMoves
from lamella.graph.quantize import TensorCodes, decode, to_integers
from lamella.graph.rewrite import (
    FreshNames,
    Substitution,
    copy_of,
    defined,
    members,
    operands_of,
    uses,
)

QUANTIZE, DEQUANTIZE, DECODE = "quant.quantize", "quant.dequantize", "quant.decode"
MIDDLE = 128
"""The zero point of bytes that are signed ones moved up."""


def integer_form(model: Model) -> Model:
    """The integer graph of a model with known scales; a model without such is left alone."""
    operators = {item.operator for item in model.graph.operations()}
    if not {QUANTIZE, DEQUANTIZE} <= operators:
        return model
    reading = _PairReading(model)
    real = PASSES["fold_transposes"](reading.run())
    found = to_integers(real, reading.codes, F32, exact=True).model
    for name in ("simplify", "dce", "variable_dce"):
        found = PASSES[name](found)
    return found


class _PairReading:
    """A graph while its codes become real numbers that have codes."""

    def __init__(self, model: Model) -> None:
        self.model, self.graph = model, model.graph
        self.codes: dict[str, TensorCodes] = {}
        self.moves = KnownMoves(model.library)
        self.reads = uses(model.graph)
        self.outputs = {item.name for item in members(model.graph.outputs)}
        self.twins: dict[str, tuple[Tensor, TensorCodes]] = {}
        """For tensors of codes, the real numbers that they are the codes of."""
        self.stand: dict[str, Tensor] = {}
        """What stands for tensors that are no longer made."""
        self.nodes: list[Node] = []
        self.variables = {item.name: item for item in model.graph.variables}
        self.data = {**(model.data or {})}
        self._names = FreshNames(item.name for item in defined(model.graph))
        self._constants: dict[str, Constant] = {item.tensor.name: item for item in model.graph.constants}

    def run(self) -> Model:
        """The model of real numbers."""
        renewal = Substitution(lambda item: self.stand.get(item.name, item))
        for node in self.graph.nodes:
            found = renewal.node(node)
            if not (isinstance(found, Operation) and self._read(found)):
                for item in operands_of(found):
                    self._tell(item.name)
                self.nodes.append(found)
        for name in self.outputs:
            self._tell(name)
        updates = tuple(
            replace(item, value=self.stand.get(item.value.name, item.value)) for item in self.graph.updates
        )
        graph = replace(
            self.graph,
            nodes=tuple(self.nodes),
            variables=tuple(self.variables.values()),
            constants=tuple(self._constants.values()),
            updates=updates,
        )
        return replace(self.model, graph=graph, data=self.data)

    def _read(self, node: Operation) -> bool:
        """Take a node away that is one of a pair, or moves codes; False where it stays."""
        if node.operator == QUANTIZE:
            return self._quantize(node)
        if node.operator in (DEQUANTIZE, DECODE):
            return self._weight(node) or self._dequantize(node)
        return self._move(node)

    def _quantize(self, node: Operation) -> bool:
        (x, *_), (result, *_), given = node.inputs, node.outputs, dict(node.attributes)
        scale, zero = given.get("scale"), given.get("zero_point")
        if not isinstance(x, Tensor) or not isinstance(result, Tensor):
            return False
        if not isinstance(scale, float) or not isinstance(zero, int):
            return False
        codes = TensorCodes(PerTensor(scale, zero), result.element)
        if self.reads.get(x.name) == 1 and x.name not in self.codes:
            self.codes[x.name] = codes
            self.twins[result.name] = x, codes
            return True
        # Others read the numbers as they are: those with codes are a tensor of their own.
        copy = Tensor(self._names.take(f"{x.name}.quantised"), x.element, x.shape, origin=x.origin)
        self.nodes.append(replace(copy_of(x, copy), origin=node.origin))
        self.codes[copy.name] = codes
        self.twins[result.name] = copy, codes
        return True

    def _dequantize(self, node: Operation) -> bool:
        x, result = node.inputs[0], node.outputs[0]
        twin = self.twins.get(x.name) if isinstance(x, Tensor) else None
        if twin is None or not isinstance(result, Tensor) or result.element != F32:
            return False
        given, single = dict(node.attributes), twin[1].single
        scale, zero = _real(given.get("scale")), _whole(given.get("zero_point"))
        if single is None or zero != single.zero_point:
            return False
        if scale != single.scale:  # the same codes stand for other numbers here: those times a factor
            factor = self._factor(scale / single.scale)
            made = call(self.model.library, "math.mul", [twin[0], factor], {}, [result.name])
            self.nodes.append(replace(made, origin=node.origin))
            return True
        if result.name in self.outputs:
            self.nodes.append(replace(copy_of(twin[0], result), origin=node.origin))
            self.codes[result.name] = twin[1]
        else:
            self.stand[result.name] = twin[0]
        return True

    def _factor(self, value: float) -> Tensor:
        tensor = Tensor(self._names.take("c"), F32, ())
        self._constants[tensor.name] = Constant(tensor, float(np.float32(value)))
        return tensor

    def _move(self, node: Operation) -> bool:
        """A move of codes as one of the numbers that they are the codes of."""
        if len(node.outputs) != 1 or not isinstance(node.outputs[0], Tensor):
            return False
        result = node.outputs[0]
        moved = self.moves.find(node) if result.element.is_integer else None
        read = [item for place in moved or () for item in tensors(node.inputs[place])]
        twins = [self.twins[item.name] for item in read if item.name in self.twins]
        if not read or len(twins) != len(read) or len({codes for _, codes in twins}) != 1:
            return False
        real = {item.name: twin for item, (twin, _) in zip(read, twins, strict=True)}
        inputs = tuple(_replaced(item, real) for item in node.inputs)
        types = {name: F32 if element == result.element else element for name, element in node.types}
        name = self._names.take(f"{result.name}.real")
        made = call(self.model.library, node.operator, inputs, dict(node.attributes), [name], types)
        self.nodes.append(replace(made, origin=node.origin))
        (found,) = made.outputs
        assert isinstance(found, Tensor)  # as the move of codes gave one
        self.codes[found.name] = twins[0][1]
        self.twins[result.name] = found, twins[0][1]
        return True

    def _tell(self, name: str) -> None:
        """Make the codes of a tensor that something reads as such."""
        twin = self.twins.pop(name, None)
        if twin is None:
            return
        (real, codes), single = twin, twin[1].single
        assert single is not None  # a pair has one scale
        attributes = {"scale": single.scale, "zero_point": single.zero_point}
        types = {"Q": codes.element}
        self.nodes.append(call(self.model.library, QUANTIZE, [real], attributes, [name], types))

    # --- weights ----------------------------------------------------------------------------------------------

    def _weight(self, node: Operation) -> bool:
        """Codes that are known before the run, as a variable of their numbers."""
        x, result = node.inputs[0], node.outputs[0]
        values = self._known(x)
        if (
            values is None
            or not isinstance(x, Tensor)
            or not isinstance(result, Tensor)
            or result.element != F32
        ):
            return False
        quant = self._quant(node, result)
        if quant is None or result.name in self.outputs:
            return False
        codes = TensorCodes(quant, x.element)
        numbers = decode(values, codes).astype(np.float32)
        name = (
            x.name
            if self.reads.get(x.name) == 1 and x.name in self.variables
            else self._names.take(f"{x.name}.real")
        )
        self.variables[name] = Tensor(name, F32, values.shape, origin=x.origin)
        self.data[name] = numbers
        self.stand[result.name] = self.variables[name]
        if x.element != I32:
            self.codes[name] = _signed(codes)
        return True

    def _known(self, argument: Argument) -> Array | None:
        if not isinstance(argument, Tensor):
            return None
        constant = self._constants.get(argument.name)
        if constant is not None:
            return array_of(constant)
        states = {item.variable.name for item in self.graph.updates}
        known = argument.name in self.variables and argument.name not in states
        return self.data.get(argument.name) if known else None

    def _quant(self, node: Operation, result: Tensor) -> Quant | None:
        if node.operator == DEQUANTIZE:
            given = dict(node.attributes)
            return PerTensor(_real(given.get("scale")), _whole(given.get("zero_point")))
        scales = self._known(node.inputs[1])
        axes = [] if scales is None else [axis for axis, size in enumerate(scales.shape) if size > 1]
        if scales is None or len(axes) > 1:
            return None
        axis = axes[0] if axes else 0
        if axes and scales.shape[axis] != result.shape[axis]:
            return None
        flat = tuple(scales.reshape(-1).tolist())
        return PerChannel(axis, flat, (0,) * len(flat)) if axes else PerTensor(flat[0], 0)


def _signed(codes: TensorCodes) -> TensorCodes:
    """Bytes around their middle as signed ones around zero."""
    single = codes.single
    if codes.element == U8 and single is not None and single.zero_point == MIDDLE:
        return TensorCodes(PerTensor(single.scale, 0), I8)
    return codes


def _replaced(argument: Argument, stand: dict[str, Tensor]) -> Argument:
    if isinstance(argument, tuple):
        return tuple(stand.get(item.name, item) for item in argument)
    return stand.get(argument.name, argument) if isinstance(argument, Tensor) else argument


def _real(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 1.0


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
