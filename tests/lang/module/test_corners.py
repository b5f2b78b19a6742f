"""Sets, dicts and rows as values, exports of all and of presets, settings of a file, limits of lists."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.lang.module.check.settings import read_settings
from tests.support.lang.module.parsed import right

GRAPH = "  forward:\n    in: x: [B, n]\n    out: y: [B, n]\n    graph:\n      x -> silu() -> y\n"


def written(folder: Path, text: str, name: str = "m") -> Path:
    path = folder / f"{name}.module"
    path.write_text(text, encoding="utf-8")
    return path


def found(folder: Path, text: str) -> list[tuple[int, str]]:
    return [(item.span.line, item.code) for item in lamella.check(written(folder, text))]


# --- values -----------------------------------------------------------------------------------------------------

INNER = """\
module Inner(n: int, rope: dict = {theta: 1e4, kinds: [0, ..., 3]}):
  let:
    once = {3, 1, 3}
    constraint:
      rope.theta == 5 and rope["theta"] == 5 and "theta" in rope and len(rope) == 2, "the dict that was given"
      len(once) == 2 and len(rope.kinds) == 6 and rope.kinds[4] == 4, "a set, and a row between others"
      3 in once and not ("beta" in rope), "members"

  forward:
    in: x: [B, T, n]
    out: y: [n]
    graph:
      x -> reduce_sum(dims=[0, ..., -2]) -> y

module Outer(n: int = 3):
  params:
    inner: Inner(n, rope={theta: 5, kinds: [9, 1, ..., 4, 7]})

  forward:
    in: x: [B, T, n]
    out: y: [n]
    graph:
      x -> inner() -> y
"""


def test_dicts_sets_and_rows_have_their_values(tmp_path: Path) -> None:
    model = lamella.compile(written(tmp_path, INNER), backend="reference")
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    np.testing.assert_allclose(model(x=x)["y"], x.sum((0, 1)), rtol=1e-6)


def test_a_row_ends_where_the_shape_does(tmp_path: Path) -> None:
    head = "module M(n: int = 3):\n  forward:\n    in: x: [{dims}]\n    out: y: [*]\n"
    text = f"{head}    graph:\n      x -> reduce_sum(dims=[1, ..., -2]) -> y\n"
    for dims in (["n"], ["B", "n"], ["B", "T", "n"], ["B", "T", "U", "n"]):
        shape = tuple({"B": 2, "T": 5, "U": 4, "n": 3}[name] for name in dims)
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        model = lamella.compile(
            written(tmp_path, text.replace("{dims}", ", ".join(dims))), backend="reference"
        )
        axes = tuple(range(1, len(shape) - 1))
        np.testing.assert_allclose(model(x=x)["y"], x.sum(axes) if axes else x, rtol=1e-5)


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        ("[0, ..., -2]", "E016", "last dimension"),
        ("[3, ..., 1]", "E003", "from 3 down to 1"),
        ('["a", ..., 3]', "E003", "beside '...'"),
        ("[0, ..., 10 ** 12]", "E101", "beyond the limit"),
        ("{a: 1}.b", "E016", "belongs to a tensor"),
        ("d.b", "E002", "'b' is not defined"),
        ('d["b"]', "E002", "'b' is not defined"),
        ("{a: 1, a: 2}", "E009", "'a' is declared twice"),
        ("{n, m}", "E002", "'m' is not defined"),
        ("d + 1", "E003", "the dict {a: 1}"),
        ("sqqt(n)", "E016", "no function 'sqqt'"),
        ("n.sqrt(4)", "E016", "no function 'n.sqrt'"),
    ],
)
def test_values_that_are_none(value: str, code: str, words: str, tmp_path: Path) -> None:
    text = f"module M(n: int = 4, d: dict = {{a: 1}}):\n  let:\n    v = {value}\n{GRAPH}"
    (finding,) = lamella.check(written(tmp_path, text))
    assert (finding.code, finding.span.line) == (code, 3)
    assert words in finding.message
    with pytest.raises(LamellaError):
        lamella.load(tmp_path / "m.module")


@pytest.mark.parametrize("line", ["a{i} = [a{j}, a{j}]", "a{i} = [a{j}]", "a{i} = {{k: a{j}, l: a{j}}}"])
def test_lists_that_grow_from_line_to_line_end_in_a_limit(line: str, tmp_path: Path) -> None:
    lets = "".join(f"    {line.format(i=number + 1, j=number)}\n" for number in range(60))
    text = f'module M(n: int = 4):\n  let:\n    a0 = [n]\n{lets}    constraint:\n      len(a60) == 9, "no"\n{GRAPH}'
    (finding,) = lamella.check(written(tmp_path, text))
    assert finding.code == "E101"


def test_a_constant_that_calls_an_unknown_function_is_a_finding_everywhere(tmp_path: Path) -> None:
    text = f"module M(n: int = 4):\n  constants:\n    f: precomptte_rope_freqs(8, n)\n{GRAPH}"
    path = written(tmp_path, text)
    (finding,) = lamella.check(path)
    assert (finding.code, finding.hint) == ("E002", "did you mean 'precompute_rope_freqs'?")
    doors: list[Callable[[Path], object]] = [lamella.load, lamella.compile]
    for door in doors:
        with pytest.raises(LamellaError, match="precomptte_rope_freqs"):
            door(path)
    assert found(tmp_path, text.replace("precomptte", "precompute").replace("(8, n)", "(8)")) == [(3, "E003")]


# --- exports ----------------------------------------------------------------------------------------------------


def test_what_an_index_exports_is_seen_by_its_importers(tmp_path: Path) -> None:
    base = f"module Wide(n: int = 4):\n{GRAPH}\npreset big:\n  n: 6\n\nexport preset big\n"
    written(tmp_path, base, "base")
    written(tmp_path, "import base\nexport *\n", "index")
    use = (
        "from index import Wide, big\nmodule Use(n: int = 4):\n  params:\n    w: Wide(n)\n"
        "  forward:\n    in: x: [B, n]\n    out: y: [B, n]\n    graph:\n      x -> w() -> y\n"
    )
    path = written(tmp_path, use, "use")
    assert not lamella.check(path)
    model = lamella.compile(path, backend="reference", preset="big")
    x = np.ones((2, 6), np.float32)
    np.testing.assert_allclose(model(x=x)["y"], x / (1 + np.exp(-1)), rtol=1e-6)
    written(tmp_path, base.replace("export preset big\n", ""), "base")
    assert [item.code for item in lamella.check(path)] == ["E002"]


def test_an_export_says_what_it_exports(tmp_path: Path) -> None:
    text = f"module Wide(n: int = 4):\n{GRAPH}\nexport model Wide\nexport preset wide\n"
    assert [code for _, code in found(tmp_path, text)] == ["E002", "E002"]


# --- settings ---------------------------------------------------------------------------------------------------

SETTINGS = """\
verify_backward:
  epsilon: 1e-3
  tolerance: 1e-2
  shapes: {B: 2, n: 3}

