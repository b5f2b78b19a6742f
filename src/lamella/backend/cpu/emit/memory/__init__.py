"""Memory: addresses, loads, stores, atomic updates, views, groups, and the parameters of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.memory.addresses import (
    LARGEST_ALIGNMENT,
    Address,
    address,
    alignment_of,
    element_pointer,
    first_pointer,
    lane_pointers,
    part_bytes,
    part_pointers,
    unit,
)
from lamella.backend.cpu.emit.memory.atomics import (
    add_in_turn,
    add_repeatedly,
    store_in_turn,
    update_in_turn,
    update_one,
)
from lamella.backend.cpu.emit.memory.lanes import last_lane, pick_lane
from lamella.backend.cpu.emit.memory.vectors import Place, gather, load_vector, scatter, shuffle, store_vector
from lamella.backend.cpu.emit.values import LLVM, Lanes, Members, Memory, RunValue
from lamella.lang.tensor.check.kinds import BYTES, component_of
from lamella.lang.tensor.nodes import (
    AtomicUpdate,
    Dictionary,
    Expand,
    Fuse,
    Group,
    IndexOrSize,
    Load,
    Memref,
    Parameter,
    Scalar,
    Size,
    SizeOf,
    Store,
    Subview,
    Value,
)

# --- groups: the memref at a position, with its pointer, sizes and strides read from the arrays of ----------


SLOT = 8
"""Bytes of a pointer, a size and a stride in memory."""


def load_member(here: Here, members: Members, index: Lanes) -> Memory:
    """The memref at a position of a group."""
    kind = members.type.memref
    pointer = _behind(here, members, _read(here, "ptr", members.pointers, index))
    sizes = _read_numbers(here, (kind.shape, members.sizes, members.size_divisors), index)
    strides = _read_numbers(here, (kind.stride, members.strides, members.stride_divisors), index)
    start = integers.number(0)
    return Memory(kind, pointer, start, sizes, strides, members.alignment, members.streamed)


def _behind(here: Here, members: Members, pointer: Lanes) -> Lanes:
    """The pointer to the first element, which is the one that promises of alignment are about."""
    if members.offset.constant == 0:
        return pointer
    kind = "ptr" if pointer.is_uniform else f"<{pointer.count} x ptr>"
    moved = f"{unit(members.type.memref.element)}, {kind} {pointer.operand}, i64 {members.offset.operand}"
    return replace(pointer, parts=(here.out.value(f"getelementptr {moved}"),))


def _read_numbers(
    here: Here, entries: tuple[tuple[Size, ...], tuple[str | None, ...], tuple[int, ...]], index: Lanes
) -> tuple[Lanes, ...]:
    """Numbers of a type, those that it leaves open from arrays."""
    known, arrays, divisors = entries
    found = []
    for mode, (value, array) in enumerate(zip(known, arrays, strict=True)):
        if array is None:
            found.append(integers.number(value or 0))
        else:
            divisor = divisors[mode] if mode < len(divisors) else 1
            found.append(_read(here, "index", array, index, divisor))
    return tuple(found)


def _read(here: Here, element: str, array: str, index: Lanes, divisor: int = 1) -> Lanes:
    """An entry of an array, or the entries of all lanes."""
    if index.is_uniform:
        pointer = here.out.value(f"getelementptr i64, ptr {array}, i64 {index.operand}")
        operand = load_vector(here, Place(LLVM[element], 1, pointer, SLOT))
        return Lanes(element, (operand,), divisor=divisor)
    lanes = here.lanes
    positions = integers.spread(here, index).operand
    pointers = here.out.value(f"getelementptr i64, ptr {array}, <{lanes} x i64> {positions}")
    operand = gather(here, Place(LLVM[element], lanes, pointers, SLOT), here.mask)
    return Lanes(element, (operand,), lanes)


# --- parameters: what a kernel finds in the slots of its arguments, 8 bytes each, in the order of -----------


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
    if component_of(element) == element:
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


# --- loads: one number for all lanes, neighbours as a vector, or each lane from where it points -------------


WINDOWS = 4
"""How many vectors are loaded, and most of their lanes dropped, before gathering is cheaper."""


def emit_load(here: Here, instruction: Load) -> Lanes | Memory:
    """Emit the load of an element from a memref, or of a memref from a group."""
    source = here.values[instruction.operand.name]
    indices = [here.scalar(index.name) for index in instruction.indices]
    if isinstance(source, Members):
        return load_member(here, source, indices[0])
    if not isinstance(source, Memory):
        raise TypeError(f"%{instruction.operand.name} is no memory")
    return load_element(here, address(here, source, indices))


def load_element(here: Here, place: Address) -> Lanes:
    """The element at an address, for all lanes or for each."""
    step = place.step
    if step == 0:
        pointers = part_pointers(here, place.element, first_pointer(here, place))
        parts = [_load_part(here, place, pointer) for pointer in pointers]
        return Lanes(place.element, tuple(parts))
    if step is not None and abs(step) == 1:
        return _load_neighbours(here, place, step)
    if step is not None and here.mask is None and _is_windowed(place.element, step, here.lanes):
        return Lanes(place.element, (_load_windows(here, place, step),), here.lanes)
    return _gather(here, place)


def _load_part(here: Here, place: Address, pointer: str) -> str:
    """The second part lies behind the first, so that both have the alignment of a part alone."""
    alignment = place.alignment if component_of(place.element) == place.element else part_bytes(place.element)
    return load_vector(here, Place(LLVM[place.element], 1, pointer, alignment))


def _load_neighbours(here: Here, place: Address, step: int) -> Lanes:
    """Lanes side by side, upwards or downwards; complex numbers are taken apart afterwards."""
    lanes, order = here.lanes, ordered(here.lanes, step)
    found, mask = lowest_place(here, place, step), widened_mask(here, place.element, step)
    whole = load_vector(here, found, mask)
    if found.count == lanes:
        parts = [whole if step == 1 else shuffle(here, found.kind, whole, "poison", order)]
    else:
        parts = [
            shuffle(here, found.kind, whole, "poison", [2 * lane + part for lane in order])
            for part in range(2)
        ]
    return Lanes(place.element, tuple(parts), lanes)


def ordered(lanes: int, step: int) -> list[int]:
    """Which place, counted from the lowest, each lane has."""
    return list(range(lanes)) if step > 0 else list(reversed(range(lanes)))


def lowest_place(here: Here, place: Address, step: int) -> Place:
    """The memory of all lanes that lie side by side, from its lowest address on, as parts."""
    moved = 0 if step > 0 else 1 - here.lanes
    pointer, alignment = first_pointer(here, place, moved), place.alignment
    if moved:
        alignment = part_bytes(place.element)
    parts = 1 if component_of(place.element) == place.element else 2
    return Place(LLVM[place.element], here.lanes * parts, pointer, alignment, place.streamed)


def widened_mask(here: Here, element: str, step: int) -> str | None:
    """The mask as the places of `lowest_place` need it: in their order, twice for complex numbers."""
    if here.mask is None or (step > 0 and component_of(element) == element):
        return here.mask
    repeat = 1 if component_of(element) == element else 2
    lanes = [lane for lane in ordered(here.lanes, step) for _ in range(repeat)]
    return shuffle(here, f"<{here.lanes} x i1>", here.mask, "poison", lanes)


def _is_windowed(element: str, step: int, lanes: int) -> bool:
    return component_of(element) == element and abs(step) <= WINDOWS and lanes > abs(step)


def _load_windows(here: Here, place: Address, step: int) -> str:
    """Lanes a few elements apart: all that lies between the first and the last is loaded, and nothing behind.

    Every element between two of one memref can be read; the last window is moved back so that it ends with the last.
    """
    lanes, size = here.lanes, abs(step)
    part, lowest = LLVM[place.element], 0 if step > 0 else (lanes - 1) * step
    starts = [*range(0, (size - 1) * lanes, lanes), (lanes - 1) * (size - 1)]
    wanted = [size * lane for lane in ordered(lanes, step)]
    found = "poison"
    for start in starts:
        pointer = first_pointer(here, place, lowest + start)
        window = load_vector(here, Place(part, lanes, pointer, BYTES[place.element]))
        chosen = [
            lanes + position - start if start <= position < start + lanes else lane
            for lane, position in enumerate(wanted)
        ]
        found = shuffle(here, f"<{lanes} x {part}>", found, window, chosen)
    return found


def _gather(here: Here, place: Address) -> Lanes:
    pointers = part_pointers(here, place.element, lane_pointers(here, place), here.lanes)
    part, alignment = LLVM[place.element], part_bytes(place.element)
    parts = [gather(here, Place(part, here.lanes, item, alignment), here.mask) for item in pointers]
    return Lanes(place.element, tuple(parts), here.lanes)


# --- views of memory and local memory: new sizes, strides and offsets; nothing is copied --------------------


SCRATCH_ALIGNMENT = 128
"""Bytes to which the local memory of a work-group is aligned."""


def emit_subview(here: Here, instruction: Subview) -> Memory:
    """Emit a view of blocks of modes; a slice of size 0 takes its mode away."""
    source = memory_of(here, instruction.operand)
    offset, kept = source.offset, []
    for part, stride in zip(instruction.slices, source.strides, strict=True):
        moved = integers.multiply(here, _number(here, part.offset), stride)
        offset = integers.add(here, offset, moved)
        if part.size != 0:
            kept.append((_number(here, part.size), stride))
    sizes, strides = tuple(size for size, _ in kept), tuple(stride for _, stride in kept)
    return replace(source, type=instruction.type, offset=offset, sizes=sizes, strides=strides)


def emit_expand(here: Here, instruction: Expand) -> Memory:
    """Emit a view that sees a mode as several, the first of them fastest."""
    source, mode = memory_of(here, instruction.operand), instruction.mode
    sizes = [_number(here, size) for size in instruction.sizes]
    strides = [source.strides[mode]]
    for size in sizes[:-1]:
        strides.append(integers.multiply(here, strides[-1], size))
    return replace(
        source,
        type=instruction.type,
        sizes=(*source.sizes[:mode], *sizes, *source.sizes[mode + 1 :]),
        strides=(*source.strides[:mode], *strides, *source.strides[mode + 1 :]),
    )


def emit_fuse(here: Here, instruction: Fuse) -> Memory:
    """Emit a view that sees neighbouring modes as one."""
    source, first, last = memory_of(here, instruction.operand), instruction.first, instruction.last
    size = source.sizes[first]
    for other in source.sizes[first + 1 : last + 1]:
        size = integers.multiply(here, size, other)
    return replace(
        source,
        type=instruction.type,
        sizes=(*source.sizes[:first], size, *source.sizes[last + 1 :]),
        strides=(*source.strides[: first + 1], *source.strides[last + 1 :]),
    )


def emit_size(here: Here, instruction: SizeOf) -> Lanes:
    """Give the size of a mode, or how many memrefs are in a group."""
    source = here.values[instruction.operand.name]
    if isinstance(source, Members):
        return source.count
    return memory_of(here, instruction.operand).sizes[instruction.mode]


def make_local(here: Here, kind: Memref, offset_bytes: int) -> Memory:
    """A memref in the local memory of the work-group, whose shape and strides are all known."""
    pointer = here.scratch
    if offset_bytes:
        pointer = here.out.value(f"getelementptr i8, ptr {pointer}, i64 {offset_bytes}")
    sizes, strides = (
        tuple(integers.number(value or 0) for value in values) for values in (kind.shape, kind.stride)
    )
    alignment = gcd(SCRATCH_ALIGNMENT, offset_bytes, LARGEST_ALIGNMENT)
    return Memory(kind, Lanes("ptr", (pointer,)), integers.number(0), sizes, strides, alignment)


def memory_of(here: Here, value: Value) -> Memory:
    """The memref that a value is."""
    found = here.values[value.name]
    if not isinstance(found, Memory):
        raise TypeError(f"%{value.name} is no memref")
    return found


def _number(here: Here, item: IndexOrSize) -> Lanes:
    return integers.number(item) if isinstance(item, int) else here.scalar(item.name)


# --- stores: one number, neighbours as a vector, or each lane to where it points ----------------------------


def emit_store(here: Here, instruction: Store) -> None:
    """Emit the store of an element."""
    memory = memory_of(here, instruction.operand)
    place = address(here, memory, [here.scalar(index.name) for index in instruction.indices])
    value = here.scalar(instruction.value.name)
    if instruction.flag == "atomic_add":
        _add(here, place, value)
    elif instruction.flag == "atomic" and place.step != 0:
        store_in_turn(here, lanes_of(here, place), integers.spread(here, value), here.mask)
    elif instruction.flag == "atomic":
        chosen = value if value.is_uniform else pick_lane(here, value, last_lane(here))
        store_in_turn(here, lanes_of(here, place), chosen)
    else:
        store_element(here, place, value)


def emit_update(here: Here, instruction: AtomicUpdate) -> Lanes:
    """Emit an atomic update of an element; gives what each lane found there."""
    memory = memory_of(here, instruction.operand)
    place = address(here, memory, [here.scalar(index.name) for index in instruction.indices])
    value = here.scalar(instruction.value.name)
    if here.lanes == 1:
        return update_one(here, instruction.function, lanes_of(here, place), value)
    pointers = lanes_of(here, place)
    if pointers.is_uniform:
        pointers = Lanes("ptr", (integers.splat(here, pointers.operand, "ptr", here.lanes),), here.lanes)
    return update_in_turn(here, instruction.function, pointers, integers.spread(here, value), here.mask)


def store_element(here: Here, place: Address, value: Lanes) -> None:
    """Write the element at an address; of lanes that share it the last one stays."""
    step = place.step
    if step == 0:
        _store_one(here, place, value if value.is_uniform else pick_lane(here, value, last_lane(here)))
    elif step is not None and abs(step) == 1:
        _store_neighbours(here, place, integers.spread(here, value), step)
    else:
        _scatter(here, place, integers.spread(here, value))


def lanes_of(here: Here, place: Address) -> Lanes:
    """The pointer to the element that all lanes share, or a pointer for each lane."""
    if place.step == 0:
        return Lanes("ptr", (first_pointer(here, place),))
    return Lanes("ptr", (lane_pointers(here, place),), here.lanes)


def _add(here: Here, place: Address, value: Lanes) -> None:
    """Add atomically, once for each work-item: a work-group that acts as one adds for all of its work-items."""
    pointers = lanes_of(here, place)
    if here.collective:
        add_repeatedly(here, pointers, value, here.items)
    else:
        add_in_turn(here, pointers, integers.spread(here, value), here.mask)


def _store_one(here: Here, place: Address, value: Lanes) -> None:
    pointers = part_pointers(here, place.element, first_pointer(here, place))
    alignment = place.alignment if len(pointers) == 1 else part_bytes(place.element)
    for pointer, part in zip(pointers, value.parts, strict=True):
        store_vector(here, Place(LLVM[place.element], 1, pointer, alignment), part)


def _store_neighbours(here: Here, place: Address, value: Lanes, step: int) -> None:
    found, mask = lowest_place(here, place, step), widened_mask(here, place.element, step)
    kind, order = here.kind(place.element, value), ordered(here.lanes, step)
    whole = value.parts[0]
    if len(value.parts) == 2:
        lanes = [lane + part for lane in order for part in (0, here.lanes)]
        whole = shuffle(here, kind, value.parts[0], value.parts[1], lanes)
    elif step < 0:
        whole = shuffle(here, kind, whole, "poison", order)
    store_vector(here, found, whole, mask)


def _scatter(here: Here, place: Address, value: Lanes) -> None:
    pointers = part_pointers(here, place.element, lane_pointers(here, place), here.lanes)
    alignment = part_bytes(place.element)
    for pointer, part in zip(pointers, value.parts, strict=True):
        scatter(here, Place(LLVM[place.element], here.lanes, pointer, alignment), part, here.mask)


__all__ = [
    "Address",
    "Place",
    "add_in_turn",
    "address",
    "alignment_of",
    "element_pointer",
    "emit_expand",
    "emit_fuse",
    "emit_load",
    "emit_size",
    "emit_store",
    "emit_subview",
    "emit_update",
    "gather",
    "lane_pointers",
    "load_element",
    "load_parameter",
    "load_vector",
    "make_local",
    "memory_of",
    "scatter",
    "shuffle",
    "store_element",
    "store_in_turn",
    "store_vector",
]
