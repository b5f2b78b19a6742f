"""Fused groups beyond products, rows and attention on an NVIDIA GPU, beside torch on the same device, in one process.

`python -m bench.cuda_groups experts` runs a layer of a mixture of experts: routing, both products, what they give added
up, with as many tokens as a prompt has and with one. torch sorts the tokens and multiplies by `torch._grouped_mm`, as a
CUDA graph. `pages` is the attention of one token of some sequences to keys in pages: torch puts the pages in a row and
attends to them, or finds keys in a row already. `--launches N` tells the kernels that take longest.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import ml_dtypes
import numpy as np

import lamella
from bench.cuda import distance, time_ours, time_torch
from bench.cuda_models import tell_kernels
from bench.measuring import require_gpu
from lamella.backend.cuda.lists import CudaList

RUNS = 20
EXPERTS = {
    "qwen3-30b-a3b": (2048, 768, 128, 8),
    "mixtral-8x7b / 4": (4096, 3584, 8, 2),
}
"""Width, hidden width, experts and how many work on a token."""
TOKENS = (2048, 128, 1)


def compile_text(text: str, precision: Literal["f32", "bf16"] = "bf16") -> Any:
    """An executable of a graph."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "group.sknd"
        path.write_text(text)
        return lamella.compile(path, backend="cuda", precision=precision)


def device_seconds(run: Any) -> float:
    """The time of all launches of a call."""
    each = run.whole_segment().each
    return statistics.median(time_ours(each.replay) for _ in range(RUNS))


def torch_seconds(torch: Any, work: Callable[[], object]) -> float:
    """The time of a CUDA graph of what torch does."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return statistics.median(time_torch(torch, graph.replay) for _ in range(RUNS))


def tell(name: str, run: Any, found: tuple[float, float], ours: float, theirs: float, launches: int) -> None:
    """A line, and the kernels that take longest."""
    print(
        f"{name:42} ours {ours * 1e6:9.1f} us, torch {theirs * 1e6:9.1f} us, ratio {ours / theirs:5.2f}; "
        f"errors {found[0]:.1e} and {found[1]:.1e}",
        flush=True,
    )
    each = run.whole_segment().each
    if isinstance(each, CudaList):
        tell_kernels(each, launches)


# --- mixtures of experts -----------------------------------------------------------------------------------------


def experts_text(tokens: int, width: int, hidden: int, experts: int, chosen: int) -> str:
    """A layer of a mixture of experts."""
    return f"""import moe, layout, llm;
graph Layer {{
    @input {{ x: real[{tokens}, {width}]; }}
    @variable {{
        r: real[{experts}, {width}];
        u: real[{experts}, {2 * hidden}, {width}];
        d: real[{experts}, {width}, {hidden}];
    }}
    @output {{ y: real[{tokens}, {width}]; }}
    @compose {{
        shares, indices, loss = moe.router{{top_k={chosen}}}(x, r);
        offsets = moe.compute_offsets{{num_experts={experts}}}(indices);
        permuted, slots = moe.permute(x, indices, offsets);
        raised = moe.grouped_gemm{{transpose="NT"}}(permuted, u, offsets);
        [gate, up] = layout.split{{axis=1, count=2}}(raised);
        hidden = llm.swiglu(gate, up);
        lowered = moe.grouped_gemm{{transpose="NT"}}(hidden, d, offsets);
        y = moe.unpermute(lowered, shares, slots);
    }}
}}
"""


def torch_experts(torch: Any, weights: dict[str, Any], chosen: int, x: Any) -> Any:
    """The same by torch, in the type of its weights."""
    functional = torch.nn.functional
    shares, indices = (x @ weights["r"].T).float().softmax(-1).topk(chosen, -1)
    shares = (shares / shares.sum(-1, keepdim=True)).to(x.dtype)
    order = indices.flatten().argsort(stable=True)
    bounds = torch.arange(len(weights["u"]), device=x.device)
    ends = torch.searchsorted(indices.flatten()[order].contiguous(), bounds, right=True).to(torch.int32)
    rows = x[order // chosen]
    gate, up = torch._grouped_mm(rows, weights["u"].transpose(1, 2), offs=ends).chunk(2, -1)
    lowered = torch._grouped_mm(functional.silu(gate) * up, weights["d"].transpose(1, 2), offs=ends)
    back = torch.empty_like(lowered)
    back[order] = lowered
    return (back.view(len(x), chosen, -1) * shares[..., None]).sum(1)


def bench_experts(torch: Any, name: str, launches: int) -> None:
    """A layer with the tokens of a prompt, and with one."""
    width, hidden, experts, chosen = EXPERTS[name]
    torch.manual_seed(3)
    shapes = {"r": (experts, width), "u": (experts, 2 * hidden, width), "d": (experts, width, hidden)}
    weights = {key: torch.randn(shape, device="cuda") * shape[-1] ** -0.5 for key, shape in shapes.items()}
    arrays = {key: item.cpu().numpy() for key, item in weights.items()}
    halves = {key: item.bfloat16() for key, item in weights.items()}
    wide = {key: item.float() for key, item in halves.items()}
    weights.clear()
    for tokens in TOKENS:
        x = torch.randn(tokens, width, device="cuda").bfloat16()
        want = plain_experts(torch, wide, chosen, x.float())
        begin = time.perf_counter()
        run = compile_text(experts_text(tokens, width, hidden, experts, chosen))
        for key, item in arrays.items():
            run.state[key] = item
        found = run(x=x.float().cpu().numpy())["y"]
        print(f"    compiled and run after {time.perf_counter() - begin:.1f} s", flush=True)
        short = torch_experts(torch, halves, chosen, x)
        errors = distance(torch, found, want), distance(torch, short.float().cpu().numpy(), want)
        ours = device_seconds(run)
        theirs = torch_seconds(torch, partial(torch_experts, torch, halves, chosen, x))
        tell(f"experts {name}, {tokens} tokens", run, errors, ours, theirs, launches)
        del run


def plain_experts(torch: Any, weights: dict[str, Any], chosen: int, x: Any) -> Any:
    """The same expert by expert, in f32."""
    shares, indices = (x @ weights["r"].T).softmax(-1).topk(chosen, -1)
    shares = shares / shares.sum(-1, keepdim=True)
    y = torch.zeros_like(x)
    for expert in range(len(weights["u"])):
        tokens, slots = torch.nonzero(indices == expert, as_tuple=True)
        gate, up = (x[tokens] @ weights["u"][expert].T).chunk(2, -1)
        part = (torch.nn.functional.silu(gate) * up) @ weights["d"][expert].T
        y.index_add_(0, tokens, part * shares[tokens, slots, None])
    return y


# --- pages -------------------------------------------------------------------------------------------------------


PAGES = ((8, 32, 8, 4096), (1, 32, 8, 32768), (64, 16, 8, 1024))
"""Sequences, heads, heads of keys, and keys of each sequence; pages of 16 keys, vectors of 128 halves."""
PAGE, DEPTH = 16, 128


def pages_text(batch: int, heads: int, shared: int, keys: int) -> str:
    """Attention of a token of each sequence."""
    cache = f"bf16[{batch * keys // PAGE}, {PAGE}, {shared}, {DEPTH}]"
    return f"""import llm;
