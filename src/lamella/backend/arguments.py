"""What a caller passes to a kernel, held beside the types, attributes and promises of its parameters."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias, cast

import numpy as np

from lamella.base.arrays import Array, DType, numpy_dtype
from lamella.base.diagnostic import Diagnostic, Label, Rule
from lamella.base.dtype import LANGUAGES
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.kernels.rewrite import used_values, walk
from lamella.lang.tensor import write_type
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    AtomicUpdate,
    Barrier,
    Blas,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopApply,
    CoopConstruct,
    CoopExtract,
    CoopInsert,
    CoopLoad,
    CoopMulAdd,
    CoopReduce,
    CoopScale,
    CoopStore,
    Dictionary,
    Expand,
    For,
    Foreach,
    ForeachTile,
    Function,
    Fuse,
    Group,
    If,
    Instruction,
    LifetimeStop,
    Load,
    Math,
    Memref,
    Parallel,
    Parameter,
    Scalar,
    SizeOf,
    Statement,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Subview,
    Value,
    Yield,
)
from lamella.lang.tensor.rules import running as rules

# --- the NumPy types of the tensor language's element types -------------------------------------------------


DTYPES = MappingProxyType({name: numpy_dtype(element) for name, element in LANGUAGES["tensor"].items()})
"""For each element type, the NumPy type that holds it; `index` and `i64` share one."""


def dtype_of(element: str) -> DType:
    """The NumPy type of an element type."""
    found: DType = DTYPES[element]
    return found


# --- which shapes the collective instructions take together -------------------------------------------------


Shape: TypeAlias = tuple[int, ...]
Test: TypeAlias = Callable[[Sequence[Shape], Shape], bool]

SHAPES: Mapping[str, Test] = MappingProxyType(
    {
        "axpby": lambda shapes, result: shapes[0] == result,
        "cumsum": lambda shapes, result: shapes[0] == result,
        "sum": lambda shapes, result: shapes[0][:-1] == result,
        "gemm": lambda shapes, result: (
            shapes[0][1] == shapes[1][0] and result == (shapes[0][0], shapes[1][1])
        ),
        "gemv": lambda shapes, result: shapes[0][1:] == shapes[1] and result == shapes[0][:1],
        "ger": lambda shapes, result: result == (*shapes[0], *shapes[1]),
        "hadamard": lambda shapes, result: shapes[0] == shapes[1] == result,
    }
)
"""For each instruction, whether operands of these shapes, transposed already, give a result of that one."""


# --- which parameters of a kernel are written, found through views and elements of groups -------------------


READING = (
    Alloca
    | Arith
    | Barrier
    | Builtin
    | Cast
    | Compare
    | Constant
    | CoopApply
    | CoopConstruct
    | CoopExtract
    | CoopInsert
    | CoopLoad
    | CoopMulAdd
    | CoopReduce
    | CoopScale
    | Expand
    | For
    | Foreach
    | ForeachTile
    | Fuse
    | If
    | LifetimeStop
    | Load
    | Math
    | Parallel
    | SizeOf
    | SubgroupBroadcast
    | SubgroupOperation
    | Subview
    | Yield
)
"""Instructions that write no memory themselves."""


def written_parameters(function: Function) -> dict[str, Span]:
    """The memref and group parameters that a kernel may write, each with the first place where it does."""
    roots = {
        item.value.name: item.value.name for item in function.parameters if not isinstance(item.type, Scalar)
    }
    found: dict[str, Span] = {}
    for statement in walk(function.body):
        for target in _written_values(statement.instruction):
            root = roots.get(target.name)
            if root is not None:
                found.setdefault(root, statement.span)
        _follow(statement, roots)
    return found


def written_value(instruction: Instruction) -> Value | None:
    """The memref that an instruction writes."""
    if isinstance(instruction, Store | CoopStore | AtomicUpdate):
        return instruction.operand
    return instruction.operands[-1] if isinstance(instruction, Blas) else None


def _written_values(instruction: Instruction) -> Iterator[Value]:
    """The memrefs that an instruction may write: of one that is not known here, all that it is given."""
    target = written_value(instruction)
    if target is not None:
        yield target
    elif not isinstance(instruction, READING):
        yield from used_values(instruction)


def viewed_value(instruction: Instruction) -> Value | None:
    """What an instruction makes a view of: a memref, or a group whose element it loads."""
    if isinstance(instruction, Subview | Expand | Fuse):
        return instruction.operand
    is_element = isinstance(instruction, Load) and isinstance(instruction.type, Memref)
    return instruction.operand if isinstance(instruction, Load) and is_element else None


def _follow(statement: Statement, roots: dict[str, str]) -> None:
    """Note what a result is a view of; a name may have meant something else in a region that has ended."""
    viewed = viewed_value(statement.instruction)
    root = None if viewed is None else roots.get(viewed.name)
    for result in statement.results:
        roots.pop(result.name, None)
        if root is not None:
            roots[result.name] = root


# --- arguments that share memory: a kernel may take it that what it writes is nobody else's -----------------


MOST_WORK = 10_000
"""Steps for one exact comparison; whoever needs more is not found out."""
MOST_ACTIVE = 16
"""Blocks that one block is compared with."""
# The types of NumPy know only the two extremes of the work that may be done.
_shares_memory = cast(Callable[[Array, Array, int], bool], np.shares_memory)


@dataclass(frozen=True, slots=True)
class ArrayMemory:
    """The memory of an array that belongs to a parameter; strides are in bytes and not negative."""

    name: str
    low: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    width: int

    @property
    def high(self) -> int:
        """The first byte behind the block; an empty one ends where it begins."""
        if 0 in self.shape:
            return self.low
        steps = zip(self.shape, self.strides, strict=True)
        return self.low + self.width + sum((size - 1) * step for size, step in steps)

    @property
    def is_folded(self) -> bool:
        """Whether several positions are one element: along a mode with a stride of 0."""
        return 0 not in self.shape and any(
            size > 1 and step == 0 for size, step in zip(self.shape, self.strides, strict=True)
        )

    def view(self) -> Array:
        """The block as an array, which nobody reads: only its addresses are compared."""
        memory = memoryview((ctypes.c_char * (self.high - self.low)).from_address(self.low)).cast("B")
        return np.ndarray(self.shape, np.dtype((np.void, self.width)), memory, 0, self.strides)


def find_folded(blocks: Sequence[ArrayMemory], written: Mapping[str, object]) -> str | None:
    """A parameter that is written and has several positions for one element, or None."""
    return next((item.name for item in blocks if item.name in written and item.is_folded), None)


def find_overlap(blocks: Sequence[ArrayMemory], written: Mapping[str, object]) -> tuple[str, str] | None:
    """Two parameters that certainly share memory, the first of them written, or None where no pair is certain."""
    active: list[ArrayMemory] = []
    for block in sorted((item for item in blocks if 0 not in item.shape), key=lambda item: item.low):
        active = [item for item in active if item.high > block.low][-MOST_ACTIVE:]
        for other in active:
            named = (block.name, other.name) if block.name in written else (other.name, block.name)
            if block.name != other.name and named[0] in written and _share(block, other):
                return named
        active.append(block)
    return None


def _share(one: ArrayMemory, other: ArrayMemory) -> bool:
    try:
        return _shares_memory(one.view(), other.view(), MOST_WORK)
    except np.exceptions.TooHardError:
        return False


def overlap_finding(function: Function, names: tuple[str, str], written: Mapping[str, Span]) -> Diagnostic:
    """The finding about two parameters that share memory."""
    name, other = names
    parameter = next(item for item in function.parameters if item.value.name == name)
    labels = [Label(written[name], f"'%{name}' is written here")]
    return rules.OVERLAPPING_ARGUMENTS.at(parameter.span, hint=None, labels=labels, name=name, other=other)


# --- arguments against the types and promises of the parameters: all findings at once ------------------------


@dataclass(frozen=True, slots=True)
class Arrays:
    """The argument of a group whose offset is known only at launch: its arrays and the offset in elements."""

    items: Sequence[Array]
    offset: int = 0


def verify_arguments(function: Function, arguments: Sequence[object]) -> list[Diagnostic]:
    """All that is wrong with the arguments of a launch."""
    if len(arguments) != len(function.parameters):
        return [miscounted(function, len(arguments))]
    pairs = list(zip(function.parameters, arguments, strict=True))
    findings = [finding for pair in pairs for finding in verify_argument(*pair)]
    return findings or _verify_apart(function, pairs)


def miscounted(function: Function, given: int) -> Diagnostic:
    """The finding that a kernel gets too many or too few arguments."""
    shown = ", ".join(f"%{item.value.name}: {write_type(item.type)}" for item in function.parameters)
    values = {"name": function.name, "wanted": len(function.parameters), "given": given}
    return rules.ARGUMENT_COUNT.at(function.span, hint=None, labels=(), parameters=shown or "none", **values)


def verify_argument(parameter: Parameter, argument: object) -> Iterator[Diagnostic]:
    """What is wrong with one argument."""
    if isinstance(parameter.type, Scalar):
        yield from _verify_scalar(parameter, parameter.type, argument)
    elif isinstance(parameter.type, Memref):
        yield from _verify_array(parameter, parameter.type, argument)
    elif isinstance(parameter.type, Group):
        yield from _verify_group(parameter, parameter.type, argument)


def group_items(kind: Group, argument: object) -> Arrays:
    """The arrays and the offset of the argument of a group."""
    if isinstance(argument, Arrays):
        return argument
    return Arrays(argument if isinstance(argument, list | tuple) else (), kind.offset or 0)


def layout_strides(kind: Memref, array: Array) -> tuple[int, ...]:
    """Strides in elements; the declared ones stand where the array's own are never used."""
    pairs = zip(array.strides, kind.stride, strict=True)
    return tuple(max(0, given) // array.itemsize if wanted is None else wanted for given, wanted in pairs)


def promised(attributes: Dictionary | None, key: str) -> list[int]:
    """The positive integers of an attribute: one, a list, or none."""
    found = None if attributes is None else attributes.find(key)
    items = found if isinstance(found, tuple) else (found,)
    return [item for item in items if isinstance(item, int) and item > 0]


def _verify_apart(function: Function, pairs: Sequence[tuple[Parameter, object]]) -> list[Diagnostic]:
    written = written_parameters(function)
    blocks = [block for parameter, argument in pairs for block in _blocks(parameter, argument)]
    folded = find_folded(blocks, written)
    names = find_overlap(blocks, written) if folded is None else (folded, folded)
    return [] if names is None else [overlap_finding(function, names, written)]


def _blocks(parameter: Parameter, argument: object) -> Iterator[ArrayMemory]:
    if isinstance(argument, np.ndarray):
        items, offset = Arrays([argument]), 0
    elif isinstance(parameter.type, Group):
        items = group_items(parameter.type, argument)
        offset = items.offset
    else:
        return
    for item in items.items:
        low = item.ctypes.data + offset * item.itemsize
        yield ArrayMemory(parameter.value.name, low, item.shape, item.strides, item.itemsize)


def _find(rule: Rule, parameter: Parameter, **values: object) -> Diagnostic:
    return rule.at(parameter.span, hint=None, labels=(), name=parameter.value.name, **values)


def _wrong_kind(parameter: Parameter, argument: object) -> Diagnostic:
    given = f"of Python type {type(argument).__name__}"
    return _find(rules.ARGUMENT_KIND, parameter, given=given, type=write_type(parameter.type))


# --- scalars ------------------------------------------------------------------------------------------------


def _verify_scalar(parameter: Parameter, kind: Scalar, argument: object) -> Iterator[Diagnostic]:
    if not isinstance(argument, bool | int | float | complex | np.generic):
        yield _wrong_kind(parameter, argument)
    elif not _fits(kind, argument):
        yield _find(rules.ARGUMENT_VALUE, parameter, value=argument, type=kind)


def _fits(kind: Scalar, argument: complex | np.generic) -> bool:
    """Whether a number is a value of a type; floating-point types round it."""
    if kind.name == "bool" or isinstance(argument, bool | np.bool_):
        return kind.name == "bool" and isinstance(argument, bool | np.bool_)
    dtype = dtype_of(kind.name)
    if dtype.kind == "i":
        bounds = np.iinfo(dtype)
        return isinstance(argument, int | np.integer) and bounds.min <= int(argument) <= bounds.max
    if isinstance(argument, int):
        return abs(argument) < 1 << 1023
    complex_given = isinstance(argument, complex | np.complexfloating)
    return dtype.kind == "c" or not complex_given


# --- arrays -------------------------------------------------------------------------------------------------


def _verify_array(
    parameter: Parameter, kind: Memref, argument: object, offset: int = 0
) -> Iterator[Diagnostic]:
    if not isinstance(argument, np.ndarray):
        yield _wrong_kind(parameter, argument)
    elif argument.dtype != dtype_of(kind.element):
        yield _find(rules.ARGUMENT_ELEMENT, parameter, given=argument.dtype, element=kind.element)
    elif argument.ndim != kind.order:
        yield _find(rules.ARGUMENT_ORDER, parameter, given=argument.ndim, wanted=kind.order)
    else:
        layout = [*_verify_sizes(parameter, kind, argument), *_verify_strides(parameter, kind, argument)]
        yield from layout or _verify_promises(parameter, kind, argument, offset)


def _verify_sizes(parameter: Parameter, kind: Memref, array: Array) -> Iterator[Diagnostic]:
    for mode, (given, wanted) in enumerate(zip(array.shape, kind.shape, strict=True)):
        if wanted is not None and given != wanted:
            yield _find(rules.ARGUMENT_SIZE, parameter, mode=mode, given=given, wanted=wanted)


def _verify_strides(parameter: Parameter, kind: Memref, array: Array) -> Iterator[Diagnostic]:
    """The stride of a mode that has at most one element is never used and may be anything."""
    used = [mode for mode, size in enumerate(array.shape) if size > 1 and array.size]
    width = array.itemsize
    odd = next((mode for mode in used if array.strides[mode] < 0 or array.strides[mode] % width), None)
    if odd is not None:
        yield _find(rules.ARGUMENT_LAYOUT, parameter, mode=odd, given=array.strides[odd], size=width)
    elif any(kind.stride[mode] not in (None, array.strides[mode] // width) for mode in used):
        given = ",".join(str(step // width) for step in array.strides)
        wanted = ",".join("?" if step is None else str(step) for step in kind.stride)
        yield _find(rules.ARGUMENT_STRIDE, parameter, given=given, wanted=wanted)


def _verify_promises(parameter: Parameter, kind: Memref, array: Array, offset: int) -> Iterator[Diagnostic]:
    first = array.ctypes.data + offset * array.itemsize
    for divisor in promised(parameter.attributes, "alignment"):
        rest = first % divisor if array.size else 0
        if rest:
            yield _find(rules.BROKEN_ALIGNMENT, parameter, rest=rest, alignment=divisor)
    for mode, (divisor, given) in enumerate(
        zip(promised(parameter.attributes, "shape_gcd"), array.shape, strict=False)
    ):
        if given % divisor:
            yield _find(rules.BROKEN_SHAPE_GCD, parameter, mode=mode, given=given, divisor=divisor)
    strides = layout_strides(kind, array)
    for mode, (divisor, given) in enumerate(
        zip(promised(parameter.attributes, "stride_gcd"), strides, strict=False)
    ):
        if given % divisor and array.shape[mode] > 1 and array.size:
            yield _find(rules.BROKEN_STRIDE_GCD, parameter, mode=mode, given=given, divisor=divisor)


# --- groups -------------------------------------------------------------------------------------------------


def _verify_group(parameter: Parameter, kind: Group, argument: object) -> Iterator[Diagnostic]:
    items, offset = (
        (argument.items, argument.offset) if isinstance(argument, Arrays) else (argument, kind.offset or 0)
    )
    if not isinstance(items, list | tuple):
        yield _wrong_kind(parameter, argument)
        return
    if kind.size is not None and len(items) != kind.size:
        yield _find(rules.ARGUMENT_GROUP, parameter, given=len(items), wanted=kind.size)
    is_number = isinstance(offset, int | np.integer)
    if not is_number or offset < 0 or offset != (kind.offset if kind.offset is not None else offset):
        wanted = "?" if kind.offset is None else kind.offset
        yield _find(rules.ARGUMENT_OFFSET, parameter, given=offset, wanted=wanted)
        return
    for item in items:
        yield from _verify_array(parameter, kind.memref, item, offset)


__all__ = [
    "ArrayMemory",
    "Arrays",
    "dtype_of",
    "find_overlap",
    "group_items",
    "layout_strides",
    "miscounted",
    "overlap_finding",
    "promised",
    "verify_argument",
    "verify_arguments",
    "written_parameters",
]
