"""What the parameters of a file are once they are read."""

from __future__ import annotations

from lamella.base.dtype import F32
from lamella.bridge.nac_to_graph.loads import element_read
from lamella.bridge.nac_to_graph.nodes import InputType
from lamella.bridge.nac_to_graph.notes import Notes
from lamella.bridge.nac_to_graph.weights import Weights, original_shape
from lamella.lang.nac.nodes import File


def parameter_types(file: File, notes: Notes, weights: Weights) -> dict[str, InputType]:
    """By their names the element types and shapes of the parameters that have weights, in the file or beside it."""
    own = {item.parameter: item for item in reversed(file.tensors)}
    found: dict[str, InputType] = {}
    for item in file.parameters:
        tensor = weights.tensors.get(item.name) or own.get(item.id)
        if tensor is None or item.name in found:
            continue
        read = element_read(tensor, file.header.method)
        element = notes.elements.get(item.name, read) if read == F32 else read
        found[item.name] = InputType(element, original_shape(tensor))
    return found
