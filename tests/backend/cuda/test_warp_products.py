"""`gemm` of a work-group of warps: tiles for tensor cores, of any sizes, judged by NumPy in double precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lamella.backend import cuda, interpreter
from lamella.backend.cpu.compile import emit
from lamella.base.arrays import Array
from lamella.kernels.passes import lower
from lamella.kernels.target import find_target
from lamella.lang.tensor import write
from tests.backend.cuda.test_cuda_text import assemble_on
from tests.support.backend.interpreter.kernels import DTYPES, EPSILON, draw_array
from tests.support.differential.running import read

SIZES = [(64, 32, 48), (8, 8, 8), (70, 19, 67), (9, 130, 16), (256, 64, 32)]
ELEMENTS = [("bf16", "f32"), ("f16", "f32"), ("bf16", "bf16"), ("f16", "f16")]
FORMS = ("nn", "tn", "nt", "tt")
CASES = [*((ELEMENTS[0], item) for item in FORMS), *zip(ELEMENTS[1:], FORMS[1:], strict=True)]


def product(
    sizes: tuple[int, int, int], elements: tuple[str, str], forms: str, beta: str = "1.0", known: bool = True
) -> str:
    """A product; sizes and beta are those of the call where they are not known."""
    m, n, k = sizes
    left = (m, k) if forms[0] == "n" else (k, m)
    right = (k, n) if forms[1] == "n" else (n, k)
    a, b, c = ("x".join(map(str, item) if known else "??") for item in (left, right, (m, n)))
    factor, result = elements
    told = f"%beta = constant {beta} : {result}" if known else ""
    more = "" if known else f", %beta: {result}"
    return f"""
func @f(%A: memref<{factor}x{a}>, %B: memref<{factor}x{b}>, %C: memref<{result}x{c}>{more}) {{
  %alpha = constant -0.5 : {factor}
  {told}
  gemm.{forms[0]}.{forms[1]} %alpha, %A, %B, %beta, %C
}}
"""


def draw(sizes: tuple[int, int, int], elements: tuple[str, str], forms: str) -> list[Array]:
    (m, n, k), random = sizes, np.random.default_rng(3)
    left = (m, k) if forms[0] == "n" else (k, m)
    right = (k, n) if forms[1] == "n" else (n, k)
    shapes = zip((left, right, (m, n)), (elements[0], *elements), strict=True)
    return [draw_array(random, element, shape) for shape, element in shapes]


def compare(given: list[Array], found: Array, elements: tuple[str, str], forms: str, beta: float) -> None:
    """Hold a result against the formula."""
    a, b, c = (item.astype(np.float64) for item in given)
    a, b = (item.T if form == "t" else item for item, form in zip((a, b), forms, strict=True))
    want = -0.5 * a @ b + (beta * c if beta else 0)
    scale = np.abs(a) @ np.abs(b) + np.abs(c) * abs(beta) + 1
    bound = 2 * (EPSILON[elements[1]] + 2.0**-20) * scale
    assert (np.abs(found.astype(np.float64) - want) <= bound).all()


@pytest.mark.parametrize("elements", ELEMENTS, ids="-".join)
@pytest.mark.parametrize("sizes", SIZES)
def test_the_text_is_of_tiles(sizes: tuple[int, int, int], elements: tuple[str, str]) -> None:
    """The interpreter runs it."""
    forms = FORMS[sum(sizes) % 4]
    program = lower(read(product(sizes, elements, forms)), find_target("sm_90a"), "lower-linalg")
    assert "cooperative_matrix_mul_add" in write(program)
    given = draw(sizes, elements, forms)
    found = [item.copy(order="F") for item in given]
    interpreter.compile_program(program, check_bounds=True, seed=1).call("f", found)
    compare(given, found[2], elements, forms, 1.0)


def test_what_has_no_tensor_cores_or_less_than_a_tile_is_multiplied_one_by_one() -> None:
    for target, text in (
        ("sm_75", product((64, 32, 48), ELEMENTS[0], "nn")),
        ("sm_90a", product((7, 32, 48), ELEMENTS[0], "nn")),
        ("sm_90a", product((64, 32, 48), ("f32", "f32"), "nn")),
    ):
        assert "cooperative_matrix" not in write(lower(read(text), find_target(target), "lower-linalg"))


@pytest.mark.gpu
@pytest.mark.parametrize(("elements", "forms"), CASES)
def test_a_gpu_multiplies(elements: tuple[str, str], forms: str) -> None:
    ways = ((True, 1.0), (False, -2.0), (True, 0.0), (False, 0.0))
    for place, (known, beta) in enumerate(ways):
        sizes = SIZES[(place + len(forms.replace("n", ""))) % len(SIZES)]
        text = product(sizes, elements, forms, str(beta), known)
        given = draw(sizes, elements, forms)
        found = [item.copy(order="F") for item in given]
        if not beta:
            found[2][...] = np.nan
        arguments: list[object] = [*found, *(() if known else (beta,))]
        cuda.compile_program(read(text)).call("f", arguments)
        compare(given, found[2], elements, forms, beta)


CHAIN = """
func @f(%A: memref<bf16x40x40>, %B: memref<bf16x40x40>, %C: memref<f32x40x40>)
    attributes{subgroup_size=32, work_group_size=[128,1]} {
  %one = constant 1.0 : bf16
  %zero = constant 0.0 : bf16
  %wide = constant 0.0 : f32
  %part = alloca : memref<bf16x40x40,local>
  gemm.n.n %one, %A, %B, %zero, %part
  gemm.t.n %one, %part, %B, %wide, %C
}
"""


@pytest.mark.gpu
def test_one_product_reads_what_another_leaves_in_local_memory() -> None:
    random = np.random.default_rng(5)
    given = [draw_array(random, element, (40, 40)) for element in ("bf16", "bf16", "f32")]
    cuda.compile_program(read(CHAIN)).call("f", given)
    a, b = (item.astype(np.float64) for item in given[:2])
    part = (a @ b).astype(DTYPES["bf16"]).astype(np.float64)
    np.testing.assert_allclose(given[2], part.T @ b, rtol=2e-2, atol=2.0)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120"])
def test_the_assembler_takes_it(target: str, tmp_path: Path) -> None:
    """Sums have no more registers than the work-items of a work-group leave each other."""
    for sizes in ((256, 128, 64), (4096, 4096, 64)):
        text = emit(read(product(sizes, ELEMENTS[0], "tn")), find_target(target)).text
        assert "mma.sync" in text
        assert not assemble_on(target, text, tmp_path)
