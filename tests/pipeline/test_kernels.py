"""Kernels and graphs with kernels from Python: compile, call, look at the code, lower, save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend.executor import GraphExecutable
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.kernels.nodes import KernelGraph

TEXT = """\
func @scale(%a: f32, %x: memref<f32x?x?,strided<?,?>>) {
  %0 = constant 0 : index
  %r = size %x[0] : index
  %c = size %x[1] : index
  foreach (%i,%j):index=(%0,%0),(%r,%c) {
    %v = load %x[%i,%j] : f32
    %w = arith.mul %a, %v : f32
    store %w, %x[%i,%j]
  }
}
func @sums(%xs: group<memref<f32x?>x?>, %y: memref<f32x?>) {
  %g = builtin.group_id : index
  %x = load %xs[%g] : memref<f32x?>
  %one = constant 1.0 : f32
  %zero = constant 0.0 : f32
  %s = subview %y[%g] : memref<f32>
  sum.n %one, %x, %zero, %s
}
"""
GRAPH = """\
import math, linalg;
graph G {
    @input { x: real[4, 12]; w: real[12, 16]; }
    @output { y: real[4, 16]; }
    @compose { z = linalg.matmul(x, w); y = math.exp(z); }
}
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "k.tensor"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "m.sknd"
    path.write_text(GRAPH, encoding="utf-8")
    return path


def compiled(path: Path, backend: str | None = None, **options: Any) -> Any:
    """Kernels, which have the names of their file."""
    return lamella.compile(path, backend, **options)


def views() -> list[Array]:
    """A matrix in every layout that NumPy knows."""
    plain = np.arange(48, dtype=np.float32).reshape(6, 8)
    return [
        plain.copy(),
        np.asfortranarray(plain),
        plain.copy().T,
        plain.copy()[::2, 1::3],
        plain.copy()[1:5, ::2].T,
        plain.copy()[:1],
        plain.copy()[:, :1],
    ]


@pytest.mark.parametrize("number", range(len(views())))
@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_arrays_of_any_stride_are_updated_in_place(kernels: Path, backend: str, number: int) -> None:
    array = views()[number]
    expected, whole = 3 * array, np.asarray(array if array.base is None else array.base).copy()
    compiled(kernels, backend).scale(3.0, array)
    np.testing.assert_array_equal(array, expected)
    assert not np.array_equal(whole, array if array.base is None else array.base)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("threads", [1, 2])
def test_groups_are_lists_of_arrays(kernels: Path, backend: str, threads: int) -> None:
    random = np.random.default_rng(0)
    arrays = [random.integers(-9, 9, size).astype(np.float32) for size in (1, 7, 64, 200)]
    y = np.zeros(4, np.float32)
    compiled(kernels, backend, **({"threads": threads} if backend == "cpu" else {})).sums(arrays, y, groups=4)
    np.testing.assert_array_equal(y, [array.sum() for array in arrays])


def test_the_code_is_there_to_look_at(kernels: Path) -> None:
    found = compiled(kernels, "cpu")
    assert "foreach" not in found.ir
    assert "func @scale" in found.ir
    assert "define void @kernel_0" in found.llvm
    assert "kernel_1" in found.asm
    assert found.names == ("scale", "sums")


WRONG = {
    "too few": ((1.0,), {}),
    "too many": ((1.0, np.zeros((2, 2), np.float32), 1), {}),
    "type": ((1.0, np.zeros((2, 2), np.float64)), {}),
    "rank": ((1.0, np.zeros(2, np.float32)), {}),
    "no array": ((1.0, [[1.0]]), {}),
    "no number": (("1", np.zeros((2, 2), np.float32)), {}),
    "groups": ((1.0, np.zeros((2, 2), np.float32)), {"groups": -1}),
    "half a group": ((1.0, np.zeros((2, 2), np.float32)), {"groups": 0.5}),
}


