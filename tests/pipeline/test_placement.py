"""A backend that is asked for is the one that runs: kernels are counted, and what is no kernel is named."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import lamella
from docs.generate import repaired
from lamella.backend.cpu.run.kernels import CompiledKernels as Compiled
from lamella.backend.cpu.run.lists import NativeList
from lamella.backend.executor import kernels, specialised
from lamella.backend.executor.kernels import KernelExecutable
from lamella.backend.interpreter import InterpretedKernels as Interpreted
from lamella.base import optional
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.placement import KERNEL, REFERENCE, placement_of
from lamella.cli import lamella as command
from lamella.pipeline.decoding import Sampling
from lamella.pipeline.module.generate import Generator
from lamella.pipeline.options import Options
from tests.support.repository import TESTS

BACKENDS = ("cpu", "interpreter")
LAYER = """\
import math, nn, linalg, layout;
graph Layer {
    @input { x: real[b|8, t|64, 6]; keep: int[k|3]; }
    @variable { w: real[1, 5, 6]; }
    @output { y: real[b, t, 5]; z: real[~, ~]; }
    @compose {
        h = linalg.matmul{transB=true}(x, w);
        y = nn.softmax{axes=[2]}(h);
        s = math.sum_reduce{axes=[2], squeeze=true}(x);
        z = layout.gather{axis=1}(s, keep);
    }
}
"""
MIXED = """\
import math, layout, rand;
graph Mixed {
    @input { x: real[n|8, 3]; }
    @output { y: real[n, 3]; places: int[~, ~]; r: real[4]; twice: int[~, ~]; }
    @compose {
        y = with a: real[n, 3] = x do..(2) math.neg(a);
        places = layout.nonzero(x);
        twice = math.add(places, places);
        r = rand.uniform{shape=[4]}();
    }
}
"""
KEPT = """\
import math;
graph Sum {
    @input { x: real[n|4, 3]; }
    @variable { total: real[3]; }
    @output { y: real[n, 3]; }
    @compose { y = math.add{rhs_align=1}(x, total); z = math.sum_reduce{axes=[0], squeeze=true}(y); }
    @update { total = z; }
}
"""
QUANTIZED = """\
import nn, quant;
graph G {
    @input { x: real[n|4, 8]; w: real[6, 8]; }
    @output { y: real[n, 6]; }
    @compose { y = nn.linear(x, w); }
    @quantize {
        x: quant.zero_point_linear_quantize{zero_point=0, scale=0.25, bits=8};
        y: quant.min_max_linear_quantize{min=-4.0, max=4.0, bits=6};
    }
}
"""
EMPTY = """\
import linalg;
operator all { @input { x: real[n, k]; } @output { y: real[n]; } @lower { y[i,] *= x[i, j], i < n, j < k; } }
operator most { @input { x: real[n, k]; } @output { y: real[n]; } @lower { y[i,] >= x[i, j], i < n, j < k; } }
graph G {
    @input { x: real[n|8, k|8]; }
    @output { a: real[n]; b: real[n]; s: real[n, n]; }
    @compose { a = all(x); b = most(x); s = linalg.matmul{transB=true}(x, x); }
}
"""
PAGE = TESTS.parent / "examples" / "llama" / "page.module"
BAD = sorted((TESTS / "lang" / "skriptnd" / "bad" / "kernels").glob("*.sknd"))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each kernel is launched, by machine code or by the interpreter."""
    counted: Counter[str] = Counter()
    for kind in (Compiled, Interpreted):
        original = kind.call

        def call(self: Any, name: str, *rest: Any, inner: Any = original, **more: Any) -> None:
            counted[name] += 1
            inner(self, name, *rest, **more)

        monkeypatch.setattr(kind, "call", call)
    walked = NativeList.run

    def walk(self: NativeList, *rest: Any) -> bool:
        counted.update(launch.kernel for launch in self.whole.launches)
        return walked(self, *rest)

    monkeypatch.setattr(NativeList, "run", walk)
    return counted


def written(folder: Path, text: str) -> Path:
    path = folder / "m.sknd"
    path.write_text(text, encoding="utf-8")
    return path


def call(*words: object, fails: bool = False) -> Result:
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code != 0) == fails, done.output
    return done


def drawn(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, other in expected.items():
        np.testing.assert_allclose(found[name], other, rtol=2e-5, atol=2e-6, err_msg=name)


# --- open extents -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_run_for_the_extents_of_every_call(
    backend: str, tmp_path: Path, launches: Counter[str]
) -> None:
    path = written(tmp_path, LAYER)
    run, judge = lamella.compile(path, backend, strict_backend=True), lamella.compile(path, "reference")
    assert not placement_of(run)
    assert not placement_of(judge)
    for b, t, k in ((1, 1, 1), (2, 7, 3), (1, 1, 1), (3, 2, 2)):
        launches.clear()
        fed = {"x": drawn((b, t, 6), b), "keep": np.arange(k) % t}
        agree(run(**fed), judge(**fed))
        places = placement_of(run)
        assert places
        assert all(item.where == KERNEL for item in places)
        assert sum(launches.values()) >= len(places) - 2  # a copy that only renames is not launched


