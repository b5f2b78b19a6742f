"""Loops on matrix tiles: which loops are taken, what they compute, and the same loops on vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu.compile import emit as emit_kernels
from lamella.backend.cpu.compile import load_kernels
from lamella.backend.cpu.jit import Processor, assembly, has_tiles, host_machine
from lamella.kernels.target import find_target
from tests.support.backend.cpu.cooperating import Array, Kernel, emit, lay_out, read
from tests.support.backend.cpu.tile_model import Tiles

SIZE = "attributes{subgroup_size=16,work_group_size=[16,1]}"
SUMS = {"bf16": "f32", "i8": "i32"}
PACKS = {"bf16": 2, "i8": 4}
DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "i8": np.dtype(np.int8)}
SUM_DTYPES = {"bf16": np.dtype(np.float32), "i8": np.dtype(np.int32)}


def product_text(
    element: str,
    tile: tuple[int, int, int],
    blocks: tuple[int, int],
    start: str = "",
    transposed: bool = False,
) -> str:
    """A kernel that adds products of blocks of A and B over a loop, to a constant or to what is in C."""
    rows, columns, depth = tile
    total, zero = SUMS[element], "0" if element == "i8" else "0.0"
    sum_type = f"coopmatrix<{total}x{rows}x{columns},matrix_acc>"
    cells = [(i, j) for i in range(blocks[0]) for j in range(blocks[1])]
    lines = [f"%x{i} = constant {i * rows} : index" for i in range(blocks[0])]
    lines += [f"%y{j} = constant {j * columns} : index" for j in range(blocks[1])]
    for i, j in cells:
        load = (
            f"cooperative_matrix_load.n %C[%x{i},%y{j}]" if start == "load" else f"constant {start or zero}"
        )
        lines.append(f"%s{i}{j} = {load} : {sum_type}")
    results = ", ".join(f"%r{i}{j}" for i, j in cells)
    init = ", ".join(f"%c{i}{j}=%s{i}{j}" for i, j in cells)
    types = ", ".join([sum_type] * len(cells))
    lines.append(f"{results} = for %k:index=%z,%K,%step init({init}) -> ({types}) {{")
    for i in range(blocks[0]):
        kind = f"coopmatrix<{element}x{rows}x{depth},matrix_a>"
        lines.append(f"%a{i} = cooperative_matrix_load.n %A[%x{i},%k] : {kind}")
    for j in range(blocks[1]):
        kind, place = f"coopmatrix<{element}x{depth}x{columns},matrix_b>", f"%k,%y{j}"
        flag = ".n"
        if transposed:
            flag, place = ".t", f"%y{j},%k"
        lines.append(f"%b{j} = cooperative_matrix_load{flag} %B[{place}] : {kind}")
    for i, j in cells:
        lines.append(f"%d{i}{j} = cooperative_matrix_mul_add %a{i}, %b{j}, %c{i}{j} : {sum_type}")
    lines.append(f"yield ({', '.join(f'%d{i}{j}' for i, j in cells)})\n}}")
    lines += [f"cooperative_matrix_store %r{i}{j}, %C[%x{i},%y{j}]" for i, j in cells]
    inner = "\n            ".join(lines)
    layout = "strided<?,1>" if transposed else "strided<1,?>"
    return f"""
        func @f(%A: memref<{element}x{PACKS[element]}x?x?>, %B: memref<{element}x?x?,{layout}>,
                %C: memref<{total}x?x?>, %K: index) {SIZE} {{
          parallel {{
            %z = constant 0 : index
            %step = constant {depth} : index
            {inner}
          }}
        }}"""


def draw_factors(element: str, shape: tuple[int, int, int]) -> tuple[Array, Array]:
    """Two matrices of small numbers, whose products are exact in any order."""
    rows, columns, depth = shape
    random = np.random.default_rng(7)
    sizes = ((rows, depth), (depth, columns))
    left, right = (random.integers(-8, 9, size).astype(DTYPES[element]) for size in sizes)
    return left, right


def pack_columns(values: Array, pack: int) -> Array:
    """A matrix with columns in packs: component (i, k) at (k mod p, i, k div p)."""
    rows, depth = values.shape
    whole = values.reshape(rows, depth // pack, pack).transpose(2, 0, 1)
    return lay_out(whole, (1, pack, pack * rows), True)


@dataclass(frozen=True)
class Case:
    """A loop over so many products of blocks."""

    element: str
    tile: tuple[int, int, int]
    blocks: tuple[int, int] = (2, 2)
    trips: int = 3
    start: str = ""
    transposed: bool = False

    @property
    def text(self) -> str:
        """The kernel."""
        return product_text(self.element, self.tile, self.blocks, self.start, self.transposed)

    def judge(self, kernel: Kernel) -> None:
        """Run it, and compare with whole numbers."""
        rows, columns, depth = self.tile
        end = self.trips * depth
        shape = (self.blocks[0] * rows, self.blocks[1] * columns, max(end, depth))
        left, right = draw_factors(self.element, shape)
        before = np.random.default_rng(8).integers(-99, 99, shape[:2]).astype(SUM_DTYPES[self.element])
        apart = shape[2] + 8
        other = (
            lay_out(right.T, (1, apart)[::-1], True) if self.transposed else lay_out(right, (1, apart), True)
        )
        found = lay_out(before, (1, shape[0]), True)
        kernel(pack_columns(left, PACKS[self.element]), other, found, end)
        exact = left[:, :end].astype(np.int64) @ right[:end].astype(np.int64)
        assert np.array_equal(found, exact + (before if self.start else 0))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Tiles of every size, up to as many as there are."""
    element = draw(st.sampled_from([*PACKS]))
    depth = draw(st.integers(1, 16)) * PACKS[element]
    blocks = draw(st.sampled_from([(1, 1), (2, 2), (1, 2), (2, 1), (1, 3), (3, 1)]))
    tile = (draw(st.integers(1, 16)), draw(st.integers(1, 16)), depth)
    start = draw(st.sampled_from(["", "load"]))
    return Case(element, tile, blocks, draw(st.integers(0, 3)), start, draw(st.booleans()))


