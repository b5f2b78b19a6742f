"""How operators work on slices: what of their operands each rank needs, and what it then has of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from lamella.graph.nodes import Operation, Shape, Tensor, Value
from lamella.train.ranks.layout import Layout, Shard

MATMUL = "llm.matmul"
PRODUCT_AXES: Mapping[str, tuple[int, int]] = MappingProxyType({"NN": (0, 1), "NT": (1, 0)})
"""The axes of a second factor that are summed over, and that stay."""
HEADS = 1
"""The axis of heads."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """An operation on slices."""

    inputs: tuple[Layout, ...]
    """What it needs of each operand, in their order; packs are flat."""
    outputs: tuple[Layout, ...]
    """What it gives of each result."""
    sums: frozenset[int] = frozenset()
    """The results of which each rank has a summand only."""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    """Attributes that are others than those of the whole operation."""


@dataclass(frozen=True, slots=True)
class Case:
    """An operation with the layouts of its operands."""

    node: Operation
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    layouts: tuple[Layout, ...]
    ranks: int

    def attribute(self, name: str) -> Value:
        """An attribute of the operation."""
        return dict(self.node.attributes).get(name)

    def checked(self, ruling: Ruling) -> Ruling | None:
        """The ruling, if all slices in it are equal."""
        layouts = (*ruling.inputs, *ruling.outputs)
        return ruling if all(item is None or item.fits(self.ranks) for item in layouts) else None


def _whole(tensor: Tensor, axis: int) -> Shard | None:
    """A tensor cut along an axis as one part."""
    axis %= max(len(tensor.shape), 1)
    extent = tensor.shape[axis] if tensor.shape else None
    return Shard(axis, (extent,)) if isinstance(extent, int) else None


def is_number(tensor: Tensor) -> bool:
    """Whether a tensor has one element."""
    return all(extent == 1 for extent in tensor.shape)


# --- operators of one element at a time ---------------------------------------------------------------------------


def _elementwise(case: Case) -> Ruling | None:
    """Beside tensors of one shape there may be numbers, whose gradients are sums over all elements."""
    shape = case.outputs[0].shape
    if any(item.shape != shape and not is_number(item) for item in (*case.outputs, *case.inputs)):
        return None
    layout = next((item for item in case.layouts if item is not None), None)
    inputs = tuple(layout if item.shape == shape else None for item in case.inputs)
    outputs = tuple(layout if item.shape == shape else None for item in case.outputs)
    sums = frozenset(number for number, item in enumerate(case.outputs) if item.shape != shape)
    return Ruling(inputs, outputs, sums)


def _along_last(case: Case) -> Ruling | None:
    """Operators that add a vector along the last axis, or sum over all others."""
    given = next(
        ((item, tensor) for item, tensor in zip(case.layouts, case.inputs, strict=True) if item is not None)
    )
    layout, tensor = given
    if layout.axis != len(tensor.shape) - 1:
        return _by_rows(case)
    inputs = tuple(Shard(len(item.shape) - 1, layout.parts) for item in case.inputs)
    return Ruling(inputs, tuple(Shard(len(item.shape) - 1, layout.parts) for item in case.outputs))


def _by_rows(case: Case) -> Ruling | None:
    """Operators that treat rows alike, with vectors that all rows share: sums over rows are what others add to."""
    given = zip(case.layouts, case.inputs, strict=True)
    layout, main = next((item, tensor) for item, tensor in given if item is not None)
    rows, row = main.shape[:-1], main.shape[-1:]
    if layout.axis >= len(rows) or rows == row:
        return None

    def own(item: Tensor) -> Layout:
        return layout if item.shape in (main.shape, rows) else None

    if any(item.shape not in (main.shape, rows, row) for item in (*case.inputs, *case.outputs)):
        return None
    sums = frozenset(number for number, item in enumerate(case.outputs) if item.shape == row)
    return Ruling(tuple(map(own, case.inputs)), tuple(map(own, case.outputs)), sums)


# --- products -----------------------------------------------------------------------------------------------------


def _product_axes(case: Case) -> tuple[int, int] | None:
    """The axes of the second factor, a matrix, that are summed over, and that stay; None for other products."""
    return PRODUCT_AXES.get(str(case.attribute("transpose")))


def _matmul(case: Case) -> Ruling | None:
    if len(case.inputs) != 2:
        return None
    left, right = case.inputs
    of_left, of_right = case.layouts
    last = len(left.shape) - 1
    if case.attribute("transpose") == "TN":
        return _outer_product(case)
    axes = _product_axes(case)
    if axes is None or len(right.shape) != 2:
        return None
    summed, kept = axes
    if of_right is not None and of_right.axis == kept:
        return Ruling((None, of_right), (Shard(len(case.outputs[0].shape) - 1, of_right.parts),))
    if of_left is not None and of_left.axis != last and of_right is None:
        return Ruling((of_left, None), (of_left,))
    given = of_right or of_left
    if given is None:
        return None
    return Ruling((Shard(last, given.parts), Shard(summed, given.parts)), (None,), frozenset((0,)))


def _outer_product(case: Case) -> Ruling | None:
    """A product over all axes but the last ones of both."""
    lasts = tuple(len(item.shape) - 1 for item in case.inputs)
    for number in (0, 1):
        layout = case.layouts[number]
        if layout is not None and layout.axis == lasts[number]:
            inputs: list[Layout] = [None, None]
            inputs[number] = layout
            return Ruling(tuple(inputs), (Shard(number, layout.parts),))
    rows = next(item for item in case.layouts if item is not None)
    same = len({item.shape[:-1] for item in case.inputs}) == 1
    return Ruling((rows, rows), (None,), frozenset((0,))) if same else None


def _matmul_backward(case: Case) -> Ruling | None:
    axes = _product_axes(case)
    if axes is None or len(case.inputs) != 3 or len(case.outputs) != 2 or len(case.inputs[2].shape) != 2:
        return None
    summed, kept = axes
    of_gradient, of_left, of_right = case.layouts
    gradient, left, _ = (len(item.shape) - 1 for item in case.inputs)
    if of_right is not None:
        layout, is_kept = of_right, of_right.axis == kept
    elif of_gradient is not None and of_gradient.axis == gradient:
        layout, is_kept = of_gradient, True
    elif of_left is not None and of_left.axis == left:
        layout, is_kept = of_left, False
    else:
        rows = of_gradient or of_left
        return Ruling((rows, rows, None), (rows, None), frozenset((1,)))
    if is_kept:
        right = Shard(kept, layout.parts)
        return Ruling((Shard(gradient, layout.parts), None, right), (None, right), frozenset((0,)))
    right, own = Shard(summed, layout.parts), Shard(left, layout.parts)
    return Ruling((None, own, right), (own, right))


# --- moves --------------------------------------------------------------------------------------------------------


def _ints(value: Value) -> tuple[int, ...]:
    return tuple(item for item in value if isinstance(item, int)) if isinstance(value, tuple) else ()


def _split(case: Case) -> Ruling | None:
    (layout,), dim = case.layouts, case.attribute("dim")
    if layout is None or not isinstance(dim, int):
        return None
    sizes = _ints(case.attribute("sizes"))
    if dim % len(case.inputs[0].shape) != layout.axis:
        return Ruling((layout,), (layout,) * len(case.outputs))
    if layout.parts != sizes or not layout.fits(case.ranks):
        return None
    outputs = tuple(Shard(layout.axis, (size,)) for size in sizes)
    return Ruling((layout,), outputs, attributes={"sizes": tuple(size // case.ranks for size in sizes)})


def _concat(case: Case) -> Ruling | None:
    dim = case.attribute("dim")
    layout = next((item for item in case.layouts if item is not None), None)
    if layout is None or not isinstance(dim, int):
        return None
    if dim % len(case.inputs[0].shape) != layout.axis:
        return Ruling((layout,) * len(case.inputs), (layout,))
    extents = _ints(tuple(item.shape[layout.axis] for item in case.inputs))
    if len(extents) != len(case.inputs):
        return None
    inputs = tuple(Shard(layout.axis, (extent,)) for extent in extents)
    return Ruling(inputs, (Shard(layout.axis, extents),))


def _reshaped(layout: Layout, before: Shape, after: Shape) -> Shard | None:
    """The layout of a tensor of another shape: what is contiguous behind equal axes stays so."""
    if layout is None or len(layout.parts) != 1 or len(after) <= layout.axis:
        return None
    if before[: layout.axis] != after[: layout.axis]:
        return None
    extent = after[layout.axis]
    return Shard(layout.axis, (extent,)) if isinstance(extent, int) else None


def _reshape(case: Case) -> Ruling | None:
    (layout,), shape = case.layouts, case.attribute("shape")
    found = _reshaped(layout, case.inputs[0].shape, case.outputs[0].shape)
    if found is None or not isinstance(shape, tuple) or shape != case.outputs[0].shape:
        return None
    return Ruling((layout,), (found,), attributes={"shape": found.local(case.outputs[0].shape, case.ranks)})


def _view_backward(case: Case) -> Ruling | None:
    found = _reshaped(case.layouts[0], case.inputs[0].shape, case.outputs[0].shape)
    return None if found is None else Ruling((case.layouts[0], found), (found,))


def _transpose(case: Case) -> Ruling | None:
    (layout,) = case.layouts
    rank = len(case.inputs[0].shape)
    first, second = case.attribute("dim0"), case.attribute("dim1")
    if layout is None or not isinstance(first, int) or not isinstance(second, int):
        return None
    other = {first % rank: second % rank, second % rank: first % rank}.get(layout.axis, layout.axis)
    return Ruling((layout,), (Shard(other, layout.parts),))


def _split_heads(case: Case) -> Ruling | None:
    """A fused projection as heads: parts of queries, keys and values, of each some heads."""
    (layout,) = case.layouts
    parts = head_parts(case.outputs)
    if layout is None or layout.parts != parts:
        return None
    counts = {
        name: value // case.ranks
        for name in ("num_heads", "num_kv_heads")
        if isinstance(value := case.attribute(name), int)
    }
    return Ruling((layout,), tuple(_whole(item, HEADS) for item in case.outputs), attributes=counts)


def _join_heads(case: Case) -> Ruling | None:
    parts = head_parts(case.inputs)
    if parts is None or any(item is not None and item.axis != HEADS for item in case.layouts):
        return None
    return Ruling(tuple(_whole(item, HEADS) for item in case.inputs), (Shard(2, parts),))


def head_parts(heads: Sequence[Tensor]) -> tuple[int, ...] | None:
    """How many columns queries, keys and values have, each of so many heads; None where that is not known."""
    found = [(item.shape[HEADS], item.shape[-1]) for item in heads if len(item.shape) > HEADS + 1]
    known = [count * size for count, size in found if isinstance(count, int) and isinstance(size, int)]
    return tuple(known) if len(known) == len(heads) else None


# --- heads --------------------------------------------------------------------------------------------------------


def _headwise(case: Case, is_divided: Callable[[Tensor], bool]) -> Ruling | None:
    """Operators that treat heads apart: each rank has some of them, with the keys that they share."""
    if case.attribute("alibi_slopes") is not None:
        return None
    first = next(item for item in case.layouts if item is not None)
    if first.axis != HEADS:
        return None

    def layout(item: Tensor) -> Layout:
        return _whole(item, HEADS) if is_divided(item) else None

    return Ruling(tuple(map(layout, case.inputs)), tuple(map(layout, case.outputs)))


def _rope(case: Case) -> Ruling | None:
    return _headwise(case, lambda item: len(item.shape) == 4)


def _attention(case: Case) -> Ruling | None:
    return _headwise(case, lambda item: item.element.is_float and len(item.shape) > 2)


# --- the table ----------------------------------------------------------------------------------------------------

ELEMENTWISE = frozenset(
    f"{module}.{name}{ending}"
    for module, names in {
        "math": "iden add sub mul div neg exp log sqrt tanh sigmoid max min abs",
        "llm": "swiglu silu silu_mul geglu relu relu2 gelu sigmoid add sub mul div add3 scale copy quantize dequantize",
        "nn": "relu gelu silu sigmoid tanh",
        "layout": "cast",
        "optim": "cast",
    }.items()
    for name in names.split()
    for ending in ("", "_backward")
)
"""Operators that make each element of their results of the same elements of their operands."""
NORMS = tuple(
    f"llm.{name}{ending}"
    for name in ("rmsnorm", "fused_residual_rmsnorm", "layernorm")
    for ending in ("", "_backward")
)
"""Operators that make each row of their results of the same row of their operands, and of vectors."""
RULES: Mapping[str, Callable[[Case], Ruling | None]] = MappingProxyType(
    {
        **dict.fromkeys(ELEMENTWISE, _elementwise),
        **dict.fromkeys(("llm.bias_add", "llm.bias_backward", "llm.bias_add_backward"), _along_last),
        **dict.fromkeys(NORMS, _by_rows),
        "llm.split_and_reshape": _split_heads,
        "llm.split_and_reshape_backward": _join_heads,
        MATMUL: _matmul,
        "llm.matmul_backward": _matmul_backward,
        "llm.split": _split,
        "llm.concat": _concat,
        "aten.reshape": _reshape,
        "llm.view_backward": _view_backward,
        "aten.transpose": _transpose,
        "llm.rope": _rope,
        "llm.rope_backward": _rope,
        "llm.flash_attention": _attention,
        "llm.flash_attention_backward": _attention,
    }
)


def rule(
    node: Operation,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    layouts: Sequence[Layout],
    ranks: int,
) -> Ruling | None:
    """How an operation works on the slices that there are; None where it needs the whole of all operands."""
    found = RULES.get(node.operator)
    if found is None or all(item is None for item in layouts):
        return None
    case = Case(node, tuple(inputs), tuple(outputs), tuple(layouts), ranks)
    ruling = found(case)
    return None if ruling is None else case.checked(ruling)