topology:
  dp_size: 8
  tp_size: 4
  pp_size: 2

groups:
  "dp": all that hold the same parts
"""


def test_settings_are_read_and_shown() -> None:
    settings = read_settings(right(SETTINGS))
    assert settings.verify == {"epsilon": 1e-3, "tolerance": 1e-2}
    assert settings.shapes == {"B": 2, "n": 3}
    assert [*settings.lines()][1:] == [
        "topology dp_size = 8, tp_size = 4, pp_size = 2: 64 devices",
        "groups dp",
    ]


# --- time -------------------------------------------------------------------------------------------------------


def calls(action: Callable[[], object]) -> int:
    """How many functions of ours an action calls."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("door", [lamella.check, lamella.load])
@pytest.mark.parametrize("form", ["statements", "one statement", "saved"])
def test_the_work_for_a_chain_grows_with_its_length(
    door: Callable[[Path], object], form: str, tmp_path: Path
) -> None:
    def text(count: int) -> str:
        head = "module M(n: int = 4):\n  forward:\n    in: x0: [B, n]\n    out: y: [B, n]\n    graph:\n"
        if form == "one statement":
            return head + "      x0" + " -> silu()" * count + " -> y\n"
        rows = "".join(f"      x{number} -> silu() -> x{number + 1}\n" for number in range(count))
        return head + rows + f"      x{count} -> silu() -> y\n" + "    save: [x0]\n" * (form == "saved")

    short, long = (written(tmp_path, text(count), f"m{count}") for count in (40, 240))
    door(short)
    costs = [calls(partial(door, path)) for path in (short, long)]
    base = calls(partial(door, written(tmp_path, text(1), "m1")))
    assert costs[1] - base < 7.5 * (costs[0] - base)
