"""`lamella diff` from the command line: folders, their binaries and modules, and two backends of one model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

import lamella
from lamella.base.arrays import Array
from lamella.base.dtype import F32
from lamella.cli import lamella as command
from lamella.graph.build import Builder
from lamella.graph.data.dat import write_dat
from lamella.graph.model import Model
from lamella.lang.skriptnd import write
from lamella.lang.skriptnd.nodes import Document
from lamella.ops.library import Library
from lamella.pipeline.diff import Side, comparison, measure, page_of, reduction, values
from lamella.pipeline.diff.flow import word_of
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd import execution
from tests.support.repository import ROOT

PAGE = ROOT / "examples" / "llama" / "page.module"
WIDE = """import linalg, math;
graph Wide {
    @input { x: real[n|9, 64]; }
    @output { y: real[~, ~]; }
    @variable { w: real[64, 3]; }
    @compose { z = linalg.matmul(x, w); y = math.exp(z); }
}
"""


def run(*words: str | Path, status: int = 0) -> Result:
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == status, done.output
    return done


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder of random numbers."""
    folder = tmp_path_factory.mktemp("diff") / "tiny"
    run("convert", PAGE, folder, "--seed", "1")
    return folder


def test_a_folder_agrees_with_its_own_binary(tiny: Path) -> None:
    """The folder leaves its extents open, the binary does not: the binary's sizes are taken."""
    binary = tiny.parent / "tiny.nac"
    run("convert", tiny, binary, "--shape", "B=1,T=4")
    for pair in ((tiny, binary), (binary, tiny)):
        report = json.loads(run("diff", *pair, "--json").stdout)
        assert report["compared"]
        assert [item["max_abs"] for item in report["outputs"]] == [0]
        assert not report["interface"]


def test_a_folder_agrees_with_its_own_module(tiny: Path) -> None:
    """A module has no weights of its own: those of the folder are taken, and that is said."""
    plain = shutil.copytree(tiny, tiny.parent / "plain")
    (
        plain / "architecture.module"
    ).unlink()  # now it is the library's Llama, whose parameters have other names
    done = run("diff", plain, PAGE)
    assert f"{PAGE}: weights of {plain}" in done.output
    assert "variables: 13 only left, 13 only right" in done.output
    assert "output logits: max abs 0" in done.output
    seeded = run("diff", tiny, PAGE, "--weights", tiny, "--shape", "B=2,T=3")
    assert "output logits: max abs 0" in seeded.output


def test_a_changed_weight_is_found_where_it_is_read(tiny: Path) -> None:
    other = tiny.parent / "other"
    run("convert", tiny, other)
    arrays: dict[str, Array] = load_file(other / "model.safetensors")
    name = next(name for name in arrays if "layers.1" in name and "down_proj" in name)
    arrays[name] = np.asarray(arrays[name]) * np.float32(1.01)
    save_file(arrays, other / "model.safetensors")
    done = run("diff", tiny, other, "--json", "-o", tiny.parent / "found", status=1)
    report = json.loads(done.stdout)
    assert [item["name"] for item in report["weights"]] == ["layers.1.mlp.down_weight"]
    assert report["first_diverging"]["operator"] == "llm.matmul"
    assert Path(report["reproducer"]).is_file()


def test_two_backends_of_one_model(tmp_path: Path) -> None:
    path = tmp_path / "wide.sknd"
    path.write_text(WIDE, encoding="utf-8")
    done = run("diff", path, "--backend", "reference", "--backend", "cpu", "--shape", "n=5")
    assert "backends: reference | cpu" in done.output
    assert "operations: 2 in both" in done.output
    strict = run(
        *("diff", path, "--backend", "nacvm", "--backend", "interpreter", "--shape", "n=5"),
        *("--tolerance", "0", "--json"),
        status=1,  # sums in another order
    )
    report = json.loads(strict.stdout)
    assert report["backends"] == ["nacvm", "interpreter"]
    assert report["first_diverging"]["operator"] == "linalg.matmul"
    assert 0 < report["first_diverging"]["max_abs"] < 1e-4


