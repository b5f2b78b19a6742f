"""The wire format, the reader and the writer of ONNX files, judged by the package `onnx`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base import dtype as types
from lamella.base.arrays import numpy_dtype
from lamella.base.errors import InputError, Malformed
from lamella.bridge.onnx.arrays import ExternalData, read_array, tensor_of
from lamella.bridge.onnx.nodes import DATA_TYPES, DataType, Model, TensorProto
from lamella.bridge.onnx.read import DEEPEST, decode_model, decode_tensor
from lamella.bridge.onnx.wire import Message, decode_varints, read_fields, varint
from lamella.bridge.onnx.write import encode_model, tensor_message
from tests.support.bridge.onnx_models import branching_model, function_model, small_model

onnx = pytest.importorskip("onnx")
numpy_helper = pytest.importorskip("onnx.numpy_helper")


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_integers_of_any_size_come_back(values: list[int]) -> None:
    block = b"".join(map(varint, values))
    assert decode_varints(memoryview(block)).tolist() == values


@given(st.integers(1, 1 << 28), st.binary(max_size=300))
def test_a_block_is_found_where_it_lies(number: int, data: bytes) -> None:
    message = Message()
    message.block(number, data)
    whole = message.to_bytes()
    (field,) = read_fields(memoryview(whole), 0, len(whole))
    assert (field.number, whole[field.start : field.end]) == (number, data)


@pytest.mark.parametrize("make", [small_model, branching_model, function_model])
def test_a_model_is_read_as_onnx_reads_it(make: Any) -> None:
    given = make()
    again = onnx.load_from_string(encode_model(decode_model(given.SerializeToString())))
    onnx.checker.check_model(again)
    assert _plain(again) == _plain(given)


def _plain(model: Any) -> Any:
    """A model whose texts are all set, as empty ones may be left out."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    parts = [*found.opset_import, *(item for function in found.functions for item in function.opset_import)]
    for item in parts:
        item.domain = str(item.domain)
    return found


@pytest.mark.parametrize("element", sorted(DATA_TYPES, key=str), ids=str)
@pytest.mark.parametrize("is_raw", [True, False])
def test_a_tensor_of_any_type_is_read_as_onnx_reads_it(element: types.ElementType, is_raw: bool) -> None:
    values = np.arange(-3, 9).reshape(3, 4).astype(np.int8)
    if element.kind is types.Kind.UNSIGNED:
        values = np.abs(values)
    array = values.astype(numpy_dtype(element))
    proto = numpy_helper.from_array(array, "t")
    if not is_raw:
        if element in (types.C32, types.C64):
            return
        flat = array.astype(np.float32) if element.is_float else array.astype(np.int64)
        proto = onnx.helper.make_tensor("t", DATA_TYPES[element], array.shape, flat.reshape(-1))
    found = read_array(decode_tensor(proto.SerializeToString()))
    wanted = numpy_helper.to_array(proto)
    assert (found.dtype, found.shape, found.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())
    again = onnx.TensorProto.FromString(tensor_message(tensor_of("t", array)).to_bytes())
    assert numpy_helper.to_array(again).tobytes() == array.tobytes()


WRONG = {
    "no graph": (b"\x08\x09", "no graph"),
    "an integer without an end": (b"\xff" * 12, "no end"),
    "a field that is cut off": (b"\x3a\xff\x01ab", "cut off"),
    "a group": (b"\x3b", "wire type 3"),
    "field 0": (b"\x00\x01", "number 0"),
    "a text for a number": (b"\x0a\x01a", "should be an integer"),
    "a name that is no text": (b"\x12\x02\xff\xfe", "not UTF-8"),
    "two graphs": (b"\x3a\x00\x3a\x00", "two graphs"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_bytes_are_refused_with_their_place(name: str) -> None:
    data, words = WRONG[name]
    with pytest.raises(InputError) as problem:
        decode_model(data)
    assert words in problem.value.message
    assert problem.value.offset is not None


def test_graphs_in_graphs_end_somewhere() -> None:
    inner = b""
    for _ in range(DEEPEST + 10):
        attribute = Message()
        attribute.block(6, inner)
        node = Message()
        node.message(5, attribute)
        graph = Message()
        graph.message(1, node)
        inner = graph.to_bytes()
    whole = Message()
    whole.block(7, inner)
    with pytest.raises(InputError, match="deeper"):
        decode_model(whole.to_bytes())


# --- tensors that cannot be true ----------------------------------------------------------------------------------

F32 = DataType.FLOAT
BAD_TENSORS = {
    "more elements than memory": TensorProto("t", F32, (1 << 40, 1 << 40)),
    "a product that wraps to zero": TensorProto("t", F32, (1 << 32, 1 << 32), b""),
    "a negative extent": TensorProto("t", F32, (-1,), b"1234"),
    "too few bytes": TensorProto("t", F32, (3,), b"12345678"),
    "an unknown type": TensorProto("t", 99, (1,), b"1"),
    "strings": TensorProto("t", DataType.STRING, (1,), b"1"),
    "no numbers": TensorProto("t", F32, (3,)),
}


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_a_tensor_that_cannot_be_true_is_refused(name: str) -> None:
    with pytest.raises(Malformed):
        read_array(BAD_TENSORS[name])


def _external(location: str, **more: str) -> TensorProto:
    pairs = (("location", location), *more.items())
    return TensorProto("t", F32, (2,), external=pairs, is_external=True)


def test_external_data_are_found_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 8 + np.array([1, 2], "<f4").tobytes())
    found = read_array(_external("w.bin", offset="8", length="8"), ExternalData(tmp_path / "m.onnx"))
    assert found.tolist() == [1.0, 2.0]


ATTACKS = {
    "the folder above": ("../w.bin", {}),
    "around a corner": ("a/../../w.bin", {}),
    "an absolute path": ("/etc/passwd", {}),
    "a symbolic link": ("link.bin", {}),
    "a hard link": ("hard.bin", {}),
    "a folder": ("inner", {}),
    "beyond the end": ("w.bin", {"offset": "4", "length": "8"}),
    "a negative offset": ("w.bin", {"offset": "-4"}),
    "an offset of many digits": ("w.bin", {"offset": "9" * 5000}),
    "no file": ("", {}),
    "a NUL": ("w\0.bin", {}),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_external_data_stay_in_the_folder_of_the_model(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    outside = tmp_path / "w.bin"
    outside.write_bytes(b"\0" * 8)
    (folder / "w.bin").write_bytes(b"\0" * 8)
    (folder / "link.bin").symlink_to(outside)
    (folder / "hard.bin").hardlink_to(outside)
    location, more = ATTACKS[name]
    with pytest.raises(Malformed):
        read_array(_external(location, **more), ExternalData(folder / "m.onnx"))


def test_numbers_of_a_mapped_model_are_views(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    data = tensor_message(tensor_of("t", array)).to_bytes()
    found = read_array(decode_tensor(data))
    assert not found.flags.owndata
    assert np.array_equal(found, array)


def test_a_model_without_nodes_is_a_model() -> None:
    whole = Message()
    whole.block(7, b"")
    assert isinstance(decode_model(whole.to_bytes()), Model)
