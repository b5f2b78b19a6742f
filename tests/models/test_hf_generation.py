"""Models called again for the next tokens, with caches and states, against transformers without any."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.bridge.module_to_graph import CompilationSettings
from lamella.pipeline.decoding import Sampling
from lamella.pipeline.module.execution import build
from lamella.pipeline.module.folders import read_source
from lamella.pipeline.module.generate import Generator, SequenceGenerator
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import first_of, logits, results_of, save, tokens

STATEFUL = (
    *("llama 3.1", "qwen2 window", "qwen3", "mistral", "qwen3 moe plain", "gpt2", "mamba", "nemotron"),
    *("gemma2", "gemma3", "cohere2", "bloom", "opt", "falcon newer", "phi3 long"),
    *("deepseek v3 yarn", "gpt oss", "qwen3 next", "rwkv", "mamba2", "gpt neo", "exaone4"),
)
SHORT = MappingProxyType(
    {
        **dict.fromkeys(("llama", "llama tied", "llama 3.1", "qwen2", "qwen3"), "num_hidden_layers"),
        **dict.fromkeys(("mistral", "mixtral", "qwen3 moe", "mamba"), "num_hidden_layers"),
        "gpt2": "n_layer",
    }
)
"""What says the number of layers of each: one is enough for long texts, which take a call for each token."""
COUNT = 64
MARGIN = 1e-4
PARTS = (0, 9, 10, 11, 14, 15)
"""Where the calls begin and end: several tokens first and in between, and one alone."""


@pytest.mark.parametrize("name", STATEFUL)
def test_a_text_in_parts_has_the_logits_of_the_whole(name: str, tmp_path: Path) -> None:
    model = save(name, tmp_path, seed=4)
    ids = tokens(1, PARTS[-1], seed=2)
    source = read_source(tmp_path, Options())
    graph = build(source, Options(), CompilationSettings(extents={"B": 1}, cached=PARTS[-1]))
    executable = compile_model(graph)
    for _ in range(2):
        executable.reset()
        found = [first_of(executable(token_ids=ids[:, begin:end])) for begin, end in pairwise(PARTS)]
        wanted = logits(model, ids)
        size = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(np.concatenate(found, axis=1), wanted, rtol=0, atol=1e-5 * size)


@pytest.mark.parametrize("name", SHORT)
def test_greedy_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """All logits of transformers are computed at once, for the tokens that we chose: no cache of theirs is trusted."""
    length = 11
    model = save(name, tmp_path, seed=length, **{SHORT[name]: 1})
    start = [int(token) for token in tokens(1, length, seed=7)[0]]
    chosen = list(Generator(tmp_path, length + COUNT, Options()).run(start, Sampling(COUNT)))
    assert len(chosen) == COUNT
    rated = logits(model, np.asarray([[*start, *chosen[:-1]]]))[0, length - 1 :]
    best = np.sort(rated, axis=-1)
    clear = best[:, -1] - best[:, -2] > MARGIN
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(rated.argmax(-1)[clear], np.asarray(chosen)[clear])


ANSWERING = ("t5 gated", "bart scaled", "marian", "whisper")


@pytest.mark.parametrize("name", ANSWERING)
def test_what_is_written_for_another_sequence_is_what_transformers_writes(name: str, tmp_path: Path) -> None:
    """Tokens by chance, so that they differ; their scores are those of transformers without any cache."""
    model = save(name, tmp_path, seed=4)
    generator = SequenceGenerator(tmp_path, Options(max_tokens=COUNT))
    (asked,) = generator.inputs
    chance = np.random.default_rng(3)
    for length in (5, 9):
        given = (
            chance.integers(0, 60, (1, length))
            if asked == "token_ids"
            else chance.random((1, 8, 24), np.float32)
        )
        generator.read(**{asked: given})
        start = [3, 7]
        chosen = list(generator.write(start, Sampling(COUNT // 2, temperature=1.0, seed=length)))
        assert len(chosen) == COUNT // 2
        assert len(set(chosen)) > COUNT // 8
        generator.read(**{asked: given})
        found = [generator.rate_next(start), *(generator.rate_next([token]) for token in chosen[:-1])]
        inputs = {asked: given, "decoder_token_ids": np.asarray([[*start, *chosen[:-1]]])}
        wanted = results_of(model, inputs)[0, 1:]
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_choices_of_a_folder_that_are_not_obeyed_are_noted_and_its_last_tokens_are(tmp_path: Path) -> None:
    save("llama", tmp_path, seed=2)
    first = Generator(tmp_path, 24, Options(threads=1), "reference")
    chosen = list(first.run([1, 2, 3], Sampling(8)))
    said = {"do_sample": True, "typical_p": 0.4, "top_p": 1.0, "eos_token_id": [chosen[3]]}
    (tmp_path / "generation_config.json").write_text(json.dumps(said))
    second = Generator(tmp_path, 24, Options(threads=1), "reference")
    (note,) = [item for item in second.findings if item.code == "W111"]
    assert note.message.startswith("typical_p 0.4, do_sample True is ignored")
    again = list(second.run([1, 2, 3], Sampling(8)))
    assert again == chosen[: len(again)]
    assert len(again) <= 4
