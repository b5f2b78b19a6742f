"""`lamella quantize`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import lamella
from tests.support.cli.skriptnd_models import call
from tests.support.repository import ROOT

NET = """import nn;

graph Net {
    @input { x: real[4, 6]; }
    @variable { w: real[5, 6]; v: real[3, 5]; }
    @output { y: real[4, 3]; }
    @compose { `a<b>` = nn.linear(x, w); r = nn.relu(`a<b>`); z = nn.linear(r, v); y = nn.softmax(z); }
}
""".replace("`a<b>`", "hidden")
QUICK = ("--backend", "reference")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.sknd").write_text(NET, encoding="utf-8")
    for name in ("digits.sknd", "digits.safetensors", "digits.npz"):
        shutil.copy(ROOT / "examples" / "digits" / name, tmp_path)
    return tmp_path


def test_the_report_as_lines_data_and_a_page(place: Path) -> None:
    words = ("--data", "digits.npz", "--samples", "8", *QUICK)
    lines = call("quantize", "digits.sknd", *words, "-o", "q.sknd").output.splitlines()
    assert lines[0].startswith("calibrated on 8 batches of 'digits.npz'")
    assert {line.split()[0] for line in lines[2:5]} == {"conv1", "conv2", "scores"}
    assert lines[-1] == "q.sknd"
    found = json.loads(call("quantize", "digits.sknd", *words, "--html", "r.html", "--json").output)
    assert found["ok"]
    assert {row["scheme"] for row in found["layers"]} == {"int8"}
    assert found["bytes"]["after"] < found["bytes"]["before"]
    assert 0 < found["error"] < 0.05
    page = (place / "r.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "conv2" in page
    assert "src=" not in page
    image = np.load("digits.npz")["image"][:1].astype(np.float32)
    exact, given = (lamella.compile(name)(image=image)["scores"] for name in ("digits.sknd", "q.sknd"))
    assert np.abs(given - exact).max() < 0.05 * np.abs(exact).max()


def test_without_data_inputs_are_random_and_that_is_said(place: Path) -> None:
    found = call("quantize", "net.sknd", "--seed", "3", "--scheme", "w8", *QUICK)
    assert "calibrated on 4 batches of random inputs from seed 3" in found.output
    assert "random values are used, from seed 3" in found.output
    assert found.exit_code == 0


def test_text_that_was_written_is_read_again(place: Path) -> None:
    for scheme in ("int8", "w4a8", "w8", "w4"):
        target = f"{scheme}.sknd"
        assert (
            call("quantize", "net.sknd", "--scheme", scheme, "--no-rank", *QUICK, "-o", target).exit_code == 0
        )
        assert call("check", target).exit_code == 0
        assert call("run", target, *QUICK).exit_code == 0


@pytest.mark.parametrize("ending", ["nac", "onnx"])
@pytest.mark.parametrize("scheme", ["int8", "w4a8", "w8", "w4"])
def test_all_schemes_leave_in_other_formats(place: Path, scheme: str, ending: str) -> None:
    words = ("digits.sknd", "--data", "digits.npz", "--samples", "2", "--scheme", scheme, "--no-rank", *QUICK)
    assert call("quantize", *words, "-o", "q.sknd").exit_code == 0
    found = call("quantize", *words, "-o", f"q.{ending}")
    assert found.exit_code == 0, found.output
    image = np.load("digits.npz")["image"][:1].astype(np.float32)
    ours, theirs = (lamella.compile(name)(image=image)["scores"] for name in ("q.sknd", f"q.{ending}"))
    assert np.abs(theirs - ours).max() < 0.02 * np.abs(ours).max()


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("net.sknd", "--method", "best"), 1, "'best' is no method of calibration"),
        (("net.sknd", "--method", "mse:3"), 1, "is no method of calibration"),
        (("net.sknd", "--per", "group:8"), 1, "groups have no scales"),
        (("net.sknd", "--per", "row"), 1, "'row' is no granularity"),
        (("net.sknd", "--scheme", "w8", "--method", "kl"), 2, "--method cannot have an effect"),
        (("net.sknd", "--scheme", "int3"), 2, "is not one of"),
        (("net.sknd", "-o", "q.txt"), 1, "has no ending of a graph"),
        (("net.sknd", "--data", "gone.npz"), 1, "cannot read 'gone.npz'"),
        (("digits.sknd", "-o", "digits.nac", "--scheme", "w8"), 0, "digits.nac"),
        (("digits.npz",), 1, ""),
        (("net.sknd", "--samples", "4"), 2, "--samples cannot have an effect"),
    ],
)
def test_what_is_wrong_is_said(place: Path, words: tuple[str, ...], status: int, says: str) -> None:
    found = call("quantize", *words, "--no-rank", *QUICK)
    assert found.exit_code == status, found.output
    assert says in found.output
    assert "Traceback" not in found.output


def test_the_weights_of_the_source_are_never_replaced(place: Path) -> None:
    found = call("quantize", "digits.sknd", "--no-rank", *QUICK, "-o", "digits.sknd")
    before = (ROOT / "examples" / "digits" / "digits.safetensors").read_bytes()
    assert found.exit_code == 1
    assert (place / "digits.safetensors").read_bytes() == before
