"""Tensor language nodes to canonical text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import singledispatch

from lamella.base.card import Card, join_names, make_table
from lamella.base.lines import Lines
from lamella.base.source import Trivia
from lamella.lang.tensor import nodes as n
from lamella.lang.tensor.nodes import (
    Attribute,
    CoopApply,
    Coopmatrix,
    Dictionary,
    For,
    Foreach,
    ForeachTile,
    Function,
    Group,
    If,
    Memref,
    Number,
    Parallel,
    Parameter,
    Program,
    Region,
    Scalar,
    Size,
    Statement,
    Text,
    Type,
    packed_stride,
)
from lamella.lang.tensor.nodes.types import KEYS

# --- types, attributes and numbers as text ------------------------------------------------------------------


def write_type(type_: Type) -> str:
    """A type; strides that are packed and the global address space go without saying."""
    if isinstance(type_, Scalar):
        return type_.name
    if isinstance(type_, Memref):
        return _memref(type_)
    if isinstance(type_, Group):
        offset = "" if type_.offset == 0 else f", offset: {write_size(type_.offset)}"
        return f"group<{_memref(type_.memref)}x{write_size(type_.size)}{offset}>"
    return _coopmatrix(type_)


def card_of_kernels(name: str, program: Program) -> Card:
    """The kernels of a program for people: their names and parameters."""
    names = [item.name for item in program.functions]
    rows = (
        (item.name, ", ".join(f"%{one.value.name}: {write_type(one.type)}" for one in item.parameters))
        for item in program.functions
    )
    table = make_table("kernels", ("kernel", "parameters"), rows, len(names))
    facts = (("kernels", f"{len(names):,}"), ("names", join_names(names)))
    return Card("kernels", f"of {name}" if name else "", facts, (table,))


def write_types(types: Iterable[Type]) -> str:
    """The types of results: `(i64,f32)`."""
    return f"({','.join(map(write_type, types))})"


def _memref(type_: Memref) -> str:
    shape = "".join(f"x{write_size(size)}" for size in type_.shape)
    is_packed = type_.stride == packed_stride(type_.shape)
    stride = "" if is_packed else f",strided<{','.join(map(write_size, type_.stride))}>"
    return f"memref<{type_.element}{shape}{stride}{',local' * type_.local}>"


def _coopmatrix(type_: Coopmatrix) -> str:
    return f"coopmatrix<{type_.element}x{type_.rows}x{type_.columns},{type_.use}>"


def write_size(size: Size) -> str:
    """A size or stride; one that only the run knows is `?`."""
    return "?" if size is None else str(size)


def write_number(value: Number) -> str:
    """A constant; floating-point numbers are written in hexadecimal, so that nothing of them is lost."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{_real(value[0])},{_real(value[1])}]"
    return str(value) if isinstance(value, int) else _real(value)


