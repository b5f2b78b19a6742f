"""Stores: one number, neighbours as a vector, or each lane to where it points."""

from __future__ import annotations

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.memory.addresses import (
    Address,
    address,
    first_pointer,
    lane_pointers,
    part_bytes,
    part_pointers,
)
from lamella.backend.cpu.emit.memory.atomics import (
    add_in_turn,
    add_repeatedly,
    store_in_turn,
    update_in_turn,
    update_one,
)
from lamella.backend.cpu.emit.memory.lanes import last_lane, pick_lane
from lamella.backend.cpu.emit.memory.loads import lowest_place, ordered, widened_mask
from lamella.backend.cpu.emit.memory.vectors import Place, scatter, shuffle, store_vector
from lamella.backend.cpu.emit.memory.views import memory_of
from lamella.backend.cpu.emit.values import LLVM, Lanes
from lamella.lang.tensor.nodes import AtomicUpdate, Store


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
