"""Linear algebra on single elements: axpby, hadamard, ger and products for each of C; sum, cumsum along a mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.elements.sums import write_cumsum, write_sum
from lamella.kernels.passes.lower_linalg.elements.transposes import is_tiled, write_transpose
from lamella.kernels.passes.lower_linalg.extents import as_value
from lamella.kernels.passes.lower_linalg.operands import Known
from lamella.kernels.passes.lower_linalg.updates import Array, Update, shared_extent, write_updates
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Blas, Fuse, Memref, Number, Type, Value

NOTHING: Mapping[str, Number] = MappingProxyType({})


def lower_elements(
    builder: Builder,
    blas: Blas,
    types: Mapping[str, Type],
    target: Target,
    constants: Mapping[str, Number] = NOTHING,
) -> None:
    """Write axpby, cumsum, ger, hadamard or sum as loops; `types` and `constants` tell what is known of values."""
    known = Known(types, constants)
    write_updates(builder, blas, known, lambda inner, update: _write(inner, update, target))


def _write(builder: Builder, update: Update, target: Target) -> None:
    match update.blas.function:
        case "sum":
            write_sum(builder, update, target)
        case "cumsum":
            write_cumsum(builder, update, target)
        case "gemm" | "gemv":
            _write_product(builder, update)
        case "axpby" if is_tiled(update) and not target.has_threads:
            write_transpose(builder, update, target)
        case "ger":
            _write_ger(builder, update)
        case _:
            _write_each(builder, _flatten(builder, update))


def _write_product(builder: Builder, update: Update) -> None:
    """An element of C for each work-item, which goes along a row of op(A) and a column of op(B)."""
    left = update.sources[0]
    turned = (*update.blas.transposes, False)
    inner_mode = 0 if turned[0] else 1
    rows = shared_extent(builder, (update.target, 0), (left, 1 - inner_mode))
    length = as_value(builder, left.extent(builder, inner_mode))
    ends = [as_value(builder, rows)]
    if update.target.type.order == 2:
        ends.append(as_value(builder, update.target.extent(builder, 1)))
    with builder.foreach(ends) as (inner, indices):
        zero = update.zero(inner)
        with inner.loop(inner.constant(0), length, carried=[(zero, update.wide)]) as loop:
            body, k = loop.body, loop.variable
            first = update.load(body, 0, (k, indices[0]) if turned[0] else (indices[0], k))
            place = (k, *indices[1:])
            second = update.load(body, 1, place[::-1] if turned[1] and len(place) == 2 else place)
            body.give(update.add(body, loop.carried[0], body.arith("mul", first, second, type_=update.wide)))
        update.finish(inner, loop.results[0], indices)


# --- one element at a time ----------------------------------------------------------------------------------


def _is_transposed(update: Update) -> bool:
    return any(update.blas.transposes) and update.target.type.order == 2


def _write_each(builder: Builder, update: Update) -> None:
    """Axpby and hadamard: C has as many elements as each operand, at the same place or at the transposed one."""
    order, flip = update.target.type.order, _is_transposed(update)
    ends = [
        shared_extent(builder, *_modes(update, mode, flip)) if order else 1 for mode in range(max(1, order))
    ]
    with builder.foreach([as_value(builder, end) for end in ends]) as (inner, variables):
        indices = variables[:order]
        places = indices[::-1] if flip else indices
        value = update.load(inner, 0, places)
        for other in range(1, len(update.sources)):
            value = inner.arith("mul", value, update.load(inner, other, indices), type_=update.wide)
        update.finish(inner, value, indices)


def _modes(update: Update, mode: int, flip: bool) -> list[tuple[Array, int]]:
    """The modes that one variable runs over."""
    source = 1 - mode if flip else mode
    return [(update.target, mode), *((item, source) for item in update.sources)]


def _write_ger(builder: Builder, update: Update) -> None:
    left, right = update.sources
    rows = shared_extent(builder, (update.target, 0), (left, 0))
    columns = shared_extent(builder, (update.target, 1), (right, 0))
    with builder.foreach([as_value(builder, item) for item in (rows, columns)]) as (inner, (i, j)):
        product = inner.arith(
            "mul", update.load(inner, 0, [i]), update.load(inner, 1, [j]), type_=update.wide
        )
        update.finish(inner, product, [i, j])


# --- matrices that lie in one piece -------------------------------------------------------------------------


def _flatten(builder: Builder, update: Update) -> Update:
    """Matrices without gaps as vectors, so that short columns fill vectors too."""
    arrays = (*update.sources, update.target)
    if _is_transposed(update) or not all(_is_dense(item.type) for item in arrays):
        return update
    *sources, target = (_fuse(builder, item) for item in arrays)
    return Update(
        update.blas,
        tuple(sources),
        target,
        update.wide,
        update.alpha,
        update.beta,
        update.overwrite,
    )


def _is_dense(type_: Memref) -> bool:
    if type_.order != 2 or None in type_.shape:
        return False
    (rows, _), (step, column) = type_.shape, type_.stride
    return rows is not None and step is not None and column == rows * step


def _fuse(builder: Builder, array: Array) -> Array:
    sizes: Sequence[int] = [size for size in array.type.shape if size is not None]
    type_ = Memref(array.type.element, (sizes[0] * sizes[1],), array.type.stride[:1], array.type.local)
    value: Value = builder.value(Fuse(array.value, 0, 1, type_))
    return Array(value, type_)
