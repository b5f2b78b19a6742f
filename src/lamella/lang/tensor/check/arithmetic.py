"""Instructions that compute: on scalars, on cooperative matrices, and what a subgroup does together."""

from __future__ import annotations

from dataclasses import replace

from lamella.base.records import dataclass
from lamella.base.source import NOWHERE
from lamella.lang.tensor.check.context import StatementContext
from lamella.lang.tensor.check.kinds import (
    BYTES,
    can_cast,
    component,
    component_of,
    is_promotable,
    promote,
)
from lamella.lang.tensor.layout import component_count
from lamella.lang.tensor.nodes import (
    BOOL,
    INDEX,
    Arith,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopApply,
    CoopConstruct,
    CoopExtract,
    CoopInsert,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopReduce,
    CoopScale,
    CoopStore,
    Instruction,
    Math,
    Memref,
    Number,
    Scalar,
    SubgroupBroadcast,
    SubgroupOperation,
    Type,
    Value,
)
from lamella.lang.tensor.nodes.types import COMPLEX, FLOATS, INTEGERS, STORED_FLOATS
from lamella.lang.tensor.rules import instructions as rules
from lamella.lang.tensor.words import ELEMENTS, EXTRA_ARITH, EXTRA_MATH, PACKED, SCALARS, SUBGROUP_AXES
from lamella.lang.tensor.write import write_size, write_type

# --- constants, arithmetic, comparisons, casts and builtins -------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperandTypes:
    """The types that an operation works on, in names and in words."""

    names: tuple[str, ...]
    words: str
    matrices: bool = False

    def holds(self, type_: Type) -> bool:
        """Whether a type is among them."""
        return component(type_) in self.names and (self.matrices or isinstance(type_, Scalar))


LANE = Scalar("i32")
USES = ("matrix_a", "matrix_b", "matrix_acc")
MATRIX = "a cooperative matrix"
SHIFTS = ("shl", "shr")
EXTREMES = ("min", "max")
ALL = OperandTypes(SCALARS, "scalars and cooperative matrices", matrices=True)
CAST = OperandTypes(ELEMENTS, "scalars and cooperative matrices", matrices=True)
NUMBERS = OperandTypes(SCALARS, "scalars")
REAL = OperandTypes((*INTEGERS, *FLOATS), "integers and floating-point numbers")
REAL_MATRICES = OperandTypes(REAL.names, "real numbers and cooperative matrices of them", matrices=True)
WHOLE = OperandTypes(INTEGERS, "integers")
WHOLE_MATRICES = OperandTypes(INTEGERS, "integers and cooperative matrices of them", matrices=True)
BITS = OperandTypes(
    ("bool", *INTEGERS), "booleans, integers and cooperative matrices of integers", matrices=True
)
PAIRS = OperandTypes(COMPLEX, "complex numbers and cooperative matrices of them", matrices=True)
CONTINUOUS = OperandTypes((*FLOATS, *COMPLEX), "floating-point and complex numbers")
FLOATING = OperandTypes(FLOATS, "floating-point numbers")
NARROW = OperandTypes(
    ("bf16", "f16", "f32"), "bf16, f16, f32 and cooperative matrices of them", matrices=True
)
CHOSEN = OperandTypes(("bool", *SCALARS), "booleans, scalars and cooperative matrices", matrices=True)
ARITH = {
    **dict.fromkeys(("add", "sub", "mul", "div", "neg"), ALL),
    "rem": REAL_MATRICES,
    **dict.fromkeys(EXTREMES, REAL_MATRICES),
    **dict.fromkeys(SHIFTS, WHOLE_MATRICES),
    **dict.fromkeys(("and", "or", "xor", "not"), BITS),
    **dict.fromkeys(("conj", "im", "re"), PAIRS),
    "abs": ALL,
    "select": CHOSEN,
    "fma": NARROW,
}
OF_SCALARS = {
    **dict.fromkeys(EXTREMES, ("an extreme", "one of each component")),
    **dict.fromkeys(SHIFTS, ("a shift", "shifts of integers")),
    **dict.fromkeys(("and", "or", "xor", "not"), ("a bitwise function", "one of integers")),
    **dict.fromkeys(("conj", "im", "re"), ("a part", "that of each component")),
    "rem": ("a remainder", "one of each component"),
    "abs": ("an absolute value", "one of each component"),
}
"""Functions that the specification has for scalars alone: what a note calls them, and what stands in their place."""
COMPLEX_MATH = ("exp", "native_exp", "exp2", "native_exp2")
EQUALITY = ("eq", "ne")
PARTIAL = ("abs", "im", "re")
INDEX_BUILTINS = ("group_id", "group_size", "num_groups")
ROUNDS_AWAY = {
    "f16": 65520.0,
    "bf16": (2 - 2.0**-8) * 2.0**127,
    "f32": (2 - 2.0**-24) * 2.0**127,
}
"""The least magnitudes that round to infinity."""


