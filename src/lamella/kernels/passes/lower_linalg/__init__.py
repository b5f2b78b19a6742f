"""Linear algebra on memrefs as loops: `gemm`, `gemv` and their kind become regions of cooperative matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from lamella.kernels.build import Builder, names_of
from lamella.kernels.passes.lower_linalg.dots import are_dots, write_dots
from lamella.kernels.passes.lower_linalg.elements import lower_elements
from lamella.kernels.passes.lower_linalg.gemm import lower_product
from lamella.kernels.passes.lower_linalg.operands import Known, Product, find_product
from lamella.kernels.passes.lower_linalg.tiles import Plan, plan_product
from lamella.kernels.target import Target
from lamella.lang.tensor.check import result_types
from lamella.lang.tensor.nodes import (
    Blas,
    Constant,
    For,
    Function,
    If,
    Number,
    Program,
    Region,
    Statement,
    Type,
    Value,
)

__all__ = ["lower_linalg"]


Planner: TypeAlias = Callable[[Product, Target], Plan]


def lower_linalg(program: Program, target: Target, planner: Planner = plan_product) -> Program:
    """A program without linear algebra that computes the same; a planner decides how matrix products are cut."""
    functions = tuple(_lower_function(item, target, planner) for item in program.functions)
    return replace(program, functions=functions)


def _lower_function(function: Function, target: Target, planner: Planner) -> Function:
    types: dict[str, Type] = {item.value.name: item.type for item in function.parameters}
    pass_ = _Pass(target, planner, _count_subgroups(function), types, {})
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
        known = Known(self.types, self.constants)
        if are_dots(blas, known):
            write_dots(builder, blas, known)
        elif blas.function in ("gemm", "gemv") and not self.target.has_threads:
            product = find_product(builder, blas, known)
            lower_product(builder, product, self.planner(product, self.target), self.subgroups)
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
