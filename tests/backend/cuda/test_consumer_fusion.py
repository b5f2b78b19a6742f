"""Launches that attention absorbs, and heads whose keys work-groups share: the same bits, and the same as cpu."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu import compile_program
from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.run.memory import SharedArena
from lamella.backend.cpu.run.proving import ProvingSource
from lamella.backend.cuda.compile import with_sizes
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.kernels.fuse_launches import fuse_launches
from lamella.kernels.launches import Buffer, BufferView, Launch, LaunchList
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.passes import lower
from lamella.kernels.target import find_target
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import Function, Memref, Program
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options
from tests.backend.cuda.test_fuse_launches import _never
from tests.backend.cuda.test_tensor_core_gemm import write_graph
from tests.support.bridge.device_lists import FusingMachine

KEYS = 70
CACHED = (
    "@input { x: real[1,512]; } @variable { keys: real[1,2,70,64]; values: real[1,2,70,64]; seen: int[]; w: real[64]; }"
    " @output { y: real[1,4,1,64]; }",
    "[a, b, v] = layout.split{axis=1, sizes=[256,128,128]}(x);"
    " qh = layout.reshape{shape=[1,4,1,64]}(a); kh = layout.reshape{shape=[1,2,1,64]}(b);"
    " vh = layout.reshape{shape=[1,2,1,64]}(v); q = aten.layer_norm{normalized_shape=[64]}(qh, w);"
    " k = aten.layer_norm{normalized_shape=[64]}(kh, w); kn = llm.remember(keys, k, seen);"
    " vn = llm.remember(values, vh, seen); y, s = llm.flash_attention(q, kn, vn, ~, seen);"
    " next = math.add(seen, 1);",
)
UPDATES = " @update { keys = kn; values = vn; seen = next; }"


def write_cached(folder: Path) -> Path:
    """The graph of a token that is added to a cache of 70 positions."""
    path = write_graph(folder, *CACHED)
    path.write_text(path.read_text().rstrip().removesuffix("}") + UPDATES + " }\n")
    return path


def start(executable: Any, random: np.random.Generator, seen: int, hidden: float = np.nan) -> None:
    """Give states: what lies behind the positions that were seen is no number, and nobody may read it."""
    for name in ("keys", "values"):
        cache = random.standard_normal((1, 2, KEYS, 64)).astype(np.float32)
        cache[:, :, seen:] = hidden
        executable.state[name] = cache
    executable.state["seen"] = np.asarray(seen)


def plan_cached(path: Path) -> KernelGraph:
    """The kernels of the graph for Hopper; with an extent that a call decides, states are updated where they lie."""
    model: Any = lamella.load(path)
    options = Options(precision="bf16")
    made = to_kernels(prepare(model, options, True), options, {"T": 1}, True, find_target("sm_90a"))
    return replace(made, program=with_sizes(made.program))


def run_tokens(path: Path, fuses: bool, seen: int) -> tuple[list[Array], LaunchList, list[Function]]:
    """What three tokens give, the last list of launches and its kernels."""
    made = plan_cached(path)
    machine = FusingMachine(
        ProvingSource(compile_program(Program(()))), SharedArena(), made=made, fuses=fuses
    )
    executable = compile_graph(made, _never, machine=machine)
    random = np.random.default_rng(seen)
    start(executable, random, seen)
    found = [
        np.array(executable(x=random.standard_normal((1, 512)).astype(np.float32))["y"]) for _ in range(3)
    ]
    whole = max(machine.lists, key=lambda item: len(item.launches))
    functions = {item.name: item for item in made.program.functions} | machine.kernels
    used = [functions[item.kernel] for item in whole.launches if item.kernel in functions]
    return found, whole, used


@pytest.mark.parametrize("seen", [0, 67])
def test_attention_takes_over_norms_and_rows_of_caches(seen: int, tmp_path: Path) -> None:
    path = write_cached(tmp_path)
    (want, before, _), (found, after, kernels) = (run_tokens(path, fuses, seen) for fuses in (False, True))
    assert len(before.launches) >= 7
    assert len(after.launches) <= 3
    for one, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(one, other)
    judge: Any = lamella.compile(path, backend="cpu")
    random = np.random.default_rng(seen)
    start(judge, random, seen, 0.0)
    for one in found:
        other = judge(x=random.standard_normal((1, 512)).astype(np.float32))["y"]
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    owner = next(item for item in kernels if item.name.startswith("owned"))
    settled = [item.type for item in owner.parameters if item.attributes and item.attributes.find("settled")]
    shapes = [item.shape for item in settled if isinstance(item, Memref)]
    assert shapes.count((64, KEYS, 2, 1)) == 2


def test_caches_are_loaded_before_the_kernel_in_front_has_ended(tmp_path: Path) -> None:
    """All keys and values of a thread stand above the wait; and what the passes make of it computes the same."""
    _, whole, kernels = run_tokens(write_cached(tmp_path), True, 5)
    owner = next(item for item in kernels if item.name.startswith("owned"))
    launch = next(item for item in whole.launches if item.kernel == owner.name)
    target = find_target("sm_90a")
    before, _ = emit(Program((owner,)), target).text.split("griddepcontrol.wait", 1)
    assert before.count("= load <2 x float>") + before.count("= load float") >= 4
    random = np.random.default_rng(1)
    arrays = [_draw(view, random) for view in launch.arguments]
    fault = [np.zeros(1, np.int32)] if launch.has_fault else []
    results = []
    for program in (Program((owner,)), lower(Program((owner,)), target)):
        copies = [item.copy(order="F") for item in arrays]
        interpreter.compile_program(program, check_bounds=True).call(owner.name, [*copies, *fault], 2)
        results.append([copies[place] for place in launch.writes])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def _draw(view: BufferView, random: np.random.Generator) -> Array:
    if view.element.startswith("i"):
        return np.full(view.shape, 5, np.dtype(view.element.replace("i", "int")), order="F")
    found: Array = np.asfortranarray(random.standard_normal(view.shape).astype(np.float32))
    return found


OWNER = """
func @store(%x: memref<f32x128>, %y: memref<f32x128>) attributes{{subgroup_size=32, work_group_size=[32,1]}} {{
  %g = builtin.group_id : index
  parallel {{
    %l = builtin.subgroup_local_id : i32
    %i = cast %l : index
    %c = constant 32 : index
    %b = arith.mul %g, %c : index
    %p = arith.add %b, %i : index
    %v = load %x[%p] : f32
    %w = arith.add %v, %v : f32
    store %w, %y[%p]
  }}
}}
func @sum(%y: memref<f32x128>, %z: memref<f32x128>) attributes{{subgroup_size=32, work_group_size=[64,1]}} {{
  %g = builtin.group_id : index
  parallel {{
    %l = builtin.subgroup_local_id : i32
    %i = cast %l : index
    %s = builtin.subgroup_id : i32
    %t = cast %s : index
    %c = constant 32 : index
    %d = constant 64 : index
    %h = arith.mul %g, %d : index
    %b = arith.mul %t, %c : index
    %q = arith.add %b, %i : index
    %p = arith.add %h, %q : index
    %m = constant {shift} : index
    %n = constant 128 : index
    %o = arith.add %p, %m : index
    %r = arith.rem %o, %n : index
    %v = load %y[%r] : f32
    store %v, %z[%p]
  }}
}}
"""


@pytest.mark.parametrize(
    ("shift", "outputs", "launches"), [(0, "z", 1), (0, "yz", 1), (1, "z", 1), (1, "yz", 2)]
)
def test_a_work_group_takes_over_what_it_alone_reads(shift: int, outputs: str, launches: int) -> None:
    """With a shift of one it reads an element of the next one: it may make all by itself, unless others see that."""
    program = parse(Source("owner", OWNER.format(shift=shift))).program
    functions = {item.name: item for item in program.functions}
    views = {name: BufferView(name, "f32", (128,), (1,)) for name in "xyz"}
    whole = LaunchList(
        {name: Buffer(512) for name in "xyz"},
        (
            Launch("store", (views["x"], views["y"]), (1,), 4),
            Launch("sum", (views["y"], views["z"]), (1,), 2),
        ),
        {"x": views["x"]},
        {name: views[name] for name in outputs},
    )
    fewer, made = fuse_launches(whole, functions)
    assert len(fewer.launches) == launches
    kernels = interpreter.compile_program(Program((*program.functions, *made)), check_bounds=True)
    arrays = {name: np.full(128, np.nan, np.float32) for name in "xyz"}
    arrays["x"] = np.arange(128, dtype=np.float32)
    for launch in fewer.launches:
        kernels.call(launch.kernel, [arrays[view.buffer] for view in launch.arguments], launch.groups)
    np.testing.assert_array_equal(arrays["z"], 2 * np.roll(arrays["x"], -shift))
    if "y" in outputs:
        np.testing.assert_array_equal(arrays["y"], 2 * arrays["x"])


@pytest.mark.parametrize("position", [-1, 0, 30, 69])
def test_a_token_that_sees_no_key_gets_nothing(position: int, tmp_path: Path) -> None:
    path = write_graph(
        tmp_path,
        "@input { q: real[1,2,1,32]; k: real[1,1,70,32]; v: real[1,1,70,32]; p: int[]; }"
        " @output { y: real[1,2,1,32]; }",
        "y, s = llm.flash_attention(q, k, v, ~, p);",
    )
    made = plan_cached(path)
    assert any("split" in item.value.name for one in made.program.functions for item in one.parameters)
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    random = np.random.default_rng(position + 1)
    given: dict[str, Any] = {
        name: random.standard_normal((1, heads, size, 32)).astype(np.float32)
        for name, heads, size in (("q", 2, 1), ("k", 1, 70), ("v", 1, 70))
    }
    given["p"] = np.asarray(position)
    want = lamella.compile(path, backend="reference")(**given)["y"]
    np.testing.assert_allclose(run(**given)["y"], want, rtol=1e-5, atol=1e-6)
    assert want.any() == (position >= 0)
