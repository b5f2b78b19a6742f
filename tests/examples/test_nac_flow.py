"""The experts and the ensemble of the examples, judged by NumPy on the same weights."""

from __future__ import annotations

import numpy as np
import pytest

import lamella
from lamella.base.arrays import Array
from lamella.bridge.nac_to_graph.weights import read_weight
from lamella.pipeline.nac.model import Model
from tests.support.repository import ROOT

FOLDER = ROOT / "examples" / "nac-app"


def weights_of(name: str) -> dict[str, Array]:
    """The weights of an example by name."""
    model = lamella.load(FOLDER / f"{name}.nacs")
    assert isinstance(model, Model)
    names = {item.id: item.name for item in model.file.parameters}
    return {names[item.parameter]: read_weight(item, model.file.header.method) for item in model.file.tensors}


def merge(results: list[Array], threshold: float) -> Array:
    """The coherence rule, where some results agree."""
    kept = []
    for number, item in enumerate(results):
        mean = np.mean([other for place, other in enumerate(results) if place != number], axis=0)
        if np.sum(item * mean) / (np.linalg.norm(item) * np.linalg.norm(mean)) >= threshold:
            kept.append(item)
    assert kept
    return np.asarray(np.mean(kept, axis=0))


@pytest.mark.parametrize("scale", [3.0, 0.1, 0.2])
def test_experts(scale: float) -> None:
    w = weights_of("experts")
    x = (scale * np.sign(w["router"]) * np.array([[1, 2, 1, 1]])).astype(np.float32)
    first, second = (x @ w[f"{name}.weight"].T + w[f"{name}.bias"] for name in ("first", "second"))
    sure = (x @ w["router"].T).item() > 1
    assert sure == (scale == 3.0)
    found = lamella.compile(FOLDER / "experts.nacs")(x=x)["y"]
    np.testing.assert_allclose(found, first if sure else merge([first, second], 0.5), rtol=1e-5, atol=1e-6)


def test_an_ensemble_leaves_out_who_disagrees() -> None:
    w = weights_of("ensemble")
    x = np.array([[1, -2, 0.5, 3]], np.float32)
    results = [x @ w[name].T for name in ("first", "second", "third", "fourth")]
    found = lamella.compile(FOLDER / "ensemble.nacs")(x=x)["y"]
    np.testing.assert_allclose(found, merge(results, 0.6), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found, np.mean(results[:3], axis=0), rtol=1e-5, atol=1e-6)
