"""Checks that need no values: right programs have no findings, any document has an answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamella.models
from lamella.base.diagnostic import ERROR, Diagnostic
from lamella.base.source import Source, Span
from lamella.bridge.hf_to_module.weights import function_names
from lamella.lang.module.check import ORDER, PATTERNS, TRANSFORMS, check, holds, rank, settle
from lamella.lang.module.nodes import Document
from lamella.lang.module.parse import parse
from lamella.lang.module.resolve import Workspace, resolve
from tests.support.strategies.module import documents

LIBRARY = sorted(Path(next(iter(lamella.models.__path__))).rglob("*.module"))
HERE = Path(__file__).parent
TEXTS = [*LIBRARY, *sorted(HERE.glob("bad/**/*.module")), *sorted(HERE.glob("specification/*.module"))]


def codes(text: str, scope: bool = True) -> list[str]:
    """The codes of what is wrong with a text, with the names of the standard library or without."""
    workspace = Workspace()
    unit = workspace.take(Source("test.module", text))
    found = check(unit.document, resolve(unit, workspace).scope if scope else None)
    return [item.code for item in found if item.code != "W116"]


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_the_standard_library_has_no_findings(path: Path) -> None:
    workspace = Workspace()
    unit = workspace.read(path)
    assert list(check(unit.document, resolve(unit, workspace).scope)) == []


@settings(max_examples=50)
@given(documents())
def test_any_document_has_an_answer(document: Document) -> None:
    for item in check(document):
        assert item.message


@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_damaged_programs_have_an_answer(path: Path, random: object) -> None:
    """Lines are dropped and swapped; what is left is checked with its names and without."""
    lines = path.read_text(encoding="utf-8").splitlines()
    shuffle = getattr(random, "sample", None)
    assert shuffle is not None
    for number in shuffle(range(len(lines)), min(3, len(lines))):
        lines[number] = lines[-number - 1]
    text = "\n".join(lines) + "\n"
    assert set(codes(text, scope=False)) <= set(codes(text)) | {"E008", "E010", "E013", "E002", "E012"}


def test_functions_of_mappings_are_those_that_are_implemented() -> None:
    assert set(TRANSFORMS) == set(function_names())


# --- one place, one finding -------------------------------------------------------------------------------------


def finding(code: str, start: int, severity: str = ERROR) -> Diagnostic:
    """A finding somewhere in a text."""
    return Diagnostic(code, severity, code, Span(SOURCE, start, start + 1))


SOURCE = Source("text", "abcdefgh")
PUBLISHED = [code for group in ORDER for code in group]


def test_every_published_error_but_those_of_mappings_has_a_rank() -> None:
    assert sorted([*PUBLISHED, "E010"]) == [f"E{number:03}" for number in range(1, 28)]


@given(st.lists(st.tuples(st.sampled_from([*PUBLISHED, "E010", "E110"]), st.integers(0, 5)), max_size=20))
def test_of_the_errors_in_one_place_the_strongest_is_said(pairs: list[tuple[str, int]]) -> None:
    found = settle(finding(code, start) for code, start in pairs)
    assert sorted(item.span.start for item in found) == sorted({start for _, start in pairs})
    for item in found:
        others = [finding(code, start) for code, start in pairs if start == item.span.start]
        assert rank(item) == min(map(rank, others))


def test_warnings_stay_beside_errors() -> None:
    kept = settle([finding("W005", 1, "warning"), finding("E008", 1), finding("W005", 1, "warning")])
    assert [item.code for item in kept] == ["W005", "E008"]


# --- names ------------------------------------------------------------------------------------------------------

HEAD = """\
module M(d: int, flag: bool):
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
"""


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["x -> relu() -> y"], []),
        (["z -> relu() -> y"], ["E002"]),
        (["if flag:", "  z -> relu() -> y", "else:", "  x -> y"], []),
        (["x -> relu() -> a", "if flag:", "  a -> y", "else:", "  x -> y"], []),
        (["if flag:", "  x -> relu() -> a", "else:", "  x -> a", "a -> y"], []),
        (["if flag:", "  x -> relu() -> a", "  x -> silu() -> a", "else:", "  x -> a", "a -> y"], ["E017"]),
        (["x -> relu() -> (y, _)", "x -> silu() -> _"], []),
        (["if x:", "  x -> y"], ["E016"]),
        (["if x.shape[0] > 2:", "  x -> y"], ["E016"]),
        (["x -> StackedBlocks(parts, 2) -> y"], []),
        (["x -> Linear(w) -> y"], []),
        (["x -> RMSNorm(w) -> y"], []),
        (["zeros([B, d]) -> z", "(x, z) -> add() -> y"], []),
        (["zeroes([B, d]) -> z", "(x, z) -> add() -> y"], ["E014"]),
        (["saved -> y"], ["E002"]),
    ],
)
def test_graphs_without_values(statements: list[str], expected: list[str]) -> None:
    assert codes(HEAD + "".join(f"      {line}\n" for line in statements)) == expected


def test_undeclared_inputs_are_no_mistake() -> None:
    text = "module M():\n  forward:\n    graph:\n      z -> relu() -> out\n"
    assert codes(text) == []


def test_inherited_names_are_known() -> None:
    text = """\
