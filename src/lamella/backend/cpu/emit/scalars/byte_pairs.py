"""Packed conversion of 8-bit reals on a GPU: one instruction widens two of them.

Two that lie side by side are loaded as one number of 16 bits: LLVM makes wide loads of those as of any others, and the
instruction takes its half of a register as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.memory.addresses import VectorAddress, address, first_pointer, load_vector
from lamella.backend.cpu.emit.values import MemrefValue, ScalarValue
from lamella.lang.tensor.nodes import Arith, Constant, Instruction, Load, Scalar, Statement
from lamella.lang.tensor.nodes.types import STORED_FLOATS

WORDS = {"f8e4m3": "e4m3x2", "f8e5m2": "e5m2x2"}
"""What PTX calls two of them."""
PAIR_BYTES = 2
REALS = tuple(Scalar(item) for item in WORDS)


def note_pairs(context: EmitContext, statements: Sequence[Statement]) -> None:
    """Find neighbouring loads of a region, two by two."""
    if not (context.threads and context.target.widens_bytes):
        return
    loads = [
        (item.results[0].name, item.instruction)
        for item in statements
        if isinstance(item.instruction, Load) and item.instruction.type in REALS
    ]
    if not loads:
        return
    made = {item.results[0].name: item.instruction for item in statements if item.results}
    taken = ""
    for (first, one), (second, other) in pairwise(loads):
        if first != taken and _are_neighbours(context, made, one, other):
            context.pairs[first] = taken = second


def _are_neighbours(context: EmitContext, made: Mapping[str, Instruction], one: Load, other: Load) -> bool:
    """Whether the second of two loads is that of the next element."""
    if one.operand != other.operand or not one.indices or one.indices[1:] != other.indices[1:]:
        return False
    (base, begin), (same, end) = (_place(context, made, item.indices[0].name) for item in (one, other))
    return base == same and end == begin + 1


def _place(context: EmitContext, made: Mapping[str, Instruction], name: str) -> tuple[str, int]:
    """An index as another one, and how many elements it lies behind that."""
    behind = 0
    while isinstance(found := made.get(name), Arith) and found.function == "add":
        left, right = (item.name for item in found.operands)
        counts = {base: _number(context, made, step) for base, step in ((left, right), (right, left))}
        base = next((item for item, count in counts.items() if count is not None), None)
        if base is None:
            break
        name, behind = base, behind + (counts[base] or 0)
    return name, behind


def _number(context: EmitContext, made: Mapping[str, Instruction], name: str) -> int | None:
    """An integer that is known."""
    found, known = made.get(name), context.values.get(name)
    if found is None and isinstance(known, ScalarValue):
        return known.constant if isinstance(known.constant, int) else None
    return found.value if isinstance(found, Constant) and isinstance(found.value, int) else None


def load_pair(context: EmitContext, statement: Statement) -> bool:
    """Load two neighbours at once where the first of them is loaded; tells whether a load is done by that."""
    load = statement.instruction
    if not isinstance(load, Load):
        return False
    name = statement.results[0].name
    if name in context.joined:
        return True
    second, memory = context.pairs.get(name), context.values[load.operand.name]
    if second is None or not isinstance(memory, MemrefValue):
        return False
    if memory.strides[0].constant != 1 or not memory.fixed:  # somebody may write between the loads
        return False
    place = address(context, memory, [context.scalar(item.name) for item in load.indices])
    if place.step != 0 or place.alignment < PAIR_BYTES:
        return False
    out, pointer = context.out, first_pointer(context, place)
    both = load_vector(context, VectorAddress("i16", 1, pointer, place.alignment))
    low, high = out.value(f"trunc i16 {both} to i8"), out.value(f"lshr i16 {both}, 8")
    parts = low, out.value(f"trunc i16 {high} to i8")
    for half, (own, part) in enumerate(zip((name, second), parts, strict=True)):
        context.values[own] = ScalarValue(place.element, (part,))
        context.joined[own] = both, half
    return True


def widen_byte(context: EmitContext, name: str) -> ScalarValue | None:
    """A real of 8 bits in single precision, exact, with its neighbour; None where there is no such instruction."""
    value = context.values[name]
    if not isinstance(value, ScalarValue) or value.element not in STORED_FLOATS or not context.threads:
        return None
    if not context.target.widens_bytes:
        return None
    out = context.out
    bits, half = context.joined.get(name, ("", 0))
    bits = bits or out.value(f"zext i8 {value.operand} to i16")
    key = bits, out.block
    if key not in context.widened:
        instruction = f"cvt.rn.f16x2.{WORDS[value.element]} $0, $1;"
        both = out.value(f'call i32 asm "{instruction}", "=r,h"(i16 {bits})')
        context.widened[key] = out.value(f"bitcast i32 {both} to <2 x half>")
    found = out.value(f"extractelement <2 x half> {context.widened[key]}, i64 {half}")
    return ScalarValue("f32", (out.value(f"fpext half {found} to float"),))
