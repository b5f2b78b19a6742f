"""What the sources and arguments of a statement mean: tensors, instances, views, scalars of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base import dim
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import I64, ElementType
from lamella.base.errors import Found
from lamella.bridge.module_to_graph.lowering import CallSite, GraphLowering, format_known
from lamella.bridge.module_to_graph.nodes import Bound, InstanceFrame, Members, Unknown, graph_name
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate.evaluate import EvaluationContext, evaluate
from lamella.lang.module.instantiate.messages import describe
from lamella.lang.module.instantiate.nodes import Instance, Value
from lamella.lang.module.nodes import (
    Call,
    Chain,
    Expr,
    Index,
    Integer,
    Member,
    Name,
    Null,
    Real,
    Rest,
    Select,
    Slice,
    Subscript,
    TensorType,
    Unary,
)
from lamella.lang.module.nodes.expressions import names_in
from lamella.lang.module.rules import constants, gradients, graphs, names
from lamella.lang.module.rules.constants import KIND, NOT_CONSTANT
from lamella.lang.module.suggest import suggest

# --- scalars that depend on run-time dimensions, as `1.0 / (B * T)`: tensors of rank 0 ----------------------


SIGNS: Mapping[str, str] = MappingProxyType(
    {"+": "math.add", "-": "math.sub", "*": "math.mul", "/": "math.div", "**": "math.pow"}
)
FUNCTIONS: Mapping[str, str] = MappingProxyType({"sqrt": "math.sqrt", "log2": "math.log2", "abs": "math.abs"})
FOLDS: Mapping[str, str] = MappingProxyType({"min": "math.min", "max": "math.max"})
"""Intrinsics of one argument and of several, and what computes them in a graph."""


def evaluate_real(
    expr: Expr,
    frame: InstanceFrame,
    lowering: GraphLowering,
    element: ElementType,
    around: EvaluationContext | None = None,
) -> Value | Tensor:
    """The value of an expression; a tensor of rank 0 where it is known only at run time."""
    try:
        value = evaluate(expr, frame.known, around or EvaluationContext())
    except Found as problem:
        # Not constant may still mean: computable from dimensions when the graph runs.
        if problem.finding.code != NOT_CONSTANT.code:
            raise
        return _Computation(frame, lowering, element).compute(expr, problem)
    if isinstance(value, Dim):
        return lowering.builder.call(
            "layout.cast", lowering.builder.constant(value, I64), types={"R": element}
        )
    return value


@dataclass(frozen=True, slots=True)
class _Computation:
    """One number under way into the graph."""

    frame: InstanceFrame
    lowering: GraphLowering
    element: ElementType

    def compute(self, expr: Expr, why: Found) -> Tensor:
        """The operations that give a number; what they cannot give stays the problem that it was."""
        match expr:
            case Chain(first, rest) if all(sign in SIGNS for sign, _ in rest):
                return self._fold(first, [(SIGNS[sign], operand) for sign, operand in rest])
            case Unary("-", operand):
                return self.lowering.builder.call("math.neg", self._operand(operand))
            case Call(Name(name), (argument,)) if name in FUNCTIONS:
                return self.lowering.builder.call(FUNCTIONS[name], self._operand(argument.value))
            case Call(Name(name), (argument, *others)) if name in FOLDS:
                return self._fold(argument.value, [(FOLDS[name], item.value) for item in others])
        raise why

    def _fold(self, first: Expr, rest: Sequence[tuple[str, Expr]]) -> Tensor:
        found = self._operand(first)
        for operator, operand in rest:
            found = self.lowering.builder.call(operator, found, self._operand(operand))
        return found

    def _operand(self, expr: Expr) -> Tensor:
        value = evaluate_real(expr, self.frame, self.lowering, self.element)
        if isinstance(value, Tensor):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Found(
                KIND.at(expr.span, what="an operand", found=describe(value), wanted="a number", repair="")
            )
        return self.lowering.builder.constant(float(value), self.element)


SAVED = "saved"


def is_data(expr: Expr, frame: InstanceFrame) -> bool:
    """Whether an expression denotes a tensor, an instance or None, rather than a constant."""
    if isinstance(expr, Name):
        return find_name(expr.id, frame) or expr.id in frame.instance.lost
    if isinstance(expr, Member | Index):
        return is_data(expr.operand, frame) or _is_saved(expr)
    if isinstance(expr, Select):
        return any(isinstance(item, Null) or is_data(item, frame) for item in (expr.value, expr.otherwise))
    return isinstance(expr, Null)


def _is_saved(expr: Expr) -> bool:
    return isinstance(expr, Member) and isinstance(expr.operand, Name) and expr.operand.id == SAVED


def find_name(name: str, frame: InstanceFrame) -> bool:
    """Whether the data world has a name."""
    instance = frame.instance
    return any(
        name in world for world in (frame.bound, frame.given, instance.tensors, instance.children)
    ) or (name in instance.constants)


def value_of(expr: Expr, frame: InstanceFrame, lowering: GraphLowering) -> Bound:
    """The value of an expression of the data world; a Problem says what is wrong with it."""
    if isinstance(expr, Name):
        return _named(expr, frame, lowering)
    if isinstance(expr, Null):
        return None
    if isinstance(expr, Member):
        return _member(expr, frame, lowering)
    if isinstance(expr, Index):
        return _indexed(expr, frame, lowering)
    if isinstance(expr, Select):
        holds = evaluate(expr.condition, frame.known)
        return value_of(expr.value if holds else expr.otherwise, frame, lowering)
    if isinstance(expr, Integer | Real | Unary | Chain):
        number = evaluate_real(expr, frame, lowering, lowering.settings.element)
        if isinstance(number, int | float | Tensor):
            return number
    raise Found(names.UNKNOWN.at(expr.span, name=expr.span.text, where=f"in '{frame.name}'", repair=""))


def _named(expr: Name, frame: InstanceFrame, lowering: GraphLowering) -> Bound:
    name, instance = expr.id, frame.instance
    if name in frame.bound:
        return frame.bound[name]
    if name in frame.given:
        return frame.given[name]
    if name in instance.tensors:
        return lowering.parameter(frame, instance.tensors[name])
    if name in instance.constants:
        return lowering.constant(frame, name, instance.constants[name])
    if name in instance.children:
        return members(name, frame)
    if name in instance.switched_off:
        condition = instance.switched_off[name]
        raise Found(names.SWITCHED_OFF.at(expr.span, name=name, condition=condition))
    if name in instance.lost:
        return Unknown()
    repair = suggest(name, frame.data_names())
    frame.bound[name] = Unknown()  # reported once, wherever else it is read
    raise Found(names.UNKNOWN.at(expr.span, name=name, where=f"in '{frame.name}'", repair=repair))


def members(name: str, frame: InstanceFrame) -> Members:
    """The instances that a parameter holds, with their paths."""
    child = frame.instance.children[name]
    if isinstance(child, Instance):
        return Members(((frame.place(name), child),))
    return Members(tuple((frame.place(f"{name}[{number}]"), item) for number, item in enumerate(child)))


def _member(expr: Member, frame: InstanceFrame, lowering: GraphLowering) -> Bound:
    if _is_saved(expr):
        return _saved(expr, frame)
    owner = value_of(expr.operand, frame, lowering)
    if isinstance(owner, Unknown):
        return owner
    if not isinstance(owner, Members) or len(owner.items) != 1:
        raise Found(names.UNKNOWN.at(expr.span, name=expr.span.text, where=f"in '{frame.name}'", repair=""))
    path, instance = owner.items[0]
    inner = InstanceFrame(instance, path, frame.origin)
    return _named(Name(expr.field, expr.span), inner, lowering)


def _saved(expr: Member, frame: InstanceFrame) -> Bound:
    if expr.field not in frame.saved:
        repair = (
            f"add '{expr.field}' to save:" if expr.field not in frame.bound else "read it without 'saved.'"
        )
        raise Found(gradients.NOT_SAVED.at(expr.span, name=expr.field, module=frame.name, repair=repair))
    return frame.saved[expr.field]


# --- indexing ---------------------------------------------------------------------------------------------------


def _indexed(expr: Index, frame: InstanceFrame, lowering: GraphLowering) -> Bound:
    owner = value_of(expr.operand, frame, lowering)
    if isinstance(owner, Unknown):
        return owner
    if isinstance(owner, Members):
        return select_members(owner, expr, frame)
    if not isinstance(owner, Tensor):
        raise Found(
            constants.KIND.at(expr.span, what="what is indexed", found="no tensor", wanted="one", repair="")
        )
    return _index_tensor(owner, expr, frame, lowering)


def select_members(owner: Members, expr: Index, frame: InstanceFrame) -> Members:
    """One element of an array, or a range of them."""
    item = expr.items[0]
    count = len(owner.items)
    if isinstance(item, Slice):
        begin, end = (_bound(part, default, frame) for part, default in ((item.begin, 0), (item.end, count)))
        if not (isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end <= count):
            raise _outside(expr, f"{begin}:{end}", 0, count, frame)
        return Members(owner.items[begin:end])
    index = None if isinstance(item, Rest) else _bound(item, 0, frame)
    if not isinstance(index, int) or not -count <= index < count:
        raise _outside(expr, index, 0, count, frame)
    return Members((owner.items[index],))


def _bound(expr: Expr | None, default: Extent, frame: InstanceFrame) -> Extent:
    if expr is None:
        return default
    if is_data(expr, frame):
        raise Found(
            constants.NOT_CONSTANT.at(expr.span, what="the index", why=f"'{expr.span.text}' is a tensor")
        )
    value = evaluate(expr, frame.known)
    if isinstance(value, bool) or not isinstance(value, int | Dim):
        raise Found(
            constants.KIND.at(expr.span, what="an index", found=str(value), wanted="an integer", repair="")
        )
    return value


def _outside(expr: Index, index: object, axis: int, extent: object, frame: InstanceFrame) -> Found:
    """An index that its dimension does not have, with what the names in it are."""
    values = format_known(names_in(expr), frame)
    name = expr.operand.span.text
    return Found(graphs.INDEX.at(expr.span, index=index, dim=axis, name=name, extent=extent, values=values))


def _index_tensor(tensor: Tensor, expr: Index, frame: InstanceFrame, lowering: GraphLowering) -> Tensor:
    """A view of a tensor: one index or range for each dimension, `...` for those that are not named."""
    items = _spread(expr, len(tensor.shape), frame)
    axes, begins, ends, dropped = [], [], [], []
    for axis, item in enumerate(items):
        extent = tensor.shape[axis]
        if isinstance(item, Slice):
            if item.begin is None and item.end is None:
                continue
            begin, end = _bound(item.begin, 0, frame), _bound(item.end, extent, frame)
            begin, end = _positive(begin, extent), _positive(end, extent)
        else:
            begin = _positive(_bound(item, 0, frame), extent) if not isinstance(item, Rest) else 0
            end = dim.add(begin, 1)
            dropped.append(axis)
        # Only what is provably outside is refused; what depends on open extents is left to the run.
        if dim.less(begin, 0) is True or dim.less(extent, end) is True or dim.less(end, begin) is True:
            raise _outside(expr, item.span.text, axis, extent, frame)
        axes.append(axis)
        begins.append(begin)
        ends.append(end)
    place = CallSite("index", expr.span, frame.at("index", expr.span))
    if axes:
        attributes = {"axes": tuple(axes), "begin": tuple(begins), "end": tuple(ends)}
        tensor = _only(lowering.call("layout.slice", (tensor,), attributes, ("view",), place))
    if dropped:
        tensor = _only(lowering.call("layout.squeeze", (tensor,), {"axes": tuple(dropped)}, ("view",), place))
    return tensor


def _only(results: tuple[object, ...]) -> Tensor:
    """The one tensor that an operator gave."""
    first = results[0]
    if not isinstance(first, Tensor):
        raise TypeError("an operator of one result gave none")
    return first


def _positive(index: Extent, extent: Extent) -> Extent:
    return dim.add(index, extent) if dim.less(index, 0) is True else index


def _spread(expr: Index, rank: int, frame: InstanceFrame) -> list[Subscript]:
    """One subscript for each dimension."""
    named = [item for item in expr.items if not isinstance(item, Rest)]
    if len(named) > rank:
        raise _outside(expr, f"of {len(named)} parts", rank, f"{rank} dimensions", frame)
    # `...` stands for all dimensions that are not named; without one it stands at the end.
    full: list[Subscript] = [Slice(None, None)] * (rank - len(named))
    at = next((number for number, item in enumerate(expr.items) if isinstance(item, Rest)), len(expr.items))
    before = [item for item in expr.items[:at] if not isinstance(item, Rest)]
    return [*before, *full, *(item for item in expr.items[at + 1 :] if not isinstance(item, Rest))]


# --- products with parameters: which of their dimensions is summed ------------------------------------------


def projection(left: Tensor, right: Tensor, given: Value, frame: InstanceFrame) -> str:
    """How a product with a parameter takes it, by the names of dimensions, else by their sizes."""
    if given in ("NN", "TT"):
        return str(given)
    if given is not None or len(right.shape) != 2 or not left.shape:
        return "NT"
    last, declared = _last_dim(left, frame), _dims_of(right, frame)
    if last is not None and last in declared and declared[0] != declared[1]:
        return "NN" if last == declared[0] else "NT"
    # Matrices are [out, in] by convention, so a square one is transposed; only what fits no other way is not.
    last = left.shape[-1]
    return "NN" if right.shape[0] == last and right.shape[1] != last else "NT"


def _last_dim(tensor: Tensor, frame: InstanceFrame) -> object:
    """The last dimension of an input as the text declares it; None of what is no input."""
    forward = frame.instance.module.forward
    for port in (forward.inputs or ()) if forward is not None else ():
        if isinstance(port.type, TensorType) and port.type.dims:
            bound = frame.bound.get(port.name or "in")
            if isinstance(bound, Tensor) and bound.name == tensor.name:
                return port.type.dims[-1]
    return None


def _dims_of(weight: Tensor, frame: InstanceFrame) -> tuple[object, ...]:
    """The dimensions of a parameter as the text declares them."""
    for param in frame.instance.module.tensors:
        name = param.path.parts[0].name
        if len(param.path.parts) == 1 and weight.name == graph_name(frame.place(name)):
            return param.type.dims if isinstance(param.type, TensorType) else ()
    return ()
