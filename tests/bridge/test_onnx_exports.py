"""Models that torch's exporters write: the graph gives what onnxruntime gives, on the reference and on machine code."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
nn = torch.nn
NO_SCRIPT = importlib.util.find_spec("onnxscript") is None


class Picture(nn.Module):  # type: ignore[name-defined]
    """A convolution, a pool that rounds up, a resize and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.pool, self.head = nn.MaxPool2d(2, ceil_mode=True), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        y = self.pool(torch.relu(self.norm(self.conv(x))))
        y = nn.functional.interpolate(y, scale_factor=2.0, mode="bilinear")
        return self.head(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


class Recurrent(nn.Module):  # type: ignore[name-defined]
    """Two layers of an LSTM in both directions, and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(5, 6, 2, bidirectional=True, batch_first=True), nn.GRU(12, 4)

    def forward(self, x: Any) -> Any:
        return self.gru(self.lstm(x)[0].transpose(0, 1))


class Attention(nn.Module):  # type: ignore[name-defined]
    """One block of a decoder, with the shape arithmetic that exporters write."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(50, 16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        b, n, c = x.shape
        parts = self.qkv(self.norm(x)).split(16, -1)
        q, k, v = (item.view(b, n, 4, 4).transpose(1, 2) for item in parts)
        later = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        weights = (q @ k.transpose(-1, -2) / 2).masked_fill(later, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, c)) + x


class Upscale(nn.Module):  # type: ignore[name-defined]
    """Strides there and back, with a norm of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 4, 3, 2, 1), nn.ConvTranspose2d(4, 2, 4, 2, 1)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: Any) -> Any:
        return nn.functional.hardswish(self.up(nn.functional.silu(self.norm(self.down(x)))))


def _cases() -> dict[str, tuple[Any, Any, dict[int, str] | None]]:
    torch.manual_seed(0)
    return {
        "picture": (Picture(), torch.randn(2, 3, 9, 9), {0: "n"}),
        "recurrent": (Recurrent(), torch.randn(2, 7, 5), None),
        "attention": (Attention(), torch.randint(0, 50, (2, 5)), {0: "b", 1: "t"}),
        "upscale": (Upscale(), torch.randn(1, 1, 8, 8), {0: "n", 2: "h", 3: "w"}),
    }


@pytest.mark.parametrize("name", ["picture", "recurrent", "attention", "upscale"])
@pytest.mark.parametrize(
    "dynamo",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(NO_SCRIPT, reason="torch's newer exporter needs onnxscript")
        ),
    ],
)
def test_an_export_gives_what_onnxruntime_gives(tmp_path: Path, name: str, dynamo: bool) -> None:
    module, x, axes = _cases()[name]
    path = tmp_path / "m.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given: dict[str, Any] = {"opset_version": 18 if dynamo else 17, "dynamo": dynamo}
        if axes is not None and not dynamo:
            given["dynamic_axes"] = {"x": axes}
        torch.onnx.export(module.eval(), (x,), str(path), input_names=["x"], **given)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x.numpy()})
    model = lamella.load(path)
    for backend in ("reference", "cpu"):
        found = lamella.compile(model, backend=backend)(x=x.numpy())
        for left, right in zip(found.values(), wanted, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)
