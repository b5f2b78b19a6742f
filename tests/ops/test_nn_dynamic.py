"""Operators of `nn`, `image`, `linalg`, `quant` and `algo` give the same when only the run tells the extents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.support.judges.draws import filled
from tests.support.judges.harness import run_text

IMAGE = ("b", "c", "h", "w")
HEAD = "import algo, image, linalg, nn, quant; "
BODY = "graph G {{ @input {{ {inputs} }} @output {{ {outputs} }} @compose {{ {results} = {call}; }} }}"


@dataclass(frozen=True, slots=True)
class Case:
    """A call, and for each of its inputs the shape it is given and the symbols that stand for the extents."""

    call: str
    inputs: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...] = (((2, 4, 6, 5), IMAGE),)
    outputs: tuple[str, ...] = ("real",)

    def __str__(self) -> str:
        return self.call

    def text(self, dynamic: bool) -> str:
        """A graph of the call alone."""
        inputs = [
            f"x{place}: real[{', '.join(_extent(*pair, dynamic) for pair in zip(shape, names, strict=True))}];"
            for place, (shape, names) in enumerate(self.inputs)
        ]
        results = [f"y{place}" for place in range(len(self.outputs))]
        outputs = [f"{name}: {kind};" for name, kind in zip(results, self.outputs, strict=True)]
        return HEAD + BODY.format(
            inputs=" ".join(inputs), outputs=" ".join(outputs), results=", ".join(results), call=self.call
        )


def _extent(extent: int, name: str, dynamic: bool) -> str:
    return f"{name}|10" if dynamic and name else str(extent)


CHANNELS = ((4,), ("c",))
KERNEL = ((4, 4, 3, 3), ("", "c", "", ""))
FIXED = ((4, 4, 3, 3), ("", "", "", ""))
FILTERED = (((2, 4, 6, 5), IMAGE), KERNEL)
SPREAD = (((2, 4, 6, 5), ("b", "", "h", "w")), FIXED)
SAMPLED = (((2, 4, 6, 5), IMAGE), ((2, 3, 3, 2), ("b", "u", "v", "")))
CASES = (
    Case("nn.conv{stride=2}(x0, x1)", FILTERED),
    Case("nn.conv{padding=1, stride=3, ceil_mode=true}(x0, x1)", FILTERED),
    Case("nn.deconv{stride=2}(x0, x1)", SPREAD),
    Case("nn.max_pool{size=3, stride=2}(x0)"),
    Case("nn.avg_pool{size=3, stride=2}(x0)"),
    Case("nn.avg_pool{size=3, stride=2, padding=1, ignore_border=false}(x0)"),
    Case("nn.softmax(x0)"),
    Case("nn.prelu(x0, x1)", (((2, 4, 6, 5), IMAGE), CHANNELS)),
    Case("nn.batch_norm{epsilon=99.0}(x0, x1, x1)", (((2, 4, 6, 5), IMAGE), CHANNELS)),
    Case("nn.mean_variance_norm(x0)"),
    Case("nn.local_response_norm{size=3}(x0)"),
    Case("nn.l2_norm{axes=[1, 2]}(x0)"),
    Case("image.resize{axes=[2, 3], size=[4, 9], mode='NEAREST'}(x0)"),
    Case("image.resize{axes=[2, 3], size=[4, 9], mode='LINEAR'}(x0)"),
    Case("image.resize{axes=[2, 3], size=[4, 9], mode='CUBIC'}(x0)"),
    Case("image.linear_upsample{axes=[2, 3], factor=2}(x0)"),
    Case("image.nearest_upsample{axes=[2, 3], factor=2}(x0)"),
    Case("image.area_downsample{axes=[2], factor=2}(x0)"),
    *(
        Case(f"image.grid_sample{{mode='{mode}'}}(x0, x1)", SAMPLED)
        for mode in ("NEAREST", "LINEAR", "CUBIC")
    ),
    Case("linalg.matmul(x0, x1)", (((2, 3, 4), ("b", "m", "k")), ((2, 4, 5), ("b", "k", "n")))),
    Case("linalg.matmul(x0, x1)", (((2, 3, 4), ("b", "m", "k")), ((4, 5), ("k", "n")))),
    Case("quant.zero_point_linear_quantize{zero_point=1, scale=0.5, bits=4}(x0)"),
    Case("algo.top_k{k=3, axis=1}(x0)", outputs=("real", "int")),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_extents_of_the_run(case: Case) -> None:
    arrays = {f"x{place}": filled(shape, "float32", place) for place, (shape, _) in enumerate(case.inputs)}
    known, _ = run_text(case.text(dynamic=False), arrays, {})
    found, _ = run_text(case.text(dynamic=True), arrays, {})
    assert list(found) == list(known)
    for name, expected in known.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-6, atol=1e-6)
