"""What linear algebra on single elements shares: `C := alpha * f + beta * C`, element by element.

Everything is computed in the accumulation type of C and rounded once; where beta is 0, C is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import as_value, least
from lamella.kernels.passes.lower_linalg.operands import WIDER, RegionValues, ScalarFactor
from lamella.kernels.passes.lower_linalg.scaling import cast, constant
from lamella.lang.tensor.nodes import INDEX, Blas, If, IndexOrSize, Memref, Scalar, Value

I32 = Scalar("i32")


@dataclass(frozen=True, slots=True)
class MemrefOperand:
    """A memref operand."""

    value: Value
    type: Memref

    def extent(self, builder: Builder, mode: int) -> IndexOrSize:
        """The size of a mode."""
        size = self.type.shape[mode]
        return builder.size(self.value, mode) if size is None else size


@dataclass(frozen=True, slots=True)
class Update:
    """An instruction taken apart: its operands, and the factors in the type in which it computes."""

    blas: Blas
    sources: tuple[MemrefOperand, ...]
    target: MemrefOperand
    wide: Scalar
    alpha: Value | None
    """None where it is 1."""
    beta: Value | None
    """None where it is 1."""
    overwrite: bool
    """Whether C is not read."""

    def load(self, builder: Builder, source: int, indices: Sequence[Value]) -> Value:
        """An element of an operand in the type in which is computed."""
        return self._load(builder, self.sources[source], indices)

    def finish(self, builder: Builder, value: Value, indices: Sequence[Value]) -> None:
        """Store the element that belongs to a value of f."""
        if self.alpha is not None:
            value = builder.arith("mul", self.alpha, value, type_=self.wide)
        flag = ""
        if self.blas.atomic:
            flag = "atomic" if self.overwrite else "atomic_add"
        elif not self.overwrite:
            before = self._load(builder, self.target, indices)
            if self.beta is not None:
                before = builder.arith("mul", self.beta, before, type_=self.wide)
            value = builder.arith("add", value, before, type_=self.wide)
        rounded = cast(builder, value, self.wide, Scalar(self.target.type.element))
        builder.store(rounded, self.target.value, indices, flag)

    def zero(self, builder: Builder) -> Value:
        """The number that changes no sum."""
        return constant(builder, 0, self.wide)

    def add(self, builder: Builder, left: Value, right: Value) -> Value:
        """The sum of two values."""
        return builder.arith("add", left, right, type_=self.wide)

    def _load(self, builder: Builder, array: MemrefOperand, indices: Sequence[Value]) -> Value:
        kind = Scalar(array.type.element)
        return cast(builder, builder.load(array.value, indices, kind), kind, self.wide)


def write_updates(
    builder: Builder, blas: Blas, known: RegionValues, write: Callable[[Builder, Update], None]
) -> None:
    """Write an instruction: once, or once with C read and once without it where only the run tells whether it is."""
    alpha, *sources, beta, target = blas.operands
    arrays = tuple(MemrefOperand(item, known.memref(item)) for item in sources)
    result = MemrefOperand(target, known.memref(target))
    wide = Scalar(WIDER.get(result.type.element, result.type.element))
    factors = known.factor(alpha), known.factor(beta)
    first, second = (_widen(builder, factor, wide) for factor in factors)
    update = Update(blas, arrays, result, wide, first, second, factors[1].is_known(0))
    if factors[1].known is not None:
        write(builder, update)
        return
    condition = builder.compare("eq", beta, constant(builder, 0, factors[1].type))
    with builder.choice(condition) as (then, otherwise):
        write(then, replace(update, overwrite=True))
        write(otherwise, update)


def _widen(builder: Builder, factor: ScalarFactor, wide: Scalar) -> Value | None:
    """A factor in the type in which is computed; None where it changes nothing."""
    if factor.is_known(1):
        return None
    return cast(builder, factor.value, factor.type, wide)


# --- extents and work-items ---------------------------------------------------------------------------------


def shared_extent(builder: Builder, *modes: tuple[MemrefOperand, int]) -> IndexOrSize:
    """A size that operands share; at run time they may disagree, and none is touched past its end."""
    found, *others = (array.extent(builder, mode) for array, mode in modes)
    for item in others:
        found = least(builder, found, item)
    return found


@dataclass(frozen=True, slots=True)
class Lanes:
    """The work-item at hand in a `parallel`: its number in the subgroup, the sizes, the subgroup's number."""

    lane: Value
    size: Value
    subgroup: Value
    subgroups: Value


def find_lanes(builder: Builder) -> Lanes:
    """Ask for the place of the work-item."""
    names = ("subgroup_local_id", "subgroup_size", "subgroup_id", "num_subgroups")
    return Lanes(*(builder.cast(builder.builtin(name, I32), INDEX) for name in names))


@contextmanager
def each_line(
    builder: Builder, extents: Sequence[IndexOrSize], lanes: Lanes
) -> Iterator[tuple[Builder, list[Value]]]:
    """All positions in some modes, shared among the subgroups; without a mode the first subgroup does all."""
    if not extents:
        first = builder.compare("eq", lanes.subgroup, builder.constant(0))
        with builder.condition(first) as inner:
            yield inner, []
        return
    indices: list[Value] = []
    with ExitStack() as loops:
        for extent in reversed(extents):
            begin, step = (builder.constant(0), None) if indices else (lanes.subgroup, lanes.subgroups)
            loop = loops.enter_context(builder.loop(begin, as_value(builder, extent), step))
            builder = loop.body
            indices.insert(0, loop.variable)
        yield builder, indices


def choose(
    builder: Builder, condition: Value, kind: Scalar, then: Callable[[Builder], Value], otherwise: Value
) -> Value:
    """A value that is computed only where a condition holds."""
    first, second = builder.inner(), builder.inner()
    first.give(then(first))
    second.give(otherwise)
    return builder.value(If(condition, first.region(), second.region(), (kind,)))
