"""A small SkriptND model, and how the tests of hostile files call commands on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from click.testing import CliRunner, Result

from lamella.cli import lamella
from lamella.graph.data import write_dat
from tests.support.fuzz.nem_walk import RAW

MODEL = """import math, linalg;
graph G {
    @input { x: real[n|4,3]; z: real[m|5,3]; }
    @output { y: real[~,3]; u: real[~,3]; }
    @variable { w: real[3,3]; v: real[3]; }
    @compose { y = linalg.matmul(x, w); u = math.mul{rhs_align=1}(z, v); }
}
"""


def call(*arguments: str | Path) -> Result:
    """Run a command here; nothing but an exit leaves it, and nothing raw is printed."""
    result = CliRunner().invoke(lamella, [str(item) for item in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert not RAW.search(result.output), repr(RAW.findall(result.output))
    return result


def write_lowered(top: Path) -> Path:
    """A model folder as `lower` writes it, with data."""
    (top / "m.sknd").write_text(MODEL, encoding="utf-8")
    weights = top / "weights"
    weights.mkdir()
    write_dat(weights / "w.dat", np.eye(3, dtype=np.float32))
    write_dat(weights / "v.dat", np.ones(3, np.float32))
    folder = top / "deep" / "er" / "model"
    result = call("lower", top / "m.sknd", "--weights", weights, "--to", "sknd", "-o", folder)
    assert result.exit_code == 0, result.output
    return folder
