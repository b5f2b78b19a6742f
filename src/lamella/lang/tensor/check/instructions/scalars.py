"""Constants, arithmetic, comparisons, casts and builtins."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.lang.tensor.check.here import Here
from lamella.lang.tensor.check.kinds import (
    BYTES,
    component,
    component_of,
    is_castable,
    scalar_name,
)
from lamella.lang.tensor.nodes import (
    BOOL,
    INDEX,
    Arith,
    Builtin,
    Cast,
    Compare,
    Constant,
    Coopmatrix,
    Math,
    Number,
    Scalar,
    Type,
    Value,
)
from lamella.lang.tensor.nodes.types import COMPLEX, FLOATS, INTEGERS
from lamella.lang.tensor.rules import instructions as rules
from lamella.lang.tensor.words import EXTRA_ARITH, EXTRA_MATH, SCALARS
from lamella.lang.tensor.write.types import write_type


@dataclass(frozen=True, slots=True)
class Taken:
    """The types that an operation works on, in names and in words."""

    names: tuple[str, ...]
    words: str
    matrices: bool = False

    def holds(self, type_: Type) -> bool:
        """Whether a type is among them."""
        return component(type_) in self.names and (self.matrices or isinstance(type_, Scalar))


ALL = Taken(SCALARS, "scalars and cooperative matrices", matrices=True)
NUMBERS = Taken(SCALARS, "scalars")
REAL = Taken((*INTEGERS, *FLOATS), "integers and floating-point numbers")
WHOLE = Taken(INTEGERS, "integers")
BITS = Taken(("bool", *INTEGERS), "booleans and integers")
PAIRS = Taken(COMPLEX, "complex numbers")
CONTINUOUS = Taken((*FLOATS, *COMPLEX), "floating-point and complex numbers")
FLOATING = Taken(FLOATS, "floating-point numbers")
CHOSEN = Taken(("bool", *SCALARS), "booleans, scalars and cooperative matrices", matrices=True)
ARITH = {
    **dict.fromkeys(("add", "sub", "mul", "div", "neg"), ALL),
    **dict.fromkeys(("rem", "min", "max"), REAL),
    **dict.fromkeys(("shl", "shr"), WHOLE),
    **dict.fromkeys(("and", "or", "xor", "not"), BITS),
    **dict.fromkeys(("conj", "im", "re"), PAIRS),
    "abs": NUMBERS,
    "select": CHOSEN,
}
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


def check_scalar(here: Here, instruction: Constant | Arith | Compare | Math | Cast | Builtin) -> None:
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
            if "." in instruction.name:
                instead = "one axis of work-groups: builtin.group_id and builtin.group_size"
                here.context.note_extension(here.span, "a launch with several axes", instead)
            wanted = INDEX if instruction.name.partition(".")[0] in INDEX_BUILTINS else Scalar("i32")
            if instruction.type != wanted:
                words = {"wanted": wanted, "type": write_type(instruction.type)}
                here.say(rules.BUILTIN_TYPE, here.type_span, (), **words)


def _check_constant(here: Here, constant: Constant) -> None:
    name = component(constant.type)
    value = spell_number(constant.value)
    if name not in _names_for(constant.value):
        here.say(rules.CONSTANT_KIND, here.span, value=value, type=write_type(constant.type))
        return
    kept = _kept(constant.value, name)
    if kept:
        here.say(rules.CONSTANT_RANGE, here.span, value=value, type=write_type(constant.type), kept=kept)


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


def spell_number(value: Number) -> str:
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


def _check_arith(here: Here, arith: Arith) -> None:
    types = here.context.types_of(*arith.operands)
    if types is None:
        return
    operands = arith.operands
    if arith.function in EXTRA_ARITH:
        here.context.note_extension(here.span, f"'{here.word}'", "if with a yield in each branch")
        here.expect(operands[0], types[0], types[0] == BOOL, "a bool")
        operands, types = operands[1:], types[1:]
    if _check_taken(here, operands, types, ARITH.get(arith.function, NUMBERS)):
        part = Scalar(component_of(component(types[0]) or ""))
        _check_alike(here, arith, operands, types, part if arith.function in PARTIAL else types[0])


def _check_taken(here: Here, operands: tuple[Value, ...], types: tuple[Type, ...], taken: Taken) -> bool:
    """Whether an operation works on the types of its operands; the first on which it does not is a finding."""
    for value, type_ in zip(operands, types, strict=True):
        if not taken.holds(type_):
            here.say(rules.UNSUPPORTED_TYPE, value.span, [value], type=write_type(type_), wanted=taken.words)
            return False
    return True


def _check_alike(
    here: Here, item: Arith | Math, operands: tuple[Value, ...], types: tuple[Type, ...], wanted: Type
) -> None:
    """Operands are of one type, and the result is of the type that follows from it."""
    if len(set(types)) == 1:
        here.expect_result(item.type, wanted, operands)
        return
    for value, type_ in zip(operands, types, strict=True):
        if type_ != item.type:
            words = {"name": value.name, "type": write_type(type_), "wanted": write_type(item.type)}
            here.say(rules.OPERAND_TYPE, value.span, [value], **words)


def _check_compare(here: Here, compare: Compare) -> None:
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


def _check_math(here: Here, math: Math) -> None:
    types = here.context.types_of(*math.operands)
    if types is None:
        return
    if math.function in EXTRA_MATH:
        here.context.note_extension(here.span, f"'{here.word}'", "math.exp and math.native_exp")
    taken = CONTINUOUS if math.function in COMPLEX_MATH else FLOATING
    if _check_taken(here, math.operands, types, taken):
        _check_alike(here, math, math.operands, types, types[0])


def _check_cast(here: Here, cast: Cast) -> None:
    source = here.context.type_of(cast.operand)
    if source is None:
        return
    fits = ALL.holds(source)
    if here.expect(cast.operand, source, fits, "a scalar or a cooperative matrix") and not can_cast(
        source, cast.type
    ):
        words = {"operand": write_type(source), "type": write_type(cast.type)}
        here.say(rules.FORBIDDEN_CAST, here.type_span, [cast.operand], **words)


def can_cast(source: Type, target: Type) -> bool:
    """Whether a cast leads from one type to another; matrices keep their shape and use."""
    left, right = component(source), component(target)
    if left not in SCALARS or right not in SCALARS or not is_castable(left, right):
        return False
    if isinstance(source, Coopmatrix) and isinstance(target, Coopmatrix):
        return (source.rows, source.columns, source.use) == (target.rows, target.columns, target.use)
    return scalar_name(source) is not None and scalar_name(target) is not None
