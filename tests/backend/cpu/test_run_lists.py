"""Graphs as launch lists: memory that is shared, what runs once, states, faults, threads, arrays of the caller."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lamella
from lamella import LamellaError
from lamella.backend.executor.kernels import KernelExecutable
from lamella.backend.executor.segments import Segment
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, uniform
from lamella.bridge.graph_to_kernels import graph_to_kernels
from lamella.graph.model import Model
from lamella.kernels.launches import FILL, LaunchList
from tests.bridge.test_graph_to_kernels_formulas import operator
from tests.support.bridge.launch_lists import compile_lists, lists_of
from tests.support.graph.texts import small


def made(model: Model, threads: int | None = 1, **options: object) -> KernelExecutable:
    """A graph as machine code."""
    return compile_lists(graph_to_kernels(model), threads, **options)


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def agree(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
        assert found[name].dtype == array.dtype


def judge(model: Model, **fed: Array) -> KernelExecutable:
    """A graph that gives what the reference gives, twice."""
    run, reference = made(model), compile_model(model)
    for _ in range(2):
        agree(run(**fed), reference(**fed))
    return run


def only_list(run: KernelExecutable) -> LaunchList:
    """The launches of each call of a graph that is one segment."""
    (found,) = lists_of(run)
    return found.each


# --- memory ------------------------------------------------------------------------------------------------------


def test_reshapes_are_no_launches() -> None:
    body = """
        a = layout.reshape{shape=[4, 6]}(x); b = math.exp(a); c = layout.flatten{}(b);
        d = layout.unsqueeze{axes=[0]}(c); y = math.neg(d);
    """
    run = judge(small("x: real[2, 3, 4];", body), x=draw(2, 3, 4))
    assert [item.operator for item in only_list(run).launches] == ["math.exp", "math.neg"]


def test_transposes_are_launches_unless_they_move_nothing() -> None:
    body = "a = layout.transpose{perm=[1, 0, 2]}(x); y = layout.transpose{perm=[0, 2, 1]}(a);"
    run = judge(small("x: real[3, 1, 4];", body), x=draw(3, 1, 4))
    assert len(only_list(run).launches) == 1


def test_outputs_that_share_memory_inside_do_not_outside() -> None:
    body = (
        "y = math.exp(x); z = layout.flatten{}(y); w = layout.reshape{shape=[6]}(x); v = layout.flatten{}(w);"
    )
    model = small("x: real[2, 3];", body, "y: real[2, 3]; z: real; w: real; v: real")
    run, x = judge(model, x=draw(2, 3)), draw(2, 3)
    found = run(x=x)
    for name in found:
        found[name][...] = 0
    assert x.any()
    agree(run(x=x), compile_model(model)(x=x))


def test_what_kernels_do_not_write_starts_as_zero() -> None:
    """Places that a condition leaves out; the memory that was used before is not zero."""
    shape = "x: real[40];"
    model = operator(shape, "y: real[40];", "y[i,] = x[i,], i < 40 | x[i,] > 0.0;")
    kernels = graph_to_kernels(model)
    run = compile_lists(kernels, 1)
    (found,) = lists_of(run)
    assert [item.kernel == FILL for item in found.each.launches] == [True, False]
    out = np.full(40, 9, np.float32)
    x = draw(40)
    np.testing.assert_array_equal(run.run({"x": x}, {"y": out})["y"], np.maximum(x, 0))


def test_memory_of_dead_tensors_is_used_again() -> None:
    steps = "".join(f"t{number + 1} = math.sin(t{number});" for number in range(20))
    run = judge(small("x: real[64, 64];", f"t0 = math.neg(x); {steps} y = math.neg(t20);"), x=draw(64, 64))
    assert lists_of(run)[0].arena_bytes <= 3 * 64 * 64 * 4


@pytest.mark.parametrize("element", ["bf16", "f16", "f64", "i32", "i8", "u8"])
def test_what_is_accumulated_is_rounded_once(element: str) -> None:
    """The sum is a temporary of a wider type; it wraps or rounds as it is stored."""
    body = "s = math.sum_reduce{axes=[1]}(x); m = math.max_reduce{axes=[0]}(x); y = math.add(s, m);"
    model = small(f"x: {element}[40, 30];", body, f"y: {element}[~, ~]")
    drawn = np.random.default_rng(0).integers(0, 100, (40, 30))
    fed = drawn / 7 if "f" in element else drawn.astype(np.uint8 if element == "u8" else np.int64)
    run = made(model)
    np.testing.assert_allclose(run(x=fed)["y"], compile_model(model)(x=fed)["y"], rtol=1e-7)
    assert len(lists_of(run)) == 1


# --- arrays of the caller ----------------------------------------------------------------------------------------


MODEL = "e = math.exp(x); y = math.add(e, 1.0);"


def test_results_go_where_the_caller_wants_them() -> None:
    run, x = made(small("x: real[3, 5];", MODEL)), draw(3, 5)
    expected = np.exp(x) + 1
    rows, columns = np.zeros((3, 5), np.float32), np.zeros((5, 3), np.float32)
    shifted = np.zeros(61, np.uint8)[1:].view(np.float32).reshape(3, 5)
    for out in (rows, columns.T, shifted):
        assert run.run({"x": x}, {"y": out})["y"] is out
        np.testing.assert_allclose(out, expected, rtol=1e-6)
    assert run.run({"x": x}, {"y": x})["y"] is x
    np.testing.assert_allclose(x, expected, rtol=1e-6)


def test_wrong_arrays_for_results_are_refused() -> None:
    run, x = made(small("x: real[3, 5];", MODEL)), draw(3, 5)
    fixed = np.zeros((3, 5), np.float32)
    fixed.flags.writeable = False
    for out in ({"y": fixed}, {"y": [0.0]}, {"z": draw(3, 5)}, {"y": draw(5, 3)}, {"y": np.zeros((3, 5))}):
        with pytest.raises(LamellaError):
            run.run({"x": x}, out)
    several = made(small("x: real[3];", "y = math.neg(x); z = math.exp(x);", "y: real; z: real"))
    with pytest.raises(LamellaError, match="share memory"):
        several.run({"x": x[0, :3]}, {"y": x[1, :3], "z": x[1, 1:4]})


class Exporter:
    """An array of somebody else, known by DLPack alone."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Shown:
    """An array of somebody else, known by its interface alone."""

    def __init__(self, array: Array) -> None:
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize("way", [Exporter, Shown, torch.from_numpy])
def test_results_go_into_the_memory_of_others(way: Callable[[Array], object]) -> None:
    run, x, room = made(small("x: real[3, 5];", MODEL)), draw(3, 5), np.zeros((3, 5), np.float32)
    found = run.run({"x": x}, {"y": way(room)})["y"]
    assert np.shares_memory(found, room)
    np.testing.assert_allclose(room, np.exp(x) + 1, rtol=1e-6)
    assert room.ctypes.data == found.ctypes.data


