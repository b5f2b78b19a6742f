"""Architectures of transformers as torch's exporters write them: we give what onnxruntime gives, and export them again.

What the exporter leaves open has another size here than the exporter saw.
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import lamella
from lamella.base.arrays import Array
from tests.support.bridge.onnx_files import run_onnx
from tests.support.bridge.torch_models.judge import stretched
from tests.support.bridge.torch_models.transformer_models import MODELS, Sample

NO_SCRIPT = importlib.util.find_spec("onnxscript") is None
CLOSE = (1e-4, 1e-5)
"""Of the largest number: how far we may be from onnxruntime, and how far it may be from itself on our export."""
CLOSE_IN_HALF = (2e-3, 2e-3)
NEWER = (
    *("BERT", "GPT-2", "Mistral", "Qwen3", "GPT-NeoX"),
    *("BART encoder", "ViT", "ConvNeXt", "Whisper encoder"),
)
"""Llama is not among them: its nodes, with their attributes, are those of Qwen3."""
OLDER = ("DistilBERT", "T5 encoder", "Gemma", "ResNet", "SegFormer")


class FirstOutput(torch.nn.Module):
    """A network whose inputs stand in order and whose result is one tensor."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self.network, self.names = sample.module, tuple(sample.inputs)

    def forward(self, *values: Any) -> Any:
        """The logits, or the last hidden states."""
        return self.network(**dict(zip(self.names, values, strict=True)), return_dict=True)[0]


def _export(sample: Sample, path: Path, is_newer: bool) -> None:
    names = list(sample.inputs)
    options: dict[str, Any] = {"opset_version": 17, "dynamic_axes": sample.dynamic}
    if is_newer:
        axes = tuple(dict.fromkeys(sample.dynamic[name], torch.export.Dim.DYNAMIC) for name in names)
        options = {"dynamic_shapes": (axes,), "verbose": False, "external_data": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            FirstOutput(sample),
            tuple(sample.inputs.values()),
            str(path),
            input_names=names,
            dynamo=is_newer,
            **options,
        )


def _compare(sample: Sample, folder: Path, is_newer: bool, allowed: tuple[float, float]) -> None:
    path, again = folder / "m.onnx", folder / "again.onnx"
    _export(sample, path, is_newer)
    inputs = {key: item.numpy() for key, item in stretched(sample).items()}
    (wanted,) = run_onnx(str(path), inputs).values()
    model = lamella.load(path)
    for backend in ("reference", "cpu"):
        (found,) = lamella.compile(model, backend=backend)(**inputs).values()
        _assert_close(found, wanted, allowed[0])
    lamella.save(model, again)
    onnx.checker.check_model(str(again), full_check=True)
    (found,) = run_onnx(str(again), inputs).values()
    _assert_close(found, wanted, allowed[1])


def _assert_close(found: Array, wanted: Array, allowed: float) -> None:
    assert found.dtype == wanted.dtype
    largest = float(np.abs(wanted).max())
    assert largest > 0
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), rtol=0, atol=allowed * largest)


@pytest.mark.skipif(NO_SCRIPT, reason="torch's newer exporter needs onnxscript: pip install onnxscript")
@pytest.mark.parametrize("name", NEWER)
def test_the_newer_exporter(tmp_path: Path, name: str) -> None:
    _compare(MODELS[name](), tmp_path, True, CLOSE)


@pytest.mark.parametrize("name", OLDER)
def test_the_older_exporter(tmp_path: Path, name: str) -> None:
    _compare(MODELS[name](), tmp_path, False, CLOSE)


def test_a_model_in_float16(tmp_path: Path) -> None:
    sample = MODELS["ViT"]()
    halved = {name: item.half() for name, item in sample.inputs.items()}
    _compare(replace(sample, module=sample.module.half(), inputs=halved), tmp_path, False, CLOSE_IN_HALF)
