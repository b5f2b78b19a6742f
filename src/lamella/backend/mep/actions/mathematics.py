"""Numbers: one by one as Python counts, arrays as NumPy does; and what is chosen from logits."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from lamella.backend.mep.faults import fault
from lamella.backend.mep.state import Actions, State
from lamella.backend.mep.values import (
    Number,
    Value,
    as_array,
    as_integer,
    as_scalar,
    compute,
    unwrap,
    words_for,
)
from lamella.base.arrays import Array
from lamella.base.limits import LARGEST, SMALLEST

_SOFTMAX, _DIVIDE, _POWER = 0, 3, 4
_LARGEST_EXPONENT = 64
_UNARY: Mapping[int, Callable[[Array], Array]] = MappingProxyType(
    {1: np.sqrt, 2: np.abs, 3: np.negative, 4: np.exp, 5: lambda array: np.divide(1, array)}
)
_BINARY: Mapping[int, Callable[[Array, Array], Array]] = MappingProxyType(
    {
        **{0: np.add, 1: np.subtract, 2: np.multiply, 3: np.true_divide},
        **{4: np.power, 5: np.maximum, 6: np.minimum},
    }
)
_SCALAR: Mapping[int, Callable[[Number, Number], Number]] = MappingProxyType(
    {0: operator.add, 1: operator.sub, 2: operator.mul, 3: operator.truediv, 5: max, 6: min}
)
_COMPARE: Mapping[int, Callable[[Array, Array], Array]] = MappingProxyType(
    {0: np.equal, 1: np.not_equal, 2: np.greater, 3: np.less}
)
_EQUALITY = (operator.eq, operator.ne)


def _unary(state: State, numbers: tuple[int, ...]) -> None:
    kind, out, source = numbers
    array = as_array(state.read(source))
    state.keep_room(8 * array.size)
    state.write(out, unwrap(compute(softmax if kind == _SOFTMAX else _UNARY[kind], array)))


def softmax(array: Array) -> Array:
    """Shares along the last axis that add up to 1; of integers in double precision."""
    reals = array if array.dtype.kind == "f" else array.astype(np.float64)
    if not reals.ndim:
        raise fault("finds no last axis in a number", "give an array or a list")
    powers = np.exp(reals - reals.max(axis=-1, keepdims=True)) if reals.size else reals
    shares: Array = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _binary(state: State, numbers: tuple[int, ...]) -> None:
    kind, out, first, second = numbers
    a, b = state.read(first), state.read(second)
    if isinstance(a, bool | int | float) and isinstance(b, bool | int | float):
        state.write(out, _count(kind, a, b))
        return
    arrays = as_array(a), as_array(b)
    _keep_room(state, *arrays)
    state.write(out, unwrap(compute(_BINARY[kind], *arrays)))


def _keep_room(state: State, a: Array, b: Array) -> None:
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise fault(f"cannot join {words_for(a)} and {words_for(b)}", "extents are equal, or 1") from None
    state.keep_room(8 * math.prod(shape))


def _count(kind: int, a: Number, b: Number) -> Number:
    """Two numbers by Python's rules; integers stay within 64 bits."""
    try:
        found = _power(a, b) if kind == _POWER else _SCALAR[kind](a, b)
    except (ArithmeticError, ValueError):
        raise fault(f"cannot compute with {a} and {b}", "the result is no number") from None
    if isinstance(found, int) and not SMALLEST <= found <= LARGEST:
        raise fault(f"leaves 64 bits with {a} and {b}", "compute with reals, or with arrays")
    return found


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int) and 0 <= b <= _LARGEST_EXPONENT:
        found: int = a**b
        return found
    return math.pow(a, b)


def _aggregate(state: State, numbers: tuple[int, ...]) -> None:
    _, out, source = numbers
    array = as_array(state.read(source))
    if not array.ndim or not array.shape[-1]:
        raise fault(f"finds no largest element in {words_for(array)}", "give an array that is not empty")
    state.write(out, unwrap(np.asarray(compute(lambda: np.argmax(array, axis=-1)))))


def _compare(state: State, numbers: tuple[int, ...]) -> None:
    kind, out, first, second = numbers
    a, b = state.read(first), state.read(second)
    if isinstance(a, str) and isinstance(b, str) and kind < len(_EQUALITY):
        state.write(out, bool(_EQUALITY[kind](a, b)))
        return
    arrays = as_array(a), as_array(b)
    _keep_room(state, *arrays)
    state.write(out, unwrap(np.asarray(compute(_COMPARE[kind], *arrays))))


# --- choosing -----------------------------------------------------------------------------------------------


def _top_k(state: State, numbers: tuple[int, ...]) -> None:
    source, slot, indices, values = numbers
    flat = _finite_row(state.read(source)).reshape(-1)
    count = as_integer(state.read(slot))
    if not 0 <= count <= flat.size:
        raise fault(f"wants the largest {count} of {flat.size}", "ask for no more than there are")
    order = _descending(flat)[:count]
    state.write(indices, order)
    state.write(values, flat[order])


def _descending(flat: Array) -> Array:
    """Indices from the largest element to the smallest; of equal ones the first comes first."""
    order: Array = np.argsort(flat, kind="stable")[::-1]
    ranked = flat[order]
    # Turned round, equal elements stand from the last to the first; sorting each run by index mends that.
    starts = np.cumsum(np.concatenate([[False], ranked[1:] != ranked[:-1]])) if flat.size else order
    return order[np.lexsort((order, starts))]


def _finite_row(value: Value) -> Array:
    array = as_array(value)
    if array.dtype.kind not in "biuf" or np.isnan(array).any():
        raise fault(f"cannot order {words_for(array)}", "give numbers, none of which is NaN")
    return array


def _sample(state: State, numbers: tuple[int, ...]) -> None:
    source, temperature, slot, out = numbers
    logits = _finite_row(state.read(source))
    if not logits.ndim or not logits.size or logits.size != logits.shape[-1]:
        raise fault(f"draws from {words_for(logits)}", "give the logits of one position")
    heat, most = float(as_scalar(state.read(temperature))), as_integer(state.read(slot))
    state.write(out, draw(logits.reshape(-1), heat, most, state.around.random))


def draw(logits: Array, temperature: float, most: int, random: np.random.Generator) -> int:
    """The index of a logit: by chance among the `most` largest, or the largest where the temperature is not above 0.

    One number u in [0, 1) is drawn; from the largest share on, the first whose running sum exceeds u is taken.
    """
    order = _descending(logits)
    if not temperature > 0 or math.isinf(float(logits[order[0]])):
        return int(order[0])
    kept = order[:most] if most > 0 else order
    sums = np.cumsum(softmax(logits[kept].astype(np.float64) / temperature))
    place = int(np.searchsorted(sums, random.random() * sums[-1], side="right"))
    return int(kept[min(place, kept.size - 1)])


MATHEMATICS: Actions = MappingProxyType(
    {0x60: _unary, 0x61: _binary, 0x62: _aggregate, 0x68: _compare, 0x70: _top_k, 0x71: _sample}
)
"""Instructions that compute."""
