"""Single lanes: which of them run, one of them picked out, code that is run for one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.values import ScalarValue, llvm


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
