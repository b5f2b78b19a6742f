"""Measure products of matrices: weights packed beforehand, both matrices as they are, double precision, tiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

from bench.contest import OURS, Report, Work, contest, fill, tell, tell_mean, view
from lamella.backend.cpu import CompiledKernels, compile_program
from lamella.backend.cpu.host import host_target
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.kernels.library import GemmShape, pack_panels, packed_gemm
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import Memref, Program

Sizes = tuple[int, int, int]
SQUARES: tuple[Sizes, ...] = tuple((n, n, n) for n in (256, 384, 512, 768, 1024, 1536, 2048))
LAYERS: tuple[Sizes, ...] = ((128, 768, 768), (128, 3072, 768), (128, 768, 3072))
FEW_ROWS: tuple[Sizes, ...] = tuple(
    (m, n, k) for m in (8, 16) for n, k in ((768, 768), (3072, 768), (768, 3072), (4096, 4096))
)
ONE_ROW: tuple[Sizes, ...] = tuple((1, n, k) for n, k in ((768, 768), (3072, 768), (4096, 4096)))
ACTIVATIONS: tuple[Sizes, ...] = (
    (128, 128, 64),
    (128, 64, 128),
    (512, 512, 64),
    (512, 64, 512),
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (128, 768, 768),
)
DOUBLES: tuple[Sizes, ...] = tuple((n, n, n) for n in (256, 512, 1024))
PEAK = """
func @kernel(%A: memref<f32x32x12>, %B: memref<f32x1x12>) attributes{subgroup_size=16, work_group_size=[16,1]} {
  %0 = constant 0 : index
  %n = constant 20000 : index
  parallel {
    %a = cooperative_matrix_load.n %A[%0,%0] : coopmatrix<f32x32x1,matrix_a>
    %b = cooperative_matrix_load.n %B[%0,%0] : coopmatrix<f32x1x12,matrix_b>
    %c = cooperative_matrix_load.n %A[%0,%0] : coopmatrix<f32x32x12,matrix_acc>
    %d = for %i:index=%0,%n init(%s=%c) -> (coopmatrix<f32x32x12,matrix_acc>) {
      %t = cooperative_matrix_mul_add %a, %b, %s : coopmatrix<f32x32x12,matrix_acc>
      yield (%t)
    }
    cooperative_matrix_store %d, %A[%0,%0]
  }
}
"""
"""Products of registers alone: what the processor can do at most."""


def compiled(text: str | Program, threads: int = 1) -> CompiledKernels:
    """The kernels of a program as machine code."""
    program = parse(Source("bench.tensor", text))[0] if isinstance(text, str) else text
    return compile_program(program, threads=threads)


@cache
def peak_rate() -> float:
    """The most multiplications and additions of single precision that one thread does in a second."""
    kernels = compiled(PEAK)
    a, b = np.zeros((32, 12), "f4", order="F"), np.zeros((1, 12), "f4", order="F")
    times = contest(Report(0.3), {OURS: partial(kernels.kernel, a, b)})
    return 2 * 32 * 12 * 20000 / times[OURS]


def flops(sizes: Sizes) -> float:
    """Multiplications and additions of a product."""
    return 2.0 * sizes[0] * sizes[1] * sizes[2]


def named(sizes: Sizes) -> str:
    """Sizes as a line shows them."""
    return " x ".join(map(str, sizes))


# --- weights packed beforehand ------------------------------------------------------------------------------


def packed_contest(
    report: Report, sizes: Sizes, element: torch.dtype = torch.float32
) -> tuple[dict[str, float], float]:
    """A layer whose weights were packed before, beside those of MKL, oneDNN and onnxruntime; and its limit.

    The limit is the arithmetic, or reading all weights once where that takes longer.
    """
    m, n, k = sizes
    x, w = fill(m, k), fill(n, k)
    work = {OURS: packed_call(report, x.to(element), w.to(element)), **packed_peers(report, x, w)}
    with torch.inference_mode():
        times = contest(report, {**work, "reading": w.sum})
    return times, max(times.pop("reading"), flops(sizes) / peak_rate() / report.threads)


def packed_call(report: Report, x: torch.Tensor, w: torch.Tensor) -> Work:
    """Our kernel: the transposed layer, whose left matrix is that of the weights."""
    name = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16"}[x.dtype]
    shape = GemmShape(len(w), len(x), x.shape[1])
    groups = 4 * report.threads if report.threads > 1 else 1
    program = packed_gemm(shape, host_target(), name, groups=groups)
    panels = program.functions[0].parameters[0].type
    sizes = [size or 0 for size in panels.shape] if isinstance(panels, Memref) else []
    packed = on_a_line(pack_panels(as_array(w), sizes[-3], sizes[0] if len(sizes) == 4 else 1))
    y = torch.empty(len(x), len(w), dtype=torch.float64 if name == "f64" else torch.float32)
    kernels = compiled(program, report.threads)
    return partial(kernels.kernel, packed, as_array(x).T, view(y), groups=groups)


def as_array(tensor: torch.Tensor) -> Array:
    """A tensor as an array; NumPy learns of bf16 from a package that torch does not know."""
    if tensor.dtype != torch.bfloat16:
        found: Array = tensor.numpy()
        return found
    bits: Array = tensor.view(torch.int16).numpy().view("bfloat16")
    return bits


def on_a_line(array: Array) -> Array:
    """A copy of an array that lies in order of its modes and begins at a line of the cache."""
    memory = torch.empty(array.nbytes, dtype=torch.uint8).numpy().view(array.dtype)
    found: Array = memory.reshape(array.shape, order="F")
    found[...] = array
    return found


def packed_peers(report: Report, x: torch.Tensor, w: torch.Tensor) -> dict[str, Work]:
    """The same layer in other libraries, its weights packed by them where they offer it."""
    rows, turned = len(x), w.T.contiguous()
    y = torch.empty(rows, len(w))
    mkl = torch.ops.mkl._mkl_reorder_linear_weight(w, rows)
    dnn = torch.ops.mkldnn._reorder_linear_weight(w, rows)
    peers: dict[str, Work] = {
        "MKL packed": lambda: torch.ops.mkl._mkl_linear(x, mkl, w, None, rows),
        "oneDNN packed": lambda: torch.ops.mkldnn._linear_pointwise(x, dnn, None, "none", [], ""),
        "torch.mm": lambda: torch.mm(x, turned, out=y),
        "onnxruntime": session(turned, report.threads, x),
    }
    if report.threads == 1:
        peers["OpenBLAS"] = lambda: np.matmul(x.numpy(), turned.numpy(), out=y.numpy())
    return peers


def session(weights: torch.Tensor, threads: int, x: torch.Tensor) -> Work:
    """A model of one product with constant weights, which onnxruntime packs when it loads it."""
    given, found = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [len(x), columns])
        for name, columns in zip("xy", weights.shape, strict=True)
    )
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    constant = numpy_helper.from_array(weights.numpy(), "w")
    graph = helper.make_graph([node], "g", [given], [found], [constant])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    made = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return partial(made.run, None, {"x": x.numpy()})


def measure_packed(report: Report, quick: bool) -> None:
    """Layers with packed weights."""
    ratios: list[float] = []
    for cases, target in ((SQUARES + LAYERS, 0.9), (FEW_ROWS, 1.1), (ONE_ROW, 1.0)):
        for sizes in cases[:: 3 if quick else 1]:
            times, limit = packed_contest(report, sizes)
            what = f"f32, packed weights, {named(sizes)}"
            ratio = tell(report, what, times, amount=flops(sizes), unit="GF/s", target=target, limit=limit)
            if sizes in SQUARES + LAYERS:
                ratios.append(ratio)
    tell_mean(report, "f32, packed weights, squares and layers", ratios, 0.97)


# --- both matrices as they are ------------------------------------------------------------------------------


def plain_text(sizes: Sizes, element: str, groups: int) -> str:
    """A kernel for the transposed product; each work-group takes some columns."""
    m, n, k = sizes
    share = m // groups
    return f"""
