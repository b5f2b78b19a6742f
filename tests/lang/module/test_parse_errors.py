"""Texts that are not the language: what is said, where, and how much else is read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from docs.generate import repaired
from lamella.lang.module import nodes as n
from tests.support.lang.module.parsed import BAD, expectations, places, read

GRAPH = "module M():\n  forward:\n    graph:\n"
INDENTED = "this line is indented by"
LET = "module M():\n  let:\n"
PARAMS = "module M():\n  params:\n"


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_wrong_programs_have_exactly_the_findings_they_announce(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    findings = read(text).findings
    found = Counter((item.span.line, item.code) for item in findings)
    assert found == expectations(text), "\n".join(map(str, findings))
    assert found
    assert not read(repaired(text)).findings


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("x -> y", (1, 1), "expected an import or a declaration here, found 'x'"),
        ("module", (1, 7), "expected the name of the module after 'module', found the end of the line"),
        ("abstract recipe R:", (1, 10), "expected module, block or model after 'abstract', found 'recipe'"),
        ("module M()", (1, 11), "expected ':' after the head of 'M', found the end of the line"),
        ("module M(a b):", (1, 12), "expected ')' after the parameters, found 'b'"),
        ("module M(a: ):", (1, 13), "expected a type such as int or [int] after ':', found ')'"),
        ("module M(...):", (1, 10), "'...' cannot stand in the place of a parameter"),
        ("module M(): x -> y", (1, 13), "expected a section in 'M', found 'x'"),
        ("primitive p():", (1, 12), "expected ':' after 'p', found '('"),
        ("import a.", (1, 10), "expected a name after '.', found the end of the line"),
        ("import a as", (1, 12), "expected a name after 'as', found the end of the line"),
        ("import a.v9999999999", (1, 10), "the number 9999999999 is too large"),
        ("from a import {B}", (1, 15), "expected the name of a declaration in an import, found '{'"),
        (LET + "    a = 1 +", (3, 12), "expected a value here, found the end of the line"),
        (LET + "    a = (1", (3, 9), "this '(' is never closed"),
        (LET + "    a = [1", (3, 9), "this '[' is never closed"),
        (LET + "    a = f(1", (3, 10), "this '(' is never closed"),
        (LET + "    a = b[", (3, 10), "this '[' is never closed"),
        (LET + "    a = {b: 1", (3, 9), "this '{' is never closed"),
        (LET + "    a = f(b[1)", (3, 12), "this '[' is never closed"),
        (GRAPH + "      (x, y -> add() -> z\n      z -> silu() -> w", (4, 7), "this '(' is never closed"),
        (
            LET + "    a = 1 if b",
            (3, 15),
            "expected 'else' after the condition of a choice, found the end of the line",
        ),
        (LET + "    a = 1.2.3", (3, 9), "the text '1.2.3' has no meaning here"),
        (LET + "    a = $$$", (3, 9), "the text '$$$' has no meaning here"),
        (LET + "    a", (3, 6), "expected '=' after 'a', found the end of the line"),
        (
            LET + "    constraint:\n      a",
            (4, 8),
            "expected ',' after the condition of a constraint, found the end of the line",
        ),
        (PARAMS + "    w", (3, 6), "expected ':' after the name of a parameter, found the end of the line"),
        (PARAMS + "    w: 4", (3, 8), "expected a type here, found '4'"),
        (
            PARAMS + "    w: [a",
            (3, 8),
            "this '[' is never closed",
        ),
        (PARAMS + "    w: [a] [b]", (3, 12), "expected the end of the line after a parameter, found '['"),
        (
            PARAMS + "    w[i]: [a]",
            (3, 7),
            "expected a placeholder such as {i}, or an index after '[', found 'i'",
        ),
        (
            PARAMS + "    w: [a] @",
            (3, 13),
            "expected the name of an annotation after '@', found the end of the line",
        ),
        (
            GRAPH + "      x",
            (4, 8),
            "expected '->' after the source of a statement, found the end of the line",
        ),
        (
            GRAPH + "      x -> relu()",
            (4, 18),
            "expected '->' and the name of a result after an operation, found the end of the line",
        ),
        (
            GRAPH + "      x -> 4",
            (4, 12),
            "expected an operation or the name of a result after '->', found '4'",
        ),
        (GRAPH + "      x -> a[0]", (4, 12), "'a[0]' cannot stand at the end of a statement"),
        (GRAPH + "      x -> None", (4, 12), "'None' cannot stand at the end of a statement"),
        (GRAPH + "      x -> (a, b.c)", (4, 17), "expected ')' after the results of a statement, found '.'"),
        (GRAPH + "      else:", (4, 1), "this line is indented by 6 spaces, 'else' belongs to no 'if'"),
        ("module M():\nforward:\n  graph:", (2, 1), f"{INDENTED} 0 spaces, a section stands inside a declaration"),
        ("module M():\n  params:\n  w: [2]\n  v: [2]", (3, 1),
 f"{INDENTED} 2 spaces, it belongs into the section above"),
        ("module M():\n  forward:\n  in: x: [2]\n  out: y: [2]", (3, 1),
 f"{INDENTED} 2 spaces, it belongs into 'forward:'"),
        (
            "module M():\n  forward:\n    in: x",
            (3, 9),
            "expected the type of a tensor, such as [B, T] here, found 'x'",
        ),
        (
            "module M():\n  forward:\n    x -> y\n    y -> z",
            (3, 1),
            "this line is indented by 4 spaces, a statement stands inside 'graph:'",
        ),
        (
            "module M():\n  backward:\n    x: [a]",
            (3, 5),
            "expected in, out, graph or a gradient with ':' in 'backward:', found 'x'",
        ),
        (
            "module M():\n  forward\n    graph:",
            (2, 10),
            "expected ':' after 'forward', found the end of the line",
        ),
        (
            "module M():\n  pattern:\n",
            (2, 11),
            "expected the name of a pattern after 'pattern:', found the end of the line",
        ),
        ("  module M():", (1, 1), "this line is indented by 2 spaces, the block it stands in by 0"),
        ("module M():\n\tforward:", (2, 1), "a tab in the indentation"),
        ('module M():\n  """a', (2, 3), "this docstring never ends"),
        ('recipe R:\n  """a"', (2, 3), "this docstring never ends"),
        ('recipe R:\n  a: "b', (2, 6), "the text '\"b' has no meaning here"),
        ('recipe R:\n  a: b c """d"""', (2, 10), "expected a value in a field, found '\"\"\"d\"\"\"'"),
        ('module M():\n  """a""" x -> y', (2, 11), "expected the end of the line after a docstring, found 'x'"),
    ],
)  # fmt: skip
def test_one_mistake_is_one_finding_at_its_place(text: str, place: tuple[int, int], message: str) -> None:
    for whole in (text, text + "\n", text + "  # comment\n" if '"' not in text else text):
        assert places(whole) == [(*place, message)]


