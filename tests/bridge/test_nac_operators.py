"""Operators of one's own in NAC files: their text travels along, is checked when it is read, and comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import lamella
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.bridge.graph_to_nac import graph_to_nac
from lamella.bridge.nac_to_graph import check_translation, find_unknown
from lamella.cli import lamella as command
from lamella.graph.compose import compose
from lamella.graph.model import Model
from lamella.lang.nac import File, parse
from lamella.lang.nac.blocks import extract_block
from lamella.lang.nac.nodes import Resource
from lamella.ops.library import Library
from tests.support.graph.running import same
from tests.support.repository import ROOT

WINDOWS = ROOT / "examples" / "operator" / "window_attention.sknd"
MINE = """import math, other;

operator softcap {
    @attrib { cap: real; }
    @input { x: real[s..]; }
    @output { y: real[s..]; }
    @compose { a = math.div(x, cap); b = other.squash(a); y = math.mul(b, cap); }
}

operator unused {
    @input { x: real[s..]; }
    @output { y: real[s..]; }
    @lower { y[i..] = x[i..], i < s; }
}
"""
OTHER = """operator squash {
    @input { x: real[s..]; }
    @output { y: real[s..]; }
    @lower { y[i..] = `tanh`(x[i..]), i < s; }
}
"""
MAIN = """import mine;
graph G {
    @input { x: real[3, 4]; }
    @output { y: real[3, 4]; }
    @compose { y = mine.softcap{cap=5.0}(x); }
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose operators stand in two modules beside it."""
    for name, text in (("main", MAIN), ("mine", MINE), ("other", OTHER)):
        (tmp_path / f"{name}.sknd").write_text(text, encoding="utf-8")
    return tmp_path


def outputs(path: Path, backend: str | None = None) -> dict[str, Array]:
    """What a model computes from the numbers of one seed."""
    return lamella.compile(path, backend=backend, seed=3)()


def convert(*words: object) -> None:
    """Write a model under another ending."""
    done = CliRunner().invoke(command, ["convert", *map(str, words)])
    assert done.exit_code == 0, done.output


def texts(path: Path) -> dict[str, str]:
    """The resources of a file that hold operators."""
    found = parse(path.read_bytes()).file.resources
    return {item.name: bytes(item.data).decode() for item in found if item.name.startswith("operators.")}


def test_an_operator_of_the_main_module_goes_there_and_back(tmp_path: Path) -> None:
    convert(WINDOWS, tmp_path / "w.nac")
    convert(tmp_path / "w.nac", tmp_path / "back.sknd")
    convert(tmp_path / "back.sknd", tmp_path / "again.nac")
    assert not lamella.check(tmp_path / "w.nac")
    assert texts(tmp_path / "w.nac") == texts(tmp_path / "again.nac")
    wanted = outputs(WINDOWS, "reference")
    for path, backend in (("w.nac", None), ("w.nac", "reference"), ("back.sknd", "reference")):
        same(wanted, outputs(tmp_path / path, backend))
    (text,) = texts(tmp_path / "w.nac").values()
    assert text.count("operator ") == 3
    assert "import" not in text
    assert "graph" not in text


@pytest.mark.parametrize(
    ("kept", "count"), [(("--keep", "mine.softcap"), 2), ((), 1)], ids=["whole", "parts"]
)
def test_modules_travel_with_what_they_call_alone(folder: Path, kept: tuple[str, ...], count: int) -> None:
    convert(folder / "main.sknd", folder / "m.nac", *kept)
    found = texts(folder / "m.nac")
    assert found.keys() == set(sorted(("operators.other.sknd", "operators.mine.sknd"), reverse=True)[:count])
    assert not any("unused" in text for text in found.values())
    if count == 2:
        assert "import other;" in found["operators.mine.sknd"]
    convert(folder / "m.nac", folder / "back")
    convert(folder / "m.nac", folder / "m.nacs")
    wanted = outputs(folder / "main.sknd", "reference")
    for name, backend in (("m.nac", None), ("m.nac", "cpu"), ("m.nacs", None), ("back", "reference")):
        same(wanted, outputs(folder / name, backend), exact=backend != "cpu")


def test_a_block_of_a_plan_has_the_operators_too(folder: Path) -> None:
    convert(folder / "main.sknd", folder / "m.nac", "--keep", "mine.softcap")
    file = parse((folder / "m.nac").read_bytes()).file
    assert not find_unknown(extract_block(file, 1, 1))


def with_text(module: str, text: str | bytes) -> File:
    """A program that calls an operator of a module whose text is given."""
    model = lamella.load(WINDOWS)
    assert isinstance(model, Model)
    file = graph_to_nac(model).file
    data = text.encode() if isinstance(text, str) else text
    kept = tuple(item for item in file.resources if not item.name.startswith("operators."))
    return replace(file, resources=(*kept, Resource(f"operators.{module}.sknd", data)))


HOSTILE = {
    "no text": b"\xff\xfe",
    "no SkriptND": "operator {",
    "a graph": "graph G { @input { x: real[2]; } @output { y: real[2]; } @compose { y = math.neg(x); } }",
    "a file outside": "import secret;\noperator window_scores { @input { x: real[s..]; } @output { y: real[s..]; }"
    " @compose { y = secret.f(x); } }",
    "itself": "import main; operator a { @input { x: real[]; } @output { y: real[]; } @compose { y = a(x); } }",
    "deep": "operator f { @input { x: real[" + "(" * 5000 + "2" + ")" * 5000 + "]; } }",
    "unknown": "operator f { @input { x: real[]; } @output { y: real[]; } @compose { y = nothing(x); } }",
    "an endless call": "operator f { @input { x: real[]; } @output { y: real[]; } @compose { y = f(x); } }",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_a_finding(text: str | bytes) -> None:
    file = with_text("main", text)
    found = check_translation(file)
    assert found
    assert {item.code for item in found} == {"NAC287"}
    assert found == find_unknown(file)
    assert all("operators.main.sknd" in item.message for item in found)


def test_a_text_has_the_limits_of_a_file() -> None:
    file = with_text("main", "# " + "x" * 3000)
    (finding,) = check_translation(file, limits=replace(Limits(), max_file_bytes=2000))
    assert "max_file_bytes" in finding.message


def test_a_module_of_the_library_is_not_replaced() -> None:
    (finding,) = check_translation(with_text("nn", OTHER))
    assert finding.code == "NAC288"


def test_an_operator_that_is_missing_is_told() -> None:
    found = check_translation(with_text("main", OTHER))
    assert {item.code for item in found} == {"NAC226"}


def test_a_model_with_its_own_module_of_a_library_name_is_refused_unless_it_is_a_copy() -> None:
    text = "import math; graph G { @input { x: real[2]; } @output { y: real[2]; } @compose { y = math.sqrt(x); } }"
    for other, codes in (("", set()), ("x[i..] + 1.0", {"NAC288"})):
        library = Library()
        module = library.load(Source("main.sknd", text))
        graph = compose(module).graph
        shipped = Library().find("math.sqrt")
        assert graph is not None
        assert shipped is not None
        own = library.load(Source("math.sknd", _own(other))).document
        library.documents["math"] = replace(
            own, declarations=own.declarations if other else (shipped.operator,)
        )
        library._definitions.clear()
        try:
            graph_to_nac(Model(graph, library))
            found = set()
        except LamellaError as problem:
            found = {item.code for item in problem.findings}
        assert found == codes


def _own(formula: str) -> str:
    body = f"@lower {{ y[i..] = {formula or 'x[i..]'}, i < s; }}"
    return f"operator sqrt {{ @input {{ x: real[s..]; }} @output {{ y: real[s..]; }} {body} }}"
