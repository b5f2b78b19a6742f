"""A tokenizer that the package of tokenizers refuses is a fault of its file, not of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lamella import LamellaError
from lamella.base.limits import DEFAULT
from lamella.pipeline.module.generate import generate_text, open_tokenizer
from lamella.pipeline.options import Options
from lamella.train.data.texts import TextEncoder, TextSpan

pytest.importorskip("tokenizers")


def _write(folder: Path, **model: object) -> None:
    text = json.dumps({"version": "1.0", "added_tokens": [], "model": model})
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")


def test_vocabularies_out_of_range_are_findings(tmp_path: Path) -> None:
    _write(tmp_path, type="BPE", vocab={"a": 10**12, "b": -1}, merges=["a"])
    with pytest.raises(LamellaError, match=r"tokenizer\.json.*cannot be used: .*1000000000000"):
        open_tokenizer(tmp_path)


def test_texts_that_a_vocabulary_cannot_say_are_findings(tmp_path: Path) -> None:
    _write(tmp_path, type="WordLevel", vocab={"a": 0}, unk_token="[UNK]")
    with pytest.raises(LamellaError, match=r"cannot be used: .*UNK"):
        generate_text(tmp_path, "b", Options())
    with pytest.raises(LamellaError, match=r"cannot be used: .*UNK"):
        TextEncoder(tmp_path, DEFAULT).encode(TextSpan("b"))
