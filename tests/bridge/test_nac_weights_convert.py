"""Weights in a file, beside it and back: bytes of everything else stay, equal weights give equal bytes."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.bridge.nac_to_graph import weights as metadata
from lamella.bridge.nac_to_graph.convert_weights import quantise, quantise_file, with_external, with_internal
from lamella.bridge.nac_to_graph.weights import (
    own_weights,
    part,
    read_external,
    read_stored,
    read_weight,
    store_weight,
)
from lamella.lang.nac import check, open_file, parse, save_file, write
from lamella.lang.nac import nodes as n
from tests.support.bridge.nac_numbers import drawn, tensor_of
from tests.support.bridge.nac_stores import external
from tests.support.lang.nac.containers import HEADERS
from tests.support.lang.nac.models import in_blocks, perceptron

FILES = {
    "channels": perceptron(),
    "blocks": in_blocks(),
    "halves": quantise_file(perceptron(), n.Method.FP16).file,
}
WEIGHT = np.array([[1, -2], [3, 4], [0, 0.25]], np.float32)
BIAS = np.array([1, 1 / 3, 127], np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all cases of a test."""
    return tmp_path_factory.mktemp("weights")


def sections(data: bytes) -> dict[str, bytes]:
    """The bytes of each section of a file of 1.6, found by the offsets in its header."""
    slots = HEADERS["1.6"][2]
    offsets = {tag: int.from_bytes(data[12 + 8 * at : 20 + 8 * at], "little") for at, tag in enumerate(slots)}
    starts = sorted([*filter(None, offsets.values()), len(data)])
    ends = dict(pairwise(starts))
    return {tag: data[start : ends[start]] for tag, start in offsets.items() if start}


def assert_only_weights_differ(one: n.File, other: n.File) -> None:
    """All sections but DATA are equal, and of that the names; notes tell which weights lie beside a file."""
    first, second = sections(write(part(one))), sections(write(part(other)))
    data, changed = first.pop("DATA"), second.pop("DATA")
    assert first == second
    names = 4 + 4 + sum(4 + len(item.name) for item in one.parameters) + 4 + 4 + len("x")
    assert data[:names] == changed[:names]
    for field in ("inputs", "outputs", "d_model", "version"):
        assert getattr(one.header, field) == getattr(other.header, field)


@pytest.mark.parametrize("name", FILES)
def test_out_and_back_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    file, path = FILES[name], tmp_path / "m.nac"
    outside = with_external(file, path)
    save_file(path, outside)
    assert not check(outside)
    assert_only_weights_differ(file, outside)
    opened = open_file(path)
    assert not opened.findings
    found = read_external(opened.file, path)
    assert not found.findings
    back = with_internal(opened.file, found.tensors)
    assert not back.findings
    assert write(back.file) == write(file)


