"""The registry of backends: defaults, forms, what is missing, and options that hold for all of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import lamella
from lamella.backend.executor.kernels import KernelExecutable
from lamella.backend.executor.stored import StoredExecutable
from lamella.base import optional
from lamella.cli import lamella as command
from lamella.pipeline import backends
from lamella.pipeline.backends import reference

PAGE = Path(__file__).parents[2] / "examples" / "llama" / "page.module"
TEXT = (
    "import math; graph main { @input { x: real[2]; } @output { y: real[2]; } @compose { y = math.neg(x); } }"
)


QUANTISED = TEXT.replace("import math;", "import math, quant;").replace(
    "math.neg(x); }",
    "math.neg(x); } @quantize { y: quant.zero_point_linear_quantize{zero_point=0, scale=0.5, bits=8}; }",
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.sknd"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_every_form_has_a_default_that_takes_it() -> None:
    for form, name in backends.DEFAULTS.items():
        takes = backends.REGISTRY[name].takes
        assert form in takes or (form == backends.UNIT and backends.GRAPH in takes)
    assert all(row.missing() is None for row in backends.ROWS if row.name != "cuda")


def test_graphs_run_by_kernels_unless_the_options_want_the_reference(model: Path, tmp_path: Path) -> None:
    quantised = tmp_path / "quantised.sknd"
    quantised.write_text(QUANTISED, encoding="utf-8")
    x = np.ones(2, np.float32)
    cases: list[tuple[Path, dict[str, Any], bool]] = [
        (model, {}, True),
        (model, {"threads": 1}, True),
        (model, {"dtype": "f64"}, False),
        (model, {"dtype": "f64", "strict_backend": True}, True),
        (quantised, {"quantized": True}, False),
    ]
    for path, options, by_kernels in cases:
        run = lamella.compile(path, None, **options)
        assert run(x=x)["y"].tolist() == [-1, -1]
        assert isinstance(run, KernelExecutable | StoredExecutable) is by_kernels, options


def test_without_llvm_the_reference_runs_and_says_so(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(optional, "import_module", missing)
    run = lamella.compile(model)
    assert run(x=np.ones(2, np.float32))["y"].tolist() == [-1, -1]
    (told,) = run.findings
    assert (told.severity, told.hint) == ("warning", "pip install llvmlite")
    assert "is not installed, so the graph runs on the reference" in told.message
    assert "llvmlite" in CliRunner().invoke(command, ["run", str(model)]).stderr
    with pytest.raises(lamella.LamellaError, match="'cpu' cannot run here: package 'llvmlite"):
        lamella.compile(model, backend="cpu")


def test_generating_without_llvm_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    words = ["generate", str(PAGE), "--tokens", "1,2", "--max-tokens", "1"]
    for also in ([], ["--json"]):
        found = CliRunner().invoke(command, [*words, *also])
        assert found.exit_code == 0, found.output
        assert "is not installed, so the graph runs on the reference" in (
            found.stdout if also else found.stderr
        )


def test_a_path_that_is_not_there_is_told_apart_from_an_ending_that_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "there").write_text(TEXT, encoding="utf-8")
    for name, message in {
        "there": "cannot tell the language",
        "nowhere": "there is no file or folder",
    }.items():
        with pytest.raises(lamella.LamellaError, match=message):
            lamella.compile(tmp_path / name)


def test_a_backend_that_is_missing_says_why(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "missing", lambda backend: "there is no such machine")
    with pytest.raises(lamella.LamellaError, match="'reference' cannot run here: there is no such machine"):
        lamella.compile(model, backend="reference")


@pytest.mark.parametrize("backend", [None, "reference", "cpu", "interpreter"])
def test_all_backends_refuse_a_quantisation_that_nobody_describes(model: Path, backend: str | None) -> None:
    with pytest.raises(lamella.LamellaError, match="describes no quantisation"):
        lamella.compile(model, backend=backend, quantized=True)
    assert lamella.compile(model, backend=backend)(x=np.ones(2, np.float32))["y"].tolist() == [-1, -1]


def test_commands_list_what_the_registry_holds(model: Path) -> None:
    for name in ("run", "generate", "train", "diff"):
        text = " ".join(CliRunner().invoke(command, [name, "--help"]).output.split())
        assert "[" + "|".join(backends.BACKENDS) + "]" in text.replace(" ", ""), name
    assert all(row.title in " ".join(backends.TITLES.split()) for row in backends.ROWS if row.is_offered)
    done = CliRunner().invoke(command, ["diff", str(model), "--backend", "reference", "--backend", "cpuu"])
    assert "did you mean 'cpu'?" in done.output
