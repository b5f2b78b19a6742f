"""Kernels whose `foreach` runs as NumPy arrays: the interpreter's own arithmetic, many indices at a time.

A `foreach` gives its indices no order, so all of them may take each statement together. Loads and stores are tested as
the interpreter tests them. What is not written here (lanes, matrices, atomic sums), and a fault of any kind, is left to
the interpreter, which then says what it has to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from lamella.backend.arguments import dtype_of
from lamella.backend.interpreter import arithmetic, take_arguments
from lamella.backend.interpreter.arithmetic import Number, convert, make_integer, make_number
from lamella.backend.interpreter.evaluate import element_of, make_garbage
from lamella.backend.interpreter.memory import GroupReference, MemrefReference
from lamella.base.arrays import Array
from lamella.base.errors import Unsupported
from lamella.base.limits import Limits
from lamella.kernels.rewrite import walk
from lamella.lang.tensor import nodes
from lamella.ops.fault import Fault

CHUNK = 1 << 15
"""Indices that take a statement together."""
BUILTINS = ("group_id", "group_size")
WRITTEN = (
    *(nodes.Alloca, nodes.Arith, nodes.Barrier, nodes.Builtin, nodes.Cast, nodes.Compare, nodes.Constant),
    *(
        nodes.Expand,
        nodes.For,
        nodes.Foreach,
        nodes.Fuse,
        nodes.If,
        nodes.LifetimeStop,
        nodes.Load,
        nodes.Math,
    ),
    *(nodes.SizeOf, nodes.Store, nodes.Subview, nodes.Yield),
)
"""Instructions that are written here."""

Held: TypeAlias = Number | MemrefReference


def runs_in_lanes(function: nodes.Function) -> bool:
    """Whether everything in a kernel is written here."""
    for statement in walk(function.body):
        item = statement.instruction
        if not isinstance(item, WRITTEN) or (isinstance(item, nodes.Store) and item.flag):
            return False
        if isinstance(item, nodes.Builtin) and item.name not in BUILTINS:
            return False
    return not any(isinstance(item.type, nodes.Group) for item in function.parameters)


def run_in_lanes(function: nodes.Function, arguments: Sequence[object], groups: int, limits: Limits) -> bool:
    """Run all work-groups; False, with the outputs in any state, where only the interpreter can say what happens."""
    taken = take_arguments(function, arguments)
    running = _Running(limits.max_steps, groups)
    try:
        with np.errstate(all="ignore"):
            for number in range(groups):
                running.group = number
                values = {name: item for name, item in taken.items() if not isinstance(item, GroupReference)}
                running.region(function.body, _Lanes(values))
    except (Fault, Unsupported):
        return False
    return True


class _Lanes:
    """The values of a region: one for all indices, or an array with one for each of them."""

    def __init__(
        self, values: dict[str, Held], outer: _Lanes | None = None, which: Array | None = None
    ) -> None:
        self.values = values
        self.outer = outer
        self.which = which
        """The indices of those around that are here, where it is not all of them."""

    def find(self, name: str) -> Held:
        """A value; one of an outer region is cut to the indices that are here when it is asked for."""
        found = self.values.get(name)
        if found is None and self.outer is not None:
            found = self.outer.find(name)
            if self.which is not None and isinstance(found, np.ndarray) and found.ndim:
                found = found[self.which]
            self.values[name] = found
        if found is None:
            raise Unsupported(name)
        return found

    def number(self, value: nodes.Value) -> Number:
        """A number, or one for each index."""
        found = self.find(value.name)
        if isinstance(found, MemrefReference):
            raise Unsupported(value.name)
        return found

    def memref(self, value: nodes.Value) -> MemrefReference:
        """Memory."""
        found = self.find(value.name)
        if not isinstance(found, MemrefReference):
            raise Unsupported(value.name)
        return found

    def integer(self, value: nodes.IndexOrSize) -> int:
        """An integer that is the same for all indices."""
        if isinstance(value, int):
            return value
        found = np.asarray(self.number(value))
        if found.ndim and (found.size == 0 or (found != found.flat[0]).any()):
            raise Unsupported("it differs from index to index")
        return int(found.flat[0])


class _Running:
    """One launch, and how many steps it has taken."""

    def __init__(self, most_steps: int, groups: int) -> None:
        self.left = most_steps
        self.groups = groups
        self.group = 0

    def step(self) -> None:
        """Count a trip of a loop, or a piece of a foreach."""
        self.left -= 1
        if self.left < 0:
            raise Unsupported("too many steps")

    def region(self, region: nodes.Region, lanes: _Lanes) -> tuple[Held, ...]:
        """Execute a region; gives what it yields."""
        for statement in region.statements:
            item = statement.instruction
            if isinstance(item, nodes.Yield):
                return tuple(lanes.find(value.name) for value in item.values)
            results = self.instruction(item, lanes)
            for value, result in zip(statement.results, results, strict=False):
                lanes.values[value.name] = result
        return ()

    def instruction(self, item: nodes.Instruction, lanes: _Lanes) -> tuple[Held, ...]:
        """Execute one instruction."""
        if isinstance(item, nodes.For):
            return self._loop(item, lanes)
        if isinstance(item, nodes.Foreach):
            return self._foreach(item, lanes)
        if isinstance(item, nodes.If):
            return self._branch(item, lanes)
        if isinstance(item, nodes.Store):
            _store(item, lanes)
            return ()
        if isinstance(item, nodes.Builtin):
            number = self.group if item.name == "group_id" else self.groups
            return (make_integer(number, element_of(item.type)),)
        return _evaluate(item, lanes)

    def _loop(self, item: nodes.For, lanes: _Lanes) -> tuple[Held, ...]:
        index, end = lanes.integer(item.begin), lanes.integer(item.end)
        step = 1 if item.step is None else lanes.integer(item.step)
        carried: tuple[Held, ...] = tuple(lanes.find(start.name) for _, start in item.carried)
        while index < end:
            self.step()
            values: dict[str, Held] = {item.variable.name: make_integer(index, item.type.name)}
            values |= {value.name: held for (value, _), held in zip(item.carried, carried, strict=True)}
            carried = self.region(item.body, _Lanes(values, lanes))
            index = arithmetic.wrap_integer(index + step, item.type.name)
        return carried

    def _foreach(self, item: nodes.Foreach, lanes: _Lanes) -> tuple[Held, ...]:
        ends = [(lanes.integer(b), lanes.integer(e)) for b, e in zip(item.begins, item.ends, strict=True)]
        sizes = [max(0, end - begin) for begin, end in ends]
        kind = dtype_of(item.type.name)
        for start in range(0, math.prod(sizes), CHUNK):
            self.step()
            rest = np.arange(start, min(start + CHUNK, math.prod(sizes)), dtype=np.int64)
            values: dict[str, Held] = {}
            for variable, (begin, _), size in zip(item.variables, ends, sizes, strict=True):
                values[variable.name] = (rest % size + begin).astype(kind)
                rest = rest // size
            self.region(item.body, _Lanes(values, lanes))
        return ()

    def _branch(self, item: nodes.If, lanes: _Lanes) -> tuple[Held, ...]:
        condition = np.asarray(lanes.number(item.condition))
        if not condition.ndim:
            region = item.then if condition else item.otherwise
            return () if region is None else self.region(region, _Lanes({}, lanes))
        sides: list[tuple[Array, tuple[Held, ...]]] = []
        for region, mask in ((item.then, condition), (item.otherwise, ~condition)):
            which = np.flatnonzero(mask)
            if region is not None and which.size:
                sides.append((which, self.region(region, _Lanes({}, lanes, which))))
        return tuple(_merge(condition.size, sides, place) for place in range(len(item.types)))


def _merge(count: int, sides: Sequence[tuple[Array, tuple[Held, ...]]], place: int) -> Number:
    """What the branches yield, each for its own indices."""
    found: Array | None = None
    for which, yielded in sides:
        part = yielded[place]
        if isinstance(part, MemrefReference):
            raise Unsupported("a branch gives memory")
        if found is None:
            found = np.zeros(count, part.dtype)
        found[which] = part
    if found is None:
        raise Unsupported("no branch is taken")
    return found


def _evaluate(item: nodes.Instruction, lanes: _Lanes) -> tuple[Held, ...]:
    """An instruction that gives one value, or that only says something about memory."""
    if isinstance(item, nodes.Constant):
        return (make_number(item.value, element_of(item.type)),)
    if isinstance(item, nodes.Arith):
        return (_arith(item.function, [lanes.number(value) for value in item.operands]),)
    if isinstance(item, nodes.Compare):
        return (arithmetic.compare(item.function, lanes.number(item.left), lanes.number(item.right)),)
    if isinstance(item, nodes.Math):
        operands = [lanes.number(value) for value in item.operands]
        return (arithmetic.compute_math(item.function, operands, element_of(item.type)),)
    if isinstance(item, nodes.Cast):
        return (convert(lanes.number(item.operand), element_of(item.type)),)
    if isinstance(item, nodes.Load):
        source = lanes.memref(item.operand)
        return (source.memory[_places(source, item.indices, lanes)],)
    return _view(item, lanes)


def _arith(function: str, operands: Sequence[Number]) -> Number:
    if function == "select":
        return np.where(operands[0], operands[1], operands[2])[()]
    if function == "fma":
        return arithmetic.compute_fused(*operands)
    if len(operands) == 1:
        return arithmetic.compute_unary(function, operands[0])
    return arithmetic.compute_binary(function, *operands)


def _view(item: nodes.Instruction, lanes: _Lanes) -> tuple[Held, ...]:
    """Sizes, views and local memory."""
    if isinstance(item, nodes.SizeOf):
        return (make_integer(lanes.memref(item.operand).shape[item.mode], "index"),)
    if isinstance(item, nodes.Subview):
        slices = [
            (lanes.integer(part.offset), None if part.size == 0 else lanes.integer(part.size))
            for part in item.slices
        ]
        return (lanes.memref(item.operand).subview(slices, check_bounds=False),)
    if isinstance(item, nodes.Expand):
        return (lanes.memref(item.operand).expand(item.mode, [lanes.integer(size) for size in item.sizes]),)
    if isinstance(item, nodes.Fuse):
        return (lanes.memref(item.operand).fuse(item.first, item.last),)
    if isinstance(item, nodes.Alloca):
        shape, stride = (tuple(size or 0 for size in part) for part in (item.type.shape, item.type.stride))
        reach = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        count = reach + 1 if math.prod(shape) else 0
        return (MemrefReference("alloca", make_garbage(item.type.element, count), 0, shape, stride),)
    return ()


def _places(memref: MemrefReference, indices: Sequence[nodes.Value], lanes: _Lanes) -> Array:
    """Where elements lie in memory; each index is inside its mode, each place inside the memory."""
    place = np.asarray(memref.offset, np.int64)
    for index, size, step in zip(indices, memref.shape, memref.stride, strict=True):
        found = np.asarray(lanes.number(index), np.int64)
        if ((found < 0) | (found >= size)).any():
            raise Unsupported("an index leaves its memref")
        place = place + found * step
    if ((place < 0) | (place >= memref.memory.size)).any():
        raise Unsupported("an element leaves its memory")
    return place


def _store(item: nodes.Store, lanes: _Lanes) -> None:
    target = lanes.memref(item.operand)
    if not target.memory.flags.writeable:
        raise Unsupported("memory must not be written")
    target.memory[_places(target, item.indices, lanes)] = lanes.number(item.value)
