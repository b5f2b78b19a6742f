"""Compositions and formulas: what agrees has nothing wrong, and each disagreement gives one finding."""

from __future__ import annotations

import pytest

from lamella.base.source import Source
from lamella.lang.skriptnd import check, parse
from tests.support.lang.skriptnd.library import find

HEAD = """
import math, nn, layout;
operator copy { @input { x: real[s..]; } @output { y: real[s..]; } @lower { y[i..] = x[i..], i < s; } }
operator positive { @input { x: real[s..]; } @output { y: bool[]; } @lower { y[] |= x[i..] > 0.0, i < s; } }
operator two { @input { x: real[s..]; } @output { y: real[s..]; z: int[s..]; } }
operator next {
    @input { x: real[s..]; k: int[]; } @output { y: real[s..]; z: real[s..]; } @compose { y = x; z = x; }
}
operator parts { @input { x: real[n]; } @output { ys: real[]..(n); } @lower { ys[k][] = x[k,], k < n; } }
operator dense {
    @input { x: real[n]; } @output { y: real[n]; } @variable { w: real[n]; } @compose { y = math.mul(x, w); }
}
operator outer { @input { x: real[n]; } @output { y: real[n]; z: real[n]; } @compose { y = dense(x); z = y; } }
"""
INPUTS = "x: real[n]; m: real[n,n]; k: int[]; c: bool[]; xs: real[n]..(l); o: optional real[n]; f: f16[n];"


def codes(
    component: str, outputs: str = "y: real[n];", attributes: str = "a: int; b: bool; q: optional int;"
) -> str:
    """The codes found in a composition."""
    operator = (
        f"operator test {{ @attrib {{ {attributes} }} @input {{ {INPUTS} }} @output {{ {outputs} }}"
        f" @compose {{ {component} }} }}"
    )
    document, findings = parse(Source("test.sknd", HEAD + operator))
    assert not findings, findings
    return " ".join(item.code for item in check(document, "main", find))


RIGHT = [
    "y = x;",
    "y = math.add(x, 1.0);",
    "y = copy(f);",
    "y = math.add(x, o ?? x);",
    "y = if ?o then o else x;",
    "y = if ?o && b then o else x;",
    "y = if a > 3 then copy(x) elif b then x else math.neg(x);",
    "y = if positive(x) then copy(x) else x;",
    "y = if { p = positive(x); yield p; } then copy(x) else { z = copy(x); yield z; };",
    "y = if c then { x = math.neg(x); yield x; } else x;",
    "y = with z = x do..(3) copy(z);",
    "y = with z = x do..(k) copy(z);",
    "y = with z = x do..(q) copy(z);",
    "y = with z = x while positive(z) do copy(z);",
    "y = with z = x do copy(z) while positive(z);",
    "y, ~ = with z = x, t = true while t do { w = copy(z); u = positive(w); yield w, u; };",
    "y = with z: real[n] = 0.0 for i : xs do math.add(z, i);",
    "y, ws = with z = x for i : xs do..(j ->) next(z, j);",
    "zs = for i : xs do copy(i); y = zs[0];",
    "zs = for i : xs, j : xs unroll math.add(i, j); y = zs[-1];",
    "y = with z = x unroll..(i -> 3) math.mul(z, real(i));",
    "[p, q2..] = parts(x); y = copy(x);",
    "ps..(n) = parts(x); y = x;",
    "ps: real[]..(n) = parts(x); y = x;",
    "y = layout.concat{axis=0}([x, x, xs..]);",
    "z, ~ = two(x); y = z;",
    "z = nn.linear(m, m); y = x;",
    "y = one: dense(x);",
    "y = dense(x);",
    "y, ~ = first: outer(x);",
    "z = layout.cast<int>(x); y = layout.cast<real>(z);",
    "y = layout.uniform{shape=x.shape}(1.0);",
    "y = math.clamp(x, 0.0, 1.0);",
    "[z, w] = [x, x]; y = z;",
    "y = x is xs[0] ? x : xs[0];",
]


@pytest.mark.parametrize("component", RIGHT)
def test_a_right_composition_has_nothing_wrong(component: str) -> None:
    assert codes(component) == ""


