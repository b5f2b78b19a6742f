"""Work-group and subgroup sizes: what a kernel asks for, else what fits its shapes and the registers of a target."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.kernels.rewrite import count_statements, extracted_matrices, walk
from lamella.kernels.target import Target
from lamella.lang.tensor import result_types
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.extensions import reads_subgroup_axes
from lamella.lang.tensor.layout import component_count
from lamella.lang.tensor.nodes import (
    Blas,
    CoopApply,
    CoopExtract,
    CoopInsert,
    Function,
    Memref,
    Size,
    Type,
)
from lamella.lang.tensor.nodes.types import COMPLEX
from lamella.lang.tensor.rules import running as rules
from lamella.lang.tensor.rules.types import WORK_GROUP_MULTIPLE
from lamella.lang.tensor.write import write_type

USUAL_SIZES = (1, 2, 4, 8, 16)
"""Subgroup sizes where no target is chosen; the last is the default."""
LARGEST_DEPTH = 8
"""Columns of A and rows of B that are held in registers at once."""
MOST_APPLIED = 1 << 15
"""Statements that the body of an apply may become, which is written for each component of a work-item."""
ACCUMULATED = {"i8": "i32", "bf16": "f32", "f16": "f32"}
"""The types that products of small elements are summed in."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that a kernel runs with."""

    subgroup_size: int
    work_group_size: tuple[int, int]


@dataclass(frozen=True, slots=True)
class BlasShape:
    """The shape of a linear algebra instruction, by which sizes are chosen: its output and its element types."""

    rows: Size
    columns: Size
    """0 for a vector."""
    elements: tuple[str, str, str]
    """Those of A, of B and of the output; an instruction without B has that of the output for it."""
    is_gemm: bool = False


# --- what a kernel computes ---------------------------------------------------------------------------------


def blas_shapes(function: Function) -> list[BlasShape]:
    """One shape for each linear algebra instruction of a kernel, in order."""
    statements = list(walk(function.body))
    if not any(isinstance(item.instruction, Blas) for item in statements):
        return []
    types: dict[str, Type] = {item.value.name: item.type for item in function.parameters}
    found: list[BlasShape] = []
    # names may come again in another region; the type at hand is that of the last definition
    for statement in statements:
        if isinstance(statement.instruction, Blas):
            found += _shape(statement.instruction, types)
        results = result_types(statement.instruction)
        types.update((value.name, type_) for value, type_ in zip(statement.results, results, strict=False))
    return found


def _shape(blas: Blas, types: dict[str, Type]) -> Iterator[BlasShape]:
    found = [types.get(value.name) for value in blas.operands]
    memrefs = [item for item in found if isinstance(item, Memref)]
    if memrefs:
        target = memrefs[-1]
        right = memrefs[1] if len(memrefs) > 2 else target
        rows, columns = [*target.shape, 0, 0][:2]
        elements = (memrefs[0].element, right.element, target.element)
        yield BlasShape(rows, columns, elements, blas.function == "gemm")


# --- subgroups ----------------------------------------------------------------------------------------------


def subgroup_size(function: Function, target: Target) -> int:
    """The subgroup size of a kernel: its attribute, else by the shapes of its instructions."""
    asked = _asked_subgroup(function)
    return fitting_subgroup_size(blas_shapes(function), target) if asked is None else asked


def fitting_subgroup_size(shapes: Sequence[BlasShape], target: Target) -> int:
    """The subgroup size that fits shapes: no larger than registers allow, as large as the rows need."""
    if target.default_subgroup_size is not None:
        return target.default_subgroup_size
    if target.matrix_subgroup_size is not None and any(_is_matrix_product(item, target) for item in shapes):
        return target.matrix_subgroup_size
    if not shapes:
        return target.subgroup_sizes[-1]
    kept = _kept_sizes(shapes, target)
    rows = [item.rows for item in shapes]
    if None in rows:
        return kept[-1]
    largest = max(row for row in rows if row is not None)
    return next((size for size in kept if size >= largest), kept[-1])


def _is_matrix_product(shape: BlasShape, target: Target) -> bool:
    left, right, output = shape.elements
    summed = ACCUMULATED.get(output, output)
    return shape.is_gemm and any(item.elements == (left, right, summed) for item in target.matrix_shapes)


