"""Graphs whose launches cannot be a list run operation by operation, fused ones by what they are composed of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend.cpu.run.lists import NativeMachine
from lamella.backend.executor.specialised import SpecialisedRunner
from lamella.base.errors import Unsupported
from lamella.graph.nodes import Operation

TEXT = """
import math, nn, layout;
graph G {
    @input { x: real[3, 8, 5]; }
    @output { y: real[3, 5, 8]; }
    @compose {
        t = layout.transpose{perm=[0, 2, 1]}(x);
        s = math.add(t, 1.0);
        y = nn.sigmoid(s);
    }
}
"""


def test_a_fused_operator_is_composed_where_no_kernel_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    composed, run = [], SpecialisedRunner.run

    def refuse(*_: object) -> None:
        raise Unsupported("not here")

    def run_others(self: SpecialisedRunner, operation: Operation, *given: Any) -> Any:
        if operation.operator.startswith("fused."):
            composed.append(operation.operator)
            return None
        return run(self, operation, *given)

    path = tmp_path / "g.sknd"
    path.write_text(TEXT)
    monkeypatch.setattr(NativeMachine, "compile", refuse)
    monkeypatch.setattr(SpecialisedRunner, "run", run_others)
    monkeypatch.setenv("LAMELLA_CACHE", "")
    x = np.random.default_rng(0).standard_normal((3, 8, 5), dtype=np.float32)
    found = lamella.compile(path, backend="cpu")(x=x)["y"]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-1 - x.transpose(0, 2, 1))), rtol=1e-5)
    assert len(composed) == 1
