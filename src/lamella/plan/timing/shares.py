"""Which part of an operand one output element needs: what a tile of a computation must wait for at the very least.

However a computation is cut into tiles, each tile makes whole output elements. So the first tile needs at least what
one output element needs, and after the last element of an operand has come all outputs that depend on it are to do.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod

from lamella.lang.nem.resolved import Region, Task
from lamella.plan.timing.cost import elements

NOTHING = Fraction(0)
PRODUCTS = frozenset({"gemm", "matmul"})
WINDOWED = frozenset({"conv2d", "depthwise_conv2d", "maxpool", "avgpool"})
REDUCTIONS = frozenset({"reduce_sum", "reduce_max", "reduce_min", "argmax", "argmin"})
ROWWISE = frozenset({"softmax", "log_softmax", "layernorm", "rmsnorm"})


def needed_share(task: Task, operand: int) -> Fraction:
    """The least part of an operand that one output element needs."""
    region = task.inputs[operand]
    whole = max(1, elements(region))
    if task.opcode in PRODUCTS:
        return Fraction(_depth(task), whole) if operand < 2 and _is_whole(task) else NOTHING
    if task.opcode in WINDOWED:
        return _window_share(task, operand)
    if task.opcode in ROWWISE and operand == 0:
        return Fraction(_axis_length(task), whole)
    if task.opcode in REDUCTIONS:
        return Fraction(1, max(1, elements(task.outputs[0])))
    return NOTHING


def following_share(task: Task, operand: int) -> Fraction:
    """The least part of the work that depends on each single element of an operand."""
    made = max(1, elements(task.outputs[0]))
    if task.opcode in PRODUCTS:
        return Fraction(_fed(task, operand), made) if operand < 2 and _is_whole(task) else NOTHING
    if task.opcode in ("conv2d", "depthwise_conv2d") and operand == 1:
        return Fraction(1, max(1, _shape(task.outputs[0])[-1]))
    if task.opcode in ROWWISE and operand == 0:
        return Fraction(_axis_length(task), made)
    if task.opcode in REDUCTIONS:
        return Fraction(1, made)
    return NOTHING


def covered_share(task: Task, operand: int) -> Fraction:
    """The part of an operand that is read at all: strides beyond the window skip rows and columns."""
    if task.opcode not in WINDOWED or operand > 0 or len(_shape(task.inputs[0])) != 4:
        return Fraction(1)
    counts = [len(set().union(*taps)) for taps in _taps(task)]
    return Fraction(prod(counts), max(1, prod(_shape(task.inputs[0])[1:3])))


def _shape(region: Region) -> tuple[int, ...]:
    return (region.extent,) if region.type is None else region.type.shape


def _depth(task: Task) -> int:
    """The length of the sums of a product."""
    return _shape(task.inputs[0])[-1]


def _fed(task: Task, operand: int) -> int:
    """How many outputs of a product each element of a factor is summed into: a row of them, or a column."""
    columns, rows = (*reversed(_shape(task.outputs[0])), 1, 1)[:2]
    return columns if operand == 0 else rows


def _is_whole(task: Task) -> bool:
    """Whether the sums of a product cannot be cut: integers are rescaled once, reals may go on from a third operand."""
    return all(region.type is not None and region.type.elem[0] in "iu" for region in task.inputs[:2])


def _axis_length(task: Task) -> int:
    axis = task.attributes.get("axis", -1)
    shape = _shape(task.inputs[0])
    return shape[axis] if isinstance(axis, int) and -len(shape) <= axis < len(shape) else 1


# --- windows over rows and columns --------------------------------------------------------------------------


def _window_share(task: Task, operand: int) -> Fraction:
    shape = _shape(task.inputs[operand])
    if len(shape) != 4 or operand > 1:
        return NOTHING
    if operand == 1:
        return Fraction(1, max(1, shape[-1]))
    least = prod(min(map(len, taps), default=0) for taps in _taps(task))
    return Fraction(least * _channels(task), max(1, prod(shape)))


def _channels(task: Task) -> int:
    """The input channels that one output element reads."""
    if task.opcode != "conv2d" or len(task.inputs) < 2:
        return 1
    return (*_shape(task.inputs[1]), 1, 1, 1)[2]


def _taps(task: Task) -> list[list[set[int]]]:
    """For rows and columns: the positions inside the input that each output position reads."""
    kernel = _list(task, "kernel_shape") or list(_shape(task.inputs[1])[:2] if len(task.inputs) > 1 else ())
    pads, strides = _list(task, "pads") or [0] * 4, _list(task, "strides") or [1, 1]
    dilations = _list(task, "dilations") or [1, 1]
    found = []
    for axis, (size, made) in enumerate(
        zip(_shape(task.inputs[0])[1:3], _shape(task.outputs[0])[1:3], strict=True)
    ):
        window = range(0, kernel[axis] * dilations[axis], dilations[axis])
        starts = [position * strides[axis] - pads[axis] for position in range(made)]
        found.append([{start + tap for tap in window if 0 <= start + tap < size} for start in starts])
    return found


def _list(task: Task, key: str) -> list[int]:
    value = task.attributes.get(key)
    return list(value) if isinstance(value, tuple) else []
