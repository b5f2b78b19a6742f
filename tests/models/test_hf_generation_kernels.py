"""Tokens behind a prompt computed by kernels of known shapes, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamella.backend.named import NamedKernels
from lamella.base.errors import InputError
from lamella.lang.tensor.nodes import Program
from lamella.pipeline.backends import kernels
from lamella.pipeline.backends.kernels import compile_kernels
from lamella.pipeline.decoding import Sampling
from lamella.pipeline.module import generate
from lamella.pipeline.module.generate import Generator
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import logits, save, tokens

COUNT = 16
MARGIN = 1e-4


NAMES = ("llama tied", "qwen2 window", "mixtral", "gpt2", "mamba", "nemotron", "deepseek v3", "qwen3 next")


@pytest.mark.parametrize("name", NAMES)
def test_kernels_choose_the_tokens_of_transformers(name: str, tmp_path: Path) -> None:
    model = save(name, tmp_path, seed=6)
    generator = Generator(tmp_path, 9 + COUNT, Options(threads=1), "cpu")
    # A second text must begin with nothing of the first.
    for seed in (1, 2):
        start = [int(token) for token in tokens(1, 9, seed=seed)[0]]
        chosen = list(generator.run(start, Sampling(COUNT)))
        rated = logits(model, np.asarray([[*start, *chosen[:-1]]]))[0, len(start) - 1 :]
        best = np.sort(rated, axis=-1)
        clear = best[:, -1] - best[:, -2] > MARGIN
        assert clear.mean() > 0.8
        np.testing.assert_array_equal(rated.argmax(-1)[clear], np.asarray(chosen)[clear])


def test_prompts_of_all_lengths_share_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save("llama", tmp_path, seed=3)
    made: list[int] = []

    def counted(program: Program, *given: Any) -> NamedKernels:
        made.append(len(program.functions))
        return compile_kernels(program, *given)

    monkeypatch.setattr(kernels, "compile_kernels", counted)
    generators = [Generator(tmp_path, 48, Options(), backend) for backend in ("cpu", "reference")]
    for length in (9, 4, 5, 33, 2, 14, 1, 40):
        one, other = (list(item.run(range(1, length + 1), Sampling(2))) for item in generators)
        assert one == other
        # For prompts, and for single tokens.
        assert len(made) <= 2
    assert len(made) == 2
    with pytest.raises(InputError, match="no tokens"):
        generators[0].run([], Sampling(2))


def test_a_long_prompt_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save("llama", tmp_path, seed=3)
    generator = Generator(tmp_path, 24, Options(), "reference")
    whole = generator.rate(range(1, 12))
    monkeypatch.setattr(generate, "MOST_TOKENS", 4)
    np.testing.assert_allclose(generator.rate(range(1, 12)), whole, atol=1e-5)


def test_a_temperature_draws_the_same_tokens_on_every_backend(tmp_path: Path) -> None:
    save("llama", tmp_path, seed=3)
    sampling = Sampling(max_tokens=12, temperature=1.5, seed=8)
    drawn = [
        list(Generator(tmp_path, 16, Options(threads=1), backend).run([1, 2, 3, 4], sampling))
        for backend in (None, "reference", "cpu")
    ]
    assert drawn[0] == drawn[1] == drawn[2]


def test_a_backend_that_runs_no_graphs_is_refused(tmp_path: Path) -> None:
    save("llama", tmp_path, seed=3)
    with pytest.raises(InputError, match="no backend 'nacvm'"):
        Generator(tmp_path, 8, Options(), "nacvm")