graph Pages {{
    @input {{ q: real[{batch}, {heads}, 1, {DEPTH}]; table: int[{batch}, {keys // PAGE}]; lengths: int[{batch}]; }}
    @variable {{ keys: {cache}; values: {cache}; }}
    @output {{ y: real[{batch}, {heads}, 1, {DEPTH}]; }}
    @compose {{ y = llm.paged_attention(q, keys, values, table, lengths); }}
}}
"""


def bench_pages(torch: Any, case: tuple[int, int, int, int], launches: int) -> None:
    """A token of each sequence, all of one length."""
    batch, heads, shared, keys = case
    half = torch.bfloat16
    count = batch * keys // PAGE
    cache = [torch.randn(count, PAGE, shared, DEPTH, device="cuda", dtype=half) for _ in range(2)]
    table = torch.randperm(count, device="cuda").view(batch, -1)
    q = torch.randn(batch, heads, 1, DEPTH, device="cuda", dtype=half)
    attend = torch.nn.functional.scaled_dot_product_attention

    def gathered(wide: bool = False) -> list[Any]:
        rows = [item[table].reshape(batch, keys, shared, DEPTH).transpose(1, 2) for item in cache]
        return [item.float() for item in rows] if wide else rows

    run = compile_text(pages_text(*case))
    run.state["keys"], run.state["values"] = (
        item.view(torch.int16).cpu().numpy().view(ml_dtypes.bfloat16) for item in cache
    )
    lengths = np.full(batch, keys)
    found = run(q=q.float().cpu().numpy(), table=table.cpu().numpy(), lengths=lengths)["y"]
    want = attend(q.float(), *gathered(True), enable_gqa=True)
    row = [item.contiguous() for item in gathered()]
    short = attend(q, *row, enable_gqa=True)
    errors = distance(torch, found, want), distance(torch, short.float().cpu().numpy(), want)
    ours = device_seconds(run)
    whole = torch_seconds(torch, lambda: attend(q, *gathered(), enable_gqa=True))
    plain = torch_seconds(torch, lambda: attend(q, *row, enable_gqa=True))
    size = 2 * batch * keys * shared * DEPTH * 2
    print(f"    {size / ours / 1e12:.2f} TB/s; torch with keys in a row {plain * 1e6:.1f} us")
    tell(f"pages {batch} x {heads}/{shared} x {keys}", run, errors, ours, whole, launches)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="+", choices=["experts", "pages"])
    parser.add_argument("--launches", type=int, default=0)
    chosen = parser.parse_args()
    require_gpu()
    torch: Any = import_module("torch")
    if "experts" in chosen.groups:
        for name in EXPERTS:
            bench_experts(torch, name, chosen.launches)
    if "pages" in chosen.groups:
        for case in PAGES:
            bench_pages(torch, case, chosen.launches)


if __name__ == "__main__":
    main()
