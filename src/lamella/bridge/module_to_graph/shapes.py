"""Declared types against the shapes that tensors have; a name that is new becomes a dimension."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import ElementType, find_in
from lamella.base.source import Span
from lamella.bridge.module_to_graph.frames import Frame, graph_name
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate.evaluate import Problem, evaluate
from lamella.lang.module.instantiate.messages import format_values
from lamella.lang.module.instantiate.nodes import Known
from lamella.lang.module.nodes import Expr, Name, Star, TensorType, Unchanged, names_in
from lamella.lang.module.rules import graphs
from lamella.lang.module.rules.constants import KIND
from lamella.ops.instance import Check

OPEN = "open"
"""Where the value of a dimension comes from that only the run tells."""
LONGEST = (1 << 31) - 1
"""The largest extent of a dimension that only the run tells."""


def shape_text(shape: Sequence[Extent]) -> str:
    """A shape as messages show it."""
    return f"[{', '.join(map(str, shape))}]"


def element_of(type: TensorType, default: ElementType) -> ElementType:
    """The element type that a declared type asks for."""
    found = find_in("module", type.dtype) if type.dtype is not None else None
    return default if found is None else found


def evaluate_extent(expr: Expr, frame: Frame) -> Extent:
    """A dimension that is not a new name."""
    value = evaluate(expr, frame.known)
    if isinstance(value, bool) or not isinstance(value, int | Dim):
        found = f"'{value}'" if isinstance(value, str) else str(value)
        raise Problem(KIND.at(expr.span, what="a dimension", found=found, wanted="an integer", repair=""))
    return value


def declare_shape(type: TensorType, frame: Frame, extents: Mapping[str, int]) -> tuple[Extent, ...]:
    """The shape of an input of the whole model: names that are not known yet are open extents, or what is given."""
    found: list[Extent] = []
    for item in type.dims:
        if isinstance(item, Star | Unchanged):
            found.append(_open(frame, "N", item.span, extents))
            continue
        for name in _unknown(item, frame):
            _open(frame, name, item.span, extents)
        found.append(evaluate_extent(item, frame))
    return tuple(found)


def declare_dimension(name: str, frame: Frame, span: Span, extents: Mapping[str, int]) -> None:
    """A dimension that an input of the whole model names on its own; the shapes of the others bind it."""
    if name not in frame.known:
        _open(frame, name, span, extents)


def _unknown(item: Expr, frame: Frame) -> list[str]:
    """The names in a dimension that nothing has bound yet."""
    return [name for name in dict.fromkeys(names_in(item)) if name not in frame.known]


def _open(frame: Frame, name: str, span: Span, extents: Mapping[str, int]) -> Extent:
    if name in extents:
        frame.dims[name] = Known(extents[name], "--shape", span)
        return extents[name]
    found = dim.symbol(name, LONGEST)
    frame.dims.setdefault(name, Known(found if isinstance(found, Dim) else LONGEST, OPEN, span))
    return found


def match_type(
    what: str, tensor: Tensor, type: TensorType, frame: Frame, checks: list[Check]
) -> Iterator[Diagnostic]:
    """Whether a tensor has its declared type; dimensions that are new get the extents of the tensor.

    What only the run can tell goes to the checks.
    """
    dims = [item for item in type.dims if not isinstance(item, Star | Unchanged)]
    rank = len(tensor.shape)
    if len(dims) > rank or (len(dims) == len(type.dims) and len(dims) != rank):
        yield _wrong(what, tensor, type, frame)
        return
    for item, extent in zip(dims, tensor.shape[rank - len(dims) :], strict=True):
        if isinstance(item, Name) and item.id not in frame.known:
            frame.dims[item.id] = Known(extent, f"'{what}'", item.span)
        elif _unknown(item, frame):
            # A product of new names has no one solution: it says nothing of the tensor.
            continue
        else:
            truth = dim.equal(evaluate_extent(item, frame), extent)
            if truth is False:
                yield _wrong(what, tensor, type, frame)
                return
            if truth is not True:
                text = " ".join(type.span.text.split()) or "another shape"
                message = (
                    f"'{what}' of '{frame.name}' is declared {text}, its shape is {shape_text(tensor.shape)}"
                )
                checks.append(Check(truth, message, type.span, graphs.DECLARED))


def tell_known(names: Iterable[str], frame: Frame) -> str:
    """The values of names and where they came from; dimensions that only the run tells say nothing."""
    return format_values(
        (name for name in names if getattr(frame.known.get(name), "source", "") != OPEN), frame.known
    )


def describe_operands(tensors: Sequence[Tensor], frame: Frame | None) -> tuple[str, str]:
    """Tensors with their shapes, parameters with the names of their dimensions too; and what those names are."""
    declared = {} if frame is None else _declared(frame)
    shown: list[str] = []
    names: list[str] = []
    for tensor in tensors:
        text = f"{tensor.name.rpartition('.')[2]} {shape_text(tensor.shape)}"
        type = declared.get(tensor.name)
        if type is not None and type.span.end > type.span.start:
            names += names_in(*type.dims)
            text = f"{tensor.name.rpartition('.')[2]} {type.span.text} = {shape_text(tensor.shape)}"
        shown.append(text)
    return ", ".join(shown), "" if frame is None else tell_known(names, frame)


def _declared(frame: Frame) -> dict[str, TensorType]:
    """The types of the parameters of a declaration, by the variables that they are."""
    return {
        graph_name(frame.place(item.path.parts[0].name)): item.type
        for item in frame.instance.module.tensors
        if isinstance(item.type, TensorType)
    }


def _wrong(what: str, tensor: Tensor, type: TensorType, frame: Frame) -> Diagnostic:
    """A tensor whose shape is not the declared one, with what its dimensions are and where that comes from."""
    wanted = type.span.text if type.span.end > type.span.start else "another"
    values = tell_known(names_in(*type.dims), frame)
    return graphs.SHAPE.at(
        type.span, what=f"'{what}'", found=shape_text(tensor.shape), wanted=wanted, values=values, repair=""
    )