def test_extents_of_nothing_give_what_the_reference_gives(tmp_path: Path) -> None:
    path = written(tmp_path, EMPTY)
    run, judge = (
        lamella.compile(path, "interpreter", strict_backend=True),
        lamella.compile(path, "reference"),
    )
    for shape in ((2, 3), (2, 0), (0, 3), (0, 0), (1, 1)):
        agree(run(x=drawn(shape)), judge(x=drawn(shape)))


def test_a_few_sets_of_extents_stay_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST_READY", 2)
    run = lamella.compile(written(tmp_path, KEPT), "interpreter")
    assert isinstance(run, KernelExecutable)
    made: list[Mapping[str, int]] = []
    runner = run._context.runner
    assert isinstance(runner, kernels.KernelRunner)
    inner = runner._specialise

    def specialise(extents: Mapping[str, int]) -> specialised.Specialised:
        made.append(extents)
        return inner(extents)

    monkeypatch.setattr(runner, "_specialise", specialise)
    for n in (1, 2, 1, 3, 1, 2):
        run(x=np.zeros((n, 3), np.float32))
    assert [item["n"] for item in made] == [1, 2, 3, 2]


def test_what_does_not_fit_is_found_alike(tmp_path: Path) -> None:
    text = "import math; graph G { @input { x: real[n|8, 2]; w: real[4, 2]; } @output { y: real[~, 2]; } "
    path = written(tmp_path, text + "@compose { y = math.add(x, w); } }")
    for n in (1, 3, 9):
        codes = []
        for backend in ("reference", "cpu"):
            with pytest.raises(LamellaError) as caught:
                lamella.compile(path, backend)(x=np.zeros((n, 2), np.float32))
            codes.append([(item.code, item.message) for item in caught.value.findings])
        assert codes[0] == codes[1]


def test_variables_are_kept_from_one_extent_to_the_next(tmp_path: Path, launches: Counter[str]) -> None:
    path = written(tmp_path, KEPT)
    runs = [lamella.compile(path, backend) for backend in ("reference", "cpu")]
    for n in (2, 4, 2, 1):
        x = drawn((n, 3), n)
        agree(*(dict(run(x=x)) for run in runs))
    assert launches


def test_what_quantises_is_a_kernel_too(tmp_path: Path, launches: Counter[str]) -> None:
    path = written(tmp_path, QUANTIZED)
    fed = {"x": drawn((3, 8)), "w": drawn((6, 8), 1)}
    run = lamella.compile(path, "cpu", quantized=True, strict_backend=True)
    agree(run(**fed), lamella.compile(path, "reference", quantized=True)(**fed))
    assert any(name.startswith(("quant", "math")) for name in launches)
    plain = lamella.compile(path, "cpu")(**fed)["y"]
    assert not np.array_equal(plain, run(**fed)["y"])


# --- every kind of model ------------------------------------------------------------------------------------


def test_a_file_of_nac_runs_by_kernels(tmp_path: Path, launches: Counter[str]) -> None:
    path = written(tmp_path, LAYER)
    call("convert", path, tmp_path / "m.nac")
    fed = {"x": drawn((2, 5, 6)), "keep": np.asarray([1, 4])}
    run = lamella.compile(tmp_path / "m.nac", "cpu", strict_backend=True)
    agree(run(**fed), lamella.compile(tmp_path / "m.nac")(**fed))
    assert launches
    with pytest.raises(InputError, match="cannot have an effect without backend='cpu'"):
        lamella.compile(tmp_path / "m.nac", strict_backend=True)


def test_tokens_are_chosen_by_kernels_from_the_prompt_on(launches: Counter[str]) -> None:
    sampling, start = Sampling(max_tokens=4), [1, 2, 3]
    chosen = []
    for backend in ("reference", "cpu"):
        options = Options(threads=1, strict_backend=backend == "cpu", config={"n_layers": 1})
        generator = Generator(PAGE, 8, options, backend)
        tokens = generator.run(start, sampling)
        launches.clear()
        first = next(tokens)
        assert bool(launches) == (backend == "cpu")
        chosen.append([first, *tokens])
    assert chosen[0] == chosen[1]
    words = ("--tokens", "1,2,3", "--max-tokens", 1, "--set", "n_layers=1")
    done = call("generate", PAGE, *words, "--backend", "cpu", "--json")
    placement = json.loads(done.stdout)["placement"]
    assert placement["kernels"] == placement["operations"] > 20