WRONG = [
    ("y = o;", "SKR110"),
    ("y = copy(o);", "SKR110"),
    ("y = { yield o; };", "SKR110"),
    ("y = if c then o else x;", "SKR110"),
    ("y = if q then x else x;", "SKR230"),
    ("y = if k then x else x;", "SKR230"),
    ("y = if two(x) then x else x;", "SKR230"),
    ("y = if c then x else m;", "SKR233"),
    ("y = if c then two(x) else x;", "SKR231"),
    ("z = if c then k else x; y = x;", "SKR232"),
    ("y = x + 1.0;", "SKR037"),
    ("y = if x > 0.0 then x else x;", "SKR037"),
    ("y = copy(x, x);", "SKR205"),
    ("y = copy();", "SKR206"),
    ("y = copy(k);", "SKR211"),
    ("y = math.add(x, k);", "SKR216"),
    ("y = math.add(x, 1);", "SKR216"),
    ("y = nn.linear(m, x);", "SKR219"),
    ("y = copy(xs);", "SKR220"),
    ("y = layout.concat{axis=0}(x);", "SKR220"),
    ("y = layout.concat{axis=1.0}(xs);", "SKR210"),
    ("y = layout.concat{axis=k}(xs);", "SKR037"),
    ("y = layout.concat(xs);", "SKR208"),
    ("y = layout.concat{axis=q}(xs);", "SKR110"),
    ("y = math.missing(x);", "SKR051"),
    ("y = image.resize(x);", "SKR050"),
    ("y = nn._lstm_step(x);", "SKR052"),
    ("y = copy<real>(x);", "SKR213"),
    ("y = layout.cast<complex>(x);", "SKR036"),
    ("y = math.neg<bool>(x);", "SKR214"),
    ("y = math.neg(c);", "SKR214"),
    ("y, z = outer(x); w = copy(z);", "SKR218"),
    ("y = two(x);", "SKR204"),
    ("[y, z] = copy(x);", "SKR222"),
    ("[z.., w..] = parts(x); y = x;", "SKR151"),
    ("ps = parts(x); y = x;", "SKR221"),
    ("y = z; z = copy(x);", "SKR031"),
    ("y = copy(y);", "SKR033"),
    ("y = copy(x); y = copy(x);", "SKR200"),
    ("m = copy(x); y = x;", "SKR203"),
    ("y = m;", "SKR224"),
    ("y = k;", "SKR223"),
    ("y = xs;", "SKR225"),
    ("z = k; ~ = x;", "SKR201"),
    ("y = with z = x do copy(z);", "SKR234"),
    ("y = with z = x unroll copy(z);", "SKR245"),
    ("y = with z = x unroll..(k) copy(z);", "SKR241"),
    ("y = with z = x do..(1.0) copy(z);", "SKR240"),
    ("y = with z = x do..(xs) copy(z);", "SKR240"),
    ("y = with z = 0.0 do..(3) copy(x);", "SKR237"),
    ("y = with z: int[] = 0.0 do..(3) { yield z; };", "SKR237"),
    ("y, z = with p = x, q2 = x do..(2) copy(p);", "SKR236"),
    ("y = with z = x for i : x do copy(z);", "SKR238"),
    ("y = with z = x while k do copy(z);", "SKR230"),
    ("y = a1: copy(x); z = a1: copy(x);", "SKR217"),
    ("y = { z = copy(x); z = copy(x); yield z; };", "SKR200"),
]


@pytest.mark.parametrize(("component", "code"), WRONG)
def test_a_wrong_composition_gives_its_finding_alone(component: str, code: str) -> None:
    assert codes(component) == code


SIZED = [
    ("f: f16[n];", "y: f16[n];", "y = copy(f);", ""),
    ("f: f16[n];", "y: real[n];", "y = math.mul(f, 2.0);", ""),
    ("f: f16[n]; g: bf16[n];", "y: real[n];", "y = math.mul(f, g);", "SKR216"),
    ("f: f16[n]; g: bf16[n];", "y: real[n];", "y = linear(f, g);", "SKR211"),
    ("f: f16[n]; g: real[n];", "y: f16[n];", "y = linear(f, g);", ""),
    ("f: f16[n];", "y: bf16[n];", "y = copy(f);", "SKR223"),
    ("f: i8[n];", "y: real[n];", "y = copy(f);", "SKR211"),
    ("f: i8[n];", "y: i8[n];", "y = math.neg(f);", ""),
    ("f: i8[n];", "y: u8[n];", "y = math.neg(f);", "SKR223"),
    ("f: i8[n];", "y: f16[n];", "y = layout.cast<f16>(f);", ""),
]


@pytest.mark.parametrize(("inputs", "outputs", "component", "code"), SIZED)
def test_sized_types_refine_their_primitive_types(
    inputs: str, outputs: str, component: str, code: str
) -> None:
    linear = "operator linear { @input { a: real[n]; b: real[n]; } @output { c: real[n]; } }"
    text = f"{HEAD} {linear} operator f {{ @input {{ {inputs} }} @output {{ {outputs} }} @compose {{ {component} }} }}"
    assert (
        " ".join(item.code for item in check(parse(Source("test.sknd", text)).document, "main", find)) == code
    )


