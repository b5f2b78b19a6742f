"""Loads: one number for all lanes, neighbours as a vector, or each lane from where it points."""

from __future__ import annotations

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.memory.addresses import (
    Address,
    address,
    first_pointer,
    lane_pointers,
    part_bytes,
    part_pointers,
)
from lamella.backend.cpu.emit.memory.groups import load_member
from lamella.backend.cpu.emit.memory.vectors import Place, gather, load_vector, shuffle
from lamella.backend.cpu.emit.values import LLVM, Lanes, Members, Memory
from lamella.lang.tensor.check.kinds import BYTES, part_of
from lamella.lang.tensor.nodes import Load

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
    alignment = place.alignment if part_of(place.element) == place.element else part_bytes(place.element)
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
    parts = 1 if part_of(place.element) == place.element else 2
    return Place(LLVM[place.element], here.lanes * parts, pointer, alignment, place.streamed)


def widened_mask(here: Here, element: str, step: int) -> str | None:
    """The mask as the places of `lowest_place` need it: in their order, twice for complex numbers."""
    if here.mask is None or (step > 0 and part_of(element) == element):
        return here.mask
    repeat = 1 if part_of(element) == element else 2
    lanes = [lane for lane in ordered(here.lanes, step) for _ in range(repeat)]
    return shuffle(here, f"<{here.lanes} x i1>", here.mask, "poison", lanes)


def _is_windowed(element: str, step: int, lanes: int) -> bool:
    return part_of(element) == element and abs(step) <= WINDOWS and lanes > abs(step)


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
