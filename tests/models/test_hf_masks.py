"""Sequences of several lengths in one call: masks of padding and kinds of tokens, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from tests.support.cli.skriptnd_models import call
from tests.support.models.checkpoints import first_of, inputs_of, results_of, save

LENGTHS = (4, 9)
KINDS = ("bert", "roberta masked", "deberta")
NAMES = (*KINDS, "distilbert classes", "deberta masked", "modernbert classes", "t5", "bart")


def padded(model: Any, loaded: Any, name: str) -> dict[str, np.ndarray[Any, Any]]:
    """Random inputs of two lengths, filled up with the padding token."""
    inputs = inputs_of(loaded, length=LENGTHS[1], seed=2)
    ids = inputs["token_ids"]
    mask = np.ones_like(ids)
    mask[0, LENGTHS[0] :] = 0
    ids[mask == 0] = model.config.pad_token_id
    inputs["attention_mask"] = mask
    if name in KINDS:
        inputs["token_type_ids"] = np.broadcast_to(np.arange(ids.shape[1]) // 3 % 2, ids.shape).copy()
    return inputs


@pytest.mark.parametrize("name", NAMES)
def test_padding_is_not_seen(name: str, tmp_path: Path) -> None:
    model = save(name, tmp_path, seed=3)
    inputs = padded(model, lamella.load(tmp_path), name)
    loaded = lamella.load(tmp_path, contents=inputs)
    assert {item.name for item in loaded.graph.inputs} == inputs.keys()  # type: ignore[attr-defined]
    found = first_of(lamella.compile(loaded, backend="reference")(**inputs))
    wanted = results_of(model, inputs)
    # What stands at padding itself is nothing that anybody reads.
    seen = inputs["attention_mask"] if found.shape[:2] == inputs["token_ids"].shape else np.ones(len(found))
    rows = np.asarray(seen, bool)
    np.testing.assert_allclose(found[rows], wanted[rows], rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_the_command_takes_them_as_inputs(tmp_path: Path) -> None:
    model = save("bert classes", tmp_path, seed=3)
    inputs = padded(model, lamella.load(tmp_path), "bert")
    words = []
    for key, item in inputs.items():
        np.save(tmp_path / f"{key}.npy", item)
        words += ["--input", f"{key}={tmp_path / key}.npy"]
    found = call("run", tmp_path, *words, "--backend", "reference", "--output", tmp_path / "out")
    assert found.exit_code == 0, found.output
    np.testing.assert_allclose(
        np.load(tmp_path / "out" / "logits.npy"), results_of(model, inputs), rtol=0, atol=1e-5
    )