def test_what_is_around_a_mistake_is_read() -> None:
    parsed = read(
        "import a..b\nimport c\nmodule M(a,,b):\n  params:\n    w: [a]\n    v [a]\n    u: [b]\n  forward:\n    graph:\n"
        "      x -> f( -> y\n      x -> relu() -> y\n      if a b:\n        x -> z\n      else:\n        x -> 4\n"
        "    save: x\n    recompute: [y]\nmodule N():\n  params:\n    w: [2]\n"
    )
    assert [item.span.line for item in parsed.findings] == [1, 3, 6, 10, 12, 15, 16]
    broken, imported, lost, found = parsed.document.items
    assert broken == n.Broken()
    assert imported == n.Import(("c",))
    assert lost == n.Broken("M")
    assert isinstance(found, n.Module)
    assert [item.type for item in found.tensors] == [n.TensorType((n.Integer(2),))]


def test_an_open_bracket_ends_where_a_section_or_declaration_begins() -> None:
    text = (
        "module M(a: int\n  params:\n    w: [a\n  forward:\n    graph:\n      x -> f(y\n"
        "module N():\n  params:\n    w: [2]\n"
    )
    assert [(line, column) for line, column, _ in places(text)] == [(1, 9), (3, 8), (6, 13)]
    assert isinstance(read(text).document.items[1], n.Module)


def test_a_section_that_is_there_twice_is_read_once() -> None:
    parsed = read(
        "module M():\n  params:\n    w: [1]\n  params:\n    v: [1\n"
        "  forward:\n    save: [x]\n    save: [y]\n    in: [1]\n    inputs: [2]\n"
    )
    assert [(item.span.line, item.message) for item in parsed.findings] == [
        (4, "'params:' stands twice in 'M'"),
        (5, "this '[' is never closed"),
        (8, "'save:' stands twice in 'forward:'"),
        (10, "'inputs:' stands twice in 'forward:'"),
    ]
    (found,) = parsed.document.items
    assert isinstance(found, n.Module)
    assert len(found.tensors) == 1
    assert found.forward is not None
    assert found.forward.save == n.Selection((n.Pattern("x"),))
    assert found.forward.inputs == (n.Port(None, n.TensorType((n.Integer(1),))),)


def test_near_misses_get_a_hint() -> None:
    (finding,) = read("recip R:\n  a: 4\n").findings
    assert finding.hint == "did you mean recipe?"
