"""The shapes of one task: operands that go together, and the output that follows from them.

One function for each group of opcodes gives the shapes of the outputs, or the one finding why there is none. Ranks,
layouts and attribute values were checked before. A result without axes is declared with the shape [1].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import OutOfRange, add, mul, sub
from lamella.base.shape import element_count
from lamella.lang.nem.check.operands import TaskCall, count_axis, show_shape
from lamella.lang.nem.rules import OUTPUT_SHAPE, SHAPE_MISMATCH

Shape: TypeAlias = tuple[int, ...]
Derived: TypeAlias = tuple[Shape, ...] | Diagnostic


def check_shapes(call: TaskCall) -> Iterator[Diagnostic]:
    """The outputs have the shapes that inputs and attributes give."""
    derived = derive_shapes(call)
    if isinstance(derived, Diagnostic):
        yield derived
        return
    for (name, kind), shape in zip(call.outputs.items(), derived or (), strict=False):
        if kind.shape != shape:
            yield OUTPUT_SHAPE.at(
                call.places[name],
                opcode=call.opcode.name,
                wanted=show_shape(shape),
                found=show_shape(kind.shape),
            )


def derive_shapes(call: TaskCall) -> Derived | None:
    """The shapes of the outputs, or why there are none; None where they are left open."""
    derive = _DERIVE.get(call.opcode.name)
    if derive is None or any(call.value(name) is None for name in _shaping(call)):
        return None
    try:
        return derive(call)
    except OutOfRange as error:
        return _refuse(call, str(error))


def _shaping(call: TaskCall) -> list[str]:
    """The attributes that decide shapes: those that are integers, lists of them or flags."""
    kinds = ("int", "int_list", "bool")
    return [name for name, spec in call.opcode.attributes.items() if spec.type in kinds]


def _refuse(call: TaskCall, problem: str, operand: str = "") -> Diagnostic:
    return SHAPE_MISMATCH.at(call.places.get(operand, call.span), opcode=call.opcode.name, problem=problem)


def _shape(call: TaskCall, operand: str) -> Shape:
    return call.inputs[operand].shape


def _same(call: TaskCall) -> Derived:
    """The output is shaped like the inputs, which are shaped alike."""
    (first, kind), *others = call.inputs.items()
    for name, other in others:
        if other.shape != kind.shape:
            problem = f"{name} has shape {show_shape(other.shape)} but {first} has {show_shape(kind.shape)}"
            return _refuse(call, problem, name)
    return (kind.shape,)


# --- products and windows -----------------------------------------------------------------------------------


def _gemm(call: TaskCall) -> Derived:
    """[…, M, K] times […, K, N]; the leading dimensions are equal, or B has none."""
    a, b = _shape(call, "A"), _shape(call, "B")
    if a[-1] != b[-2]:
        return _refuse(call, f"A has {a[-1]} columns but B has {b[-2]} rows", "B")
    if b[:-2] and b[:-2] != a[:-2]:
        problem = f"leading dimensions {show_shape(b[:-2])} of B differ from {show_shape(a[:-2])} of A"
        return _refuse(call, problem, "B")
    shape = (*a[:-1], b[-1])
    if "C" in call.inputs and not _broadcasts(_shape(call, "C"), shape):
        problem = (
            f"C has shape {show_shape(_shape(call, 'C'))}, which does not broadcast to {show_shape(shape)}"
        )
        return _refuse(call, problem, "C")
    return (shape,)


def _broadcasts(shape: Shape, target: Shape) -> bool:
    if len(shape) > len(target):
        return False
    return all(size in (1, whole) for size, whole in zip(shape[::-1], target[::-1], strict=False))


def _conv(call: TaskCall) -> Derived:
    """[N, spatial…, Cin] by [kernel…, Cin / groups, Cout] gives [N, spatial…, Cout]."""
    x, w = _shape(call, "X"), _shape(call, "W")
    groups = call.integer("groups") if "groups" in call.opcode.attributes else x[-1]
    wrong = _channels(call, x[-1], w[-2:], groups)
    if wrong:
        return wrong
    spatial = _windows(call, x[1:-1], w[:-2], call.integers("dilations"))
    return spatial if isinstance(spatial, Diagnostic) else ((x[0], *spatial, w[-1]),)


def _channels(call: TaskCall, cin: int, kernel: Shape, groups: int) -> Diagnostic | None:
    """Groups divide the channels, the kernel takes its share of them, a bias has one value for each output."""
    taken, cout = kernel
    if cin % groups or cout % groups:
        return _refuse(call, f"{groups} groups do not divide {cin} input and {cout} output channels", "W")
    if taken != cin // groups:
        problem = f"W takes {taken} channels but X gives {cin // groups}: {cin} in {groups} group(s)"
        return _refuse(call, problem, "W")
    if "B" in call.inputs and _shape(call, "B") != (cout,):
        problem = f"B has shape {show_shape(_shape(call, 'B'))}; {cout} output channels need [{cout}]"
        return _refuse(call, problem, "B")
    return None


def _windows(call: TaskCall, sizes: Shape, kernel: Shape, dilations: Sequence[int]) -> Shape | Diagnostic:
    """How many windows fit along each spatial axis: floor((padded - reach) / stride) + 1."""
    pads, found = call.integers("pads"), []
    for axis, (size, taps, step) in enumerate(zip(sizes, kernel, dilations, strict=True)):
        padded = add(add(size, pads[axis]), pads[axis + len(sizes)])
        reach = add(mul(taps - 1, step), 1)
        if reach > padded:
            problem = f"a window of {reach} does not fit into {padded} padded elements of axis {axis + 1}"
            return _refuse(call, problem, "X")
        found.append(sub(padded, reach) // call.integers("strides")[axis] + 1)
    return tuple(found)


def _pool(call: TaskCall) -> Derived:
    """[N, H, W, C] gives [N, windows, windows, C]."""
    x, kernel = _shape(call, "X"), call.integers("kernel_shape")
    spatial = _windows(call, x[1:-1], kernel, (1,) * len(kernel))
    return spatial if isinstance(spatial, Diagnostic) else ((x[0], *spatial, x[-1]),)


# --- views --------------------------------------------------------------------------------------------------


def _transpose(call: TaskCall) -> Derived:
    x = _shape(call, "X")
    return (tuple(x[axis] for axis in call.integers("perm")),)


def _reshape(call: TaskCall) -> Derived:
    """The same number of elements; a dimension -1 takes what the others leave."""
    target, count = call.integers("target_shape"), element_count(_shape(call, "X"))
    known = element_count([size for size in target if size != -1])
    if count != known and (-1 not in target or count % known):
        problem = f"target_shape {show_shape(target)} does not hold the {count} elements of X"
        return _refuse(call, problem)
    return (tuple(count // known if size == -1 else size for size in target),)


def _slice(call: TaskCall) -> Derived:
    """Bounds are clamped to the axis, negative ones count from its end, steps may be negative."""
    shape = list(_shape(call, "X"))
    names = ("axes", "starts", "ends", "steps")
    for axis, start, end, step in zip(*(call.integers(name) for name in names), strict=True):
        size = shape[axis]
        shape[axis] = len(range(*slice(start, end, step).indices(size)))
        if not shape[axis]:
            problem = f"nothing is left of the {size} elements of axis {axis} from {start} to {end} by {step}"
            return _refuse(call, problem)
    return (tuple(shape),)


def _concat(call: TaskCall) -> Derived:
    """Dimensions agree but for one axis, along which they add up."""
    (first, kind), *others = call.inputs.items()
    axis = count_axis(call.integer("axis"), len(kind.shape))
    total = kind.shape[axis]
    for name, other in others:
        if not _alike_but(axis, kind.shape, other.shape):
            problem = (
                f"{name} has shape {show_shape(other.shape)} but {first} has {show_shape(kind.shape)};"
                f" they may differ along axis {axis} only"
            )
            return _refuse(call, problem, name)
        total = add(total, other.shape[axis])
    return ((*kind.shape[:axis], total, *kind.shape[axis + 1 :]),)


def _alike_but(axis: int, one: Shape, other: Shape) -> bool:
    return len(one) == len(other) and one[:axis] + one[axis + 1 :] == other[:axis] + other[axis + 1 :]


def _split(call: TaskCall) -> Derived:
    x = _shape(call, "X")
    axis = count_axis(call.integer("axis"), len(x))
    return tuple((*x[:axis], size, *x[axis + 1 :]) for size in call.integers("split_sizes"))


def _pad(call: TaskCall) -> Derived:
    """Negative pads cut off, and leave something."""
    x, pads = _shape(call, "X"), call.integers("pads")
    found = tuple(add(add(size, pads[i]), pads[i + len(x)]) for i, size in enumerate(x))
    for axis, (size, left) in enumerate(zip(x, found, strict=True)):
        if left < 1:
            return _refuse(call, f"nothing is left of the {size} elements of axis {axis}")
    return (found,)


def _gather(call: TaskCall) -> Derived:
    """The axis gives way to the axes of the indices."""
    x = _shape(call, "X")
    axis = count_axis(call.integer("axis"), len(x))
    return ((*x[:axis], *_shape(call, "indices"), *x[axis + 1 :]),)


# --- reductions and norms -----------------------------------------------------------------------------------


def _reduce(call: TaskCall) -> Derived:
    return (_reduced(call, call.integers("axes")),)


def _argument(call: TaskCall) -> Derived:
    return (_reduced(call, (call.integer("axis"),)),)


def _reduced(call: TaskCall, axes: Sequence[int]) -> Shape:
    """The reduced axes become 1 with keepdims and vanish without."""
    x = _shape(call, "X")
    gone = {count_axis(axis, len(x)) for axis in axes}
    if call.value("keepdims"):
        return tuple(1 if axis in gone else size for axis, size in enumerate(x))
    return tuple(size for axis, size in enumerate(x) if axis not in gone) or (1,)


def _norm(call: TaskCall) -> Derived:
    """Scale and bias have one value for each element along the axis."""
    x = _shape(call, "X")
    size = x[call.integer("axis")]
    for name in ("scale", "bias"):
        if name in call.inputs and _shape(call, name) != (size,):
            axis, found = call.integer("axis"), show_shape(_shape(call, name))
            return _refuse(call, f"{name} has shape {found}; axis {axis} of X needs [{size}]", name)
    return (x,)


_UNARY = "relu sigmoid tanh exp log sqrt abs neg gelu silu leaky_relu clamp"
_BINARY = "add sub mul div min max pow"
_UNSHAPED = "softmax log_softmax cast quantize dequantize"

_DERIVE: Mapping[str, Callable[[TaskCall], Derived]] = MappingProxyType(
    {
        **dict.fromkeys(f"{_UNARY} {_BINARY} {_UNSHAPED}".split(), _same),
        **dict.fromkeys(("gemm", "matmul"), _gemm),
        **dict.fromkeys(("conv1d", "conv2d", "conv3d", "depthwise_conv2d"), _conv),
        **dict.fromkeys(("maxpool", "avgpool"), _pool),
        **{"transpose": _transpose, "reshape": _reshape, "slice": _slice, "concat": _concat},
        **{"split": _split, "pad": _pad, "gather": _gather},
        **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min"), _reduce),
        **dict.fromkeys(("argmax", "argmin"), _argument),
        **dict.fromkeys(("layernorm", "rmsnorm"), _norm),
    }
)