def check_arithmetic(here: StatementContext, instruction: Instruction) -> None:
    """Check an instruction that computes; of one that holds a region, its head."""
    match instruction:
        case Constant() | Arith() | Compare() | Math() | Cast() | Builtin():
            _check_scalar(here, instruction)
        case CoopLoad() | CoopMulAdd() | CoopScale() | CoopStore():
            _check_cooperative(here, instruction)
        case CoopConstruct() | CoopExtract() | CoopInsert():
            _check_component_access(here, instruction)
        case CoopReduce():
            _check_reduce(here, instruction)
        case CoopApply():
            _check_apply(here, instruction)
        case SubgroupBroadcast() | SubgroupOperation():
            _check_subgroup(here, instruction)
        case _:
            return


def _check_scalar(
    here: StatementContext, instruction: Constant | Arith | Compare | Math | Cast | Builtin
) -> None:
    """Check an instruction on scalars."""
    match instruction:
        case Constant():
            _check_constant(here, instruction)
        case Arith():
            _check_arith(here, instruction)
        case Compare():
            _check_compare(here, instruction)
        case Math():
            _check_math(here, instruction)
        case Cast():
            _check_cast(here, instruction)
        case Builtin():
            name, _, axis = instruction.name.partition(".")
            if axis and name in SUBGROUP_AXES:
                instead = "one number for each: builtin.num_subgroups and builtin.subgroup_id"
                here.context.note_extension(here.span, "an axis of subgroups", instead)
            elif axis:
                instead = "one axis of work-groups: builtin.group_id and builtin.group_size"
                here.context.note_extension(here.span, "a launch with several axes", instead)
            wanted = INDEX if name in INDEX_BUILTINS else Scalar("i32")
            if instruction.type != wanted:
                words = {"wanted": wanted, "type": write_type(instruction.type)}
                here.say(rules.BUILTIN_TYPE, here.type_span, (), **words)


def _check_constant(here: StatementContext, constant: Constant) -> None:
    name = component(constant.type)
    value = _spell_number(constant.value)
    span = here.span if constant.span == NOWHERE else constant.span
    if name not in _names_for(constant.value):
        here.say(rules.CONSTANT_KIND, span, value=value, type=write_type(constant.type))
        return
    kept = _kept(constant.value, name)
    if kept:
        here.say(rules.CONSTANT_RANGE, span, value=value, type=write_type(constant.type), kept=kept)


def _names_for(value: Number) -> tuple[str, ...]:
    match value:
        case bool():
            return ("bool",)
        case int():
            return INTEGERS
        case float():
            return FLOATS
        case _:
            return COMPLEX


def _spell_number(value: Number) -> str:
    """A constant as sentences show it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"[{value[0]}, {value[1]}]" if isinstance(value, tuple) else str(value)


def _kept(value: Number, name: str) -> str:
    """What a type keeps of a value that does not fit it; empty where it fits."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, int):
        half = 1 << (8 * BYTES[name] - 1)
        return "" if -half <= value < half else str((value + half) % (2 * half) - half)
    parts = value if isinstance(value, tuple) else (value,)
    limit = ROUNDS_AWAY.get(component_of(name), float("inf"))
    return "infinity" if any(limit <= abs(part) < float("inf") for part in parts) else ""


