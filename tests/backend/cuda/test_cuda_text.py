"""What is written for a GPU, without one: which kernels are pipelines, and text that the assembler of NVIDIA takes."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lamella
from bench.cuda import product_text
from lamella.backend import cpu, cuda, interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.compiled import Compiled, KernelSymbol
from lamella.backend.cpu.jit import MACHINES, assembly
from lamella.backend.cuda import driver
from lamella.backend.cuda.binaries import (
    BuiltKernel,
    BuiltProgram,
    decode_kernel,
    decode_program,
    encode_kernel,
    encode_program,
)
from lamella.backend.cuda.compile import device_target, with_sizes
from lamella.backend.executor.kernels import compile_graph
from lamella.base.errors import InputError
from lamella.kernels.target import TARGETS, find_target
from lamella.pipeline.comparison_options import GPUS
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options
from tests.support.differential.running import read

SMALL = product_text(256, 256, 128)
LARGE = product_text(2048, 4096, 512)


def emit_for(text: str, target: str = "sm_90a") -> tuple[Compiled, KernelSymbol]:
    """A kernel as text for LLVM, and what a launch has to know of it."""
    compiled = emit(read(text), find_target(target))
    return compiled, compiled.entries[0]


def test_a_product_is_a_pipeline() -> None:
    compiled, entry = emit_for(LARGE)
    assert "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16" in compiled.text
    found = entry.pipeline
    assert found is not None
    assert found.threads == 384
    assert found.local_bytes <= 232448
    assert [(item.slot, item.shape, item.columns) for item in found.maps] == [
        (0, (512, 2048), 128),
        (1, (512, 4096), 128),
        (2, (2048, 4096), 16),
    ]


def test_pairs_share_a_tile_where_they_have_the_same_one() -> None:
    compiled, entry = emit_for(LARGE)
    assert entry.pipeline is not None
    assert entry.pipeline.cluster == 2
    assert "multicast::cluster" in compiled.text
    compiled, entry = emit_for(SMALL.replace("%row = arith.div %within, %band", "%row = arith.rem %g, %band"))
    assert entry.pipeline is not None
    assert entry.pipeline.cluster == 1
    assert "multicast" not in compiled.text


def test_others_use_the_tensor_cores_of_a_warp() -> None:
    compiled, entry = emit_for(product_text(256, 128, 80))
    assert entry.pipeline is None
    assert "mma.sync.aligned.m16n8k16" in compiled.text


def test_the_copy_engine_checks() -> None:
    text = product_text(256, 128, 80).replace("_load.t", "_load.t.both_checked")
    compiled, entry = emit_for(text.replace("_load.n", "_load.n.both_checked"))
    assert entry.pipeline is not None
    assert "mma.sync" not in compiled.text


def test_older_devices_have_no_warpgroups() -> None:
    compiled, entry = emit_for(LARGE, "sm_80")
    assert entry.pipeline is None
    assert "mma.sync.aligned.m16n8k16" in compiled.text


def test_what_a_launch_knows_is_kept() -> None:
    entries = emit_for(LARGE)[0].entries
    program = BuiltProgram(entries, {entries[0].symbol: b"code"}, b"key")
    assert decode_program(encode_program(program), b"key") == program
    kernel = BuiltKernel(entries[0], b"code")
    assert decode_kernel(encode_kernel(kernel)) == kernel


def test_the_program_runs_on_a_processor_too() -> None:
    random = np.random.default_rng(0)
    a, b = (
        np.asfortranarray(random.standard_normal((128, 256)).astype(ml_dtypes.bfloat16)) for _ in range(2)
    )
    c = np.zeros((256, 256), ml_dtypes.bfloat16, order="F")
    cpu.compile_program(read(SMALL), threads=1).call("product", [a, b, c], 2)
    want = a.astype(np.float32).T @ b.astype(np.float32)
    np.testing.assert_allclose(c.astype(np.float32), want, rtol=1e-2, atol=5e-2)


GRAPH = """
import nn, math;
graph Layers {
    @input { x: real[1, 2, 4, 4]; }
    @variable { w: real[33, 2, 3, 3]; b: real[33]; v: real[9, 33]; c: real[9]; }
    @output { y: real[1, 9]; z: real[1, 33, 4, 4]; }
    @compose {
        t = nn.conv{padding=1}(x, w, b); z = nn.gelu(t);
        m = math.mean_reduce{axes=[2, 3], squeeze=true}(z); u = nn.linear(m, v, c); y = nn.softmax{axes=[1]}(u);
    }
}
"""


def test_kernels_of_graphs_for_threads_compute_the_same(tmp_path: Path) -> None:
    """What is planned for threads is a program like any other: the interpreter runs it, the reference judges."""
    path = tmp_path / "layers.sknd"
    path.write_text(GRAPH)
    model: Any = lamella.load(path)
    options = Options()
    made = to_kernels(prepare(model, options), options, {}, False, find_target("sm_90a"))
    made = replace(made, program=with_sizes(made.program))
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    want = lamella.compile(path, backend="reference")
    x = np.random.default_rng(1).standard_normal((1, 2, 4, 4)).astype(np.float32)
    for name, array in want(x=x).items():
        np.testing.assert_allclose(run(x=x)[name], array, rtol=1e-4, atol=1e-5)


ROWS = """
func @scale(%x: memref<f32xSIZE>, %y: memref<f32xSIZE>) attributes{subgroup_size=32, work_group_size=[32,1]} {
  parallel {
    %l = builtin.subgroup_local_id : i32
    %0 = cast %l : index
    %e = constant SIZE : index
    %s = constant 32 : index
    for %i:index=%0,%e,%s {
      %v = load %x[%i] : f32
      store %v, %y[%i]
    }
  }
}
"""


def test_kernels_that_start_early_read_no_memory_that_never_changes() -> None:
    """The kernel before it writes what it reads: loads past the shared cache would see what was there before."""
    compiled, entry = emit_for(ROWS.replace("SIZE", "4096"))
    assert entry.is_early
    assert "griddepcontrol.wait" in compiled.text
    assert "!invariant.load" not in compiled.text
    compiled, entry = emit_for(ROWS.replace("SIZE", "16777216"))
    assert not entry.is_early
    assert "griddepcontrol" not in compiled.text
    assert "!invariant.load" in compiled.text
    assert not emit_for(ROWS.replace("SIZE", "4096"), "sm_80")[1].is_early


def test_no_device_is_a_sentence() -> None:
    absent = cuda.missing()
    assert absent is None or "GPU" in absent


def assemble_on(target: str, text: str, folder: Path) -> int:
    """Let the assembler of NVIDIA take text for LLVM; the bytes of registers that it spills."""
    found = shutil.which("ptxas")
    if found is None:
        pytest.skip("ptxas is not installed; the wheel nvidia-cuda-nvcc-cu12 has it")
    path = folder / "kernels.ptx"
    path.write_text(assembly(text, MACHINES[target]))
    name = find_target(target).cpu
    done = subprocess.run(
        [found, "-v", "-arch", name, path, "-o", folder / "kernels.cubin"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return sum(map(int, re.findall(r"(\d+) bytes spill stores", done.stderr)))


@pytest.mark.parametrize("text", [SMALL, SMALL.replace("bf16", "f16"), LARGE])
def test_the_assembler_takes_it(text: str, tmp_path: Path) -> None:
    assemble_on("sm_90a", emit_for(text)[0].text, tmp_path)


def test_every_gpu_can_be_named_where_one_is_asked_for() -> None:
    assert {name for name, target in TARGETS.items() if target.has_threads} == set(GPUS)


@pytest.mark.parametrize("target", GPUS)
def test_every_gpu_has_code_that_its_assembler_takes(target: str, tmp_path: Path) -> None:
    """A graph as its kernels are planned for that GPU, and products on tensor cores where there are any."""
    path = tmp_path / "layers.sknd"
    path.write_text(GRAPH)
    chosen = find_target(target)
    for precision in ("bf16", "w8", "fp8"):
        options = Options(precision=precision, target=target)
        made = to_kernels(prepare(lamella.load(path), options, True), options)  # type: ignore[arg-type]
        assemble_on(target, emit(with_sizes(made.program), chosen).text, tmp_path)
    compiled, _ = emit_for(SMALL, target)
    assert ("mma" in compiled.text) == chosen.tensor_cores
    assemble_on(target, compiled.text, tmp_path)


def test_a_failure_names_the_kernels_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device tells nobody which kernel failed: the last ones are named, with their places in the text."""
    answers = {"cuStreamSynchronize": 700, "cuGetErrorName": 1, "cuGetErrorString": 1}
    found = {name: lambda *_, code=code: code for name, code in answers.items()}
    monkeypatch.setattr(driver, "functions", lambda: found)
    stream = driver.Stream(7)
    stream.launched += ["@scale (k.tensor:3)", "@sum (k.tensor:9)"]
    with pytest.raises(InputError, match=r"after @scale \(k.tensor:3\), @sum \(k.tensor:9\): error 700"):
        stream.wait()