def _kept_sizes(shapes: Sequence[BlasShape], target: Target) -> tuple[int, ...]:
    widest = max(BYTES[item.elements[2]] for item in shapes)
    least = target.subgroup_sizes[:1]
    if widest >= 8:
        return least
    most = math.isqrt(target.register_space // 2 // widest)
    return tuple(size for size in target.subgroup_sizes if size <= most) or least


# --- work-groups --------------------------------------------------------------------------------------------


def register_block(shape: BlasShape, size: int, space: int) -> tuple[int, int]:
    """Rows and columns of the output that a subgroup of a size holds in half of its register space.

    Rows are a multiple of the subgroup size; the block is the one that needs the fewest loads for each product.
    """
    left, right, output = (BYTES[name] for name in shape.elements)
    output = BYTES[ACCUMULATED.get(shape.elements[2], shape.elements[2])] if shape.is_gemm else output
    copies = 2 if shape.elements[2] in COMPLEX else 1
    best, best_score = (size, 1), 0.0
    for rows in range(size, space, size):
        free = space // 2 - rows * LARGEST_DEPTH * left
        columns = free // (rows * output * copies + LARGEST_DEPTH * right)
        if columns < 1:
            break
        score = rows * columns / (rows + columns)
        if score > best_score:
            best, best_score = (rows, columns), score
    return best


def tiling(shape: BlasShape, block: tuple[int, int], most: int) -> tuple[int, int]:
    """How many subgroups share the rows and the columns of an output, powers of two, `most` of them in all."""
    pairs = ((shape.rows, block[0]), (shape.columns, block[1]))
    tiles = [most if size is None else -(-size // part) for size, part in pairs]
    best, best_score = (1, 1), 0.0
    m = 1
    while m <= min(most, max(1, tiles[0])):
        n = 1 << (max(1, min(tiles[1], most // m)).bit_length() - 1)
        rows, columns = m * block[0], n * block[1]
        score = rows * columns / (rows + columns)
        if score > best_score:
            best, best_score = (m, n), score
        m *= 2
    return best


def fitting_work_group(shapes: Sequence[BlasShape], target: Target, size: int) -> tuple[int, int]:
    """The work-group that fits the shape with the most tiles."""
    if target.subgroups_per_group is not None:
        return size * target.subgroups_per_group, 1
    most = target.max_subgroups(size)
    tilings = [tiling(item, register_block(item, size, target.register_space), most) for item in shapes]
    m, n = max(tilings, key=math.prod, default=(1, 1))
    return m * size, n


# --- the choice ---------------------------------------------------------------------------------------------


def choose_sizes(function: Function, target: Target) -> Sizes:
    """The sizes of a kernel on a target: its attributes where it has them, else what fits its shapes."""
    shapes = blas_shapes(function)
    size = _settle_subgroup(function, fitting_subgroup_size(shapes, target), target.subgroup_sizes)
    rows, columns = _asked_work_group(function) or fitting_work_group(shapes, target, size)
    if _asked_work_group(function) is None and reads_subgroup_axes(function):
        rows, columns = rows * columns, 1  # as it is taken where no target is chosen
    return Sizes(size, (rows, columns))


def default_sizes(function: Function) -> Sizes:
    """The sizes of a kernel where no target is chosen: its attributes, else 16 and one subgroup."""
    size = _settle_subgroup(function, USUAL_SIZES[-1], USUAL_SIZES)
    return Sizes(size, _asked_work_group(function) or (size, 1))


def _settle_subgroup(function: Function, fitting: int, sizes: Sequence[int]) -> int:
    """The subgroup size that is asked for; else the fitting one, or the nearest that divides the work-group's rows."""
    asked, group = _asked_subgroup(function), _asked_work_group(function)
    if asked is not None:
        return asked
    if group is None or group[0] % fitting == 0:
        return fitting
    dividing = [size for size in sizes if group[0] % size == 0]
    smaller = [size for size in dividing if size < fitting]
    return max(smaller) if smaller else min(dividing, default=fitting)


def _asked_subgroup(function: Function) -> int | None:
    found = None if function.attributes is None else function.attributes.find("subgroup_size")
    return found if isinstance(found, int) else None


def _asked_work_group(function: Function) -> tuple[int, int] | None:
    found = None if function.attributes is None else function.attributes.find("work_group_size")
    items = [item for item in found if isinstance(item, int)] if isinstance(found, tuple) else []
    return (items[0], items[1]) if len(items) == 2 else None


# --- what a target does not have ----------------------------------------------------------------------------


def check_sizes(function: Function, target: Target) -> list[Diagnostic]:
    """Findings on the sizes that a kernel asks for on a target."""
    sizes = choose_sizes(function, target)
    return list(_wrong_sizes(function, sizes, target)) or list(
        _wrong_components(function, sizes.subgroup_size)
    )


def _wrong_sizes(function: Function, sizes: Sizes, target: Target) -> Iterator[Diagnostic]:
    name, size, (rows, columns) = function.name, sizes.subgroup_size, sizes.work_group_size
    if size not in target.subgroup_sizes:
        known = ", ".join(map(str, target.subgroup_sizes))
        span = _place(function, "subgroup_size")
        yield rules.NO_SUBGROUP_SIZE.at(span, name=name, size=size, target=target.name, sizes=known)
    elif rows % size:
        yield WORK_GROUP_MULTIPLE.at(_place(function, "work_group_size"), rows=rows, size=size)
    items, limit = rows * columns, target.max_work_group_size
    if items > limit:
        span = _place(function, "work_group_size")
        yield rules.TARGET_WORK_GROUP.at(span, name=name, items=items, target=target.name, limit=limit)


def _wrong_components(function: Function, lanes: int) -> Iterator[Diagnostic]:
    """Components that no work-item of a subgroup of this size has, and applies whose code would be too long."""
    matrices = extracted_matrices(function)
    for statement in walk(function.body):
        node = statement.instruction
        if isinstance(node, CoopApply):
            count = component_count(node.type, lanes) * count_statements(node.body.statements)
            if count > MOST_APPLIED:
                shown = write_type(node.type)
                yield rules.APPLY_CODE.at(statement.span, count=count, limit=MOST_APPLIED, type=shown)
        if isinstance(node, CoopExtract | CoopInsert):
            type_ = node.type if isinstance(node, CoopInsert) else matrices[id(node)]
            held = component_count(type_, lanes)
            if not 0 <= node.component < held:
                yield rules.NO_COMPONENT.at(
                    statement.span,
                    component=node.component,
                    type=write_type(type_),
                    count=held,
                    lanes=lanes,
                    place="",
                )


def _place(function: Function, key: str) -> Span:
    """Where an attribute is given; the function where it is not."""
    entries = () if function.attributes is None else function.attributes.entries
    return next((item.span for item in entries if item.key == key), function.span)
