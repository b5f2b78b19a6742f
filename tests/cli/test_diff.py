"""`lamella diff` from the command line: folders, their binaries and modules, and two backends of one model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

from lamella.base.arrays import Array
from lamella.cli import lamella as command
from lamella.pipeline.diff import measure
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
        (("--backend", "cpu", "--backend", "npu"), "there is no backend 'npu' for a graph"),
        (("--backend", "cpu", "--backend", "cpu", "--shape", "m=3"), "no open extent 'm'"),
        (("--backend", "cpu", "--backend", "nacvm", "--backend", "cpu"), "3 backends are given"),
        ((str(ROOT / "examples/npu/conv_relu.nem"),), "is no graph but nem"),
    ],
)
def test_what_cannot_be_compared_is_said(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    path = tmp_path / "wide.sknd"
    path.write_text(WIDE, encoding="utf-8")
    assert sentence in run("diff", path, *words, status=1).output


def test_arrays_of_other_types_are_compared_by_their_numbers() -> None:
    one = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    gap = measure("w", one, one.astype(np.float64) + 0.25)
    assert gap.types == "float32 against float64"
    assert gap.largest == pytest.approx(0.25)
    assert measure("w", one, one[:1]).unlike == "float32[2, 3] against float32[1, 3]"
