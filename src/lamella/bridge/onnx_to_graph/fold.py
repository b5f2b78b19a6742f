"""Arithmetic on contents that are known before the run: what exporters write to compute shapes.

Symbolic extents take part as integers in normal form, so a chain of Shape, Gather, Mul and Concat comes out as the
extents that it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from lamella.base import dim
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dim import Condition, Dim, Extent, TooComplex
from lamella.bridge.onnx.nodes import ELEMENTS, AttributeValue
from lamella.bridge.onnx_to_graph.values import MOST_KNOWN, object_array, plain_if_possible

Attributes = Mapping[str, AttributeValue]
Rule = Callable[[Sequence["Array | None"], Attributes, int], "Array | list[Array]"]
"""What an operator gives for known contents, attributes and a version."""


class CannotFold(Exception):
    """A content cannot be computed before the run; the operation is translated instead."""


def fold(
    operator: str, args: Sequence[Array | None], attributes: Attributes, version: int
) -> list[Array] | None:
    """What an operator gives for known contents; None where it is not one that is computed before the run."""
    rule = _RULES.get(operator)
    if rule is None or any(item is not None and item.size > MOST_KNOWN for item in args):
        return None
    try:
        with np.errstate(all="ignore"):
            found = rule(args, attributes, version)
    except (CannotFold, TooComplex, ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError):
        return None
    results = found if isinstance(found, list) else [found]
    return None if any(item.size > MOST_KNOWN for item in results) else results


# --- element by element -------------------------------------------------------------------------------------------


def _needed(args: Sequence[Array | None], index: int = 0) -> Array:
    found = args[index] if index < len(args) else None
    if found is None:
        raise CannotFold
    return found


def _integer(item: object) -> Extent:
    if isinstance(item, Dim):
        return item
    if isinstance(item, int | np.integer | np.bool_):
        return int(item)
    raise CannotFold


def _elementwise(
    plain: Callable[..., Array], symbolic: Callable[..., object]
) -> Callable[[Sequence[Array | None], Attributes, int], Array]:
    def run(args: Sequence[Array | None], _: Attributes, __: int) -> Array:
        arrays = [_needed(args, index) for index in range(len(args))]
        if not any(item.dtype == object for item in arrays):
            return np.asarray(plain(*arrays))
        spread = np.broadcast_arrays(*arrays)
        items = [
            symbolic(*parts) for parts in zip(*(item.reshape(-1).tolist() for item in spread), strict=True)
        ]
        return plain_if_possible(object_array(items, spread[0].shape), np.dtype(np.int64))

    return run


def _dims(function: Callable[[Extent, Extent], object]) -> Callable[..., object]:
    return lambda left, right: function(_integer(left), _integer(right))


def _plain_div(left: Array, right: Array) -> Array:
    if np.issubdtype(left.dtype, np.integer):
        if (right == 0).any():
            raise CannotFold
        quotient = np.floor_divide(np.abs(left), np.abs(right))
        signed: Array = (np.sign(left) * np.sign(right) * quotient).astype(left.dtype)
        return signed
    divided: Array = left / right
    return divided


def _symbolic_div(left: object, right: object) -> object:
    first, second = _integer(left), _integer(right)
    # Division rounds toward zero, which is the floor of what is not negative.
    if dim.bounds(first)[0] < 0 or dim.bounds(second)[0] <= 0:
        raise CannotFold
    return dim.floor_divide(first, second)


def _symbolic_mod(left: object, right: object) -> object:
    first, second = _integer(left), _integer(right)
    if dim.bounds(first)[0] < 0 or dim.bounds(second)[0] <= 0:
        raise CannotFold
    return dim.remainder(first, second)


def _choose(condition: object, then: object, otherwise: object) -> object:
    if isinstance(condition, Condition):
        return dim.choose(condition, _integer(then), _integer(otherwise))
    return then if condition else otherwise


def _truth(value: object) -> bool | Condition:
    return value if isinstance(value, Condition) else bool(value)


def _mod(args: Sequence[Array | None], attributes: Attributes, version: int) -> Array:
    divisor = _needed(args, 1)
    if np.issubdtype(divisor.dtype, np.integer) and (divisor == 0).any():
        raise CannotFold  # NumPy gives 0; the run says that there is no such number
    if attributes.get("fmod"):
        if any(item is not None and item.dtype == object for item in args):
            raise CannotFold
        return np.asarray(np.fmod(_needed(args), _needed(args, 1)))
    return _elementwise(np.mod, _symbolic_mod)(args, attributes, version)


# --- layout -------------------------------------------------------------------------------------------------------


def _integers(
    args: Sequence[Array | None], index: int, attributes: Attributes, name: str
) -> list[int] | None:
    """A list that older versions have as an attribute."""
    if index < len(args) and args[index] is not None:
        return [int(item) for item in _needed(args, index).reshape(-1).tolist()]
    found = attributes.get(name)
    return [item for item in found if isinstance(item, int)] if isinstance(found, tuple) else None


def _int(attributes: Attributes, name: str, default: int) -> int:
    found = attributes.get(name)
    return found if isinstance(found, int) else default


def _gather(args: Sequence[Array | None], attributes: Attributes, _: int) -> Array:
    return np.asarray(
        np.take(_needed(args), _needed(args, 1).astype(np.int64), axis=_int(attributes, "axis", 0))
    )


def _concat(args: Sequence[Array | None], attributes: Attributes, _: int) -> Array:
    parts = [_needed(args, index) for index in range(len(args))]
    return np.concatenate(parts, axis=_int(attributes, "axis", 1))


def _unsqueeze(args: Sequence[Array | None], attributes: Attributes, _: int) -> Array:
    axes = _integers(args, 1, attributes, "axes")
    if axes is None:
        raise CannotFold
    data = _needed(args)
    rank = data.ndim + len(axes)
    return np.expand_dims(data, tuple(axis % rank for axis in axes))


def _squeeze(args: Sequence[Array | None], attributes: Attributes, _: int) -> Array:
    axes = _integers(args, 1, attributes, "axes")
    return np.squeeze(_needed(args), None if axes is None else tuple(axes))


def _slice(args: Sequence[Array | None], attributes: Attributes, _: int) -> Array:
    data = _needed(args)
    starts, ends = _integers(args, 1, attributes, "starts"), _integers(args, 2, attributes, "ends")
    if starts is None or ends is None:
        raise CannotFold
    axes = _integers(args, 3, attributes, "axes") or list(range(len(starts)))
    steps = _integers(args, 4, attributes, "steps") or [1] * len(starts)
    parts = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        last = None if step < 0 and end < -data.shape[axis] else end
        parts[axis] = slice(start, last, step)
    return data[tuple(parts)]


def _reshape(args: Sequence[Array | None], attributes: Attributes, _: int) -> Array:
    data, shape = _needed(args), _integers(args, 1, attributes, "shape")
    if shape is None:
        raise CannotFold
    if not _int(attributes, "allowzero", 0):
        shape = [data.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    return data.reshape(shape)


def _transpose(args: Sequence[Array | None], attributes: Attributes, _: int) -> Array:
    perm = _integers((), 0, attributes, "perm")
    return np.transpose(_needed(args), perm)


def _range(args: Sequence[Array | None], _: Attributes, __: int) -> Array:
    parts = [_needed(args, index) for index in range(3)]
    if any(item.dtype == object for item in parts):
        raise CannotFold
    start, stop, step = (item.reshape(-1)[0] for item in parts)
    if step == 0 or abs((stop - start) / step) > MOST_KNOWN:
        raise CannotFold
    return np.arange(start, stop, step, dtype=parts[0].dtype)


def _expand(args: Sequence[Array | None], _: Attributes, __: int) -> Array:
    data, wanted = _needed(args), [int(item) for item in _needed(args, 1).tolist()]
    shape = np.broadcast_shapes(data.shape, tuple(wanted))
    if math.prod(shape) > MOST_KNOWN:
        raise CannotFold
    return np.broadcast_to(data, shape).copy()


def _tile(args: Sequence[Array | None], _: Attributes, __: int) -> Array:
    data, repeats = _needed(args), [int(item) for item in _needed(args, 1).tolist()]
    if data.size * math.prod(repeats) > MOST_KNOWN:
        raise CannotFold
    return np.tile(data, repeats)


# --- types and reductions -----------------------------------------------------------------------------------------


def _cast(args: Sequence[Array | None], attributes: Attributes, _: int) -> Array:
    data, element = _needed(args), ELEMENTS.get(_int(attributes, "to", 0))
    if element is None:
        raise CannotFold
    if data.dtype == object:
        if not element.is_integer:
            raise CannotFold
        return data
    if element.is_float or np.issubdtype(data.dtype, np.integer) or data.dtype == np.bool_:
        return data.astype(numpy_dtype(element))
    if not np.isfinite(data.astype(np.float64)).all() or not element.is_integer:
        raise CannotFold
    return np.trunc(data.astype(np.float64)).astype(numpy_dtype(element))


def _reduce(
    plain: Callable[..., Array], symbolic: Callable[[Extent, Extent], Extent], start: int | None
) -> Rule:
    def run(args: Sequence[Array | None], attributes: Attributes, _: int) -> Array:
        data = _needed(args)
        axes = _integers(args, 1, attributes, "axes")
        keep = bool(_int(attributes, "keepdims", 1))
        if axes is None and _int(attributes, "noop_with_empty_axes", 0):
            return data
        if data.dtype != object:
            return np.asarray(
                plain(data, axis=None if axes is None else tuple(axes), keepdims=keep), data.dtype
            )
        if data.ndim != 1:
            raise CannotFold
        items = [_integer(item) for item in data.tolist()]
        total: Extent | None = start
        for item in items:
            total = item if total is None else symbolic(total, item)
        return plain_if_possible(object_array([total], (1,) if keep else ()), np.dtype(np.int64))

    return run


def _split(args: Sequence[Array | None], attributes: Attributes, _: int) -> list[Array]:
    data, sizes = _needed(args), _integers(args, 1, attributes, "split")
    outputs = _int(attributes, "num_outputs", 0)
    if sizes is None and not 0 < outputs <= MOST_KNOWN:
        raise CannotFold
    axis = _int(attributes, "axis", 0)
    if sizes is None:
        size = -(-data.shape[axis] // max(outputs, 1))
        sizes = [size] * outputs
    return [np.asarray(item) for item in np.split(data, np.cumsum(sizes)[:-1].tolist(), axis)]


def _identity(args: Sequence[Array | None], _: Attributes, __: int) -> Array:
    return _needed(args)


def _many(function: Callable[[Array, Array], Array], symbolic: Callable[[Extent, Extent], object]) -> Rule:
    pair = _elementwise(function, _dims(symbolic))

    def run(args: Sequence[Array | None], attributes: Attributes, version: int) -> Array:
        total = _needed(args)
        for index in range(1, len(args)):
            total = pair([total, _needed(args, index)], attributes, version)
        return total

    return run


def _unary(function: Callable[[Array], Array]) -> Rule:
    def run(args: Sequence[Array | None], _: Attributes, __: int) -> Array:
        data = _needed(args)
        if data.dtype == object:
            raise CannotFold
        return np.asarray(function(data), data.dtype)

    return run


def _no_symbol(*_: object) -> object:
    raise CannotFold


_RULES: Mapping[str, Callable[[Sequence[Array | None], Attributes, int], Array | list[Array]]] = (
    MappingProxyType(
        {
            "Identity": _identity,
            "Gather": _gather,
            "Concat": _concat,
            "Unsqueeze": _unsqueeze,
            "Squeeze": _squeeze,
            "Slice": _slice,
            "Reshape": _reshape,
            "Transpose": _transpose,
            "Range": _range,
            "Expand": _expand,
            "Tile": _tile,
            "Cast": _cast,
            "Split": _split,
            "Add": _elementwise(np.add, _dims(dim.add)),
            "Sub": _elementwise(np.subtract, _dims(dim.sub)),
            "Mul": _elementwise(np.multiply, _dims(dim.mul)),
            "Div": _elementwise(_plain_div, _symbolic_div),
            "Mod": _mod,
            "Min": _many(np.minimum, dim.smaller),
            "Max": _many(np.maximum, dim.larger),
            "Pow": _elementwise(np.power, _no_symbol),
            "Equal": _elementwise(np.equal, _dims(dim.equal)),
            "Less": _elementwise(np.less, _dims(dim.less)),
            "LessOrEqual": _elementwise(np.less_equal, _dims(dim.less_equal)),
            "Greater": _elementwise(np.greater, lambda a, b: dim.less(_integer(b), _integer(a))),
            "GreaterOrEqual": _elementwise(
                np.greater_equal, lambda a, b: dim.less_equal(_integer(b), _integer(a))
            ),
            "Not": _elementwise(np.logical_not, lambda item: dim.negate(_truth(item))),
            "And": _elementwise(np.logical_and, lambda a, b: dim.both(_truth(a), _truth(b))),
            "Or": _elementwise(np.logical_or, lambda a, b: dim.either(_truth(a), _truth(b))),
            "Xor": _elementwise(np.logical_xor, lambda a, b: dim.differ(_truth(a), _truth(b))),
            "Where": _elementwise(np.where, _choose),
            "Neg": _elementwise(np.negative, lambda item: dim.sub(0, _integer(item))),
            "Abs": _elementwise(np.abs, _no_symbol),
            "Floor": _unary(np.floor),
            "Ceil": _unary(np.ceil),
            "Sqrt": _unary(np.sqrt),
            "Sign": _unary(np.sign),
            "ReduceProd": _reduce(np.prod, dim.mul, 1),
            "ReduceSum": _reduce(np.sum, dim.add, 0),
            "ReduceMin": _reduce(np.min, dim.smaller, None),
            "ReduceMax": _reduce(np.max, dim.larger, None),
        }
    )
)
"""How each operator computes with known contents."""
