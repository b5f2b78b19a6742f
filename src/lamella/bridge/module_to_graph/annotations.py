"""Annotations on tensors: what they do to them, and the types that inputs and outputs declare."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.dtype import ElementType
from lamella.base.errors import Found
from lamella.bridge.module_to_graph.lowering import CallSite, GraphLowering, dtype_word, element_named
from lamella.bridge.module_to_graph.nodes import Bound, BuiltStep, InstanceFrame, Mark
from lamella.graph.nodes import Tensor
from lamella.lang.module.annotations import GRADIENT, read_annotation
from lamella.lang.module.nodes import Annotation, Port, TensorType
from lamella.lang.module.rules import graphs

# --- what annotations do to a tensor of the graph, and what they leave for later ----------------------------


SMALL = 8
"""Bits of the types that numbers do not become by themselves."""


def annotate(
    value: Bound,
    annotations: Sequence[Annotation],
    name: str,
    frame: InstanceFrame,
    lowering: GraphLowering,
    steps: tuple[BuiltStep, ...] = (),
) -> Bound:
    """The value with its annotations, each kept beside the graph; the last `@dtype` says its type.

    `@noalias` gives it a storage of its own, `@gradient` controls what comes back.
    """
    if not isinstance(value, Tensor):
        return value
    read = [(item, read_annotation(item, frame.known)) for item in annotations]
    for item, reading in read:
        for finding in reading.findings:
            lowering.report(finding, frame.origin)
        if item.name == "dtype":
            value = _convert(value, element_named(reading.arguments.get("type")), item, name, frame, lowering)
        elif item.name == "noalias" and _is_shared(value, frame, lowering):
            value = _copy(value, item, name, frame, lowering)
        elif item.name == GRADIENT:
            value = lowering.control_gradient(value, item, frame)
    path = frame.place(name)
    lowering.marks += [Mark(path, value, item, reading.arguments, steps) for item, reading in read]
    return value


def _convert(
    value: Tensor,
    element: ElementType | None,
    item: Annotation,
    name: str,
    frame: InstanceFrame,
    lowering: GraphLowering,
) -> Tensor:
    return value if element is None else lowering.cast(value, element, frame.at(name, item.span))


def _is_shared(value: Tensor, frame: InstanceFrame, lowering: GraphLowering) -> bool:
    """Whether a tensor has another name already."""
    return lowering.is_parameter(value) or any(item is value for item in frame.bound.values())


def _copy(
    value: Tensor, item: Annotation, name: str, frame: InstanceFrame, lowering: GraphLowering
) -> Tensor:
    place = CallSite("copy", item.span, frame.at(name, item.span), frame)
    found = lowering.call("math.iden", (value,), {}, (frame.place(name),), place)[0]
    return found if isinstance(found, Tensor) else value


# --- inputs and outputs -----------------------------------------------------------------------------------------


def annotate_port(
    value: Bound, port: Port, name: str, frame: InstanceFrame, lowering: GraphLowering
) -> Bound:
    """The value of an input or output in the type that is declared for it, with the annotations of the port."""
    if not isinstance(value, Tensor):
        return value
    others = [item for item in port.annotations if item.name != GRADIENT]
    # An explicit @dtype is wanted as it is, and warns of nothing.
    explicit = any(item.name == "dtype" for item in others)
    wanted = element_named(port.type.dtype) if isinstance(port.type, TensorType) else None
    if wanted is not None and not explicit:
        value = _become(value, wanted, port, name, frame, lowering)
    return annotate(value, others, name, frame, lowering)


def _become(
    value: Tensor, wanted: ElementType, port: Port, name: str, frame: InstanceFrame, lowering: GraphLowering
) -> Tensor:
    """A value in a declared type: wider types by themselves, narrower ones with a warning, small ones never."""
    found = value.element
    if found is wanted or (found.is_integer and wanted.is_integer):
        return value
    if not (found.is_float and wanted.is_float) or (wanted.bits <= SMALL and found.bits > wanted.bits):
        repair = f"say so with @dtype({dtype_word(wanted)})"
        raise Found(
            graphs.CAST.at(port.span, found=dtype_word(found), wanted=dtype_word(wanted), repair=repair)
        )
    if wanted.bits < found.bits or (wanted.bits == found.bits and wanted is not found):
        finding = graphs.NARROWING.at(
            port.span, name=name, found=dtype_word(found), wanted=dtype_word(wanted)
        )
        lowering.report(finding, frame.origin)
    return lowering.cast(value, wanted, frame.at(name, port.span))
