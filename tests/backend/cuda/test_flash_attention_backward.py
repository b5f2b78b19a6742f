"""The backward pass of flash attention for Hopper: the interpreter runs its text, a formula in 64 bits judges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.run.proof import LaunchFacts, prove
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import find_target
from lamella.lang.tensor.extensions import lower_extensions
from lamella.lang.tensor.nodes import Memref
from tests.backend.cuda.test_cuda_text import assemble_on
from tests.backend.cuda.test_tensor_core_gemm import plan, write_graph

DEPTH = 64
Case = tuple[int, int, int, int, bool]
"""Batch, heads, heads of keys, tokens, and whether later keys are hidden."""


def graph_of(folder: Path, case: Case, depth: int = DEPTH, back: bool = True) -> Path:
    """A graph of one attention, or of the way back through it."""
    batch, heads, shared, tokens, causal = case
    told = f"{{causal={str(causal).lower()}}}"
    wide, narrow = f"real[{batch},{heads},{tokens},{depth}]", f"real[{batch},{shared},{tokens},{depth}]"
    row = f"real[{batch},{heads},{tokens}]"
    shapes, lines = (
        f"@input {{ q: {wide}; k: {narrow}; v: {narrow}; }} @output {{ y: {wide}; l: {row}; }}",
        f"y, l = llm.flash_attention{told}(q, k, v);",
    )
    if back:
        shapes, lines = (
            f"@input {{ q: {wide}; k: {narrow}; v: {narrow}; g: {wide}; y: {wide}; l: {row}; }} "
            f"@output {{ a: {wide}; b: {narrow}; c: {narrow}; }}",
            f"a, b, c = llm.flash_attention_backward{told}(g, q, k, v, y, l);",
        )
    path = write_graph(folder, shapes, lines)
    path.write_text(path.read_text().replace("import nn,", "import llm, nn,"))
    return path


def draw(case: Case, depth: int = DEPTH) -> dict[str, Array]:
    """Queries, keys, values, and what comes back; keys of one size, so that no weight is all."""
    batch, heads, shared, tokens, _ = case
    random = np.random.default_rng(5)
    counts = {"q": heads, "k": shared, "v": shared, "g": heads}
    return {
        name: random.standard_normal((batch, count, tokens, depth)).astype(np.float32)
        for name, count in counts.items()
    }


def attend(given: dict[str, Array], causal: bool) -> dict[str, Array]:
    """The same by its formulas."""
    q, k, v, g = (given[name].astype(np.float64) for name in "qkvg")
    share = q.shape[1] // k.shape[1]
    wide_k, wide_v = (np.repeat(item, share, 1) for item in (k, v))
    factor = 1 / np.sqrt(q.shape[3])
    scores = q @ wide_k.swapaxes(2, 3) * factor
    if causal:
        scores = np.where(np.tri(*scores.shape[2:]) > 0, scores, -np.inf)
    logs = np.log(np.exp(scores - scores.max(3, keepdims=True)).sum(3)) + scores.max(3)
    weights = np.exp(scores - logs[..., None])
    y = weights @ wide_v
    steep = weights * (g @ wide_v.swapaxes(2, 3) - (g * y).sum(3, keepdims=True)) * factor

    def shared(item: Array) -> Array:
        found: Array = item.reshape(*k.shape[:2], share, *k.shape[2:]).sum(2)
        return found

    return {
        "y": y,
        "l": logs,
        "a": steep @ wide_k,
        "b": shared(steep.swapaxes(2, 3) @ q),
        "c": shared(weights.swapaxes(2, 3) @ g),
    }


def compare(found: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    """Numbers are near each other: factors are rounded to 8 bits."""
    for name, array in found.items():
        far = np.linalg.norm(array - want[name]) / np.linalg.norm(want[name])
        assert far < 6e-3, (name, far)


def given_back(given: Mapping[str, Array], want: Mapping[str, Array]) -> dict[str, Array]:
    """What the way back reads."""
    return {**given, "y": want["y"].astype(np.float32), "l": want["l"].astype(np.float32)}


@pytest.mark.parametrize("case", [(1, 2, 1, 256, True), (1, 1, 1, 128, False)])
def test_scores_are_made_again(case: Case, tmp_path: Path) -> None:
    made = plan(graph_of(tmp_path, case))
    run = compile_graph(made, interpreter.compile_program(made.program).call)
    given = draw(case)
    want = attend(given, case[-1])
    compare(run(**given_back(given, want)), want)


def test_the_logarithms_of_sums_are_stored(tmp_path: Path) -> None:
    case = (1, 1, 1, 256, True)
    made = plan(graph_of(tmp_path, case, back=False))
    assert len([item for item in made.program.functions if "CoopMulAdd" in repr(item)]) == 1
    run = compile_graph(made, interpreter.compile_program(made.program).call)
    given = {name: array for name, array in draw(case).items() if name != "g"}
    compare(run(**given), attend(draw(case), True))


@pytest.mark.parametrize(("case", "depth"), [((4, 16, 8, 512, True), 128), ((2, 2, 2, 384, False), 64)])
def test_they_are_proved_and_kernels_of_warpgroups(case: Case, depth: int, tmp_path: Path) -> None:
    made = plan(graph_of(tmp_path, case, depth))
    calls = {call.kernel: call.groups for calls in made.calls.values() for call in calls}
    found = [item for item in made.program.functions if "CoopMulAdd" in repr(item)]
    assert len(found) == 2
    for function in found:
        types = {item.value.name: item.type for item in function.parameters if isinstance(item.type, Memref)}
        known = LaunchFacts(
            {name: item.shape for name, item in types.items()},
            {},
            {name: item.stride for name, item in types.items()},
        )
        groups = calls[function.name]
        assert prove(lower_extensions(function), known, None, groups, default_sizes(function)).is_complete
    compiled = emit(made.program, find_target("sm_90a"))
    entries = [item.pipeline for item in compiled.entries if item.pipeline is not None]
    assert [item.threads for item in entries] == [384] * 2
    # Tiles of 64 lines that stream by, and of 128 that stay.
    assert {item.columns for item in entries[-1].maps} == {64, 128}
    # What a causal mask takes of the registers of vectors of 128 elements is spilled, in one of the kernels.
    assert assemble_on("sm_90a", compiled.text, tmp_path) <= (160 if depth == 128 else 0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("case", "depth"),
    [((1, 2, 1, 256, True), 64), ((2, 16, 8, 1024, True), 128), ((2, 4, 4, 384, False), 128)],
)
def test_a_device_computes_the_same(case: Case, depth: int, tmp_path: Path) -> None:
    given = draw(case, depth)
    want = attend(given, case[-1])
    ahead = lamella.compile(graph_of(tmp_path, case, depth, back=False), backend="cuda", precision="bf16")
    compare(ahead(**{name: given[name] for name in "qkv"}), want)
    back = lamella.compile(graph_of(tmp_path, case, depth), backend="cuda", precision="bf16")
    compare(back(**given_back(given, want)), want)
