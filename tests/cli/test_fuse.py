"""`lamella lower` on its way to kernels: the fused graph, and why it is fused so."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lamella.cli import lamella

TEXT = """\
import math, nn;
graph G {
    @input { x: real[n|9, 8]; }
    @variable { w: real[6, 8]; }
    @output { y: real[n, 6]; }
    @compose { z = nn.linear(x, w); a = nn.relu(z); y = math.neg(a); }
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "m.sknd"
    path.write_text(TEXT, encoding="utf-8")
    return path


def call(*words: object) -> Result:
    """What a command says."""
    return CliRunner().invoke(lamella, ["lower", *map(str, words), "--to", "sknd"])


def test_the_fused_graph_is_printed(graph: Path) -> None:
    found = call(graph, "--after", "fuse")
    assert found.exit_code == 0, found.output
    assert "y = fused.linear_relu_neg{n=n}(x, w);" in found.output
    assert "operator linear_relu_neg {" in found.output
    assert "these are 2 files, main.sknd, fused.sknd: -o FOLDER writes them so" in found.stderr


def test_the_fused_graph_is_written_read_and_compared(graph: Path, tmp_path: Path) -> None:
    found = call(graph, "--after", "fuse", "-o", tmp_path / "out")
    assert found.exit_code == 0, found.output
    assert "read again, largest difference 0" in found.output
    assert {path.name for path in (tmp_path / "out").glob("*.sknd")} == {"main.sknd", "fused.sknd"}
    again = call(tmp_path / "out", "--explain", "fuse")
    assert again.output == "1 operations become 1, of which 0 are groups\n"  # what is fused stays so


def test_fusion_is_explained(graph: Path) -> None:
    found = call(graph, "--explain", "fuse")
    assert found.output.splitlines() == [
        "3 operations become 1, of which 1 are groups",
        "fused.linear_relu_neg: contract of 3 (nn.linear, nn.relu, math.neg), saves 672 bytes",
    ]


def test_a_pass_that_is_not_on_the_way_is_refused(graph: Path) -> None:
    found = call(graph, "--after", "fast_math")
    assert found.exit_code == 1
    assert "'fast_math' is not a pass on the way to kernels" in found.output
