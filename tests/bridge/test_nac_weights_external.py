"""Weights beside a file: three spellings of their quantisation, and files that are not what they should be."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.generate import RIGHT, repaired
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.limits import Limits
from lamella.bridge.nac_to_graph.weights import (
    companion,
    find_weights,
    own_weights,
    read_external,
    read_weight,
)
from lamella.lang.nac import nodes as n
from tests.support.bridge.nac_numbers import TYPES
from tests.support.bridge.nac_stores import external, findings_of, store_bytes
from tests.support.lang.nac.models import perceptron

BAD = Path(__file__).parents[1] / "lang" / "nac" / "bad"
PROGRAMS = sorted(BAD.glob("nac15*.txt"))
ENTRIES: Mapping[str, Mapping[str, object]] = {
    "t": {"quant_type": "INT8_TENSOR", "scale": 0.5},
    "c": {"quant_type": "int8_channel", "axis": 1, "scales": [0.5, 2, 0.1]},
    "b": {"quant_type": "BLOCK_FP8", "block_size": 4, "original_shape": [5], "scales": [1.0, 0.25]},
    "f": {"quant_type": "none"},
}
ARRAYS: Mapping[str, Array] = {
    "t": np.array([[1, -2], [3, 127]], np.int8),
    "c": np.array([[1, 2, 3], [-4, -5, -6]], np.int8),
    "b": np.arange(8, dtype=np.int8),
    "f": np.array([0.1], np.float32),
}
WANTED = {
    "t": [[0.5, -1.0], [1.5, 63.5]],
    "c": [
        [0.5, 4.0, float(np.float32(3) * np.float32(0.1))],
        [-2.0, -10.0, float(np.float32(-6) * np.float32(0.1))],
    ],
    "b": [0.0, 1.0, 2.0, 3.0, 1.0],
    "f": [float(np.float32(0.1))],
}
TEXTS = {name: json.dumps(entry) for name, entry in ENTRIES.items()}
SPELLINGS = {
    "names": TEXTS,
    "metadata": {"metadata": json.dumps(ENTRIES)},
    "nac_quant_meta": {"nac_quant_meta": json.dumps(ENTRIES), "format": "pt"},
    "all": {**TEXTS, "metadata": json.dumps(ENTRIES), "nac_quant_meta": json.dumps(ENTRIES)},
    "some": {**dict(list(TEXTS.items())[:2]), "nac_quant_meta": json.dumps(dict(list(ENTRIES.items())[1:]))},
}

KEYS = st.sampled_from(["w", "v", "metadata", "nac_quant_meta"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all cases of a test."""
    return tmp_path_factory.mktemp("weights")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_wrong_weights_have_the_findings_they_announce(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wanted = Counter(re.findall(r"; expect (NAC\d{3})", text))
    assert wanted
    assert Counter(item.code for item in findings_of(tmp_path, text)) == wanted
    assert RIGHT.search(text)
    assert findings_of(tmp_path, repaired(text)) == []


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_read(spelling: str, tmp_path: Path) -> None:
    (tmp_path / "m.v1.safetensors").write_bytes(store_bytes(ARRAYS, SPELLINGS[spelling]))
    file = external(*ARRAYS, method=n.Method.INT8_CHANNEL)
    found = read_external(file, tmp_path / "m.v1.nac")
    # a method-3 file has no blocks, which is said
    assert [item.code for item in found.findings] == ["NAC149"]
    assert {name: read_weight(item).tolist() for name, item in found.tensors.items()} == WANTED
    assert [item.parameter for item in found.tensors.values()] == [1, 2, 3, 4]
    named = read_external(file, tmp_path / "m.v1.safetensors")
    assert named.tensors == found.tensors
    assert find_weights(file, tmp_path / "m.v1.nac").tensors == found.tensors


@pytest.mark.parametrize("key", ["metadata", "nac_quant_meta"])
def test_parameters_may_be_called_like_the_keys(key: str, tmp_path: Path) -> None:
    codes = np.ones(1, np.int8)
    for metadata in (
        {key: json.dumps({"quant_type": "INT8_TENSOR", "scale": 3.0})},
        {key: json.dumps({key: {"quant_type": "INT8_TENSOR", "scale": 3.0}})},
        {key: json.dumps({key: {"quant_type": 2, "scales": [3.0]}, "quant_type": {"quant_type": 0}})},
    ):
        (tmp_path / "m.safetensors").write_bytes(store_bytes({key: codes}, metadata))
        found = read_external(external(key, method=n.Method.INT8_TENSOR), tmp_path / "m.nac")
        assert read_weight(found.tensors[key]).tolist() == [3.0]


@given(dtype=st.sampled_from(TYPES), before=st.integers(0, 5))
def test_every_element_type_at_any_address(folder: Path, dtype: str, before: int) -> None:
    numpy_type = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = np.arange(6).reshape(2, 3).astype(numpy_type)
    path = folder / "types.safetensors"
    path.write_bytes(store_bytes({"a": np.zeros(before, np.uint8), "w": values}))
    found = read_external(external("a", "w"), path.with_suffix(".nac"))
    assert not found.findings
    back = read_weight(found.tensors["w"])
    assert (back.dtype, back.shape, back.tobytes()) == (numpy_type, (2, 3), values.tobytes())


def test_large_files_are_mapped(tmp_path: Path) -> None:
    values = np.arange(1 << 19, dtype=np.float32)
    (tmp_path / "m.safetensors").write_bytes(store_bytes({"w": values}))
    found = read_external(external("w"), tmp_path / "m.nac")
    assert np.array_equal(read_weight(found.tensors["w"]), values)
    assert found.mapped is not None
    found.mapped.check_whole()
    os.truncate(tmp_path / "m.safetensors", 100)
    with pytest.raises(LamellaError, match="bytes long when it was opened"):
        found.mapped.check_whole()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{", "is no JSON"),
        ('{"quant_type": "INT8_TENSOR", "quant_type": "NONE"}', "has the key 'quant_type' twice"),
        ('{"a":' * 100_000, "is no JSON|nests too deeply"),
        ("{}", "quant_type None"),
        ('{"quant_type": "INT4"}', "quant_type 'INT4'"),
        ('{"quant_type": 5}', "quant_type 5"),
        ('{"quant_type": true}', "quant_type True"),
        ('{"quant_type": ["INT8_TENSOR"]}', "quant_type"),
        ('{"quant_type": "INT8_TENSOR", "scale": "0.5"}', "scale that are no numbers"),
        ('{"quant_type": "INT8_TENSOR", "scale": true}', "scale that are no numbers"),
        ('{"quant_type": "INT8_TENSOR", "scales": [1, 2]}', "2 scales for one tensor"),
        ('{"quant_type": "INT8_TENSOR", "scale": 1' + "0" * 400 + "}", "beyond all floating types"),
        ('{"quant_type": "INT8_TENSOR", "scale": 1' + "0" * 5000 + "}", "is no JSON"),
        ('{"quant_type": "INT8_CHANNEL", "scales": [[1]]}', "scales that are no numbers"),
        ('{"quant_type": "INT8_CHANNEL", "axis": -1, "scales": [1]}', "axis -1"),
        ('{"quant_type": "INT8_CHANNEL", "axis": 1.0, "scales": [1]}', "axis 1.0"),
        ('{"quant_type": "BLOCK_FP8", "scales": [1]}', "block_size None"),
        ('{"quant_type": "BLOCK_FP8", "block_size": 65536}', "block_size 65536"),
        ('{"quant_type": "BLOCK_FP8", "block_size": 2, "original_shape": 2}', "original_shape"),
        ('{"quant_type": "BLOCK_FP8", "block_size": 2, "original_shape": [-1]}', "size -1"),
    ],
)
def test_wrong_entries_are_findings(entry: str, words: str, tmp_path: Path) -> None:
    for metadata in ({"w": entry}, {"metadata": f'{{"w": {entry}}}'}, {"nac_quant_meta": entry, "w": entry}):
        (tmp_path / "m.safetensors").write_bytes(store_bytes({"w": np.ones(2, np.int8)}, metadata))
        found = read_external(external("w", method=n.Method.INT8_TENSOR), tmp_path / "m.nac")
        wrong = errors(found.findings)
        assert "NAC156" in [item.code for item in wrong]
        assert re.search(words, "\n".join(item.message for item in wrong))
        assert not found.tensors


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"quant_type": "INT8_TENSOR", "scale": 0}, "NAC144"),
        ({"quant_type": "INT8_TENSOR", "scale": float("nan")}, "NAC144"),
        ({"quant_type": "INT8_TENSOR", "scale": 1e300}, "NAC144"),
        ({"quant_type": "INT8_CHANNEL", "axis": 0, "scales": [1, float("inf")]}, "NAC144"),
        ({"quant_type": "INT8_CHANNEL", "axis": 1, "scales": [1, 1]}, "NAC145"),
        ({"quant_type": "INT8_CHANNEL", "axis": 0, "scales": []}, "NAC146"),
        ({"quant_type": "BLOCK_FP8", "block_size": 0, "original_shape": [2], "scales": []}, "NAC147"),
        ({"quant_type": "BLOCK_FP8", "block_size": 4, "original_shape": [2], "scales": [1]}, "NAC148"),
        (
            {"quant_type": "BLOCK_FP8", "block_size": 4, "original_shape": [2**32 - 1] * 9, "scales": [1]},
            "NAC142",
        ),
        ({"quant_type": "FP16"}, "NAC143"),
    ],
)
def test_entries_that_do_not_fit_their_tensor(entry: object, code: str, tmp_path: Path) -> None:
    store = store_bytes({"w": np.ones(2, np.int8)}, {"w": json.dumps(entry)})
    (tmp_path / "m.safetensors").write_bytes(store)
    found = read_external(external("w", method=n.Method.INT8_TENSOR), tmp_path / "m.nac")
    assert code in [item.code for item in errors(found.findings)]
    assert not found.tensors