def test_names_of_extents_and_ends_may_differ(tmp_path: Path) -> None:
    text = WIDE
    (tmp_path / "one.sknd").write_text(text, encoding="utf-8")
    renamed = (
        text.replace("real[n|9, 64]", "real[rows|7, 64]").replace("x", "input").replace("einputp", "exp")
    )
    (tmp_path / "two.sknd").write_text(renamed, encoding="utf-8")
    done = run("diff", tmp_path / "one.sknd", tmp_path / "two.sknd")
    assert "input x: f32[4, 64] | absent" in done.output
    assert "output y: max abs 0" in done.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--backend", "cpu"), "one model on one backend has nothing to be compared with"),
        (("--backend", "cpu", "--backend", "npu"), "graph 'Wide' leaves 'n' open"),
        (("--backend", "cpu", "--backend", "cpu", "--shape", "m=3"), "no open extent 'm'"),
        (("--backend", "cpu", "--backend", "nacvm", "--backend", "cpu"), "3 backends are given"),
        ((str(ROOT / "examples/npu/conv_relu.nem"),), "there are no numbers beside 'conv_relu.nem'"),
        ((str(ROOT / "examples/kernels/ader.tensor"),), "is no graph but tensor"),
    ],
)
def test_what_cannot_be_compared_is_said(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    path = tmp_path / "wide.sknd"
    path.write_text(WIDE, encoding="utf-8")
    assert sentence in run("diff", path, *words, status=1).output


NET = """import linalg, nn;
graph Net {
    @input { x: real[4, 16]; }
    @output { y: real[4, 16]; }
    @variable { w: real[16, 16]; v: real[16, 16]; }
    @compose { h = linalg.matmul(x, w); g = nn.gelu(h); z = linalg.matmul(g, v); y = nn.softmax(z); }
}
"""


@pytest.fixture
def variants(tmp_path: Path) -> tuple[Path, Path]:
    """A model, and the same with other names and another activation."""
    other = NET.replace("nn.gelu(h)", 'nn.gelu{approximate="TANH"}(h)').replace("(g, v)", "(act, v)")
    (tmp_path / "a.sknd").write_text(NET, encoding="utf-8")
    (tmp_path / "b.sknd").write_text(other.replace("g = nn", "act = nn"), encoding="utf-8")
    return tmp_path / "a.sknd", tmp_path / "b.sknd"


def test_the_first_divergence_is_named_with_its_origin_and_cause(variants: tuple[Path, Path]) -> None:
    report = json.loads(run("diff", *variants, "--json", status=1).stdout)
    first = report["first_diverging"]
    assert (first["operator"], first["name"], first["right"]) == ("nn.gelu", "g", "act")
    assert first["causes"][0]["kind"] == "gelu variant"
    assert first["origin"][0].endswith("a.sknd:6 g: nn.gelu")
    pairs = {item["name"]: item for item in report["pairs"]}
    assert pairs["h"]["max_abs"] == 0
    assert pairs["z"]["relative"] > 1e-5
    assert 0.99 < pairs["z"]["cosine"] < 1
    text = run("diff", *variants, status=1).output
    assert "cause: gelu variant: left computes gelu (erf), right gelu (tanh)" in text


@pytest.mark.parametrize("more", [(), ("--reduce",)])
def test_a_reproducer_is_two_models_that_still_differ(
    variants: tuple[Path, Path], more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = variants[0].parent / "alone"
    report = json.loads(run("diff", *variants, "--json", "-o", folder, *more, status=1).stdout)
    assert report["reproducer_operations"] == [1, 1]
    assert sum(item.stat().st_size for item in folder.iterdir()) < 4096
    monkeypatch.chdir(folder)
    command_line, cause = (folder / "commands.txt").read_text(encoding="utf-8").splitlines()
    assert cause == "# cause: gelu variant: left computes gelu (erf), right gelu (tanh)"
    words = command_line.split()
    for again_by in (words[1:], [word.replace(".sknd", ".onnx") for word in words[1:]]):
        again = json.loads(run(*again_by, "--json", status=1).stdout)
        assert again["first_diverging"]["max_abs"] == pytest.approx(
            report["first_diverging"]["max_abs"], rel=1e-3
        )


def test_reducing_needs_a_folder(variants: tuple[Path, Path]) -> None:
    assert "say where with -o FOLDER" in run("diff", *variants, "--reduce", status=2).output


def test_the_page_stands_alone_and_takes_no_name_for_markup(tmp_path: Path) -> None:
    build = Builder(Library(), "<script>alert(1)</script>")
    x = build.input("<img src=x onerror=alert(2)>", F32, (2, 3))
    graph = build.finish(build.call("math.exp", x, results=("<b>y</b>",)))
    model = Model(graph, build.library)
    page = page_of(lamella.diff(model, model), 1e-5)
    assert "<script" not in page
    assert "<img" not in page
    assert "<b>" not in page
    assert "http:" not in page
    assert "https:" not in page
    assert "&lt;b&gt;y&lt;/b&gt;" in page


def test_given_inputs_and_corners(variants: tuple[Path, Path]) -> None:
    zeros = variants[0].parent / "zeros.npy"
    np.save(zeros, np.zeros((4, 16), np.float32))
    assert "output y: max abs 0" in run("diff", *variants, "--input", f"x={zeros}").output
    assert "there is no input 'q'" in run("diff", *variants, "--input", f"q={zeros}", status=1).output
    found = lamella.diff(variants[0], backends=("reference", "cpu"), corners=True, seed=3)
    values = found.values[0]["x"]
    assert np.isnan(values).any() or np.isinf(values).any() or (np.abs(values) < 1e-38).any()
    assert found.agrees(1e-5)


def test_results_without_a_finite_number_are_said(variants: tuple[Path, Path]) -> None:
    lost = variants[0].parent / "lost.npy"
    np.save(lost, np.full((4, 16), np.nan, np.float32))
    output = run("diff", *variants, "--input", f"x={lost}").output
    assert "output y: no number of it is finite on either side, so that nothing is compared" in output


def test_a_weight_that_differs_keeps_its_cause_alone(tmp_path: Path) -> None:
    """Alone it is an input of each side, which are related to each other as the weights were."""
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    text = WIDE.replace("64, 3", "64, 64")
    for name, numbers in (("a", weight), ("b", weight.T)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "main.sknd").write_text(text, encoding="utf-8")
        write_dat(folder / "w.dat", np.ascontiguousarray(numbers))
    options = ("--shape", "n=4")
    done = run("diff", tmp_path / "a", tmp_path / "b", *options, "-o", tmp_path / "alone", status=1)
    assert "cause: transposed weight" in done.output
    inputs = {path.stem: np.load(path) for path in (tmp_path / "alone").glob("*.npy")}
    again = lamella.diff(tmp_path / "alone" / "left.sknd", tmp_path / "alone" / "right.sknd", inputs=inputs)
    assert again.diverging is not None
    assert again.diverging.causes[0].kind == "transposed weight"


def test_long_names_are_cut(tmp_path: Path) -> None:
    name = "layer_" * 60
    texts = [NET.replace("h)", f"{name})").replace("h =", f"{name} ="), NET.replace("nn.gelu", "nn.silu")]
    texts[0] = texts[0].replace("w: real[16, 16]", f"{name}w: real[16, 16]").replace(", w)", f", {name}w)")
    paths = [tmp_path / "a.sknd", tmp_path / "b.sknd"]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    assert max(map(len, run("diff", *paths, status=1).output.splitlines())) < 300


def test_two_precisions_of_one_model(variants: tuple[Path, Path]) -> None:
    done = run("diff", variants[0], "--precision", "f32", "--precision", "f64")
    assert "(float32 against float64)" in done.output
    assert "max abs inf" not in done.output


def test_a_module_of_torch_is_run_by_torch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    other = torch.nn.Sequential(module[0], torch.nn.GELU(), torch.nn.LayerNorm(8, eps=0.1))
    x = torch.randn(3, 4)
    lamella.save(lamella.from_torch(module, (x,)), tmp_path / "m.nac")
    assert lamella.diff(module, tmp_path / "m.nac", args=(x,)).agrees(1e-5)
    first = lamella.diff(other, tmp_path / "m.nac", args=(x,)).diverging
    assert first is not None
    assert first.causes[0].kind == "eps"


def test_what_differs_only_where_it_is_fused_is_cut_out(
    variants: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend that is wrong only where nothing looks at the tensors between two operations."""
    plain = values.results_of_side

    def broken(side: Side, options: Options, inputs: Mapping[str, Array]) -> dict[str, Array]:
        found = plain(side, options, inputs)
        words = [word_of(node) for node in side.model.graph.nodes]
        if side.backend == "cpu" and ("nn.gelu", "linalg.matmul") in pairwise(words):
            return {name: array + np.float32(1) for name, array in found.items()}
        return found

    for module in (comparison, reduction):
        monkeypatch.setattr(module, "results_of_side", broken)
    folder = variants[0].parent / "fused"
    words = (
        "diff",
        variants[0],
        "--backend",
        "reference",
        "--backend",
        "cpu",
        "-o",
        folder,
        "--reduce",
        "--json",
    )
    report = json.loads(run(*words, status=1).stdout)
    assert "only where operations are fused" in report["notes"][0]
    assert report["reproducer_operations"] == [2, 2]


def test_lower_names_the_operation_that_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that loses an attribute is found out by the comparison of every stage with the one above it."""
    path = tmp_path / "net.sknd"
    path.write_text(NET.replace("nn.gelu(h)", "nn.relu{alpha=0.5}(h)"), encoding="utf-8")

    def lossy(document: Document) -> str:
        return write(document).replace("{alpha=0.5}", "")

    monkeypatch.setattr(execution, "write", lossy)
    done = run("lower", path, "--to", "sknd", "-o", tmp_path / "out", status=1)
    assert "first diverging operation: nn.relu -> g" in done.output
    assert "cause: function: " in done.output or "cause: attribute: 'alpha'" in done.output


KERNELS = """func @scale(%x: memref<f32x8>, %y: memref<f32x8>) {
  %a = constant 0.5 : f32
  %0 = constant 0 : index
  %8 = constant 8 : index
  foreach (%i):index=(%0),(%8) {
    %v = load %x[%i] : f32
    %w = arith.mul %a, %v : f32
    store %w, %y[%i]
  }
}
"""


def test_two_stages_of_kernels(tmp_path: Path) -> None:
    path = tmp_path / "scale.tensor"
    path.write_text(KERNELS, encoding="utf-8")
    run("lower", path, "--to", "tensor", "-o", tmp_path / "stages")
    stages = sorted((tmp_path / "stages").glob("*.tensor"))
    assert "max abs 0" in run("diff", stages[0], stages[-1]).output
    changed = tmp_path / "changed.tensor"
    changed.write_text(KERNELS.replace("0.5", "0.25"), encoding="utf-8")
    assert "first diverging kernel: scale.y" in run("diff", path, changed, status=1).output


def test_arrays_of_other_types_are_compared_by_their_numbers() -> None:
    one = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    gap = measure("w", one, one.astype(np.float64) + 0.25)
    assert gap.types == "float32 against float64"
    assert gap.largest == pytest.approx(0.25)
    assert measure("w", one, one[:1]).unlike == "float32[2, 3] against float32[1, 3]"
