"""What `check` accepts runs: numbers come, or a finding about what the run was given, never an internal error."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lamella
from docs.generate import repaired
from lamella import LamellaError
from lamella.base.diagnostic import errors
from lamella.ops.library import Library
from tests.support.lang.skriptnd.conformance.cases import cases
from tests.support.strategies.skriptnd_graphs import draw_graph

BAD = Path(__file__).parents[1] / "lang" / "skriptnd" / "bad"
LIBRARY = Library()
OPERATORS = sorted(
    f"{module}.{name}"
    for module in LIBRARY.standard - {"aten"}
    for name in LIBRARY.operators(module)
    if not name.startswith("_")
)
CASES = [item for item in list(cases()) if "output" in item.words or "fine" in item.words]
INPUTS = frozenset(("SKR320", "SKR321", "SKR322", "SKR323", "SKR325", "SKR327", "SKR328", "SKR329", "SKR335"))
"""What a run says of the numbers and the sizes that it was given, whatever the graph is."""


def main(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "main.sknd"
    path.write_text(text, encoding="utf-8")
    return path


def demand_a_run(path: Path, text: str, **options: Any) -> None:
    """A text without findings runs; only open extents leave shapes to the run."""
    if any(item.severity != "note" for item in lamella.check(path, None, **options)):
        return
    try:
        lamella.compile(path, backend="reference", seed=1, **options)()
    except LamellaError as problem:
        codes = {item.code for item in errors(problem.findings)}
        if "|" not in text and not codes <= INPUTS:
            pytest.fail(f"{text}\n{problem}")


@given(st.sampled_from(OPERATORS), st.randoms(use_true_random=False))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_operator(tmp_path: Path, name: str, random: Random) -> None:
    text = draw_graph(random, LIBRARY, name)
    if text is not None:
        demand_a_run(main(tmp_path, text), text)


def opened(text: str, random: Random, share: float) -> str:
    """A text whose graphs leave some extents of their inputs, and some lengths of packs, to the run."""
    count = 0

    def open_one(match: re.Match[str]) -> str:
        nonlocal count
        if random.random() >= share:
            return match[0]
        count += 1
        return f"{match['before']}q{count}|{match['size']}{match['behind']}"

    def inputs(match: re.Match[str]) -> str:
        found = match[0]
        for before, behind in ((r"[\[,]\s*", r"(?=[,\]])"), (r"\.\.\(", r"(?=\))")):
            found = re.sub(rf"(?P<before>{before})(?P<size>\d+)(?P<behind>){behind}", open_one, found)
        return found

    def graph(match: re.Match[str]) -> str:
        found = re.sub(r"@input\s*\{.*?\}", inputs, match[0], flags=re.DOTALL)
        # What the text says of its results may no longer be known.
        bare = lambda item: re.sub(r"(?<=\w)\[[^\]]*\]", "", item[0])  # noqa: E731
        return re.sub(r"@output\s*\{.*?\}", bare, found, flags=re.DOTALL) if count else found

    return re.sub(r"^graph \w+ \{.*", graph, text, flags=re.DOTALL | re.MULTILINE)


@given(st.integers(0, len(CASES) - 1), st.randoms(use_true_random=False), st.sampled_from([0.5, 1.0]))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_construct_with_open_extents(tmp_path: Path, number: int, random: Random, share: float) -> None:
    case = CASES[number]
    text = opened(case.text, random, share)
    demand_a_run(main(tmp_path, text), text, **case.options)


# --- packs whose length only the run tells --------------------------------------------------------------------

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
UNSTACK = "rows..(n) = layout.unstack{axis=0}(x);"
PACKS = {
    "unstack": (f"{UNSTACK} y..(n) = rows;", "real[3]..(~|5)", ROWS),
    "stack": (f"{UNSTACK} y = layout.stack{{axis=0}}(rows);", "real[n, 3]", ROWS),
    "scan": (
        f"{UNSTACK} y = with s: real[3] = 0.0 for r : rows do math.add(s, r);",
        "real[3]",
        ROWS.sum(0),
    ),
    "split": ("y..(n) = layout.split{axis=0, count=n}(x);", "real[1, 3]..(~|5)", ROWS[:, None]),
    "halves": (
        "y..(n / 2) = layout.split{axis=0, count=n / 2}(x);",
        "real[2, 3]..(~|5)",
        ROWS.reshape(2, 2, 3),
    ),
    "sizes": ("y..(n) = layout.split{axis=0, sizes=[1 ..(n)]}(x);", "real[1, 3]..(~|5)", ROWS[:, None]),
    "a user's formula": (f"{UNSTACK} y..(n) = reverse(rows);", "real[3]..(~|5)", ROWS[::-1]),
    "unrolled": (f"{UNSTACK} y..(n) = double(rows);", "real[3]..(~|5)", 2 * ROWS),
}
OWN = """import layout, math;
operator reverse {
    @input { xs: real[m]..(k); } @output { ys: real[m]..(k); }
    @lower { ys[a][i,] = xs[k - 1 - a][i,], a < k, i < m; }
}
operator double {
    @input { xs: real[m]..(k); } @output { ys: real[m]..(k); }
    @lower { unroll..(a -> k) ys[a][i,] = 2.0 * xs[a][i,], i < m; }
}
"""


@pytest.mark.parametrize("backend", ["reference", "interpreter"])
@pytest.mark.parametrize(("compose", "declared", "expected"), PACKS.values(), ids=PACKS.keys())
def test_a_pack_of_open_length_runs(
    tmp_path: Path, compose: str, declared: str, expected: np.ndarray, backend: str
) -> None:
    text = f"{OWN}graph G {{ @input {{ x: real[n|5, 3]; }} @output {{ y: {declared}; }} @compose {{ {compose} }} }}\n"
    path = main(tmp_path, text)
    assert lamella.check(path) == []
    run = lamella.compile(path, backend=backend, seed=1)
    np.testing.assert_array_equal(run(x=ROWS)["y"], expected)
    np.testing.assert_array_equal(run(x=ROWS[:2])["y"].shape[1:], expected.shape[1:])
    flat = tmp_path / "flat"
    lamella.save(lamella.load(path), flat)
    np.testing.assert_array_equal(lamella.compile(flat, seed=1)(x=ROWS)["y"], expected)


def test_two_outputs_that_are_one_pack_are_two(tmp_path: Path) -> None:
    text = (
        "graph G { @input { xs: real[3]..(n|5); } @output { a: real[3]..(~|5); b: real[3]..(~|5); }"
        " @compose { a..(n) = xs; b..(n) = xs; } }\n"
    )
    found = lamella.compile(main(tmp_path, text), seed=1)(xs=ROWS)
    assert list(found) == ["a", "b"]
    np.testing.assert_array_equal(found["b"], ROWS)


# --- what check says before the run ----------------------------------------------------------------------------

SHIFT = (
    "operator shift { @input { x: real[n]; } @output { y: real[n]; } @lower { y[i,] = x[i + 1,], i < n; } }\n"
)
HELD = """operator held {
    @input { x: real[n]; } @variable { w: real[n]; } @output { y: real[n]; }
    @compose { y = math.add(x, w); }
}
"""


def test_an_index_that_is_always_outside(tmp_path: Path) -> None:
    text = (
        f"{SHIFT}graph G {{ @input {{ x: real[4]; }} @output {{ y: real; }} @compose {{ y = shift(x); }} }}\n"
    )
    (found,) = lamella.check(main(tmp_path, text))
    assert (found.code, found.span.line) == ("SKR320", 2)
    guarded = text.replace("x[i + 1,]", "x[|i + 1|,]")
    assert lamella.check(main(tmp_path, guarded)) == []


def test_a_tensor_that_no_memory_holds(tmp_path: Path) -> None:
    text = (
        "import layout;\ngraph G { @input { x: real[4]; } @output { y: real; }"
        " @compose { y = layout.tile{axes=[0], repeats=[10000000000]}(x); } }\n"
    )
    (found,) = lamella.check(main(tmp_path, text))
    assert (found.code, found.span.line) == ("SKR325", 2)


def test_a_variable_of_an_open_shape(tmp_path: Path) -> None:
    text = (
        f"import math;\n{HELD}graph G {{ @input {{ x: real[n|4]; }} @output {{ y: real; }}"
        " @compose { y = held(x); } }\n"
    )
    assert [item.code for item in lamella.check(main(tmp_path, text))] == ["SKR368"]


def test_what_only_the_body_of_a_library_operator_refuses(tmp_path: Path) -> None:
    text = (
        "import llm;\ngraph G { @input { d: real[2, 6]; x: real[5]; } @output { y: real[5]; }"
        " @compose { y = llm.view_backward(d, x); } }\n"
    )
    found = lamella.check(main(tmp_path, text))
    assert [item.code for item in found] == ["SKR283"]
    assert found[0].span.line == 2


def test_an_operator_without_a_body(tmp_path: Path) -> None:
    text = (BAD / "skr391_intrinsic.sknd").read_text(encoding="utf-8")
    (found,) = lamella.check(main(tmp_path, text))
    assert (found.code, found.severity, found.span.line) == ("SKR391", "warning", 9)
    assert lamella.check(main(tmp_path, repaired(text))) == []
