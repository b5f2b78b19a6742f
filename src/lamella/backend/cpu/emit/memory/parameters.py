"""Parameters: what a kernel finds in the slots of its arguments, 8 bytes each, in the order of its parameters."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.memory.addresses import part_bytes
from lamella.backend.cpu.emit.memory.groups import SLOT
from lamella.backend.cpu.emit.values import LLVM, Lanes, Members, Memory, RunValue
from lamella.lang.tensor.check.kinds import BYTES, part_of
from lamella.lang.tensor.nodes import Dictionary, Group, Memref, Parameter, Scalar, Size

ARGUMENTS = "%args"


@dataclass(slots=True)
class _Slots:
    """The slots from one on."""

    here: Here
    next: int

    def read(self, kind: str, within: int = 0) -> str:
        """What the next slot holds, from a byte on."""
        place = SLOT * self.next + within
        pointer = self.here.out.value(f"getelementptr i8, ptr {ARGUMENTS}, i64 {place}")
        return self.here.out.value(f"load {kind}, ptr {pointer}, align {SLOT if not within else 4}")

    def take(self, kind: str) -> str:
        """What the next slot holds, and go on to the one behind."""
        found = self.read(kind)
        self.next += 1
        return found

    def number(self, value: Size, divisor: int = 1) -> Lanes:
        """A size or a stride, from a slot where the type does not tell it."""
        return (
            integers.number(value)
            if value is not None
            else integers.dynamic(self.take("i64"), divisor=divisor)
        )

    def array(self, value: Size) -> str | None:
        """The array of a size or a stride that the type does not tell."""
        return self.take("ptr") if value is None else None


def load_parameter(here: Here, parameter: Parameter, slot: int) -> tuple[RunValue, int]:
    """Emit the reading of a parameter from a slot on; gives its value and the slot behind it."""
    slots = _Slots(here, slot)
    kind, promises = parameter.type, parameter.attributes or Dictionary()
    found: RunValue
    if isinstance(kind, Memref):
        found = _load_memref(slots, kind, promises)
    elif isinstance(kind, Group):
        found = _load_group(slots, kind, promises)
    elif isinstance(kind, Scalar):
        found = _load_scalar(slots, kind.name)
    else:
        raise TypeError("a cooperative matrix is no parameter")
    return found, slots.next


def _load_scalar(slots: _Slots, element: str) -> Lanes:
    if element == "bool":
        byte = slots.take("i8")
        return Lanes(element, (slots.here.out.value(f"icmp ne i8 {byte}, 0"),))
    part, width = LLVM[element], part_bytes(element)
    if part_of(element) == element:
        return Lanes(element, (slots.take(part),))
    parts = (slots.read(part), slots.read(part, width))
    slots.next += BYTES[element] // SLOT
    return Lanes(element, parts)


def _load_memref(slots: _Slots, kind: Memref, promises: Dictionary) -> Memory:
    pointer = Lanes("ptr", (slots.take("ptr"),))
    shape_gcd, stride_gcd = _divisors(promises, "shape_gcd"), _divisors(promises, "stride_gcd")
    sizes = _numbers(slots, kind.shape, shape_gcd)
    strides = _numbers(slots, kind.stride, stride_gcd)
    alignment, streamed = _alignment(kind, promises), _is_streamed(promises)
    return Memory(kind, pointer, integers.number(0), sizes, strides, alignment, streamed)


def _numbers(slots: _Slots, values: tuple[Size, ...], divisors: tuple[int, ...]) -> tuple[Lanes, ...]:
    padded = (*divisors, *[1] * (len(values) - len(divisors)))
    return tuple(slots.number(value, divisor) for value, divisor in zip(values, padded, strict=True))


def _load_group(slots: _Slots, kind: Group, promises: Dictionary) -> Members:
    pointers, memref = slots.take("ptr"), kind.memref
    sizes = tuple(slots.array(value) for value in memref.shape)
    strides = tuple(slots.array(value) for value in memref.stride)
    count, offset = slots.number(kind.size), slots.number(kind.offset)
    return Members(
        kind,
        pointers,
        sizes,
        strides,
        count,
        offset,
        _alignment(memref, promises),
        _divisors(promises, "shape_gcd"),
        _divisors(promises, "stride_gcd"),
        _is_streamed(promises),
    )


def _alignment(kind: Memref, promises: Dictionary) -> int:
    """The alignment that is promised; without a promise that of the parts of an element."""
    found = promises.find("alignment")
    return found if isinstance(found, int) and found > 0 else part_bytes(kind.element)


def _is_streamed(promises: Dictionary) -> bool:
    return promises.find("streamed") is True


def _divisors(promises: Dictionary, key: str) -> tuple[int, ...]:
    found = promises.find(key)
    listed = found if isinstance(found, tuple) else ()
    return tuple(item if isinstance(item, int) and item > 0 else 1 for item in listed)
