"""Attention, rotary positions and caches as products, softmax and elementwise opcodes.

What depends on a position that only the run tells is read from a table with a row for each position.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_plan.rows.call import Row, RowCall
from lamella.bridge.graph_to_plan.rows.products import turned
from lamella.bridge.graph_to_plan.values import Value, broadcast, known


def _attention(call: RowCall) -> list[Value | None]:
    """llm.flash_attention: the logarithm of the sums, its second result, is not there."""
    if call.optional(3) is not None:
        raise Unsupported("packed sequences")
    q, k, v, position = call.value(0), call.value(1), call.value(2), call.optional(4)
    scale = call.real("softmax_scale", 1.0 / math.sqrt(q.shape[-1]))
    mask = _visible(call, q.shape[-2], k.shape[-2], position)
    found = _attend(call, (q, k, v), scale, mask)
    return [found, *[None] * (len(call.operation.outputs) - 1)]


def _scaled_attention(call: RowCall) -> Value:
    """aten.scaled_dot_product_attention."""
    q, k, v, mask = call.value(0), call.value(1), call.value(2), call.optional(3)
    scale = call.real("scale", 1.0 / math.sqrt(q.shape[-1]))
    if call.flag("is_causal"):
        # torch counts from the first key, not from the last one.
        mask = _mask(np.tril(np.ones((q.shape[-2], k.shape[-2]), np.bool_)), call)
    elif mask is not None and not mask.is_float:
        if mask.array is None:
            raise Unsupported("a mask of conditions that only the run tells")
        mask = _mask(mask.array.astype(np.bool_), call)
    return _attend(call, (q, k, v), scale, mask)


def _attend(call: RowCall, given: tuple[Value, Value, Value], scale: float, mask: Value | None) -> Value:
    """softmax(scale · q kᵀ + mask) v; heads of queries that share one of keys are rows of one product."""
    emit, (q, k, v) = call.emit, given
    share = _share(q, k)
    rows = emit.elementwise("mul", [q, emit.constant(scale)])
    if share > 1:
        rows = emit.reshape(rows, (*k.shape[:-2], share * q.shape[-2], q.shape[-1]))
    if mask is not None and share > 1:
        mask = _shared_mask(call, mask, q, k)
    scores = emit.matmul(rows, turned(k), mask)
    weights = emit.along("softmax", scores, -1)
    found = emit.matmul(weights, v)
    return emit.reshape(found, (*q.shape[:-1], v.shape[-1]))


def _shared_mask(call: RowCall, mask: Value, q: Value, k: Value) -> Value:
    """A mask of the heads of queries, as one of the rows of all queries that share a head of keys."""
    share, queries = _share(q, k), q.shape[-2]
    if len(mask.shape) > 2 and mask.shape[-3] != 1:
        whole = broadcast(mask, (*q.shape[:-1], k.shape[-2]))
        return call.emit.reshape(whole, (*k.shape[:-2], share * queries, k.shape[-2]))
    flat = call.emit.reshape(mask, (*mask.shape[:-3], 1, *mask.shape[-2:]))
    wide = broadcast(flat, (*flat.shape[:-3], share, queries, k.shape[-2]))
    return call.emit.reshape(wide, (*flat.shape[:-3], share * queries, k.shape[-2]))


def _share(q: Value, k: Value) -> int:
    """How many heads of queries share one of keys."""
    if len(q.shape) < 3 or q.shape[:-3] != k.shape[:-3]:
        if q.shape[:-2] != k.shape[:-2]:
            raise Unsupported("queries and keys whose batches differ")
        return 1
    return q.shape[-3] // k.shape[-3]


def _mask(seen: Array, call: RowCall) -> Value:
    """What is added to scores: 0 where a key is seen, −inf elsewhere."""
    return known(np.where(seen, np.float32(0), np.float32(-np.inf)), call.emit.real, "mask")


def _visible(call: RowCall, queries: int, keys: int, position: Value | None) -> Value | None:
    """The mask of an attention; with a position of the run it is a row of a table."""
    if call.given("alibi_slopes"):
        raise Unsupported("slopes of distances")
    causal = call.flag("causal")
    window = call.attributes.get("window_size", call.attributes.get("window"))
    if not causal and window is None:
        return None
    steps = np.arange(keys)
    first = [keys - queries] if position is None else list(range(keys))
    places = np.asarray(first)[:, None] + np.arange(queries)
    seen = np.ones((len(first), queries, keys), np.bool_)
    if causal:
        seen &= steps <= places[..., None]
    if isinstance(window, int):
        seen &= places[..., None] - steps < window
    if position is None:
        return None if seen.all() else _mask(seen[0], call)
    table = _mask(seen, call)
    return call.emit.reshape(call.emit.gather(table, as_index(position), 0), (queries, keys))


def as_index(value: Value) -> Value:
    """A number of the run as something that gather takes: an integer tensor of one element or more."""
    if value.is_float:
        raise Unsupported("an index that is no integer")
    return value


def _scores(call: RowCall) -> Value:
    """Products of queries and keys; heads of queries that share one of keys are rows of one product."""
    q, k = call.value(0), call.value(1)
    rows = call.emit.reshape(q, (*k.shape[:-2], _share(q, k) * q.shape[-2], q.shape[-1]))
    return call.emit.reshape(call.emit.matmul(rows, turned(k)), call.shape())


def _mix(call: RowCall) -> Value:
    """Weighted sums of values."""
    weights, values = call.value(0), call.value(1)
    batch, heads, share, queries, keys = weights.shape
    rows = call.emit.reshape(weights, (batch, heads, share * queries, keys))
    return call.emit.reshape(call.emit.matmul(rows, values), call.shape())


def _see(call: RowCall) -> Value:
    """Scaled scores, those of hidden keys far below all others."""
    if call.optional(1) is not None or call.given("slopes"):
        raise Unsupported("segments or slopes of distances")
    scores = call.value(0)
    scaled = call.emit.elementwise("mul", [scores, call.emit.constant(call.real("scale", 1.0))])
    mask = _visible(call, scores.shape[-2], scores.shape[-1], call.optional(2))
    return scaled if mask is None else call.emit.elementwise("add", [scaled, mask])


def _rotate(call: RowCall) -> Value:
    """Pairs of elements turned by the angles of their positions: x·cos + swapped(x)·(±sin)."""
    emit, x, freqs, positions = call.emit, call.value(0), call.value(1), call.optional(2)
    columns, width = call.integer("columns"), x.shape[-1]
    if call.flag("interleaved") or call.given("heads") or freqs.array is None:
        raise Unsupported("interleaved or partial rotation")
    angles = freqs.array[:, :columns]
    rest = width - 2 * columns
    cosine = _row_table(angles[..., 0], angles[..., 0], rest, 1.0)
    sign = call.real("sign", 1.0)
    sine = _row_table(-sign * angles[..., 1], sign * angles[..., 1], rest, 0.0)
    count = x.shape[call.integer("time")]
    tables = [known(item, emit.real, word) for item, word in ((cosine, "cosine"), (sine, "sine"))]
    if positions is None:
        tables = [emit.slice(item, 0, 0, count) for item in tables]
    else:
        if positions.count != count:
            raise Unsupported("positions that differ by sequence")
        flat = emit.reshape(positions, (count,))
        tables = [emit.gather(item, as_index(flat), 0) for item in tables]
    shape = (count, 1, width) if call.integer("time") == 1 else (count, width)
    cos, sin = (emit.reshape(item, shape) for item in tables)
    swapped = _swapped(call, x, columns)
    turned_ = emit.elementwise("mul", [swapped, sin])
    return emit.elementwise("add", [emit.elementwise("mul", [x, cos]), turned_])


def _row_table(first: Array, second: Array, rest: int, fill: float) -> Array:
    still = np.full((first.shape[0], rest), fill, np.float32)
    return np.concatenate([first, second, still], axis=1).astype(np.float32)


def _swapped(call: RowCall, x: Value, columns: int) -> Value:
    """The halves of each vector exchanged."""
    emit, width = call.emit, x.shape[-1]
    axis = len(x.shape) - 1
    parts = [emit.slice(x, axis, columns, columns), emit.slice(x, axis, 0, columns)]
    if width > 2 * columns:
        parts.append(emit.slice(x, axis, 2 * columns, width - 2 * columns))
    return emit.concat(parts, axis)


MOST_EXACT = 2048
"""Integers up to this one are numbers of f16."""


def look_up(call: RowCall, table: Array, index: Value, label: str) -> Value:
    """Integers of a table by an index of the run; where integers are not moved, their floats are, and cast."""
    emit = call.emit
    if emit.offers.has("view", ("i32",)):
        return emit.gather(known(table, "i32", label), as_index(index), 0)
    if np.abs(table).max(initial=0) > MOST_EXACT:
        raise Unsupported(f"integers beyond {MOST_EXACT} on a device that does not move i32")
    return emit.as_elem(emit.gather(known(table, "f16", label), as_index(index), 0), "i32")


def _positions(call: RowCall) -> Value:
    """Seen + 0, 1, …: a row of a table, since few devices add integers."""
    count = call.integer("count")
    if count == 1:
        return call.emit.reshape(call.value(0), call.shape())
    table = np.arange(MOST_EXACT - count)[:, None] + np.arange(count)
    return call.emit.reshape(look_up(call, table, call.value(0), "positions"), call.shape())


def _advance(call: RowCall) -> Value:
    """The number behind the last seen one, looked up in the room there is: one too many ends the run."""
    room, count = call.value(1), call.integer("count")
    if room.array is None:
        raise Unsupported("a room that only the run tells")
    found = look_up(call, room.array[count:], call.value(0), "room")
    return call.emit.reshape(found, ())


def _remember(call: RowCall) -> Value:
    """A cache with new vectors in their places: picked from both by the places of a table, a row for each position."""
    emit, cache, x, seen = call.emit, call.value(0), call.value(1), as_index(call.value(2))
    room, count = cache.shape[-2], x.shape[-2]
    first = np.arange(room)[:, None]
    place = np.arange(room)[None, :]
    is_new = (place >= first) & (place < first + count)
    table = np.where(is_new, room + place - first, place)
    places = emit.reshape(look_up(call, table, seen, "places"), (room,))
    both = emit.concat([emit.as_elem(cache, x.elem), x], 2)
    return emit.gather(both, places, 2)


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        **{"llm.flash_attention": _attention, "aten.scaled_dot_product_attention": _scaled_attention},
        **{"llm._rotate": _rotate, "llm.positions": _positions, "llm.advance": _advance},
        **{"llm.remember": _remember, "llm._scores": _scores, "llm._mix": _mix, "llm._see": _see},
    }
)
"""The rows of transformers."""
