"""Checkpoints: killed at any moment a training goes on bit by bit, and no file is torn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import OutputError
from lamella.train.checkpoints import Checkpoint, read_last, write_checkpoint
from tests.support.train.kills import Campaign


def checkpoint(step: int) -> Checkpoint:
    state = {"w": np.full((3, 2), step, np.float32), "step": np.asarray(step)}
    return Checkpoint(step, state, np.arange(step) / 7, np.zeros((0, 2)), {"seed": 1, "rate": 0.1})


def test_the_newest_two_stay(tmp_path: Path) -> None:
    for step in (1, 2, 3, 20):
        write_checkpoint(tmp_path, checkpoint(step))
    names = sorted(item.name for item in tmp_path.iterdir())
    assert names == ["step-00000003.safetensors", "step-00000020.safetensors"]
    found = read_last(tmp_path)
    assert found is not None
    assert (found.step, dict(found.fingerprint)) == (20, {"seed": 1, "rate": 0.1})
    np.testing.assert_array_equal(found.state["w"], checkpoint(20).state["w"])
    np.testing.assert_array_equal(found.losses, checkpoint(20).losses)
    assert read_last(tmp_path / "nowhere") is None


def test_a_run_that_begins_anew_is_not_that_of_the_checkpoints_before(tmp_path: Path) -> None:
    for step in (80, 100, 2):
        write_checkpoint(tmp_path, checkpoint(step))
    assert [item.name for item in tmp_path.iterdir()] == ["step-00000002.safetensors"]


def test_a_file_that_a_disk_spoilt_is_passed_over(tmp_path: Path) -> None:
    paths = [write_checkpoint(tmp_path, checkpoint(step)) for step in (1, 2)]
    paths[1].write_bytes(paths[1].read_bytes()[:-5])
    found = read_last(tmp_path)
    assert found is not None
    assert found.step == 1
    paths[0].write_bytes(b"")
    with pytest.raises(LamellaError, match="begin anew without --resume"):
        read_last(tmp_path)


@pytest.mark.parametrize("key", ["format", "step", "fingerprint", "losses"])
def test_other_files_are_no_checkpoints(key: str, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, checkpoint(2))
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    if key == "losses":
        header["history.other"] = header.pop("history.losses")
    else:
        header["__metadata__"][key] = "{" if key == "fingerprint" else "x"
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    with pytest.raises(LamellaError):
        read_last(tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "step-00000001.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError):
        write_checkpoint(folder, checkpoint(1))
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_killed_runs_go_on_bit_by_bit(llama: Path, tokens: Path, tmp_path: Path) -> None:
    """Two kills here; `python -m bench.training_kills` does fifty."""
    campaign = Campaign(llama, tokens, tmp_path, steps=6, seed=5, backend="reference")
    found = campaign.run(kills=2)
    assert found.kills == found.resumable == 2
    assert found.torn == []
    assert found.is_equal
