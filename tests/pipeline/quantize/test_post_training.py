"""Whole quantisations of the digits of UCI and of small networks: accuracy, budgets, and what other runtimes give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import lamella
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.graph.model import Model
from lamella.pipeline.quantize.api import Quantized, quantize
from tests.support.repository import ROOT

FOLDER = ROOT / "examples" / "digits"
TESTED = 599


@pytest.fixture(scope="module")
def digits() -> tuple[Array, Array]:
    found = np.load(FOLDER / "digits.npz")
    return found["image"].astype(np.float32), found["label"]


@pytest.fixture(scope="module")
def network() -> Model:
    found = lamella.load(FOLDER / "digits.sknd", config={"batch": str(TESTED)})
    assert isinstance(found, Model)
    return found


def quantised(network: Model, digits: tuple[Array, Array], scheme: Any, **options: Any) -> Quantized:
    """The network after calibration on the images that it learnt from."""
    images = digits[0][:-TESTED]
    return quantize(network, data={"image": images}, scheme=scheme, backend="reference", **options)


def accuracy(model: Model, digits: tuple[Array, Array]) -> float:
    images, labels = digits[0][-TESTED:], digits[1][-TESTED:]
    scores = lamella.compile(model, backend="reference")(image=images)["scores"]
    return float((scores.argmax(axis=1) == labels).mean())


def torch_accuracy(digits: tuple[Array, Array], weights: dict[str, Array]) -> float:
    """What PyTorch makes of the network's weights."""
    p = {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}
    x = torch.from_numpy(digits[0][-TESTED:])
    for name in ("conv1", "conv2"):
        x = torch.conv2d(x, p[f"{name}.filter"], p[f"{name}.bias"], padding=1)
        x = torch.max_pool2d(torch.relu(x), 2)
    scores = x.flatten(1) @ p["scores.filter"].T + p["scores.bias"]
    return float((scores.argmax(1).numpy() == digits[1][-TESTED:]).mean())


@pytest.mark.parametrize(("scheme", "fall"), [("int8", 0.005), ("w8", 0.005), ("w4a8", 0.015), ("w4", 0.015)])
def test_digits_are_still_read(network: Model, digits: tuple[Array, Array], scheme: str, fall: float) -> None:
    assert network.data is not None
    exact = torch_accuracy(digits, dict(network.data))
    assert exact > 0.97
    found = quantised(network, digits, scheme, rank=False)
    assert accuracy(found.model, digits) >= exact - fall
    agreement = found.report.outputs[0].agreement
    assert agreement is not None
    assert agreement > 0.97
    assert found.report.bytes_after < found.report.bytes_before / (6.5 if "4" in scheme else 3.7)


def test_improvements_improve(network: Model, digits: tuple[Array, Array]) -> None:
    plain = {"equalize": False, "gptq": False, "bias_correction": False, "per": "tensor", "rank": False}
    words = ("equalize", "gptq", "bias_correction")
    errors = {
        name: quantised(network, digits, "w4a8", **{**plain, name: True}).report.error for name in words
    }
    errors["channel"] = quantised(network, digits, "w4a8", **{**plain, "per": "channel"}).report.error
    worst = quantised(network, digits, "w4a8", **plain).report.error
    assert all(error < worst for error in errors.values()), (errors, worst)


def test_onnxruntime_gives_the_numbers_of_the_integer_graph(
    network: Model, digits: tuple[Array, Array], tmp_path: Path
) -> None:
    found = quantised(network, digits, "int8", rank=False)
    found.save(tmp_path / "int8.onnx")
    images = digits[0][-TESTED:]
    theirs = onnxruntime.InferenceSession(tmp_path / "int8.onnx").run(None, {"image": images})[0]
    ours = lamella.compile(found.model, backend="reference")(image=images)["scores"]
    step = np.unique(np.abs(np.diff(np.unique(ours)))).min()
    assert np.abs(theirs - ours).max() <= 2.01 * step
    assert (theirs.argmax(axis=1) == ours.argmax(axis=1)).mean() > 0.995


@pytest.mark.parametrize("budget", [0.2, 0.05, 0.02, 0.002])
def test_accuracy_budgets_are_kept(network: Model, digits: tuple[Array, Array], budget: float) -> None:
    found = quantised(network, digits, "w4a8", rank=False, accuracy_budget=budget)
    assert found.report.error <= budget
    schemes = {row.name: row.scheme for row in found.report.layers}
    if budget == 0.2:  # nothing needs to be promoted
        assert set(schemes.values()) == {"w4a8"}
    if budget == 0.02:
        assert "int8" in schemes.values()


def test_a_budget_that_islands_of_halves_miss_is_refused(network: Model, digits: tuple[Array, Array]) -> None:
    with pytest.raises(InputError, match=r"off by .* with every layer real; the budget is 1e-06"):
        quantised(network, digits, "int8", rank=False, accuracy_budget=1e-6, islands="f16")