def test_what_shows_no_memory_is_no_place_for_results() -> None:
    run = made(small("x: real[];", "y = math.exp(x);"))
    watched = torch.zeros((), requires_grad=True)
    for given in (np.float32(0), watched, torch.zeros((), dtype=torch.bfloat16), object()):
        with pytest.raises(LamellaError, match="no array that can be written"):
            run.run({"x": 1.0}, {"y": given})


def test_what_shows_no_memory_is_no_input() -> None:
    """What a library says of its array is in the sentence."""

    class Refusing(Exporter):
        def __dlpack__(self, **options: Any) -> object:
            raise BufferError("it lies on a device")

    run = made(small("x: real[2, 2];", "y = math.exp(x);"))
    cases: list[tuple[Any, str]] = [
        (Refusing(np.ones((2, 2), np.float32)), "it lies on a device"),
        ([[1.0], [2.0, 3.0]], "its rows differ in length"),
    ]
    for given, told in cases:
        with pytest.raises(LamellaError, match=f"input 'x' is no array: {told}"):
            run.run({"x": given})


def test_inputs_of_any_layout() -> None:
    run, x = made(small("x: real[3, 5];", MODEL)), draw(3, 5)
    shifted = np.zeros(61, np.uint8)[1:].view(np.float32).reshape(3, 5)
    shifted[...] = x
    wide = np.repeat(x, 2, axis=1)
    for given in (
        x,
        np.asfortranarray(x),
        wide[:, ::2],
        x[::-1][::-1],
        shifted,
        Exporter(x),
        x.astype(">f4"),
    ):
        np.testing.assert_allclose(run(x=given)["y"], np.exp(x) + 1, rtol=1e-6)  # type: ignore[arg-type]
    np.testing.assert_array_equal(x, draw(3, 5))


