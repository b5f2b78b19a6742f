"""An executable that nobody holds ends at once: its weights and machine code wait for no collection of garbage."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import numpy as np
import pytest

import lamella
from lamella.base.paths import shipped
from lamella.graph.model import Model


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_nothing_of_a_model_is_left(backend: str) -> None:
    gc.collect()
    gc.disable()
    try:
        path = shipped("models") / "models" / "llama.module"
        model = lamella.load(path, model="Llama", preset="tiny")
        assert isinstance(model, Model)
        run = lamella.compile(model, backend)
        for length in (5, 3):
            run(token_ids=np.zeros((1, length), np.int64))
        watched: list[ref[Any]] = [ref(run), ref(model.library)]
        del run, model
        assert [item() for item in watched] == [None, None]
    finally:
        gc.enable()
