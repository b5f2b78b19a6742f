"""Kernels and graphs on an NVIDIA GPU beside torch on the same device, in one process.

`python -m bench.cuda` prints a table; it needs a GPU and a torch that sees it. A matrix product is one program of the
tensor language with cooperative matrices, which every backend runs; rows are kernels that graphs become.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np

import lamella
from bench.measuring import note_figure, require_gpu
from lamella.backend import cuda
from lamella.backend.cuda.compile import device_target, fit_kernels
from lamella.backend.cuda.driver import Event, LaunchGraph, device, own_stream
from lamella.backend.cuda.kernels import BoundLaunch
from lamella.base.source import Source
from lamella.kernels.nodes import KernelGraph
from lamella.lang.tensor import parse
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options

TILES = {"f32": (64, 64)}
"""The rows of a tile and the columns of a subgroup, of 8, where they are not those of halves."""
HALVES, SUBGROUPS, BAND = (256, 16), 8, 16
"""The same of halves, and how many tiles lie side by side along the columns before the next rows follow."""
BYTES = ("f8e4m3", "f8e5m2")
"""Numbers of 8 bits, whose products are stored as bf16."""
TORCH_TYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}


def product_text(m: int, n: int, k: int, element: str = "bf16") -> str:
    """C = A' B for A of k x m and B of k x n elements, k contiguous in both; rows of C are contiguous."""
    rows, own = TILES.get(element, HALVES)
    columns = own * SUBGROUPS
    sums = f"coopmatrix<f32x{rows}x{own},matrix_acc>"
    band = BAND if n // columns % BAND == 0 else 1
    stored = "bf16" if element in BYTES else element
    narrow = f"%short = cast %sum : coopmatrix<{stored}x{rows}x{own},matrix_acc>" if stored != "f32" else ""
    return f"""
func @product(%A: memref<{element}x{k}x{m}>, %B: memref<{element}x{k}x{n}>, %C: memref<{stored}x{m}x{n}>)
    attributes{{subgroup_size=32, work_group_size=[256,1]}} {{
  parallel {{
    %g = builtin.group_id : index
    %s = builtin.subgroup_id : i32
    %own = cast %s : index
    %0 = constant 0 : index
    %16 = constant 16 : index
    %each = constant {own} : index
    %rows = constant {rows} : index
    %columns = constant {columns} : index
    %band = constant {band} : index
    %tiles = constant {band * m // rows} : index
    %depth = constant {k} : index
    %which = arith.div %g, %tiles : index
    %within = arith.rem %g, %tiles : index
    %first = arith.mul %which, %band : index
    %side = arith.rem %within, %band : index
    %column = arith.add %first, %side : index
    %row = arith.div %within, %band : index
    %m = arith.mul %row, %rows : index
    %n0 = arith.mul %column, %columns : index
    %n1 = arith.mul %own, %each : index
    %n = arith.add %n0, %n1 : index
    %zero = constant 0.0 : {sums}
    %sum = for %k:index=%0,%depth,%16 init(%c=%zero) -> ({sums}) {{
      %a = cooperative_matrix_load.t %A[%k,%m] : coopmatrix<{element}x{rows}x16,matrix_a>
      %b = cooperative_matrix_load.n %B[%k,%n] : coopmatrix<{element}x16x{own},matrix_b>
      %d = cooperative_matrix_mul_add %a, %b, %c : {sums}
      yield (%d)
    }}
    {narrow}
    cooperative_matrix_store {"%short" if narrow else "%sum"}, %C[%m,%n]
  }}
}}
"""


def time_ours(launch: Callable[[], None], count: int = 1) -> float:
    """The mean time of so many launches in a row, of a warm device."""
    begin, end = Event(), Event()
    begin.record(own_stream())
    for _ in range(count):
        launch()
    end.record(own_stream())
    return end.seconds_since(begin) / count


