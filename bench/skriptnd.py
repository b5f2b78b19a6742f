"""Measure SkriptND: parser, composition, and the reference backend beside torch and NumPy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from lark import Lark
from numpy.typing import NDArray

from bench.measuring import ROUNDS, beside, best, row
from bench.torch_models import alexnet, resnet18
from lamella.backend.reference import compile_model
from lamella.base.source import Source
from lamella.graph.compose import compose
from lamella.graph.model import Model
from lamella.graph.nodes import Graph
from lamella.lang.skriptnd import parse
from lamella.ops.library import Library
from lamella.pipeline.backends.kernels import compile_open
from lamella.pipeline.options import Options

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
Floats = NDArray[np.float32]
STEPS = (
    "nn.conv{padding=1}(%s, w)",
    "nn.relu(%s)",
    "math.add(%s, x)",
    "nn.max_pool{size=3, stride=1, padding=1}(%s)",
    "nn.batch_norm(%s, b, b)",
)
RUN = """
import json, resource, sys, time
from lamella import compile
executable = compile(sys.argv[1], random=True)
times = []
for _ in range(int(sys.argv[2])):
    start = time.process_time()
    executable()
    times.append(time.process_time() - start)
print(json.dumps([min(times), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""
"""A run in a process of its own, whose peak memory is that of the run alone."""


def long_graph(operations: int) -> str:
    """A chain of convolutions, sums and pools."""
    lines = [f"        t{k + 1} = {STEPS[k % len(STEPS)] % f't{k}'};" for k in range(operations - 1)]
    return "\n".join(
        [
            "import nn, math;",
            "graph G {",
            "    @input { x: real[1, 4, 8, 8]; }",
            "    @variable { w: real[4, 4, 3, 3]; b: real[4]; }",
            "    @output { y: real[1, 4, 8, 8]; }",
            "    @compose {",
            "        t0 = nn.relu(x);",
            *lines,
            f"        y = math.iden(t{operations - 1});",
            "    }",
            "}",
            "",
        ]
    )


def compose_text(source: Source | Path) -> tuple[Graph, Library]:
    """The graph of a text, with the operators it calls."""
    library = Library()
    composed = compose(library.load(source))
    if composed.graph is None:
        raise SystemExit("\n".join(map(str, composed.findings)))
    return composed.graph, library


def measure_parser() -> None:
    """The hand-written parser beside Lark on the same grammar and text."""
    files = sorted((ROOT / "src" / "lamella" / "ops").glob("*.sknd"))
    text = "".join(path.read_text(encoding="utf-8") for path in files if path.stem not in ("algo", "layer"))
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("import "))
    text += text[: text.rindex("\noperator ", 0, 150_000 - len(text)) + 1] if len(text) < 150_000 else ""
    grammar = (ROOT / "src" / "lamella" / "lang" / "skriptnd" / "grammar.lark").read_text(encoding="utf-8")
    peer = Lark(grammar, parser="lalr", start="start", propagate_positions=True)
    source = Source("library.sknd", text)
    ours, theirs = best(lambda: parse(source)), best(lambda: peer.parse(text))
    row(f"parse {len(text) // 1000} KB of operators", f"{ours * 1000:.0f} ms", beside(ours, theirs, "Lark"))


def measure_composition() -> None:
    """The first example of the specification, and long graphs, whose time must grow with their length."""
    seconds = best(lambda: compose_text(EXAMPLES / "alexnet"))
    row("parse and compose AlexNet", f"{seconds:.3f} s CPU", "target 0.3 s CPU")
    for operations, target in ((1000, ""), (2000, ""), (5000, "target 5 s; ")):
        source = Source("long.sknd", long_graph(operations))
        seconds = best(partial(compose_text, source))
        each = f"{target}{seconds / operations * 1e6:.0f} µs an operation"
        row(f"parse and compose {operations:,} operations", f"{seconds:.2f} s CPU", each)


def measure_networks() -> None:
    """Whole networks on the reference backend beside torch in eager mode, one image, one thread."""
    x = torch.randn(1, 3, 224, 224)
    for name, peer, targets in (
        ("resnet18", resnet18(), "; targets 3 s and 1.5 GB"),
        ("alexnet", alexnet(), ""),
    ):
        command = [sys.executable, "-c", RUN, str(EXAMPLES / name), str(ROUNDS)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        ours, peak = json.loads(done.stdout)
        with torch.inference_mode():
            theirs = best(partial(peer, x))
        told = f"{beside(ours, theirs, 'torch')}{targets}"
        row(f"run {name} at 224 x 224", f"{ours:.2f} s {peak / 1e9:.2f} GB", told)


def single(call: str, *shapes: tuple[int, ...]) -> Model:
    """A graph with one operation on inputs that are called x0, x1 and so on."""
    inputs = " ".join(f"x{k}: real{list(shape)};" for k, shape in enumerate(shapes))
    output = ", ".join("~" * len(shapes[0]))
    text = (
        f"import nn, linalg;\ngraph G {{\n    @input {{ {inputs} }}\n    @output {{ y: real[{output}]; }}\n"
        f"    @compose {{ y = {call}; }}\n}}\n"
    )
    graph, library = compose_text(Source("single.sknd", text))
    return Model(graph, library)


def measure_operators() -> None:
    """Single operators beside torch, beside NumPy where it has them, and by their kernels beside the reference."""
    draw = np.random.default_rng(0)
    for what, call, shapes, peer, numpy in OPERATORS:
        arrays = [draw.standard_normal(shape).astype(np.float32) for shape in shapes]
        model = single(call, *shapes)
        executable, kernels = compile_model(model), compile_open(model, "cpu", Options(threads=1))
        given = {f"x{k}": array for k, array in enumerate(arrays)}
        tensors = [torch.from_numpy(array) for array in arrays]
        ours = best(partial(executable, **given))
        with torch.inference_mode():
            theirs = best(partial(peer, *tensors))
        told = beside(ours, theirs, "torch")
        if numpy is not None:
            told += "; " + beside(ours, best(partial(numpy, *arrays)), "NumPy")
        row(what, f"{ours * 1000:.1f} ms", told)
        fast = best(partial(kernels, **given))
        told = f"{beside(fast, theirs, 'torch')}; {beside(fast, ours, 'reference')}"
        row("  by kernels on cpu", f"{fast * 1000:.1f} ms", told)


def _softmax(x: Floats) -> Floats:
    exponential = np.exp(x - x.max(1, keepdims=True))
    found: Floats = exponential / exponential.sum(1, keepdims=True)
    return found


OPERATORS: tuple[
    tuple[
        str,
        str,
        tuple[tuple[int, ...], ...],
        Callable[..., torch.Tensor],
        Callable[..., Floats] | None,
    ],
    ...,
] = (
    (
        "nn.conv 64 x 56 x 56, 64 filters 3 x 3",
        "nn.conv{padding=1}(x0, x1)",
        ((1, 64, 56, 56), (64, 64, 3, 3)),
        lambda x, w: torch.nn.functional.conv2d(x, w, padding=1),
        None,
    ),
    (
        "nn.deconv 64 x 56 x 56, 64 filters 4 x 4 / 2",
        "nn.deconv{stride=2, padding=1}(x0, x1)",
        ((1, 64, 56, 56), (64, 64, 4, 4)),
        lambda x, w: torch.nn.functional.conv_transpose2d(x, w, stride=2, padding=1),
        None,
    ),
    (
        "linalg.matmul 512 x 512 x 512",
        "linalg.matmul(x0, x1)",
        ((512, 512), (512, 512)),
        torch.matmul,
        np.matmul,
    ),
    (
        "nn.softmax 256 x 1000",
        "nn.softmax(x0)",
        ((256, 1000),),
        lambda x: torch.softmax(x, 1),
        _softmax,
    ),
    (
        "nn.max_pool 64 x 112 x 112, 3 x 3 stride 2",
        "nn.max_pool{size=3, stride=2, padding=1}(x0)",
        ((1, 64, 112, 112),),
        lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1),
        None,
    ),
)


def measure() -> None:
    """Everything about SkriptND."""
    torch.set_num_threads(1)
    for part in (measure_parser, measure_composition, measure_networks, measure_operators):
        part()
