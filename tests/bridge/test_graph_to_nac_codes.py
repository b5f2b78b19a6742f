"""Integer graphs as NAC files: the same bits on its machine, and codes that are known again when they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import lamella
from lamella.backend.reference import compile_model
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import results_of
from tests.graph.test_quantize import network
from tests.support.graph.quantised import quantise


def test_the_machine_of_nac_gives_the_same_bits(tmp_path: Path) -> None:
    found = quantise(network())
    path = tmp_path / "network.nac"
    lamella.save(found.found.model, path)
    wanted = compile_model(found.found.model)(**found.fed)
    np.testing.assert_array_equal(lamella.compile(path)(**found.fed)["y"], wanted["y"])


def test_what_is_read_says_what_its_codes_stand_for(tmp_path: Path) -> None:
    found = quantise(network()).found.model
    path, text = tmp_path / "network.nac", tmp_path / "network.sknd"
    lamella.save(found, path)
    lamella.save(lamella.load(path), text)
    again = lamella.load(text)
    assert isinstance(again, Model)
    entries = [
        [
            item.quantization
            for node in model.graph.nodes
            for item in results_of(node)
            if isinstance(item, Tensor) and item.quantization is not None
        ]
        for model in (found, again)
    ]
    assert len(entries[0]) == 13
    assert entries[0] == entries[1]
