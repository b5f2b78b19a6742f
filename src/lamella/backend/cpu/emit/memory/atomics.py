"""Atomic stores and additions, in no order with other threads; parts of complex numbers one after the other.

The additions of the lanes of one subgroup to one place happen in the order of the lanes, as one update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.memory.addresses import part_bytes, part_pointers
from lamella.backend.cpu.emit.memory.lanes import each_lane, repeat
from lamella.backend.cpu.emit.memory.vectors import MANGLED
from lamella.backend.cpu.emit.values import LLVM, Lanes, llvm
from lamella.lang.tensor.check.kinds import component_of
from lamella.lang.tensor.nodes.types import INTEGERS


def store_in_turn(here: Here, pointers: Lanes, value: Lanes, mask: str | None = None) -> None:
    """Store each lane atomically, in the order of the lanes."""
    _apply(here, pointers, value, mask, _store_one)


def add_in_turn(here: Here, pointers: Lanes, value: Lanes, mask: str | None = None) -> None:
    """Add each lane atomically, in the order of the lanes, to its own place or to one that they share."""
    if pointers.is_uniform and not value.is_uniform:
        for part, pointer in enumerate(part_pointers(here, value.element, pointers.operand)):
            _add_all(
                here, Lanes(component_of(value.element), (value.parts[part],), value.count), pointer, mask
            )
    else:
        _apply(here, pointers, value, mask, _add_one)


def add_repeatedly(here: Here, pointer: Lanes, value: Lanes, times: int) -> None:
    """Add one number atomically, so many times, to one place."""
    kind = LLVM[value.element]
    if value.element in INTEGERS:
        total = here.out.value(f"mul {kind} {value.operand}, {times}")
        _add_one(here, value.element, pointer.operand, total)
    elif times == 1:
        add_in_turn(here, pointer, value)
    else:
        repeat(here, times, lambda _: add_in_turn(here, pointer, value))


def update_one(here: Here, function: str, pointer: Lanes, value: Lanes) -> Lanes:
    """Combine one place with a number atomically; gives what stood there before."""
    return Lanes(
        value.element, (_exchange_one(here, function, value.element, pointer.operand, value.operand),)
    )


def update_in_turn(here: Here, function: str, pointers: Lanes, value: Lanes, mask: str | None) -> Lanes:
    """Combine the place of each lane with its number, in the order of the lanes; gives what each found there."""
    element, kind, count = value.element, LLVM[value.element], pointers.count
    found = here.out.reserve(kind, count)
    numbers = ", ".join(f"i64 {lane}" for lane in range(count))

    def one(entries: Sequence[str]) -> None:
        pointer, operand, lane = entries
        old = _exchange_one(here, function, element, pointer, operand)
        place = here.out.value(f"getelementptr {kind}, ptr {found}, i64 {lane}")
        here.out.line(f"store {kind} {old}, ptr {place}")

    vectors = [("ptr", pointers.operand), (kind, value.operand), ("i64", f"<{numbers}>")]
    each_lane(here, vectors, count, mask, one)
    return Lanes(element, (here.out.value(f"load {llvm(element, count)}, ptr {found}, align 64"),), count)


def _exchange_one(here: Here, function: str, element: str, pointer: str, value: str) -> str:
    word = function if element in INTEGERS else f"f{function}"
    operands = f"ptr {pointer}, {LLVM[element]} {value} monotonic, align {part_bytes(element)}"
    return here.out.value(f"atomicrmw {word} {operands}")


def _apply(
    here: Here, pointers: Lanes, value: Lanes, mask: str | None, update: Callable[[Here, str, str, str], None]
) -> None:
    """Update the place of each lane, or one place once; parts of a complex number one after the other."""
    element, part = value.element, component_of(value.element)

    def one(entries: Sequence[str]) -> None:
        for pointer, operand in zip(part_pointers(here, element, entries[0]), entries[1:], strict=True):
            update(here, part, pointer, operand)

    if pointers.is_uniform:
        one([pointers.operand, *value.parts])
        return
    vectors = [("ptr", pointers.operand), *((LLVM[element], operand) for operand in value.parts)]
    each_lane(here, vectors, pointers.count, mask, one)


def _store_one(here: Here, element: str, pointer: str, value: str) -> None:
    width = part_bytes(element)
    here.out.line(f"store atomic {LLVM[element]} {value}, ptr {pointer} monotonic, align {width}")


def _add_one(here: Here, element: str, pointer: str, value: str) -> None:
    word, width = "add" if element in INTEGERS else "fadd", part_bytes(element)
    here.out.value(f"atomicrmw {word} ptr {pointer}, {LLVM[element]} {value} monotonic, align {width}")


# --- many lanes, one place ----------------------------------------------------------------------------------


def _add_all(here: Here, value: Lanes, pointer: str, mask: str | None) -> None:
    """Add all lanes to one place: integers in any order, floating-point numbers in the order of the lanes."""
    kind, part = llvm(value.element, value.count), LLVM[value.element]
    whole = value.element in INTEGERS
    operand = value.operand
    if mask is not None:
        nothing = "zeroinitializer" if whole else f"splat ({part} -0.0)"
        operand = here.out.value(f"select <{value.count} x i1> {mask}, {kind} {operand}, {kind} {nothing}")
    suffix = f"v{value.count}{MANGLED.get(part, part)}"
    if whole:
        total = here.out.intrinsic(part, f"llvm.vector.reduce.add.{suffix}", f"{kind} {operand}")
        _add_one(here, value.element, pointer, total)
        return

    def add(old: str) -> str:
        name = f"llvm.vector.reduce.fadd.{suffix}"
        return here.out.intrinsic(part, name, f"{part} {old}, {kind} {operand}")

    _exchange(here, value.element, pointer, add)


def _exchange(here: Here, element: str, pointer: str, change: Callable[[str], str]) -> None:
    """Replace a number by what is computed from it, again while another thread was faster."""
    out, part, width = here.out, LLVM[element], part_bytes(element)
    bits = f"i{8 * width}"
    start = out.value(f"load atomic {bits}, ptr {pointer} monotonic, align {width}")
    before, again, done = out.block, out.label("again"), out.label("done")
    out.jump(again)
    out.begin(again)
    old, hole = out.name(), out.hole()
    new = change(out.value(f"bitcast {bits} {old} to {part}"))
    wanted = out.value(f"bitcast {part} {new} to {bits}")
    found = out.value(
        f"cmpxchg ptr {pointer}, {bits} {old}, {bits} {wanted} monotonic monotonic, align {width}"
    )
    seen = out.value(f"extractvalue {{ {bits}, i1 }} {found}, 0")
    swapped = out.value(f"extractvalue {{ {bits}, i1 }} {found}, 1")
    out.fill(hole, f"{old} = phi {bits} [{start}, %{before}], [{seen}, %{out.block}]")
    out.branch(swapped, done, again)
    out.begin(done)
