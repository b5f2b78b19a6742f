"""Operators on tensors whose extents only the run tells do what they do on tensors whose extents are known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from lamella.base.dim import substitute
from tests.support.judges.draws import Array, filled
from tests.support.judges.harness import compose_text, run_text, same

REALS = (
    "math.add(x, x)",
    "math.clamp(x, 0.0, 1.0)",
    "math.sum_n([x, x])",
    "math.sum_reduce{axes=[0]}(x)",
    "math.mean_reduce{axes=[0]}(x)",
    "math.lp_reduce{axes=[0], p=2.0}(x)",
    "math.cumsum{axis=0, reverse=true}(x)",
    "layout.reshape{shape=[-1]}(x)",
    "layout.reshape{shape=[3, -1]}(x)",
    "layout.flatten(x)",
    "layout.unflatten{axis=1, shape=[3, 1]}(x)",
    "layout.transpose(x)",
    "layout.unsqueeze{axes=[0]}(x)",
    "layout.concat{axis=0}([x, x, x])",
    "layout.concat{axis=1}([x, x])",
    "layout.stack{axis=1}([x, x])",
    "layout.tile{repeats=[2, 1]}(x)",
    "layout.slice{axes=[0], begin=1, end=-1}(x)",
    "layout.slice{axes=[0], begin=-1, end=-100, stride=-2}(x)",
    "layout.pad{padding=[1, 0, 2, 1]}(x)",
    "layout.pad{padding=[1, 0, 1, 0], method='REFLECT'}(x)",
    "layout.shuffle{axis=1, groups=3}(x)",
    "layout.uniform{shape=x.shape}(1.0)",
    "layout.constant{shape=x.shape, value=2.0}()",
    "layer.linear{channels=2}(x)",
    "layer.batch_norm{momentum=0.5}(x)",
)
INTEGERS = (
    "layout.cast<int>(x)",
    "layout.shape(x)",
    "layout.nonzero(x)",
    "layout.range{first=0, last=2 * x.shape[0]}()",
    "math.argmax{axis=0}(x)",
    "math.argmax_n([x, x])",
)


def _text(call: str, extent: str) -> str:
    word = "int" if call in INTEGERS else "real"
    return (
        f"import math, layout, layer; graph G {{ @input {{ x: real[{extent}, 3]; }} "
        f"@output {{ y: {word}; }} @compose {{ y = {call}; }} }}"
    )


def _variables(call: str) -> dict[str, Array]:
    names = ("filter", "bias") if "linear" in call else ("running_mean", "running_variance", "bias", "scale")
    found = {f"y.{name}": filled((3,), "float32", 1, 1, 2) for name in names}
    if "linear" in call:
        found |= {"y.filter": filled((2, 3), "float32", 2), "y.bias": filled((2,), "float32", 3)}
    return found if call.startswith("layer") else {}


@pytest.mark.parametrize("call", [*REALS, *INTEGERS])
@settings(max_examples=8)
@given(st.integers(3, 9), st.integers(0, 999))
def test_extents_of_the_run(call: str, extent: int, seed: int) -> None:
    x = filled((extent, 3), "float32", seed)
    expected, _ = run_text(_text(call, str(extent)), {"x": x}, _variables(call))
    found, _ = run_text(_text(call, "n|9"), {"x": x}, _variables(call))
    same(found["y"], expected["y"])


@pytest.mark.parametrize("call", [item for item in (*REALS, *INTEGERS) if "nonzero" not in item])
def test_extents_are_known_as_expressions(call: str) -> None:
    graph = compose_text(_text(call, "n|9")).graph
    (output,) = graph.outputs
    assert output is not None
    assert not isinstance(output, tuple)
    shape = tuple(substitute(extent, {"n": 7}) for extent in output.shape)
    static = compose_text(_text(call, "7")).graph.outputs[0]
    assert static is not None
    assert not isinstance(static, tuple)
    assert shape == static.shape


def test_an_assertion_that_only_the_run_can_decide() -> None:
    text = _text("layout.slice{axes=[0], begin=-4, end=9}(x)", "n|9")
    x = filled((5, 3), "float32", 0)
    same(run_text(text, {"x": x}, {})[0]["y"], x[1:])
    with pytest.raises(LamellaError, match="must not lie before the first element"):
        run_text(text, {"x": x[:3]}, {})