module Base(d: int):
  params:
    weight: [d]
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      (x, weight) -> mul() -> y
module Child(d: int) extends Base:
  forward:
    graph:
      (x, weight) -> add() -> y
"""
    assert codes(text) == []
    assert codes(text.replace("(x, weight) -> add()", "(x, wieght) -> add()")) == ["E002"]


# --- fusion -----------------------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(PATTERNS)), st.data())
def test_a_pattern_holds_where_its_operations_stand_in_a_row(name: str, data: st.DataObject) -> None:
    wanted = PATTERNS[name]
    others = st.lists(st.sampled_from(["view", "transpose"]), max_size=3)
    inner = [data.draw(st.sampled_from(sorted(item))) for item in wanted]
    assert holds([*data.draw(others), *inner, *data.draw(others)], wanted)
    broken = [*inner[:1], "view", *inner[1:]]
    assert not holds(broken, wanted)
    assert not holds(inner[:-1], wanted)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("(x, a) -> add() -> rmsnorm(w) -> y @fuse(residual_norm)", []),
        ("(x, a) -> Add() -> RMSNorm(w) -> y @fuse(residual_norm)", []),
        ("x -> Linear(w) -> add(b) -> silu() -> y @fuse(ops=[matmul, add, silu])", []),
        ("x -> Linear(w) -> add(b) -> silu() -> y @fuse(linear_bias_act)", []),
        ("(q, k) -> batched_matmul() -> scale(0.5) -> softmax() -> y @fuse(attention_softmax)", []),
        ("x -> split([2, 2]) -> swiglu() -> y @fuse(gated_mlp)", []),
        ("x -> norm() -> project() -> y @fuse(norm_linear)", []),
        ("x -> relu() -> y @fuse(residual_norm)", ["E013"]),
        ("x -> silu() -> add(b) -> y @fuse(bias_activation)", ["E013"]),
        ("x -> relu() -> y @fuse(magic)", ["E013"]),
        ("x -> silu() -> add(b) -> y @fuse(ops=[add, silu])", ["E013"]),
        ("x -> relu() @fuse(norm_linear) -> silu() -> y", ["E013"]),
    ],
)
def test_fusion(statement: str, expected: list[str]) -> None:
    text = f"""\
module RMSNorm(d: int):
  params:
    weight: [d]
module Linear(d: int):
  params:
    weight: [d, d]
module M(d: int):
  params:
    norm: RMSNorm(d)
    project: Linear(d)
  forward:
    graph:
      {statement}
"""
    assert codes(text, scope=False) == expected


# --- stages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "first", "second", "expected"),
    [
        ("@checkpoint", 0, 1, ["E025"]),
        ("@checkpoint", 1, 1, []),
        ("@checkpoint(none)", 0, 1, []),
        ("@checkpoint(selective)", 0, 1, ["E025"]),
        ("@trace", 0, 1, []),
    ],
)
@pytest.mark.parametrize("place", ["statement", "declaration", "graph", "instance"])
def test_a_checkpoint_belongs_to_one_stage(
    mark: str, first: int, second: int, expected: list[str], place: str
) -> None:
    marks = {key: mark if key == place else "" for key in ("statement", "declaration", "graph", "instance")}
    text = f"""\
module Two(d: int):
  {marks["declaration"]}
  forward:
    {marks["graph"]}
    graph:
      x -> relu() -> a @partition({first})
      a -> silu() -> out @partition({second})
module M(d: int):
  params:
    two: [3] x Two(d) {marks["instance"]}
  forward:
    graph:
      x -> two[0:2]() -> out {marks["statement"]}
"""
    assert codes(text) == expected


def test_modules_that_contain_each_other_end() -> None:
    text = """\
module A(d: int):
  params:
    b: B(d)
  forward:
    graph:
      x -> b() -> out @checkpoint @partition(0)
module B(d: int):
  params:
    a: A(d)
  forward:
    graph:
      x -> a() -> out @partition(1)
"""
    assert codes(text) == ["E025"]


def test_long_chains_of_modules_end() -> None:
    one = "module M{0}():\n  params:\n    a: M{1}()\n  forward:\n    graph:\n      x -> a() -> out @checkpoint\n"
    text = "".join(one.format(number, number + 1) for number in range(3000)) + "module M3000():\n"
    found = parse(Source("test.module", text))
    assert not list(check(found.document))
