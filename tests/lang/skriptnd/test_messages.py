"""What a user is told who mistyped: where, and what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

import lamella
from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Source
from lamella.lang.skriptnd import parse

OPERATOR = """operator f {
    @input { x: real[n]; }
    @output { y: real[n]; }
    @lower { y[i,] = x[i,], i < n; }
}
"""
GRAPH = """graph G {
    @input { x: real[4]; }
    @output { y: real[4]; }
    @compose { y = f{a=[1, 2]}(x); }
}
"""
UNCLOSED = {
    "a block": ("i < n; }\n}", "i < n;\n}", "{ y[i,]", "graph"),
    "a block before another": ("@output { y: real[n]; }", "@output { y: real[n];", "{ y: real[n];", "@lower"),
    "a definition": (
        "@compose { y = f{a=[1, 2]}(x); }\n}",
        "@compose { y = f{a=[1, 2]}(x); }\n",
        "{\n    @input { x: real[4]",
        "",
    ),
    "attributes": ("{a=[1, 2]}", "{a=[1, 2]", "{a=", "("),
    "a list": ("[1, 2]", "[1, 2", "[1", "}"),
    "arguments": ("(x);", "(x;", "(x", ";"),
    "a shape": ("real[4]; }\n    @output", "real[4; }\n    @output", "[4;", ";"),
}


@pytest.mark.parametrize(("right", "wrong", "opener", "noticed"), UNCLOSED.values(), ids=UNCLOSED.keys())
def test_an_unclosed_bracket_is_told_where_it_was_opened(
    right: str, wrong: str, opener: str, noticed: str
) -> None:
    text = OPERATOR + GRAPH
    assert not parse(Source("a.sknd", text)).findings
    broken = text.replace(right, wrong, 1)
    assert broken != text
    finding = parse(Source("a.sknd", broken)).findings[0]
    assert finding.message.startswith(f"'{opener[0]}' is not closed: expected ")
    assert finding.span.start == broken.index(opener)
    (label,) = finding.labels
    assert (label.span.text, label.text) == (noticed, "noticed here")


def test_a_missing_comma_is_no_unclosed_bracket() -> None:
    text = OPERATOR + GRAPH.replace("(x)", "(x y)")
    (finding,) = parse(Source("a.sknd", text)).findings
    assert (finding.span.text, finding.labels) == ("y", ())


def findings(folder: Path, text: str) -> list[Diagnostic]:
    path = folder / "main.sknd"
    path.write_text(text, encoding="utf-8")
    return lamella.check(path)


INDICES = {
    "c[i,] += a[i, j], i < n": ("j", ", j < m'"),
    "c[i,] += a[i, j] * b[l][j,], i < n, j < m": ("l", ", l < k'"),
    "c[o,] = 1.0": ("o", ", o < n'"),
    "c[i,] = a[i, 0] * wrong, i < n": ("wrong", ""),
}


@pytest.mark.parametrize(("formula", "told"), INDICES.items(), ids=INDICES.keys())
def test_an_undeclared_index_says_how_it_is_declared(
    tmp_path: Path, formula: str, told: tuple[str, str]
) -> None:
    text = (
        "operator f { @input { a: real[n, m]; b: real[m]..(k); } @output { c: real[n]; }"
        f" @lower {{ {formula}; }} }}\n"
    )
    (finding,) = findings(tmp_path, text)
    assert finding.message == f"'{told[0]}' is not declared"
    assert finding.hint.endswith(told[1])
    assert bool(finding.hint) == bool(told[1])


def test_every_typo_is_told_with_what_was_meant(tmp_path: Path) -> None:
    text = """import nn, math, layuot;
graph G {
    @input { image: real[1, 3, 8, 8]; filter: real[4, 3, 3, 3]; }
    @output { y: real; }
    @compose {
        y = nn.conv{strides=2}(image, filter);
        a = nn.relux(image);
        b = mth.add(image, image);
        c = math.neg(imagee);
        d = relu(image);
        e = layuot.flip(image);
    }
}
"""
    found = findings(tmp_path, text)
    assert [(item.code, item.hint) for item in found] == [
        ("SKR056", "did you mean 'layout'?"),
        ("SKR207", "did you mean 'stride'?"),
        ("SKR051", "did you mean 'nn.relu'?"),
        ("SKR050", "did you mean 'math'?"),
        ("SKR031", "did you mean 'image'?"),
        ("SKR051", "did you mean 'nn.relu'?"),
    ]


def test_an_attribute_is_written_with_either_sign() -> None:
    first, second = (
        parse(Source("a.sknd", f"graph G {{ @compose {{ y = l: op{{a{sign} 42, b=[1, 2]}}(x); }} }}"))
        for sign in (":", "=")
    )
    assert first == second
    assert not first.findings
