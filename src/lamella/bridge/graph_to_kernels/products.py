"""Sums of products as `gemm`: `y[…, i, j] += a[…, i, k] * b[…, k, j]`, however the dimensions are laid out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamella.bridge.graph_to_kernels.affine import Form, find_form, is_integer
from lamella.bridge.graph_to_kernels.terms import TensorView, stored_type
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import Blas, Memref, Scalar, Slice, Value
from lamella.lang.tensor.nodes.types import packed_stride
from lamella.ops.formula import Apply, Contraction, Element, Guard

SMALLEST = 512
"""Multiplications below which a matrix product is not worth its tiles."""
GROUP_STEPS = 1 << 21
"""Multiplications that are worth a work-group of their own."""


@dataclass(frozen=True, slots=True)
class ProductFactor:
    """A tensor of a product: its element in the formula and the index of each of its dimensions, fused ones as one."""

    element: Element
    indices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchedProduct:
    """A matrix product for each step of the batch indices; `row` is the index that lies closest in the target."""

    target: ProductFactor
    left: ProductFactor
    right: ProductFactor
    row: str
    column: str
    sum: str
    batch: tuple[str, ...]
    extents: Mapping[str, int]

    @property
    def factors(self) -> tuple[ProductFactor, ProductFactor, ProductFactor]:
        """The target and both operands."""
        return self.target, self.left, self.right


def find_product(
    contraction: Contraction, tensors: Mapping[tuple[str, int | None], TensorView], real: Scalar
) -> BatchedProduct | None:
    """The matrix product that a contraction is; None where it is none or too small."""
    elements = find_factors(contraction, tensors, real)
    if elements is None:
        return None
    extents = {loop.index: loop.extent for loop in contraction.loops if isinstance(loop.extent, int)}
    if len(extents) != len(contraction.loops) or 0 in extents.values():
        return None
    rows = [_plain_indices(item, extents, find_shape(tensors, item)) for item in elements]
    if any(row is None for row in rows):
        return None
    return _arrange(elements, [row for row in rows if row is not None], extents)


def find_factors(
    contraction: Contraction, tensors: Mapping[tuple[str, int | None], TensorView], real: Scalar
) -> tuple[Element, Element, Element] | None:
    """The target and both factors of a sum of products of one type that has no condition and reads no target."""
    if contraction.sign != "+=" or contraction.condition is not None or len(contraction.targets) != 1:
        return None
    value = contraction.values[0]
    if not isinstance(value, Apply) or value.function != "*":
        return None
    found = [contraction.targets[0], *value.operands]
    elements = [item for item in found if isinstance(item, Element)]
    apart = all(item.tensor != contraction.targets[0].tensor for item in elements[1:])
    if len(elements) != 3 or not apart or any(_element_type(tensors, item) != real.name for item in elements):
        return None
    return elements[0], elements[1], elements[2]


def _element_type(tensors: Mapping[tuple[str, int | None], TensorView], element: Element) -> str:
    found = tensors.get((element.tensor, element.item if is_integer(element.item) else None))
    return "" if found is None else stored_type(found.element)


def find_shape(tensors: Mapping[tuple[str, int | None], TensorView], element: Element) -> tuple[int, ...]:
    """The shape of the tensor of an element."""
    return tensors[element.tensor, element.item if is_integer(element.item) else None].shape


def _plain_indices(
    element: Element, extents: Mapping[str, int], shape: Sequence[int]
) -> tuple[str, ...] | None:
    """The loops that count a tensor through, the outermost first; None where an index does anything else.

    A dimension may be counted by several loops at once, as by the groups of a convolution and the channels of each.
    """
    found: list[str] = []
    for index, size in zip(element.indices, shape, strict=True):
        form = find_form(index.index if isinstance(index, Guard) else index, extents)
        names = None if form is None else find_digits(form, extents, size)
        if names is None:
            return None
        found += names
    return tuple(found) if len(set(found)) == len(found) else None


def find_digits(form: Form, extents: Mapping[str, int], size: int) -> list[str] | None:
    """The loops whose indices are the digits of a number that runs from 0 to the end of a dimension."""
    names = [name for name, _ in sorted(form.terms, key=lambda item: -item[1])]
    factor = 1
    for name in reversed(names):
        if (name, factor) not in form.terms:
            return None
        factor *= extents[name]
    return names if form.constant == 0 and factor == size else None


# --- which index is what ------------------------------------------------------------------------------------


def _arrange(
    elements: Sequence[Element], rows: Sequence[tuple[str, ...]], extents: Mapping[str, int]
) -> BatchedProduct | None:
    rows, sizes = _fuse(list(rows), dict(extents))
    target, left, right = rows
    first = [name for name in target if name in left and name not in right]
    second = [name for name in target if name in right and name not in left]
    summed = [name for name in left if name in right and name not in target]
    whole = {*target, *summed}
    if not first or not second or len(summed) != 1 or not {*left, *right} <= whole <= {*left, *right}:
        return None
    # What one factor has alone is rows or columns in its closest dimension only; the others are steps of their own.
    row, column = first[-1], second[-1]
    batch = [name for name in target if name not in (row, column)]
    if sizes[row] * sizes[column] * sizes[summed[0]] < SMALLEST:
        return None
    goal, one, other = (ProductFactor(item, row) for item, row in zip(elements, rows, strict=True))
    if target.index(row) < target.index(column):
        # The rows of gemm lie closest: they belong to the dimension of the target that comes last.
        row, column, one, other = column, row, other, one
    return BatchedProduct(goal, one, other, row, column, summed[0], tuple(batch), sizes)


def _fuse(
    rows: list[tuple[str, ...]], extents: dict[str, int]
) -> tuple[list[tuple[str, ...]], dict[str, int]]:
    """Indices that are neighbours in every tensor that has them become one."""
    names = [name for row in rows for name in row]
    for first in dict.fromkeys(names):
        while True:
            second = _follower(first, rows)
            if second is None:
                break
            rows = [tuple(name for name in row if name != second) for row in rows]
            extents[first] *= extents[second]
    return rows, extents


def _follower(first: str, rows: Sequence[tuple[str, ...]]) -> str | None:
    """The index that follows another wherever either occurs."""
    followers = {row[row.index(first) + 1 :][:1] for row in rows if first in row}
    if len(followers) != 1 or () in followers:
        return None
    second = next(iter(followers))[0]
    alike = all((first in row) == (second in row) for row in rows)
    return second if alike else None


# --- the kernel ---------------------------------------------------------------------------------------------


def memref_shape(factor: ProductFactor, extents: Mapping[str, int]) -> tuple[int, ...]:
    """The modes of a tensor of a product: its fused dimensions, the last one first."""
    return tuple(extents[name] for name in reversed(factor.indices))


def write_product(
    builder: Builder, product: BatchedProduct, memrefs: Sequence[Value], real: Scalar, started: bool
) -> int:
    """Write the body of a kernel with one gemm; gives the number of its work-groups."""
    blocks = _blocks(product)
    places: dict[str, Value] = {}
    rest = builder.builtin("group_id", Scalar("index"))
    if blocks > 1:
        count = builder.constant(blocks)
        size = builder.constant(product.extents[product.column] // blocks)
        places[product.column] = builder.arith("mul", builder.arith("rem", rest, count), size)
        rest = builder.arith("div", rest, count)
    for place, name in enumerate(reversed(product.batch)):
        extent, last = builder.constant(product.extents[name]), place == len(product.batch) - 1
        places[name] = rest if last else builder.arith("rem", rest, extent)
        rest = rest if last else builder.arith("div", rest, extent)
    views = [
        _view(builder, product, factor, memref, places, real, blocks)
        for factor, memref in zip(product.factors, memrefs, strict=True)
    ]
    one, beta = builder.constant(1.0, real), builder.constant(float(started), real)
    transposes = (
        _is_transposed(product.left, product.row, product.sum),
        _is_transposed(product.right, product.sum, product.column),
    )
    builder.put(Blas("gemm", (one, views[1], views[2], beta, views[0]), transposes))
    groups = blocks
    for name in product.batch:
        groups *= product.extents[name]
    return groups


def _blocks(product: BatchedProduct) -> int:
    """Into how many parts the columns are cut so that several threads have work: a power of two that divides them."""
    sizes = product.extents
    steps = sizes[product.row] * sizes[product.column] * sizes[product.sum]
    found = 1
    while sizes[product.column] % (2 * found) == 0 and steps // (2 * found) >= GROUP_STEPS and found < 16:
        found *= 2
    return found


def _view(
    builder: Builder,
    product: BatchedProduct,
    factor: ProductFactor,
    memref: Value,
    places: Mapping[str, Value],
    real: Scalar,
    blocks: int,
) -> Value:
    """The matrix of a tensor for one work-group."""
    shape = memref_shape(factor, product.extents)
    strides = packed_stride(shape)
    slices, sizes, kept = [], [], []
    for name, size, stride in zip(reversed(factor.indices), shape, strides, strict=True):
        if name in product.batch:
            slices.append(Slice(places[name]))
            continue
        length = size // blocks if name == product.column else size
        slices.append(Slice(places.get(name, 0), length))
        sizes.append(length)
        kept.append(stride)
    if len(slices) == len(sizes) and not places.keys() & set(factor.indices):
        return memref
    return builder.subview(memref, slices, Memref(real.name, tuple(sizes), tuple(kept)))


def _is_transposed(factor: ProductFactor, rows: str, columns: str) -> bool:
    """Whether the first mode of a matrix is not the one that gemm takes for its rows."""
    return factor.indices.index(rows) < factor.indices.index(columns)
