"""The pass that computes what is known before the run, and leaves out what nobody needs."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from lamella.kernels.build import regions
from lamella.kernels.rewrite import (
    change_functions,
    constant_value,
    rename_region,
    rewrite,
    split_yield,
    types_of,
    used_values,
    walk,
)
from lamella.kernels.sizes import Sizes, default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    INDEX,
    Arith,
    AtomicUpdate,
    Barrier,
    Blas,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopScale,
    CoopStore,
    For,
    Foreach,
    Function,
    If,
    Instruction,
    LifetimeStop,
    Memref,
    Number,
    Parallel,
    Program,
    Region,
    Scalar,
    SizeOf,
    Statement,
    Store,
    Type,
    Value,
    Yield,
)
from lamella.lang.tensor.nodes.types import COMPLEX, FLOATS, INTEGERS

# --- what instructions give where their operands are known: constants, or one of the operands ---------------


FORMATS = MappingProxyType({"f16": "e", "f32": "f", "f64": "d", "c32": "f", "c64": "d"})
EXACT = 1 << 53
"""Up to here a double holds every integer."""


def wrap(value: int, element: str) -> int:
    """The low bits of an integer as a signed number of its type."""
    half = 1 << (8 * BYTES[element] - 1)
    return (value + half) % (2 * half) - half


def _divide(left: int, right: int) -> int | None:
    """Division that truncates; None where there is no quotient."""
    if right == 0:
        return None
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _remainder(left: int, right: int) -> int | None:
    quotient = _divide(left, right)
    return None if quotient is None else left - quotient * right


def _shift(change: Callable[[int, int], int]) -> Callable[[int, int], int | None]:
    return lambda left, right: change(left, right) if 0 <= right < 64 else None


BINARY: Mapping[str, Callable[[int, int], int | None]] = MappingProxyType(
    {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": _divide,
        "rem": _remainder,
        "min": min,
        "max": max,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "shl": _shift(lambda a, b: a << b),
        "shr": _shift(lambda a, b: a >> b),
    }
)
UNARY: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {"neg": lambda a: -a, "not": lambda a: ~a, "abs": abs}
)


def fold_arith(function: str, operands: Sequence[Number], type_: Type) -> Number | None:
    """The value of integer or boolean arithmetic on constants; None where only the run tells."""
    if not isinstance(type_, Scalar) or function == "select":
        return None
    if type_.name == "bool":
        return _fold_bool(function, operands)
    values = [item for item in operands if isinstance(item, int)]
    if type_.name not in INTEGERS or len(values) != len(operands):
        return None
    if len(values) == 1:
        change = UNARY.get(function)
        return None if change is None else wrap(change(values[0]), type_.name)
    if function in ("shl", "shr") and not 0 <= values[1] < 8 * BYTES[type_.name]:
        return None
    found = BINARY[function](values[0], values[1])
    return None if found is None else wrap(found, type_.name)


def _fold_bool(function: str, operands: Sequence[Number]) -> Number | None:
    values = [bool(item) for item in operands]
    if function == "not":
        return not values[0]
    if function in ("and", "or", "xor"):
        return {"and": all(values), "or": any(values), "xor": values[0] != values[-1]}[function]
    return None


def simplify_arith(item: Arith, known: Sequence[Number | None]) -> Value | None:
    """The operand that arithmetic gives unchanged; None where it does not."""
    if item.function == "select":
        return None if known[0] is None else item.operands[1 if known[0] else 2]
    if len(item.operands) != 2 or not isinstance(item.type, Scalar):
        return None
    (left, right), (first, second) = item.operands, known
    if item.function == "mul" and _is(second, 1):
        return left
    if item.function == "mul" and _is(first, 1):
        return right
    if item.type.name not in INTEGERS:
        return None
    if item.function in ("add", "or", "xor") and first == 0:
        return right
    if second == 0 and item.function in ("add", "sub", "or", "xor", "shl", "shr"):
        return left
    return left if item.function == "div" and second == 1 else None


def _is(known: Number | None, number: int) -> bool:
    if known is None or isinstance(known, bool):
        return False
    return known == (float(number), 0.0) if isinstance(known, tuple) else known == number


# --- comparisons and casts ----------------------------------------------------------------------------------


def fold_compare(function: str, left: Number, right: Number, type_: Type | None) -> bool | None:
    """The value of a comparison of constants that their type holds exactly."""
    if not isinstance(type_, Scalar) or not (_is_exact(left, type_.name) and _is_exact(right, type_.name)):
        return None
    if isinstance(left, tuple) or isinstance(right, tuple):
        return {"eq": left == right, "ne": left != right}.get(function)
    return {
        "eq": left == right,
        "ne": left != right,
        "gt": left > right,
        "ge": left >= right,
        "lt": left < right,
        "le": left <= right,
    }[function]


def fold_cast(value: Number, source: Type | None, target: Type) -> Number | None:
    """A constant in another type, where both hold it exactly."""
    if not isinstance(source, Scalar) or not isinstance(target, Scalar):
        return None
    if isinstance(value, bool) or not _is_exact(value, source.name):
        return None
    found = _convert(value, target.name)
    return found if found is not None and _is_exact(found, target.name) else None


def _convert(value: Number, target: str) -> Number | None:
    if target in INTEGERS:
        return wrap(value, target) if isinstance(value, int) else None
    if isinstance(value, tuple):
        return value if target in COMPLEX else None
    if isinstance(value, int) and abs(value) > EXACT:
        return None
    return (float(value), 0.0) if target in COMPLEX else float(value)


def _is_exact(value: Number, element: str) -> bool:
    """Whether a type holds a constant as it is written."""
    if isinstance(value, tuple):
        return element in COMPLEX and all(_fits(part, element) for part in value)
    if isinstance(value, float):
        return element in FLOATS and _fits(value, element)
    return element == "bool" or (element in INTEGERS and wrap(value, element) == value)


def _fits(value: float, element: str) -> bool:
    """Whether a number is one of a floating-point type; a NaN or an infinity is left to the run."""
    if element == "bf16":
        return _fits(value, "f32") and struct.pack("<f", value)[:2] == b"\0\0"
    try:
        found: float = struct.unpack(FORMATS[element], struct.pack(FORMATS[element], value))[0]
    except OverflowError:
        return False
    return found == value and abs(value) != float("inf")


# --- statements that nobody needs: values without use, loops and branches that do nothing -------------------


EFFECTS = Store | CoopStore | AtomicUpdate | Blas | Barrier | LifetimeStop


def drop_unused(body: Region) -> Region:
    """The region without values that nobody uses and regions that do nothing; no name stands for two values."""
    dead = _find_dead(body)

    def visit(region: Region, _: bool) -> Region:
        kept = tuple(item for item in region.statements if not _is_dropped(item, dead))
        return region if len(kept) == len(region.statements) else replace(region, statements=kept)

    return rewrite(body, visit)


def _is_dropped(statement: Statement, dead: set[str]) -> bool:
    """Whether a statement, whose regions are done, gives what nobody needs or does nothing."""
    if statement.results:
        return all(value.name in dead for value in statement.results)
    instruction = statement.instruction
    return isinstance(instruction, For | Foreach | If | Parallel) and not _has_effect(instruction)


def _find_dead(body: Region) -> set[str]:
    """The values that nobody needs, found from the end of the text: what only they use is needed by nobody either."""
    statements = list(walk(body))
    uses = Counter(value.name for item in statements for value in used_values(item.instruction))
    gone: set[int] = set()
    dead: set[str] = set()
    for statement in reversed(statements):
        if _is_needed(statement, uses):
            continue
        dead.update(value.name for value in statement.results)
        for item in walk(Region((statement,))):
            if id(item) not in gone:
                gone.add(id(item))
                uses.subtract(value.name for value in used_values(item.instruction))
    return dead


def _is_needed(statement: Statement, uses: Counter[str]) -> bool:
    return any(uses[value.name] > 0 for value in statement.results) or _has_effect(statement.instruction)


def _has_effect(instruction: Instruction) -> bool:
    """Whether an instruction does more than give values; a yield belongs to what it ends."""
    if isinstance(instruction, EFFECTS | Yield):
        return True
    inner = (item.instruction for region in regions(instruction) for item in walk(region))
    return any(isinstance(item, EFFECTS) for item in inner)


WIDE = (Scalar("i32"), Scalar("i64"), INDEX)
"""Types that hold the number of any work-item."""


def fold_constants(program: Program, _: Target) -> Program:
    """A program in which constants are computed, branches that are never taken and values without use left out."""
    return change_functions(program, _fold)


def _fold(function: Function) -> Function:
    work = _Folding(types_of(function), default_sizes(function))
    for statement in walk(function.body):
        work.learn(statement)
    body = rewrite(function.body, lambda region, _: work.visit(region))
    return replace(function, body=drop_unused(rename_region(body, _last({**work.same, **work.gone}))))


@dataclass(slots=True)
class _Folding:
    """What is known of the values of a function, each under a name of its own."""

    types: dict[str, Type]
    sizes: Sizes
    known: dict[str, Number] = field(default_factory=dict)
    same: dict[str, Value] = field(default_factory=dict)
    """Values that are other values."""
    gone: dict[str, Value] = field(default_factory=dict)
    """Results of branches and loops that are left out, with what they are instead."""
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The least and the greatest value of numbers of work-items."""

    # --- what is known, in the order of the text

    def learn(self, statement: Statement) -> None:
        """Note what a statement gives, all before it being noted."""
        if len(statement.results) != 1:
            return
        name, instruction = statement.results[0].name, statement.instruction
        found = self._value(instruction)
        if found is not None:
            self.known[name] = found
            return
        other = self._other(instruction)
        if other is not None:
            self.same[name] = self._resolve(other)
        elif isinstance(instruction, Builtin):
            self._bound(name, instruction)
        elif isinstance(instruction, Cast) and instruction.type in WIDE:
            bounds = self.bounds.get(self._resolve(instruction.operand).name)
            self.bounds.update({} if bounds is None else {name: bounds})

    def _value(self, instruction: Instruction) -> Number | None:
        match instruction:
            case Constant():
                return constant_value(instruction)
            case Arith(function=function, operands=operands, type=type_):
                numbers = [item for item in map(self._number, operands) if item is not None]
                return fold_arith(function, numbers, type_) if len(numbers) == len(operands) else None
            case Compare() as compare:
                return self._compare(compare)
            case Cast(operand=operand, type=type_):
                number = self._number(operand)
                return None if number is None else fold_cast(number, self._type(operand), type_)
            case SizeOf(operand=operand, mode=mode):
                memref = self._type(operand)
                return memref.shape[mode] if isinstance(memref, Memref) and mode < memref.order else None
            case Builtin(name="subgroup_size"):
                return self.sizes.subgroup_size
            case Builtin(name="num_subgroups"):
                return self._subgroups
            case _:
                return None

    def _compare(self, item: Compare) -> bool | None:
        left, right = self._number(item.left), self._number(item.right)
        if left is not None and right is not None:
            return fold_compare(item.function, left, right, self._type(item.left))
        bounds = self.bounds.get(self._resolve(item.left).name)
        if bounds is None or not isinstance(right, int) or item.function not in ("lt", "eq"):
            return None
        if item.function == "eq":
            return (
                True if bounds == (right, right) else False if not bounds[0] <= right <= bounds[1] else None
            )
        return True if bounds[1] < right else False if bounds[0] >= right else None

    def _other(self, instruction: Instruction) -> Value | None:
        match instruction:
            case Arith(operands=operands) as arith:
                return simplify_arith(arith, [self._number(item) for item in operands])
            case Cast(operand=operand, type=type_) if self._type(operand) == type_:
                return operand
            case CoopScale(scalar=scalar, operand=operand) if self._number(scalar) in (1, (1.0, 0.0)):
                return operand
            case _:
                return None

    def _bound(self, name: str, builtin: Builtin) -> None:
        largest = {"subgroup_local_id": self.sizes.subgroup_size, "subgroup_id": self._subgroups}
        if builtin.name in largest:
            self.bounds[name] = (0, largest[builtin.name] - 1)
            if largest[builtin.name] == 1:
                self.known[name] = 0

    @property
    def _subgroups(self) -> int:
        rows, columns = self.sizes.work_group_size
        return max(1, rows * columns // self.sizes.subgroup_size)

    def _resolve(self, value: Value) -> Value:
        return self.same.get(value.name, value)

    def _number(self, value: Value) -> Number | None:
        return self.known.get(self._resolve(value).name)

    def _type(self, value: Value) -> Type | None:
        return self.types.get(self._resolve(value).name)

    # --- what is left of a region

    def visit(self, region: Region) -> Region:
        """A region without what is known; its inner regions are done."""
        replaced: dict[str, Value] = {}
        found: list[Statement] = []
        for statement in region.statements:
            found += self._replace(statement, replaced)
        self.gone.update(replaced)
        new = replace(region, statements=tuple(found))
        return rename_region(new, _last(replaced))

    def _replace(self, statement: Statement, replaced: dict[str, Value]) -> Iterator[Statement]:
        instruction = statement.instruction
        if isinstance(instruction, If) and (taken := self._number(instruction.condition)) is not None:
            branch = instruction.then if taken else instruction.otherwise
            statements, yielded = ((), ()) if branch is None else split_yield(branch)
            replaced.update(zip((item.name for item in statement.results), yielded, strict=False))
            yield from statements
        elif isinstance(instruction, For) and self._is_skipped(instruction):
            starts = (start for _, start in instruction.carried)
            replaced.update(zip((item.name for item in statement.results), starts, strict=False))
        elif (name := _only_result(statement)) in self.known:
            yield replace(statement, instruction=Constant(self.known[name], self.types.get(name, INDEX)))
        elif name not in self.same:
            yield statement

    def _is_skipped(self, loop: For) -> bool:
        begin, end = self._number(loop.begin), self._number(loop.end)
        return isinstance(begin, int) and isinstance(end, int) and begin >= end


def _only_result(statement: Statement) -> str:
    """The name of the result; nothing has the empty name that stands for none or several."""
    return statement.results[0].name if len(statement.results) == 1 else ""


def _last(renaming: dict[str, Value]) -> dict[str, Value]:
    """Names that lead to their last meaning."""
    found: dict[str, Value] = {}
    for name in renaming:
        chain = [name]
        while (last := chain[-1]) in renaming and last not in found:
            chain.append(renaming[last].name)
        found.update(dict.fromkeys(chain[:-1], found[last] if last in found else renaming[chain[-2]]))
    return found