def test_names_of_a_block_are_not_seen_outside() -> None:
    assert codes("z = { w = copy(x); yield w; }; y = w;") == "SKR031"


def test_branches_before_the_run_need_not_agree_in_rank() -> None:
    assert codes("z = if b then x else m; y = x;") == ""


def test_recursion_through_another_operator_is_found() -> None:
    shape = "@input { x: real[n]; } @output { y: real[n]; }"
    text = (
        f"operator f {{ {shape} @compose {{ y = g(x); }} }} operator g {{ {shape} @compose {{ y = f(x); }} }}"
    )
    assert [item.code for item in check(parse(Source("test.sknd", text)).document)] == ["SKR044"]


def test_recursion_below_a_condition_known_before_the_run_is_left_to_the_composition() -> None:
    text = """operator f {
        @attrib { n: int; } @input { x: real[s..]; } @output { y: real[s..]; }
        @compose { y = if n > 0 then f{n=n - 1}(x) else x; }
    }
    operator g {
        @attrib { n: int; } @input { x: real[s..]; } @output { y: real[s..]; }
        @compose { y = with z = x unroll..(n) g{n=n - 1}(z); }
    }"""
    assert not check(parse(Source("test.sknd", text)).document)


def test_recursion_below_a_condition_of_the_run_is_found() -> None:
    text = """operator f {
        @input { x: real[s..]; c: bool[]; } @output { y: real[s..]; }
        @compose { y = if c then f(x, c) else x; }
    }"""
    assert [item.code for item in check(parse(Source("test.sknd", text)).document)] == ["SKR044"]


def lowered(formulas: str, output: str = "y: real[n];", attributes: str = "") -> str:
    """The codes found in formulas."""
    inputs = "x: real[n]; m: real[n,l]; k: int[n]; c: bool[n]; xs: real[n]..(t); z: optional real[n]; s: real[e..(d)];"
    text = (
        f"operator f {{ @attrib {{ {attributes} }} @input {{ {inputs} }} @output {{ {output} }}"
        f" @lower {{ {formulas} }} }}"
    )
    document, findings = parse(Source("test.sknd", text))
    assert not findings, findings
    return " ".join(item.code for item in check(document))


@pytest.mark.parametrize(
    "formula",
    [
        "y[i,] = z[i,] ?? 0.0, i < n; y[i,] += m[i,j], i < n, j < l;",
        "y[i,] = z[i,], i < n; y[i,] += x[i,], i < n;",
        "y[i,] = x[k[i,],], i < n;",
        "y[i,] = 0.0, i < n; y[i,] := x[i,], i < n | x[i,] > y[i,];",
        "y[i,] += xs[t2][i,], i < n, t2 < t;",
        "y[i,] += xs[i,] + .., i < n;",
        "a = |i - 1|, y[i,] = x[a,], i < n;",
        "y[i,] = x[|i - 1 <> 0 : n - 1|,], i < n;",
        "y[i,] += s[j..], i < n, j < e;",
        "y[i,] += s[0 ..(d)], i < n;",
        "y[i,] = (i == 0 ? x[i,] : 1.0), i < n;",
        "y[i,] <= x[i,], i < n;",
        "y[i,] = real(k[i,]) ** 2.0, i < n;",
    ],
)
def test_a_right_formula_has_nothing_wrong(formula: str) -> None:
    assert lowered(formula) == ""


@pytest.mark.parametrize(
    ("formula", "code"),
    [
        ("y[i,j] = x[i,], i < n, j < n;", "SKR168"),
        ("y[i,] = s[j..,0,e2..], i < n, j < e, e2 < e;", "SKR168"),
        ("y[i,] += s[j..,j..,0], i < n, j < e;", "SKR168"),
        ("y[i,] += s[j..,0], i < n, j < e;", "SKR168"),
        ("y[i,] = x[i,] + k[i,], i < n;", "SKR070"),
        ("y[i,] = k[i,], i < n;", "SKR174"),
        ("y[i,] = x[c[i,],], i < n;", "SKR176"),
        ("y[i,] = xs[i,], i < n;", "SKR171"),
        ("y[i,] = x[i,], i < n | x[i,];", "SKR072"),
        ("y[i,] = x[i,], i < x;", "SKR088"),
        ("y[i,] = x, i < n;", "SKR037"),
        ("y[i,] = x[j,], i < n;", "SKR031"),
        ("y[i,] &= c[i,], i < n;", "SKR174"),
        ("y[i,] *= x[i,], i < n, i < l;", "SKR165"),
        ("a = x[i,], a = a, y[i,] = a, i < n;", "SKR165"),
    ],
)
def test_a_wrong_formula_gives_its_finding_alone(formula: str, code: str) -> None:
    assert lowered(formula) == code
