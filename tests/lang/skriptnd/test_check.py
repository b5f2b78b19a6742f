"""Right definitions have nothing wrong: the library, the specification's examples, and the fine points of the rules."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.source import Source
from lamella.lang.skriptnd import check, check_operator, parse
from lamella.lang.skriptnd.nodes import Operator
from tests.support.lang.skriptnd.library import FOLDER, find, find_newer, module, operators

GOOD = sorted((Path(__file__).parent / "good").rglob("*.sknd"))
ATTRIBUTES = (
    "a: int; r: real; b: bool; t: str; p: int..(k); q: int..(k); m: bool..(k); "
    "o: optional int; c: optional real;"
)


def codes(text: str, name: str = "main") -> list[str]:
    """The codes that are found in a text which the parser reads without complaint."""
    document, findings = parse(Source("test.sknd", text))
    assert not findings, findings
    return [item.code for item in check(document, name, find)]


def beside(path: Path, name: str) -> Operator | None:
    """An operator of the library or of a module in the folder of a file."""
    folder, _, operator = name.rpartition(".")
    neighbour = path.parent / f"{folder.replace('.', '/')}.sknd"
    if neighbour.is_file():
        document = parse(Source(neighbour.name, neighbour.read_text(encoding="utf-8"))).document
        return next((item for item in document.declarations if item.name == operator), None)
    return find(name)


def shown(findings: list[Diagnostic]) -> str:
    return "\n".join(map(str, findings))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sknd")), ids=lambda path: path.stem)
def test_the_library_has_nothing_wrong(path: Path) -> None:
    findings = check(module(path), path.stem, find)
    assert not findings, shown(findings)


@pytest.mark.parametrize("path", sorted((FOLDER / "newer").glob("*.sknd")), ids=lambda path: path.stem)
def test_the_newer_library_has_nothing_wrong(path: Path) -> None:
    findings = check(module(path), path.stem, find_newer)
    assert not findings, shown(findings)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sknd")), ids=lambda path: path.stem)
def test_operators_can_be_checked_one_by_one(path: Path) -> None:
    for operator in module(path).declarations:
        findings = check_operator(operator, path.stem, find)
        assert not findings, shown(findings)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_examples_of_the_specification_have_nothing_wrong(path: Path) -> None:
    document, findings = parse(Source(path.name, path.read_text(encoding="utf-8")))
    assert not errors(findings), shown(list(findings))
    found = check(document, path.stem if document.graphs == () else "main", lambda name: beside(path, name))
    assert not found, shown(found)


def test_without_a_finder_other_modules_are_taken_as_they_are() -> None:
    text = "import nn; graph G { @input { x: real[4]; } @output { y: real; } @compose { y = nn.anything{k=1}(x); } }"
    assert not check(parse(Source("test.sknd", text)).document)


RIGHT = {
    "element-wise with a single value": "p + 1 + q",
    "a choice of packs of other lengths": "b ? p : [a]",
    "text with text": "t + 'x'",
    "null goes through": "(o + 1) * 2 ?? a",
    "a test promotes": "?o ? o : 0",
    "a conjunction promotes": "?o && b ? o : 0",
    "a conjunction promotes its own terms": "?o && o > 1 ? o : 0",
    "an implication promotes": "?o => o > 1",
    "replacement of a whole pack": "(b ? p) ?? [a, a]",
    "flags count like numbers": "[a..(b), p..(k)]",
    "a mask": "p[m] + ..",
    "a negative index": "[1, 2, 3][-3]",
    "steps backwards": "[p.., 0][::-1] + [q.., 1]",
    "odd and even": "[(p, q)..][0::2] + p",
    "a range of reals is none of ours": "real([0:a])",
    "the extreme": "int(-inf)",
    "default values": "[int(), a] + [0, 0]",
    "a fold with more": "p + .. + a",
    "uniform value": "(p := ..) ?? 0",
    "smallest": "(p << ..) ?? 0",
    "membership of a pack in a pack": "(p in q) && ..",
    "formatted": "'{p} of {a + 1} and {t}'",
    "text by index": "t[0] + t[1:]",
    "identity": "p is 1 ? 0 : p",
    "lengths of choices": "(b ? [p.., 1] : [q.., 2]) + [p.., 3]",
    "substitution": "([0 ..(k + 1)][p] <- q) + [q.., 1]",
    "reals divide by zero": "r / 0.0",
    "a remainder of reals": "r % 2.0",
    "rounding up reals": "r \\ 2.0",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_expression_has_nothing_wrong(text: str) -> None:
    assert not codes(f"operator f {{ @attrib {{ {ATTRIBUTES} }} @using {{ u = {text}; }} }}")


WRONG = {
    "1 + 2.0": "SKR070",
    "a == r": "SKR070",
    "a == b": "SKR070",
    "b + b": "SKR071",
    "t < a": "SKR070",
    "a && b": "SKR072",
    "!a": "SKR072",
    "p && ..": "SKR072",
    "-t": "SKR071",
    "`exp`(a)": "SKR076",
    "real(t)": "SKR075",
    "str(a)": "SKR075",
    "[p.., r]": "SKR074",
    "[(p, a)..]": "SKR090",
    "a in a": "SKR090",
    "a[0]": "SKR090",
    "[[a], a]": "SKR091",
    "p[b]": "SKR078",
    "p[0:1.5]": "SKR088",
    "(p[2:] + p[1:]) + ..": "SKR095",
    "[0:k] + [0:k + 1]": "SKR095",
    "m ? [p.., 1] : q": "SKR095",
    "[p.., 1][m]": "SKR096",
    "p / 0": "SKR100",
    "a % (1 - 1)": "SKR100",
    "o ?? c": "SKR106",
    "c ?? 1": "SKR107",
    "?u0": "SKR031",
    "(b ? a) ?? (b ? a)": "SKR106",
    "[1, 2][2]": "SKR098",
}


@pytest.mark.parametrize(("text", "code"), WRONG.items())
def test_a_wrong_expression_gives_its_finding_alone(text: str, code: str) -> None:
    assert codes(f"operator f {{ @attrib {{ {ATTRIBUTES} }} @using {{ u = {text}; }} }}") == [code]


def test_what_is_not_known_is_not_wrong_again() -> None:
    text = "operator f { @using { u = missing; v = u + 1.0; w = [v.., u][0] ?? 3; x = missing; } }"
    assert codes(text) == ["SKR031"]


TOGETHER = ({"SKR031", "SKR110"}, {"SKR031", "SKR161"}, {"SKR126", "SKR127"}, {"SKR033", "SKR201"})
"""Findings with one cause that are both worth saying."""


@given(st.sampled_from(sorted(operators())), st.randoms(use_true_random=False))
def test_one_wrong_name_is_one_kind_of_finding(name: str, chance: random.Random) -> None:
    words = re.findall(r"\w+|\W", operators()[name].span.text)
    place = chance.choice([index for index, word in enumerate(words) if word.isidentifier()])
    words[place] = "unheard_of"
    document, findings = parse(Source("test.sknd", "".join(words)))
    if findings or len(document.declarations) != 1:
        return
    found = check_operator(document.declarations[0], name.partition(".")[0], find)
    kinds = {item.code for item in found}
    assert len(kinds) <= 1 or kinds in TOGETHER, shown(found)


def test_the_order_of_the_blocks_is_free() -> None:
    text = """operator f {
        @lower { y[i..] = x[i..] * u, i < s; } @output { y: real[s..]; } @using { u = real(a); }
        @input { x: real[s..]; } @attrib { a: int; }
    }"""
    assert not codes(text)


# --- 2.6.1: the binding order -------------------------------------------------------------------------------


SHAPES = {
    "an attribute fixes a length": ("r: int;", "x: real[s..(r),t..];", ""),
    "nothing fixes a length": ("", "x: real[s..,t..];", "SKR127"),
    "another input fixes a length": ("", "x: real[s..(d),t..]; y: real[s..(d)];", ""),
    "a packed attribute does not": ("a: int..(d) = 0;", "x: real[s..(d),t..];", "SKR127"),
    "an optional attribute does not": ("r: optional int;", "x: real[s..(r),t..];", "SKR127"),
    "a deferred attribute does not": ("r: int = n;", "x: real[s..(r),t..,n];", "SKR127"),
    "the example of the specification": (
        "r: int; a: optional int; b: int..(d) = 0; c: int = 2 * d + r;",
        "x: real[s..(r),z..(d),t..]; y: real[s..(r),z..(d)];",
        "",
    ),
    "a captured rank": ("axis: int;", "x: real^(r)[s..(axis < 0 ? axis + r : axis),t..];", ""),
    "a flag is no open length": ("c: bool;", "x: real[s..,z..(c)];", ""),
    "one length twice is open twice": ("", "x: real[s..(d),t..(d)];", "SKR127"),
    "optional inputs come last": ("", "x: real[s..(d),t..]; y: optional real[s..(d)];", "SKR127"),
    "a chain of inputs": ("", "x: real[a..,b..]; y: real[b..,c..]; z: real[c..];", ""),
    "affine in every way": ("", "x: real[m,k + 1,s..(2 * d),3 - -n];", ""),
    "an extent of another input": ("axis: int;", "x: real[s..(d)]; w: real[s[axis]];", ""),
    "an extent before its declaration": ("", "w: real[n * n]; x: real[n];", "SKR126"),
    "two new names": ("", "x: real[n + m];", "SKR126"),
    "a quotient": ("", "x: real[n / 2];", "SKR126"),
    "a factor that is an attribute": ("g: int;", "x: real[g * n];", "SKR126"),
    "a known quotient": ("n: int;", "x: real[n / 2];", ""),
    "a helper symbol of plain attributes": ("f: str;", "x: real[c..(u),s..(d)];", ""),
}


@pytest.mark.parametrize(("attributes", "inputs", "expected"), SHAPES.values(), ids=SHAPES.keys())
def test_the_binding_order(attributes: str, inputs: str, expected: str) -> None:
    using = "@using { u = f == 'x'; }" if "(u)" in inputs else ""
    text = f"operator f {{ @attrib {{ {attributes} }} @input {{ {inputs} }} {using} }}"
    assert " ".join(codes(text)) == expected


DEFAULTS = {
    "a constant": ("a: int = 2;", True),
    "one that is declared later": ("a: int = b; b: int = 3;", True),
    "a chain": ("a: int = b; b: int = c; c: int;", True),
    "a circle": ("a: int = b; b: int = c; c: int = a;", False),
    "itself": ("a: int = a;", False),
    "its own length": ("a: int..(k) = [0:k];", False),
    "the length of another": ("a: int..(k); b: int = k;", True),
    "a uniform value with a length from another": ("a: int..(k); b: int..(k) = 1;", True),
    "a uniform value without a length": ("a: int.. = 1;", False),
    "uniform values that wait for each other": ("a: int..(k) = 1; b: int..(k) = 2;", False),
    "a uniform value with a default beside it": ("a: int..(k) = [1, 2]; b: int..(k) = 2;", True),
    "an optional value": ("a: optional int; b: int = a;", True),
    "a number of an affine length": ("p: int..(2 * d); b: int..(d) = 1;", True),
}


@pytest.mark.parametrize(("attributes", "right"), DEFAULTS.values(), ids=DEFAULTS.keys())
def test_defaults_can_be_evaluated(attributes: str, right: bool) -> None:
    found = codes(f"operator f {{ @attrib {{ {attributes} }} }}")
    assert set(found) == (set() if right else {"SKR122"})


GRAPHS = {
    "numbers": ("", "x: real[1,2];", ""),
    "attributes": ("n: int = 3;", "x: real[n,n / 2,2 ..(n)];", ""),
    "a packed attribute": ("shape: int..(d) = [1, 2];", "x: real[shape..];", ""),
    "a helper symbol": ("n: int = 3;", "x: real[half];", ""),
    "a bound for all that follow": ("", "x: real[n|9,3]; y: real[n]; z: real[n + 1];", ""),
    "the same bound again": ("", "x: real[n|9]; y: real[n|9];", ""),
    "another bound": ("", "x: real[n|9]; y: real[n|8];", "SKR066"),
    "no name and no bound": ("", "x: real[~];", "SKR061"),
    "no name": ("", "x: real[~|4 ..(3)];", ""),
    "a pack of inputs": ("", "xs: real[4]..(3);", ""),
    "a pack of inputs with a bound": ("", "xs: real[4]..(n|3);", ""),
    "a pack of inputs without one": ("", "xs: real[4]..(n);", "SKR063"),
    "a pack of extents without a length": ("", "x: real[s|4 ..];", "SKR063"),
}


@pytest.mark.parametrize(("attributes", "inputs", "expected"), GRAPHS.values(), ids=GRAPHS.keys())
def test_the_inputs_of_a_main_graph_say_how_large_they_are(
    attributes: str, inputs: str, expected: str
) -> None:
    using = "@using { half = n / 2; }" if "half" in inputs else ""
    rest = "@output { o: real; } @compose { o = 1.0; }"
    text = f"graph G {{ @attrib {{ {attributes} }} @input {{ {inputs} }} {using} {rest} }}"
    assert " ".join(codes(text)) == expected


def test_graphs_of_control_flow_need_not_say_it() -> None:
    text = """graph G {
        @input { x: real[4]; c: bool[]; } @output { y: real; } @compose { y = if c then H(x) else x; }
    }
    graph H { @input { x: real; } @output { y: real[~]; } @compose { y = x; } }"""
    assert not codes(text)


def test_the_bounds_of_outputs_agree() -> None:
    text = "operator f {{ @input {{ x: real[n]; }} @output {{ y: int[k|n]; z: int[k|{bound}]; }} }}"
    assert not codes(text.format(bound="n"))
    assert codes(text.format(bound="2 * n")) == ["SKR066"]
