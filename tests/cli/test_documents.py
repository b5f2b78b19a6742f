"""JSON files from the command line: what they are is told, and a mistake has its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lamella.cli import lamella as command

TOKENIZER = {
    "version": "1.0",
    "added_tokens": [{"id": 2, "content": "<\x1bs>", "special": True}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordPiece", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"},
}
INDEX = {"metadata": {"total_size": 12}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}


def shown(path: Path, value: object, status: int = 0) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    done = CliRunner().invoke(command, ["show", str(path)])
    assert done.exit_code == status, done.output
    return done.output


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (TOKENIZER, ["a tokenizer", "WordPiece, 2 tokens", r"1: <\x1bs>", "NFC, Lowercase"]),
        (
            {"model_type": "x", "n": [1, 2]},
            ["the config of a Hugging Face folder", "n           list of 2: 1, 2"],
        ),
        (
            INDEX,
            ["the index of a checkpoint", "12 bytes", "2 tensors in 2 files", "one.safetensors: 1 tensors"],
        ),
        ({str(k): k for k in range(99)}, ["a JSON object", "and 59 more"]),
        ([1, 2], ["JSON, list of 2: 1, 2"]),
    ],
    ids=["tokenizer", "config", "index", "object", "value"],
)
def test_a_document_is_shown_as_what_it_is(tmp_path: Path, value: object, words: list[str]) -> None:
    text = shown(tmp_path / "some.json", value)
    assert not [word for word in words if word not in text], text


def test_a_mistake_is_pointed_at(tmp_path: Path) -> None:
    text = shown(tmp_path / "config.json", '{\n  "a": 1,\n}', status=1)
    assert "config.json:3:1: error[LAM001]: this is no JSON" in text
    assert "hint: a key in double quotes belongs here" in text


def test_a_tokenizer_that_cannot_be_compiled_is_found(tmp_path: Path) -> None:
    text = shown(tmp_path / "t.json", {**TOKENIZER, "model": {"type": "Morse", "vocab": {}}}, status=1)
    assert "Morse" in text
    done = CliRunner().invoke(command, ["check", str(tmp_path / "t.json")])
    assert done.exit_code == 1
    assert "error[NAC" in done.output
