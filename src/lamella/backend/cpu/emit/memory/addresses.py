"""Addresses of elements: a pointer and an offset, and what is known about both before the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.values import LLVM, MemrefValue, ScalarValue, llvm
from lamella.base.records import dataclass
from lamella.lang.tensor.check.kinds import BYTES, component_of

# --- single lanes: which of them run, one of them picked out, code that is run for one after the ------------


def last_lane(context: EmitContext) -> str:
    """The number of the last lane that runs, an i64."""
    if context.mask is None:
        return str(context.lanes - 1)
    leading = _count_zeros(context, "ctlz")
    return context.out.value(f"sub i64 {context.lanes - 1}, {leading}")


def first_lane(context: EmitContext) -> str:
    """The number of the first lane that runs, an i64."""
    return "0" if context.mask is None else _count_zeros(context, "cttz")


def _count_zeros(context: EmitContext, name: str) -> str:
    """How many lanes at one end do not run; there is one that does."""
    kind = f"i{context.lanes}"
    bits = context.out.value(f"bitcast <{context.lanes} x i1> {context.mask} to {kind}")
    found = context.out.intrinsic(kind, f"llvm.{name}.{kind}", f"{kind} {bits}, i1 true")
    return found if kind == "i64" else context.out.value(f"zext {kind} {found} to i64")


def pick_lane(context: EmitContext, value: ScalarValue, lane: str) -> ScalarValue:
    """The value of one lane, for all lanes; the number of the lane is an i64 within range."""
    value = value if value.parts else integers.spread(context, value)
    kind = llvm(value.element, value.count)
    parts = [context.out.value(f"extractelement {kind} {part}, i64 {lane}") for part in value.parts]
    return ScalarValue(value.element, tuple(parts))


def repeat(context: EmitContext, count: int, body: Callable[[str], None]) -> None:
    """Write a loop that runs its body so many times, at least once; the body gets the number of the trip, an i64."""
    out = context.out
    before, head, end = out.block, out.label("trip"), out.label("done")
    out.jump(head)
    out.begin(head)
    trip, hole = out.name(), out.hole()
    body(trip)
    following = out.value(f"add i64 {trip}, 1")
    done = out.value(f"icmp eq i64 {following}, {count}")
    out.fill(hole, f"{trip} = phi i64 [0, %{before}], [{following}, %{out.block}]")
    out.branch(done, end, head)
    out.begin(end)


def each_lane(
    context: EmitContext,
    vectors: Sequence[tuple[str, str]],
    count: int,
    mask: str | None,
    body: Callable[[list[str]], None],
) -> None:
    """Run code for each lane that a mask names, in their order; it gets the lane's number of each vector.

    A vector is the LLVM type of one lane and the operand. A loop, because the code for 64 lanes would be long.
    """
    arrays = [(kind, _spill(context, kind, operand, count)) for kind, operand in vectors]
    asked = None if mask is None else _spill(context, "i8", _as_bytes(context, mask, count), count)

    def trip(lane: str) -> None:
        def run() -> None:
            body([_entry(context, kind, array, lane) for kind, array in arrays])

        if asked is None:
            run()
        else:
            _run_where(context, _entry(context, "i8", asked, lane), run)

    repeat(context, count, trip)


def _as_bytes(context: EmitContext, mask: str, count: int) -> str:
    return context.out.value(f"zext <{count} x i1> {mask} to <{count} x i8>")


def _spill(context: EmitContext, kind: str, operand: str, count: int) -> str:
    array = context.out.reserve(kind, count)
    context.out.line(f"store <{count} x {kind}> {operand}, ptr {array}, align 64")
    return array


def _entry(context: EmitContext, kind: str, array: str, lane: str) -> str:
    pointer = context.out.value(f"getelementptr {kind}, ptr {array}, i64 {lane}")
    return context.out.value(f"load {kind}, ptr {pointer}")


def _run_where(context: EmitContext, byte: str, run: Callable[[], None]) -> None:
    out = context.out
    then, after = out.label("lane"), out.label("next")
    out.branch(out.value(f"icmp ne i8 {byte}, 0"), then, after)
    out.begin(then)
    run()
    out.jump(after)
    out.begin(after)


# --- vectors of numbers in memory: in one piece or lane by lane, all of them or those that a mask -----------


MANGLED = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}
"""How the names of intrinsic functions spell a type that is no integer."""
NARROW = ("i8", "i16", "i32")
"""Types that wider numbers may be cut to."""


@dataclass(frozen=True, slots=True)
class VectorAddress:
    """The address of a vector: `count` contiguous numbers behind a pointer, or a vector of pointers."""

    part: str
    count: int
    pointer: str
    alignment: int = 1
    """Bytes that divide the pointer, or each of the pointers."""
    streamed: bool = False
    """Whether what is written need not stay in a cache."""

    @property
    def kind(self) -> str:
        """The LLVM type of all the numbers."""
        return self.part if self.count == 1 else f"<{self.count} x {self.part}>"

    @property
    def suffix(self) -> str:
        """The type as names of intrinsic functions spell it."""
        return f"v{self.count}{MANGLED.get(self.part, self.part)}"


def load_vector(context: EmitContext, place: VectorAddress, mask: str | None = None) -> str:
    """Neighbours in memory; lanes that a mask leaves out are zero and their memory is not touched."""
    if mask is None or place.count == 1:
        return context.out.value(f"load {place.kind}, ptr {place.pointer}, align {place.alignment}")
    operands = (
        f"ptr {place.pointer}, i32 {place.alignment}, {_lanes(place, mask)}, {place.kind} zeroinitializer"
    )
    return context.out.intrinsic(place.kind, f"llvm.masked.load.{place.suffix}.p0", operands)


def store_vector(context: EmitContext, place: VectorAddress, value: str, mask: str | None = None) -> None:
    """Write neighbours in memory; lanes that a mask leaves out are not written."""
    if mask is None or place.count == 1:
        hint = _streaming(context, place) + noalias_metadata(context)
        context.out.line(f"store {place.kind} {value}, ptr {place.pointer}, align {place.alignment}{hint}")
        return
    kinds = (place.kind, "ptr", "i32", f"<{place.count} x i1>")
    values = (value, place.pointer, str(place.alignment), _hidden(context, place, mask))
    _call(context, f"llvm.masked.store.{place.suffix}.p0", kinds, values)


def _hidden(context: EmitContext, place: VectorAddress, mask: str) -> str:
    """A mask of which LLVM knows nothing, where it must not.

    With AVX-512, LLVM 22 writes the whole of a number that was made narrower if it knows that a mask has one lane
    only: the neighbours in memory are lost.
    """
    shown = mask.startswith("<") and mask.count("true") != 1
    if shown or place.part not in NARROW or not context.target.has_lane_masks:
        return mask
    kind = f"<{place.count} x i1>"
    zero = context.out.value('call i32 asm "", "=r,0"(i32 0)')
    bit = context.out.value(f"trunc i32 {zero} to i1")
    first = context.out.value(f"insertelement {kind} poison, i1 {bit}, i64 0")
    none = shuffle(context, kind, first, "poison", [0] * place.count)
    return context.out.value(f"or {kind} {mask}, {none}")


SCOPE = (
    '!1000001 = distinct !{!1000001, !"kernel"}',
    '!1000002 = distinct !{!1000002, !1000001, !"fixed"}',
    "!1000003 = !{!1000002}",
)
"""The arrays that a kernel does not write, as LLVM is told of them; numbers far behind those of lines."""


def alias_scope(context: EmitContext) -> str:
    """Alias metadata (`!alias.scope`) of loads of arrays that the kernel does not write."""
    for line in SCOPE:
        context.out.need(line)
    return "!alias.scope !1000003"


def noalias_metadata(context: EmitContext) -> str:
    """Alias metadata (`!noalias`) of stores that such loads may pass, where those are no invariant loads."""
    if not context.early:
        return ""
    for line in SCOPE:
        context.out.need(line)
    return ", !noalias !1000003"


def _streaming(context: EmitContext, place: VectorAddress) -> str:
    """What tells LLVM to write past the caches; machines do so for whole aligned vectors."""
    whole = place.streamed and place.alignment % context.target.vector_bytes == 0
    return ", !nontemporal !{i32 1}" if whole else ""


def gather(context: EmitContext, place: VectorAddress, mask: str | None = None) -> str:
    """A gather; lanes that a mask leaves out are zero."""
    if place.count == 1:
        return load_vector(context, place)
    name = f"llvm.masked.gather.{place.suffix}.v{place.count}p0"
    pointers = f"<{place.count} x ptr> {place.pointer}, i32 {place.alignment}"
    operands = f"{pointers}, {_lanes(place, mask)}, {place.kind} zeroinitializer"
    return context.out.intrinsic(place.kind, name, operands)


def scatter(context: EmitContext, place: VectorAddress, value: str, mask: str | None = None) -> None:
    """A scatter; where two lanes point to one place the later lane stays."""
    if place.count == 1:
        store_vector(context, place, value)
        return
    kinds = (place.kind, f"<{place.count} x ptr>", "i32", f"<{place.count} x i1>")
    values = (value, place.pointer, str(place.alignment), mask or "splat (i1 true)")
    _call(context, f"llvm.masked.scatter.{place.suffix}.v{place.count}p0", kinds, values)


def shuffle(context: EmitContext, kind: str, left: str, right: str, lanes: Sequence[int]) -> str:
    """A vector of lanes of two others, which are counted through."""
    chosen = ", ".join(f"i32 {lane}" for lane in lanes)
    return context.out.value(f"shufflevector {kind} {left}, {kind} {right}, <{len(lanes)} x i32> <{chosen}>")


def _lanes(place: VectorAddress, mask: str | None) -> str:
    return f"<{place.count} x i1> {mask or 'splat (i1 true)'}"


def _call(context: EmitContext, name: str, kinds: Sequence[str], values: Sequence[str]) -> None:
    """Call an intrinsic function that has no result."""
    context.out.need(f"declare void @{name}({', '.join(kinds)})")
    operands = ", ".join(f"{kind} {value}" for kind, value in zip(kinds, values, strict=True))
    context.out.line(f"call void @{name}({operands})")


LARGEST_ALIGNMENT = 1 << 12
"""More is never of use."""


@dataclass(frozen=True, slots=True)
class Address:
    """The place of an element for all lanes, or of one for each lane: `pointer + offset`, counted in elements."""

    element: str
    pointer: ScalarValue
    offset: ScalarValue
    alignment: int
    """Bytes that divide the place; of lane 0 where lanes have their own."""
    streamed: bool = False

    @property
    def step(self) -> int | None:
        """The stride between neighbouring lanes in elements, 0 where all share one; None where nobody knows."""
        if not self.pointer.is_uniform:
            return None
        if self.offset.is_uniform:
            return 0
        return self.offset.step if self.offset.base is not None else None


def part_bytes(element: str) -> int:
    """Bytes of a part of an element, to which an element is always aligned."""
    return BYTES[component_of(element)]


def unit(element: str) -> str:
    """The LLVM type that is as long as an element."""
    part = LLVM[element]
    return f"[2 x {part}]" if component_of(element) != element else part


def address(context: EmitContext, memory: MemrefValue, indices: Sequence[ScalarValue]) -> Address:
    """The address of an element."""
    offset = memory.offset
    for index, stride in zip(indices, memory.strides, strict=True):
        offset = integers.add(context, offset, integers.multiply(context, index, stride))
    element = memory.type.element
    alignment = alignment_of(element, memory.alignment, offset.divisor)
    return Address(element, memory.pointer, offset, alignment, memory.streamed)


def alignment_of(element: str, alignment: int, divisor: int) -> int:
    """Bytes that divide a place which is a multiple of `divisor` elements behind an aligned pointer.

    It is a power of two and never less than a part of an element; a divisor of 0 is that of offset 0.
    """
    found = gcd(alignment, divisor * BYTES[element], LARGEST_ALIGNMENT)
    return max(found, part_bytes(element))


def element_pointer(context: EmitContext, memory: MemrefValue, indices: Sequence[ScalarValue]) -> str:
    """The LLVM pointer to an element at a position that all lanes share."""
    return first_pointer(context, address(context, memory, indices))


def first_pointer(context: EmitContext, place: Address, moved: int = 0) -> str:
    """The pointer to the element of lane 0, or to one some elements behind it."""
    start = place.offset.base if place.offset.base is not None else place.offset.operand
    pointer = step_pointer(context, place.element, place.pointer.operand, start)
    return step_pointer(context, place.element, pointer, str(moved))


def step_pointer(context: EmitContext, element: str, pointer: str, offset: str) -> str:
    """A pointer some elements further on."""
    if offset == "0":
        return pointer
    return context.out.value(f"getelementptr {unit(element)}, ptr {pointer}, i64 {offset}")


def lane_pointers(context: EmitContext, place: Address) -> str:
    """A vector of the pointers of all lanes."""
    offset = place.offset if place.offset.is_uniform else integers.spread(context, place.offset)
    pointer = place.pointer
    if pointer.is_uniform and offset.is_uniform:
        return integers.splat(context, first_pointer(context, place), "ptr")
    return context.out.value(
        f"getelementptr {unit(place.element)}, {_counted('ptr', pointer)} {pointer.operand}, "
        f"{_counted('i64', offset)} {offset.operand}"
    )


def _counted(part: str, value: ScalarValue) -> str:
    return part if value.is_uniform else f"<{value.count} x {part}>"


def second_part(context: EmitContext, element: str, pointer: str, count: int = 1) -> str:
    """The pointer, or the pointers, to the imaginary part of what is pointed to."""
    kind = "ptr" if count == 1 else f"<{count} x ptr>"
    return context.out.value(f"getelementptr {LLVM[element]}, {kind} {pointer}, i64 1")


def part_pointers(context: EmitContext, element: str, pointer: str, count: int = 1) -> list[str]:
    """The pointers to the parts of an element: one, or two where it is complex."""
    if component_of(element) == element:
        return [pointer]
    return [pointer, second_part(context, element, pointer, count)]
