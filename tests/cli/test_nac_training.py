"""Training from the command line: steps, what they print and what they write."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import lamella
from lamella.cli import lamella as command
from tests.support.bridge.nac_training import RATE, network, train_torch


def run(*words: str | Path, fails: bool = False) -> Result:
    """A command, which ends well unless it is to fail."""
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code != 0) == fails, done.output
    return done


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The words with which a network is trained, and its files."""
    item = network("entropy", "float32")
    (tmp_path / "net.nacs").write_text(item.text)
    np.save(tmp_path / "x.npy", item.x.numpy())
    np.save(tmp_path / "t.npy", item.target.numpy())
    return ["--input", f"x={tmp_path / 'x.npy'}", "--target", f"0={tmp_path / 't.npy'}"]


def test_steps_tell_their_losses(words: list[str], tmp_path: Path) -> None:
    done = run("train", tmp_path / "net.nacs", "--steps", "2", *words)
    losses, _ = train_torch(network("entropy", "float32"), 2)
    steps = [line.split() for line in done.output.splitlines() if line.startswith("step")]
    assert [line[:3] for line in steps] == [["step", "1", "loss"], ["step", "2", "loss"]]
    np.testing.assert_allclose([float(line[3]) for line in steps], losses, rtol=1e-5)


def test_steps_run_by_the_kernels_that_are_asked_for(words: list[str], tmp_path: Path) -> None:
    x, target = (np.load(tmp_path / f"{name}.npy").shape for name in "xt")
    types = ["--type", f"x=f32{list(x)}", "--type", f"target_0=i64{list(target)}"]
    net: list[str | Path] = ["train", tmp_path / "net.nacs", "--steps", "2", "--json", *words, *types]
    plain, done = (json.loads(run(*net, *more).stdout) for more in ([], ["--backend", "cpu"]))
    np.testing.assert_allclose(done["losses"], plain["losses"], rtol=1e-5)
    assert done["placement"]["kernels"] > 0
    assert "placement" not in plain


def test_what_was_trained_goes_on(words: list[str], tmp_path: Path) -> None:
    """Two steps, and two from what was written, are four."""
    net, half, store = tmp_path / "net.nacs", tmp_path / "half.nac", tmp_path / "half.safetensors"
    four = json.loads(run("train", net, "--steps", "4", "--json", *words).stdout)
    two = json.loads(run("train", net, "--steps", "2", "--json", "--save", half, *words).stdout)
    rest = json.loads(run("train", half, "--steps", "2", "--json", *words).stdout)
    assert four["losses"] == two["losses"] + rest["losses"]
    assert four["parameters"] == rest["parameters"] != two["parameters"]
    run("train", net, "--steps", "2", "--save", store, *words)
    run("convert", net, tmp_path / "other.nac", "--weights", store)
    one, other = (lamella.compile(path) for path in (half, tmp_path / "other.nac"))
    x = np.load(tmp_path / "x.npy")
    np.testing.assert_array_equal(one(x=x)["output"], other(x=x)["output"])


def test_a_rate_is_stronger_than_that_of_the_file(words: list[str], tmp_path: Path) -> None:
    net = tmp_path / "net.nacs"
    usual, same, other = (
        json.loads(run("train", net, "--steps", "2", "--json", *more, *words).stdout)["losses"]
        for more in ([], ["--lr", str(RATE)], ["--lr", "0"])
    )
    assert usual == same
    assert usual[0] == other[0] == other[1] != usual[1]


def test_what_is_not_given_or_not_there_is_told(words: list[str], tmp_path: Path) -> None:
    net = tmp_path / "net.nacs"
    target = words[3].partition("=")[2]
    assert "target 0 is not given" in run("train", net, "--steps", "1", *words[:2], fails=True).output
    wrong = run("train", net, "--steps", "1", *words, "--target", f"1={target}", fails=True)
    assert "there is no target 1; the file has 1" in wrong.output
    assert "lamella train FILE --lr X" in run("run", net, "--lr", "0.1", fails=True).output
    plain = tmp_path / "plain.nacs"
    plain.write_text("nac 1.6\n.code\n%x = input()\n%z = output(%x)\n.inputs\n0 = x\n")
    assert "no training graph" in run("train", plain, "--steps", "1", fails=True).output
    assert "finite" in run("train", net, "--steps", "1", "--lr", "inf", *words, fails=True).output


def test_show_tells_of_training(words: list[str], tmp_path: Path) -> None:
    net, older = tmp_path / "net.nacs", tmp_path / "net.nac"
    run("convert", net, older)
    for path, source in ((net, "TRNG"), (older, "training.nac")):
        facts = json.loads(run("show", path, "--json").stdout)["training"]
        assert (facts["source"], facts["targets"], len(facts["parameters"])) == (source, 1, 4)
        lines = run("show", path).stdout.splitlines()
        assert lines[lines.index("training") + 1].endswith(f"in {source}")
        assert "second.weight" in lines[lines.index("training") + 2]
    assert json.loads(run("show", "examples/nac/xor.nacs", "--json").stdout)["training"] is None


@pytest.mark.parametrize("more", [["--external"], ["--quantize", "fp16"], ["--optimize", "exact"]])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_conversions_keep_the_training_graph(more: list[str], tmp_path: Path) -> None:
    item = network("squares", "float32")
    made = lamella.from_torch(item.module, (item.x,), loss=item.loss, targets=(item.target,))
    lamella.save(made, tmp_path / "net.nac")
    other = tmp_path / "other" / "net.nac"
    other.parent.mkdir()
    run("convert", tmp_path / "net.nac", other, *more)
    steps = [lamella.compile(path, training=True, lr=RATE) for path in (tmp_path / "net.nac", other)]
    given = {"x": item.x.numpy(), "target_0": item.target.numpy()}
    close = 1e-2 if "fp16" in more else 1e-6
    for _ in range(2):
        one, two = (step(**given)["loss"] for step in steps)
        np.testing.assert_allclose(one, two, rtol=close)


def test_a_training_graph_that_does_not_fit_is_left_out_and_told(words: list[str], tmp_path: Path) -> None:
    more = ["--optimize", "exact", "--type", "x=f32[5,4]"]
    done = run("convert", tmp_path / "net.nacs", tmp_path / "new.nac", *more)
    assert "the training graph is left out" in done.output
    assert json.loads(run("show", tmp_path / "new.nac", "--json").stdout)["training"] is None