# --- what runs once ----------------------------------------------------------------------------------------------


def weighted() -> tuple[Model, Array]:
    body = "t = layout.transpose{}(w); e = math.exp(t); y = linalg.matmul(x, e);"
    model = small("x: real[2, 3];", body, blocks="@variable { w: real[4, 3]; }")
    return Model(model.graph, model.library, {"w": draw(4, 3)}), draw(4, 3)


def test_what_depends_on_weights_alone_runs_once() -> None:
    model, w = weighted()
    run, x = made(model), draw(2, 3)
    (segment,) = lists_of(run)
    assert [[item.operator for item in part.launches] for part in segment.once] == [
        ["layout.transpose", "math.exp"]
    ]
    assert "layout.transpose" not in [item.operator for item in segment.each.launches]
    for array in (w, 2 * w, w):
        run.state["w"] = np.array(array)
        for _ in range(2):
            np.testing.assert_allclose(run(x=x)["y"], x @ np.exp(array.T), rtol=1e-5)
    run.reset()
    np.testing.assert_allclose(run(x=x)["y"], x @ np.exp(w.T), rtol=1e-5)


def test_all_extents_share_what_runs_once(tmp_path: Path) -> None:
    """Weights that are prepared for one length are those of every length; what depends on the length is not."""
    text = """
        import layout, linalg, math;
        graph G {
            @input { x: real[n|64, 3]; }
            @variable { w: real[4, 3]; }
            @output { y: real[n, 4]; }
            @compose { t = layout.transpose{}(w); e = math.exp(t); y = linalg.matmul(x, e); }
        }
    """
    path = tmp_path / "m.sknd"
    path.write_text(text, encoding="utf-8")
    run = lamella.compile(path, backend="cpu")
    assert isinstance(run, KernelExecutable)
    kept = []
    for length in (2, 5, 2):
        x = draw(length, 3)
        np.testing.assert_allclose(run(x=x)["y"], x @ np.exp(run.state["w"].T), rtol=1e-4)
        (segment,) = run._context.runner.cut(run.model.graph.nodes, frozenset({"y"}))
        assert isinstance(segment, Segment)
        kept.append([id(item) for item in segment.once])
    assert len(kept[0]) == 1
    assert kept[0] == kept[1] == kept[2]
    # What is bound for one length is stale once another length has prepared other weights.
    first, second = run.state["w"], draw(4, 3)
    for length, w in ((2, first), (5, second), (2, first)):
        run.state["w"], x = w, draw(length, 3)
        np.testing.assert_allclose(run(x=x)["y"], x @ np.exp(w.T), rtol=1e-4)


def test_weights_that_were_read_once_cannot_be_written() -> None:
    model, _ = weighted()
    run = made(model)
    run(x=draw(2, 3))
    with pytest.raises(ValueError, match="read-only"):
        run.state["w"][...] = 0


def test_weights_that_were_copied_once_cannot_be_written() -> None:
    model = small("x: real[3];", "y = math.add(x, w);", blocks="@variable { w: real[3]; }")
    run, x, w = made(model), draw(3), draw(6)[::2]
    run.state["w"] = w
    np.testing.assert_array_equal(run(x=x)["y"], x + w)
    with pytest.raises(ValueError, match="read-only"):
        w[...] = 0
    run.state["w"] = other = draw(3)
    np.testing.assert_array_equal(run(x=x)["y"], x + other)
    other[...] = 0  # this one is read where it lies
    np.testing.assert_array_equal(run(x=x)["y"], x)


