"""Module DSL nodes to canonical text: layout, breaking of lines, literals and comments."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from lamella.base.source import Source, Span, Trivia
from lamella.lang.module import nodes as n
from lamella.lang.module.write import WIDTH, wrap, write, write_expression
from tests.support.strategies.module_expressions import expressions

A, B, C, D = map(n.Name, "abcd")


def flow(source: str, operation: str, target: str) -> n.Flow:
    """`source -> operation() -> target`."""
    step = n.Operation(n.Name(operation))
    return n.Flow((n.Name(source),), (step,), (n.Target(target),))


def tensor(*dims: str, dtype: str | None = None) -> n.TensorType:
    """A tensor type with named dimensions."""
    return n.TensorType(tuple(map(n.Name, dims)), dtype)


def path(name: str) -> n.Path:
    """A path of one part."""
    return n.Path((n.PathPart(name),))


# --- layout -------------------------------------------------------------------------------------------------

LINEAR = '''\
"""Layers."""

import std.primitives
from a.b.v2 import C, D as E

module Linear(in_dim: int, out_dim: int = 4, use_bias=false):
  """A projection.

  """

  let:
    O = out_dim

    constraint:
      O > 0, "positive"

  params:
    weight: [out_dim, in_dim, fp32]
    bias: [O] if use_bias @frozen

  forward:
    in: x: [B, in_dim]
    out: (y: [B, O], z: scalar)
    graph:
      (x, weight) -> matmul(transpose=NT) -> h
      if use_bias:
        h -> add() -> y
      else:
        h -> y
    save: [x, ln*_out, per_layer...]

  backward:
    d_y: [B, O]
    graph:
      recompute:
        ...
'''


def test_a_module_in_the_order_of_the_specification() -> None:
    matmul = n.Operation(n.Name("matmul"), (n.Argument("transpose", n.Name("NT")),))
    arm = n.Arm(n.Name("use_bias"), (flow("h", "add", "y"),))
    graph = (
        n.Flow((n.Name("x"), n.Name("weight")), (matmul,), (n.Target("h"),)),
        n.Conditional((arm,), (n.Flow((n.Name("h"),), (), (n.Target("y"),)),)),
    )
    save = n.Selection((n.Pattern("x"), n.Pattern("ln*_out"), n.Pattern("per_layer", True)))
    outputs = (n.Port("y", tensor("B", "O")), n.Port("z", n.TensorType(())))
    module = n.Module(
        "module",
        "Linear",
        (
            n.ConfigParam("in_dim", n.ConfigType("int")),
            n.ConfigParam("out_dim", n.ConfigType("int"), n.Integer(4)),
            n.ConfigParam("use_bias", None, n.Bool(False)),
        ),
        doc="A projection.",
        bindings=(
            n.Let("O", n.Name("out_dim")),
            n.Constraint(n.Chain(n.Name("O"), ((">", n.Integer(0)),)), "positive"),
        ),
        tensors=(
            n.Param(path("weight"), tensor("out_dim", "in_dim", dtype="fp32")),
            n.Param(path("bias"), tensor("O"), n.Name("use_bias"), annotations=(n.Annotation("frozen"),)),
        ),
        forward=n.Forward((n.Port("x", tensor("B", "in_dim")),), outputs, graph, save),
        backward=n.Backward((n.Port("d_y", tensor("B", "O")),), graph=(n.Recompute((n.Stub(),)),)),
    )
    imports = (
        n.Import(("std", "primitives")),
        n.Import(("a", "b"), 2, names=(n.Imported("C"), n.Imported("D", "E"))),
    )
    wanted = LINEAR.replace("A projection.\n\n  ", "A projection.")
    assert write(n.Document((*imports, module), "Layers.")) == wanted


PRIMITIVE = """\
primitive rmsnorm:
  params:
    eps: float = 1e-6

  forward:
    in: (x: [*, C], weight: [C])
    out: xs: tuple<[*]>

  backward:
    in: (d_outputs...)
    (d_a, d_b) = f(d_c)

  save: [x]

  impl:
    forward: llm.rmsnorm

  constraints:
    - x must be contiguous

  ...

recipe fp8:
  output: bf16

preset tiny:
  d_model: 64
