"""The registry of backends: defaults, forms, what is missing, and options that hold for all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import lamella
from lamella.cli import lamella as command
from lamella.pipeline import backends
from lamella.pipeline.backends import reference

TEXT = (
    "import math; graph main { @input { x: real[2]; } @output { y: real[2]; } @compose { y = math.neg(x); } }"
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
    assert all(row.missing() is None for row in backends.ROWS)


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
