"""Vectors of numbers in memory: in one piece or lane by lane, all of them or those that a mask names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamella.backend.cpu.emit.context import EmitContext

MANGLED = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}
"""How the names of intrinsic functions spell a type that is no integer."""
NARROW = ("i8", "i16", "i32")
"""Types that wider numbers may be cut to."""


@dataclass(frozen=True, slots=True)
class VectorAddress:
    """Where numbers of one LLVM type are: `count` of them behind a pointer, or one behind each pointer of a vector."""

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
        hint = _streaming(context, place)
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


def _streaming(context: EmitContext, place: VectorAddress) -> str:
    """What tells LLVM to write past the caches; machines do so for whole aligned vectors."""
    whole = place.streamed and place.alignment % context.target.vector_bytes == 0
    return ", !nontemporal !{i32 1}" if whole else ""


def gather(context: EmitContext, place: VectorAddress, mask: str | None = None) -> str:
    """What a vector of pointers points to; lanes that a mask leaves out are zero."""
    if place.count == 1:
        return load_vector(context, place)
    name = f"llvm.masked.gather.{place.suffix}.v{place.count}p0"
    pointers = f"<{place.count} x ptr> {place.pointer}, i32 {place.alignment}"
    operands = f"{pointers}, {_lanes(place, mask)}, {place.kind} zeroinitializer"
    return context.out.intrinsic(place.kind, name, operands)


def scatter(context: EmitContext, place: VectorAddress, value: str, mask: str | None = None) -> None:
    """Write each lane to its own pointer; where two point to one place the later lane stays."""
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