def _real(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    mantissa, _, exponent = value.hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"


def write_dictionary(node: Dictionary) -> str:
    """`{key=value, …}`."""
    entries = (f"{_key(item.key)}={write_attribute(item.value)}" for item in node.entries)
    return f"{{{', '.join(entries)}}}"


def _key(key: str) -> str:
    return key if key in KEYS else f'"{key}"'


def write_attribute(value: Attribute) -> str:
    """The value of an attribute."""
    if isinstance(value, Dictionary):
        return write_dictionary(value)
    if isinstance(value, Text):
        return f'"{value.value}"'
    if isinstance(value, tuple):
        return f"[{','.join(map(write_attribute, value))}]"
    return write_number(value)


# --- instructions without regions as text -------------------------------------------------------------------


def values(items: Iterable[n.Value]) -> str:
    """Operands with a comma and a blank between them."""
    return ", ".join(f"%{item.name}" for item in items)


def close_values(items: Iterable[n.Value]) -> str:
    """Indices and names with a comma between them."""
    return ",".join(f"%{item.name}" for item in items)


def index_or_size(item: n.IndexOrSize) -> str:
    """A value or a number."""
    return f"%{item.name}" if isinstance(item, n.Value) else str(item)


@singledispatch
def write_instruction(node: n.Instruction) -> str:
    """The text of an instruction; of one that holds regions, it is written line by line elsewhere."""
    raise TypeError(f"{type(node).__name__} holds regions or is no instruction")


@write_instruction.register
def _(node: n.Constant) -> str:
    return f"constant {write_number(node.value)} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.Arith) -> str:
    return f"arith.{node.function} {values(node.operands)} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.Compare) -> str:
    return f"cmp.{node.function} {values((node.left, node.right))} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.Math) -> str:
    return f"math.{node.function} {values(node.operands)} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.Cast) -> str:
    return f"cast %{node.operand.name} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.Builtin) -> str:
    return f"builtin.{node.name} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.Load) -> str:
    return f"load %{node.operand.name}[{close_values(node.indices)}] : {write_type(node.type)}"


@write_instruction.register
def _(node: n.Store) -> str:
    head = f"store{_dotted(node.flag)} %{node.value.name}"
    return f"{head}, %{node.operand.name}[{close_values(node.indices)}]"


@write_instruction.register
def _(node: n.SizeOf) -> str:
    return f"size %{node.operand.name}[{node.mode}] : {write_type(node.type)}"


@write_instruction.register
def _(node: n.Subview) -> str:
    slices = ",".join(map(_slice, node.slices))
    return f"subview %{node.operand.name}[{slices}] : {write_type(node.type)}"


@write_instruction.register
def _(node: n.Expand) -> str:
    sizes = " x ".join(map(index_or_size, node.sizes))
    return f"expand %{node.operand.name}[{node.mode}->{sizes}] : {write_type(node.type)}"


@write_instruction.register
def _(node: n.Fuse) -> str:
    return f"fuse %{node.operand.name}[{node.first},{node.last}] : {write_type(node.type)}"


@write_instruction.register
def _(node: n.Barrier) -> str:
    return f"barrier{'.global' * node.on_global}{'.local' * node.on_local}"


@write_instruction.register
def _(node: n.Yield) -> str:
    return f"yield ({values(node.values)})"


@write_instruction.register
def _(node: n.Alloca) -> str:
    attributes = "" if node.attributes is None else f" {write_dictionary(node.attributes)}"
    space = "" if node.type.local else ",global"
    return f"alloca{attributes} : {write_type(node.type)[:-1]}{space}>"


@write_instruction.register
def _(node: n.LifetimeStop) -> str:
    return f"lifetime_stop %{node.operand.name}"


@write_instruction.register
def _(node: n.Blas) -> str:
    modifiers = "".join(map(_transpose, node.transposes)) + ".atomic" * node.atomic
    operands = [f"%{item.name}" for item in node.operands]
    if node.mode is not None:
        operands.insert(2, str(node.mode))
    return f"{node.function}{modifiers} {', '.join(operands)}"


@write_instruction.register
def _(node: n.CoopLoad) -> str:
    modifiers = _transpose(node.transposed) + _checked(node.checked)
    place = f"%{node.operand.name}[{close_values((node.row, node.column))}]"
    return f"cooperative_matrix_load{modifiers} {place} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.CoopMulAdd) -> str:
    operands = values((node.left, node.right, node.accumulator))
    return f"cooperative_matrix_mul_add {operands} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.CoopScale) -> str:
    operands = values((node.scalar, node.operand))
    return f"cooperative_matrix_scale {operands} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.CoopStore) -> str:
    head = f"cooperative_matrix_store{_checked(node.checked)}{_dotted(node.flag)} %{node.value.name}"
    return f"{head}, %{node.operand.name}[{close_values((node.row, node.column))}]"


@write_instruction.register
def _(node: n.CoopConstruct) -> str:
    return f"cooperative_matrix_construct %{node.scalar.name} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.CoopReduce) -> str:
    head = f"cooperative_matrix_reduce_{node.function}.{node.mode}"
    return f"{head} %{node.operand.name} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.CoopExtract) -> str:
    place = f"%{node.operand.name}[{node.component}]"
    return f"cooperative_matrix_extract {place} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.CoopInsert) -> str:
    place = f"%{node.scalar.name}, %{node.operand.name}[{node.component}]"
    return f"cooperative_matrix_insert {place} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.AtomicUpdate) -> str:
    head = f"atomic_{node.function} %{node.value.name}"
    return f"{head}, %{node.operand.name}[{close_values(node.indices)}] : {write_type(node.type)}"


@write_instruction.register
def _(node: n.SubgroupBroadcast) -> str:
    return f"subgroup_broadcast {values((node.operand, node.lane))} : {write_type(node.type)}"


@write_instruction.register
def _(node: n.SubgroupOperation) -> str:
    return f"subgroup_{node.function}.{node.form} %{node.operand.name} : {write_type(node.type)}"


def _slice(node: n.Slice) -> str:
    """`offset:size`; a size of 0 is not written."""
    size = "" if node.size == 0 else f":{index_or_size(node.size)}"
    return f"{index_or_size(node.offset)}{size}"


def _transpose(transposed: bool) -> str:
    return ".t" if transposed else ".n"


def _checked(checked: str) -> str:
    return f".{checked}_checked" if checked else ""


def _dotted(flag: str) -> str:
    return f".{flag}" if flag else ""


# --- programs, functions and regions as lines ---------------------------------------------------------------


class TensorWriter(Lines):
    """Writes a program from its first function to its last, one instruction on a line."""

    indent = "  "

    def program(self, node: Program) -> str:
        """The text of a program; a blank line stands between its functions."""
        for function in node.functions:
            self.function(function)
        if node.end.above:
            self.above(node.end)
        return self.text()

    # --- functions ------------------------------------------------------------------------------------------

    def function(self, node: Function) -> None:
        """Write a function, its parameters one below the other."""
        self.place(node.notes, _head_lines(node), apart=True)
        self.level += 1
        self.inside(node.body)
        self.close_block(node.body.end, "}")

    # --- regions --------------------------------------------------------------------------------------------

    def inside(self, node: Region) -> None:
        """Write the statements of a region; it does not begin with a blank line."""
        for index, statement in enumerate(node.statements):
            notes = statement.notes
            self.statement(statement, replace(notes, blank=False) if index == 0 else notes)

    def statement(self, node: Statement, notes: Trivia) -> None:
        """Write a statement with its notes."""
        results = f"{close_values(node.results)} = " if node.results else ""
        match node.instruction:
            case For() as loop:
                self.open_block(notes, results + _for_head(loop))
                tail = "" if loop.attributes is None else f" {write_dictionary(loop.attributes)}"
                self.rest(loop.body, "}" + tail)
            case Foreach() as loop:
                self.open_block(notes, results + _foreach_head(loop))
                self.rest(loop.body, "}")
            case ForeachTile() as loop:
                self.open_block(notes, results + _tile_head(loop))
                self.rest(loop.body, "}")
            case CoopApply() as apply:
                self.open_block(notes, results + _apply_head(apply))
                self.rest(apply.body, "}")
            case Parallel() as parallel:
                self.open_block(notes, f"{results}parallel {{")
                self.rest(parallel.body, "}")
            case If() as branch:
                self.branch(branch, notes, results)
            case instruction:
                self.place(notes, [self.indent * self.level + results + write_instruction(instruction)])

    def rest(self, node: Region, end: str) -> None:
        """Write what is inside a region and the line that closes it."""
        self.inside(node)
        self.close_block(node.end, end)

    def branch(self, node: If, notes: Trivia, results: str) -> None:
        """Write a branch; `} else {` stands on one line."""
        types = f" -> {write_types(node.types)}" if node.types else ""
        self.open_block(notes, f"{results}if %{node.condition.name}{types} {{")
        if node.otherwise is None:
            self.rest(node.then, "}")
            return
        self.rest(node.then, "} else {")
        self.level += 1
        self.rest(node.otherwise, "}")


def _head_lines(node: Function) -> list[str]:
    """The lines from `func` to the brace, with the comments beside the parameters."""
    start = f"func @{node.name}("
    attributes = "" if node.attributes is None else f" attributes{write_dictionary(node.attributes)}"
    end = f"){attributes} {{"
    if not node.parameters:
        return [start + end]
    margin = " " * len(start)
    lines: list[str] = []
    for left, parameter in zip(range(len(node.parameters))[::-1], node.parameters, strict=True):
        lines += [margin + line for line in parameter.notes.above if line]
        comma = "," if left else ""
        behind = f"  {parameter.notes.behind}" if parameter.notes.behind else ""
        lines.append(f"{margin}{_parameter(parameter)}{comma}{behind}")
    lines[:1] = [start, lines[0]] if node.parameters[0].notes.above else [start + lines[0].lstrip()]
    if node.parameters[-1].notes.behind:
        return [*lines, margin[:-1] + end]
    return [*lines[:-1], lines[-1] + end]


def _parameter(node: Parameter) -> str:
    attributes = "" if node.attributes is None else f" {write_dictionary(node.attributes)}"
    return f"%{node.value.name}: {write_type(node.type)}{attributes}"


def _for_head(node: For) -> str:
    bounds = [node.begin, node.end] + ([] if node.step is None else [node.step])
    head = f"for %{node.variable.name}:{node.type.name}={close_values(bounds)}"
    if node.carried:
        pairs = ",".join(f"%{name.name}=%{start.name}" for name, start in node.carried)
        head += f" init({pairs}) -> {write_types(node.types)}"
    return head + " {"


def _foreach_head(node: Foreach) -> str:
    lists = ",".join(f"({close_values(items)})" for items in (node.begins, node.ends))
    return f"foreach ({close_values(node.variables)}):{node.type.name}={lists} {{"


def _tile_head(node: ForeachTile) -> str:
    head = _foreach_head(Foreach(node.variables, node.begins, node.ends, node.body, node.type))
    tile = f"({close_values(node.sizes)})<=({','.join(map(str, node.tile))})"
    return f"{head.replace('foreach', 'foreach_tile', 1)[:-1]}as {tile} {{"


def _apply_head(node: CoopApply) -> str:
    values = close_values((node.row, node.column, node.value))
    return f"cooperative_matrix_apply ({values})=%{node.operand.name} -> {write_type(node.type)} {{"


__all__ = ["write", "write_dictionary", "write_instruction", "write_type"]


def write(program: Program) -> str:
    """The canonical text of a program: `parse` of it is an equal program, and `write` of that the same text."""
    return TensorWriter().program(program)