def test_size_budgets_are_kept_by_what_hurts_least(network: Model, digits: tuple[Array, Array]) -> None:
    sizes = [quantised(network, digits, "w4a8", rank=False, size_budget=size) for size in (9000, 5000, 3500)]
    assert [item.report.bytes_after <= size for item, size in zip(sizes, (9000, 5000, 3500), strict=True)]
    errors = [item.report.error for item in sizes]
    assert errors[0] < errors[1] < errors[2]
    with pytest.raises(InputError, match="does not fit into 3,000 bytes"):
        quantised(network, digits, "w4a8", rank=False, size_budget=3000)
    with pytest.raises(InputError, match="cannot both be kept"):
        quantised(network, digits, "w4a8", rank=False, size_budget=5000, accuracy_budget=0.001)


def test_the_report_ranks_what_hurts(network: Model, digits: tuple[Array, Array]) -> None:
    found = quantised(network, digits, "w4a8", kept=("*conv1*",))
    rows = found.report.layers
    errors = [row.error for row in rows if row.error is not None]
    assert errors == sorted(errors, reverse=True)
    assert len(errors) == len(rows) == 2
    assert sum(row.share or 0.0 for row in rows) == pytest.approx(1.0)
    # The parts are nearly independent: their squares add up to that of the whole.
    assert found.report.error == pytest.approx(np.sqrt(np.square(errors).sum()), rel=0.5)
    assert ("conv1", "nn.conv", "it was asked to stay real") in found.report.real


def test_a_quantisation_is_deterministic(network: Model, digits: tuple[Array, Array]) -> None:
    one, other = (quantised(network, digits, "w4a8") for _ in range(2))
    assert one.model == other.model
    assert one.report == other.report
    assert one.model.data is not None
    assert other.model.data is not None
    assert all(np.array_equal(array, other.model.data[name]) for name, array in one.model.data.items())


@pytest.mark.parametrize("scheme", ["w8", "w4"])
def test_rows_of_a_table_are_codes_where_weights_alone_are_narrow(scheme: Any) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Embedding(50, 32), torch.nn.Linear(32, 8)).eval()
    ids = torch.randint(0, 50, (2, 7))
    model = lamella.from_torch(module, (ids,))
    name = next(iter(lamella.compile(model, backend="reference").inputs))
    found = quantize(model, data={name: ids.numpy()}, scheme=scheme, rank=False, backend="reference")
    exact = module(ids).detach().numpy()
    for backend in ("reference", "cpu"):
        given = next(iter(lamella.compile(found.model, backend=backend)(**{name: ids.numpy()}).values()))
        assert np.abs(given - exact).max() < (0.02 if scheme == "w8" else 0.2) * np.abs(exact).max()
    assert found.report.bytes_after < 50 * 36 + 32 * 8 + 300
    kept = quantize(
        model, data={name: ids.numpy()}, scheme=scheme, rank=False, backend="reference", kept="*weight*"
    )
    assert kept.report.error == 0.0


def test_attention_keeps_its_islands_in_narrow_reals(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).eval()
    x = torch.randn(1, 6, 16)
    model = lamella.from_torch(layer, (x,))
    name = next(iter(lamella.compile(model, backend="reference").inputs))
    for islands in ("f16", "bf16"):
        found = quantize(model, data={name: x.numpy()}, islands=islands, rank=False, backend="reference")
        types = {item.element.name for node in found.model.graph.operations() for item in node.outputs}  # type: ignore[union-attr]
        assert islands in types
        given = lamella.compile(found.model, backend="reference")(**{name: x.numpy()})
        exact = layer(x).detach().numpy()
        assert np.abs(next(iter(given.values())) - exact).max() < 0.15 * np.abs(exact).max()
        assert any(operator.endswith("softmax") for _, operator, _ in found.report.real)


def test_matrices_in_the_text_of_a_model_are_weights(tmp_path: Path) -> None:
    path = tmp_path / "matrix.sknd"
    path.write_text(
        "import linalg;\ngraph M { @input { x: real[8, 2]; } @output { y: real[8, 2]; }\n"
        "@constant { m: real[2, 2] = [1.0, 2.0, -0.5, 3.25]; }\n@compose { y = linalg.matmul(x, m); } }\n",
        encoding="utf-8",
    )
    x = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
    found = quantize(lamella.load(path), data={"x": x}, scheme="int8", backend="reference").model
    given = lamella.compile(found, backend="reference")(x=x)["y"]
    wanted = x @ np.array([[1.0, 2.0], [-0.5, 3.25]], np.float32)
    np.testing.assert_allclose(given, wanted, atol=0.02 * float(np.abs(wanted).max()))


def test_what_cannot_be_done_is_said(network: Model, digits: tuple[Array, Array]) -> None:
    with pytest.raises(InputError, match="'nothing\\*' names no layer"):
        quantised(network, digits, "int8", rank=False, kept=("nothing*",))
    found = quantised(network, digits, "int8", rank=False)
    with pytest.raises(InputError, match="quantised already: 3 operations"):
        quantised(found.model, digits, "int8", rank=False)
