"""A transplant moves the weights of a block and nothing else, or says with numbers why it does not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT
from lamella.genome import Transplant, plan_transplant, read_block
from lamella.pipeline import api
from lamella.pipeline.convert import convert
from lamella.pipeline.nac.model import read_checked
from lamella.pipeline.options import Options
from tests.support.forked import Lamella
from tests.support.repository import ROOT

TINY = ROOT / "examples/sessions/tiny.module"


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of one architecture, one of them in other formats too, a wider one, one that turns otherwise."""
    folder = tmp_path_factory.mktemp("zoo")
    for name, seed, config in (("one", 1, {}), ("two", 2, {}), ("wide", 3, {"d_ff": "192"})):
        convert(TINY, folder / name, Options(preset="tiny", seed=seed, config=config))
    for name in ("one.nac", "one.onnx"):
        convert(folder / "one", folder / name, Options(shape={"B": 1, "T": 8}))
    turning = Options(shape={"B": 1, "T": 8}, config={"rope_theta": "100.0"})
    convert(folder / "one", folder / "slow.nac", turning)
    return folder


def tensors(folder: Path) -> dict[str, Array]:
    found: dict[str, Array] = load_file(folder / "model.safetensors")
    return found


@pytest.mark.parametrize("donor", ["one", "one.nac", "one.onnx"])
def test_a_folder_takes_a_block_from_any_format(
    donor: str, zoo: Path, tmp_path: Path, lamella: Lamella
) -> None:
    places = f"{zoo / donor}:blocks[1].mlp", f"{zoo / 'two'}:blocks[0].mlp"
    done = lamella("genome", "transplant", *places, "-o", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert "24,576 parameters move" in done.stdout
    before, given, after = tensors(zoo / "two"), tensors(zoo / "one"), tensors(tmp_path / "new")
    assert before.keys() == after.keys()
    for name, array in after.items():
        moved = name.startswith("model.layers.0.mlp.")
        right = given[name.replace("layers.0", "layers.1")] if moved else before[name]
        np.testing.assert_array_equal(array, right, err_msg=name)


def test_a_nac_file_stays_the_file_that_it_is(zoo: Path, tmp_path: Path, lamella: Lamella) -> None:
    old, new, back = zoo / "one.nac", tmp_path / "new.nac", tmp_path / "back.nac"
    done = lamella("genome", "transplant", f"{zoo / 'two'}:blocks.0", f"{old}:blocks.0", "-o", new, "--json")
    facts = json.loads(done.stdout)
    # a layer of the tiny Llama has 36,992 parameters; the table of positions is not one of them
    assert (done.returncode, facts["parameters"], facts["difference"]) == (0, 36_992, 0.0)
    assert read_checked(new, DEFAULT).file.instructions == read_checked(old, DEFAULT).file.instructions
    tokens = np.arange(8)[None]
    logits = [api.compile(path)(tokens)["logits"] for path in (old, new)]
    assert not np.allclose(logits[0], logits[1], atol=1e-3)
    done = lamella("genome", "transplant", f"{zoo / 'one'}:blocks.0", f"{new}:blocks.0", "-o", back)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(api.compile(back)(tokens)["logits"], logits[0])


def test_a_wrong_use_is_said(zoo: Path, lamella: Lamella) -> None:
    places = f"{zoo / 'one'}:blocks.0", f"{zoo / 'two'}:blocks.0"
    for words, sentence in (
        ((places[0], "-"), "no arrow"),
        (places, "-o OUT"),
        ((*places, "-o", "x", "--dry-run"), "-o OUT"),
    ):
        done = lamella("genome", "transplant", *words)
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("donor", "target", "sentence"),
    [
        (
            "one:blocks.0.mlp",
            "wide:blocks.0.mlp",
            "up_weight is [256, 64], blocks.0.mlp.up_weight [384, 64]",
        ),
        ("one:blocks.0.mlp", "two:blocks.0.attention", "has 3 instructions (linear, exp·gate, linear)"),
        ("one:blocks.1.attention", "slow.nac:blocks.1.attention", "of the largest; rope base"),
        ("one:blocks.7", "two:blocks.0", "there is no block 'blocks.7'"),
        ("one", "two:blocks.0", "names no block of a model"),
    ],
)
def test_what_does_not_fit_is_said_with_numbers(donor: str, target: str, sentence: str, zoo: Path) -> None:
    def plan() -> Transplant:
        one, other = (read_block(f"{zoo}/{item}", Options()) for item in (donor, target))
        return plan_transplant(one, other, Options())

    with pytest.raises(LamellaError) as found:
        plan()
    assert sentence in str(found.value)
