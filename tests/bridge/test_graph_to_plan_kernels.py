"""Operations on the VPU in little L1: kernels that compute rows apart are divided, and every byte stays as it was."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import F16, F32
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.pipeline.nem.lowering import from_graph, simulated, tolerance_of
from lamella.pipeline.nem.stages import executable
from lamella.pipeline.options import Options
from tests.support.plan.drawn import device
from tests.support.plan.selection import Drawing, assert_close

ELEMENTS = ("math.sin", "math.cos")
IN_PLACE = "in place, too large for L1"


def drawn_model(chance: random.Random) -> Model:
    """A chain of operations without opcodes: elements, sums along an axis, both on tensors of up to four axes."""
    drawing = Drawing(chance.randrange(1000))
    shape = tuple(chance.randint(2, 12) for _ in range(chance.randint(1, 4)))
    if len(shape) < 3:
        shape = (*shape[:-1], shape[-1] * chance.choice((29, 30)))
    x = drawing.builder.input("x", F32, shape)
    for _ in range(chance.randint(1, 3)):
        if chance.random() < 0.4:
            x = drawing.call("math.cumsum", x, axis=chance.randrange(len(shape)))
        x = drawing.call(chance.choice(ELEMENTS), x)
    return drawing.finish(x)


def target(seed: int, l1: int, path: Path) -> Path:
    text = device(np.random.default_rng(seed)).rpartition("\n")[0]
    text = re.sub(r"l1_size_bytes = \d+", f"l1_size_bytes = {l1}", text)
    text = re.sub(r"l2_size_bytes = \d+", f"l2_size_bytes = {16 * l1}", text)
    path.write_text(text + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("seed", range(5))
def test_kernels_are_divided_and_keep_every_byte(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    model = drawn_model(chance)
    inputs = compile_model(model, seed=0).draw_inputs()
    wanted = compile_model(model, seed=0)(**inputs)
    for l1 in (16384, 4096):
        path = target(seed, l1, tmp_path / f"drawn{l1}.nem")
        options = Options(device=str(path), seed=0)
        lowered = from_graph(model, path, options)
        selected, tiled = (
            executable(stage.program, stage.numbers, model.graph, options)(**inputs)
            for stage in lowered.stages
        )
        for name, array in wanted.items():
            np.testing.assert_array_equal(tiled[name], selected[name])
            np.testing.assert_allclose(selected[name], array, atol=8 * tolerance_of(lowered))


def test_an_element_wise_kernel_never_works_where_it_lies(tmp_path: Path) -> None:
    """Of 100 000 elements in a prime number of rows, a few thousand are in L1 at once."""
    drawing = Drawing(0)
    x = drawing.builder.input("x", F32, (1, 101, 33, 30))
    model = drawing.finish(drawing.call("math.sin", x))
    path = target(0, 8192, tmp_path / "small.nem")
    lowered = from_graph(model, path, Options(device=str(path), seed=0))
    text = lowered.stages[-1].program.source.text
    assert IN_PLACE not in text
    assert re.search(r"compute.*tiles of", text)


def test_what_sums_up_all_rows_works_where_it_lies_and_says_so(tmp_path: Path) -> None:
    drawing = Drawing(0)
    x = drawing.builder.input("x", F32, (200, 40))
    model = drawing.finish(drawing.call("math.cumsum", x, axis=0))
    path = target(0, 8192, tmp_path / "small.nem")
    lowered = from_graph(model, path, Options(device=str(path), seed=0))
    assert f"{IN_PLACE}: its kernel does not compute rows apart" in lowered.stages[-1].program.source.text


def test_scratch_of_a_kernel_stays_on_the_chip(tmp_path: Path) -> None:
    """Sums of two transposed convolutions whose filters the run tells, in f32: nobody reads them, and L2 holds one."""
    drawing = Drawing(0)
    x = drawing.builder.input("x", F16, (1, 4, 20, 20))
    for number in range(2):
        filters = drawing.builder.input(f"w{number}", F16, (4, 4, 3, 3))
        x = drawing.call("nn.deconv", x, filters, None, padding=[1, 1, 1, 1])
    model = drawing.finish(x)
    lowered = assert_close(model, str(target(0, 1024, tmp_path / "small.nem")), tiled=True)
    report = simulated(lowered)
    assert report is not None
    assert report.network is not None
    assert report.moved("DDR") == 2 * (2 * 1600 + 2 * 144) == report.network.compulsory
    assert report.cycles >= report.network.largest.cycles


def test_a_kernel_that_l2_cannot_hold_is_refused_at_once(tmp_path: Path) -> None:
    drawing = Drawing(0)
    x = drawing.builder.input("x", F32, (200, 40))
    model = drawing.finish(drawing.call("math.cumsum", x, axis=0))
    path = target(0, 1024, tmp_path / "small.nem")
    with pytest.raises(LamellaError) as caught:
        from_graph(model, path, Options(device=str(path), seed=0))
    (finding,) = caught.value.findings
    assert finding.code == "NEM201"
    words = r"needs 64000 bytes of L2 at once; the device has 16384: do_\S+ needs \S+ \(32000 bytes\), .* its kernel"
    assert re.search(words, finding.message)
    assert "math.cumsum" in str(finding.origins)


def test_what_only_shapes_decide_is_known_before_the_run() -> None:
    """Where top-k begins, nothing but the extents of its operand tell."""
    drawing = Drawing(0)
    x = drawing.builder.input("x", F32, (2, 9))
    values, places = drawing.call_all("aten.topk", x, k=3, dim=1, largest=True)
    assert isinstance(values, Tensor)
    assert isinstance(places, Tensor)
    # Numbers that f16 holds, no two of them the same.
    numbers = np.random.default_rng(0).permutation(18).reshape(2, 9).astype(np.float32)
    assert_close(drawing.finish(values, places), inputs={"x": numbers})
