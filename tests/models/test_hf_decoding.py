"""Rules of a folder for how tokens are chosen, and beam search, against what transformers generates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from lamella.base.errors import InputError
from lamella.pipeline.decoding import Rules, Sampling, choose_token, ignored_settings, read_rules
from lamella.pipeline.module.generate import open_generator
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import save, tokens

COUNT = 14
BEAMS = {"num_beams": 3}
CASES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "plain": {},
        "penalty": {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2},
        "words": {"bad_words_ids": [[4], [9, 7]], "suppress_tokens": [3, 8], "begin_suppress_tokens": [1, 2]},
        "short": {"min_length": 9, "forced_eos_token_id": 5},
        "beams": BEAMS,
        "beams early": {**BEAMS, "early_stopping": True, "min_new_tokens": 3},
        "beams never": {**BEAMS, "early_stopping": "never", "length_penalty": 2.0},
        "beams short": {"num_beams": 4, "length_penalty": -1.0, "no_repeat_ngram_size": 2},
        "beams forced": {**BEAMS, "forced_eos_token_id": 5, "repetition_penalty": 1.3},
    }
)


@pytest.fixture(scope="module", params=["llama", "bart scaled", "t5"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model of transformers, and its folder."""
    folder = tmp_path_factory.mktemp("decoding")
    return save(
        request.param, folder, seed=4, **({"num_hidden_layers": 1} if request.param == "llama" else {})
    ), folder


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_those_of_transformers(case: str, made: tuple[Any, Path]) -> None:
    """Many tokens end a text, so that beams of several lengths are compared."""
    model, folder = made
    said = {**CASES[case], "eos_token_id": [5, 11, 17, 23], "pad_token_id": 0, "do_sample": False}
    if model.config.is_encoder_decoder:
        said["decoder_start_token_id"] = 3
    forced = model.config.is_encoder_decoder and case != "words" and 7
    said |= {"forced_bos_token_id": forced} if forced else {}
    (folder / "generation_config.json").write_text(json.dumps(said))
    start = [int(token) for token in tokens(1, 7, seed=2)[0]]
    generator = open_generator(folder, len(start) + COUNT, Options(max_tokens=COUNT, backend="reference"))
    found = list(generator.run(start, Sampling(COUNT)))

    model.generation_config = type(model.generation_config)(**said, max_new_tokens=COUNT + bool(forced))
    with torch.no_grad():
        whole = model.generate(torch.tensor([start]))[0].tolist()
    wanted = whole[(2 if forced else 1) if model.config.is_encoder_decoder else len(start) :]
    ends = [place for place, token in enumerate(wanted) if token in said["eos_token_id"]]
    assert found == wanted[: ends[0] if ends else None]


@pytest.mark.parametrize(
    "rules", [Rules(top_k=4), Rules(top_p=0.6), Rules(min_p=0.2), Rules(top_k=9, top_p=0.8)]
)
def test_what_is_drawn_is_what_transformers_would_draw(rules: Rules) -> None:
    scores = np.random.default_rng(3).normal(0, 1, 40)
    steps: list[Any] = []
    steps += [TopKLogitsWarper(rules.top_k)] if rules.top_k else []
    steps += [TopPLogitsWarper(rules.top_p)] if rules.top_p < 1 else []
    steps += [MinPLogitsWarper(rules.min_p)] if rules.min_p else []
    wanted = torch.from_numpy(scores)[None]
    for step in steps:
        wanted = step(None, wanted)
    allowed = np.flatnonzero(np.isfinite(wanted[0].numpy()))
    assert 1 < len(allowed) < len(scores)
    chance = np.random.default_rng(0)
    sampling = Sampling(temperature=1.0, rules=rules)
    found = {choose_token(scores, sampling, chance) for _ in range(400)}
    assert found <= set(allowed.tolist())
    assert found >= set(allowed[wanted[0].numpy()[allowed] > wanted.max().item() - 2].tolist())


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_beams", 0), ("min_length", "9"), ("early_stopping", "soon"), ("top_p", 1.5), ("bad_words_ids", 3)],
)
def test_a_rule_that_is_none_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        read_rules({name: value})


def test_what_is_not_obeyed_is_named() -> None:
    said = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "typical_p": 0.5, "num_beams": 4}
    assert [*ignored_settings(said, 0.0)] == ["typical_p", "do_sample", "temperature", "top_p"]
    assert [*ignored_settings(said, 0.8)] == ["typical_p", "num_beams"]
    assert not [*ignored_settings({"temperature": 0.6, "top_p": 0.9, "num_beams": 4}, 0.0)]