@given(cases())
def test_a_loop_on_tiles_by_the_manual(case: Case) -> None:
    tiles = Tiles()
    case.judge(Kernel(case.text, "cpu-amx", tiles.translate))
    assert not tiles.faults
    cells = case.blocks[0] * case.blocks[1]
    products = tiles.counts["tdpbf16ps"] + tiles.counts["tdpbssd"]
    assert products == cells * case.trips
    assert tiles.counts["tileloadd64"] == sum(case.blocks) * case.trips + (cells if case.start else 0)
    assert tiles.counts["ldtilecfg"] == tiles.counts["tilerelease"] == 1


def loop_lines(number: int, rows: int) -> str:
    """A loop over the first rows of A, whose sum is stored in columns of its own."""
    total = f"coopmatrix<f32x{rows}x16,matrix_acc>"
    return f"""
            %y{number} = constant {16 * number} : index
            %s{number} = constant 0.0 : {total}
            %r{number} = for %k:index=%z,%K,%step init(%c=%s{number}) -> ({total}) {{
              %a = cooperative_matrix_load.n %A[%z,%k] : coopmatrix<bf16x{rows}x32,matrix_a>
              %b = cooperative_matrix_load.n %B[%k,%z] : coopmatrix<bf16x32x16,matrix_b>
              %d = cooperative_matrix_mul_add %a, %b, %c : {total}
              yield (%d)
            }}
            cooperative_matrix_store %r{number}, %C[%z,%y{number}]"""


def test_loops_of_different_tiles_in_one_kernel() -> None:
    heights, tiles = (16, 7, 16, 7), Tiles()
    kernel = Kernel(
        f"""
        func @f(%A: memref<bf16x2x?x?>, %B: memref<bf16x?x?>, %C: memref<f32x?x?>, %K: index) {SIZE} {{
          parallel {{
            %z = constant 0 : index
            %step = constant 32 : index
            {"".join(loop_lines(number, rows) for number, rows in enumerate(heights))}
          }}
        }}""",
        "cpu-amx",
        tiles.translate,
    )
    left, right = draw_factors("bf16", (16, 16, 64))
    found = np.zeros((16, 64), np.float32, order="F")
    kernel(pack_columns(left, 2), lay_out(right, (1, 64), True), found, 64)
    exact = left.astype(np.float32) @ right.astype(np.float32)
    for number, rows in enumerate(heights):
        block = found[:, 16 * number : 16 * (number + 1)]
        assert np.array_equal(block[:rows], exact[:rows])
        assert not block[rows:].any()
    assert not tiles.faults
    assert tiles.counts["ldtilecfg"] == 1 + 2 * heights.count(7)
    assert tiles.counts["tilerelease"] == 1


