"""Decoders with other heads than that of words: classes of texts and of tokens, spans."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import lamella
from lamella.base.errors import InputError
from lamella.pipeline.module.export import export
from lamella.pipeline.module.folders import architectures
from lamella.pipeline.module.generate import Generator
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import logits, save, tokens

PAD = 5


def test_a_text_is_rated_by_its_last_token_that_is_no_padding(tmp_path: Path) -> None:
    model = save("llama classes", tmp_path)
    ids = tokens(5, 7)
    ids[ids == PAD] = 6
    ids[0, 4:] = ids[1, :3] = ids[2, 2] = ids[3] = PAD
    found = lamella.compile(lamella.load(tmp_path))(token_ids=ids)["logits"]
    assert found.shape == (5, 5)
    np.testing.assert_allclose(found, logits(model, ids), rtol=0, atol=1e-5)


def test_both_ends_of_a_span_have_scores(tmp_path: Path) -> None:
    model = save("mistral spans", tmp_path)
    ids = tokens(2, 7)
    found = lamella.compile(lamella.load(tmp_path))(token_ids=ids)
    with torch.no_grad():
        wanted = model(torch.from_numpy(ids))
    assert list(found) == ["start_logits", "end_logits"]
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("head", "task"), [("classes", "SequenceClassification"), ("tokens", "TokenClassification")]
)
def test_a_new_folder_names_the_head_that_it_has(head: str, task: str, tmp_path: Path) -> None:
    path, model = architectures()["Qwen2ForCausalLM"]
    export(
        path, tmp_path, Options(model=model, preset="tiny", seed=5, config={"head": head, "pad_token": PAD})
    )
    kind = getattr(transformers, f"Qwen2For{task}")
    loaded, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    ids = tokens(2, 6)
    found = lamella.compile(lamella.load(tmp_path))(token_ids=ids)["logits"]
    np.testing.assert_allclose(found, logits(loaded.eval(), ids), rtol=0, atol=1e-5)


def test_what_rates_no_words_generates_none(tmp_path: Path) -> None:
    save("llama tokens", tmp_path)
    with pytest.raises(InputError, match="rates tokens, not words"):
        Generator(tmp_path, 8, Options())