def _check_arith(here: StatementContext, arith: Arith) -> None:
    types = here.context.types_of(*arith.operands)
    if types is None:
        return
    operands = arith.operands
    if arith.function == "fma":
        here.context.note_extension(here.span, f"'{here.word}'", "a product and a sum")
    elif arith.function in EXTRA_ARITH:
        here.context.note_extension(here.span, f"'{here.word}'", "if with a yield in each branch")
        here.expect(operands[0], types[0], types[0] == BOOL, "a bool")
        operands, types = operands[1:], types[1:]
    if arith.function in OF_SCALARS and any(isinstance(item, Coopmatrix) for item in types):
        what, instead = OF_SCALARS[arith.function]
        here.context.note_extension(here.span, f"{what} of cooperative matrices", instead)
    if _check_taken(here, operands, types, ARITH.get(arith.function, NUMBERS)):
        _check_alike(here, arith, operands, types, _part(types[0]) if arith.function in PARTIAL else types[0])


def _part(type_: Type) -> Type:
    """What the absolute values, real or imaginary parts of a type are of."""
    name = component_of(component(type_) or "")
    return replace(type_, element=name) if isinstance(type_, Coopmatrix) else Scalar(name)


def _check_taken(
    here: StatementContext, operands: tuple[Value, ...], types: tuple[Type, ...], taken: OperandTypes
) -> bool:
    """Whether an operation works on the types of its operands; the first on which it does not is a finding."""
    for value, type_ in zip(operands, types, strict=True):
        if not taken.holds(type_):
            here.say(rules.UNSUPPORTED_TYPE, value.span, [value], type=write_type(type_), wanted=taken.words)
            return False
    return True


def _check_alike(
    here: StatementContext,
    item: Arith | Math,
    operands: tuple[Value, ...],
    types: tuple[Type, ...],
    wanted: Type,
) -> None:
    """Operands are of one type, and the result is of the type that follows from it."""
    if len(set(types)) == 1:
        here.expect_result(item.type, wanted, operands)
        return
    for value, type_ in zip(operands, types, strict=True):
        if type_ != item.type:
            words = {"name": value.name, "type": write_type(type_), "wanted": write_type(item.type)}
            here.say(rules.OPERAND_TYPE, value.span, [value], **words)


def _check_compare(here: StatementContext, compare: Compare) -> None:
    operands = (compare.left, compare.right)
    types = here.context.types_of(*operands)
    if types is None:
        return
    pairs = list(zip(operands, types, strict=True))
    fits = [here.expect(value, type_, NUMBERS.holds(type_), "a scalar") for value, type_ in pairs]
    if not all(fits):
        return
    if types[0] != types[1]:
        here.say(
            rules.COMPARED_TYPES, here.span, operands, left=write_type(types[0]), right=write_type(types[1])
        )
    elif compare.function not in EQUALITY and not REAL.holds(types[0]):
        here.say(rules.UNSUPPORTED_TYPE, here.span, operands, type=write_type(types[0]), wanted=REAL.words)
    here.expect_result(compare.type, BOOL)


def _check_math(here: StatementContext, math: Math) -> None:
    types = here.context.types_of(*math.operands)
    if types is None:
        return
    if math.function in EXTRA_MATH:
        here.context.note_extension(here.span, f"'{here.word}'", "math.exp and math.native_exp")
    taken = CONTINUOUS if math.function in COMPLEX_MATH else FLOATING
    if _check_taken(here, math.operands, types, taken):
        _check_alike(here, math, math.operands, types, types[0])


