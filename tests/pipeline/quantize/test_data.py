"""Calibration data: files become batches that fit a model, and what does not fit is a finding."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, from_options
from lamella.graph.model import Model
from lamella.pipeline.arrays import read_arrays
from lamella.pipeline.quantize.data import draw_batches, read_batches

TWO = """import math;

graph Two {
    @input { x: real[2, 3]; s: real[3]; }
    @output { y: real[2, 3]; }
    @compose { y = math.mul(x, s); }
}
"""
OPEN = """import math;

graph Open {
    @input { x: real[n|100, 3]; }
    @output { y: real[~, 3]; }
    @compose { y = math.add(x, x); }
}
"""


@pytest.fixture
def two(tmp_path: Path) -> Model:
    return load(tmp_path, TWO)


def load(folder: Path, text: str) -> Model:
    (folder / "net.sknd").write_text(text, encoding="utf-8")
    found = lamella.load(folder / "net.sknd")
    assert isinstance(found, Model)
    return found


def test_arrays_are_cut_along_their_first_axes(two: Model, tmp_path: Path) -> None:
    x, s = np.arange(21).reshape(7, 3), np.ones(3)
    np.savez(tmp_path / "d.npz", x=x, s=s, labels=np.zeros(7))
    found = read_batches(tmp_path / "d.npz", two, 64, DEFAULT)
    assert [batch["x"].tolist() for batch in found.batches] == [
        x[:2].tolist(),
        x[2:4].tolist(),
        x[4:6].tolist(),
    ]
    assert all(batch["x"].dtype == np.float32 for batch in found.batches)
    assert all(batch["s"].shape == (3,) for batch in found.batches)
    assert found.left_over == 1
    few = read_batches(tmp_path / "d.npz", two, 1, DEFAULT)
    assert (len(few.batches), few.left_over) == (1, 1 + 3 + 3)


def test_folders_hold_sets_or_one_array_for_each_input(two: Model, tmp_path: Path) -> None:
    sets, single = tmp_path / "sets", tmp_path / "single"
    for folder in (sets, single):
        folder.mkdir()
    for name in ("b", "a"):
        np.savez(sets / f"{name}.npz", x=np.full((2, 3), ord(name)), s=np.ones(3))
    assert [batch["x"][0, 0] for batch in read_batches(sets, two, 9, DEFAULT).batches] == [97, 98]
    np.save(single / "x.npy", np.zeros((4, 3)))
    np.save(single / "s.npy", np.ones(3))
    assert len(read_batches(single, two, 9, DEFAULT).batches) == 2
    model = load(tmp_path, OPEN)
    np.save(tmp_path / "any.npy", np.zeros((70, 3)))
    found = read_batches(tmp_path / "any.npy", model, 9, DEFAULT)
    assert [len(batch["x"]) for batch in found.batches] == [32, 32]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((2, 3))}, "there is no array for input 's'"),
        ({"x": np.zeros((2, 4)), "s": np.ones(3)}, "input 'x' has the shape [2, 3], the array [2, 4]"),
        ({"x": np.zeros((1, 3)), "s": np.ones(3)}, "takes 2 items at once, the array has 1"),
        ({"x": np.zeros((4, 3)), "s": np.ones(9)}, "the arrays give 2 and 3 batches"),
    ],
)
def test_what_does_not_fit_is_said(two: Model, tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(InputError, match=words.replace("[", r"\[")):
        read_batches(tmp_path / "d.npz", two, 9, DEFAULT)


def test_files_that_are_none(two: Model, tmp_path: Path) -> None:
    (tmp_path / "d.npz").write_bytes(b"PK\3\4 no archive")
    (tmp_path / "d.txt").write_text("1 2 3")
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "d.npy", np.zeros((2, 3)))
    for name, words in (
        ("d.npz", "not a readable .npz file"),
        ("d.txt", "holds no calibration data"),
        ("empty", "there are no data"),
        ("d.npy", "one array, and the model has 2 inputs"),
    ):
        with pytest.raises(InputError, match=words):
            read_batches(tmp_path / name, two, 9, DEFAULT)


def test_archives_do_not_grow_beyond_their_limit(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.zeros(1 << 16))
    with zipfile.ZipFile(tmp_path / "d.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", stream.getvalue())
    assert read_arrays(tmp_path / "d.npz")["x"].size == 1 << 16
    with pytest.raises(InputError, match="unpacks to more than"):
        read_arrays(tmp_path / "d.npz", from_options(["max_total_bytes=65536"]))


def test_random_inputs_come_from_the_seed(two: Model) -> None:
    one, same, other = (draw_batches(two, seed, DEFAULT) for seed in (1, 1, 2))
    assert one.is_drawn
    assert all(np.array_equal(a["x"], b["x"]) for a, b in zip(one.batches, same.batches, strict=True))
    assert not np.array_equal(one.batches[0]["x"], other.batches[0]["x"])
    assert not np.array_equal(one.batches[0]["x"], one.batches[1]["x"])
