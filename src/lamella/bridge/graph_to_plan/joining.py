"""Operations as opcodes take them: norms and softmax put together again from the formulas that they are composed of.

    shift_rows(x, mean(x), 1 / sqrt(variance(x) + e), w, b) = layernorm(x, w, b)
    scale_both(x, 1 / sqrt(mean_square(x) + e), w)          = rmsnorm(x, w)
    mix(exp(s - max s), v) / sum(exp(s - max s))            = mix(softmax(s), v)
    x < 0 ? x · a : x                                       = prelu(x, a)

A graph that other passes have taken apart has them in pieces; an opcode takes them whole. The other way round, rows of
a table by numbers that may count from its end are taken in two steps, for the opcode knows none below 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lamella.base.errors import Found
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Tensor
from lamella.graph.passes.dce import dce
from lamella.graph.rewrite import producers
from lamella.ops.library import Library

MAIN = "main."


def join_parts(model: Model) -> Model:
    """The model with norms and softmax as single operations; what nothing reads any more is gone."""
    joining = _Joining(model)
    nodes = tuple(item for node in model.graph.nodes for item in joining.joined(node))
    return dce(replace(model, graph=replace(model.graph, nodes=nodes)))


def original_of(library: Library, name: str) -> str:
    """The private operator of the library that one is a copy of, else its own name.

    A graph that is written as text calls private formulas of the library by copies of them.
    """
    copy, word = library.find(name), name.removeprefix(MAIN)
    if copy is None or word == name:
        return name
    for module in (item for item in library.standard if word.startswith(f"{item}_")):
        found = library.find(f"{module}.{word.removeprefix(module)}")
        if found is not None and replace(found.operator, name=copy.operator.name) == copy.operator:
            return found.name
    return name


class _Joining:
    def __init__(self, model: Model) -> None:
        self.library = model.library
        self.makers: Mapping[str, Node] = producers(model.graph)
        self.numbers = {item.tensor.name: item.value for item in model.graph.constants}
        self._known: dict[str, str] = {}

    def joined(self, node: Node) -> Iterator[Node]:
        """A node, or what stands for all that it is the last part of."""
        if isinstance(node, Operation):
            joins = {
                "llm._shift_rows": self._layer_norm,
                "llm._scale_both": self._rms_norm,
                "llm._divide_rows": self._softmax,
                "onnx.gather": self._gather,
                "math.select": self._prelu,
            }
            join = joins.get(self._name(node))
            try:
                found = None if join is None else join(node)
            except Found:  # the definition refuses what should be equal; the node stays as it was
                found = None
            if found is not None:
                yield from (replace(item, origin=item.origin or node.origin) for item in found)
                return
        yield node

    def _name(self, node: Operation) -> str:
        if node.operator not in self._known:
            self._known[node.operator] = original_of(self.library, node.operator)
        return self._known[node.operator]

    def _made(self, item: Argument, name: str) -> Operation | None:
        """The operation that makes a tensor, where it calls an operator."""
        found = self.makers.get(item.name) if isinstance(item, Tensor) else None
        return found if isinstance(found, Operation) and self._name(found) == name else None

    def _layer_norm(self, node: Operation) -> list[Operation] | None:
        x, mean, deviation, scale, shift = node.inputs
        root, middle = self._made(deviation, "llm._inverse_root"), self._made(mean, "llm._row_mean")
        if root is None or middle is None or scale is None:
            return None
        spread = self._made(root.inputs[0], "llm._row_variance")
        if spread is None or middle.inputs != (x,) or spread.inputs != (x, mean):
            return None
        return [self._call("llm.layernorm", (x, scale, shift), node, dict(root.attributes), 3)]

    def _rms_norm(self, node: Operation) -> list[Operation] | None:
        x, deviation, scale = node.inputs
        root = self._made(deviation, "llm._inverse_root")
        squares = None if root is None else self._made(root.inputs[0], "llm._mean_square")
        if root is None or squares is None or squares.inputs != (x,):
            return None
        return [self._call("llm.rmsnorm", (x, scale), node, dict(root.attributes), 2)]

    def _softmax(self, node: Operation) -> list[Operation] | None:
        mixed, totals = node.inputs
        mix, flat = self._made(mixed, "llm._mix"), self._made(totals, "layout.flatten")
        total = self._made(flat.inputs[0] if flat is not None else totals, "math.sum_reduce")
        powers = None if mix is None else self._made(mix.inputs[0], "llm._exp_rows")
        if mix is None or total is None or powers is None or total.inputs != (mix.inputs[0],):
            return None
        scores, level = powers.inputs
        highest = self._made(level, "math.max_reduce")
        if highest is None or highest.inputs != (scores,):
            return None
        weights = self._call("llm.softmax", (scores,), powers, {"dim": -1}, 1, "softmax")
        return [weights, replace(mix, inputs=(weights.outputs[0], mix.inputs[1]), outputs=node.outputs)]

    def _prelu(self, node: Operation) -> list[Operation] | None:
        below, bent = self._made(node.inputs[0], "math.lt"), self._made(node.inputs[1], "math.mul")
        x = node.inputs[2]
        if below is None or bent is None or below.inputs[0] != x or bent.inputs[0] != x:
            return None
        zero = below.inputs[1]
        if not isinstance(zero, Tensor) or self.numbers.get(zero.name) != 0:
            return None
        return [self._call("onnx.prelu", (x, bent.inputs[1]), node, {}, 1)]

    def _gather(self, node: Operation) -> list[Operation] | None:
        data, index = node.inputs
        axis = dict(node.attributes)["axis"]
        if not isinstance(data, Tensor) or not isinstance(axis, int):
            return None
        places = self._call("onnx._from_end", (index,), node, {"size": data.shape[axis]}, 1, "place")
        return [places, self._call("layout.gather", (data, places.outputs[0]), node, {"axis": axis}, 1)]

    def _call(
        self,
        operator: str,
        inputs: tuple[Argument, ...],
        node: Operation,
        attributes: dict[str, object],
        results: int,
        word: str = "",
    ) -> Operation:
        """An operator in the place of the last of its parts, whose result it gives first."""
        (output,) = node.outputs
        if not isinstance(output, Tensor):
            raise Found
        names = [f"{output.name}.{word or 'joined'}{number or ''}" for number in range(results)]
        given = {name: value for name, value in attributes.items() if isinstance(value, int | float)}
        made = call(self.library, operator, inputs, given, names)
        return made if word else replace(made, outputs=(output, *made.outputs[1:]))