def time_torch(torch: Any, launch: Callable[[], object], count: int = 1) -> float:
    """The same of torch."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        launch()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / count


def in_turn(
    torch: Any, ours: Callable[[], None], theirs: Callable[[], object], count: int = 1
) -> tuple[float, float]:
    """The medians of both, which take turns: so both find the clocks that the power of both allows."""
    pairs = [(time_ours(ours, count), time_torch(torch, theirs, count)) for _ in range(30)]
    return statistics.median(item[0] for item in pairs[5:]), statistics.median(item[1] for item in pairs[5:])


def bench_product(torch: Any, size: int, element: str = "bf16") -> None:
    """A square product beside torch's."""
    kind = getattr(torch, TORCH_TYPES[element])
    stored = torch.bfloat16 if element in BYTES else kind
    a, b = (torch.randn(size, size, device="cuda").to(kind) for _ in range(2))
    c = torch.full((size, size), float("nan"), device="cuda", dtype=stored)
    torch.cuda.synchronize()
    kernels = cuda.compile_program(parse(Source("product", product_text(size, size, size, element))).program)
    rows, own = TILES.get(element, HALVES)
    groups = (size // rows) * (size // (own * SUBGROUPS))
    # What is k x m with k contiguous here, torch calls m x k row by row.
    bound = kernels.bind("product", [of_torch(item) for item in (a, b, c)], groups)
    bound.launch()
    own_stream().wait()
    product = partial(torch.matmul, b, a.T)
    if element in BYTES:
        one = torch.ones((), device="cuda")
        # The sums of the tensor cores as they are, as ours: those of torch are else added up outside of them at times.
        product = partial(torch._scaled_mm, b, a.T, one, one, out_dtype=stored, use_fast_accum=True)
    want = product()
    error = ((c.float() - want.float()).norm() / want.float().norm()).item()
    flops = 2 * size**3 / 1e12
    for what, count in (
        ("in turn", 1),
        ("in a row", max(2, int((2e12 if element == "f32" else 4e13) / (2 * size**3)))),
    ):
        ours, theirs = in_turn(torch, bound.launch, product, count)
        tell(f"{element} product {size}^3, {what}", flops / ours, flops / theirs, "TFLOP/s", error)


def of_torch(tensor: Any) -> cuda.DeviceArray:
    """A tensor with its dimensions from the fastest on, as a memref has them."""
    kind = np.dtype(lamella_dtype(str(tensor.dtype)))
    strides = [step * tensor.element_size() for step in tensor.stride()]
    return cuda.DeviceArray(tensor.data_ptr(), tuple(tensor.shape)[::-1], kind, tuple(strides)[::-1], tensor)


def lamella_dtype(name: str) -> Any:
    """NumPy's type for one of torch."""
    narrow = {
        "bfloat16": ml_dtypes.bfloat16,
        "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
        "float8_e5m2": ml_dtypes.float8_e5m2,
    }
    short = name.removeprefix("torch.")
    return narrow.get(short) or np.dtype(short)


def tell(what: str, ours: float, theirs: float, unit: str, error: float) -> None:
    """One line of the table."""
    note_figure(what, ours / theirs)
    print(
        f"{what:34} {ours:9.1f} {theirs:9.1f} {unit:8} {ours / theirs:6.2f}   error {error:.1e}", flush=True
    )


ROW_GRAPHS: dict[str, tuple[str, Callable[..., Any]]] = {
    "softmax": ("nn.softmax{axes=[1]}(x)", lambda torch, x: torch.softmax(x, 1)),
    "layer norm": (
        "aten.layer_norm{normalized_shape=[C]}(x)",
        lambda torch, x: torch.nn.functional.layer_norm(x, x.shape[1:]),
    ),
    "RMS norm": (
        "aten.rms_norm{normalized_shape=[C]}(x)",
        lambda torch, x: torch.nn.functional.rms_norm(x, x.shape[1:]),
    ),
    "gelu": ("nn.gelu(x)", lambda torch, x: torch.nn.functional.gelu(x)),
    "SwiGLU": (
        "math.mul(s, z); s = nn.silu(x)",
        lambda torch, x, z: torch.nn.functional.silu(x) * z,
    ),
}


def bench_rows(torch: Any, rows: int = 16384, columns: int = 4096) -> None:
    """Kernels that read a matrix or two once and write one: bytes by second beside torch's, and a copy's."""
    x, z = (torch.randn(rows, columns, device="cuda") for _ in range(2))
    y = torch.empty_like(x)
    size = x.numel() * 4 / 1e12
    copy = 2 * size / min(time_torch(torch, lambda: y.copy_(x), 20) for _ in range(3))
    print(f"copy of {rows} x {columns} f32: {copy:.2f} TB/s")
    for name, (line, peer) in ROW_GRAPHS.items():
        given = [x, z] if ", z)" in line else [x]
        last, *before = line.replace("C", str(columns)).split("; ")
        bound = bind_rows("; ".join([*before, f"y = {last};"]), given, y)
        bound.launch()
        own_stream().wait()
        error = (y - peer(torch, *given)).abs().max().item()
        ours, theirs = in_turn(torch, bound.launch, partial(peer, torch, *given), 20)
        moved = (len(given) + 1) * size
        tell(f"{name} {rows} x {columns}", moved / ours, moved / theirs, "TB/s", error)
        note_figure(f"{name}, of a copy", moved / ours / copy)
        print(f"{'':34} {moved / ours / copy:9.2f} of a copy")


def kernels_of(text: str, precision: str = "f32") -> KernelGraph:
    """The kernels of a graph for this device."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "graph.sknd"
        path.write_text(text)
        model: Any = lamella.load(path)
    options = Options(precision=precision)
    return fit_kernels(
        to_kernels(prepare(model, options, precision != "f32"), options, {}, True, device_target())
    )


def bind_rows(lines: str, given: Sequence[Any], y: Any) -> BoundLaunch:
    """The one kernel of a graph of x, and z, and y, bound to tensors of torch."""
    shape = list(y.shape)
    inputs = " ".join(f"{name}: real{shape};" for name, _ in zip("xz", given, strict=False))
    graph = kernels_of(
        f"import nn, aten, math;\ngraph Rows {{ @input {{ {inputs} }} @output {{ y: real{shape}; }} "
        f"@compose {{ {lines} }} }}\n"
    )
    (call,) = (call for calls in graph.calls.values() for call in calls)
    (function,) = graph.program.functions
    tensors = {"x": given[0], "z": given[-1], "y": y}
    arrays = [of_torch(tensors[item.value.name[0]].reshape(-1)) for item in function.parameters]
    return cuda.compile_program(graph.program).bind(function.name, arrays, call.groups)


ATTENTIONS = (
    (2, 16, 8, 2048, 128, True),
    (2, 16, 16, 2048, 128, True),
    (4, 16, 16, 4096, 128, True),
    (1, 32, 32, 8192, 128, True),
    (4, 16, 16, 4096, 128, False),
    (8, 12, 12, 1024, 64, True),
    (8, 12, 12, 512, 64, False),
)
"""Batch, heads, heads of keys, tokens, elements of a vector, and whether later tokens are hidden."""
PUBLISHED = {
    (2048, 128, True): 521,
    (4096, 128, True): 579,
    (8192, 128, True): 602,
    (4096, 128, False): 638,
    (1024, 64, True): 265,
    (512, 64, False): 333,
}
"""TFLOP/s of FlashAttention-3 on an H100 for tokens, elements and mask: arXiv 2407.08608, read from its charts."""


def bench_attention(torch: Any, case: tuple[int, int, int, int, int, bool]) -> None:
    """Attention and its backward pass, in bf16, beside torch's: the kernels that graphs become."""
    batch, heads, shared, tokens, depth, causal = case
    half = torch.bfloat16
    q, g = (torch.randn(batch, heads, tokens, depth, device="cuda", dtype=half) for _ in range(2))
    k, v = (torch.randn(batch, shared, tokens, depth, device="cuda", dtype=half) for _ in range(2))
    given = [item.requires_grad_() for item in (q, k, v)]
    peer = partial(
        torch.nn.functional.scaled_dot_product_attention, is_causal=causal, enable_gqa=heads != shared
    )
    told = f"{{causal={str(causal).lower()}}}"
    wide, narrow = (f"[{batch},{count},{tokens},{depth}]" for count in (heads, shared))
    row = f"real[{batch},{heads},{tokens}]"
    inputs = f"q: bf16{wide}; k: bf16{narrow}; v: bf16{narrow};"
    ahead = (
        f"@input {{ {inputs} }} @output {{ y: bf16{wide}; l: {row}; }} @compose {{ {widened('qkv')} "
        f"o, l = llm.flash_attention{told}(qw, kw, vw); y = layout.cast<bf16>(o); }}"
    )
    back = (
        f"@input {{ {inputs} g: bf16{wide}; y: bf16{wide}; l: {row}; }} "
        f"@output {{ a: real{wide}; b: real{narrow}; c: real{narrow}; }} @compose {{ {widened('qkvgy')} "
        f"a, b, c = llm.flash_attention_backward{told}(gw, qw, kw, vw, yw, l); }}"
    )
    arrays = {
        name: item.detach().float().cpu().numpy() for name, item in zip("qkvg", (q, k, v, g), strict=True)
    }
    flops = 4 * batch * heads * tokens**2 * depth / (2 if causal else 1) / 1e12
    name = f"{batch}x{heads}/{shared}x{tokens}x{depth}{' causal' * causal}"
    want = peer(*given)
    made, found = bound_graph(ahead, {item: arrays[item] for item in "qkv"})
    arrays |= found
    error = distance(torch, found["y"], want)
    ours, theirs = in_turn(torch, made, partial(peer, q, k, v), max(1, int(1 / flops)))
    tell(f"attention {name}", flops / ours, flops / theirs, "TFLOP/s", error)
    note_figure(f"attention {name}, of what is published", flops / ours / PUBLISHED[tokens, depth, causal])
    gradients = torch.autograd.grad(want, given, g, retain_graph=True)
    made, found = bound_graph(back, arrays)
    error = max(
        distance(torch, *pair) for pair in zip((found[item] for item in "abc"), gradients, strict=True)
    )
    grad = partial(torch.autograd.grad, want, given, g, retain_graph=True)
    ours, theirs = in_turn(torch, made, grad, max(1, int(0.4 / flops)))
    tell(f"back {name}", 2.5 * flops / ours, 2.5 * flops / theirs, "TFLOP/s", error)


def widened(names: str) -> str:
    """Casts of tensors to reals: what lies in memory is narrow, as a step of training has it."""
    return " ".join(f"{name}w = layout.cast<real>({name});" for name in names)


def distance(torch: Any, found: Any, want: Any) -> float:
    """How far an array is from a tensor, in parts of it."""
    other = torch.from_numpy(np.asarray(found)).cuda()
    return float(((other - want.float()).norm() / want.float().norm()).item())


def bound_graph(text: str, given: dict[str, Any]) -> tuple[Callable[[], None], dict[str, Any]]:
    """A graph in bf16 with inputs that lie on the device: what launches all its kernels but those that round inputs."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "graph.sknd"
        path.write_text(f"import llm, layout;\ngraph Attention {{ {text} }}\n")
        run: Any = lamella.compile(path, backend="cuda", precision="bf16")
    found = run(**given)
    each = run.whole_segment().each
    numbers = [
        place for place, item in enumerate(each.whole.launches) if "layout_cast" not in str(item.kernel)
    ]
    graph = LaunchGraph(own_stream(), partial(each.record_some, numbers))

    def launch(kept: Any = run) -> None:
        """The executable holds the memory that the kernels work on."""
        graph.launch()

    return launch, found


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("products", "rows", "attention"))
    chosen = parser.parse_args()
    require_gpu()
    torch: Any = import_module("torch")
    here = device()
    print(f"{here.name}, {here.multiprocessors} multiprocessors, torch {torch.__version__}")
    print(f"{'':34} {'ours':>9} {'torch':>9} {'':8} {'ratio':>6}")
    if chosen.only in (None, "products"):
        for size in (2048, 4096, 8192):
            bench_product(torch, size)
        bench_product(torch, 4096, "f16")
        for element in ("f8e4m3", "f32"):
            for size in (4096, 8192):
                bench_product(torch, size, element)
    if chosen.only in (None, "rows"):
        bench_rows(torch)
    if chosen.only in (None, "attention"):
        for case in ATTENTIONS:
            bench_attention(torch, case)


if __name__ == "__main__":
    main()
