"""Complex numbers and Fourier transforms of PyTorch, and masks that are put, against PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import lamella

RANDOM = torch.Generator().manual_seed(4)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=RANDOM)


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    turned = torch.view_as_complex(x.reshape(2, 3, 4, 2)) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(2)


def spectrum(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs()


def there_and_back(x: torch.Tensor) -> torch.Tensor:
    window = torch.hann_window(16)
    found = torch.stft(x, 16, 4, window=window, return_complex=True)
    return torch.istft(found, 16, 4, window=window)


def masked(x: torch.Tensor) -> torch.Tensor:
    found = x.clone()
    found[x > 0.5] = 7.0
    found[:, x[0] < 0] = -1.0
    return found


def quotient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = torch.complex(x, y)
    return (
        torch.view_as_real((z + 1) / (z * z.conj() + 2) - z / 3).sum(-1) + torch.angle(z) + torch.exp(z).imag
    )


CASES: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "rotation": (rotate, (draw(2, 3, 8), draw(3, 4))),
    "quotient": (quotient, (draw(3, 4), draw(3, 4))),
    "fft": (lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real, (draw(3, 5),)),
    "fftn": (lambda x: torch.fft.fftn(x, dim=(1, 2), norm="ortho").imag, (draw(2, 4, 6),)),
    "ifft": (lambda x: torch.fft.ifft(torch.fft.fft(x)).real, (draw(3, 7),)),
    "rfft odd": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=7), (draw(3, 7),)),
    "rfft2": (lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=(4, 6)), (draw(2, 4, 6),)),
    "stft": (spectrum, (draw(2, 64),)),
    "istft": (there_and_back, (draw(2, 64),)),
    "masks": (masked, (draw(3, 4),)),
}


class Computing(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> torch.Tensor:
        return self.function(*arguments)


@pytest.mark.parametrize("name", CASES)
def test_parts_compute_what_torch_computes(name: str) -> None:
    function, given = CASES[name]
    model = lamella.from_torch(Computing(function), given)
    wanted = function(*given).numpy()
    for backend in ("reference", "cpu") if name in ("rotation", "fftn") else ("reference",):
        (found,) = lamella.compile(model, backend=backend)(*(item.numpy() for item in given)).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-5)


class Turned(torch.nn.Module):
    """A buffer of complex numbers, as models of DeepSeek and Llama 4 have one."""

    turns: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(3, 4), draw(3, 4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(x) * self.turns


def test_buffers_are_two_variables_and_results_two_tensors() -> None:
    module, x = Turned(), draw(3, 4, 2)
    model = lamella.from_torch(module, (x,))
    found = lamella.compile(model, backend="reference")(x.numpy())
    assert sorted(found) == ["output_imag", "output_real"]
    wanted = module(x).numpy()
    np.testing.assert_allclose(found["output_real"], wanted.real, atol=1e-6)
    np.testing.assert_allclose(found["output_imag"], wanted.imag, atol=1e-6)


def test_a_transform_of_an_open_length_is_refused() -> None:
    module = Computing(lambda x: torch.fft.fft(x).real)
    with pytest.raises(lamella.LamellaError, match="whose length is open"):
        lamella.from_torch(module, (draw(3, 4),), dynamic={"arguments": ({1: "n"},)})
