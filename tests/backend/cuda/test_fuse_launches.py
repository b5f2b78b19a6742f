"""Launch fusion: the processor runs the lists before and after, and the numbers are the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.backend.cpu import compile_program
from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.run.memory import SharedArena
from lamella.backend.cpu.run.proving import ProvingSource
from lamella.backend.executor.kernels import compile_graph
from lamella.base.source import Source
from lamella.kernels.fuse_launches.dependent_launch import mark_early_loads
from lamella.kernels.launches import Buffer, BufferView, Launch, LaunchList
from lamella.kernels.target import find_target
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import Function, Program
from tests.backend.cuda.test_tensor_core_gemm import draw_inputs, plan, write_graph
from tests.support.bridge.device_lists import FusingMachine

LAYER = (
    "@input { x: real[1,64]; } @variable { a: real[192,64]; b: real[96,96]; c: real[64,96]; }"
    " @output { y: real[1,64]; }",
    "n = aten.layer_norm{normalized_shape=[64]}(x); t = nn.linear(n, a, 0.0);"
    " [g, u] = layout.split{axis=1, count=2}(t); s = nn.silu(g); h = math.mul(s, u);"
    " e = nn.linear(h, b, 0.0); m = nn.softmax{axes=[1]}(e); o = nn.linear(m, c, 0.0); y = math.add(o, x);",
)
CASES = {
    "a layer of one token": LAYER,
    "rows and columns in turn": (
        "@input { x: real[4,64]; } @output { y: real[4,64]; z: real[64]; }",
        "e = aten.layer_norm{normalized_shape=[64]}(x); c = math.sum_reduce{axes=[0], squeeze=true}(e);"
        " d = math.exp(c); m = math.mul(e, d); y = aten.layer_norm{normalized_shape=[64]}(m);"
        " z = math.sum_reduce{axes=[0], squeeze=true}(y);",
    ),
}


def _never(*_: object) -> None:
    raise AssertionError("a launch ran outside of a list")


def run(path: Path, fuses: bool) -> tuple[dict[str, object], tuple[Launch, ...]]:
    """What a graph computes by lists, and the launches of a run."""
    made = plan(path)
    source = ProvingSource(compile_program(Program(())))
    machine = FusingMachine(source, SharedArena(), made=made, fuses=fuses)
    executable = compile_graph(made, _never, machine=machine)
    found = executable(**draw_inputs(made, np.random.default_rng(4)))
    return dict(found), machine.lists[-1].launches


@pytest.mark.parametrize("name", CASES)
def test_fewer_launches_give_the_same_bits(name: str, tmp_path: Path) -> None:
    path = write_graph(tmp_path, *CASES[name])
    (want, before), (found, after) = (run(path, fuses) for fuses in (False, True))
    assert len(after) <= len(before) / 2
    for key, array in want.items():
        np.testing.assert_array_equal(np.asarray(found[key]), np.asarray(array))


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_device_computes_the_same(name: str, tmp_path: Path) -> None:
    path = write_graph(tmp_path, *CASES[name])
    found, want = (lamella.compile(path, backend=item, precision="bf16") for item in ("cuda", "cpu"))
    given = draw_inputs(plan(path), np.random.default_rng(6))
    for _ in range(3):
        for key, array in want(**given).items():
            np.testing.assert_allclose(found(**given)[key], array, rtol=1e-3, atol=1e-3)


SCALED = """
func @scaled(%x: memref<f32x32> {alignment=8}, %w: memref<f32x32>, %y: memref<f32x32>)
    attributes{subgroup_size=32, work_group_size=[32,1]} {
  parallel {
    %l = builtin.subgroup_local_id : i32
    %i = cast %l : index
    %a = load %x[%i] : f32
    barrier.local
    %b = load %w[%i] : f32
    %c = arith.mul %a, %b : f32
    store %c, %y[%i]
  }
}
"""


@pytest.mark.parametrize("start", [0, 1])
def test_weights_are_loaded_before_the_kernel_in_front_has_ended(start: int) -> None:
    """Only what is bound is promised, and no alignment where an array does not begin so."""
    program = parse(Source("scaled", SCALED)).program
    views = [BufferView(name, "f32", (32,), (1,), start if name == "x" else 0) for name in "xwy"]
    buffers = {name: Buffer(256) for name in "xwy"}
    inputs = dict(zip("xw", views, strict=False))
    whole = LaunchList(buffers, (Launch("scaled", tuple(views), (2,)),), inputs, {"y": views[2]})
    assert bool(mark_early_loads(whole, {"scaled": program.functions[0]})[1]) == bool(start)
    fitted, (kernel,) = mark_early_loads(
        replace(whole, bound=frozenset("w")), {"scaled": program.functions[0]}
    )
    assert fitted.launches[0].kernel == kernel.name
    told = [
        {item.key for item in (parameter.attributes.entries if parameter.attributes else ())}
        for parameter in kernel.parameters
    ]
    assert told == [set() if start else {"alignment"}, {"unchanging"}, set()]
    before, after = emit(Program((kernel,)), find_target("sm_90a")).text.split("griddepcontrol.wait")
    assert (before.count("load float"), after.count("load float")) == (1, 1)
    before, after = emit(program, find_target("sm_90a")).text.split("griddepcontrol.wait")
    assert (before.count("load float"), after.count("load float")) == (0, 2)


SETTLED = """
func @make(%x: memref<f32x32>, %y: memref<f32x32>) attributes{subgroup_size=32, work_group_size=[32,1]} {
  parallel {
    %l = builtin.subgroup_local_id : i32
    %i = cast %l : index
    %a = load %x[%i] : f32
    store %a, %y[%i]
  }
}
func @use(%x: memref<f32x32>, %p: memref<f32x32>, %y: memref<f32x32>)
    attributes{subgroup_size=32, work_group_size=[32,1]} {
  parallel {
    %l = builtin.subgroup_local_id : i32
    %i = cast %l : index
    %a = load %x[%i] : f32
    %b = load %p[%i] : f32
    %c = arith.add %a, %b : f32
    store %c, %y[%i]
  }
}
"""


def test_a_list_settles_what_many_read() -> None:
    """What launch 0 makes is read early by all behind launch 1, which lets them start when it has waited itself."""
    functions = {item.name: item for item in parse(Source("settled", SETTLED)).program.functions}
    steps = [("make", "x", "p"), *(("use", f"y{n}", "p", f"y{n + 1}") for n in range(12))]
    names = dict.fromkeys(name for _, *used in steps for name in used)
    views = {name: BufferView(name, "f32", (32,), (1,)) for name in names}
    launches = tuple(
        Launch(kernel, tuple(views[name] for name in used), (len(used) - 1,)) for kernel, *used in steps
    )
    inputs = {name: views[name] for name in ("x", "y0")}
    whole = LaunchList({name: Buffer(128) for name in names}, launches, inputs, {"y12": views["y12"]})
    fitted, kernels = mark_early_loads(whole, functions)
    made = {item.name: item for item in kernels}
    texts = [
        emit(Program(({**functions, **made}[item.kernel],)), find_target("sm_90a")).text
        for item in fitted.launches
    ]
    early = [text[: text.index("griddepcontrol.wait")].count("load float") for text in texts]
    lets = [text.index("launch_dependents") < text.index("griddepcontrol.wait") for text in texts]
    # y0 was there before the list; what the launch in front makes never is.
    assert early == [0, 1, *[1] * 11]
    assert lets == [True, False, *[True] * 11]
    told = [_settled_names(made.get(item.kernel)) for item in fitted.launches]
    assert told == [set(), {"x"}, *[{"p"}] * 11]


def test_nothing_settles_where_few_read_it_or_late() -> None:
    """A launch that waits before it lets the next one start costs something: only a list of many readers has one."""
    functions = {item.name: item for item in parse(Source("settled", SETTLED)).program.functions}
    for made_at in (0, 5):
        steps: list[tuple[str, ...]] = [("use", f"y{n}", "q", f"y{n + 1}") for n in range(6)]
        steps.insert(made_at, ("make", "x", "p"))
        steps += (
            [("use", "y6", "p", "z")]
            if made_at == 0
            else [("use", f"z{n}", "p", f"z{n + 1}") for n in range(3)]
        )
        names = dict.fromkeys(name for _, *used in steps for name in used)
        views = {name: BufferView(name, "f32", (32,), (1,)) for name in names}
        launches = tuple(
            Launch(kernel, tuple(views[name] for name in used), (len(used) - 1,)) for kernel, *used in steps
        )
        whole = LaunchList({name: Buffer(128) for name in names}, launches, {"x": views["x"]}, {})
        _, kernels = mark_early_loads(whole, functions)
        assert not any(item.attributes and item.attributes.find("settles") for item in kernels)


def _settled_names(function: Function | None) -> set[str]:
    parameters = () if function is None else function.parameters
    return {
        item.value.name
        for item in parameters
        if item.attributes is not None and item.attributes.find("settled")
    }
