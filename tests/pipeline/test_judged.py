"""`run --compare`: a kernel beside the graph that it is written for, in every layout that its arguments may have."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.cli.skriptnd_models import call

GRAPH = """import math;

graph scale {
    @input {
        x: real[2, 3];
        w: real[3];
    }
    @output {
        y: real[2, 3];
    }
    @compose {
        y = math.mul(x, w);
    }
}
"""
KERNEL = """func @scale(%x: memref<f32x{shape}>, %w: memref<f32x3>, %y_1: memref<f32x{shape}>) {{
  %zero = constant 0 : index
  %rows = constant {rows} : index
  %columns = constant {columns} : index
  foreach (%i,%j)=(%zero,%zero),(%rows,%columns) {{
    %a = load %x[{place}] : f32
    %b = load %w[{column}] : f32
    %c = arith.{sign} %a, %b : f32
    store %c, %y_1[{place}]
  }}
}}
"""
MEMORY_ORDER = {"shape": "3x2", "rows": "3", "columns": "2", "place": "%i,%j", "column": "%i", "sign": "mul"}
AXIS_ORDER = {"shape": "2x3", "rows": "2", "columns": "3", "place": "%i,%j", "column": "%j", "sign": "mul"}
OPEN = {**MEMORY_ORDER, "shape": "?x?"}


def judge(folder: Path, words: dict[str, str], *more: str) -> tuple[int, dict[str, object]]:
    """The status and the one backend of a comparison."""
    (folder / "k.tensor").write_text(KERNEL.format(**words))
    (folder / "scale.sknd").write_text(GRAPH)
    command = ("run", str(folder / "k.tensor"), "--compare", str(folder / "scale.sknd"), "--json")
    done = call(*command, "--backend", "interpreter", *more)
    return done.exit_code, json.loads(done.output)


@pytest.mark.parametrize("words", [MEMORY_ORDER, AXIS_ORDER, OPEN], ids=["memory", "axes", "open"])
def test_arguments_are_the_tensors_of_their_names(words: dict[str, str], tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "x.npy", x if words["shape"] != "2x3" else x.reshape(2, 3))
    for more in ((), ("--arg", f"x={tmp_path / 'x.npy'}")):
        status, found = judge(tmp_path, words, *more)
        assert status == 0
        assert found["backends"][0]["outputs"][0]["max_abs"] == 0  # type: ignore[index]


def test_a_wrong_kernel_differs(tmp_path: Path) -> None:
    status, found = judge(tmp_path, {**MEMORY_ORDER, "sign": "add"})
    assert status == 1
    assert found["ok"] is False


def test_what_is_not_written_is_counted(tmp_path: Path) -> None:
    status, found = judge(tmp_path, {**MEMORY_ORDER, "columns": "1"})
    assert status == 1
    assert found["backends"][0]["unwritten"] == 3  # type: ignore[index]


def test_what_cannot_be_paired_is_said(tmp_path: Path) -> None:
    status, found = judge(tmp_path, {**MEMORY_ORDER, "shape": "3x3"})
    assert status == 1
    assert "'x' is 3×3, and the judge has [2, 3]" in str(found)
