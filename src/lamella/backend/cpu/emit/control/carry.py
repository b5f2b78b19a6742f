"""Values that cross a branch, a loop or a barrier, taken apart into LLVM operands and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.integers import dynamic, spread
from lamella.backend.cpu.emit.values import MatrixValue, MemrefValue, RunValue, ScalarValue, llvm


def settle(context: EmitContext, value: RunValue, varying: bool) -> RunValue:
    """A value in the form in which it is carried: nothing is known of it but its operands."""
    if not isinstance(value, ScalarValue):
        return value
    if varying and context.lanes > 1:
        wide = spread(context, value)
        return ScalarValue(wide.element, wide.parts, context.lanes)
    if value.is_uniform:
        return ScalarValue(value.element, value.parts)
    wide = spread(context, value)
    kind = llvm(value.element, context.lanes)
    parts = tuple(context.out.value(f"extractelement {kind} {part}, i64 0") for part in wide.parts)
    return ScalarValue(value.element, parts)


def operands_of(value: RunValue) -> Iterator[tuple[str, str]]:
    """The LLVM type and operand of everything that a value is at run time."""
    if isinstance(value, ScalarValue):
        yield from ((llvm(value.element, value.count), part) for part in value.parts)
        if not value.parts and value.base is not None:
            yield llvm(value.element), value.base
    elif isinstance(value, MatrixValue):
        kind = llvm(value.type.element, value.width)
        yield from ((kind, item) for part in value.parts for item in part)
    elif isinstance(value, MemrefValue):
        for item in (value.pointer, value.offset, *value.sizes, *value.strides):
            if item.constant is None:
                yield from operands_of(item)


def with_operands(value: RunValue, operands: Sequence[str]) -> RunValue:
    """The same kind of value with other operands, in the order of `operands_of`."""
    return _rebuild(value, iter(operands))


def _rebuild(value: RunValue, operands: Iterator[str]) -> RunValue:
    if isinstance(value, ScalarValue):
        return _rebuild_lanes(value, operands)
    if isinstance(value, MatrixValue):
        parts = tuple(tuple(next(operands) for _ in part) for part in value.parts)
        return replace(value, parts=parts)
    if isinstance(value, MemrefValue):
        pointer = _rebuild_known(value.pointer, operands)
        offset = _rebuild_known(value.offset, operands)
        sizes = tuple(_rebuild_known(item, operands) for item in value.sizes)
        strides = tuple(_rebuild_known(item, operands) for item in value.strides)
        return replace(value, pointer=pointer, offset=offset, sizes=sizes, strides=strides)
    return value


def _rebuild_known(value: ScalarValue, operands: Iterator[str]) -> ScalarValue:
    return value if value.constant is not None else _rebuild_lanes(value, operands)


def _rebuild_lanes(value: ScalarValue, operands: Iterator[str]) -> ScalarValue:
    if value.parts:
        return replace(
            value, parts=tuple(next(operands) for _ in value.parts), constant=None, base=None, step=0
        )
    return replace(value, base=next(operands))


def choose(context: EmitContext, mask: str, new: RunValue, old: RunValue) -> RunValue:
    """The new value in lanes of a mask, the old one elsewhere; both are settled."""
    if isinstance(new, MatrixValue) or not isinstance(new, ScalarValue):
        return new
    if new.is_uniform:
        return new
    kind = f"<{context.lanes} x i1>"
    pairs = zip(operands_of(new), operands_of(old), strict=True)
    chosen = [
        context.out.value(f"select {kind} {mask}, {one} {first}, {one} {second}")
        for (one, first), (_, second) in pairs
    ]
    return with_operands(new, chosen)


class Merge:
    """Phis of a set of values, opened before what comes into them is known."""

    def __init__(self, context: EmitContext, values: Sequence[RunValue]) -> None:
        self._here = context
        self._holes: list[tuple[int, str, str]] = []
        self._incoming: list[list[str]] = []
        self.values = [self._open(value) for value in values]

    def _open(self, value: RunValue) -> RunValue:
        names = []
        for kind, _ in operands_of(value):
            hole, name = self._here.out.hole(), self._here.out.name()
            self._holes.append((hole, name, kind))
            self._incoming.append([])
            names.append(name)
        return with_operands(value, names)

    def receive(self, values: Sequence[RunValue], block: str) -> None:
        """What comes in from a block."""
        operands = [item for value in values for item in operands_of(value)]
        for incoming, (_, operand) in zip(self._incoming, operands, strict=True):
            incoming.append(f"[{operand}, %{block}]")

    def receive_nothing(self, block: str) -> None:
        """A block from which the values are never used."""
        for incoming in self._incoming:
            incoming.append(f"[zeroinitializer, %{block}]")

    def close(self) -> list[RunValue]:
        """Write the phis."""
        for (hole, name, kind), incoming in zip(self._holes, self._incoming, strict=True):
            self._here.out.fill(hole, f"{name} = phi {kind} {', '.join(incoming)}")
        return self.values


def index(operand: str, like: ScalarValue, divisor: int = 1) -> ScalarValue:
    """A uniform integer of the type of another."""
    return dynamic(operand, like.element, divisor)
