"""The pass that writes extensions of the language in its other instructions: tiles, axes of a launch, applies.

`cooperative_matrix_apply` is its body once for each component that a work-item holds: the component is extracted, its
row and column follow from the number of the work-item, and what the body yields is inserted. A component behind the
last column, which some work-items may have, is left out by an `if`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from lamella.kernels.build import Builder, Names, names_of
from lamella.kernels.rewrite import change_functions, copy_region, split_yield
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor import extensions
from lamella.lang.tensor.layout import component_count, component_place
from lamella.lang.tensor.nodes import (
    CoopApply,
    CoopExtract,
    CoopInsert,
    Coopmatrix,
    Function,
    If,
    Program,
    Scalar,
    Statement,
    Value,
)

I32 = Scalar("i32")


def lower_extensions(program: Program, _: Target) -> Program:
    """A program without `foreach_tile`, axes and `cooperative_matrix_apply`."""
    return change_functions(program, _lower_function)


def _lower_function(function: Function) -> Function:
    lanes, names = default_sizes(function).subgroup_size, names_of(function)

    def lower_apply(statement: Statement, apply: CoopApply) -> Sequence[Statement]:
        return _lower_apply(statement, apply, names, lanes)

    return extensions.lower_extensions(function, lower_apply)


def _lower_apply(statement: Statement, apply: CoopApply, names: Names, lanes: int) -> Sequence[Statement]:
    builder = Builder(names, statement.span)
    lane = builder.builtin("subgroup_local_id", I32)
    matrix = apply.operand
    for component in range(component_count(apply.type, lanes)):
        place = _place(builder, apply.type, lanes, lane, component)
        value = builder.value(CoopExtract(apply.operand, component, Scalar(apply.type.element)))
        held = [component_place(apply.type, lanes, item, component) for item in range(lanes)]
        if None in held:
            result = _apply_inside(builder, apply, place, value)
        else:
            result = _write_body(builder, apply, (*place, value))
        matrix = builder.value(CoopInsert(result, matrix, component, apply.type))
    *rest, last = builder.statements
    return (*rest, replace(last, results=statement.results))


def _place(
    builder: Builder, type_: Coopmatrix, lanes: int, lane: Value, component: int
) -> tuple[Value, Value]:
    """The row and the column of a work-item's component."""
    if type_.use == "matrix_b":
        number = _add(builder, lane, component * lanes)
        rows = builder.constant(type_.rows, I32)
        return builder.arith("rem", number, rows, type_=I32), builder.arith("div", number, rows, type_=I32)
    side = gcd(type_.rows, lanes)
    row, column = component_place(type_, lanes, 0, component) or (0, 0)
    if side == lanes:
        return _add(builder, lane, row), builder.constant(column, I32)
    rows = builder.constant(side, I32)
    low, high = (builder.arith(function, lane, rows, type_=I32) for function in ("rem", "div"))
    return _add(builder, low, row), _add(builder, high, column)


def _add(builder: Builder, value: Value, number: int) -> Value:
    return value if number == 0 else builder.arith("add", value, builder.constant(number, I32), type_=I32)


def _write_body(builder: Builder, apply: CoopApply, given: Sequence[Value]) -> Value:
    """A copy of the body for one component; gives what it yields."""
    names = (apply.row.name, apply.column.name, apply.value.name)
    copied = copy_region(apply.body, builder.names, dict(zip(names, given, strict=True)))
    statements, (result,) = split_yield(copied)
    for item in statements:
        builder.add_statement(item)
    return result


def _apply_inside(builder: Builder, apply: CoopApply, place: tuple[Value, Value], value: Value) -> Value:
    """The body where the component is one of the matrix, else the value as it is, which nobody takes."""
    inside = builder.compare("lt", place[1], builder.constant(apply.type.columns, I32))
    then, otherwise = builder.inner(), builder.inner()
    then.give(_write_body(then, apply, (*place, value)))
    otherwise.give(value)
    element = Scalar(apply.type.element)
    return builder.value(If(inside, then.region(), otherwise.region(), (element,)))