def test_wide_numbers_are_multiplied_by_threads_that_the_copy_engine_feeds() -> None:
    text = product_text(512, 512, 64, "f32")
    compiled, entry = emit_for(text)
    assert entry.pipeline is not None
    assert {item.element for item in entry.pipeline.maps} == {"f32"}
    assert "wgmma" not in compiled.text
    assert compiled.text.count("@llvm.fma.f32(float %") == 1024
    assert emit_for(text, "sm_80")[1].pipeline is None


def test_numbers_of_8_bits_are_multiplied_by_warpgroups_32_at_once() -> None:
    text = product_text(512, 512, 256, "f8e4m3").replace("%B: memref<f8e4m3", "%B: memref<f8e5m2")
    text = text.replace("coopmatrix<f8e4m3x16x16,matrix_b>", "coopmatrix<f8e5m2x16x16,matrix_b>")
    compiled, entry = emit_for(text)
    assert entry.pipeline is not None
    assert [item.element for item in entry.pipeline.maps] == ["f8e4m3", "f8e5m2", "bf16"]
    # What the hardware calls A is the right factor; a stage of 128 bytes along k is four instructions.
    assert compiled.text.count("m64n256k32.f32.e5m2.e4m3") == 4
    assert emit_for(text, "sm_80")[1].pipeline is None


@pytest.mark.parametrize(
    ("capability", "cpu", "features"),
    [
        ((7, 5), "sm_75", "+ptx80"),
        ((8, 7), "sm_86", ""),
        ((8, 8), "sm_86", ""),
        ((9, 0), "sm_90a", "+ptx83"),
        ((10, 3), "sm_100", ""),
        ((12, 1), "sm_120", ""),
        ((99, 0), "sm_120", ""),
    ],
)
def test_kernels_are_planned_for_the_device_that_is_here(
    capability: tuple[int, int], cpu: str, features: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that LLVM has never heard of gets code that it knows, and all have the multiprocessors that they have."""
    here = driver.Device("some", 57, *capability, 49152, 1 << 20, 13000, 1)
    monkeypatch.setattr("lamella.backend.cuda.compile.device", lambda: here)
    found = device_target()
    assert (found.name, found.cpu, found.features, found.multiprocessors) == (cpu, cpu, features, 57)
    assert found.has_threads