def _check_cast(here: StatementContext, cast: Cast) -> None:
    source = here.context.type_of(cast.operand)
    if source is None:
        return
    fits = CAST.holds(source)
    if here.expect(cast.operand, source, fits, "a scalar or a cooperative matrix") and not can_cast(
        source, cast.type
    ):
        words = {"operand": write_type(source), "type": write_type(cast.type)}
        here.say(rules.FORBIDDEN_CAST, here.type_span, [cast.operand], **words)
    elif isinstance(source, Coopmatrix) and isinstance(cast.type, Coopmatrix) and source.use != cast.type.use:
        here.context.note_extension(here.span, "a cast to another use", "a store and a load")


# --- cooperative matrices -----------------------------------------------------------------------------------


def _check_cooperative(
    here: StatementContext, instruction: CoopLoad | CoopMulAdd | CoopScale | CoopStore
) -> None:
    """Check an instruction on cooperative matrices."""
    match instruction:
        case CoopLoad(operand=operand, row=row, column=column, type=type_):
            types = here.context.types_of(operand, row, column)
            if types is not None:
                here.expect_indices((row, column), "a position")
                _check_memory(here, operand, types[0], type_)
                _check_packed(here, instruction, types[0], type_)
        case CoopStore():
            _check_store(here, instruction)
        case CoopScale():
            _check_scale(here, instruction)
        case CoopMulAdd():
            _check_mul_add(here, instruction)


def _check_memory(here: StatementContext, operand: Value, memory: Type, matrix: Coopmatrix) -> None:
    """The memory that a matrix comes from or goes to: of order 2, with the elements of the matrix."""
    if not isinstance(memory, Memref):
        here.expect(operand, memory, False, "a memref")
        return
    if memory.order not in (2, 3):
        here.say(
            rules.ORDER, operand.span, [operand], operand=f"'%{operand.name}'", order=memory.order, wanted=2
        )
    if memory.element != matrix.element:
        words = {"type": write_type(matrix), "name": operand.name, "memory": write_type(memory)}
        here.say(rules.MATRIX_ELEMENT, here.span, [operand], **words)


def _check_packed(
    here: StatementContext, access: CoopLoad | CoopStore, memory: Type, matrix: Coopmatrix
) -> None:
    """A memref of order 3 keeps so many elements of a matrix_a together that they fill 4 bytes."""
    if not isinstance(memory, Memref) or memory.order != 3:
        return
    here.context.note_extension(here.span, "a packed cooperative access", "memrefs of order 2 there")
    pack = PACKED.get(memory.element)
    wanted, found = "", ""
    if pack is None:
        wanted, found = "elements of type i8, bf16 or f16", memory.element
    elif memory.shape[0] != pack:
        wanted, found = f"a first mode of size {pack} for {memory.element}", write_size(memory.shape[0])
    elif matrix.use != USES[0]:
        wanted, found = f"a {USES[0]}", f"a {matrix.use}"
    elif isinstance(access, CoopLoad) and access.transposed:
        wanted, found = "the flag .n", ".t"
    if wanted:
        operand = access.operand
        words = {"name": operand.name, "wanted": wanted, "found": found}
        here.say(rules.PACKED_ACCESS, operand.span, [operand], **words)


def _check_store(here: StatementContext, store: CoopStore) -> None:
    types = here.context.types_of(store.value, store.operand, store.row, store.column)
    if types is None:
        return
    here.expect_indices((store.row, store.column), "a position")
    matrix, memory = types[0], types[1]
    if isinstance(matrix, Coopmatrix):
        _check_memory(here, store.operand, memory, matrix)
        _check_packed(here, store, memory, matrix)
        here.expect_atomic(matrix.element, store.flag)
    else:
        here.expect(store.value, matrix, False, MATRIX)


def _check_scale(here: StatementContext, scale: CoopScale) -> None:
    types = here.context.types_of(scale.scalar, scale.operand)
    if types is None:
        return
    scalar, matrix = types
    if not isinstance(matrix, Coopmatrix):
        here.expect(scale.operand, matrix, False, MATRIX)
        return
    here.expect(scale.scalar, scalar, scalar == Scalar(matrix.element), f"a scalar of type {matrix.element}")
    here.expect_result(scale.type, matrix, [scale.operand])


