"""Graphs and primitives: statements, guards, signatures."""

from __future__ import annotations

import pytest

from lamella.lang.module import nodes as n
from tests.support.lang.module.parsed import flow, primitive, statement

X, Y = n.Name("x"), n.Name("y")
RELU = n.Operation(n.Name("relu"))
OUT = (n.Target("out"),)


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("x", (X,)),
        ("(x, y)", (X, Y)),
        ("(x)", (X,)),
        ("(x, y,)", (X, Y)),
        ("()", ()),
        ("in", (n.Name("in"),)),
        ("saved.x", (n.Member(n.Name("saved"), "x"),)),
        ("x[0]", (n.Index(X, (n.Integer(0),)),)),
        ("(x, None)", (X, n.Null())),
        ("(x, y if a else None)", (X, n.Select(Y, n.Name("a"), n.Null()))),
        ("ones([4])", (n.Call(n.Name("ones"), (n.Argument(None, n.List((n.Integer(4),))),)),)),
        ("recompute", (n.Name("recompute"),)),
    ],
)
def test_sources(text: str, sources: tuple[n.Expr, ...]) -> None:
    assert flow(f"{text} -> out") == n.Flow(sources, (), OUT)
    assert flow(f"{text}\n  -> relu()\n-> out") == n.Flow(sources, (RELU,), OUT)


STAGES = n.Index(n.Name("stages"), (n.Slice(n.Integer(0), n.Integer(8)),))
FROZEN = (n.Annotation("frozen"),)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("relu()", RELU),
        ("relu", RELU),
        ("if_else()", n.Operation(n.Name("if_else"))),
        ("feed.backward()", n.Operation(n.Member(n.Name("feed"), "backward"))),
        ("stages[0:8]()", n.Operation(STAGES)),
        ("stages[0:8]", n.Operation(STAGES)),
        ("a.b.Feed(y, n=4)", n.Operation(
            n.Member(n.Member(n.Name("a"), "b"), "Feed"),
            (n.Argument(None, Y), n.Argument("n", n.Integer(4))),
        )),
        ("relu() @frozen", n.Operation(n.Name("relu"), (), FROZEN)),
        ("relu @frozen", n.Operation(n.Name("relu"), (), FROZEN)),
        ("[B, 4]", n.ShapeAssertion(n.TensorType((n.Name("B"), n.Integer(4))))),
    ],
)  # fmt: skip
def test_steps(text: str, step: n.Step) -> None:
    assert flow(f"x -> {text} -> out") == n.Flow((X,), (step,), OUT)
    assert flow(f"x -> {text} -> {text} -> out") == n.Flow((X,), (step, step), OUT)


def test_targets_and_annotations() -> None:
    assert flow("x -> y @frozen @hook(A, mode=b)").annotations == (
        n.Annotation("frozen"),
        n.Annotation("hook", (n.Argument(None, n.Name("A")), n.Argument("mode", n.Name("b")))),
    )
    found = flow("x -> f() -> (y, _, z @frozen) @noalias")
    assert found.targets == (n.Target("y"), n.Target("_"), n.Target("z", FROZEN))
    assert found.annotations == (n.Annotation("noalias"),)
    assert flow("x -> y\n  @frozen\n@frozen").annotations == FROZEN * 2


def test_guards() -> None:
    found = statement("if a:\n  x -> y\nelif b == 1: x -> z\nelse if c:\n  ...\nelse:\n  x -> w\n  x -> v")
    one = n.Chain(n.Name("b"), (("==", n.Integer(1)),))
    to_y, to_z, to_w, to_v = (n.Flow((X,), (), (n.Target(name),)) for name in "yzwv")
    arms = (
        n.Arm(n.Name("a"), (to_y,)),
        n.Arm(one, (to_z,)),
        n.Arm(n.Name("c"), (n.Stub(),)),
    )
    assert found == n.Conditional(arms, (to_w, to_v))
    assert statement("if a:\n  x -> y") == n.Conditional((n.Arm(n.Name("a"), (to_y,)),))
    assert statement("recompute:\n  x -> y") == n.Recompute((to_y,))


ANY = n.TensorType((n.Star(),))


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("(a: [*], b: [*]?)", (n.Port("a", ANY), n.Port("b", n.TensorType(ANY.dims, None, True)))),
        ("(a, b?)", (n.Port("a", None), n.Port("b", n.TensorType(ANY.dims, None, True)))),
        ("(rest...)", (n.Port("rest", n.SequenceType()),)),
        ("d_out", (n.Port("d_out", None),)),
        ("values: reduced", (n.Port("values", None),)),
        ("a: int", (n.Port("a", n.ScalarType("int")),)),
        ("tuple([*] for i in range(4))", (n.Port(None, n.SequenceType(ANY)),)),
        ("tuple<[*]>", (n.Port(None, n.SequenceType(ANY)),)),
        ("a: [*, x, *]", (n.Port("a", n.TensorType((n.Star(), X, n.Star()))),)),
    ],
)
def test_open_ports(text: str, ports: tuple[n.Port, ...]) -> None:
    found = primitive(f"forward:\n  in: {text}\n  out: {text}")
    assert found.forward == n.Signature(ports, ports)


def test_gradients_in_terms_of_primitives() -> None:
    found = primitive(
        "backward:\n  in: d_y\n  out: d_x = f(d_y)\n  d_a = d_y\n  (d_b, d_c) = (d_y, d_y)\n  d_e, d_f = g(d_y)"
    )
    d_y = n.Name("d_y")
    of_y = (n.Argument(None, d_y),)
    assert found.backward == n.Signature(
        (n.Port("d_y", None),),
        (n.Port("d_x", None),),
        (
            n.Equation(("d_x",), n.Call(n.Name("f"), of_y)),
            n.Equation(("d_a",), d_y),
            n.Equation(("d_b", "d_c"), n.List((d_y, d_y))),
            n.Equation(("d_e", "d_f"), n.Call(n.Name("g"), of_y)),
        ),
    )


def test_free_sections_keep_their_text() -> None:
    found = primitive(
        "params:\n  a: int = 4\nforward:\n  _\nsave: [x]\n"
        "impl:\n  forward: kernels.f or g\n  backward: copy if so, else no\n"
        "constraints:\n  - a == 4\n  - it isn't so\n  held by others\nfusion:\n  patterns:\n    - [a, b] -> c\n"
        "invariants:\n  - uses: [x]"
    )
    kernels = n.Chain(n.Member(n.Name("kernels"), "f"), (("or", n.Name("g")),))
    four = n.Chain(n.Name("a"), (("==", n.Integer(4)),))
    assert found.params == (n.ConfigParam("a", n.ConfigType("int"), n.Integer(4)),)
    assert found.forward == n.Signature(native=True)
    assert found.save == n.Selection((n.Pattern("x"),))
    assert found.sections == (
        n.Field("impl", (n.Field("forward", kernels), n.Field("backward", "copy if so, else no"))),
        n.Field(
            "constraints", (n.Field("-", four), n.Field("-", "it isn't so"), n.Field("-", "held by others"))
        ),
        n.Field("fusion", (n.Field("patterns", (n.Field("-", "[a, b] -> c"),)),)),
        n.Field("invariants", (n.Field("uses", n.List((X,))),)),
    )


def test_a_stub_in_a_primitive() -> None:
    assert primitive("...\nbackward:\n  in: d_y").stub
    assert primitive("backward:\n  ...").stub
