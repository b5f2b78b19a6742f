"""Work-group and subgroup sizes: known values, and a search over all blocks and tilings."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.source import Source
from lamella.kernels.passes import write_sizes
from lamella.kernels.sizes import (
    BlasShape,
    Sizes,
    check_sizes,
    choose_sizes,
    default_sizes,
    fitting_work_group,
    register_block,
    subgroup_size,
    tiling,
)
from lamella.kernels.target import TARGETS, Target, find_target
from lamella.lang.tensor import check, parse, write
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Function, Program

PVC, LARGE = find_target("pvc"), find_target("pvc-large")


def function_of(text: str) -> Function:
    """The kernel of a text that has no errors."""
    program, findings = parse(Source("k.tensor", text))
    found = [item for item in [*findings, *check(program)] if item.severity == "error"]
    assert not found, found
    return program.functions[0]


def product_of(element: str, output: str = "", is_gemm: bool = True) -> BlasShape:
    """A product of unknown extents."""
    return BlasShape(None, None, (element, element, output or element), is_gemm)


def axpby(element: str, shape: str, attributes: str = "") -> str:
    """A kernel that scales a memref."""
    value = {"i": "1", "c": "[1.0,0.0]"}.get(element[0], "1.0")
    memref = f"memref<{element}x{shape}>"
    return f"""func @f(%A: {memref}, %B: {memref}){attributes} {{
  %one = constant {value} : {element}
  axpby.n %one, %A, %one, %B
}}"""


def gemm(a: str, c: str, m: str = "128", n: str = "128", k: str = "64") -> str:
    """A kernel that multiplies matrices."""
    one, zero = ("1", "0") if c.startswith("i") else ("1.0", "0.0")
    alpha = a if not a.startswith("i") else "i8"
    return f"""func @f(%A: memref<{a}x{m}x{k}>, %B: memref<{a}x{k}x{n}>, %C: memref<{c}x{m}x{n}>) {{
  %one = constant {one} : {alpha}
  %zero = constant {zero} : {c}
  gemm.n.n %one, %A, %B, %zero, %C
}}"""


# --- blocks and tilings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "size", "space", "block"),
    [
        (product_of("f32"), 16, 8192, (32, 19)),
        (product_of("f32"), 32, 8192, (32, 19)),
        (product_of("f32"), 16, 16384, (32, 44)),
        (product_of("f64"), 16, 16384, (32, 19)),
        (product_of("f16", "f32"), 16, 16384, (48, 35)),
        (product_of("f16"), 16, 16384, (48, 35)),
    ],
)
def test_known_register_blocks(shape: BlasShape, size: int, space: int, block: tuple[int, int]) -> None:
    assert register_block(shape, size, space) == block


@pytest.mark.parametrize(
    ("rows", "columns", "size", "tiles"),
    [
        (84, 56, 32, (2, 2)),
        (128, 128, 32, (4, 4)),
        (256, 128, 32, (8, 4)),
        (256, 256, 32, (4, 8)),
        (16123, 9, 32, (32, 1)),
        (None, None, 16, (4, 8)),
    ],
)
def test_known_tilings(rows: int | None, columns: int | None, size: int, tiles: tuple[int, int]) -> None:
    shape = BlasShape(rows, columns, ("f64", "f64", "f64"), True)
    assert tiling(shape, register_block(shape, size, 16384), LARGE.max_subgroups(size)) == tiles
    assert fitting_work_group([shape], LARGE, size) == (tiles[0] * size, tiles[1])


ELEMENTS = st.sampled_from(["i8", "bf16", "f16", "f32", "f64", "c32", "c64"])
POWERS = st.sampled_from([1, 2, 4, 8, 16, 32, 64])


def fits(shape: BlasShape, rows: int, columns: int, space: int) -> bool:
    """Whether a block and the parts of A and B beside it take no more than half of the registers."""
    left, right, output = shape.elements
    summed = {"i8": 4, "bf16": 4, "f16": 4}.get(output, BYTES[output])
    copies = 2 if output.startswith("c") else 1
    held = rows * (columns * summed * copies + 8 * BYTES[left]) + columns * 8 * BYTES[right]
    return 2 * held <= space


@given(ELEMENTS, POWERS, st.sampled_from([512, 2048, 4096, 8192]))
def test_no_block_is_better(element: str, size: int, space: int) -> None:
    shape = product_of(element)
    rows, columns = register_block(shape, size, space)
    assert rows % size == 0
    blocks = [(r, c) for r in range(size, 512, size) for c in range(1, 512) if fits(shape, r, c, space)]
    best = max((r * c / (r + c) for r, c in blocks), default=None)
    if best is None:
        assert (rows, columns) == (size, 1)
    else:
        assert (rows, columns) in blocks
        assert rows * columns / (rows + columns) == best


EXTENTS = st.none() | st.integers(0, 5000)


@given(EXTENTS, EXTENTS, st.tuples(st.integers(1, 64), st.integers(1, 64)), st.integers(1, 64))
def test_no_tiling_is_better(
    rows: int | None, columns: int | None, block: tuple[int, int], most: int
) -> None:
    m, n = tiling(BlasShape(rows, columns, ("f32", "f32", "f32")), block, most)
    powers = [1, 2, 4, 8, 16, 32, 64]
    limits = [
        64 if extent is None else max(1, -(-extent // part))
        for extent, part in zip((rows, columns), block, strict=True)
    ]
    # for each number of row tiles, as many column tiles as there may be
    allowed = [
        (a, b) for a, b in product(powers, powers) if a <= limits[0] and b <= limits[1] and a * b <= most
    ]
    assert (m, n) in allowed
    best = max(a * block[0] * b * block[1] / (a * block[0] + b * block[1]) for a, b in allowed)
    assert m * block[0] * n * block[1] / (m * block[0] + n * block[1]) == best


# --- kernels ------------------------------------------------------------------------------------------------

SAMPLE = """func @sample(%A: memref<f32x16x8>, %B: memref<f32x8x16>, %C: memref<f32x16x16>) {
  %one = constant 1.0 : f32
  %zero = constant 0.0 : f32
  %t = alloca : memref<f32x16x16,local>
  gemm.n.n %one, %A, %B, %zero, %t
  axpby.n %one, %t, %one, %C
}"""
CHAIN = """func @chain(%K: memref<f32x56x35>, %I: memref<f32x35x9>, %A: memref<f32x9x9>, %Q: memref<f32x56x9>) {
  %one = constant 1.0 : f32
  %zero = constant 0.0 : f32
  %t = alloca : memref<f32x35x9,local>
  gemm.n.n %one, %I, %A, %zero, %t
  gemm.n.n %one, %K, %t, %one, %Q
}"""


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (axpby("f32", "128x37"), Sizes(32, (128, 2))),
        (gemm("f64", "f64"), Sizes(16, (128, 8))),
        (SAMPLE, Sizes(16, (16, 1))),
        (CHAIN, Sizes(32, (64, 1))),
        ("func @f() {}", Sizes(32, (32, 1))),
    ],
)
def test_known_sizes(text: str, sizes: Sizes) -> None:
    assert choose_sizes(function_of(text), PVC) == sizes


@pytest.mark.parametrize(("a", "c"), [("bf16", "f32"), ("f16", "f32"), ("f16", "f16"), ("i8", "i32")])
def test_matrix_instructions_need_their_subgroup_size(a: str, c: str) -> None:
    assert subgroup_size(function_of(gemm(a, c)), PVC) == 16
    assert subgroup_size(function_of(axpby(a, "64x8")), PVC) == 32


def test_wide_elements_and_few_registers_want_small_subgroups() -> None:
    tgl = find_target("tgl")
    assert subgroup_size(function_of(axpby("c32", "64x8")), PVC) == 16
    assert subgroup_size(function_of(axpby("f32", "64x8")), tgl) == 16
    assert subgroup_size(function_of(axpby("f32", "7x8")), tgl) == 8


def test_instructions_in_regions_count() -> None:
    text = """func @f(%A: memref<f64x64x64>, %n: index) {
  %zero = constant 0 : index
  %one = constant 1.0 : f64
  for %i=%zero,%n {
    %B = subview %A[0:8,0:8] : memref<f64x8x8,strided<1,64>>
    axpby.n %one, %B, %one, %B
  }
}"""
    assert choose_sizes(function_of(text), PVC) == Sizes(16, (16, 1))


@pytest.mark.parametrize("target", [target for name, target in TARGETS.items() if name.startswith("cpu")])
@pytest.mark.parametrize(
    "text",
    [
        SAMPLE,
        axpby("f64", "128x37"),
        axpby("f32", "8", " attributes{subgroup_size=32}"),
        axpby("f32", "8", " attributes{work_group_size=[24,2]}"),
        axpby("f32", "8", " attributes{work_group_size=[7,1]}"),
        axpby("f32", "8", " attributes{subgroup_size=2, work_group_size=[6,3]}"),
    ],
)
def test_a_cpu_runs_kernels_with_the_sizes_of_the_interpreter(text: str, target: Target) -> None:
    function = function_of(text)
    assert choose_sizes(function, target) == default_sizes(function)
    assert not check_sizes(function, target)


@given(
    st.sampled_from(sorted(TARGETS)),
    st.sampled_from(["f32", "f64", "c64", "i8", "bf16"]),
    st.sampled_from(["16", "?", "128x37", "?x?", "1000x3", ""]),
)
def test_what_is_chosen_the_target_has(name: str, element: str, shape: str) -> None:
    target, function = find_target(name), function_of(axpby(element, shape or "1"))
    sizes = choose_sizes(function, target)
    assert sizes.subgroup_size in target.subgroup_sizes
    assert sizes.work_group_size[0] % sizes.subgroup_size == 0
    assert sizes.work_group_size[0] * sizes.work_group_size[1] <= target.max_work_group_size
    assert not check_sizes(function, target)


@pytest.mark.parametrize(
    ("attributes", "codes"),
    [
        ("subgroup_size=8", ["TEN238"]),
        ("subgroup_size=32, work_group_size=[64,32]", ["TEN239"]),
        ("work_group_size=[24,1]", ["TEN061"]),
        ("work_group_size=[48,1]", []),
        ("subgroup_size=16, work_group_size=[16,1]", []),
    ],
)
def test_sizes_that_a_target_does_not_have(attributes: str, codes: list[str]) -> None:
    function = function_of(axpby("f32", "128x37", f" attributes{{{attributes}}}"))
    assert [item.code for item in check_sizes(function, PVC)] == codes


@pytest.mark.parametrize(
    "text", [SAMPLE, CHAIN, axpby("f32", "8", ' attributes{"mine"=1, work_group_size=[64,1]}')]
)
def test_the_pass_writes_what_is_chosen(text: str) -> None:
    function = function_of(text)
    written = write_sizes(function, PVC)
    again = parse(Source("k.tensor", write(Program((written,))))).program.functions[0]
    assert again == written
    assert default_sizes(again) == choose_sizes(function, PVC) == choose_sizes(again, PVC)
    assert again.body == function.body
