"""Tokens that a device chooses: the kernels that choose on the interpreter, and whole texts on a device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lamella.backend.cuda.greedy import MOST_STEPS, PART, choosing_text
from lamella.backend.interpreter import compile_program
from lamella.base.source import Source
from lamella.lang.tensor import parse
from lamella.pipeline.decoding import Rules, Sampling, decode
from lamella.pipeline.module.generate import Generator
from lamella.pipeline.options import Options

PAGE = Path(__file__).parents[3] / "examples/llama/page.module"


@pytest.mark.parametrize("count", [37, PART + 61])
def test_kernels_choose_the_first_of_the_likeliest(count: int) -> None:
    kernels, parts = (
        compile_program(parse(Source("choosing", choosing_text(count))).program),
        -(-count // PART),
    )
    random, steps = np.random.default_rng(count), np.zeros(1, np.int64)
    chosen, wanted = np.zeros(MOST_STEPS, np.int64), []
    for turn in range(3):
        scores = random.standard_normal(count).astype(np.float32)
        if turn == 1:
            scores[[count - 2, 5, 20]] = 9.0
        if turn == 2:
            scores[:] = -np.inf
        most, places = np.zeros(parts, np.float32), np.zeros(parts, np.int64)
        following = np.zeros(1, np.int64)
        kernels.find_parts(scores, most, places, groups=parts)
        kernels.choose(most, places, following, chosen, steps)
        wanted.append(int(scores.argmax()))
        assert following[0] == wanted[-1]
    assert chosen[:3].tolist() == wanted
    assert steps[0] == 3


@pytest.mark.parametrize(
    ("sampling", "greedy"),
    [
        (Sampling(), True),
        (Sampling(temperature=0.5), False),
        (Sampling(rules=Rules(top_k=5)), True),
        (Sampling(rules=Rules(repetition_penalty=1.2)), False),
    ],
)
def test_rules_that_change_scores_are_not_left_to_a_device(sampling: Sampling, greedy: bool) -> None:
    assert sampling.is_greedy == greedy


@pytest.mark.gpu
def test_a_device_continues_as_the_host_does() -> None:
    generator = Generator(PAGE, 64, Options(config={"n_layers": 1}), "cuda")
    start, empty = [3, 1, 4, 1, 5], generator.keep()
    by_host = list(decode(generator.rate_next, start, Sampling(45)))
    generator.resume(empty)
    assert list(generator.run(start, Sampling(45))) == by_host
    assert len(by_host) == 45
    # Caches are those of a host that chose.
    generator.resume(empty)
    list(decode(generator.rate_next, start, Sampling(45)))
    want = generator.keep()
    list(generator.run(start, Sampling(45)))
    for name, array in generator.keep().items():
        np.testing.assert_array_equal(array, want[name])