def test_weights_of_another_model_are_told_briefly(tmp_path: Path) -> None:
    arrays = {f"other{at}": np.ones(1, np.int8) for at in range(1500)}
    (tmp_path / "m.safetensors").write_bytes(store_bytes(arrays))
    found = read_external(external(*(f"w{at}" for at in range(2000))), tmp_path / "m.nac")
    assert Counter(item.code for item in found.findings) == {"NAC151": 1000, "NAC152": 1000}


def test_weights_of_another_shape_are_told(tmp_path: Path) -> None:
    arrays = {"fc.weight": np.ones((2, 3), np.float32), "fc.bias": np.ones(3, np.float32)}
    (tmp_path / "m.safetensors").write_bytes(store_bytes(arrays))
    found = read_external(perceptron(), tmp_path / "m.nac")
    assert [item.code for item in errors(found.findings)] == ["NAC153"]
    assert list(found.tensors) == ["fc.bias"]


def _missing(path: Path) -> None:
    assert not path.exists()


def _link(path: Path) -> None:
    other = path.with_name("other.safetensors")
    other.write_bytes(store_bytes({"w": np.ones(1, np.float32)}))
    path.symlink_to(other)


def _hard_link(path: Path) -> None:
    other = path.with_name("other.safetensors")
    other.write_bytes(store_bytes({"w": np.ones(1, np.float32)}))
    path.hardlink_to(other)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_missing, "no such file"),
        (_link, "passes through the symbolic link"),
        (_hard_link, "has 2 hard links"),
        (Path.mkdir, "is a folder"),
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.write_bytes(b""), "SKR354"),
        (lambda path: path.write_bytes(b"\xff" * 50), "SKR354"),
        (lambda path: path.write_bytes(store_bytes({}, ["w"])), "__metadata__ is no object"),
        (lambda path: path.write_bytes(store_bytes({}, {"w": {}})), "is no text"),
        (lambda path: path.write_bytes(_twice()), "SKR357"),
    ],
)
def test_what_lies_beside_a_file_is_not_trusted(make: object, words: str, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / "m.safetensors")
    with pytest.raises(LamellaError, match=words):
        read_external(external("w"), tmp_path / "m.nac")


