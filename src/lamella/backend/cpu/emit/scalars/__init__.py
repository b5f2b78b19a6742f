"""Scalars in LLVM text: constants, arithmetic, comparisons and casts, for lanes and for cooperative matrices."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import gcd
from types import MappingProxyType

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext, Emitters
from lamella.backend.cpu.emit.integers import WIDTHS
from lamella.backend.cpu.emit.scalars.arith import CODE_BITS, combine, compute_unary, emit_arith, select
from lamella.backend.cpu.emit.scalars.byte_pairs import widen_byte
from lamella.backend.cpu.emit.scalars.lanes import (
    SUFFIX,
    Vector,
    change,
    element_of,
    emit_constant,
    from_float,
    identity,
    lanes_of,
    level,
    make_constant,
    map_columns,
    shaped,
    spell_constant,
    to_float,
    vectors_of,
    widen,
    wrap,
)
from lamella.backend.cpu.emit.values import LLVM, MatrixValue, ScalarValue, llvm
from lamella.lang.tensor.check.kinds import PARTS, component_of
from lamella.lang.tensor.nodes import Arith, Cast, Compare, CoopApply, Coopmatrix
from lamella.lang.tensor.nodes.types import STORED_FLOATS

LOOKED_UP = 16
"""Numbers of a table that one instruction looks up, in as many lanes."""
LOOK_UP = "llvm.x86.avx512.permvar.sf.512"
SIGNED_CODES = (*range(8), *range(-8, 0))
"""Integers of 4 bits in the order of their bits."""


# --- casts: integers keep their low bits, floats are cut toward zero, bf16 goes through f32 -----------------


def emit_cast(context: EmitContext, instruction: Cast) -> ScalarValue | MatrixValue:
    """`cast %a : f32`, component by component where it is a matrix."""
    value = context.values[instruction.operand.name]
    element = element_of(instruction.type)
    if isinstance(value, MatrixValue):
        if value.bits == CODE_BITS and element == "f32" and context.target.has_lane_masks:
            return _decode(context, value, replace(value.type, element=element))
        found = map_columns(instruction.type, partial(convert, element=element), context, value)
        found = _as_factor(context, found, value.type)
        narrow = value.type.element == "i8" and element == "i32"
        return replace(found, bits=WIDTHS["i8"]) if narrow else found
    widened = widen_byte(context, instruction.operand.name) if element == "f32" else None
    if widened is not None:
        return widened
    return convert(context, context.scalar(instruction.operand.name), element)


def _as_factor(context: EmitContext, matrix: MatrixValue, source: Coopmatrix) -> MatrixValue:
    """A matrix whose use a cast changed: of a matrix_b each component is a value of its own."""
    if source.use == matrix.type.use or matrix.type.use != "matrix_b" or matrix.width == 1:
        return matrix
    kind = llvm(matrix.type.element, matrix.width)
    parts = tuple(
        tuple(
            context.out.value(f"extractelement {kind} {column}, i64 {row}")
            for column in part
            for row in range(matrix.type.rows)
        )
        for part in matrix.parts
    )
    return MatrixValue(matrix.type, parts)


def emit_look_up(context: EmitContext, apply: CoopApply) -> MatrixValue:
    """A matrix each of whose elements is one of some numbers: of integers of 4 bits one instruction finds them."""
    matrix = context.values[apply.operand.name]
    if not isinstance(matrix, MatrixValue):
        raise TypeError("what is looked up is no matrix")

    def pick(context: EmitContext, value: ScalarValue) -> ScalarValue:
        context.values[apply.value.name] = value
        (result,) = context.walk(context, apply.body.statements)
        if not isinstance(result, ScalarValue):
            raise TypeError("what the region gives is no scalar")
        return result

    if not matrix.codes:
        return map_columns(apply.type, pick, context, matrix)
    known = [pick(context, make_constant(float(code), matrix.type.element)).constant for code in SIGNED_CODES]
    numbers = [float(item) for item in known if item is not None]
    if len(numbers) < LOOKED_UP:
        return map_columns(apply.type, pick, context, matrix)
    return _find(context, matrix, apply.type, numbers)


def _decode(context: EmitContext, value: MatrixValue, type_: Coopmatrix) -> MatrixValue:
    """Integers of 4 bits as numbers, which a vector of all of them holds."""
    if value.width % LOOKED_UP:
        return map_columns(type_, partial(convert, element=type_.element), context, value)
    return _find(context, value, type_, [float(code) for code in SIGNED_CODES])


def _find(
    context: EmitContext, value: MatrixValue, type_: Coopmatrix, numbers: Sequence[float]
) -> MatrixValue:
    """The numbers that integers of 4 bits stand for: one instruction finds 16 of them."""
    listed = ", ".join(f"float {make_constant(item, 'f32').operand}" for item in numbers)
    whole, part = f"<{value.width} x i32>", f"<{LOOKED_UP} x i32>"
    columns = []
    for codes in value.codes:
        found = []
        for first in range(0, value.width, LOOKED_UP):
            lanes = ", ".join(f"i32 {lane}" for lane in range(first, first + LOOKED_UP))
            some = context.out.value(f"shufflevector {whole} {codes}, {whole} poison, {part} <{lanes}>")
            operands = f"<{LOOKED_UP} x float> <{listed}>, {part} {some}"
            found.append(context.out.intrinsic(f"<{LOOKED_UP} x float>", LOOK_UP, operands))
        columns.append(_joined(context, found))
    return MatrixValue(type_, (tuple(columns),), value.width, bits=CODE_BITS, codes=value.codes)


def _joined(context: EmitContext, parts: list[str]) -> str:
    """Vectors of numbers as one; their count is a power of two."""
    count = LOOKED_UP
    while len(parts) > 1:
        lanes = ", ".join(f"i32 {lane}" for lane in range(2 * count))
        kind = f"<{count} x float>"
        parts = [
            context.out.value(f"shufflevector {kind} {left}, {kind} {right}, <{2 * count} x i32> <{lanes}>")
            for left, right in zip(parts[::2], parts[1::2], strict=True)
        ]
        count *= 2
    return parts[0]


def convert(context: EmitContext, value: ScalarValue, element: str) -> ScalarValue:
    """A value in another type: what no integer comes near is the nearest one, and NaN is 0."""
    source = value.element
    if source == element:
        return value
    if source in WIDTHS and element in WIDTHS:
        return _resize(context, value, element)
    if isinstance(value.constant, int) and source in WIDTHS and element not in PARTS:
        return (
            make_constant(float(value.constant), element)
            if _is_exact(value.constant)
            else _cast(context, value, element)
        )
    if not value.parts:
        value = integers.spread(context, value)
    return _cast(context, value, element)


def _is_exact(value: int) -> bool:
    return abs(value) <= 1 << 24


def _cast(context: EmitContext, value: ScalarValue, element: str) -> ScalarValue:
    part, target = component_of(value.element), component_of(element)
    if context.threads and (part, target) == ("bf16", "f32"):
        parts = [_put_above(vector) for vector in vectors_of(context, value)]
    else:
        parts = [_change(vector, part, target) for vector in vectors_of(context, value)]
    found = lanes_of(element, *parts)
    if element not in PARTS or len(parts) == 2:
        return found
    return replace(found, parts=(*found.parts, spell_constant(0.0, target, value.count)))


def _put_above(bits: Vector) -> Vector:
    """bf16 bits of a thread as a number of single precision: one instruction, whichever half of a register they are.

    Of a shift the assembler makes two where they are the upper half.
    """
    moved = bits.out.value(f'call float asm "mov.b32 $0, {{$1, $2}};", "=f,h,h"(i16 0, {bits.typed})')
    return replace(bits, kind="float", operand=moved)


def _change(value: Vector, source: str, target: str) -> Vector:
    """One part in another type."""
    if source in WIDTHS:
        return _from_integer(value, target)
    return _to_integer(value, source, target) if target in WIDTHS else change(value, source, target)


def _from_integer(value: Vector, target: str) -> Vector:
    if target in ("f32", "f64"):
        return value.cast("sitofp", LLVM[target])
    return change(value.cast("sitofp", "float"), "f32", target)


def _to_integer(value: Vector, source: str, target: str) -> Vector:
    if source in ("bf16", "f16", *STORED_FLOATS):
        value = change(value, source, "f32")
    kind, lanes = LLVM[target], "" if value.count == 1 else f"v{value.count}"
    name = f"llvm.fptosi.sat.{lanes}{kind}.{lanes}{SUFFIX[value.kind]}"
    found = value.out.intrinsic(shaped(kind, value.count), name, value.typed)
    return replace(value, kind=kind, operand=found)


def _resize(context: EmitContext, value: ScalarValue, element: str) -> ScalarValue:
    """An integer in another integer type, with what is known about it."""
    if isinstance(value.constant, int):
        return integers.number(wrap(value.constant, element), element)
    bits, wanted = WIDTHS[value.element], WIDTHS[element]
    if bits == wanted:
        return replace(value, element=element)
    # The low bits of a multiple of 12 are a multiple of 4 only, and a sum in a narrow type is low bits, too.
    divisor = gcd(value.divisor, 1 << min(bits, wanted))
    if value.base is not None and (wanted < bits or _stays_inside(context, value)):
        base = _resize_operand(context, value.base, value.element, element)
        return integers.affine(context, base, value.step, element, divisor)
    value = value if value.parts else integers.spread(context, value)
    word = "sext" if wanted > bits else "trunc"
    return replace(
        lanes_of(element, vectors_of(context, value)[0].cast(word, LLVM[element])),
        divisor=divisor if value.is_uniform else 1,
    )


def _stays_inside(context: EmitContext, value: ScalarValue) -> bool:
    """Whether no lane of `base + step * lane` wraps, so that a wider type has the same values."""
    if not _is_number(value.base or ""):
        return False
    last = int(value.base or 0) + value.step * (context.lanes - 1)
    return wrap(last, value.element) == last


def _resize_operand(context: EmitContext, operand: str, source: str, target: str) -> str:
    if _is_number(operand):
        return str(wrap(int(operand), target))
    return Vector(context.out, LLVM[source], 1, operand).cast("trunc", LLVM[target]).operand


def _is_number(operand: str) -> bool:
    return operand.lstrip("-").isdigit()


# --- comparisons: NaN is different from everything and in no order ------------------------------------------


FLOATING = MappingProxyType({"eq": "oeq", "ne": "une", "gt": "ogt", "ge": "oge", "lt": "olt", "le": "ole"})
SIGNED = MappingProxyType({"eq": "eq", "ne": "ne", "gt": "sgt", "ge": "sge", "lt": "slt", "le": "sle"})
FOLD: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {
        "eq": operator.eq,
        "ne": operator.ne,
        "gt": operator.gt,
        "ge": operator.ge,
        "lt": operator.lt,
        "le": operator.le,
    }
)


def emit_compare(context: EmitContext, instruction: Compare) -> ScalarValue:
    """`cmp.lt %a, %b : bool`."""
    names = instruction.left.name, instruction.right.name
    left, right = (context.scalar(name) for name in names)
    return compare(context, instruction.function, left, right)


def compare(context: EmitContext, function: str, left: ScalarValue, right: ScalarValue) -> ScalarValue:
    """A bool in each lane."""
    known = _fold(context, function, left, right)
    if known is not None:
        return ScalarValue("bool", (str(known).lower(),), constant=known)
    left, right = level(context, left, right)
    pairs = zip(vectors_of(context, left), vectors_of(context, right), strict=True)
    found = [_compare(function, left.element, *pair) for pair in pairs]
    if len(found) == 2:
        found = [found[0] & found[1] if function == "eq" else found[0] | found[1]]
    return lanes_of("bool", found[0])


def _fold(context: EmitContext, function: str, left: ScalarValue, right: ScalarValue) -> bool | None:
    """The answer of all lanes, where it is known and the same."""
    if left.element not in WIDTHS:
        one, other = left.constant, right.constant
        return None if one is None or other is None else FOLD[function](one, other)
    pairs = zip(_numbers(context, left), _numbers(context, right), strict=False)
    found = {FOLD[function](*pair) for pair in pairs}
    return found.pop() if len(found) == 1 else None


def _numbers(context: EmitContext, value: ScalarValue) -> list[int]:
    """The numbers of all lanes; none where they are not known before the run."""
    if isinstance(value.constant, int):
        return [value.constant] * context.lanes
    if value.base is None or not value.base.lstrip("-").isdigit():
        return []
    return [wrap(int(value.base) + value.step * lane, value.element) for lane in range(context.lanes)]


def _compare(function: str, element: str, left: Vector, right: Vector) -> Vector:
    if element == "bf16":
        left, right = widen(left), widen(right)
    return left.compare((FLOATING if left.is_floating else SIGNED)[function], right)


EMITTERS: Emitters = {
    Arith: emit_arith,
    Compare: emit_compare,
    Cast: emit_cast,
    CoopApply: emit_look_up,
}
"""What emits each instruction of this kind."""


__all__ = [
    "EMITTERS",
    "combine",
    "compare",
    "compute_unary",
    "convert",
    "emit_arith",
    "emit_cast",
    "emit_compare",
    "emit_constant",
    "from_float",
    "identity",
    "make_constant",
    "select",
    "spell_constant",
    "to_float",
]