"""


def test_primitives_recipes_and_presets() -> None:
    any_c = n.TensorType((n.Star(), n.Name("C")))
    primitive = n.Primitive(
        "rmsnorm",
        params=(n.ConfigParam("eps", n.ConfigType("float"), n.Real(1e-6)),),
        forward=n.Signature(
            (n.Port("x", any_c), n.Port("weight", tensor("C"))),
            (n.Port("xs", n.SequenceType(n.TensorType((n.Star(),)))),),
        ),
        backward=n.Signature(
            (n.Port("d_outputs", n.SequenceType()),),
            equations=(n.Equation(("d_a", "d_b"), n.Call(n.Name("f"), (n.Argument(None, n.Name("d_c")),))),),
        ),
        save=n.Selection((n.Pattern("x"),)),
        sections=(
            n.Field("impl", (n.Field("forward", n.Member(n.Name("llm"), "rmsnorm")),)),
            n.Field("constraints", (n.Field("-", "x must be contiguous"),)),
        ),
        stub=True,
    )
    recipe = n.Recipe("fp8", (n.Field("output", n.Name("bf16")),))
    preset = n.Preset("tiny", (n.Field("d_model", n.Integer(64)),))
    assert write(n.Document((primitive, recipe, preset))) == PRIMITIVE


MAPPED = """\
block Two(d) extends a.One:
  @checkpoint(full)

  constants:
    freqs: precompute_rope_freqs(8, d)

  params:
    ms: [4] x Mod(d, kind=relu)
    +h: tied_to(ms[0].w) if tie else [V, d]
    ms[{i}].w: [...] @frozen

  pattern: sequential_residual
    sublayers:
      - (norm, mlp)

  hf_config:
    architecture: "A"
    param_mapping:
      d: rope.theta

  hf_mapping:
    ms[{i}].w?: fuse("q.{i}", transform("k.{i}", fn: neg), dim=0) if tie

  hf_export:
    h: split("a": [0, d], "b": [d, 2 * d], dim=1)
    w: tied_to(h)
