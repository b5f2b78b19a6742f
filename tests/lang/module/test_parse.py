"""Module DSL text to nodes: imports, heads, sections, and the notes beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamella.base.source import Trivia
from lamella.lang.module import nodes as n
from tests.support.lang.module.parsed import GOOD, body, forward, module, param, read, right, value

A, B, W = n.Name("a"), n.Name("B"), n.Name("w")


def path(text: str) -> n.Path:
    """A path without indices."""
    return n.Path(tuple(n.PathPart(name) for name in text.split(".")))


@pytest.mark.parametrize("file", GOOD, ids=lambda file: file.stem)
def test_right_files_have_no_errors(file: Path) -> None:
    parsed = read(file.read_bytes().decode("utf-8"))
    assert {item.code for item in parsed.findings} == ({"W101"} if file.stem == "old_types" else set())
    assert parsed.document.items


# --- items --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("import a", n.Import(("a",))),
        ("import a.b.C", n.Import(("a", "b", "C"))),
        ("import a.b.C as D", n.Import(("a", "b", "C"), alias="D")),
        ("import a.b.v12 as D", n.Import(("a", "b"), 12, "D")),
        ("import v1", n.Import(("v1",))),
        ("import a.value", n.Import(("a", "value"))),
        ("import a.*", n.Import(("a",), names=())),
        ("import a.v2.*", n.Import(("a",), 2, names=())),
        ("import a.{B, C as D}", n.Import(("a",), names=(n.Imported("B"), n.Imported("C", "D")))),
        ("from a.v2 import B, C as D", n.Import(("a",), 2, None, (n.Imported("B"), n.Imported("C", "D")))),
        ("from a import (\n B,\n)", n.Import(("a",), names=(n.Imported("B"),))),
        ("from a import *", n.Import(("a",), names=())),
        ("from model import module", n.Import(("model",), names=(n.Imported("module"),))),
        ("export primitive matmul", n.Export("primitive", "matmul")),
        ("recipe R:\n  a: fp32", n.Recipe("R", (n.Field("a", n.Name("fp32")),))),
        (
            'preset tiny:\n  """Small."""\n  a: 4',
            n.Preset("tiny", (n.Field("a", n.Integer(4)),), "Small."),
        ),
        ("module M():", n.Module("module", "M")),
        ("module M:", n.Module("module", "M")),
        ("model M extends B:", n.Module("model", "M", None, extends="B")),
        ("abstract block M() extends a.B:", n.Module("block", "M", (), True, "a.B")),
        ("model module():", n.Module("model", "module")),
    ],
)
def test_items(text: str, node: n.Item) -> None:
    assert right(text).items == (node,)
    assert right(text + "\n").items == (node,)


def test_docstrings_are_kept_where_they_document() -> None:
    document = right(
        '"""The file."""\nmodule M():\n  """First\n    deeper\n  line.  """\n  """Second."""\n'
        '  forward:\n    """Third."""\n    graph:\n      """Fourth."""\n      x -> y\n"""Last."""\n'
    )
    assert document.doc == "The file."
    (found,) = document.items
    assert isinstance(found, n.Module)
    assert found.doc == "First\n  deeper\nline."
    assert found.forward is not None
    assert found.forward.graph == (n.Flow((n.Name("x"),), (), (n.Target("y"),)),)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("a", n.ConfigParam("a")),
        ("a = 4", n.ConfigParam("a", None, n.Integer(4))),
        ("a: int", n.ConfigParam("a", n.ConfigType("int"))),
        ("a: float? = None", n.ConfigParam("a", n.ConfigType("float", optional=True), n.Null())),
        ("a: [int]", n.ConfigParam("a", n.ConfigType("int", listed=True))),
        ("a: [string]?", n.ConfigParam("a", n.ConfigType("string", listed=True, optional=True))),
        ("a: enum(b, c) = b", n.ConfigParam("a", n.ConfigType("enum", ("b", "c")), n.Name("b"))),
        ("in: dtype = bf16", n.ConfigParam("in", n.ConfigType("dtype"), n.Name("bf16"))),
    ],
)
def test_config_params(text: str, node: n.ConfigParam) -> None:
    assert module(f"module M({text}):").params == (node,)
    assert module(f"module M(x, {text},):").params == (n.ConfigParam("x"), node)


# --- sections -----------------------------------------------------------------------------------------------


def test_bindings_stand_in_their_order() -> None:
    found = body(
        'let:\n  a = 1\n  constraint:\n    a > 0, "m"\n  B: batch_dim\n  ...\nconstraint: a == 1, "n"'
    )
    positive = n.Chain(A, ((">", n.Integer(0)),))
    one = n.Chain(A, (("==", n.Integer(1)),))
    assert found.bindings == (
        n.Let("a", n.Integer(1)),
        n.Constraint(positive, "m"),
        n.RuntimeDim("B", "batch_dim"),
        n.Stub(),
        n.Constraint(one, "n"),
    )


def test_constants_and_patterns() -> None:
    found = body("constants:\n  c: zeros([4])\npattern: name\n  sublayers:\n    - (a, b.c)\n    - d")
    call = n.Call(n.Name("zeros"), (n.Argument(None, n.List((n.Integer(4),))),))
    assert found.constants == (n.Constant("c", call),)
    assert found.sublayers == n.Sublayers("name", (("a", "b.c"), ("d",)))


INNER = n.InstanceType("Inner", (n.Argument(None, A),))


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("[a, B]", n.TensorType((A, B))),
        ("[a, fp32]", n.TensorType((A,), "fp32")),
        ("[fp32]", n.TensorType((), "fp32")),
        ("[a]?", n.TensorType((A,), None, True)),
        ("[]", n.TensorType(())),
        ("scalar", n.TensorType(())),
        ("[...]", n.TensorType((n.Unchanged(),))),
        ("[a, ...]", n.TensorType((A, n.Star()))),
        ("[*, a]", n.TensorType((n.Star(), A))),
        ("[2 * a]", n.TensorType((n.Chain(n.Integer(2), (("*", A),)),))),
        ("Inner", n.InstanceType("Inner")),
        ("Inner(a)", INNER),
        ("b.c.Inner(a)", n.InstanceType("b.c.Inner", INNER.arguments)),
        ("[a] x Inner(a)", n.ArrayType(A, INNER)),
        ("[a] × Inner(a)", n.ArrayType(A, INNER)),
        ("Array<a, Inner(a)>", n.ArrayType(A, INNER)),
        ("Array<a - 1, [a]>", n.ArrayType(n.Chain(A, (("-", n.Integer(1)),)), n.TensorType((A,)))),
        ("[a] x [B, bf16]", n.ArrayType(A, n.TensorType((B,), "bf16"))),
        ("tied_to(a.b)", n.TiedType(path("a.b"))),
        ("tied_to", n.InstanceType("tied_to")),
    ],
)
def test_types_of_parameters(text: str, type_: n.ParamType) -> None:
    assert param(f"w: {text}") == n.Param(path("w"), type_)
    assert param(f"w: {text} @frozen").annotations == (n.Annotation("frozen"),)
    assert param(f"w: {text} if a else tied_to(a)") == n.Param(path("w"), type_, A, n.TiedType(path("a")))


@pytest.mark.parametrize(("text", "repair"), [("Tensor[a, bf16]?", "[a, bf16]?"), ("Tensor<[a]>", "[a]")])
def test_older_types_are_noted(text: str, repair: str) -> None:
    parsed = read(f"module M():\n  params:\n    w: {text}")
    (note,) = parsed.findings
    assert (note.code, note.severity, note.hint) == ("W101", "note", f"write {repair}")
    (found,) = parsed.document.items
    assert isinstance(found, n.Module)
    assert found.tensors == (param(f"w: {repair}"),)


def test_paths_have_placeholders_and_indices() -> None:
    found = param("+stack[{i}].up[{e}][3].w: [a] if a and b @trainable(lr_scale=0.5)")
    parts = (n.PathPart("stack", ("i",)), n.PathPart("up", ("e", 3)), n.PathPart("w"))
    assert found.path == n.Path(parts)
    assert found.added
    assert found.condition == n.Chain(A, (("and", n.Name("b")),))
    assert found.annotations == (n.Annotation("trainable", (n.Argument("lr_scale", n.Real(0.5)),)),)


X = n.Port("x", n.TensorType((B,)))


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("in: [B]", (n.Port(None, n.TensorType((B,))),)),
        ("in: x: [B]", (X,)),
        ("inputs: x: [B]", (X,)),
        ("in: (x: [B], b: int)", (X, n.Port("b", n.ScalarType("int")))),
        ("in: (\n  x: [B],\n  b: float?,\n)", (X, n.Port("b", n.ScalarType("float", True)))),
        ("in: x: [B], y: scalar", (X, n.Port("y", n.TensorType(())))),
        ("inputs:\n  x: [B]\n  y: [a]?", (X, n.Port("y", n.TensorType((A,), None, True)))),
        ("inputs:\n  x: [B], in: [a],\n", (X, n.Port("in", n.TensorType((A,))))),
        ("in: ()", ()),
        ("in: ([B], [a])", (n.Port(None, n.TupleType((n.TensorType((B,)), n.TensorType((A,))))),)),
        ("in: x: tuple<[a]>", (n.Port("x", n.SequenceType(n.TensorType((A,)))),)),
        ("in: x: [B] @frozen", (n.Port("x", X.type, None, (n.Annotation("frozen"),)),)),
        ("in: x: [B] = None", (n.Port("x", X.type, n.Null()),)),
    ],
)
def test_inputs_and_outputs(text: str, ports: tuple[n.Port, ...]) -> None:
    assert forward(text).inputs == ports
    assert forward(text.replace("in", "out", 1)).outputs == ports


def test_a_forward_has_its_parts_in_any_order() -> None:
    found = forward("save: [a*, *, b..., ...] if a\n@profile\ngraph:\n  x -> y\nrecompute: []\nout: [B]")
    patterns = (n.Pattern("a*"), n.Pattern("*"), n.Pattern("b", True), n.Pattern("", True))
    assert found == n.Forward(
        None,
        (n.Port(None, n.TensorType((B,))),),
        (n.Flow((n.Name("x"),), (), (n.Target("y"),)),),
        n.Selection(patterns, A),
        n.Selection(()),
        (n.Annotation("profile"),),
    )


def test_a_backward_has_gradients() -> None:
    found = body("backward:\n  d_x: [B], d_y: [a]\n  d_z: scalar\n  graph:\n    d_x -> d_z").backward
    assert found is not None
    assert [item.name for item in found.gradients] == ["d_x", "d_y", "d_z"]
    assert found.graph is not None
    assert found.inputs is None


def test_stubs() -> None:
    assert body("...").stub
    assert body("params:\n  ...").stub
    assert body("hf_config:\n  mapping: ...").stub
    assert not body("forward:\n  ...").stub
    assert body("forward:\n  ...").forward == n.Forward(graph=(n.Stub(),))
    assert body("forward: ...").forward == n.Forward(graph=(n.Stub(),))
    assert body("backward:\n  graph:\n    ... -> d_w @comm(a)").backward == n.Backward(graph=(n.Stub(),))
    assert module("module M(): ...").stub


def test_empty_blocks_are_empty() -> None:
    found = body("let:\nparams:\n  # nothing\nforward:\n  graph:\nbackward:\nhf_mapping:\nhf_config:")
    assert found == n.Module(
        "module", "M", forward=n.Forward(graph=()), backward=n.Backward(), hf_config=(), hf_mapping=()
    )


# --- checkpoints --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ('"t"', n.Direct("t")),
        ('transform("t", fn: neg)', n.Transform("t", "neg")),
        ('transform("t", fn=neg)', n.Transform("t", "neg")),
        ('fuse("t", "u", dim=1)', n.Fuse((n.Direct("t"), n.Direct("u")), 1)),
        ('fuse("t", transform("u", fn: neg))', n.Fuse((n.Direct("t"), n.Transform("u", "neg")))),
        ('split("t": [0, a], dim=-1)', n.Split((n.SplitPart("t", n.Integer(0), A),), -1)),
        ("tied_to(a.b)", n.TiedType(path("a.b"))),
    ],
)
def test_mappings(text: str, spec: n.Spec) -> None:
    assert body(f"hf_mapping:\n  w: {text}").hf_mapping == (n.Mapping(path("w"), spec),)
    assert body(f"hf_mapping:\n  w?: {text} if a").hf_mapping == (n.Mapping(path("w"), spec, True, A),)
    assert body(f"hf_export:\n  w -> {text}").hf_export == (n.Mapping(path("w"), spec),)


def test_fields_nest() -> None:
    found = body('hf_config:\n  a: "t"\n  param_mapping:\n    b: c.d\n    e: first_of(f, g)').hf_config
    call = n.Call(n.Name("first_of"), (n.Argument(None, n.Name("f")), n.Argument(None, n.Name("g"))))
    inner = (n.Field("b", n.Member(n.Name("c"), "d")), n.Field("e", call))
    assert found == (n.Field("a", n.Text("t")), n.Field("param_mapping", inner))


# --- places and notes ---------------------------------------------------------------------------------------


def test_nodes_know_their_places() -> None:
    text = (
        "# c\nmodule M(a: int = 1):\n  params:\n    w: [a] @frozen  # d\n"
        "  forward:\n    graph:\n      x\n        -> y\n"
    )
    document = right(text)
    (found,) = document.items
    assert isinstance(found, n.Module)
    assert found.span.text == text[4:-1]
    assert found.params is not None
    assert found.params[0].span.text == "a: int = 1"
    assert found.tensors[0].span.text == "w: [a] @frozen"
    assert found.tensors[0].annotations[0].span.text == "@frozen"
    assert found.forward is not None
    assert found.forward.graph is not None
    assert found.forward.graph[0].span.text == "x\n        -> y"
    assert document.span.text == text


def test_comments_stay_beside_their_nodes() -> None:
    document = right(
        "# top\n\n# file\nmodule M(  # head\n    a,  # first\n    b\n):  # colon\n"
        "  # above params\n  params:  # behind params\n    # above w\n    w: [a]  # behind w\n\n    v: [a]\n"
        "    # end of params\n  forward:  # behind forward\n    graph:\n      x -> y\n      # end of graph\n"
        "    # end of forward\n  # end of M\n# end of file\n"
    )
    (found,) = document.items
    assert isinstance(found, n.Module)
    assert found.notes == Trivia(("# top", "", "# file"), "# colon", last=("# end of M",))
    assert found.params is not None
    assert [item.notes for item in found.params] == [Trivia(("# head",), "# first"), Trivia()]
    w, v = found.tensors
    assert w.notes == Trivia(("# above params", "# behind params", "# above w"), "# behind w")
    assert v.notes == Trivia(blank=True)
    assert found.forward is not None
    assert found.forward.notes.above == ("# end of params",)
    assert found.forward.notes.behind == "# behind forward"
    assert found.forward.notes.last == ("# end of graph", "# end of forward")
    assert document.notes.last == ("# end of file",)


def test_comments_in_empty_blocks_stay_in_them() -> None:
    found = body("forward:\n  # none\n  # at all\nbackward:\n# not in it")
    assert found.forward is not None
    assert found.forward.notes.last == ("# none", "# at all")
    assert found.backward is not None
    assert found.backward.notes.last == ()


def test_comments_of_guards() -> None:
    graph = forward(
        "graph:\n  # above if\n  if a:  # behind if\n    x -> y\n    # end of if\n  # above else\n"
        "  else:  # behind else\n    x -> y\n    # end of else\n  x -> z"
    ).graph
    assert graph is not None
    guarded = graph[0]
    assert isinstance(guarded, n.Conditional)
    assert guarded.arms[0].notes == Trivia(("# above if",), "# behind if", last=("# end of if",))
    assert guarded.notes == Trivia(("# above else",), "# behind else", last=("# end of else",))


def test_literals_are_exact() -> None:
    assert value("9223372036854775807") == n.Integer(2**63 - 1)
    assert value("0" * 40 + "7") == n.Integer(7)
    assert value("0.1") == n.Real(0.1)
