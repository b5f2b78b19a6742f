"""What the codes of tensors stand for, told by the operations on them: the entries of `@quantize`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lamella.base.quant import PerTensor
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Constant, Graph, Operation, Quantization, Tensor, tensors, walk
from lamella.graph.passes.moves import KnownMoves
from lamella.graph.rewrite import Substitution, results_of
from lamella.ops.library import Library

OPERATOR = "quant.linear_codes"
"""What an entry of `@quantize` calls, to say what the codes of a tensor stand for."""
MODULE = "quant."
OPERANDS = {"x": 0, "a": 0, "b": 1}
"""Which input the attributes with a prefix speak of."""


def mark_codes(model: Model) -> Model:
    """The model whose tensors of codes with one scale say what they stand for; what says it already is left alone."""
    if not any(item.operator.startswith(MODULE) for item in model.graph.operations()):
        return model
    found = {
        name: meaning
        for name, meaning in _meanings(model.graph, model.library).items()
        if meaning is not None
    }

    def mark(tensor: Tensor) -> Tensor:
        meaning = found.get(tensor.name)
        if meaning is None or tensor.quantization is not None or not tensor.element.is_integer:
            return tensor
        return replace(tensor, quantization=entry_of(meaning))

    return replace(model, graph=Substitution(mark).graph(model.graph))


def entry_of(quant: PerTensor) -> Quantization:
    """The entry of `@quantize` for a tensor of codes with one scale."""
    attributes = (
        ("scale", (quant.scale,)),
        ("zero_point", (quant.zero_point,)),
        ("axis", 0),
        ("group_size", 1),
    )
    return Quantization(OPERATOR, attributes)


def _meanings(graph: Graph, library: Library) -> dict[str, PerTensor | None]:
    """What codes stand for, by the names of tensors; None where operations do not agree, or it is not known."""
    moves, constants = KnownMoves(library), {item.tensor.name: item for item in graph.constants}
    found: dict[str, PerTensor | None] = dict.fromkeys(constants)
    for node in walk(graph.nodes):
        if not isinstance(node, Operation):
            continue
        if node.operator.startswith(MODULE):
            for tensor, meaning in _operands(node, constants):
                found.setdefault(tensor.name, meaning)
        made = _made(node, moves, found)
        found |= dict.fromkeys((item.name for item in results_of(node)), made)
    return found


def _made(node: Operation, moves: KnownMoves, known: dict[str, PerTensor | None]) -> PerTensor | None:
    """What the codes stand for that an operation makes."""
    given = dict(node.attributes)
    if node.operator == "quant.quantize":
        return _quant(given.get("scale"), given.get("zero_point"))
    if node.operator.startswith(MODULE):
        return _quant(given.get("y_scale"), given.get("y_zero"))
    moved = None
    if all(item.element.is_integer for item in results_of(node)):
        moved = frozenset({0}) if node.operator == "layout.pad" else moves.find(node)
    if not moved:
        return None
    found = {known.get(item.name) for place in moved for item in tensors(node.inputs[place])}
    return found.pop() if len(found) == 1 else None


def _operands(node: Operation, constants: dict[str, Constant]) -> Iterator[tuple[Tensor, PerTensor]]:
    """The tensors of codes that an operation on codes reads, with what its attributes say of them."""
    given = dict(node.attributes)
    if node.operator == "quant.dequantize":
        yield from _named(node.inputs[0], given.get("scale"), given.get("zero_point"))
    for prefix, place in OPERANDS.items():
        if f"{prefix}_scale" in given:
            yield from _named(node.inputs[place], given[f"{prefix}_scale"], given.get(f"{prefix}_zero"))
    if node.operator in ("quant.conv", "quant.matmul"):
        scale = node.inputs[3]
        constant = constants.get(scale.name) if isinstance(scale, Tensor) else None
        if constant is not None and not isinstance(constant.value, tuple):
            yield from _named(node.inputs[1], constant.value, given.get("b_zero", 0))


def _named(argument: Argument, scale: object, zero: object) -> Iterator[tuple[Tensor, PerTensor]]:
    quant = _quant(scale, zero)
    if quant is not None and isinstance(argument, Tensor):
        yield argument, quant


def _quant(scale: object, zero: object) -> PerTensor | None:
    if isinstance(scale, int | float) and isinstance(zero, int):
        return PerTensor(float(scale), zero)
    return None
