"""States on a GPU: launches update them where they lie, and who asks for them gets what they are."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

import lamella
from lamella.backend.cuda.arrays import DeviceMemory
from lamella.backend.cuda.copies import DeviceCopies
from lamella.backend.executor import GraphExecutable
from lamella.base.diagnostic import LamellaError
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer
from tests.support.gpu.driver import emulated_device

CACHE = """
import math, llm, layout;
graph Sums {
    @input { x: real[4, 8]; }
    @variable { total: real[4, 8]; }
    @output { y: real[4, 8]; }
    @compose { y = math.add(total, x); }
    @update { total = y; }
}
"""


@pytest.mark.gpu
def test_states_go_on(tmp_path: Path) -> None:
    path = tmp_path / "sums.sknd"
    path.write_text(CACHE)
    found, want = (cast(GraphExecutable, lamella.compile(path, backend=item)) for item in ("cuda", "cpu"))
    random = np.random.default_rng(3)
    for step in range(6):
        x = random.standard_normal((4, 8)).astype(np.float32)
        np.testing.assert_array_equal(found(x=x)["y"], want(x=x)["y"])
        if step == 2:
            np.testing.assert_array_equal(found.state["total"], want.state["total"])
        if step == 3:
            for item in (found, want):
                item.state["total"] = np.ones((4, 8), np.float32)
    np.testing.assert_array_equal(found.state["total"], want.state["total"])


def test_states_that_could_not_be_copied_are_still_on_the_device(tmp_path: Path) -> None:
    """An emulated GPU judges: where the copy to the host never arrives, the device keeps what launches wrote."""
    path = tmp_path / "sums.sknd"
    # Of an output the host has a copy anyway.
    steps = "n = math.add(total, x); y = math.neg(n);"
    path.write_text(
        CACHE.replace("y = math.add(total, x);", steps).replace("total = y", "total = n"), encoding="utf-8"
    )
    x = np.ones((4, 8), np.float32)
    with emulated_device() as device:
        found = cast(GraphExecutable, lamella.compile(path, backend="cuda"))
        found.state["total"] = np.zeros((4, 8), np.float32)
        for _ in range(2):
            found(x=x)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeviceMemory, "read", lambda *_: None)
            patch.setitem(device.failures, "cuStreamSynchronize", 2)
            with pytest.raises(LamellaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
                np.array(found.state["total"])
        np.testing.assert_array_equal(found(x=x)["y"], -3 * x)
        np.testing.assert_array_equal(found.state["total"], 3 * x)


LAYERS = 8
CHAIN = (
    "".join(
        f"n{step} = aten.layer_norm{{{{normalized_shape=[256]}}}}(h{step}); l{step} = nn.linear(n{step}, w);"
        f" h{step + 1} = nn.gelu(l{step});"
        for step in range(LAYERS)
    )
    .replace("{{", "{")
    .replace("}}", "}")
)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 96])
def test_a_chain_of_kernels_gives_the_same_every_time(rows: int, tmp_path: Path) -> None:
    """Kernels start while others end, and arrays share memory: no call may see what an earlier kernel left."""
    path = tmp_path / "chain.sknd"
    shapes = f"@input {{ x: real[{rows},256]; }} @variable {{ w: real[256,256]; }} @output {{ y: real[{rows},256]; }}"
    lines = CHAIN.replace("(h0)", "(x)").replace(f"h{LAYERS} =", "y =")
    path.write_text(f"import nn, aten;\ngraph Chain {{ {shapes} @compose {{ {lines} }} }}\n")
    x = np.random.default_rng(4).standard_normal((rows, 256)).astype(np.float32)
    want = lamella.compile(path, backend="cpu")(x=x)["y"]
    found = lamella.compile(path, backend="cuda")
    for _ in range(8):
        np.testing.assert_allclose(found(x=x)["y"], want, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
def test_copies_know_who_is_newer() -> None:
    copies, array = DeviceCopies(), np.arange(6, dtype=np.float32)
    memory = copies.memory(array)
    assert copies.memory(array) is memory
    assert copies.newer(array) is None
    copies.change(array)
    assert copies.newer(array) is memory
    array[0] = 7.0
    copies.settle()
    assert array[0] == 0.0
    assert copies.newer(array) is None
    array[0] = 5.0
    copies.memory(array)
    copies.change(array)
    array[0] = 1.0
    copies.settle()
    assert array[0] == 5.0


NET = """
model Net(width: int = 32, classes: int = 5):
  params:
    table: [7, width]
    inner: [width, width]
    head: [classes, width]

  forward:
    in: ids: [B, int64]
    out: logits: [B, classes]
    graph:
      (ids, table) -> embedding() -> x
      (x, inner) -> matmul(transpose=NT) -> h
      h -> silu() -> a
      (a, head) -> matmul(transpose=NT) -> logits
"""


@pytest.mark.gpu
def test_steps_of_training(tmp_path: Path) -> None:
    path = tmp_path / "net.module"
    path.write_text(NET)
    found, want = (Trainer(path, StepSettings(), item, Options(seed=1)) for item in ("cuda", "cpu"))
    random = np.random.default_rng(5)
    for step in range(6):
        batch = {"ids": random.integers(0, 7, 8), "targets": random.integers(0, 5, 8)}
        one, other = found.step(batch, 0.05), want.step(batch, 0.05)
        np.testing.assert_allclose(one.loss, other.loss, rtol=1e-4)
        if step in (2, 5):
            for name, array in want.parameters.items():
                np.testing.assert_allclose(found.parameters[name], array, rtol=1e-3, atol=1e-5)
