"""Branches and loops of SkriptND as ONNX: ONNX's own checker takes them, and what is read back computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella

onnx = pytest.importorskip("onnx")
HEAD = "import math, layout;\ngraph G {\n"
SCAN = (
    HEAD
    + """
    @input { xs: real[2]..(3); }
    @output { y: real[2]..(3); }
    @compose { y = for a : xs do math.neg(a); }
}
"""
)
DIFFERING_EXTENTS = (
    HEAD
    + """
    @input { x: real[2, 3]; c: bool[]; }
    @output { y: real; }
    @compose { a = layout.slice{axes=[1], begin=[0], end=[2]}(x); y = if c then a else x; }
}
"""
)
CONDITION_ON_EXTENTS = """
import math;
operator o {
    @input { x: real[a]; z: real[b]; }
    @output { y: real[a]; }
    @compose { y = if a == b then math.neg(x) else x; }
}
graph G {
    @input { x: real[n|5]; z: real[m|5]; }
    @output { y: real; }
    @compose { y = o(x, z); }
}
"""
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a loop that only collects": (
        SCAN,
        {f"xs:{k}": ROWS[0, :2] + k for k in (1, 2, 3)},
        {f"y:{k}": -ROWS[0, :2] - k for k in (1, 2, 3)},
    ),
    "the smaller branch": (DIFFERING_EXTENTS, {"x": ROWS, "c": np.asarray(True)}, {"y": ROWS[:, :2]}),
    "the larger branch": (DIFFERING_EXTENTS, {"x": ROWS, "c": np.asarray(False)}, {"y": ROWS}),
    "equal extents": (CONDITION_ON_EXTENTS, {"x": ROWS[0], "z": ROWS[1]}, {"y": -ROWS[0]}),
    "unequal extents": (CONDITION_ON_EXTENTS, {"x": ROWS[0], "z": ROWS[1, :2]}, {"y": ROWS[0]}),
}


@pytest.mark.parametrize("name", CASES)
def test_control_flow_leaves_and_comes_back(name: str, tmp_path: Path) -> None:
    text, inputs, wanted = CASES[name]
    path, file = tmp_path / "g.sknd", tmp_path / "g.onnx"
    path.write_text(text)
    lamella.save(lamella.load(path), file)
    onnx.checker.check_model(onnx.load(file), full_check=True)
    found = lamella.compile(file, backend="reference")(**inputs)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_array_equal(found[key], value)


def test_a_loop_over_tensors_of_different_shapes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.sknd"
    path.write_text(
        HEAD
        + """
    @input { x: real[2]; w: real[3]; }
    @output { y: real; }
    @compose {
        y = with s = 0.0 for a : [x, w] do {
            m = math.sum_reduce{axes=[0], squeeze=true}(a);
            t = math.add(s, m);
            yield t;
        };
    }
}
"""
    )
    with pytest.raises(
        lamella.LamellaError, match=r"a loop goes over tensors of different shapes, x: \['2'\]"
    ):
        lamella.save(lamella.load(path), tmp_path / "g.onnx")


def test_conditions_on_open_extents_choose_integers(tmp_path: Path) -> None:
    helper, values = onnx.helper, onnx.numpy_helper
    whole, truth = onnx.TensorProto.INT64, onnx.TensorProto.BOOL
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Equal", ["s", "k"], ["c"]),
        helper.make_node("Where", ["c", "a", "b"], ["w"]),
        helper.make_node("Not", ["c"], ["n"]),
    ]
    numbers = {"k": [2, 3], "a": [1, 1], "b": [5, 6]}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("w", whole, [2]), helper.make_tensor_value_info("n", truth, [2])],
        [values.from_array(np.asarray(item), name) for name, item in numbers.items()],
    )
    file = tmp_path / "g.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    run = lamella.compile(file, backend="reference")
    for rows, wanted, other in ((2, [1, 1], [False, False]), (4, [5, 1], [True, False])):
        found = run(x=np.zeros((rows, 3), np.float32))
        np.testing.assert_array_equal(found["w"], wanted)
        np.testing.assert_array_equal(found["n"], other)
        assert [found[name].dtype.name for name in "wn"] == ["int64", "bool"]


def test_constants_beyond_their_type_leave_as_infinity(tmp_path: Path) -> None:
    path, file = tmp_path / "g.sknd", tmp_path / "g.onnx"
    path.write_text("graph G { @output { y: real[]; } @compose { y = 1e300; } }")
    model = lamella.load(path)
    lamella.save(model, file)
    assert lamella.compile(file, backend="reference")()["y"] == np.inf
    lamella.save(lamella.lower(model, to="nem", device="npm_lite"), tmp_path / "g.nem")
