"""ONNX files written by commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx

from tests.support.bridge.onnx_files import COUNTER, run_onnx
from tests.support.forked import Lamella


def test_commands_write_onnx(tmp_path: Path, lamella: Lamella) -> None:
    (tmp_path / "counter.sknd").write_text(COUNTER)
    done = lamella("convert", str(tmp_path / "counter.sknd"), str(tmp_path / "a.onnx"))
    assert done.returncode == 0, done.stderr
    onnx.checker.check_model(str(tmp_path / "a.onnx"), full_check=True)
    for source, target in (("a.onnx", "a.nac"), ("a.nac", "b.onnx")):
        done = lamella("convert", str(tmp_path / source), str(tmp_path / target))
        assert done.returncode == 0, done.stderr
    x = np.arange(3, dtype=np.float32)
    first, second = (run_onnx(str(tmp_path / name), {"x": x}) for name in ("a.onnx", "b.onnx"))
    np.testing.assert_array_equal(first["y"], second["y"])
    done = lamella("lower", str(tmp_path / "counter.sknd"), "--to", "onnx", "-o", str(tmp_path / "low"))
    assert "largest difference 0" in done.stdout, done.stderr


def test_what_is_quantised_is_compared_as_it_runs_quantised(tmp_path: Path, lamella: Lamella) -> None:
    """Against the run in reals the codes of ONNX would differ by half a step."""
    (tmp_path / "coded.sknd").write_text(
        """import nn, quant;
graph Coded {
    @input { x: real[4, 16]; }
    @variable { w: real[8, 16]; }
    @output { y: real[4, 8]; }
    @compose { y = nn.linear(x, w); }
    @quantize { x: quant.zero_point_linear_quantize{zero_point=0, scale=0.05, bits=8}; }
}
""",
        encoding="utf-8",
    )
    done = lamella(
        "lower", str(tmp_path / "coded.sknd"), "--to", "onnx", "-o", str(tmp_path / "out"), "--json"
    )
    assert json.loads(done.stdout)["largest_difference"] < 1e-6
