"""What statements do to memory, and where two of them may touch the same bytes.

A view is the memory it looks at. Distinct parameters never share memory; the memrefs of one group may. Allocas share
memory where their places in local memory overlap, as far as places are known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lamella.base.records import dataclass
from lamella.kernels.rewrite import constants_of, walk
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    Alloca,
    AtomicUpdate,
    Blas,
    CoopLoad,
    CoopStore,
    Expand,
    Function,
    Fuse,
    Group,
    Instruction,
    Load,
    Memref,
    Number,
    Store,
    Subview,
    Value,
)

# --- local memory: how many bytes an alloca takes, and where a pass has placed it ---------------------------


STACK_OFFSET = "stack_offset"
"""The attribute of an alloca that tells where in local memory it lies, in bytes."""


def local_size(type_: Memref) -> int:
    """The bytes that a local memref takes; sizes and strides are static."""
    pairs = [(size or 0, step or 0) for size, step in zip(type_.shape, type_.stride, strict=True)]
    if any(size == 0 for size, _ in pairs):
        return 0
    return BYTES[type_.element] * (1 + sum((size - 1) * step for size, step in pairs))


def stack_offset(alloca: Alloca) -> int | None:
    """The offset of an alloca; None where no pass has placed it yet."""
    found = None if alloca.attributes is None else alloca.attributes.find(STACK_OFFSET)
    return found if isinstance(found, int) else None


def local_bytes(function: Function) -> int:
    """The local memory of a work-group of a function whose allocas are placed."""
    found = (item.instruction for item in walk(function.body))
    ends = ((stack_offset(item) or 0) + local_size(item.type) for item in found if isinstance(item, Alloca))
    return max(ends, default=0)


READ, WRITE, ADD = 1, 2, 4
"""How memory is accessed; atomic additions do not disturb each other."""
MOST_CELLS = 256
"""Parts of local memory that are distinguished."""


def conflict(first: int, second: int) -> bool:
    """Whether accesses to the same memory must not change places."""
    return first > 0 and second > 0 and (first | second) not in (READ, ADD)


class MemoryCell(NamedTuple):
    """A piece of memory that is accessed as a whole: a parameter, or a part of local memory."""

    is_local: bool
    name: str


@dataclass(frozen=True, slots=True)
class Memories:
    """The memory of a function: what each memref is a view of, and of which cells that consists."""

    roots: Mapping[str, str]
    cells: Mapping[str, tuple[MemoryCell, ...]]
    constants: Mapping[str, Number]

    def accesses(self, instruction: Instruction) -> Iterator[tuple[MemoryCell, int]]:
        """The cells that an instruction itself accesses, and how."""
        for operand, kind in self._operands(instruction):
            yield from ((cell, kind) for cell in self.cells[self.roots[operand.name]])

    def _operands(self, instruction: Instruction) -> Iterator[tuple[Value, int]]:
        match instruction:
            case Load(operand=operand, type=type_) if not isinstance(type_, Memref):
                yield operand, READ
            case CoopLoad(operand=operand):
                yield operand, READ
            case Store(operand=operand, flag=flag) | CoopStore(operand=operand, flag=flag):
                yield operand, ADD if flag == "atomic_add" else WRITE
            case AtomicUpdate(operand=operand):
                yield operand, WRITE
            case Blas(operands=(_, *sources, beta, target), atomic=atomic):
                yield from ((item, READ) for item in sources)
                yield target, ADD if atomic and self._is_one(beta) else WRITE
            case _:
                return

    def _is_one(self, value: Value) -> bool:
        known = self.constants.get(value.name)
        return known == (1.0, 0.0) if isinstance(known, tuple) else known == 1


def find_memories(function: Function) -> Memories:
    """The memory of a function in which no name stands for two values."""
    roots = {
        item.value.name: item.value.name
        for item in function.parameters
        if isinstance(item.type, Memref | Group)
    }
    cells = {name: (MemoryCell(False, name),) for name in roots}
    allocas: dict[str, Alloca] = {}
    for statement in walk(function.body):
        name = statement.results[0].name if statement.results else ""
        match statement.instruction:
            case Alloca() as alloca:
                roots[name] = name
                allocas[name] = alloca
            case Subview(operand=operand) | Expand(operand=operand) | Fuse(operand=operand):
                roots[name] = roots[operand.name]
            case Load(operand=operand, type=Memref()):
                roots[name] = roots[operand.name]
            case _:
                continue
    return Memories(roots, {**cells, **_cut(allocas)}, constants_of(function))


def _cut(allocas: Mapping[str, Alloca]) -> dict[str, tuple[MemoryCell, ...]]:
    """The cells of allocas: local memory is cut where one of them begins or ends."""
    places = {
        name: (offset, offset + local_size(alloca.type))
        for name, alloca in allocas.items()
        if (offset := stack_offset(alloca)) is not None
    }
    cuts = _thin(sorted({bound for place in places.values() for bound in place}))
    return {
        name: tuple(_covered(cuts, *places[name])) if name in places else (MemoryCell(True, name),)
        for name in allocas
    }


def _thin(cuts: Sequence[int]) -> Sequence[int]:
    """Some of many cuts: larger cells cost barriers, more of them time."""
    step = -(-len(cuts) // MOST_CELLS)
    return cuts if step <= 1 else [*cuts[::step], cuts[-1]]


def _covered(cuts: Sequence[int], begin: int, end: int) -> Iterator[MemoryCell]:
    """The cells that bytes lie in; their names are no names of values."""
    if begin < end:
        first, last = bisect_right(cuts, begin) - 1, bisect_left(cuts, end)
        yield from (MemoryCell(True, f"bytes {number}") for number in range(first, last))