func @kernel(%A: memref<{element}x{n}x{k}>, %B: memref<{element}x{k}x{m}>, %C: memref<{element}x{n}x{m}>) {{
  %g = builtin.group_id : index
  %share = constant {share} : index
  %at = arith.mul %g, %share : index
  %b = subview %B[0:{k},%at:{share}] : memref<{element}x{k}x{share}>
  %c = subview %C[0:{n},%at:{share}] : memref<{element}x{n}x{share}>
  %one = constant 1.0 : {element}
  %zero = constant 0.0 : {element}
  gemm.n.n %one, %A, %b, %zero, %c
}}
"""


def plain_contest(report: Report, sizes: Sizes, dtype: torch.dtype) -> dict[str, float]:
    """A product of two matrices that nobody has seen before, beside torch and NumPy."""
    m, n, k = sizes
    x, w = fill(m, k, dtype=dtype), fill(k, n, dtype=dtype)
    y, z = torch.empty(m, n, dtype=dtype), torch.empty(m, n, dtype=dtype)
    element = "f64" if dtype == torch.float64 else "f32"
    kernels = compiled(plain_text(sizes, element, report.threads), report.threads)
    work: dict[str, Work] = {
        OURS: partial(kernels.kernel, view(w), view(x), view(y), groups=report.threads),
        "torch.mm": lambda: torch.mm(x, w, out=z),
    }
    if report.threads == 1:
        work["OpenBLAS"] = lambda: np.matmul(x.numpy(), w.numpy(), out=z.numpy())
    return contest(report, work)


def measure_plain(report: Report, quick: bool) -> None:
    """Activations times activations, and double precision."""
    for cases, dtype, word in ((ACTIVATIONS, torch.float32, "f32"), (DOUBLES, torch.float64, "f64")):
        for sizes in cases[:: 3 if quick else 1]:
            times = plain_contest(report, sizes, dtype)
            share = 1 if dtype == torch.float32 else 2
            limit = flops(sizes) / peak_rate() / report.threads * share
            what = f"{word}, nothing packed, {named(sizes)}"
            tell(report, what, times, amount=flops(sizes), unit="GF/s", target=0.9, limit=limit)


# --- tiles --------------------------------------------------------------------------------------------------


def measure_tiles(report: Report, quick: bool) -> None:
    """bf16 on the tiles of the processor, where a trial finds that they work."""
    if not host_target().amx:
        print("bf16 on tiles: this processor has none that work, nothing to measure")
        return
    for cases, target in ((SQUARES[:5], 4.0), (LAYERS, 2.5)):
        for sizes in cases[:: 3 if quick else 1]:
            times, _ = packed_contest(report, sizes, torch.bfloat16)
            what = f"bf16 on tiles beside f32, {named(sizes)}"
            tell(report, what, times, amount=flops(sizes), unit="GF/s", target=target)


PARTS: tuple[Callable[[Report, bool], None], ...] = (measure_packed, measure_plain, measure_tiles)
