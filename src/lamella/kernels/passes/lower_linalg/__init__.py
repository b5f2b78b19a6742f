"""Linear algebra on memrefs as loops: `gemm`, `gemv` and their kind become regions of cooperative matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from lamella.base.records import dataclass
from lamella.kernels.build import Builder, names_of
from lamella.kernels.passes.lower_linalg.elements import lower_elements
from lamella.kernels.passes.lower_linalg.extents import as_value, whole_part
from lamella.kernels.passes.lower_linalg.gemm import lower_product
from lamella.kernels.passes.lower_linalg.operands import (
    GemmOperands,
    Lanes,
    RegionValues,
    Update,
    find_lanes,
    find_product,
    shared_extent,
    write_updates,
)
from lamella.kernels.passes.lower_linalg.tiles import TilePlan, plan_product
from lamella.kernels.passes.lower_linalg.warps import lower_for_warps, suits_warps
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor.check import result_types
from lamella.lang.tensor.nodes import (
    Blas,
    Constant,
    For,
    Function,
    If,
    IndexOrSize,
    Number,
    Program,
    Region,
    Statement,
    SubgroupOperation,
    Type,
    Value,
)

# --- `gemv.t` as dot products: the columns of A lie in one piece, and the lanes of a subgroup run -----------


COLUMNS = 8
"""Columns that are multiplied at once, so that each element of b is loaded once for all of them."""
SHORTEST = 16
"""Rows that are worth the sum over lanes."""

Sums: TypeAlias = list[Value]


def are_dots(blas: Blas, known: RegionValues) -> bool:
    """Whether an instruction is one of dot products of vectors that lie in one piece and are not short."""
    if blas.function != "gemv" or not blas.transposes[0]:
        return False
    matrix = known.memref(blas.operands[1])
    length = matrix.shape[0]
    return matrix.stride[0] == 1 and (length is None or length >= SHORTEST)


def write_dots(builder: Builder, blas: Blas, known: RegionValues) -> None:
    """Write dot products of the columns of A and b."""
    write_updates(builder, blas, known, _write)


def _write(builder: Builder, update: Update) -> None:
    matrix, vector = update.sources
    length = shared_extent(builder, (matrix, 0), (vector, 0))
    count = shared_extent(builder, (matrix, 1), (update.target, 0))
    full = whole_part(builder, count, COLUMNS)
    with builder.parallel() as region:
        lanes = find_lanes(region)
        if full != 0:
            _write_columns(region, update, (lanes, length), (0, full, COLUMNS))
        if full != count:
            _write_columns(region, update, (lanes, length), (full, count, 1))


def _write_columns(
    builder: Builder,
    update: Update,
    inside: tuple[Lanes, IndexOrSize],
    strip: tuple[IndexOrSize, IndexOrSize, int],
) -> None:
    """Some columns at a time; subgroups take them in turn."""
    (lanes, length), (begin, end, width) = inside, strip
    size = builder.constant(width)
    own = builder.arith("mul", lanes.subgroup, size)
    first = builder.arith("add", as_value(builder, begin), own)
    step = builder.arith("mul", lanes.subgroups, size)
    with builder.loop(first, as_value(builder, end), step) as loop:
        body = loop.body
        numbers = [body.constant(number) for number in range(width)]
        columns = [body.arith("add", loop.variable, number) for number in numbers]
        sums = _sum(body, update, lanes, (as_value(body, length), columns))
        mine = body.compare("eq", lanes.lane, body.constant(0))
        totals = [body.value(SubgroupOperation("add", "reduce", item, update.wide)) for item in sums]
        with body.condition(mine) as inner:
            for total, column in zip(totals, columns, strict=True):
                update.finish(inner, total, [column])


def _sum(builder: Builder, update: Update, lanes: Lanes, inside: tuple[Value, Sequence[Value]]) -> Sums:
    """What one lane adds up of each column: all steps in which every lane has a row, and one more."""
    length, columns = inside
    left = builder.arith("rem", length, lanes.size)
    main = builder.arith("sub", length, left)
    start = [(update.zero(builder), update.wide)] * len(columns)
    with builder.loop(builder.constant(0), main, lanes.size, start) as loop:
        row = loop.body.arith("add", loop.variable, lanes.lane)
        loop.body.give(*_add(loop.body, update, (row, columns), loop.carried))
    inside_last = builder.compare("lt", lanes.lane, left)

    def add_last(inner: Builder) -> Sums:
        return _add(inner, update, (inner.arith("add", main, lanes.lane), columns), loop.results)

    return _choose(builder, update, inside_last, add_last, loop.results)


def _add(builder: Builder, update: Update, place: tuple[Value, Sequence[Value]], before: Sums) -> Sums:
    row, columns = place
    factor = update.load(builder, 1, [row])
    sums = []
    for column, value in zip(columns, before, strict=True):
        product = builder.arith("mul", update.load(builder, 0, [row, column]), factor, type_=update.wide)
        sums.append(update.add(builder, value, product))
    return sums


def _choose(
    builder: Builder, update: Update, condition: Value, then: Callable[[Builder], Sums], otherwise: Sums
) -> Sums:
    """Values that are computed only where a condition holds."""
    first, second = builder.inner(), builder.inner()
    first.give(*then(first))
    second.give(*otherwise)
    results = [builder.names.new() for _ in otherwise]
    node = If(condition, first.region(), second.region(), (update.wide,) * len(otherwise))
    builder.put(node, results)
    return results


__all__ = ["lower_linalg"]


Planner: TypeAlias = Callable[[GemmOperands, Target], TilePlan]


def lower_linalg(program: Program, target: Target, planner: Planner = plan_product) -> Program:
    """A program without linear algebra that computes the same; a planner decides how matrix products are cut."""
    functions = tuple(_lower_function(item, target, planner) for item in program.functions)
    return replace(program, functions=functions)


def _lower_function(function: Function, target: Target, planner: Planner) -> Function:
    types: dict[str, Type] = {item.value.name: item.type for item in function.parameters}
    lanes = default_sizes(function).subgroup_size
    pass_ = _Pass(target, planner, _count_subgroups(function), lanes, types, {})
    builder = Builder(names_of(function), function.body.span)
    pass_.lower(builder, function.body)
    return replace(function, body=replace(function.body, statements=tuple(builder.statements)))


def _count_subgroups(function: Function) -> int | None:
    """The subgroups of a work-group; None where the attributes do not say."""
    attributes = function.attributes
    size = None if attributes is None else attributes.find("work_group_size")
    lanes = None if attributes is None else attributes.find("subgroup_size")
    if not isinstance(size, tuple):
        return 1
    items = [item for item in size if isinstance(item, int)]
    return items[0] * items[1] // lanes if isinstance(lanes, int) and len(items) == 2 else None


@dataclass(frozen=True, slots=True)
class _Pass:
    """The pass on one function: what is known of the values so far."""

    target: Target
    planner: Planner
    subgroups: int | None
    lanes: int
    """Work-items of a subgroup."""
    types: dict[str, Type]
    constants: dict[str, Number]

    def lower(self, builder: Builder, region: Region) -> None:
        """Write a collective region, without its linear algebra."""
        for statement in region.statements:
            instruction = statement.instruction
            if isinstance(instruction, Blas):
                builder.span = statement.span
                self._lower_blas(builder, instruction)
            else:
                builder.add_statement(self._lower_inside(builder, statement))
                self._note(statement)

    def _lower_blas(self, builder: Builder, blas: Blas) -> None:
        known = RegionValues(self.types, self.constants)
        if are_dots(blas, known):
            write_dots(builder, blas, known)
        elif blas.function in ("gemm", "gemv") and not self.target.has_threads:
            product = find_product(builder, blas, known)
            lower_product(builder, product, self.planner(product, self.target), self.subgroups)
        elif blas.function == "gemm" and suits_warps(blas, known, self.target, self.lanes):
            lower_for_warps(builder, find_product(builder, blas, known), self.subgroups)
        else:
            lower_elements(builder, blas, self.types, self.target, self.constants)

    def _lower_inside(self, builder: Builder, statement: Statement) -> Statement:
        """A statement with its collective regions lowered."""
        match statement.instruction:
            case For(variable=variable, body=body) as loop:
                self._define(variable, loop.type)
                for (value, _), type_ in zip(loop.carried, loop.types, strict=True):
                    self._define(value, type_)
                return replace(statement, instruction=replace(loop, body=self._lower_region(builder, body)))
            case If(then=then, otherwise=otherwise) as branch:
                first = self._lower_region(builder, then)
                second = None if otherwise is None else self._lower_region(builder, otherwise)
                return replace(statement, instruction=replace(branch, then=first, otherwise=second))
            case _:
                return statement

    def _lower_region(self, builder: Builder, region: Region) -> Region:
        inner = builder.inner()
        self.lower(inner, region)
        return replace(region, statements=tuple(inner.statements))

    def _note(self, statement: Statement) -> None:
        """Remember what a statement defines."""
        instruction = statement.instruction
        for value, type_ in zip(statement.results, result_types(instruction), strict=False):
            self._define(value, type_)
            if isinstance(instruction, Constant):
                self.constants[value.name] = instruction.value

    def _define(self, value: Value, type_: Type) -> None:
        """Give a name its meaning: regions side by side may use one name for different things."""
        self.types[value.name] = type_
        self.constants.pop(value.name, None)
