"""Views, groups and parameters against NumPy: every element of a view is read through its address."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.memory import (
    element_pointer,
    emit_expand,
    emit_fuse,
    emit_load,
    emit_size,
    emit_store,
    emit_subview,
    load_parameter,
    make_local,
)
from lamella.backend.cpu.emit.values import MemrefValue, ScalarValue
from lamella.base.arrays import Array
from lamella.lang.tensor.nodes import (
    Dictionary,
    DictionaryEntry,
    Expand,
    Fuse,
    Group,
    Load,
    Memref,
    Parameter,
    Scalar,
    SizeOf,
    Slice,
    Store,
    Subview,
    Type,
    Value,
    make_memref,
)
from tests.support.backend.cpu.emitting import (
    add_parameter,
    compile_kernel,
    draw_values,
    in_parts,
    make_here,
    read_lanes,
    read_slot,
    write_lanes,
)

SOURCE, VIEW = Value("source"), Value("view")
sizes_ = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def _read_all(context: EmitContext, view: MemrefValue, shape: tuple[int, ...], slot: int) -> None:
    """Write all elements of a view to the memory in a slot, the first mode fastest."""
    context.values["view"] = view
    add_parameter(context, "out", make_memref(view.type.element, (math.prod(shape),)), slot)
    for place, position in enumerate(np.ndindex(*reversed(shape))):
        names = []
        for mode, index in enumerate(reversed(position)):
            context.values[f"i{mode}"] = integers.number(index)
            names.append(Value(f"i{mode}"))
        context.values["value"] = emit_load(context, Load(VIEW, tuple(names), Scalar(view.type.element)))
        context.values["place"] = integers.number(place)
        emit_store(context, Store(Value("value"), Value("out"), (Value("place"),)))


def _dope(array: Array) -> list[int]:
    """The sizes and strides of an array, in elements."""
    return [*array.shape, *(step // array.itemsize for step in array.strides)]


def _spaced(draw: st.DataObject, element: str, shape: tuple[int, ...]) -> Array:
    """An array, first mode fastest, with gaps between its modes."""
    gaps = [draw.draw(st.integers(0, 2), label="gap") for _ in shape]
    whole = tuple(size + gap for size, gap in zip(shape, gaps, strict=True))
    filled = draw_values(element, math.prod(whole), 7).reshape(whole, order="F")
    return filled[tuple(slice(size) for size in shape)]


@given(st.data(), st.sampled_from(["f32", "c32", "i8", "f64"]), sizes_, st.booleans())
def test_a_subview_is_a_slice(data: st.DataObject, element: str, sizes: list[int], known: bool) -> None:
    shape = tuple(sizes)
    array = _spaced(data, element, shape)
    slices, wanted = [], []
    for size in shape:
        start = data.draw(st.integers(0, size - 1))
        count = data.draw(st.integers(0, size - start))
        slices.append((start, count))
        wanted.append(slice(start, start + count) if count else start)
    context = make_here()
    nothing: tuple[None, ...] = (None,) * len(shape)
    dope = _dope(array)
    kind = Memref(element, nothing, nothing)
    if known:
        kind = Memref(element, shape, tuple(dope[len(shape) :]))
    slot = add_parameter(context, "source", kind)
    written = []
    for mode, (start, count) in enumerate(slices):
        context.values[f"s{mode}"] = integers.dynamic(read_slot(context, slot + mode, "i64"))
        written.append(Slice(start if known else Value(f"s{mode}"), count))
    view = emit_subview(context, Subview(SOURCE, tuple(written), kind))
    expected = array[tuple(wanted)]
    _read_all(context, view, expected.shape, slot + len(shape))
    out = np.zeros(expected.size, array.dtype)
    starts = [start for start, _ in slices]
    compile_kernel(context)(array, *([] if known else dope), *starts, out)
    np.testing.assert_array_equal(out, expected.flatten(order="F"))


@given(st.data(), st.lists(st.integers(1, 4), min_size=2, max_size=3), st.booleans())
def test_expand_and_fuse_are_reshapes(data: st.DataObject, factors: list[int], known: bool) -> None:
    product, others = math.prod(factors), 3
    mode = data.draw(st.integers(0, 1))
    shape = (product, others) if mode == 0 else (others, product)
    array = draw_values("f32", math.prod(shape), 3).reshape(shape, order="F")
    kind = make_memref("f32", shape) if known else Memref("f32", (None, None), (None, None))
    context = make_here()
    slot = add_parameter(context, "source", kind)
    for place in range(len(factors)):
        context.values[f"f{place}"] = integers.dynamic(read_slot(context, slot + place, "i64"))
    names = [factor if known else Value(f"f{place}") for place, factor in enumerate(factors)]
    expanded = emit_expand(context, Expand(SOURCE, mode, tuple(names), kind))
    slot += len(factors)
    split = (*shape[:mode], *factors, *shape[mode + 1 :])
    _read_all(context, expanded, split, slot)
    fused = emit_fuse(context, Fuse(VIEW, mode, mode + len(factors) - 1, kind))
    _read_all(context, fused, shape, slot + 1)
    write_lanes(context, emit_size(context, SizeOf(VIEW, mode)), slot + 2)
    outs = [np.zeros(array.size, np.float32) for _ in range(2)]
    size = np.zeros(1, np.int64)
    compile_kernel(context)(array, *([] if known else _dope(array)), *factors, *outs, size)
    for out in outs:
        np.testing.assert_array_equal(out, array.flatten(order="F"))
    assert size[0] == product


@pytest.mark.parametrize(("lanes", "varying"), [(1, False), (8, False), (8, True)])
def test_members_of_a_group_have_their_own_layout(lanes: int, varying: bool) -> None:
    kind = Group(Memref("i32", (None, 3), (1, None)), None, None)
    context = make_here(lanes)
    slot = add_parameter(context, "group", kind)
    assert slot == 5
    context.values["which"] = integers.dynamic(read_slot(context, slot, "i64"))
    if varying:
        context.values["which"] = read_lanes(context, "index", slot)
    context.values["member"] = emit_load(context, Load(Value("group"), (Value("which"),), kind.memref))
    context.values["row"], context.values["column"] = integers.number(1), integers.number(2)
    indices = (Value("row"), Value("column"))
    found = emit_load(context, Load(Value("member"), indices, Scalar("i32")))
    assert isinstance(found, ScalarValue)
    write_lanes(context, found, slot + 1)
    write_lanes(context, emit_size(context, SizeOf(Value("member"), 0)), slot + 2)
    write_lanes(context, emit_size(context, SizeOf(Value("group"), 0)), slot + 3)
    generator = np.random.default_rng(1)
    offset, rows = 2, np.array([4, 7, 3, 9])
    arrays = [np.asfortranarray(generator.integers(0, 99, (size, 4)).astype(np.int32)) for size in rows]
    pointers = np.array([array.ctypes.data for array in arrays], np.uint64)
    which = generator.integers(0, 4, lanes)
    count = lanes if varying else 1
    outs = np.zeros(count, np.int32), np.zeros(count, np.int64), np.zeros(1, np.int64)
    chosen = which if varying else int(which[0])
    compile_kernel(context)(pointers, rows.copy(), rows.copy(), 4, offset, chosen, *outs)
    # element (1, 2) behind an offset of two elements
    wanted = [arrays[one].flatten(order="F")[offset + 1 + 2 * rows[one]] for one in which[:count]]
    np.testing.assert_array_equal(outs[0], wanted)
    np.testing.assert_array_equal(outs[1], rows[which[:count]])
    assert outs[2][0] == 4


SLOTS: list[tuple[Type, int]] = [
    (make_memref("f32", (5, 10)), 1),
    (make_memref("f32", (None, None)), 4),
    (make_memref("f64", (5, None)), 2),
    (make_memref("i64", (5, None, 6)), 3),
    (make_memref("i16", (None, 5, None), (1, 20, 100)), 3),
    (Group(make_memref("i32", (5, None, 6)), None), 4),
    (Group(make_memref("f32", (None,)), None, None), 4),
    (Group(make_memref("f32", (42,)), 42, None), 2),
    (Scalar("bool"), 1),
    (Scalar("c32"), 1),
    (Scalar("c64"), 2),
    (Scalar("bf16"), 1),
]


@pytest.mark.parametrize(("kind", "count"), SLOTS)
def test_a_parameter_takes_the_slots_of_its_type(kind: Type, count: int) -> None:
    assert add_parameter(make_here(), "x", kind, 3) == 3 + count


@pytest.mark.parametrize("element", ["bool", "i8", "i16", "i32", "index", "bf16", "f16", "f64", "c32", "c64"])
def test_scalars_are_the_bits_of_their_slots(element: str) -> None:
    value = np.ones(1, bool) if element == "bool" else draw_values(element, 1, 4)
    bits = np.frombuffer(value.tobytes().ljust(16, b"\xff"), np.uint64)
    context = make_here()
    slot = add_parameter(context, "x", Scalar(element))
    found = context.scalar("x")
    if element == "bool":
        found = ScalarValue("i8", (context.out.value(f"zext i1 {found.operand} to i8"),))
    write_lanes(context, found, slot)
    out = in_parts(np.zeros_like(value))
    compile_kernel(context)(*map(int, bits[:slot]), out)
    np.testing.assert_array_equal(out.view(value.real.dtype), in_parts(value))


# --- what promises are for ----------------------------------------------------------------------------------


def _promised(context: EmitContext, kind: Type, **promises: int | tuple[int, ...]) -> None:
    entries = tuple(DictionaryEntry(key, value) for key, value in promises.items())
    parameter = Parameter(Value("x"), kind, Dictionary(entries))
    context.values["x"], _ = load_parameter(context, parameter, 0)


def _loaded_alignment(context: EmitContext, *offsets: Slice, name: str = "x") -> int:
    """The alignment of a vector load at the beginning of a view."""
    start = len(context.out.lines)
    kind = make_memref("f32", (None,))
    context.values["v"] = emit_subview(context, Subview(Value(name), offsets, kind))
    context.values["i"] = integers.affine(context, "0", 1, divisor=0)
    emit_load(context, Load(Value("v"), (Value("i"),), Scalar("f32")))
    found = re.findall(r"load <8 x float>.*align (\d+)", "\n".join(context.out.lines[start:]))
    assert len(found) == 1
    return int(found[0])


def test_promises_become_the_alignment_of_accesses() -> None:
    context = make_here(8)
    kind = make_memref("f32", (None, None))
    context.values["j"] = integers.dynamic("%groups")
    column = Slice(0, 8), Slice(Value("j"), 0)
    _promised(context, kind)
    assert _loaded_alignment(context, *column) == 4
    _promised(context, kind, alignment=64)
    assert _loaded_alignment(context, *column) == 4
    _promised(context, kind, alignment=64, stride_gcd=(1, 8))
    assert _loaded_alignment(context, *column) == 32
    assert _loaded_alignment(context, Slice(4, 8), Slice(Value("j"), 0)) == 16
    assert _loaded_alignment(context, Slice(8, 8), Slice(0, 0)) == 32
    _promised(context, Group(kind, None), alignment=128, stride_gcd=(1, 16))
    context.values["m"] = emit_load(context, Load(Value("x"), (Value("j"),), kind))
    assert _loaded_alignment(context, *column, name="m") == 64


def test_strides_of_an_odd_divisor_promise_no_alignment() -> None:
    context = make_here(8)
    kind = make_memref("f32", (None, None))
    context.values["j"] = integers.dynamic("%groups", divisor=3**14)
    _promised(context, kind, alignment=64, stride_gcd=(1, 3))
    assert _loaded_alignment(context, Slice(0, 8), Slice(Value("j"), 0)) == 4


def test_local_memory_is_where_its_offset_says() -> None:
    context = make_here()
    first, second = (make_local(context, make_memref("f32", (4,), local=True), offset) for offset in (0, 64))
    assert (first.alignment, second.alignment) == (128, 64)
    context.values.update(a=first, b=second, i=integers.number(1))
    for name, value in (("a", 1), ("b", 2)):
        context.values["v"] = ScalarValue("f32", (f"{value}.0",))
        emit_store(context, Store(Value("v"), Value(name), (Value("i"),)))
    pointers = [element_pointer(context, memory, [integers.number(1)]) for memory in (first, second)]
    for slot, pointer in enumerate(pointers):
        write_lanes(context, ScalarValue("f32", (context.out.value(f"load float, ptr {pointer}"),)), slot)
    outs = [np.zeros(1, np.float32) for _ in range(2)]
    compile_kernel(context)(*outs)
    assert [float(out[0]) for out in outs] == [1.0, 2.0]
