"""Lowering of extensions: what a program does with them, in the instructions of the specification.

- `foreach_tile` is a `parallel` region with a loop for each variable. Subgroups take turns with the tiles of the first
  one: subgroup s of n begins with tile s and goes on by n tiles.
- `builtin.group_id.y` and its like are quotients and remainders of the number of the work-group: work-groups are
  counted along x first, then along y, then along z. How many there are along x and y are two parameters more.
- `builtin.subgroup_id.x` and its like come from the number of the subgroup: subgroups are counted along the rows of the
  work-group first, then along its columns.
- `cooperative_matrix_apply` is left to the caller, because which work-item holds a component depends on their number.
  Where only the accesses of its body matter it is a loop over rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TypeAlias

from lamella.base.records import dataclass, replace
from lamella.base.source import NOWHERE, Span
from lamella.lang.tensor.check.context import defined_values
from lamella.lang.tensor.check.roles import regions_of
from lamella.lang.tensor.nodes import (
    INDEX,
    Arith,
    Builtin,
    Cast,
    Constant,
    CoopApply,
    CoopExtract,
    For,
    Foreach,
    ForeachTile,
    Function,
    If,
    Instruction,
    Parallel,
    Parameter,
    Region,
    Scalar,
    Statement,
    Value,
    Yield,
)
from lamella.lang.tensor.words import AXIS_BUILTINS, SUBGROUP_AXES

I32 = Scalar("i32")
COUNTS = ("groups_x", "groups_y")
"""The parameters that tell how many work-groups there are along x and y, if no other value has these names."""
Lower: TypeAlias = "Callable[[Statement, CoopApply], Sequence[Statement]]"
"""Writes an apply whose body has no extensions any more."""


def read_axes(function: Function) -> frozenset[str]:
    """The axes besides x along which a kernel asks for its work-group or for their number."""
    return frozenset(axis for name, axis in _axes(function) if name in AXIS_BUILTINS)


def reads_subgroup_axes(function: Function) -> bool:
    """Whether a kernel asks for the row or column of its subgroup, or for their number."""
    return any(name in SUBGROUP_AXES for name, _ in _axes(function))


def _axes(function: Function) -> Iterator[tuple[str, str]]:
    for item in _walk(function.body):
        if isinstance(item.instruction, Builtin) and "." in item.instruction.name:
            name, _, axis = item.instruction.name.partition(".")
            yield name, axis


def _columns(function: Function) -> int:
    """The columns of a work-group; one where the kernel leaves its sizes to the target."""
    found = None if function.attributes is None else function.attributes.find("work_group_size")
    items = [item for item in found if isinstance(item, int)] if isinstance(found, tuple) else []
    return items[1] if len(items) == 2 else 1


def _walk(region: Region) -> Iterator[Statement]:
    waiting = [region]
    while waiting:
        for statement in waiting.pop().statements:
            yield statement
            waiting += regions_of(statement)


def lower_extensions(function: Function, lower_apply: Lower | None = None) -> Function:
    """The function without tiles, axes and applies; without `lower_apply` the last become loops, for analysis."""
    kinds = (ForeachTile, CoopApply)
    axes = read_axes(function)
    plain = not axes and not reads_subgroup_axes(function)
    if plain and not any(isinstance(item.instruction, kinds) for item in _walk(function.body)):
        return function
    lowering = _Lowering(_names_of(function), lower_apply, columns=_columns(function))
    counts = tuple(lowering.name(name) for name in COUNTS) if axes else ()
    lowering.counts = counts
    body = lowering.region(function.body)
    added = tuple(Parameter(Value(name), INDEX) for name in counts)
    return replace(function, parameters=(*function.parameters, *added), body=body)


def _names_of(function: Function) -> set[str]:
    return {item.value.name for item in function.parameters} | {
        item.name for item in defined_values(function.body)
    }


@dataclass(slots=True)
class _Writer:
    """Statements one after the other, each with a name of its own."""

    lowering: _Lowering
    span: Span = NOWHERE
    statements: list[Statement] = field(default_factory=list)

    def put(self, instruction: Instruction, result: Value | None = None) -> Value:
        """Add an instruction with a result, whose name may be given."""
        value = result or Value(self.lowering.name("t"))
        self.statements.append(Statement((value,), instruction, self.span))
        return value

    def arith(self, function: str, *operands: Value, result: Value | None = None) -> Value:
        """Arithmetic on indices."""
        return self.put(Arith(function, operands, INDEX), result)

    def index(self, value: Value, type_: Scalar) -> Value:
        """An integer as an index."""
        return value if type_ == INDEX else self.put(Cast(value, INDEX))

    def give(self, instruction: Instruction) -> None:
        """Add an instruction without a result."""
        self.statements.append(Statement((), instruction, self.span))


@dataclass(slots=True)
class _Lowering:
    """Rewrites regions from the inside out; regions nest no deeper than the parser allows."""

    used: set[str]
    lower_apply: Lower | None
    counts: tuple[str, ...] = ()
    columns: int = 1

    def name(self, wanted: str) -> str:
        """A name that no value has."""
        name, number = wanted, 0
        while name in self.used:
            number += 1
            name = f"{wanted}{number}"
        self.used.add(name)
        return name

    def region(self, region: Region) -> Region:
        """A region without extensions."""
        statements: list[Statement] = []
        for statement in region.statements:
            statements += self._statement(statement)
        return replace(region, statements=tuple(statements))

    def _statement(self, statement: Statement) -> Sequence[Statement]:
        match statement.instruction:
            case ForeachTile() as loop:
                return self._tiles(statement, replace(loop, body=self.region(loop.body)))
            case CoopApply() as apply:
                apply = replace(apply, body=self.region(apply.body))
                lower = self._loops if self.lower_apply is None else self.lower_apply
                return lower(statement, apply)
            case For() | Foreach() | Parallel() as holder:
                inner = replace(holder, body=self.region(holder.body))
                return (replace(statement, instruction=inner),)
            case If(then=then, otherwise=otherwise) as choice:
                rest = None if otherwise is None else self.region(otherwise)
                branches = replace(choice, then=self.region(then), otherwise=rest)
                return (replace(statement, instruction=branches),)
            case Builtin() as builtin if self.counts and builtin.type == INDEX:
                return self._axis(statement, builtin)
            case Builtin() as builtin if (
                builtin.name.partition(".")[0] in SUBGROUP_AXES and "." in builtin.name
            ):
                return self._subgroup_axis(statement, builtin)
            case _:
                return (statement,)

    # --- tiles ----------------------------------------------------------------------------------------------

    def _tiles(self, statement: Statement, loop: ForeachTile) -> Sequence[Statement]:
        inner = _Writer(self, statement.span)
        tile = [inner.put(Constant(size, INDEX)) for size in loop.tile]
        begins = [inner.index(value, loop.type) for value in loop.begins]
        ends = [inner.index(value, loop.type) for value in loop.ends]
        subgroup = inner.put(Cast(inner.put(Builtin("subgroup_id", I32)), INDEX))
        count = inner.put(Cast(inner.put(Builtin("num_subgroups", I32)), INDEX))
        # The first variable becomes the innermost loop; subgroups take its tiles in turns.
        first = inner.arith("mul", subgroup, tile[0])
        begins[0] = inner.arith("add", begins[0], first)
        steps = [inner.arith("mul", count, tile[0]), *tile[1:]]
        body = loop.body.statements
        for mode, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
            body = self._tile_loop(loop, mode, (begin, end, step, tile[mode]), body, statement.span)
        inner.statements += body
        region = replace(loop.body, statements=tuple(inner.statements))
        return (replace(statement, instruction=Parallel(region)),)

    def _tile_loop(
        self,
        loop: ForeachTile,
        mode: int,
        bounds: tuple[Value, Value, Value, Value],
        body: Sequence[Statement],
        span: Span,
    ) -> tuple[Statement, ...]:
        """A loop over the tiles of one variable around what is done for each."""
        begin, end, step, largest = bounds
        plain = loop.type == INDEX
        variable = loop.variables[mode] if plain else Value(self.name("t"))
        inner = _Writer(self, span)
        left = inner.arith("sub", end, variable)
        size = inner.arith("min", left, largest, result=loop.sizes[mode] if plain else None)
        if not plain:
            inner.put(Cast(variable, loop.type), loop.variables[mode])
            inner.put(Cast(size, loop.type), loop.sizes[mode])
        region = Region((*inner.statements, *body), span)
        return (Statement((), For(variable, begin, end, region, step), span),)

    # --- axes -----------------------------------------------------------------------------------------------

    def _axis(self, statement: Statement, builtin: Builtin) -> Sequence[Statement]:
        """The number along one axis, from the number of the work-group, or of all of them."""
        name, _, axis = builtin.name.partition(".")
        # The number of a work-group is x + wide * (y + high * z).
        wide, high = (Value(item) for item in self.counts)
        out = _Writer(self, statement.span)
        result = statement.results[0] if statement.results else None
        if name == "group_size" and axis != "z":
            out.put(Cast(wide if not axis else high, INDEX), result)
            return out.statements
        whole = out.put(Builtin(name, INDEX))
        if not axis:
            out.arith("rem", whole, wide, result=result)
            return out.statements
        rest = out.arith("div", whole, wide)
        out.arith("rem" if axis == "y" else "div", rest, high, result=result)
        return out.statements

    def _subgroup_axis(self, statement: Statement, builtin: Builtin) -> Sequence[Statement]:
        """The row or column of a subgroup, or how many there are: subgroup s stands in row s mod rows."""
        name, _, axis = builtin.name.partition(".")
        out = _Writer(self, statement.span)
        result = statement.results[0] if statement.results else None
        if axis == "z" or (name == "num_subgroups" and axis == "y"):
            last = self.columns if axis == "y" else int(name == "num_subgroups")
            out.put(Constant(last, I32), result)
            return out.statements
        count, columns = out.put(Builtin("num_subgroups", I32)), out.put(Constant(self.columns, I32))
        rows = out.put(Arith("div", (count, columns), I32), result if name == "num_subgroups" else None)
        if name == "subgroup_id":
            whole = out.put(Builtin(name, I32))
            out.put(Arith("rem" if axis == "x" else "div", (whole, rows), I32), result)
        return out.statements

    # --- applies, for analysis ------------------------------------------------------------------------------

    def _loops(self, statement: Statement, apply: CoopApply) -> Sequence[Statement]:
        """The body for every row and column; nothing is known of values, and the result is any matrix."""
        out, inner = _Writer(self, statement.span), _Writer(self, statement.span)
        zero = out.put(Constant(0, I32))
        rows, columns = (out.put(Constant(size, I32)) for size in (apply.type.rows, apply.type.columns))
        inner.put(CoopExtract(apply.operand, 0, Scalar(apply.type.element)), apply.value)
        inner.statements += [
            item for item in apply.body.statements if not isinstance(item.instruction, Yield)
        ]
        body = Region(tuple(inner.statements), statement.span)
        row = _Writer(self, statement.span)
        row.give(For(apply.column, zero, columns, body, None, I32))
        out.give(For(apply.row, zero, rows, Region(tuple(row.statements), statement.span), None, I32))
        return (*out.statements, replace(statement, instruction=Cast(apply.operand, apply.type)))