def test_what_is_watched_runs_on_the_backend(tmp_path: Path, launches: Counter[str]) -> None:
    path = tmp_path / "m.module"
    path.write_text(
        "module M(d: int = 4):\n  forward:\n    in: x: [B, d]\n    out: y: [B, d]\n    graph:\n"
        '      x -> relu() -> y @probe(name="p")\n',
        encoding="utf-8",
    )
    done = [call("run", path, "--observe", "--backend", backend).stdout for backend in ("reference", "cpu")]
    assert done[0] == done[1]
    assert "probe p" in done[0]
    assert launches


# --- what is no kernel --------------------------------------------------------------------------------------


def test_what_is_no_kernel_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, MIXED)
    run = lamella.compile(path, "cpu")
    fed = {"x": np.asarray([[0, 1, 2], [3, 0, 0]], np.float32)}
    agree(dict(run(**fed)), dict(lamella.compile(path, "reference")(**fed)))
    places = {item.operation: item for item in placement_of(run)}
    assert places["math.neg"].where == KERNEL
    left = {name: item.reason for name, item in places.items() if item.where == REFERENCE}
    assert left.keys() == {"do", "layout.nonzero", "math.add", "rand.uniform"}
    assert "control flow" in left["do"]
    assert "no formula" in left["rand.uniform"]
    assert "only known in the run" in left["math.add"]
    done = call("run", path, "--backend", "cpu")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("cpu:")]
    assert line.startswith("cpu: 1 of 5 operations as kernels; 4 on the reference: do (")
    assert all(name in line for name in left)
    told = json.loads(call("run", path, "--backend", "cpu", "--json").stdout)["placement"]
    assert (told["operations"], told["kernels"]) == (5, 1)
    assert {item["operation"] for item in told["reference"]} == left.keys()
    assert line in call("run", path).stderr
    assert "of 5" not in call("run", path, "--backend", "reference").stderr


def test_check_says_what_does_not_run_as_a_kernel(tmp_path: Path) -> None:
    path = written(tmp_path, MIXED)
    assert lamella.check(path) == []
    found, told = lamella.check(path, backend="cpu")
    assert (found.code, found.severity) == ("SKR386", "note")
    assert (told.code, told.severity) == ("SKR387", "note")
    assert "leaves n open" in told.message
    for words in ("1 of 5 operations", "do (control flow", "rand.uniform (it has no formula)"):
        assert words in found.message
    assert "note[SKR386]: cpu: 1 of 5 operations as kernels" in call("check", path, "--backend", "cpu").stderr
    path.write_text(LAYER, encoding="utf-8")
    assert [item.code for item in lamella.check(path, backend="cpu")] == ["SKR387"]
    (wrong,) = lamella.check(path, backend="nacvm")
    assert "cannot have an effect" in wrong.message


def test_strictness_names_each_operation(tmp_path: Path) -> None:
    path = written(tmp_path, MIXED)
    done = call("run", path, "--backend", "cpu", "--strict-backend", fails=True)
    assert done.output.count("SKR386") == 4
    assert "layout.nonzero" in done.output
    with pytest.raises(LamellaError) as caught:
        lamella.compile(path, "interpreter", strict_backend=True)(x=np.ones((2, 3), np.float32))
    assert [item.code for item in caught.value.findings] == ["SKR386"] * 4
    assert call("run", path, "--strict-backend", fails=True).output.count("SKR386") == 4
    told = call("run", path, "--strict-backend", "--backend", "reference", fails=True).output
    assert "--strict-backend cannot have an effect without --backend cpu|cuda|interpreter" in told


