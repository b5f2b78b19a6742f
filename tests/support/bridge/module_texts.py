"""Module DSL texts for tests: built, run on the reference, or asked what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import numpy.typing as npt

import lamella
from lamella.backend.reference import compile_model
from lamella.base.diagnostic import Diagnostic
from lamella.graph.model import Model


def written(folder: Path, text: str) -> Path:
    """A file with this text."""
    path = folder / "test.module"
    path.write_text(dedent(text), encoding="utf-8")
    return path


def run(
    folder: Path,
    text: str,
    inputs: dict[str, npt.ArrayLike],
    weights: dict[str, npt.NDArray[np.float64]] | None = None,
    file: Path | None = None,
    **options: Any,
) -> dict[str, npt.NDArray[np.float64]]:
    """What a text computes in 64 bits, with these weights in the place of random ones."""
    model = lamella.load(written(folder, text), dtype="f64", weights=file, **options)
    assert isinstance(model, Model)
    executable = compile_model(model, dtype="f64")
    for name, array in (weights or {}).items():
        assert executable.state[name].shape == array.shape
        executable.state[name] = array
    return executable(**inputs)


def findings(folder: Path, text: str, model: str | None = None) -> list[Diagnostic]:
    """What is wrong with a text."""
    return lamella.check(written(folder, text), model=model)


def codes(folder: Path, text: str) -> list[str]:
    """The codes of what is wrong with a text."""
    return [item.code for item in findings(folder, text)]
