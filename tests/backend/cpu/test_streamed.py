"""Parameters that are written past the caches: where the hint has an effect, and that it changes no number."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.backend.cpu import compile_program
from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.host import host_target
from lamella.backend.cpu.jit import MACHINES, assembly
from lamella.backend.interpreter import compile_program as interpret
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.source import Source
from lamella.kernels.library import GemmShape, batched_gemm, stream_result, streamed_gemm
from lamella.kernels.target import find_target
from lamella.lang.tensor import check, parse
from lamella.lang.tensor.nodes import Program

HINT = "!nontemporal"
TWICE = """
func @twice(%X: memref<f32x?x?>, %Y: memref<f32x?x?> {PROMISES}) attributes{subgroup_size=16, work_group_size=[16,1]} {
  %row = builtin.group_id : index
  %0 = constant 0 : index
  %16 = constant 16 : index
  %n0 = size %X[0] : index
  %n1 = size %Y[0] : index
  %n = arith.min %n0, %n1 : index
  %rest = arith.rem %n, %16 : index
  %whole = arith.sub %n, %rest : index
  parallel {
    %id = builtin.subgroup_local_id : i32
    %lane = cast %id : index
    for %i:index=%0,%whole,%16 {
      %at = arith.add %i, %lane : index
      %x = load %X[%at,%row] : f32
      %y = arith.add %x, %x : f32
      store %y, %Y[%at,%row]
    }
  }
}
"""
KEPT = 'alignment=64, "streamed"=true, stride_gcd=[1,16]'


def twice(promises: str) -> Program:
    """A kernel that makes promises about its output."""
    program, findings = parse(Source("twice.tensor", TWICE.replace("PROMISES", promises)))
    assert not findings
    return program


def aligned(*shape: int) -> Array:
    """Zeros whose first mode is contiguous, at a multiple of 64 bytes."""
    memory = np.zeros(4 * int(np.prod(shape)) + 64, np.uint8)
    start = -memory.ctypes.data % 64
    found: Array = memory[start : start + 4 * int(np.prod(shape))].view("f4").reshape(shape, order="F")
    return found


@pytest.mark.parametrize(
    ("promises", "hinted"),
    [
        (KEPT, True),
        ('alignment=64, "streamed"=false, stride_gcd=[1,16]', False),
        ('"streamed"=true, stride_gcd=[1,16]', False),
        ('alignment=64, "streamed"=true', False),
        ("alignment=64, stride_gcd=[1,16]", False),
    ],
)
def test_only_whole_aligned_vectors_are_streamed(promises: str, hinted: bool) -> None:
    found = emit(twice(promises), find_target("cpu-avx512"))
    assert (HINT in found.text) == hinted
    assert ("vmovntps" in assembly(found.text, MACHINES["cpu-avx512"])) == hinted


def test_streamed_numbers_are_the_same() -> None:
    x, y = aligned(48, 5), aligned(48, 5)
    x[...] = np.random.default_rng(0).normal(size=x.shape)
    compile_program(twice(KEPT)).call("twice", [x, y], 5)
    assert np.array_equal(y, 2 * x)


def test_promises_are_kept_by_every_launch() -> None:
    memory = aligned(49, 1)
    with pytest.raises(LamellaError, match="alignment"):
        compile_program(twice(KEPT)).call("twice", [aligned(48, 1), memory[1:]], 1)


def test_the_attribute_is_an_extension_and_a_boolean() -> None:
    assert [finding.code for finding in check(twice(KEPT))].count("TEN035") == 1
    wrong = [finding for finding in check(twice('"streamed"=1')) if finding.severity == "error"]
    assert ["true or false" in finding.message for finding in wrong] == [True]


@pytest.mark.parametrize("sizes", [(256, 4, 8), (300, 17, 1), (5, 3, 7), (1056, 9, 6)])
@pytest.mark.parametrize("target", ["cpu-avx512", "cpu-avx2", None])
def test_tall_results(sizes: tuple[int, int, int], target: str | None) -> None:
    random, block, (m, n, k) = np.random.default_rng(1), 128, sizes
    a, b, c = aligned(m, k), aligned(k, n), aligned(m, n)
    a[...], b[...] = random.normal(size=a.shape), random.normal(size=b.shape)
    found = host_target() if target is None else find_target(target)
    program = streamed_gemm(GemmShape(m, n, k), found, block=block)
    run = compile_program(program) if target is None else interpret(program)
    run.call("kernel", [a, b, c], -(-m // block))
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_tall_results_are_streamed() -> None:
    text = emit(
        streamed_gemm(GemmShape(1024, 16, 16), find_target("cpu-avx512")), find_target("cpu-avx512")
    ).text
    assert text.count("store <32 x float>") == text.count(HINT) > 0


@pytest.mark.parametrize(("m", "hinted"), [(16, True), (24, False), (5, False)])
def test_batches(m: int, hinted: bool) -> None:
    random, count = np.random.default_rng(2), 7
    a, b, c = aligned(m, 6, count), aligned(6, 8, count), aligned(m, 8, count)
    a[...], b[...] = random.normal(size=a.shape), random.normal(size=b.shape)
    program = stream_result(batched_gemm(GemmShape(m, 8, 6)))
    assert (HINT in emit(program, find_target("cpu-avx512")).text) == hinted
    compile_program(program).call("kernel", [a, b, c], count)
    np.testing.assert_allclose(c, np.einsum("ikg,kjg->ijg", a, b), rtol=1e-4, atol=1e-4)
