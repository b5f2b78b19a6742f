"""Names of variables by labels, automatic labels and scopes; what `@quantize` reaches; what `@update` changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.backend.reference import compile_model
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor, tensors
from tests.support.lang.skriptnd.conformance.cases import attempt, write

OPERATORS = """
import layout, math, quant;
operator w {
    @input { x: real[n]; } @output { y: real[n]; } @variable { w: real[n]; } @compose { y = math.mul(x, w); }
}
operator w2 {
    @input { x: real[n]; } @output { a: real[n]; b: real[n]; } @variable { w: real[n]; }
    @compose { a = math.mul(x, w); b = math.add(x, w); }
}
operator one { @input { x: real[n]; } @output { y: real[n]; } @compose { y = w(x); } }
PUBLIC operator two { @input { x: real[n]; } @output { y: real[n]; } @compose { z = w(x); y = w(z); } }
operator labelled { @input { x: real[n]; } @output { y: real[n]; } @compose { z = la: w(x); y = lb: w(z); } }
operator pack {
    @input { x: real[n]; } @output { y: real[n]..(2); } @variable { w: real[n]..(2); }
    @compose { y = [w[0], w[1]]; }
}

graph S { @input { x: real[~]; } @output { y: real; } @variable { w: real[3]; } @compose { y = math.mul(x, w); } }
"""
QUANTIZER = "quant.zero_point_linear_quantize{zero_point=0, scale=0.5, bits=8, channel_axis=0}"


def program(components: str, blocks: str = "", public: str = "") -> str:
    """A main graph with these components, and the operators that it may call."""
    graph = (
        "graph G {\n@attrib { f: bool = true; }\n@input { x: real[3]; c: bool[]; }\n@output { y: real; }\n"
        f"{blocks}\n@compose {{ {components} }}\n"
    )
    operators, _, subgraph = OPERATORS.replace("PUBLIC", public).partition("graph S")
    return f"{operators}{graph}}}\n" + (f"graph S{subgraph}" if "S(" in components else "")


def load(folder: Path, text: str) -> Model:
    """The model of a program."""
    model = lamella.load(write(folder, text))
    assert isinstance(model, Model)
    return model


@pytest.mark.parametrize(
    ("components", "names"),
    [
        ("z = lab: w(x); y = math.neg(z);", "lab.w"),
        ("z = w(x); y = math.neg(z);", "z.w"),
        ("z = one(x); y = math.neg(z);", "z.w"),
        ("z = two(x); y = math.neg(z);", "z.z.w z.y.w"),
        ("y = L: labelled(x);", "L.la.w L.lb.w"),
        ("z, v = q: w2(x); y = math.add(z, v);", "q.w"),
        ("z, v = w2(x); y = math.add(z, v);", "SKR218"),
        ("z = q: w(x); y = q: w(z);", "SKR217"),
        ("z = y: w(x); y = w(z);", "SKR316"),
        ("z = if f then w(x) else x; y = math.neg(z);", "z.w"),
        ("z = if f then l: w(x) else x; y = math.neg(z);", "l.w"),
        ("z = if c then w(x) else x; y = math.neg(z);", "z.w"),
        ("z = if c then w(x) else w(x); y = math.neg(z);", "SKR316"),
        ("z = if c then a: w(x) else b: w(x); y = math.neg(z);", "a.w b.w"),
        ("z = with s = x do..(3) w(s); y = math.neg(z);", "z.w"),
        ("z = with s = x unroll..(3) w(s); y = math.neg(z);", "z:1.w z:2.w z:3.w"),
        ("y = blk: { z = w(x); q = w(z); yield q; };", "blk.z.w blk.q.w"),
        ("z..(2) = pack(x); y = math.add(z[0], z[1]);", "z.w:1 z.w:2"),
        ("[a, b] = pack(x); y = math.add(a, b);", "SKR218"),
        ("z = if c then S(x) else x; y = math.neg(z);", "main.S.w"),
        ("z = if c then lb: S(x) else x; y = math.neg(z);", "lb.w"),
        ("z = with s = x do..(2) S(s); y = math.neg(z);", "main.S.w"),
        ("y = S(x);", "SKR065"),
    ],
)
def test_variables_are_named_by_labels(components: str, names: str, tmp_path: Path) -> None:
    found = attempt(lambda: [item.name for item in load(tmp_path, program(components)).graph.variables])
    assert found == names.split()


@pytest.mark.parametrize("public", ["public", ""])
@pytest.mark.parametrize(
    ("name", "found", "hidden"),
    [
        ("y", "y", False),
        ("z", "z", False),
        ("x", "x", False),
        ("main.G.z", "z", False),
        ("pu.z", "pu.z", True),
        ("main.G.pu.z", "pu.z", True),
        ("pu.y", "z", True),
        ("pu.x", "pu.x", True),
        ("pu.z.w", "pu.z.w", False),
        ("main.G.pu.y.w", "pu.y.w", False),
        ("pu.z.y", "", False),
        ("nope", "", False),
    ],
)
def test_names_that_quantize_reaches(
    name: str, found: str, hidden: bool, public: str, tmp_path: Path
) -> None:
    text = program("z = pu: two(x); y = math.neg(z);", f"@quantize {{ {name}: {QUANTIZER}; }}", public)
    reached = attempt(lambda: quantised(load(tmp_path, text)))
    if found and (public or not hidden):
        assert reached == [found]
    else:
        assert reached in (["SKR252"], ["SKR319"])


def quantised(model: Model) -> list[str]:
    """The names of the tensors that have a quantisation."""
    nodes = model.graph.nodes
    made = [item for node in nodes for argument in node.outputs for item in tensors(argument)]
    inputs = [item for item in model.graph.inputs if isinstance(item, Tensor)]
    return [item.name for item in (*made, *inputs, *model.graph.variables) if item.quantization is not None]


@pytest.mark.parametrize(
    ("updates", "state"),
    [
        ("v = math.mul(x, 2.0);", [2.0, 4.0, 6.0]),
        ("v = z;", [-1.0, -2.0, -3.0]),
        ("d = math.mul(z, 3.0); v = math.neg(d);", [3.0, 6.0, 9.0]),
        ("v = if f then x else v;", [1.0, 2.0, 3.0]),
        ("y = x;", "SKR250"),
        ("x = v;", "SKR250"),
        ("z = x;", "SKR250"),
        ("v = x; v = z;", "SKR200"),
        ("v = layout.slice{begin=[0], end=[2]}(x);", "SKR318"),
    ],
)
def test_updates_are_taken_after_the_outputs(updates: str, state: list[float] | str, tmp_path: Path) -> None:
    text = program(
        "z = math.neg(x); y = math.mul(v, 0.0);", f"@variable {{ v: real[3]; }} @update {{ {updates} }}"
    )
    expected = [state] if isinstance(state, str) else state
    assert attempt(lambda: state_after_run(load(tmp_path, text))) == expected


def state_after_run(model: Model) -> list[float]:
    """The variable after one run."""
    executable = compile_model(model)
    executable(x=[1.0, 2.0, 3.0], c=np.array(True))
    return [float(item) for item in executable.state["v"]]