def _check_mul_add(here: StatementContext, add: CoopMulAdd) -> None:
    values = (add.left, add.right, add.accumulator)
    types = here.context.types_of(*values)
    if types is None:
        return
    pairs = list(zip(values, types, strict=True))
    fits = [here.expect(value, type_, isinstance(type_, Coopmatrix), MATRIX) for value, type_ in pairs]
    matrices = [type_ for type_ in types if isinstance(type_, Coopmatrix)]
    if all(fits):
        _check_uses(here, add, matrices)
        _check_shapes(here, add, matrices)
        _check_components(here, add, matrices)


def _check_uses(here: StatementContext, add: CoopMulAdd, matrices: list[Coopmatrix]) -> None:
    values = (add.left, add.right, add.accumulator)
    for value, matrix, wanted in zip(values, matrices, USES, strict=True):
        if matrix.use != wanted:
            words = {"operand": f"'%{value.name}'", "use": matrix.use, "wanted": wanted}
            here.say(rules.MATRIX_USE, value.span, [value], **words)
    if add.type.use != USES[2]:
        words = {"operand": "the result", "use": add.type.use, "wanted": USES[2]}
        here.say(rules.MATRIX_USE, here.type_span, (), **words)


def _check_shapes(here: StatementContext, add: CoopMulAdd, matrices: list[Coopmatrix]) -> None:
    left, right, accumulator = matrices
    shape = (left.rows, right.columns)
    sums = [(item.rows, item.columns) for item in (accumulator, add.type)]
    if left.columns != right.rows or sums != [shape, shape]:
        named = zip("ABCD", (*matrices, add.type), strict=True)
        shapes = ", ".join(f"{name}={item.rows}x{item.columns}" for name, item in named)
        here.say(rules.MATRIX_SHAPES, here.span, (add.left, add.right, add.accumulator), shapes=shapes)


def _check_components(here: StatementContext, add: CoopMulAdd, matrices: list[Coopmatrix]) -> None:
    left, right, accumulator = (item.element for item in matrices)
    both = promote(left, right)
    if both is None and left in STORED_FLOATS and right in STORED_FLOATS:
        both = left  # all of either are numbers of C
    if both is None:
        words = {"left": left, "right": right, "names": "A and B"}
        here.say(rules.PROMOTION_PAIR, here.span, (add.left, add.right), **words)
    elif not is_promotable(both, accumulator):
        words = {"left": "A and B", "source": both, "right": "C", "target": accumulator}
        here.say(rules.PROMOTION, here.span, (add.left, add.right, add.accumulator), **words)
    if not can_cast(Scalar(accumulator), Scalar(add.type.element)):
        words = {"operand": write_type(matrices[2]), "type": write_type(add.type)}
        here.say(rules.FORBIDDEN_CAST, here.type_span, [add.accumulator], **words)


# --- components (extensions) --------------------------------------------------------------------------------


def _check_component_access(
    here: StatementContext, instruction: CoopConstruct | CoopExtract | CoopInsert
) -> None:
    """Check an instruction that makes a matrix of a scalar, or takes or changes a component."""
    here.context.note_extension(here.span, f"'{here.word}'", "arithmetic on whole cooperative matrices")
    if isinstance(instruction, CoopConstruct):
        scalar = here.context.type_of(instruction.scalar)
        if isinstance(scalar, Coopmatrix):
            _check_repeated(here, instruction, scalar)
        elif scalar is not None:
            _expect_element(here, instruction.scalar, scalar, instruction.type)
        return
    matrix = here.context.type_of(instruction.operand)
    scalar = here.context.type_of(instruction.scalar) if isinstance(instruction, CoopInsert) else None
    if matrix is None:
        return
    if not isinstance(matrix, Coopmatrix):
        here.expect(instruction.operand, matrix, False, MATRIX)
        return
    wanted = Scalar(matrix.element) if isinstance(instruction, CoopExtract) else matrix
    here.expect_result(instruction.type, wanted, [instruction.operand])
    if isinstance(instruction, CoopInsert) and scalar is not None:
        _expect_element(here, instruction.scalar, scalar, matrix)
    _check_component(here, instruction, matrix)