@pytest.mark.skipif(not has_tiles(host_machine()), reason="this machine has no matrix tiles")
@given(cases())
def test_a_loop_on_the_tiles_of_this_machine(case: Case) -> None:
    kernel = Kernel(case.text, "cpu-amx")
    assert "tileloadd64" in kernel.text
    case.judge(kernel)


@given(cases())
def test_the_same_loop_on_vectors(case: Case) -> None:
    kernel = Kernel(case.text, "cpu-avx512")
    assert "tileloadd64" not in kernel.text
    case.judge(kernel)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".n %B", ".n.rows_checked %B"),
        (".n %A", ".n.cols_checked %A"),
        ("strided<1,?>", "strided<2,?>"),
        ("memref<bf16x2x?x?>", "memref<bf16x2x?x?,strided<1,4,?>>"),
        ("yield (%d00, %d01", "yield (%d01, %d00"),
        (
            "%d01 = cooperative_matrix_mul_add %a0, %b1, %c01",
            "%d01 = cooperative_matrix_mul_add %a0, %b1, %d00",
        ),
        ("yield (%d00,", "%e = arith.neg %d00 : coopmatrix<f32x16x16,matrix_acc>\nyield (%e,"),
    ],
)
def test_other_loops_run_on_vectors(old: str, new: str) -> None:
    text = Case("bf16", (16, 16, 32)).text
    assert old in text
    assert "tileloadd64" in emit(read(text).functions[0], "cpu-amx")
    assert "tileloadd64" not in emit(read(text.replace(old, new)).functions[0], "cpu-amx")


@pytest.mark.parametrize("tile", [(17, 16, 32), (16, 17, 32), (16, 16, 34), (16, 16, 31)])
def test_what_does_not_fit_a_tile_runs_on_vectors(tile: tuple[int, int, int]) -> None:
    case = Case("bf16", tile, (1, 1))
    assert "tileloadd64" not in emit(read(case.text).functions[0], "cpu-amx")


def test_too_many_blocks_run_on_vectors() -> None:
    text = Case("bf16", (16, 16, 32), (3, 2)).text
    assert "tileloadd64" not in emit(read(text).functions[0], "cpu-amx")


def test_code_for_tiles_is_written_on_any_machine() -> None:
    text = emit(read(Case("i8", (16, 16, 64)).text).functions[0], "cpu-amx")
    target = find_target("cpu-amx")
    written = assembly(text, Processor(target.triple, target.cpu, target.features))
    assert written.count("tdpbssd") == 4
    assert written.count("tileloadd") == 4


@pytest.mark.parametrize("transposes", ["n.n", "t.n", "n.t", "t.t"])
@pytest.mark.parametrize("shape", [(64, 48, 96), (50, 30, 70)])
@pytest.mark.parametrize("element", ["bf16", "i8"])
def test_gemm_runs_on_tiles(element: str, shape: tuple[int, int, int], transposes: str) -> None:
    one, zero = ("1", "0") if element == "i8" else ("1.0", "0.0")
    left, right = draw_factors(element, shape)
    first, second = (word == "t" for word in transposes.split("."))
    given_ = [left.T if first else left, right.T if second else right]
    types = [f"memref<{element}x{array.shape[0]}x{array.shape[1]}>" for array in given_]
    text = f"""
        func @f(%A: {types[0]}, %B: {types[1]}, %C: memref<{SUMS[element]}x{shape[0]}x{shape[1]}>) {{
          %one = constant {one} : {element}
          %zero = constant {zero} : {SUMS[element]}
          gemm.{transposes} %one, %A, %B, %zero, %C
        }}"""
    tiles = Tiles()
    compiled = emit_kernels(read(text), find_target("cpu-amx"))
    kernels = load_kernels(replace(compiled, text=tiles.translate(compiled.text)), threads=1)
    found = np.full(shape[:2], 99, SUM_DTYPES[element], order="F")
    kernels.call("f", [*map(np.asfortranarray, given_), found])
    assert np.array_equal(found, left.astype(np.int64) @ right.astype(np.int64))
    assert not tiles.faults
    assert tiles.counts["tdpbf16ps"] + tiles.counts["tdpbssd"] > 0