def test_what_a_call_updates_never_runs_once() -> None:
    model = small(
        "x: real[3];",
        "a = math.exp(v); y = math.add(x, a);",
        blocks="@variable { v: real[3]; } @update { v = math.mul(x, 0.5); }",
    )
    judge(Model(model.graph, model.library, {"v": draw(3)}), x=draw(3))


# --- states ------------------------------------------------------------------------------------------------------


COUNTER = "@variable { v: real[40]; } @update { v = math.add(v, x); }"


def test_states_that_are_read_whole_are_exchanged() -> None:
    text = "@variable { v: real[8, 8]; } @update { v = linalg.matmul(v, x); }"
    model = small("x: real[8, 8];", "y = math.neg(x);", blocks=text)
    run = made(Model(model.graph, model.library, {"v": np.eye(8, dtype=np.float32)}))
    places = []
    for step in range(1, 7):
        run(x=2 * np.eye(8, dtype=np.float32))
        np.testing.assert_array_equal(run.state["v"], 2**step * np.eye(8))
        places.append(run.state["v"].ctypes.data)
    assert len(set(places[2:])) == 2


def test_states_are_overwritten_and_what_somebody_holds_is_left_alone() -> None:
    model = small("x: real[40];", "y = math.neg(v);", blocks=COUNTER)
    run = made(Model(model.graph, model.library, {"v": np.zeros(40, np.float32)}))
    x = np.ones(40, np.float32)
    places = []
    for step in range(6):
        np.testing.assert_array_equal(run(x=x)["y"], np.full(40, -step))
        places.append(run.state["v"].ctypes.data)
    assert len(set(places)) == 1
    held, part = run.state["v"], None
    for step in range(6, 12):
        run(x=x)
        part = run.state["v"][3:5] if step == 8 else part
    np.testing.assert_array_equal(held, np.full(40, 6))
    np.testing.assert_array_equal(part, np.full(2, 9))


@pytest.mark.parametrize("backend", ["made", "reference"])
def test_states_may_begin_uniform_and_begin_anew(backend: str) -> None:
    """Zeros that take no memory are a start like any other; what was made of them is written again."""
    model = small("x: real[40];", "y = math.neg(v);", blocks=COUNTER)
    start = {"v": uniform((40,), 0, np.dtype(np.float32))}
    data = Model(model.graph, model.library, start)
    run = made(data) if backend == "made" else compile_model(data)
    x, places = np.ones(40, np.float32), []
    for _ in range(3):
        for step in range(3):
            np.testing.assert_array_equal(run(x=x)["y"], np.full(40, -step))
        places.append(run.state["v"].ctypes.data)
        held = np.array(run.state["v"])
        run.restart(start)
        np.testing.assert_array_equal(run.state["v"], np.zeros(40))
    run.restart({"v": held})
    np.testing.assert_array_equal(run(x=x)["y"], np.full(40, -3))
    np.testing.assert_array_equal(held, np.full(40, 3))  # what somebody gave is not written
    assert backend == "reference" or len(set(places)) == 1


def test_large_weights_are_drawn_as_small_ones_are() -> None:
    """Threads draw them while something else is done: who asks for them gets the numbers of their seed and name."""
    text = "@variable { w: real[700, 600]; v: real[3, 600]; }"
    model = small("x: real[600];", "y = math.neg(x);", blocks=text)
    run = made(model)
    for name, shape in (("w", (700, 600)), ("v", (3, 600))):
        random = np.random.default_rng([0, zlib.crc32(name.encode())])
        want = (random.standard_normal(shape) / np.sqrt(600)).astype(np.float32)
        np.testing.assert_array_equal(run.state[name], want)


def test_a_new_state_is_no_output() -> None:
    text = "@variable { v: real[40]; w: real[40]; } @update { v = y; w = y; }"
    model = small("x: real[40];", "y = math.add(v, x);", blocks=text)
    run = made(Model(model.graph, model.library, dict.fromkeys("vw", np.zeros(40, np.float32))))
    for step in range(1, 5):
        found = run(x=np.ones(40, np.float32))["y"]
        np.testing.assert_array_equal(found, np.full(40, step))
        found[...] = 99
        run.state["w"][...] = 77