@pytest.mark.parametrize("name", FILES)
def test_the_library_of_the_format_reads_what_is_written(name: str, tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    with_external(FILES[name], tmp_path / "m.nac")
    with library.safe_open(tmp_path / "m.safetensors", "numpy") as store:
        metadata = store.metadata() or {}
        assert set(store.keys()) == {"fc.weight", "fc.bias"}
        for key, item in own_weights(FILES[name]).tensors.items():
            assert np.array_equal(store.get_tensor(key), read_stored(item))
            scaled = item.quantization.method > n.Method.FP16
            assert (key in metadata) == scaled
            if scaled:
                assert json.loads(metadata[key])["quant_type"] == item.quantization.method.name
                assert json.loads(metadata["metadata"])[key] == json.loads(metadata[key])


def test_equal_weights_give_equal_bytes(tmp_path: Path) -> None:
    file = perceptron()
    for name, tensors in (("a", file.tensors), ("b", file.tensors[::-1])):
        with_external(replace(file, tensors=tensors), tmp_path / f"{name}.nac")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_new_weights_are_stored_as_the_old_ones_were(name: str) -> None:
    file = FILES[name]
    weight = WEIGHT.reshape(read_weight(file.tensors[0]).shape)
    made, findings = with_internal(file, {"fc.weight": weight.astype(np.float64), "fc.bias": BIAS})
    assert not findings
    assert not check(parse(write(made)).file)
    assert_only_weights_differ(file, made)
    for old, new, values in zip(file.tensors, made.tensors, (weight, BIAS), strict=True):
        assert (new.parameter, new.dtype) == (old.parameter, old.dtype)
        assert type(new.quantization) is type(old.quantization)
        distance = np.abs(read_weight(new, file.header.method) - values).max()
        assert distance <= np.abs(values).max() / 254 * 1.001


def test_what_is_not_named_stays_as_it_is() -> None:
    file = perceptron()
    made = with_internal(file, {"fc.bias": BIAS}).file
    assert made.tensors[0] == file.tensors[0]
    assert made.tensors[1] == quantise(BIAS, n.Method.INT8_TENSOR, 2)
    assert write(with_internal(file, {}).file) == write(file)


def test_other_axes_and_blocks_are_kept() -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    file = perceptron()
    for first in (
        quantise(values, n.Method.INT8_CHANNEL, 1, axis=1),
        quantise(values, n.Method.BLOCK_FP8, 1, block=4),
    ):
        made = with_internal(replace(file, tensors=(first, file.tensors[1])), {"fc.weight": values})
        assert made.file.tensors[0] == first


@given(drawn(), st.sampled_from(n.Method))
def test_arrays_for_a_file_without_weights_follow_its_method(values: Array, method: n.Method) -> None:
    made = with_internal(external("w", method=method), {"w": values})
    assert made.file.header == n.Header(method=method, internal=True)
    assert made.file.tensors == (quantise(values, method, 1),)


def test_weights_without_a_parameter_are_left_out_and_said() -> None:
    made = with_internal(external("w"), {"w": BIAS, "v": BIAS})
    assert [item.code for item in made.findings] == ["NAC152"]
    assert [item.parameter for item in made.file.tensors] == [1]


@pytest.mark.parametrize(
    ("file", "weights", "codes"),
    [
        (external("w", "v"), {"w": BIAS}, {"NAC151"}),
        (external("w"), {"w": BIAS.astype(np.complex64)}, {"NAC155"}),
        (external("w"), {"w": n.Tensor(1, 0, (2,), n.Unscaled(), b"")}, {"NAC141"}),
        (external("w"), {"w": n.Tensor(1, 7, (1,), n.Int8Tensor(-1.0), b"\1")}, {"NAC144"}),
        (perceptron(), {"fc.weight": BIAS, "fc.bias": WEIGHT}, {"NAC153"}),
        (perceptron(), {"fc.weight": tensor_of(BIAS)}, {"NAC153"}),
        (perceptron(), {"fc.bias": BIAS.astype(np.int64)}, {"NAC154"}),
        (FILES["halves"], {"fc.bias": BIAS * 1e6}, {"NAC154"}),
        (FILES["halves"], {"fc.bias": BIAS.astype(np.int8)}, {"NAC154"}),
    ],
)
def test_what_does_not_fit_is_refused(
    file: n.File, weights: dict[str, Array | n.Tensor], codes: set[str]
) -> None:
    with pytest.raises(LamellaError) as caught:
        with_internal(file, weights)
    assert {item.code for item in caught.value.findings} == codes


def test_integers_are_replaced_by_integers_of_the_type() -> None:
    table = np.array([1, 2, 3], np.int64)
    first = store_weight(table, 1)
    assert first is not None
    file = replace(external("w"), header=n.Header(internal=True), tensors=(first,))
    assert read_weight(with_internal(file, {"w": table * 2}).file.tensors[0]).tolist() == [2, 4, 6]
    with pytest.raises(LamellaError, match="NAC154"):
        with_internal(file, {"w": table.astype(np.int32)})


def test_floating_types_are_rounded_to_those_of_the_file() -> None:
    values = np.array([1 / 3, 7.0], np.float64)
    for name in ("float32", "float16", "bfloat16", "float64"):
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        first = store_weight(np.zeros(2, dtype), 1)
        assert first is not None
        file = replace(external("w"), header=n.Header(internal=True), tensors=(first,))
        found = read_weight(with_internal(file, {"w": values}).file.tensors[0])
        assert found.tobytes() == values.astype(dtype).tobytes()


def test_only_sound_weights_leave_a_file(tmp_path: Path) -> None:
    file = perceptron()
    (tmp_path / "m.safetensors").write_bytes(b"old")
    for wrong, code in (
        (replace(file, tensors=file.tensors[:1]), "NAC138"),
        (replace(file, parameters=file.parameters[:1]), "NAC137"),
        (replace(file, tensors=(file.tensors[0], replace(file.tensors[1], data=b""))), "NAC141"),
        (replace(file, parameters=(file.parameters[0], n.Parameter(2, "__metadata__"))), "SKR355"),
        (replace(file, header=n.Header(), tensors=()), "outside already"),
    ):
        with pytest.raises(LamellaError, match=code):
            with_external(wrong, tmp_path / "m.nac")
    assert (tmp_path / "m.safetensors").read_bytes() == b"old"


def test_names_of_any_letters_travel(tmp_path: Path) -> None:
    names = ("metadata", "ä.ö", 'a"b', "nac_quant_meta")
    tensors = tuple(quantise(BIAS * at, n.Method.INT8_TENSOR, at) for at in range(1, 5))
    header = n.Header(internal=True, method=n.Method.INT8_TENSOR)
    file = replace(external(*names), header=header, tensors=tensors)
    outside = with_external(file, tmp_path / "m.nac")
    found = read_external(outside, tmp_path / "m.nac")
    assert not found.findings
    assert with_internal(outside, found.tensors).file == file


def test_large_weights_are_not_copied(tmp_path: Path) -> None:
    values = np.arange(1 << 19, dtype=np.float32)
    made = with_internal(external("w"), {"w": values}).file
    assert np.shares_memory(read_weight(made.tensors[0]), values)
    save_file(tmp_path / "m.nac", made)
    opened = open_file(tmp_path / "m.nac")
    assert not opened.findings
    assert np.array_equal(read_weight(opened.file.tensors[0]), values)


@given(scales=st.lists(st.floats(2.0**-149, 2.0**127, width=32), min_size=1, max_size=20))
def test_every_scale_survives_as_text(folder: Path, scales: list[float]) -> None:
    image = struct.pack(f"<{len(scales)}f", *scales)
    codes = bytes(range(len(scales)))
    tensors = (
        n.Tensor(1, 7, (len(scales),), n.Int8Channel(0, image), codes),
        n.Tensor(2, 7, (len(scales),), n.BlockFp8(1, (1, len(scales)), image), codes),
        n.Tensor(3, 7, (1,), n.Int8Tensor(scales[0]), b"\1"),
    )
    file = replace(external("c", "b", "t"), header=n.Header(internal=True), tensors=tensors)
    outside = with_external(file, folder / "m.nac")
    assert with_internal(outside, read_external(outside, folder / "m.nac").tensors).file == file


def test_scales_are_said_with_few_digits_and_once_where_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(3).normal(size=1 << 12).astype(np.float32)
    tensors = tuple(quantise(values, n.Method.BLOCK_FP8, at, block=1) for at in (1, 2))
    file = replace(external("a", "b"), header=n.Header(internal=True), tensors=tensors)
    sizes = []
    for most in (1 << 20, 1000):
        monkeypatch.setattr(metadata, "_MOST_TOGETHER", most)
        outside = with_external(file, tmp_path / "m.nac")
        sizes.append(int.from_bytes((tmp_path / "m.safetensors").read_bytes()[:8], "little"))
        found = read_external(outside, tmp_path / "m.nac")
        assert not [item for item in found.findings if item.code != "NAC149"]
        assert with_internal(outside, found.tensors).file == file
    assert sizes[1] < 14 * 2 * len(values)
    assert sizes[0] > 1.9 * sizes[1]
