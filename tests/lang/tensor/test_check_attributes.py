"""Attributes, layouts and what loops and conditions yield, judged by counting."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.source import Source
from lamella.lang.tensor import check, parse

BYTES = {"i8": 1, "bf16": 2, "f32": 4, "f64": 8, "c64": 16}
elements = st.sampled_from(sorted(BYTES))
numbers = st.integers(-2, 40) | st.sampled_from([64, 96, 128, 256, 512])


def codes(text: str) -> list[str]:
    """The codes of what is found in a text."""
    program, found = parse(Source("k.tensor", text))
    assert not found
    return [item.code for item in check(program)]


def alignment_code(alignment: int, element: str) -> list[str]:
    """What is wrong with an alignment."""
    if alignment not in {2**power for power in range(63)}:
        return ["TEN053"]
    return [] if alignment in range(0, 1024, BYTES[element]) else ["TEN054"]


@given(elements, numbers)
def test_alignments_of_parameters(element: str, alignment: int) -> None:
    expected = alignment_code(alignment, element)
    for type_ in (f"memref<{element}x4>", f"group<memref<{element}x4>x?>"):
        assert codes(f"func @k(%A: {type_} {{alignment={alignment}}}) {{ }}") == expected


@given(elements, numbers)
def test_alignments_of_local_memory(element: str, alignment: int) -> None:
    body = f"%A = alloca {{alignment={alignment}}} : memref<{element}x4,local>"
    expected = [*alignment_code(alignment, element), *(["TEN055"] if alignment > 128 else [])]
    assert codes(f"func @k() {{ {body} }}") == expected


@given(st.lists(numbers, max_size=3), numbers)
def test_sizes_of_work_groups(sizes: list[int], subgroup: int) -> None:
    expected = []
    group_is_right = len(sizes) == 2 and sizes[0] > 0 and sizes[1] > 0
    if subgroup < 1:
        expected.append("TEN060")
    if not group_is_right:
        expected.append("TEN059")
    if not expected and sizes[0] not in range(subgroup, sizes[0] + 1, subgroup):
        expected.append("TEN061")
    text = f"subgroup_size={subgroup}, work_group_size=[{','.join(map(str, sizes))}]"
    assert codes(f"func @k() attributes{{{text}}} {{ }}") == expected


@given(
    st.lists(st.integers(1, 9) | st.none(), min_size=1, max_size=3), st.lists(st.integers(1, 4), max_size=4)
)
def test_divisors_divide_the_sizes_that_are_known(shape: list[int | None], divisors: list[int]) -> None:
    sizes = "".join(f"x{'?' if size is None else size}" for size in shape)
    found = codes(f"func @k(%A: memref<f32{sizes}> {{shape_gcd={divisors}}}) {{ }}")
    if len(divisors) > len(shape):
        assert found == ["TEN056"]
    else:
        pairs = zip(divisors, shape, strict=False)
        broken = [size for divisor, size in pairs if size is not None and size // divisor * divisor != size]
        assert found == ["TEN058"] * len(broken)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 20)), min_size=1, max_size=3))
def test_memory_that_overlaps_is_warned_of(modes: list[tuple[int, int]]) -> None:
    shape = "".join(f"x{size}" for size, _ in modes)
    stride = ",".join(str(step) for _, step in modes)
    found = codes(f"func @k(%A: memref<f32{shape},strided<{stride}>>) {{ }}")
    places = [
        sum(i * step for i, (_, step) in zip(index, modes, strict=True))
        for index in product(*(range(size) for size, _ in modes))
    ]
    if len(set(places)) < len(places):
        assert found == ["TEN043"]
    assert found in ([], ["TEN043"])


@given(st.lists(st.integers(1, 6), max_size=4))
def test_packed_memory_is_not_warned_of(shape: list[int]) -> None:
    array = np.zeros(shape, np.float32, order="F")
    stride = ",".join(str(step // 4) for step in array.strides)
    sizes = "".join(f"x{size}" for size in shape)
    assert codes(f"func @k(%A: memref<f32{sizes},strided<{stride}>>, %B: memref<f32{sizes}>) {{ }}") == []


names = st.sampled_from(["i32", "f32", "bool"])


@given(st.lists(names, min_size=1, max_size=3), st.lists(names, min_size=1, max_size=3), st.data())
def test_loops_carry_and_yield_what_they_give(
    starts: list[str], given_: list[str], data: st.DataObject
) -> None:
    yielded = data.draw(st.lists(names, max_size=3) | st.just(given_))
    carried = ",".join(f"%x{position}=%{name}" for position, name in enumerate(starts))
    values = ", ".join(f"%{name}" for name in yielded)
    text = (
        "func @k(%n: index, %i32: i32, %f32: f32, %bool: bool) {"
        f"for %i=%n,%n init({carried}) -> ({','.join(given_)}) {{ yield ({values}) }} }}"
    )
    expected = ["TEN084"] if len(starts) != len(given_) else []
    expected += ["TEN085" for start, wanted in zip(starts, given_, strict=False) if start != wanted]
    if len(yielded) != len(given_):
        expected.append("TEN081")
    else:
        expected += ["TEN082" for name, wanted in zip(yielded, given_, strict=True) if name != wanted]
    assert codes(text) == expected