@pytest.mark.parametrize(("arguments", "options"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_wrong_arguments_are_told(
    kernels: Path, backend: str, arguments: tuple[object, ...], options: dict[str, object]
) -> None:
    scale = compiled(kernels, backend).scale
    with pytest.raises(LamellaError) as caught:
        scale(*arguments, **options)
    assert all(item.code.startswith("TEN") for item in caught.value.findings)


def test_an_array_that_may_not_be_written_is_told(kernels: Path) -> None:
    array = np.zeros((2, 2), np.float32)
    array.flags.writeable = False
    with pytest.raises(LamellaError):
        compiled(kernels, "cpu").scale(2.0, array)


def test_unknown_kernels_targets_and_backends_are_told(kernels: Path) -> None:
    with pytest.raises(LamellaError, match="nothing"):
        compiled(kernels).nothing()
    for wrong in ({"backend": "npu"}, {"target": "nope"}, {"target": "pvc"}):
        with pytest.raises(LamellaError, match=r"there is no|cannot run"):
            compiled(kernels, **wrong)


# --- graphs -------------------------------------------------------------------------------------------------


def test_a_graph_lowers_to_kernels_that_are_saved_and_run(graph: Path, tmp_path: Path) -> None:
    lowered = lamella.lower(lamella.load(graph), to="tensor")
    assert isinstance(lowered, KernelGraph)
    lamella.save(lowered, tmp_path / "out.tensor")
    alone = compiled(tmp_path / "out.tensor")
    assert len(alone.names) == len(lowered.program.functions)
    random = np.random.default_rng(0)
    fed = {"x": random.normal(size=(4, 12)), "w": random.normal(size=(12, 16))}
    fed = {name: array.astype(np.float32) for name, array in fed.items()}
    expected = np.exp(fed["x"].astype(np.float64) @ fed["w"])
    for run in (
        lamella.compile(graph, backend="cpu"),
        lamella.compile(lowered),
        lamella.compile(lowered, backend="interpreter"),
    ):
        np.testing.assert_allclose(run(**fed)["y"], expected, rtol=1e-4)


def test_a_graph_with_kernels_has_no_file_of_its_own(graph: Path, tmp_path: Path) -> None:
    lowered = lamella.lower(lamella.load(graph), to="tensor")
    with pytest.raises(LamellaError, match="ending"):
        lamella.save(lowered, tmp_path / "out.sknd")
    assert not (tmp_path / "out.sknd").exists()


@pytest.mark.parametrize("form", ["llvm", "asm", "ptx"])
def test_lowered_code_is_saved(graph: Path, tmp_path: Path, form: str) -> None:
    lowered = lamella.lower(graph, to=form)
    lamella.save(lowered, tmp_path / "out.txt")
    assert "kernel_0" in (tmp_path / "out.txt").read_text(encoding="utf-8")


def test_a_graph_says_what_is_wrong_with_its_inputs(graph: Path) -> None:
    run = lamella.compile(graph, backend="cpu", random=True)
    assert isinstance(run, GraphExecutable)
    for wrong in (np.zeros((4, 11), np.float32), np.zeros((4, 12), np.int64), np.zeros(4, np.float32)):
        with pytest.raises(LamellaError):
            run(x=wrong)
    with pytest.raises(LamellaError):
        run(nothing=np.zeros(1, np.float32))
    assert run(x=np.zeros((12, 4), np.float32).T)["y"].shape == (4, 16)


# --- arrays that nobody expects ------------------------------------------------------------------------------


def odd_arrays(shape: tuple[int, ...]) -> dict[str, Array]:
    """The same numbers in every layout that an array can have, none of them one that a kernel takes."""
    plain = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 64
    shifted = np.zeros(plain.nbytes + 8, np.uint8)[3 : 3 + plain.nbytes].view(np.float32).reshape(shape)
    shifted[...] = plain
    fixed = plain.copy()
    fixed.flags.writeable = False
    wide = np.zeros((2 * shape[0], 3 * shape[1]), np.float32)
    wide[::2, ::3] = plain
    return {
        "backwards": plain[::-1].copy()[::-1],
        "columns first": np.asfortranarray(plain),
        "misaligned": shifted,
        "read-only": fixed,
        "with gaps": wide[::2, ::3],
        "big-endian": plain.astype(">f4"),
    }


@pytest.mark.parametrize("name", odd_arrays((4, 12)))
def test_a_graph_computes_with_odd_arrays(graph: Path, name: str) -> None:
    """Or says what is wrong with them; their own memory stays as it is."""
    model = compiled(graph, "cpu")
    x, w = odd_arrays((4, 12))[name], odd_arrays((12, 16))[name]
    before = x.tobytes(), w.tobytes()
    with np.errstate(over="ignore"):
        expected = np.exp(np.asarray(x, np.float64) @ np.asarray(w, np.float64))
    found = model(x=x, w=w)
    np.testing.assert_allclose(found["y"], expected, rtol=1e-4)
    assert (x.tobytes(), w.tobytes()) == before


def test_a_graph_computes_with_one_array_for_two_inputs(tmp_path: Path) -> None:
    path = tmp_path / "m.sknd"
    path.write_text(GRAPH.replace("4, 12", "12, 12").replace("12, 16", "12, 12").replace("4, 16", "12, 12"))
    model, x = compiled(path, "cpu"), np.full((12, 12), 0.125, np.float32)
    np.testing.assert_allclose(model(x=x, w=x)["y"], np.exp(x @ x), rtol=1e-5)
    zero = np.broadcast_to(np.float32(0.125), (12, 12))
    np.testing.assert_allclose(model(x=zero, w=zero[::-1].T)["y"], np.exp(zero @ zero), rtol=1e-5)


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((4, 11), np.float32),
        np.zeros((4, 12, 1), np.float32),
        np.zeros((5, 12)),
        np.zeros(48, np.int32),
    ],
)
def test_a_graph_refuses_arrays_of_other_sizes(graph: Path, x: Array) -> None:
    with pytest.raises(LamellaError):
        compiled(graph, "cpu")(x=x, w=np.zeros((12, 16), np.float32))


def test_functions_without_syntax_errors_are_checked_beside_those_that_have_some(tmp_path: Path) -> None:
    path = tmp_path / "k.tensor"
    path.write_text(
        "func @f(%a: i32) {\n  %x = arith.add %a %a : i32\n  %y = arith.add %b, %b : i32\n}\n"
        "func @g(%a: i32) {\n  %y = arith.add %a, %b : i32\n}\n"
        "func @h() {\n  %y = foo %a : i32\n}\n"
    )
    found = lamella.check(path)
    assert [(item.code, item.span.line) for item in found] == [("TEN001", 2), ("TEN070", 6), ("TEN003", 9)]