"""


def test_blocks_with_all_other_sections() -> None:
    d = n.Name("d")
    first = n.Path((n.PathPart("ms", (0,)), n.PathPart("w")))
    each = n.Path((n.PathPart("ms", ("i",)), n.PathPart("w")))
    instance = n.InstanceType("Mod", (n.Argument(None, d), n.Argument("kind", n.Name("relu"))))
    fuse = n.Fuse((n.Direct("q.{i}"), n.Transform("k.{i}", "neg")))
    twice = n.Chain(n.Integer(2), (("*", d),))
    split = n.Split((n.SplitPart("a", n.Integer(0), d), n.SplitPart("b", d, twice)), 1)
    freqs = n.Call(n.Name("precompute_rope_freqs"), (n.Argument(None, n.Integer(8)), n.Argument(None, d)))
    block = n.Module(
        "block",
        "Two",
        (n.ConfigParam("d"),),
        extends="a.One",
        annotations=(n.Annotation("checkpoint", (n.Argument(None, n.Name("full")),)),),
        constants=(n.Constant("freqs", freqs),),
        tensors=(
            n.Param(path("ms"), n.ArrayType(n.Integer(4), instance)),
            n.Param(path("h"), n.TiedType(first), n.Name("tie"), tensor("V", "d"), True),
            n.Param(each, n.TensorType((n.Unchanged(),)), annotations=(n.Annotation("frozen"),)),
        ),
        sublayers=n.Sublayers("sequential_residual", (("norm", "mlp"),)),
        hf_config=(
            n.Field("architecture", n.Text("A")),
            n.Field("param_mapping", (n.Field("d", n.Member(n.Name("rope"), "theta")),)),
        ),
        hf_mapping=(n.Mapping(each, fuse, True, n.Name("tie")),),
        hf_export=(n.Mapping(path("h"), split), n.Mapping(path("w"), n.TiedType(path("h")))),
    )
    assert write(n.Document((block,))) == MAPPED


def test_what_cannot_be_read_is_written_as_it_was() -> None:
    source = Source("a.module", "module (\n  odd\n\nmodule B():\n")
    broken = n.Broken("", Span(source, 0, 14))
    assert write(n.Document((broken, n.Module("module", "B")))) == "module (\n  odd\n\nmodule B():\n"


# --- long lines ---------------------------------------------------------------------------------------------


def test_long_flows_are_broken_before_arrows() -> None:
    long = "a_rather_long_name_of_a_tensor_in_a_graph"
    call = n.Operation(n.Name("f"), (n.Argument(None, n.Name(long)),), (n.Annotation("partition"),))
    statement = n.Flow((n.Name(long), n.Name(long)), (call,), (n.Target("y"),), (n.Annotation("frozen"),))
    text = write(n.Document((n.Module("module", "A", forward=n.Forward(graph=(statement,))),)))
    assert text.split("\n")[3:-1] == [
        f"      ({long}, {long})",
        f"        -> f({long}) @partition",
        "        -> y",
        "        @frozen",
    ]


def test_long_heads_are_broken_at_every_parameter() -> None:
    params = tuple(n.ConfigParam(f"parameter_{k}", n.ConfigType("int"), n.Integer(k)) for k in range(5))
    lines = write(n.Document((n.Module("model", "A", params, extends="B"),))).split("\n")
    assert lines[0] == "model A("
    assert lines[1] == "  parameter_0: int = 0,"
    assert lines[5:] == ["  parameter_4: int = 4", ") extends B:", ""]


def test_long_imports_stand_in_braces() -> None:
    names = tuple(n.Imported(f"LongNameOfADeclaration{k}") for k in range(5))
    lines = write(n.Document((n.Import(("a", "b"), names=names),))).split("\n")
    assert (lines[0], lines[1], lines[-2]) == ("import a.b.{", "  LongNameOfADeclaration0,", "}")


def test_many_ports_become_a_block() -> None:
    ports = tuple(n.Port(f"a_long_name_of_an_input_{k}", tensor("B", "T")) for k in range(4))
    text = write(n.Document((n.Module("module", "A", forward=n.Forward(ports, ports[:1])),)))
    assert text.split("\n")[2:4] == ["    inputs:", "      a_long_name_of_an_input_0: [B, T]"]
    assert text.endswith("    out: a_long_name_of_an_input_0: [B, T]\n")


@given(st.lists(expressions(), min_size=1, max_size=4), st.integers(0, 30))
def test_a_long_line_has_no_brackets_left_to_break(items: list[n.Expr], level: int) -> None:
    arguments = tuple(n.Argument(None, item) for item in items)
    for line in wrap(f"name: {write_expression(n.Call(A, arguments))}", level):
        plain = re.sub(r'"(?:[^"\\]|\\.)*"', lambda found: "_" * len(found[0]), line)
        assert len(line) <= WIDTH or not re.search(r"[(\[][^()\[\]]{12,}[)\]]", plain)


@given(expressions(), st.integers(0, 3))
def test_breaking_keeps_every_character(expression: n.Expr, level: int) -> None:
    text = f"name: {write_expression(expression)} = f({'a, ' * 40}b)"
    lines = wrap(text, level)
    joined = "".join(line.strip() + (" " if line.endswith(",") else "") for line in lines)
    assert joined.replace("( ", "(") == text
    assert all(line.startswith("  " * level) for line in lines)


# --- comments -----------------------------------------------------------------------------------------------


def test_comments_beside_parameters_break_the_head() -> None:
    params = (
        n.ConfigParam("a", notes=Trivia(("# first",), "# one")),
        n.ConfigParam("b", notes=Trivia((), "# two")),
    )
    module = n.Module("module", "A", params, notes=Trivia(("# top",), "# head", last=("# end",)))
    assert write(n.Document((module,), notes=Trivia(last=("# last",)))).split("\n") == [
        "# top",
        "module A(",
        "  # first",
        "  a,  # one",
        "  b  # two",
        "):  # head",
        "  # end",
        "",
        "# last",
        "",
    ]


def test_comments_between_ports_make_a_block() -> None:
    noted = (n.Port("a", tensor("B"), notes=Trivia((), "# one")), n.Port("b", tensor("B")))
    quiet = (n.Port("a", None, notes=Trivia(("# above",))), n.Port("b", None))
    text = write(n.Document((n.Module("module", "A", forward=n.Forward(noted, quiet)),)))
    assert text.split("\n")[2:-1] == [
        "    inputs:",
        "      a: [B]  # one",
        "      b: [B]",
        "    # above",
        "    out: (a, b)",
    ]