def _check_repeated(here: StatementContext, construct: CoopConstruct, line: Coopmatrix) -> None:
    """One row or one column of the sums, as long as those of the result."""
    type_ = construct.type
    row, column = replace(type_, rows=1), replace(type_, columns=1)
    fits = type_.use == "matrix_acc" and line in (row, column)
    wanted = f"a scalar of type {type_.element}, or {write_type(row)}, or {write_type(column)}"
    here.expect(construct.scalar, line, fits, wanted)


def _check_reduce(here: StatementContext, reduce: CoopReduce) -> None:
    """Check a reduction: sums and extremes of real or integer components, one row or one column of them."""
    here.context.note_extension(here.span, f"'{here.word}'", "arithmetic on whole cooperative matrices")
    matrix = here.context.type_of(reduce.operand)
    if matrix is None:
        return
    fits = isinstance(matrix, Coopmatrix) and matrix.use == "matrix_acc"
    if not here.expect(reduce.operand, matrix, fits, "a cooperative matrix of use matrix_acc"):
        return
    if isinstance(matrix, Coopmatrix):
        taken = NUMBERS if reduce.function == "add" else REAL
        if not taken.holds(Scalar(matrix.element)):
            words = {"type": write_type(matrix), "wanted": taken.words}
            here.say(rules.UNSUPPORTED_TYPE, reduce.operand.span, [reduce.operand], **words)
            return
        wanted = replace(matrix, rows=1) if reduce.mode == "column" else replace(matrix, columns=1)
        here.expect_result(reduce.type, wanted, [reduce.operand])


def _expect_element(here: StatementContext, value: Value, type_: Type, matrix: Coopmatrix) -> None:
    here.expect(value, type_, type_ == Scalar(matrix.element), f"a scalar of type {matrix.element}")


def _check_component(here: StatementContext, item: CoopExtract | CoopInsert, matrix: Coopmatrix) -> None:
    """A component that no work-item has; where the subgroup size is not written, the negative ones alone."""
    lanes = here.context.subgroup_size
    count = None if lanes is None else component_count(matrix, lanes)
    if item.component < 0 or (count is not None and item.component >= count):
        why = ": they are counted from 0" if count is None else f": each of {lanes} holds {count}"
        words = {"type": write_type(matrix), "component": item.component, "why": why}
        here.say(rules.COMPONENT, here.span, [item.operand], **words)


def _check_apply(here: StatementContext, apply: CoopApply) -> None:
    """Check the head of an apply: the result has the shape and the use of the operand, and its components."""
    here.context.note_extension(here.span, f"'{here.word}'", "arithmetic on whole cooperative matrices")
    matrix = here.context.type_of(apply.operand)
    if matrix is None:
        return
    if here.expect(apply.operand, matrix, isinstance(matrix, Coopmatrix), MATRIX):
        here.expect_result(apply.type, matrix, [apply.operand])


def _check_subgroup(here: StatementContext, instruction: SubgroupBroadcast | SubgroupOperation) -> None:
    """Check an instruction that exchanges scalars in a subgroup."""
    lanes = [instruction.lane] if isinstance(instruction, SubgroupBroadcast) else []
    types = here.context.types_of(instruction.operand, *lanes)
    if types is None:
        return
    for lane, type_ in zip(lanes, types[1:], strict=True):
        here.expect(lane, type_, type_ == LANE, "a lane of type i32")
    taken = NUMBERS
    if isinstance(instruction, SubgroupOperation) and instruction.function != "add":
        taken = REAL
    operand = instruction.operand
    if taken.holds(types[0]):
        here.expect_result(instruction.type, types[0], [operand])
    else:
        here.say(
            rules.UNSUPPORTED_TYPE, operand.span, [operand], type=write_type(types[0]), wanted=taken.words
        )