def test_a_step_that_the_reference_takes_over_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No formula is known that does it: a kernel that finds no value where the reference finds one."""
    path = written(tmp_path, LAYER)
    fed = {"x": drawn((1, 2, 6)), "keep": np.asarray([1])}
    monkeypatch.setattr(specialised.SpecialisedRunner, "_run", lambda self, launched, held: False)
    monkeypatch.setattr(NativeList, "run", lambda self, *rest: False)
    run = lamella.compile(path, "cpu")
    run(**fed)
    assert {item.reason for item in placement_of(run)} == {specialised.NO_VALUE}
    with pytest.raises(LamellaError, match="had no value"):
        lamella.compile(path, "cpu", strict_backend=True)(**fed)


def test_a_backend_that_is_not_installed_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(optional, "import_module", missing)
    with pytest.raises(LamellaError, match="llvmlite"):
        lamella.compile(written(tmp_path, LAYER), "cpu")(x=drawn((1, 2, 6)), keep=np.asarray([1]))


def test_a_plan_takes_no_backend_that_it_does_not_run_on(tmp_path: Path) -> None:
    for words in (["--backend", "cpu"], ["--strict-backend"]):
        told = call("run", tmp_path / "m.nac", "--plan", *words, fails=True).output
        assert f"{words[0]} cannot have an effect on" in told


def test_strictness_is_for_graphs(tmp_path: Path) -> None:
    path = tmp_path / "k.tensor"
    path.write_text("func @k(%x: memref<f32x4>) { }\n", encoding="utf-8")
    for words in (["run", path], ["lower", path, "--to", "llvm"]):
        told = call(*words, "--strict-backend", fails=True).output
        assert "--strict-backend cannot have an effect on" in told


# --- lowering -----------------------------------------------------------------------------------------------


def test_lowering_asks_for_open_extents_and_counts_what_it_compared(tmp_path: Path) -> None:
    path, out = written(tmp_path, LAYER), tmp_path / "out"
    done = call("lower", path, "--to", "tensor", "-o", out, fails=True)
    assert "leaves 'b', 'k', 't' open" in done.output
    assert "--shape b=8,k=3,t=8" in done.output
    assert not out.exists()
    done = call("lower", path, "--to", "tensor", "-o", out, "--shape", "b=2,k=1,t=3")
    counted = re.search(r"largest difference \S+, (\d+) of (\d+) operations by kernels", done.stdout)
    assert counted is not None
    assert counted[1] == counted[2]
    assert not done.stderr


def test_lowering_lists_what_gets_no_kernel(tmp_path: Path) -> None:
    path = written(tmp_path, MIXED)
    words = ("lower", path, "--to", "tensor", "--shape", "n=2")
    done = call(*words, "-o", tmp_path / "out")
    assert "1 of 5 operations by kernels" in done.stdout
    assert "rand.uniform (it has no formula)" in done.stderr
    assert "func @math_neg" in call(*words).stdout
    assert "layout.nonzero" in call(*words).stderr
    told = json.loads(call(*words, "--json", "-o", tmp_path / "out").stdout)
    assert told["placement"]["kernels"] == 1
    assert len(told["placement"]["reference"]) == 4
    assert "layout.nonzero" in call("lower", path, "--to", "llvm", "--shape", "n=2").stderr
    assert "SKR386" in call(*words, "--strict-backend", fails=True).output


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_wrong_programs_are_refused_where_kernels_are_wanted(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    line, code = next(
        (number, found[1])
        for number, line in enumerate(text.splitlines(), 1)
        if (found := re.search(r"# expect (SKR\d+)", line))
    )
    with pytest.raises(LamellaError) as caught:
        lamella.lower(written(tmp_path, text), to="tensor", strict_backend=True)
    assert [(item.code, item.span.line) for item in caught.value.findings] == [(code, line)]
    lamella.lower(written(tmp_path, repaired(text)), to="tensor", strict_backend=True)


# --- arrays of any kind -------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_arrays_of_any_layout_are_taken_and_never_written(backend: str, tmp_path: Path) -> None:
    run = lamella.compile(written(tmp_path, LAYER), backend)
    plain, keep = drawn((2, 4, 6)), np.asarray([1, 3])
    expected = run(x=plain, keep=keep)
    wide = np.zeros((4, 8, 12), np.float32)
    wide[::2, ::2, ::2] = plain
    frozen = plain.copy()
    frozen.setflags(write=False)
    unaligned = np.frombuffer(b"\0" + plain.tobytes(), np.uint8)[1:].view(np.float32).reshape(plain.shape)
    kinds = (wide[::2, ::2, ::2], np.asfortranarray(plain), plain[::-1].copy()[::-1], frozen, unaligned)
    for array in (*kinds, plain.astype(">f4"), plain.astype(np.float64), plain.tolist()):
        before = np.array(array)
        agree(run(x=array, keep=keep.astype(np.uint8)), expected)
        np.testing.assert_array_equal(before, array)
    for wrong in ({"x": plain[0]}, {"x": plain > 0}, {"x": plain.astype(complex)}, {"keep": keep + 0.5}):
        with pytest.raises(LamellaError):
            run(**{"x": plain, "keep": keep, **wrong})


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_what_is_put_into_the_state_is_tested(backend: str, tmp_path: Path) -> None:
    run: Any = lamella.compile(written(tmp_path, LAYER), backend)
    fed = {"x": drawn((1, 2, 6)), "keep": np.asarray([1])}
    w = drawn((1, 5, 6), 3)
    run.state["w"] = w
    expected = run(**fed)
    for same in (w.astype(np.float64), np.asfortranarray(w), w.astype(">f4"), w.tolist()):
        run.state["w"] = same
        agree(run(**fed), expected)
    for wrong in (w[:, :4], w.T, w[0], w.astype(np.int64), "w", None, [[1.0], [1.0, 2.0]]):
        run.state["w"] = wrong
        with pytest.raises(LamellaError):
            run(**fed)
    del run.state["w"]
    with pytest.raises(LamellaError, match="variable 'w'"):
        run(**fed)
