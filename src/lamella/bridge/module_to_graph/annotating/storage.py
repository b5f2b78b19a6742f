"""The element type in which a parameter is kept."""

from __future__ import annotations

from lamella.base.dtype import ElementType, find_in, name_in
from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.nodes import Mark, Precision
from lamella.graph.nodes import Tensor
from lamella.lang.module.annotations import read_annotation
from lamella.lang.module.instantiate.nodes import TensorSlot

DTYPE, PRECISION = "dtype", "precision"


def element_named(name: object) -> ElementType | None:
    """The element type of a word; None for everything else."""
    return find_in("module", name) if isinstance(name, str) else None


def called(element: ElementType) -> str:
    """What this language calls an element type."""
    return name_in("module", element) or element.name


def storage_of(slot: TensorSlot, frame: Frame, precision: Precision | None) -> ElementType | None:
    """What a parameter itself says: its type, then its annotations, the last first, then the recipe."""
    if slot.dtype is not None:
        return element_named(slot.dtype)
    for item in reversed(slot.annotations):
        if item.name in (DTYPE, PRECISION):
            arguments = read_annotation(item, frame.known).arguments
            found = element_named(arguments.get("type" if item.name == DTYPE else "storage"))
            if found is not None:
                return found
    return None if precision is None else precision.storage


def marks_of(slot: TensorSlot, path: str, tensor: Tensor, frame: Frame) -> list[Mark]:
    """The annotations of a parameter on the variable that it is."""
    return [
        Mark(path, tensor, item, read_annotation(item, frame.known).arguments) for item in slot.annotations
    ]
