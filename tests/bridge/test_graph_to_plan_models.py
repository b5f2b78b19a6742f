"""Whole models as plans: an encoder, a decoder with and without a cache; states, kernels and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lamella
from lamella.backend.reference import compile_model
from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import BOOL, F32
from lamella.base.paths import shipped
from lamella.graph.model import Model
from lamella.graph.passes.decompose_all import decompose_all
from lamella.pipeline.given import options_of
from lamella.pipeline.nem.lowering import LoweredPlan, simulated
from lamella.pipeline.nem.numbers import PortedPlan
from lamella.pipeline.nem.stages import executable, write_into
from lamella.pipeline.options import Options
from lamella.pipeline.quantize.api import quantize_graph
from lamella.pipeline.skriptnd.execution import with_numbers
from tests.support.plan.selection import Drawing, assert_close, plans_of, run_stage

MODELS = shipped("models") / "models"
OPEN = """import layout, math;
graph Open {
    @input { x: real[4]; }
    @output { y: int[~, ~]; z: real[4]; }
    @compose {
        p = layout.nonzero(x);
        y = math.add(p, 1);
        z = math.neg(x);
    }
}
"""
CLOSED = """import math, nn;
graph Closed {
    @input { x: real[4]; }
    @output { y: real[4]; }
    @compose { y = OPERATOR(x); }
}
"""
BARE = """include "nem_baseline_1.0.nem"
device bare extends nem_baseline_1_0 {
    topology {
        num_engines = 1
        l2_size_bytes = 65536
        device_units { sDMA = 1 }
        per_engine { NMU = 1 CSTL = 1 DMA = 1 SEQ = 1 l1_size_bytes = 16384 }
    }
}
"""


def load(name: str, **options: Any) -> Model:
    """A small model of the library, its weights drawn."""
    model = lamella.load(MODELS / f"{name}.module", preset="tiny", **options)
    assert isinstance(model, Model)
    return with_numbers(model, Options(), all_or_none=False)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_sequences(name: str) -> None:
    """An encoder and a decoder over a sequence, selected and tiled."""
    model = load(name, shape={"B": 1, "T": 5})
    found = assert_close(model, "npm_pro", tiled=True)
    assert not found.selection.kernels
    assert {item.how for item in found.selection.report} == {"opcode", "view"}


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_sequences_in_pieces(name: str, tmp_path: Path) -> None:
    """Norms and attention that are taken apart, and written as text, become the same opcodes."""
    whole = load(name, shape={"B": 1, "T": 5})
    lamella.save(decompose_all(whole), tmp_path / "pieces.sknd")
    model = lamella.load(tmp_path / "pieces.sknd")
    assert isinstance(model, Model)
    found = assert_close(model, "npm_pro")
    assert not found.selection.kernels
    opcodes = {opcode for item in found.selection.report for opcode in item.opcodes}
    assert {"softmax", "layernorm" if name == "bert" else "rmsnorm"} <= opcodes


def _executables(model: Model) -> list[PortedPlan]:
    plans = plans_of(model, after=None)
    return [executable(item.program, item.numbers, model.graph, Options(seed=0)) for item in plans.stages]


def test_decoder_with_cache() -> None:
    """Token after token: caches and their counter are states of the plan, made where the old ones lie."""
    model = load("llama", shape={"T": 1}, cache=6)
    reference, plans = compile_model(model), _executables(model)
    (name,) = reference.inputs
    for token in ([[3]], [[1]], [[7]]):
        (wanted,) = reference(**{name: np.asarray(token)}).values()
        first, second = (next(iter(plan(**{name: np.asarray(token)}).values())) for plan in plans)
        np.testing.assert_allclose(first, wanted, rtol=0, atol=2e-2 * np.abs(wanted).max())
        np.testing.assert_array_equal(first, second)


def test_a_full_cache_ends_the_run() -> None:
    """One call more than there is room for is an error of the run, as it is in the model."""
    model = load("llama", shape={"T": 1}, cache=2)
    plan = _executables(model)[0]
    (name,) = plan.inputs
    for _ in range(2):
        plan(**{name: np.asarray([[1]])})
    with pytest.raises(LamellaError) as caught:
        plan(**{name: np.asarray([[1]])})
    assert {item.code for item in caught.value.findings} == {"NEM173"}


def test_two_states_that_change_places() -> None:
    """What one state becomes is what the other was."""
    drawing = Drawing(1)
    one, other = (drawing.weight(np.full((2, 40), number, np.float32), "s") for number in (1.0, 2.0))
    x = drawing.builder.input("x", F32, (2, 40))
    found = drawing.call("math.add", drawing.call("math.mul", one, x), other)
    drawing.builder.update(one, other)
    drawing.builder.update(other, one)
    model = drawing.finish(found)
    ones, reference = np.ones((2, 40), np.float32), compile_model(model)
    plans = _executables(model)
    for _ in range(3):
        (wanted,) = reference(x=2 * ones).values()
        for plan in plans:
            (given,) = plan(x=2 * ones).values()
            np.testing.assert_array_equal(given, wanted)


def test_an_operation_without_opcode_is_a_kernel() -> None:
    """What no opcode computes runs on the VPU, and the report says so."""
    drawing = Drawing(2)
    x = drawing.builder.input("x", F32, (3, 5))
    sine = drawing.call("math.sin", drawing.call("math.mul", x, drawing.real(5)))
    found = assert_close(drawing.finish(drawing.call("math.cumsum", sine, axis=1)), tiled=True)
    how = {item.operator: item.how for item in found.selection.report}
    assert how["math.sin"] == how["math.cumsum"] == "compute"
    assert "func" in found.selection.kernels


def test_a_device_without_a_vpu_runs_no_kernels(tmp_path: Path) -> None:
    device, model = tmp_path / "bare.nem", tmp_path / "sine.sknd"
    device.write_text(BARE, encoding="utf-8")
    model.write_text(CLOSED.replace("OPERATOR", "math.sin"), encoding="utf-8")
    with pytest.raises(LamellaError, match=r"math.sin cannot be computed .* device 'bare' has no VPU"):
        lamella.lower(model, "nem", device=str(device))


def test_every_stage_finds_its_device(tmp_path: Path) -> None:
    """A device file goes with each plan, and so do those that it includes."""
    (tmp_path / "bare.nem").write_text(BARE, encoding="utf-8")
    top, model = tmp_path / "top.nem", tmp_path / "tiny.sknd"
    top.write_text(
        'include "bare.nem"\ndevice top extends bare { unit_characteristics { NMU { latency = 3 } } }\n'
    )
    model.write_text(CLOSED.replace("OPERATOR", "nn.relu"), encoding="utf-8")
    lowered = lamella.lower(model, "nem", device=str(top))
    assert isinstance(lowered, LoweredPlan)
    plan = write_into(lowered, tmp_path / "out", "tiny")
    for path in (plan, tmp_path / "out" / "stages" / "1_select.nem"):
        assert not lamella.check(path)


def test_what_cannot_be_computed_is_one_finding_with_its_origin(tmp_path: Path) -> None:
    """How many elements are not zero only the run tells: the operation is named, and nothing that reads it."""
    path = tmp_path / "open.sknd"
    path.write_text(OPEN, encoding="utf-8")
    with pytest.raises(LamellaError) as caught:
        lamella.lower(path, "nem", device="npm_lite")
    (finding,) = caught.value.findings
    assert (finding.code, finding.span.line) == ("NEM200", 6)
    assert "layout.nonzero" in finding.message


def test_control_flow_is_refused() -> None:
    """A branch of the run has no opcode."""
    drawing = Drawing(2)
    builder = drawing.builder
    x = builder.input("x", F32, (2,))
    test = builder.call("math.lt", builder.call("math.sum_reduce", x, axes=[0], squeeze=True), 0.0)
    (found,) = builder.branch(
        test, lambda: [builder.call("math.neg", x)], lambda: [builder.call("math.abs", x)]
    )
    with pytest.raises(LamellaError) as caught:
        plans_of(drawing.finish(found))
    codes = [item.code for item in caught.value.findings]
    assert codes[-1] == "NEM200"
    assert "control flow" in caught.value.findings[-1].message


def test_steps_of_a_recurrent_layer_are_written_out() -> None:
    """A loop whose number of steps is known is no control flow of the run; PyTorch is the judge."""
    torch.manual_seed(0)
    layer = torch.nn.LSTM(3, 4, batch_first=True, bidirectional=True).eval()
    x = torch.randn(1, 3, 3)
    model = lamella.from_torch(layer, (x,))
    found = plans_of(model, after=None)
    given = dict(zip(compile_model(model).inputs, (x.numpy(),), strict=True))
    outputs = list(run_stage(found.stages[-1], model, given).values())
    with torch.no_grad():
        np.testing.assert_allclose(outputs[0], layer(x)[0].numpy(), atol=2e-2)


def _quantised(name: str, **options: object) -> Model:
    """A small model of the library on codes, its islands those of plans."""
    words = {"islands": "f16", "rank": False, "samples": 2, "seed": 1}
    chosen = replace(options_of(words, by_command=True), random=True)
    return quantize_graph(load(name, **options), chosen).model


@pytest.mark.parametrize(
    ("name", "options"), [("bert", {"shape": {"B": 1, "T": 9}}), ("llama", {"shape": {"T": 1}, "cache": 6})]
)
def test_attention_on_codes(name: str, options: dict[str, object]) -> None:
    """Products of heads are integers, queries, keys and values products of their own; heads stay where they are."""
    model = _quantised(name, **options)
    operators = [item.operator for item in model.graph.operations()]
    assert operators.count("nn.softmax") == operators.count("quant.matmul") // (8 if name == "bert" else 9)
    assert "linalg.matmul" not in operators
    found = plans_of(model, "npm_pro", None)
    opcodes = [opcode for item in found.selection.report for opcode in item.opcodes]
    assert ("transpose" in opcodes) == (name == "llama")  # only keys of a cache are turned
    inputs = compile_model(model).draw_inputs()
    wanted = compile_model(model)(**inputs)
    for stage in found.stages:
        given = executable(stage.program, stage.numbers, model.graph, Options(seed=0))(**inputs)
        for key, array in wanted.items():
            np.testing.assert_allclose(given[key], array, rtol=0, atol=2e-2 * np.abs(array).max())
    timing = simulated(found)
    assert timing is not None
    assert timing.network is not None
    assert timing.cycles >= timing.network.largest.cycles


def test_nothing_is_seen() -> None:
    """Attention to keys that are all hidden gives zeros."""
    drawing = Drawing(3)
    x, seen = drawing.builder.input("x", F32, (2, 5)), drawing.builder.input("seen", BOOL, (2, 5))
    hidden = drawing.call("math.select", seen, x, -np.inf)
    model = drawing.finish(drawing.call("aten.safe_softmax", hidden))
    mask = np.asarray([[False] * 5, [True, False, True, True, False]])
    inputs = {"x": np.linspace(-2, 2, 10, dtype=np.float32).reshape(2, 5), "seen": mask}
    found = assert_close(model, tiled=True, inputs=inputs)
    (given,) = run_stage(found.final, model, inputs).values()
    assert not given[0].any()
    assert not given[1][~mask[1]].any()
