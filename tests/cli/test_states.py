"""What is kept between runs, from the command line: shown, converted, and tokens that follow each other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

import lamella
from lamella.cli import lamella as command
from tests.support.bridge.gpt_example import TOKEN, example, greedy

ROOT = Path(__file__).parents[2]
MODEL = """
import math;
graph Sum {
    @input { x: real[2, 3]; }
    @output { y: real[2, 3]; }
    @variable { total: real[2, 3]; last: real[2, 3]; }
    @compose { y = math.add(x, total); }
    @update { total = y; last = x; }
}
"""


def run(*words: str | Path, fails: bool = False) -> Result:
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code != 0) == fails, done.output
    return done


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GPT of the examples as a file, made from its export."""
    folder = tmp_path_factory.mktemp("gpt")
    torch.export.save(torch.export.export(example().make(), (TOKEN,)), folder / "gpt.pt2")
    run("convert", folder / "gpt.pt2", folder / "gpt.nac")
    return folder / "gpt.nac"


@pytest.fixture
def summing(tmp_path: Path) -> Path:
    """A graph that adds up what it is given, and the numbers that it begins with."""
    (tmp_path / "sum.sknd").write_text(MODEL, encoding="utf-8")
    from safetensors.numpy import save_file

    arrays = {"total": np.arange(6, dtype=np.float32).reshape(2, 3), "last": np.zeros((2, 3), np.float32)}
    save_file(arrays, str(tmp_path / "sum.safetensors"))
    run("convert", tmp_path / "sum.sknd", tmp_path / "sum.nac", "--weights", tmp_path / "sum.safetensors")
    return tmp_path / "sum.nac"


def sums(path: Path) -> list[list[float]]:
    """What two calls give for ones."""
    executable = lamella.compile(path)
    return [executable(x=np.ones((2, 3), np.float32))["y"].reshape(-1).tolist() for _ in range(2)]


WANTED = [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]]


def test_states_are_shown(summing: Path) -> None:
    assert run("check", "--strict", summing).stdout == "1 file checked: nothing found\n"
    shown = run("show", summing).stdout
    assert "states\n  0  total  f32[2, 3]  from parameter 1  becomes output 1" in shown
    assert "  1  last   f32[2, 3]  from zeros        becomes output 2" in shown
    data = json.loads(run("show", summing, "--json").stdout)["states"]
    assert [item["name"] for item in data] == ["total", "last"]
    assert [item["initial"] for item in data] == [1, None]
    assert json.loads(run("show", ROOT / "examples/nac/xor.nacs", "--json").stdout)["states"] == []


@pytest.mark.parametrize("words", [(), ("--external",), ("--optimize", "exact"), ("--plain-signatures",)])
def test_converted_files_keep_the_same(summing: Path, words: tuple[str, ...]) -> None:
    again = summing.with_name("again.nac")
    run("convert", summing, again, *words)
    assert sums(again) == sums(summing) == WANTED


@pytest.mark.parametrize("method", ["fp16", "int8_tensor", "int8_channel", "block_fp8"])
def test_states_may_begin_in_fewer_bits(summing: Path, method: str) -> None:
    small = summing.with_name("small.nac")
    run("convert", summing, small, "--quantize", method)
    np.testing.assert_allclose(sums(small), WANTED, atol=0.05)


@pytest.mark.parametrize("ending", ["sknd", "nacs"])
def test_states_travel_to_other_forms_and_back(summing: Path, ending: str) -> None:
    run("convert", summing, summing.with_name(f"other.{ending}"))
    run("convert", summing.with_name(f"other.{ending}"), summing.with_name("again.nac"))
    assert sums(summing.with_name("again.nac")) == WANTED


@pytest.mark.parametrize("backend", ["nacvm", "reference", "cpu"])
def test_one_run_begins_at_the_start(summing: Path, backend: str) -> None:
    np.save(summing.with_name("x.npy"), np.ones((2, 3), np.float32))
    words = ("--input", f"x={summing.with_name('x.npy')}", "--output", summing.with_name("out"))
    for _ in range(2):
        run("run", summing, *words, "--backend", backend)
        assert np.load(summing.with_name("out") / "y.npy").reshape(-1).tolist() == WANTED[0]


# --- tokens -------------------------------------------------------------------------------------------------


def test_generated_tokens_are_those_of_torch(gpt: Path) -> None:
    words = ("generate", gpt, "--tokens", "1,5,7", "--max-tokens", "24")
    wanted = greedy(example().make(), [1, 5, 7], 24, example().HEADS)
    assert run(*words).stdout == ",".join(map(str, wanted)) + "\n"
    assert json.loads(run(*words, "--json").stdout)["tokens"] == wanted


class Count(torch.nn.Module):
    """Finds likeliest the number of its tokens."""

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        count = torch.ones_like(ids).sum(1, keepdim=True)
        return {"scores": -(torch.arange(9) - count).abs()}


def test_a_model_that_keeps_nothing_is_given_all_tokens(tmp_path: Path) -> None:
    ids = torch.zeros(1, 3, dtype=torch.int64)
    program = torch.export.export(Count(), (ids,), dynamic_shapes={"ids": {1: torch.export.Dim("n", max=8)}})
    torch.export.save(program, tmp_path / "count.pt2")
    run("convert", tmp_path / "count.pt2", tmp_path / "count.nac")
    words = ("--tokens", "4,4", "--max-tokens", "4")
    assert run("generate", tmp_path / "count.nac", *words).stdout == "2,3,4,5\n"


WRONG = {
    (): "give --prompt TEXT or --tokens ID,ID…, one of them",
    ("--tokens", "0", "--prompt", "a"): "--tokens cannot have an effect on",
    ("--tokens", "0", "--ends", "token"): "'token' names no input and output",
    ("--tokens", "0", "--ends", "word=logits"): "there is no input 'word'",
    ("--tokens", "0", "--ends", "token=scores"): "there is no output 'scores'",
    ("--tokens", "1,x"): "'1,x' is no list of tokens",
    ("--tokens", "64"): "whose extent in dimension 0 is 64",
    ("--tokens", "0", "--max-tokens", "-1"): "-1 is not in the range",
    ("--tokens", "0", "--backend", "reference"): "a NAC file generates tokens only where it keeps its states",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_what_cannot_be_generated_is_told(gpt: Path, words: tuple[str, ...]) -> None:
    assert WRONG[words] in run("generate", gpt, *words, fails=True).output


def test_onnx_files_and_graphs_generate_the_tokens_of_their_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cache in its states or without one, in ONNX or SkriptND: the tokens are those of the checkpoint."""
    monkeypatch.chdir(tmp_path)
    words = ["--tokens", "3,1,2", "--max-tokens", "5"]
    for made in (
        ["convert", str(ROOT / "examples/llama/page.module"), "tiny", "--seed", "1"],
        ["convert", "tiny", "whole.onnx"],
        ["convert", "tiny", "cached.onnx", "--cache", "16", "--shape", "T=1"],
        ["convert", "tiny", "cached.sknd", "--cache", "16", "--shape", "T=1"],
    ):
        run(*made)
    wanted = run("generate", "tiny", *words).stdout
    assert len(wanted.split(",")) == 5
    for name in ("whole.onnx", "cached.onnx", "cached.sknd"):
        assert run("generate", name, *words).stdout == wanted
    refused = run("generate", "whole.onnx", "--tokens", "1", "--ends", "token_ids=nope", fails=True)
    assert "there is no output 'nope'" in refused.output
