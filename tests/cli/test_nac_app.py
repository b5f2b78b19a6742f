"""One file, one command: a model that remembers, its tokenizer and its plan, beside PyTorch and `tokenizers`."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tokenizers import Tokenizer

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

from lamella.cli import lamella as command
from tests.support.repository import ROOT

APP = ROOT / "examples" / "nac-app"
PROMPT = "the cat and you"


def run(*words: str | Path, fails: bool = False, stdin: str | None = None) -> Result:
    done = CliRunner().invoke(command, [str(word) for word in words], input=stdin)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code != 0) == fails, done.output
    return done


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("app")
    make = runpy.run_path(str(APP / "gpt.py"))["make"]
    token = torch.zeros(1, 1, dtype=torch.int64)
    torch.export.save(torch.export.export(make(), (token,)), folder / "gpt.pt2")
    words = ("--tokenizer", APP / "tokenizer.json", "--plan", APP / "chat.nacs")
    run("convert", folder / "gpt.pt2", folder / "chat.nac", *words)
    return folder / "chat.nac"


def expected(prompt: str, count: int) -> tuple[list[int], str]:
    """The ids and the text that PyTorch and `tokenizers` give, greedily."""
    tokenizer = Tokenizer.from_file(str(APP / "tokenizer.json"))
    model = runpy.run_path(str(APP / "gpt.py"))["make"]()
    ids = list(tokenizer.encode(prompt).ids)
    logits = torch.empty(0)
    for number in ids:
        logits = model(torch.tensor([[number]]))["logits"]
    for _ in range(count):
        ids.append(int(logits[0, -1].argmax()))
        logits = model(torch.tensor([[ids[-1]]]))["logits"]
    return ids, tokenizer.decode(ids)


def test_a_prompt_is_answered_as_pytorch_does(chat: Path) -> None:
    ids, text = expected(PROMPT, 12)
    found = json.loads(run("generate", chat, "--prompt", PROMPT, "--json").stdout)
    assert found["returned"] == [[ids]]
    assert found["printed"] == f"{text}\n"
    assert run("generate", chat, "--prompt", PROMPT).stdout == f"{text}\n"


def test_a_constant_is_patched_for_one_run_or_for_good(chat: Path, tmp_path: Path) -> None:
    ids, text = expected(PROMPT, 3)
    assert run("generate", chat, "--prompt", PROMPT, "--patch", "max_tokens=3").stdout == f"{text}\n"
    copy = tmp_path / "chat.nac"
    copy.write_bytes(chat.read_bytes())
    run("run", copy, "--patch", "max_tokens=3", "--rewrite")
    assert json.loads(run("generate", copy, "--prompt", PROMPT, "--json").stdout)["returned"] == [[ids]]
    before = copy.read_bytes()
    done = run("run", copy, "--patch", "max_tokens=many", "--rewrite", fails=True)
    assert "NAC249" in done.output
    assert copy.read_bytes() == before


def test_asking_needs_to_be_allowed(chat: Path) -> None:
    done = run("run", chat, "--plan", fails=True)
    assert "NAC245" in done.output
    assert "--allow prompt" in done.output
    text = expected(PROMPT, 12)[1]
    done = run("run", chat, "--plan", "--allow", "prompt", stdin=f"{PROMPT}\n")
    assert text in done.output


def test_capabilities_are_spelled_out(chat: Path) -> None:
    assert "is no capability" in run("run", chat, "--plan", "--allow", "everything", fails=True).output
    assert "is no capability" in run("run", chat, "--plan", "--allow", "read", fails=True).output


def test_the_tokenizer_and_the_plan_are_in_the_text(chat: Path, tmp_path: Path) -> None:
    run("convert", chat, tmp_path / "a.nacs")
    text = (tmp_path / "a.nacs").read_text(encoding="utf-8")
    assert "SRC_USER_PROMPT(0, 0, 0)" in text
    assert "BPE_ENCODE" in text
    run("convert", tmp_path / "a.nacs", tmp_path / "b.nac")
    assert (tmp_path / "b.nac").read_bytes() == chat.read_bytes()
