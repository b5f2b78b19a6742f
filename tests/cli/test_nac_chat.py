"""A Hugging Face folder as one NAC file that answers prompts as the folder does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from lamella.cli import lamella as command
from tests.support.repository import ROOT

PROMPT = "abc the"


def call(*words: object, status: int = 0) -> str:
    """What a command prints; its exit status is compared."""
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exit_code == status, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with random weights and a tokenizer."""
    target = tmp_path_factory.mktemp("chat") / "tiny"
    call("convert", ROOT / "examples" / "llama" / "page.module", target, "--seed", 1)
    shutil.copy(ROOT / "examples" / "nac-app" / "tokenizer.json", target / "tokenizer.json")
    return target


@pytest.fixture(scope="module")
def answer(folder: Path) -> list[int]:
    """The tokens with which the folder itself answers."""
    pytest.importorskip("tokenizers")
    tokens: list[int] = json.loads(call("generate", folder, "--prompt", PROMPT, "--json"))["tokens"]
    return tokens


def answered(path: Path, *words: object) -> list[int]:
    """The tokens with which a file answers."""
    ((tokens,),) = json.loads(call("generate", path, "--prompt", PROMPT, "--json", *words))["returned"]
    return [int(item) for item in tokens]


@pytest.mark.parametrize(
    "words", [(), ("--cache", 40), ("--cache", 40, "--shape", "T=1")], ids=["whole", "cached", "single"]
)
def test_a_file_answers_as_its_folder_does(
    folder: Path, answer: list[int], tmp_path: Path, words: tuple[object, ...]
) -> None:
    call("convert", folder, tmp_path / "chat.nac", *words)
    assert "error" not in call("check", tmp_path / "chat.nac")
    if not words:  # each length is prepared anew, so a few tokens must do
        assert answered(tmp_path / "chat.nac", "--patch", "max_tokens=3") == answer[:3]
        return
    assert answered(tmp_path / "chat.nac") == answer
    if words == ("--cache", 40):
        assert call("generate", tmp_path / "chat.nac", "--prompt", PROMPT) == call(
            "generate", folder, "--prompt", PROMPT
        )


def test_an_answer_ends_at_a_stop_token_and_where_there_is_no_room(
    folder: Path, answer: list[int], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    stop = next(item for item in answer if item != answer[0])
    (copy / "config.json").write_text(json.dumps({**config, "eos_token_id": [255, stop]}), encoding="utf-8")
    call("convert", copy, tmp_path / "chat.nac", "--cache", 40)
    assert answered(tmp_path / "chat.nac") == answer[: answer.index(stop)]
    call("convert", folder, tmp_path / "short.nac", "--cache", 12)
    found = answered(tmp_path / "short.nac")
    assert 0 < len(found) < len(answer)
    assert found == answer[: len(found)]
    assert "room for 12 tokens" in call("generate", tmp_path / "short.nac", "--prompt", PROMPT)


def test_a_file_that_cannot_answer_says_why(folder: Path, tmp_path: Path) -> None:
    told = call("convert", folder, tmp_path / "fixed.nac", "--shape", "B=1,T=4")
    assert "the plan that answers a prompt is left out: the model takes 1 texts of 4 tokens" in told
    told = call("generate", tmp_path / "fixed.nac", "--prompt", PROMPT, status=1)
    assert "has no plan" in told
    assert "--tokenizer tokenizer.json --plan PLAN.nacs" in told
    assert "lamella convert FOLDER chat.nac" in told


def test_a_file_written_anew_answers_as_before(folder: Path, answer: list[int], tmp_path: Path) -> None:
    """Tokenizer, plan and the names of its constants are no part of the graph, and stay."""
    call("convert", folder, tmp_path / "chat.nac", "--cache", 40)
    call("convert", tmp_path / "chat.nac", tmp_path / "new.nac", "--optimize", "exact")
    assert answered(tmp_path / "new.nac", "--patch", "max_tokens=2") == answer[:2]
