"""GEMM calls that a vendor library may compute: a sum of products as one product of matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.bridge.graph_to_kernels.accesses import Access
from lamella.bridge.graph_to_kernels.tile_parameters import TileKernel
from lamella.bridge.graph_to_kernels.tiled import (
    Key,
    ProductGroup,
    Tensors,
    find_roles,
    prepare_product,
)
from lamella.kernels.build import Builder, FreshNames
from lamella.kernels.native_products import ATTRIBUTES
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Blas, Memref, Parameter, Scalar, Value
from lamella.lang.tensor.nodes.types import make_memref
from lamella.ops.formula import Apply, Element
from lamella.ops.formula import Scalar as Term

FACTORS = ("f32", "bf16", "f16")
"""Types of factors that libraries multiply, both the same; sums are those of f32, and no TF32."""
OUTPUTS = {"f32": ("f32",), "bf16": ("bf16", "f32"), "f16": ("f16", "f32")}
"""The types in which they store the sums of each."""
LEFT, RIGHT, OUTPUT = Value("a"), Value("b"), Value("c")


def write_native_product(group: ProductGroup, tensors: Tensors, real: Scalar, target: Target) -> TileKernel:
    """One kernel that is a single `gemm` instruction; Unsupported says why the product is none."""
    if not target.has_threads:
        raise Unsupported("there is no library for it")
    found = prepare_product(group, tensors, real)
    if found.scales or any(map(is_open, found.extents.values())) or len(found.stored) != 1:
        raise Unsupported("it is more than a product of matrices")
    if not _is_sum(found.epilogues[0].formula.values[0], group.product.targets[0].tensor):
        raise Unsupported("its output is more than the sum")
    roles, flipped = find_roles(found.outputs, *found.factors, found.extents, set())
    if roles.batch or not set(roles.sums) <= found.extents.keys() or not roles.columns:
        raise Unsupported("it is no one product of matrices")
    left, right, output = found.factors[flipped], found.factors[not flipped], found.outputs[0]
    if left.element != right.element or output.element not in OUTPUTS.get(left.element, ()):
        raise Unsupported("its types are none of a library")
    rows, columns = (roles.row,), roles.columns
    sums = sorted(roles.sums, key=lambda name: -left.stride(name))
    a, turned_a = _matrix(left, rows, sums, found.extents)
    b, turned_b = _matrix(right, sums, columns, found.extents)
    c, turned_c = _matrix(output, rows, columns, found.extents)
    if turned_c:
        raise Unsupported("rows do not lie closest in its output")
    end = found.epilogues[0]
    keys = (end.keys[id(end.formula.targets[0])], found.keys[flipped], found.keys[not flipped])
    return _write((c, a, b), keys, (turned_a, turned_b))


def _write(types: Sequence[Memref], keys: tuple[Key, ...], transposed: tuple[bool, bool]) -> TileKernel:
    values = (OUTPUT, LEFT, RIGHT)
    builder = Builder(FreshNames({item.name for item in values}))
    one = builder.constant(1.0, Scalar(types[1].element))
    zero = builder.constant(0.0, Scalar(types[0].element))
    builder.put(Blas("gemm", (one, LEFT, RIGHT, zero, OUTPUT), transposed))
    parameters = tuple(Parameter(value, type_) for value, type_ in zip(values, types, strict=True))
    return TileKernel(parameters, keys, builder.region(), 1, ATTRIBUTES)


def _is_sum(term: Term, total: str) -> bool:
    """Whether a term is the sum itself, or the sum and nothing."""
    if isinstance(term, Element):
        return term.tensor == total
    if not isinstance(term, Apply) or term.function != "+" or 0.0 not in term.operands:
        return False
    return any(_is_sum(item, total) for item in term.operands if not isinstance(item, float))


def _matrix(
    access: Access, lines: Sequence[str], others: Sequence[str], extents: Mapping[str, int]
) -> tuple[Memref, bool]:
    """A tensor as a matrix that some loops count along its rows and others along its columns; whether it is transposed.

    The steps of loops that are one dimension lie in a row, the last loop closest.
    """
    if access.loops() != {*lines, *others} or any(axis.ring for axis in access.axes):
        raise Unsupported("a tensor is no matrix")
    if any(axis.index.constant for axis in access.axes):
        raise Unsupported("a tensor has a border")
    sizes = prod(extents[name] for name in lines), prod(extents[name] for name in others)
    steps = [_step(access, loops, extents) for loops in (lines, others)]
    if steps[0] == 1 and steps[1] >= sizes[0]:
        return make_memref(access.element, sizes, (1, steps[1])), False
    if steps[1] == 1 and steps[0] >= sizes[1]:
        return make_memref(access.element, sizes[::-1], (1, steps[0])), True
    raise Unsupported("neither rows nor columns lie closest, or they overlap")


def _step(access: Access, loops: Sequence[str], extents: Mapping[str, int]) -> int:
    """How far apart the steps of several loops are that count one dimension; Unsupported where they are not alike."""
    *others, last = loops
    step, reach = access.stride(last), extents[last]
    for name in reversed(others):
        if access.stride(name) != step * reach:
            raise Unsupported("a dimension of a matrix has gaps")
        reach *= extents[name]
    return step