# --- what goes wrong ---------------------------------------------------------------------------------------------


def test_a_step_without_value_is_told_as_the_reference_tells_it() -> None:
    model = small("x: real[4]; k: int[3];", "e = math.exp(x); y = layout.gather{axis=0}(e, k);")
    run, reference, x = made(model), compile_model(model), draw(4)
    for _ in range(2):
        fed = {"x": x, "k": np.asarray([0, 3, 1])}
        agree(run(**fed), reference(**fed))
        for wrong in ([0, 4, 1], [0, 1 << 40, 2]):
            codes = []
            for way in (run, reference):
                with pytest.raises(LamellaError) as caught:
                    way(x=x, k=np.asarray(wrong))
                codes.append([item.code for item in caught.value.findings])
            assert codes[0] == codes[1]


def test_a_state_stays_where_a_step_had_no_value() -> None:
    model = small(
        "k: int[2];",
        "y = layout.gather{axis=0}(v, k);",
        blocks="@variable { v: real[4]; } @update { v = math.add(v, 1.0); }",
    )
    run = made(Model(model.graph, model.library, {"v": np.zeros(4, np.float32)}))
    run(k=np.asarray([0, 1]))
    with pytest.raises(LamellaError):
        run(k=np.asarray([0, 9]))
    np.testing.assert_array_equal(run.state["v"], np.ones(4))


def test_what_has_no_kernel_stands_between_segments() -> None:
    body = "a = math.exp(x); p = layout.nonzero(a); b = math.neg(a); y = math.add(b, 1.0);"
    model = small("x: real[3, 2];", body, "y: real[3, 2]; p: int[~, ~]")
    run = judge(model, x=draw(3, 2))
    assert len(lists_of(run)) == 2


def test_bodies_of_loops_and_branches_are_segments() -> None:
    body = """
        s = math.max_reduce{axes=[0], squeeze=true}(x); c = math.gt(s, 0.0);
        z = if c then { e = math.exp(x); n = math.neg(e); yield n; } else math.exp(x);
        y = math.add(z, x);
    """
    model = small("x: real[4];", body)
    for sign in (1, -1):
        judge(model, x=np.full(4, sign, np.float32))


# --- threads -----------------------------------------------------------------------------------------------------


def test_the_number_of_threads_changes_no_bit() -> None:
    body = "a = math.exp(x); b = linalg.matmul(a, w); c = math.sum_reduce{axes=[1]}(b); y = math.mul(b, c);"
    model = small("x: real[64, 520]; w: real[520, 512];", body)
    fed = {"x": draw(64, 520) * 0.1, "w": draw(520, 512)}
    found = [made(model, threads)(**fed)["y"].tobytes() for threads in (1, 2, 3)]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("threads", [1, 2])
def test_calls_from_several_threads(threads: int) -> None:
    model = small("x: real[64, 2048];", "a = math.exp(x); b = math.sin(a); y = math.neg(b);")
    run, wrong = made(model, threads), []

    def work(seed: int) -> None:
        x = draw(64, 2048, seed=seed)
        expected = -np.sin(np.exp(x))
        for _ in range(10):
            if not np.allclose(run(x=x)["y"], expected, rtol=1e-4, atol=1e-5):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


# --- profiles ----------------------------------------------------------------------------------------------------


def test_a_profile_has_every_launch() -> None:
    body = "a = math.exp(x); p = layout.nonzero(a); y = math.neg(a);"
    run = made(small("x: real[3, 2];", body, "y: real[3, 2]; p: int[~, ~]"))
    times = run.profile({"x": draw(3, 2)})
    assert [item.operator for item in times] == ["math.exp", "layout.nonzero", "math.neg"]
    assert all(item.seconds >= 0 for item in times)
    assert [bool(item.kernel) for item in times] == [True, False, True]
    assert times[0].size == 48
    assert times[0].start <= times[2].start
