"""Instructions without regions as text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from lamella.lang.tensor import nodes as n
from lamella.lang.tensor.write.types import write_dictionary, write_number, write_type


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
