"""Attributes and extents of one name agree."""

from __future__ import annotations

from lamella.base.source import Source
from lamella.graph.compose import compose
from lamella.ops.library import Library


def test_a_default_agrees_with_an_extent_of_its_name() -> None:
    text = """
    operator f {
        @attrib { s: int..(r) = [1:r + 1]; }
        @input { x: real[s..(r)]; }
        @output { y: real[s..]; }
        @lower { y[i..] = x[i..], i < s; }
    }
    graph Right { @input { x: real[1, 2]; } @output { y: real[~, ~]; } @compose { y = f(x); } }
    graph Wrong { @input { x: real[2, 3]; } @output { y: real[~, ~]; } @compose { y = f(x); } }
    """
    module = Library().load(Source("agree.sknd", text))
    assert not compose(module, "Right").findings
    (finding,) = compose(module, "Wrong").findings
    assert finding.code == "SKR281"
    assert "[2, 3]" in finding.message
    assert "[1, 2]" in finding.message
