"""Checkpoints of transformers through the models of the library: the same logits, and the same bytes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import lamella
from lamella.pipeline.module.export import export
from lamella.pipeline.module.folders import architectures
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import MODELS, class_named, first_of, inputs_of, results_of, save

ARCHITECTURES = sorted(name for name in architectures() if name[0].isupper())
CLOSE = 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_a_checkpoint_gives_the_logits_of_transformers_and_goes_back_byte_by_byte(
    name: str, tmp_path: Path
) -> None:
    model = save(name, tmp_path / "in", seed=3)
    loaded = lamella.load(tmp_path / "in")
    inputs = inputs_of(loaded, length=13, seed=len(name))
    wanted = results_of(model, inputs)
    found = first_of(lamella.compile(loaded)(**inputs))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())

    export(tmp_path / "in", tmp_path / "out", Options())
    before, after = (load_file(tmp_path / part / "model.safetensors") for part in ("in", "out"))
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert (value.shape, value.tobytes()) == (after[key].shape, after[key].tobytes()), key
    again = type(model).from_pretrained(tmp_path / "out").eval()
    # Not bit by bit: its triangular solvers take other roads for numbers that lie elsewhere.
    found = results_of(again, inputs)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_export_without_a_source_is_one_that_transformers_loads(architecture: str, tmp_path: Path) -> None:
    """Random weights of a preset: names and ranges come from the model's text alone."""
    path, model = architectures()[architecture]
    chosen: dict[str, Any] = {"model": model, "preset": "tiny"}
    export(path, tmp_path, Options(**chosen, seed=5))
    loaded, report = class_named(architecture).from_pretrained(tmp_path, output_loading_info=True)
    # How many batches a norm has seen while it was trained is nothing that a model computes with.
    assert all(name.endswith(".num_batches_tracked") for names in report.values() for name in names)
    ours = lamella.load(path, **chosen)
    inputs = inputs_of(ours, length=9)
    found = first_of(lamella.compile(ours, "reference", seed=5)(**inputs))
    wanted = results_of(loaded.eval(), inputs)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())