def _twice() -> bytes:
    entry = '{"dtype": "F32", "shape": [], "data_offsets": [0, 4]}'
    text = f'{{"w": {entry}, "w": {entry}}}'.encode()
    return len(text).to_bytes(8, "little") + text + bytes(4)


def test_a_link_that_the_user_names_is_followed(tmp_path: Path) -> None:
    _link(tmp_path / "m.safetensors")
    found = read_external(external("w"), tmp_path / "m.safetensors")
    assert read_weight(found.tensors["w"]).tolist() == [1.0]


def test_limits_are_kept(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(store_bytes({"w": np.ones(100)}))
    with pytest.raises(LamellaError, match="max_data_bytes"):
        read_external(external("w"), tmp_path / "m.nac", Limits(max_data_bytes=100))


def test_where_weights_lie() -> None:
    assert companion(Path("a/m.v1.nac")) == Path("a/m.v1.safetensors")
    assert companion(Path("m")) == Path("m.safetensors")
    for path in (Path("-"), Path("/"), Path(".")):
        with pytest.raises(LamellaError, match="no folder"):
            companion(path)


def test_weights_in_the_file_itself() -> None:
    file = perceptron()
    assert find_weights(file, Path("nowhere.nac")) == own_weights(file)
    assert list(own_weights(file).tensors.values()) == list(file.tensors)


@given(metadata=st.dictionaries(KEYS, st.text(max_size=30)), data=st.data())
def test_any_metadata_give_weights_or_findings(
    folder: Path, metadata: dict[str, str], data: st.DataObject
) -> None:
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just("INT8_CHANNEL")
    )
    keys = st.sampled_from(["quant_type", "scale", "scales", "axis", "block_size", "original_shape", "w"])
    values = st.recursive(
        leaves, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner))
    )
    for key in data.draw(st.sets(st.sampled_from(["w", "metadata", "nac_quant_meta"]))):
        metadata[key] = json.dumps(data.draw(values))
    path = folder / "any.safetensors"
    path.write_bytes(store_bytes({"w": np.ones(2, np.int8), "v": np.ones(2, np.float32)}, metadata))
    found = read_external(external("w", "v", method=n.Method.INT8_CHANNEL), path)
    assert errors(found.findings) or set(found.tensors) == {"w", "v"}
    for item in found.tensors.values():
        assert read_weight(item).shape == (2,)


@given(data=st.data())
def test_changed_bytes_give_weights_or_findings(folder: Path, data: st.DataObject) -> None:
    store = bytearray(store_bytes(ARRAYS, SPELLINGS["all"]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(store) - 1))
        store[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path = folder / "changed.safetensors"
    path.write_bytes(store)
    with suppress(LamellaError):
        found = read_external(external(*ARRAYS, method=n.Method.BLOCK_FP8), path)
        shapes = [read_weight(item).shape for item in found.tensors.values()]
        assert errors(found.findings) or len(shapes) == len(ARRAYS)
