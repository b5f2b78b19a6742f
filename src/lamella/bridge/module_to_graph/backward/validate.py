"""Whether a written backward graph gives every gradient that is needed, in its shape and type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Extent
from lamella.base.dtype import ElementType, find_in
from lamella.base.source import Span
from lamella.bridge.module_to_graph.backward.nodes import Visit
from lamella.bridge.module_to_graph.backward.recorder import Recorder, is_trainable, needs_gradient
from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.nodes import Bound, Weight
from lamella.bridge.module_to_graph.shapes import evaluate_extent, shape_text, tell_known
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.instantiate.nodes import TensorSlot
from lamella.lang.module.nodes import Backward, Port, Star, TensorType, Unchanged, names_in
from lamella.lang.module.rules import gradients


@dataclass(frozen=True, slots=True)
class Primal:
    """What a gradient is the gradient of."""

    name: str
    tensor: Tensor
    dtype: str | None = None
    """The element type that its declaration says."""
    weight: Weight | None = None


def find_primals(visit: Visit, road: Recorder) -> dict[str, Primal]:
    """What `d_` names may be gradients of: inputs, parameters, and parameters of instances as `instance_name`."""
    instance, frame = visit.frame.instance, visit.frame
    found: dict[str, Primal] = {}
    for port, value in visit.inputs:
        if isinstance(value, Tensor):
            name = port.name or "in"
            found[name] = Primal(name, value, _dtype(port))
    for name, slot in instance.tensors.items():
        given = frame.given.get(name)
        weight = _find_weight(frame, slot, road)
        if isinstance(given, Tensor):
            found[name] = Primal(name, given, slot.dtype)
        elif weight is not None:
            found[name] = Primal(name, weight.tensor, slot.dtype, weight)
    for path, child in instance.children.items():
        if not isinstance(child, tuple):
            inner = Frame(child, frame.place(path))
            for name, slot in child.tensors.items():
                weight = _find_weight(inner, slot, road)
                if weight is not None:
                    found[f"{path}_{name}"] = Primal(f"{path}.{name}", weight.tensor, slot.dtype, weight)
    return found


def _find_weight(frame: Frame, slot: TensorSlot, road: Recorder) -> Weight | None:
    return road.weights.get(frame.place(slot.tied or slot.name))


def _dtype(port: Port) -> str | None:
    return port.type.dtype if isinstance(port.type, TensorType) else None


class Validation:
    """The findings about one backward graph."""

    def __init__(self, visit: Visit, backward: Backward, primals: Mapping[str, Primal]) -> None:
        self.visit, self.backward, self.primals = visit, backward, primals

    def check_complete(self, results: Mapping[str, Bound], served: set[str]) -> Iterator[Diagnostic]:
        """Gradients that are needed and not given."""
        frame, tensors = self.visit.frame, self.visit.frame.instance.tensors
        for port, value in self.visit.inputs:
            name = port.name or "in"
            if needs_gradient(port, value) and name not in results:
                yield self._missing(name, name, "@gradient(skip)")
        given = {self.primals[name].tensor.name for name in results if name in self.primals}
        for key, primal in self.primals.items():
            weight, owner = primal.weight, primal.name.partition(".")[0]
            if weight is None or not is_trainable(weight) or weight.tensor.name in given:
                continue
            if key in tensors or frame.place(owner) not in served:
                yield self._missing(key, primal.name, "@frozen")

    def _missing(self, key: str, name: str, repair: str) -> Diagnostic:
        return gradients.MISSING.at(
            _head(self.backward.span),
            module=self.visit.frame.name,
            name=f"d_{key}",
            what=f"'{name}'",
            repair=repair,
        )

    def check_results(self, results: Mapping[str, Bound], spans: Mapping[str, Span]) -> Iterator[Diagnostic]:
        """Gradients that are given in another shape or type than they need."""
        for name, value in results.items():
            primal = self.primals.get(name)
            if primal is None or not isinstance(value, Tensor):
                continue
            span = spans.get(f"d_{name}", self.backward.span)
            if not _may_be(value.shape, primal.tensor.shape):
                yield _shaped(f"d_{name}", value.shape, primal, span, "")
            elif not value.element.is_float:
                yield _typed(f"d_{name}", value.element.name, primal, span, "must be floating")

    def check_declared(self, pairs: Sequence[tuple[Port, Primal]], frame: Frame) -> Iterator[Diagnostic]:
        """Gradients that are declared in another shape or type than they need."""
        for port, primal in pairs:
            type = port.type
            if not isinstance(type, TensorType):
                continue
            if not _is_declared(type, primal.tensor, frame):
                values = tell_known(names_in(*type.dims), frame)
                yield _shaped(port.name or "", type.span.text, primal, port.span, values)
            why = _unfit(type, port, primal)
            if why:
                yield _typed(port.name or "", str(type.dtype), primal, port.span, why)


def _head(span: Span) -> Span:
    """The first word of a section."""
    return Span(span.source, span.start, min(span.end, span.start + len("backward")))


def _may_be(found: Sequence[Extent], wanted: Sequence[Extent]) -> bool:
    pairs = zip(found, wanted, strict=False)
    return len(found) == len(wanted) and all(dim.equal(one, other) is not False for one, other in pairs)


def _is_declared(type: TensorType, tensor: Tensor, frame: Frame) -> bool:
    """Whether a declared shape is that of a tensor, for every size of its open dimensions."""
    dims = [item for item in type.dims if not isinstance(item, Star | Unchanged)]
    free = len(tensor.shape) - len(dims)
    if free < 0 or (free and len(dims) == len(type.dims)):
        return False
    try:
        extents = [evaluate_extent(item, frame) for item in dims]
    except Problem:
        return True
    return all(dim.is_same(one, other) for one, other in zip(extents, tensor.shape[free:], strict=True))


def _unfit(type: TensorType, port: Port, primal: Primal) -> str:
    """Why an element type does not do for a gradient."""
    element = _element(type.dtype)
    own = _element(primal.dtype)
    if element is None:
        return ""
    if not element.is_float:
        return "must be floating"
    explicit = any(item.name == "dtype" for item in port.annotations)
    narrow = own is not None and element.bits < own.bits
    return "is narrowed without @dtype" if narrow and not explicit else ""


def _element(name: str | None) -> ElementType | None:
    return find_in("module", name) if name is not None else None


def _shaped(name: str, found: object, primal: Primal, span: Span, values: str) -> Diagnostic:
    text = found if isinstance(found, str) else shape_text(found) if isinstance(found, tuple) else ""
    wanted = shape_text(primal.tensor.shape)
    return gradients.SHAPE.at(span, name=name, found=text, primal=primal.name, wanted=wanted, values=values)


def _typed(name: str, found: str, primal: Primal, span: Span, why: str) -> Diagnostic:
    wanted = f"'{primal.name}' ({primal.dtype or primal.tensor.element.name})"
    return gradients.DTYPE.at(span, name=name, found=found, wanted=wanted, why=why)
