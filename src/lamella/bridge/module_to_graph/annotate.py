"""What annotations do to a tensor of the graph, and what they leave for later."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.dtype import find_in
from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.nodes import Bound, Mark
from lamella.bridge.module_to_graph.road import Road
from lamella.graph.nodes import Tensor
from lamella.lang.module.nodes import Annotation, Name


def annotate(value: Bound, annotations: Sequence[Annotation], name: str, frame: Frame, road: Road) -> Bound:
    """The value with its annotations: `@dtype` converts it, all others are kept beside the graph."""
    if not isinstance(value, Tensor):
        return value
    for annotation in annotations:
        if annotation.name == "dtype":
            value = _convert(value, annotation, name, frame, road)
        road.marks.append(Mark(frame.place(name), value, annotation))
    return value


def _convert(value: Tensor, annotation: Annotation, name: str, frame: Frame, road: Road) -> Tensor:
    argument = annotation.arguments[0].value if annotation.arguments else None
    element = find_in("module", argument.id) if isinstance(argument, Name) else None
    return value if element is None else road.cast(value, element, frame.at(name, annotation.span))
