"""Memory: addresses, loads, stores, atomic updates, views, groups, and the parameters of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext, Emitters
from lamella.backend.cpu.emit.memory.addresses import (
    LARGEST_ALIGNMENT,
    MANGLED,
    Address,
    VectorAddress,
    address,
    alignment_of,
    each_lane,
    element_pointer,
    first_pointer,
    gather,
    lane_pointers,
    last_lane,
    load_vector,
    part_bytes,
    part_pointers,
    pick_lane,
    repeat,
    scatter,
    shuffle,
    store_vector,
    unit,
)
from lamella.backend.cpu.emit.values import LLVM, GroupValue, MemrefValue, RunValue, ScalarValue, llvm
from lamella.base.records import dataclass
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
from lamella.lang.tensor.nodes.types import INTEGERS

# --- atomic stores and additions: relaxed, the parts of complex numbers one by one ---------------------------


def store_in_turn(
    context: EmitContext, pointers: ScalarValue, value: ScalarValue, mask: str | None = None
) -> None:
    """Store each lane atomically, in the order of the lanes."""
    _apply(context, pointers, value, mask, _atomics_store_one)


def add_in_turn(
    context: EmitContext, pointers: ScalarValue, value: ScalarValue, mask: str | None = None
) -> None:
    """Add each lane atomically, in the order of the lanes, to its own place or to one that they share."""
    if pointers.is_uniform and not value.is_uniform:
        for part, pointer in enumerate(part_pointers(context, value.element, pointers.operand)):
            _add_all(
                context,
                ScalarValue(component_of(value.element), (value.parts[part],), value.count),
                pointer,
                mask,
            )
    else:
        _apply(context, pointers, value, mask, _add_one)


def add_repeatedly(context: EmitContext, pointer: ScalarValue, value: ScalarValue, times: int) -> None:
    """Add one number atomically, so many times, to one place."""
    kind = LLVM[value.element]
    if value.element in INTEGERS:
        total = context.out.value(f"mul {kind} {value.operand}, {times}")
        _add_one(context, value.element, pointer.operand, total)
    elif times == 1:
        add_in_turn(context, pointer, value)
    else:
        repeat(context, times, lambda _: add_in_turn(context, pointer, value))


def update_one(context: EmitContext, function: str, pointer: ScalarValue, value: ScalarValue) -> ScalarValue:
    """Combine one place with a number atomically; gives what stood there before."""
    return ScalarValue(
        value.element, (_exchange_one(context, function, value.element, pointer.operand, value.operand),)
    )


def update_in_turn(
    context: EmitContext, function: str, pointers: ScalarValue, value: ScalarValue, mask: str | None
) -> ScalarValue:
    """Combine the place of each lane with its number, in the order of the lanes; gives what each found there."""
    element, kind, count = value.element, LLVM[value.element], pointers.count
    found = context.out.reserve(kind, count)
    numbers = ", ".join(f"i64 {lane}" for lane in range(count))

    def one(entries: Sequence[str]) -> None:
        pointer, operand, lane = entries
        old = _exchange_one(context, function, element, pointer, operand)
        place = context.out.value(f"getelementptr {kind}, ptr {found}, i64 {lane}")
        context.out.line(f"store {kind} {old}, ptr {place}")

    vectors = [("ptr", pointers.operand), (kind, value.operand), ("i64", f"<{numbers}>")]
    each_lane(context, vectors, count, mask, one)
    return ScalarValue(
        element, (context.out.value(f"load {llvm(element, count)}, ptr {found}, align 64"),), count
    )


def _exchange_one(context: EmitContext, function: str, element: str, pointer: str, value: str) -> str:
    if element == "f16" and function in ("min", "max") and context.target.has_threads:
        name = f"llvm.{function}num.f16"
        return _exchange(
            context,
            element,
            pointer,
            lambda old: context.out.intrinsic("half", name, f"half {old}, half {value}"),
        )
    word = function if element in INTEGERS else f"f{function}"
    operands = f"ptr {pointer}, {LLVM[element]} {value} monotonic, align {part_bytes(element)}"
    return context.out.value(f"atomicrmw {word} {operands}")


def _apply(
    context: EmitContext,
    pointers: ScalarValue,
    value: ScalarValue,
    mask: str | None,
    update: Callable[[EmitContext, str, str, str], None],
) -> None:
    """Update the place of each lane, or one place once; parts of a complex number one after the other."""
    element, part = value.element, component_of(value.element)

    def one(entries: Sequence[str]) -> None:
        for pointer, operand in zip(part_pointers(context, element, entries[0]), entries[1:], strict=True):
            update(context, part, pointer, operand)

    if pointers.is_uniform:
        one([pointers.operand, *value.parts])
        return
    vectors = [("ptr", pointers.operand), *((LLVM[element], operand) for operand in value.parts)]
    each_lane(context, vectors, pointers.count, mask, one)


def _atomics_store_one(context: EmitContext, element: str, pointer: str, value: str) -> None:
    width = part_bytes(element)
    context.out.line(f"store atomic {LLVM[element]} {value}, ptr {pointer} monotonic, align {width}")


def _add_one(context: EmitContext, element: str, pointer: str, value: str) -> None:
    word, width = "add" if element in INTEGERS else "fadd", part_bytes(element)
    context.out.value(f"atomicrmw {word} ptr {pointer}, {LLVM[element]} {value} monotonic, align {width}")


# --- many lanes, one place ----------------------------------------------------------------------------------


def _add_all(context: EmitContext, value: ScalarValue, pointer: str, mask: str | None) -> None:
    """Add all lanes to one place: integers in any order, floating-point numbers in the order of the lanes."""
    kind, part = llvm(value.element, value.count), LLVM[value.element]
    whole = value.element in INTEGERS
    operand = value.operand
    if mask is not None:
        nothing = "zeroinitializer" if whole else f"splat ({part} -0.0)"
        operand = context.out.value(f"select <{value.count} x i1> {mask}, {kind} {operand}, {kind} {nothing}")
    suffix = f"v{value.count}{MANGLED.get(part, part)}"
    if whole:
        total = context.out.intrinsic(part, f"llvm.vector.reduce.add.{suffix}", f"{kind} {operand}")
        _add_one(context, value.element, pointer, total)
        return

    def add(old: str) -> str:
        name = f"llvm.vector.reduce.fadd.{suffix}"
        return context.out.intrinsic(part, name, f"{part} {old}, {kind} {operand}")

    _exchange(context, value.element, pointer, add)


def _exchange(context: EmitContext, element: str, pointer: str, change: Callable[[str], str]) -> str:
    """Replace a number by what is computed from it, again while another thread was faster; gives the number."""
    out, part, width = context.out, LLVM[element], part_bytes(element)
    bits = f"i{8 * width}"
    start = out.value(f"load atomic {bits}, ptr {pointer} monotonic, align {width}")
    before, again, done = out.block, out.label("again"), out.label("done")
    out.jump(again)
    out.begin(again)
    old, hole = out.name(), out.hole()
    new = change(out.value(f"bitcast {bits} {old} to {part}"))
    wanted = out.value(f"bitcast {part} {new} to {bits}")
    seen, swapped = _compare_and_swap(context, bits, pointer, old, wanted)
    out.fill(hole, f"{old} = phi {bits} [{start}, %{before}], [{seen}, %{out.block}]")
    out.branch(swapped, done, again)
    out.begin(done)
    return out.value(f"bitcast {bits} {seen} to {part}")


def _compare_and_swap(
    context: EmitContext, bits: str, pointer: str, old: str, wanted: str
) -> tuple[str, str]:
    """What stood at a place, and whether that was `old` and is `wanted` now."""
    out = context.out
    if context.target.has_threads and bits == "i16":
        # LLVM would swap the whole word, half of which may lie behind the end of an array.
        swap = "atom.relaxed.sys.cas.b16 $0, [$1], $2, $3;"
        operands = f"ptr {pointer}, {bits} {old}, {bits} {wanted}"
        seen = out.value(f'call {bits} asm sideeffect "{swap}", "=h,l,h,h,~{{memory}}"({operands})')
        return seen, out.value(f"icmp eq {bits} {seen}, {old}")
    width = int(bits[1:]) // 8
    found = out.value(
        f"cmpxchg ptr {pointer}, {bits} {old}, {bits} {wanted} monotonic monotonic, align {width}"
    )
    seen, swapped = (out.value(f"extractvalue {{ {bits}, i1 }} {found}, {item}") for item in (0, 1))
    return seen, swapped


# --- groups: the memref at a position, read from the arrays of pointers, sizes and strides -------------------


SLOT = 8
"""Bytes of a pointer, a size and a stride in memory."""


def load_member(context: EmitContext, members: GroupValue, index: ScalarValue) -> MemrefValue:
    """The memref at a position of a group."""
    kind = members.type.memref
    pointer = _behind(context, members, _read(context, "ptr", members.pointers, index))
    sizes = _read_numbers(context, (kind.shape, members.sizes, members.size_divisors), index)
    strides = _read_numbers(context, (kind.stride, members.strides, members.stride_divisors), index)
    start = integers.number(0)
    return MemrefValue(kind, pointer, start, sizes, strides, members.alignment, members.streamed)


def _behind(context: EmitContext, members: GroupValue, pointer: ScalarValue) -> ScalarValue:
    """The pointer to the first element, which is the one that promises of alignment are about."""
    if members.offset.constant == 0:
        return pointer
    kind = "ptr" if pointer.is_uniform else f"<{pointer.count} x ptr>"
    moved = f"{unit(members.type.memref.element)}, {kind} {pointer.operand}, i64 {members.offset.operand}"
    return replace(pointer, parts=(context.out.value(f"getelementptr {moved}"),))


def _read_numbers(
    context: EmitContext,
    entries: tuple[tuple[Size, ...], tuple[str | None, ...], tuple[int, ...]],
    index: ScalarValue,
) -> tuple[ScalarValue, ...]:
    """Numbers of a type, those that it leaves open from arrays."""
    known, arrays, divisors = entries
    found = []
    for mode, (value, array) in enumerate(zip(known, arrays, strict=True)):
        if array is None:
            found.append(integers.number(value or 0))
        else:
            divisor = divisors[mode] if mode < len(divisors) else 1
            found.append(_read(context, "index", array, index, divisor))
    return tuple(found)


def _read(
    context: EmitContext, element: str, array: str, index: ScalarValue, divisor: int = 1
) -> ScalarValue:
    """An entry of an array, or the entries of all lanes."""
    if index.is_uniform:
        pointer = context.out.value(f"getelementptr i64, ptr {array}, i64 {index.operand}")
        operand = load_vector(context, VectorAddress(LLVM[element], 1, pointer, SLOT))
        return ScalarValue(element, (operand,), divisor=divisor)
    lanes = context.lanes
    positions = integers.spread(context, index).operand
    pointers = context.out.value(f"getelementptr i64, ptr {array}, <{lanes} x i64> {positions}")
    operand = gather(context, VectorAddress(LLVM[element], lanes, pointers, SLOT), context.mask)
    return ScalarValue(element, (operand,), lanes)


# --- parameters: what a kernel finds in the slots of its arguments, 8 bytes each -----------------------------


ARGUMENTS = "%args"


@dataclass(slots=True)
class _Slots:
    """The slots from one on."""

    context: EmitContext
    next: int

    def read(self, kind: str, within: int = 0) -> str:
        """What the next slot holds, from a byte on."""
        place = SLOT * self.next + within
        pointer = self.context.out.value(f"getelementptr i8, ptr {ARGUMENTS}, i64 {place}")
        return self.context.out.value(f"load {kind}, ptr {pointer}, align {SLOT if not within else 4}")

    def take(self, kind: str) -> str:
        """What the next slot holds, and go on to the one behind."""
        found = self.read(kind)
        self.next += 1
        return found

    def number(self, value: Size, divisor: int = 1) -> ScalarValue:
        """A size or a stride, from a slot where the type does not tell it."""
        return (
            integers.number(value)
            if value is not None
            else integers.dynamic(self.take("i64"), divisor=divisor)
        )

    def array(self, value: Size) -> str | None:
        """The array of a size or a stride that the type does not tell."""
        return self.take("ptr") if value is None else None


def load_parameter(context: EmitContext, parameter: Parameter, slot: int) -> tuple[RunValue, int]:
    """Emit the reading of a parameter from a slot on; gives its value and the slot behind it."""
    slots = _Slots(context, slot)
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


def _load_scalar(slots: _Slots, element: str) -> ScalarValue:
    if element == "bool":
        byte = slots.take("i8")
        return ScalarValue(element, (slots.context.out.value(f"icmp ne i8 {byte}, 0"),))
    part, width = LLVM[element], part_bytes(element)
    if component_of(element) == element:
        return ScalarValue(element, (slots.take(part),))
    parts = (slots.read(part), slots.read(part, width))
    slots.next += BYTES[element] // SLOT
    return ScalarValue(element, parts)


def _load_memref(slots: _Slots, kind: Memref, promises: Dictionary) -> MemrefValue:
    pointer = ScalarValue("ptr", (_take_pointer(slots),))
    shape_gcd, stride_gcd = _divisors(promises, "shape_gcd"), _divisors(promises, "stride_gcd")
    sizes = _numbers(slots, kind.shape, shape_gcd)
    strides = _numbers(slots, kind.stride, stride_gcd)
    alignment, streamed = _alignment(kind, promises), _is_streamed(promises)
    return MemrefValue(kind, pointer, integers.number(0), sizes, strides, alignment, streamed)


def _take_pointer(slots: _Slots) -> str:
    """An address; that it is one of global memory, where there are several kinds, tells what instructions to use."""
    if not slots.context.threads:
        return slots.take("ptr")
    found = slots.take("ptr addrspace(1)")
    return slots.context.out.value(f"addrspacecast ptr addrspace(1) {found} to ptr")


def _numbers(slots: _Slots, values: tuple[Size, ...], divisors: tuple[int, ...]) -> tuple[ScalarValue, ...]:
    padded = (*divisors, *[1] * (len(values) - len(divisors)))
    return tuple(slots.number(value, divisor) for value, divisor in zip(values, padded, strict=True))


def _load_group(slots: _Slots, kind: Group, promises: Dictionary) -> GroupValue:
    pointers, memref = slots.take("ptr"), kind.memref
    sizes = tuple(slots.array(value) for value in memref.shape)
    strides = tuple(slots.array(value) for value in memref.stride)
    count, offset = slots.number(kind.size), slots.number(kind.offset)
    return GroupValue(
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


def emit_load(context: EmitContext, instruction: Load) -> ScalarValue | MemrefValue:
    """Emit the load of an element from a memref, or of a memref from a group."""
    source = context.values[instruction.operand.name]
    indices = [context.scalar(index.name) for index in instruction.indices]
    if isinstance(source, GroupValue):
        return load_member(context, source, indices[0])
    if not isinstance(source, MemrefValue):
        raise TypeError(f"%{instruction.operand.name} is no memory")
    return load_element(context, address(context, source, indices))


def load_element(context: EmitContext, place: Address) -> ScalarValue:
    """The element at an address, for all lanes or for each."""
    step = place.step
    if step == 0:
        pointers = part_pointers(context, place.element, first_pointer(context, place))
        parts = [_load_part(context, place, pointer) for pointer in pointers]
        return ScalarValue(place.element, tuple(parts))
    if step is not None and abs(step) == 1:
        return _load_neighbours(context, place, step)
    if step is not None and context.mask is None and _is_windowed(place.element, step, context.lanes):
        return ScalarValue(place.element, (_load_windows(context, place, step),), context.lanes)
    return _gather(context, place)


def _load_part(context: EmitContext, place: Address, pointer: str) -> str:
    """The second part lies behind the first, so that both have the alignment of a part alone."""
    alignment = place.alignment if component_of(place.element) == place.element else part_bytes(place.element)
    return load_vector(context, VectorAddress(LLVM[place.element], 1, pointer, alignment))


def _load_neighbours(context: EmitContext, place: Address, step: int) -> ScalarValue:
    """Lanes side by side, upwards or downwards; complex numbers are taken apart afterwards."""
    lanes, order = context.lanes, ordered(context.lanes, step)
    found, mask = lowest_place(context, place, step), widened_mask(context, place.element, step)
    whole = load_vector(context, found, mask)
    if found.count == lanes:
        parts = [whole if step == 1 else shuffle(context, found.kind, whole, "poison", order)]
    else:
        parts = [
            shuffle(context, found.kind, whole, "poison", [2 * lane + part for lane in order])
            for part in range(2)
        ]
    return ScalarValue(place.element, tuple(parts), lanes)


def ordered(lanes: int, step: int) -> list[int]:
    """Which place, counted from the lowest, each lane has."""
    return list(range(lanes)) if step > 0 else list(reversed(range(lanes)))


def lowest_place(context: EmitContext, place: Address, step: int) -> VectorAddress:
    """The memory of all lanes that lie side by side, from its lowest address on, as parts."""
    moved = 0 if step > 0 else 1 - context.lanes
    pointer, alignment = first_pointer(context, place, moved), place.alignment
    if moved:
        alignment = part_bytes(place.element)
    parts = 1 if component_of(place.element) == place.element else 2
    return VectorAddress(LLVM[place.element], context.lanes * parts, pointer, alignment, place.streamed)


def widened_mask(context: EmitContext, element: str, step: int) -> str | None:
    """The mask as the places of `lowest_place` need it: in their order, twice for complex numbers."""
    if context.mask is None or (step > 0 and component_of(element) == element):
        return context.mask
    repeat = 1 if component_of(element) == element else 2
    lanes = [lane for lane in ordered(context.lanes, step) for _ in range(repeat)]
    return shuffle(context, f"<{context.lanes} x i1>", context.mask, "poison", lanes)


def _is_windowed(element: str, step: int, lanes: int) -> bool:
    return component_of(element) == element and abs(step) <= WINDOWS and lanes > abs(step)


def _load_windows(context: EmitContext, place: Address, step: int) -> str:
    """Lanes a few elements apart: all that lies between the first and the last is loaded, and nothing behind.

    Every element between two of one memref can be read; the last window is moved back so that it ends with the last.
    """
    lanes, size = context.lanes, abs(step)
    part, lowest = LLVM[place.element], 0 if step > 0 else (lanes - 1) * step
    starts = [*range(0, (size - 1) * lanes, lanes), (lanes - 1) * (size - 1)]
    wanted = [size * lane for lane in ordered(lanes, step)]
    found = "poison"
    for start in starts:
        pointer = first_pointer(context, place, lowest + start)
        window = load_vector(context, VectorAddress(part, lanes, pointer, BYTES[place.element]))
        chosen = [
            lanes + position - start if start <= position < start + lanes else lane
            for lane, position in enumerate(wanted)
        ]
        found = shuffle(context, f"<{lanes} x {part}>", found, window, chosen)
    return found


def _gather(context: EmitContext, place: Address) -> ScalarValue:
    pointers = part_pointers(context, place.element, lane_pointers(context, place), context.lanes)
    part, alignment = LLVM[place.element], part_bytes(place.element)
    parts = [
        gather(context, VectorAddress(part, context.lanes, item, alignment), context.mask)
        for item in pointers
    ]
    return ScalarValue(place.element, tuple(parts), context.lanes)


# --- views of memory and local memory: new sizes, strides and offsets; nothing is copied --------------------


SCRATCH_ALIGNMENT = 128
"""Bytes to which the local memory of a work-group is aligned."""


def emit_subview(context: EmitContext, instruction: Subview) -> MemrefValue:
    """Emit a view of blocks of modes; a slice of size 0 takes its mode away."""
    source = memory_of(context, instruction.operand)
    offset, kept = source.offset, []
    for part, stride in zip(instruction.slices, source.strides, strict=True):
        moved = integers.multiply(context, _number(context, part.offset), stride)
        offset = integers.add(context, offset, moved)
        if part.size != 0:
            kept.append((_number(context, part.size), stride))
    sizes, strides = tuple(size for size, _ in kept), tuple(stride for _, stride in kept)
    return replace(source, type=instruction.type, offset=offset, sizes=sizes, strides=strides)


def emit_expand(context: EmitContext, instruction: Expand) -> MemrefValue:
    """Emit a view that sees a mode as several, the first of them fastest."""
    source, mode = memory_of(context, instruction.operand), instruction.mode
    sizes = [_number(context, size) for size in instruction.sizes]
    strides = [source.strides[mode]]
    for size in sizes[:-1]:
        strides.append(integers.multiply(context, strides[-1], size))
    return replace(
        source,
        type=instruction.type,
        sizes=(*source.sizes[:mode], *sizes, *source.sizes[mode + 1 :]),
        strides=(*source.strides[:mode], *strides, *source.strides[mode + 1 :]),
    )


def emit_fuse(context: EmitContext, instruction: Fuse) -> MemrefValue:
    """Emit a view that sees neighbouring modes as one."""
    source, first, last = memory_of(context, instruction.operand), instruction.first, instruction.last
    size = source.sizes[first]
    for other in source.sizes[first + 1 : last + 1]:
        size = integers.multiply(context, size, other)
    return replace(
        source,
        type=instruction.type,
        sizes=(*source.sizes[:first], size, *source.sizes[last + 1 :]),
        strides=(*source.strides[: first + 1], *source.strides[last + 1 :]),
    )


def emit_size(context: EmitContext, instruction: SizeOf) -> ScalarValue:
    """Give the size of a mode, or how many memrefs are in a group."""
    source = context.values[instruction.operand.name]
    if isinstance(source, GroupValue):
        return source.count
    return memory_of(context, instruction.operand).sizes[instruction.mode]


def make_local(context: EmitContext, kind: Memref, offset_bytes: int) -> MemrefValue:
    """A memref in the local memory of the work-group, whose shape and strides are all known."""
    pointer = context.scratch
    if offset_bytes:
        pointer = context.out.value(f"getelementptr i8, ptr {pointer}, i64 {offset_bytes}")
    sizes, strides = (
        tuple(integers.number(value or 0) for value in values) for values in (kind.shape, kind.stride)
    )
    alignment = gcd(SCRATCH_ALIGNMENT, offset_bytes, LARGEST_ALIGNMENT)
    return MemrefValue(kind, ScalarValue("ptr", (pointer,)), integers.number(0), sizes, strides, alignment)


def memory_of(context: EmitContext, value: Value) -> MemrefValue:
    """The memref that a value is."""
    found = context.values[value.name]
    if not isinstance(found, MemrefValue):
        raise TypeError(f"%{value.name} is no memref")
    return found


def _number(context: EmitContext, item: IndexOrSize) -> ScalarValue:
    return integers.number(item) if isinstance(item, int) else context.scalar(item.name)


# --- stores: one number, neighbours as a vector, or each lane to where it points ----------------------------


def emit_store(context: EmitContext, instruction: Store) -> None:
    """Emit the store of an element."""
    memory = memory_of(context, instruction.operand)
    place = address(context, memory, [context.scalar(index.name) for index in instruction.indices])
    value = context.scalar(instruction.value.name)
    if instruction.flag == "atomic_add":
        _add(context, place, value)
    elif instruction.flag == "atomic" and place.step != 0:
        store_in_turn(context, lanes_of(context, place), integers.spread(context, value), context.mask)
    elif instruction.flag == "atomic":
        chosen = value if value.is_uniform else pick_lane(context, value, last_lane(context))
        store_in_turn(context, lanes_of(context, place), chosen)
    else:
        store_element(context, place, value)


def emit_update(context: EmitContext, instruction: AtomicUpdate) -> ScalarValue:
    """Emit an atomic update of an element; gives what each lane found there."""
    memory = memory_of(context, instruction.operand)
    place = address(context, memory, [context.scalar(index.name) for index in instruction.indices])
    value = context.scalar(instruction.value.name)
    if context.lanes == 1:
        return update_one(context, instruction.function, lanes_of(context, place), value)
    pointers = lanes_of(context, place)
    if pointers.is_uniform:
        pointers = ScalarValue(
            "ptr", (integers.splat(context, pointers.operand, "ptr", context.lanes),), context.lanes
        )
    return update_in_turn(
        context, instruction.function, pointers, integers.spread(context, value), context.mask
    )


def store_element(context: EmitContext, place: Address, value: ScalarValue) -> None:
    """Write the element at an address; of lanes that share it the last one stays."""
    step = place.step
    if step == 0:
        _store_one(
            context, place, value if value.is_uniform else pick_lane(context, value, last_lane(context))
        )
    elif step is not None and abs(step) == 1:
        _store_neighbours(context, place, integers.spread(context, value), step)
    else:
        _scatter(context, place, integers.spread(context, value))


def lanes_of(context: EmitContext, place: Address) -> ScalarValue:
    """The pointer to the element that all lanes share, or a pointer for each lane."""
    if place.step == 0:
        return ScalarValue("ptr", (first_pointer(context, place),))
    return ScalarValue("ptr", (lane_pointers(context, place),), context.lanes)


def _add(context: EmitContext, place: Address, value: ScalarValue) -> None:
    """Add atomically, once for each work-item: a work-group that acts as one adds for all of its work-items."""
    pointers = lanes_of(context, place)
    if context.collective:
        add_repeatedly(context, pointers, value, context.items)
    else:
        add_in_turn(context, pointers, integers.spread(context, value), context.mask)


def _store_one(context: EmitContext, place: Address, value: ScalarValue) -> None:
    pointers = part_pointers(context, place.element, first_pointer(context, place))
    alignment = place.alignment if len(pointers) == 1 else part_bytes(place.element)
    for pointer, part in zip(pointers, value.parts, strict=True):
        store_vector(context, VectorAddress(LLVM[place.element], 1, pointer, alignment), part)


def _store_neighbours(context: EmitContext, place: Address, value: ScalarValue, step: int) -> None:
    found, mask = lowest_place(context, place, step), widened_mask(context, place.element, step)
    kind, order = context.kind(place.element, value), ordered(context.lanes, step)
    whole = value.parts[0]
    if len(value.parts) == 2:
        lanes = [lane + part for lane in order for part in (0, context.lanes)]
        whole = shuffle(context, kind, value.parts[0], value.parts[1], lanes)
    elif step < 0:
        whole = shuffle(context, kind, whole, "poison", order)
    store_vector(context, found, whole, mask)


def _scatter(context: EmitContext, place: Address, value: ScalarValue) -> None:
    pointers = part_pointers(context, place.element, lane_pointers(context, place), context.lanes)
    alignment = part_bytes(place.element)
    for pointer, part in zip(pointers, value.parts, strict=True):
        scatter(
            context, VectorAddress(LLVM[place.element], context.lanes, pointer, alignment), part, context.mask
        )


EMITTERS: Emitters = {
    Load: emit_load,
    Store: emit_store,
    AtomicUpdate: emit_update,
    SizeOf: emit_size,
    Subview: emit_subview,
    Expand: emit_expand,
    Fuse: emit_fuse,
}
"""What emits each instruction of this kind."""


__all__ = [
    "EMITTERS",
    "Address",
    "VectorAddress",
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
