"""Tensors of ONNX files as NumPy arrays, views of the mapped file where they lie in raw bytes, and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, element_type_of, from_memory, numpy_dtype, to_memory, view_memory
from lamella.base.dtype import ElementType
from lamella.base.errors import InputError, Malformed
from lamella.base.limits import DEFAULT, Limits, OutOfRange, product
from lamella.base.paths import Mapped, Refusal, map_bytes_in, resolve_include
from lamella.base.shape import bytes_for
from lamella.bridge.onnx.nodes import DATA_TYPES, SparseTensor, TensorProto, TypedBlock
from lamella.bridge.onnx.read import properties_of
from lamella.bridge.onnx.wire import decode_varints

FLOATS, INT32S, STRINGS, INT64S, DOUBLES, UINT64S = 4, 5, 6, 7, 10, 11
"""The numbers of the typed fields of a tensor."""
MOST_AXES = 32
_FIELD_OF: dict[ElementType, int] = {
    **dict.fromkeys((types.F32, types.C32), FLOATS),
    **dict.fromkeys((types.F64, types.C64), DOUBLES),
    **dict.fromkeys((types.U32, types.U64), UINT64S),
    types.I64: INT64S,
}
"""The typed field of an element type; all others stand in `int32_data`."""


class ExternalData:
    """The files of numbers beside a model: each found by the one resolver of paths, and mapped once."""

    def __init__(self, model: Path | None, limits: Limits = DEFAULT) -> None:
        self._model = model
        self._limits = limits
        self._maps: dict[str, Mapped] = {}

    def find(self, tensor: TensorProto) -> memoryview:
        """The bytes of a tensor; Malformed says what is wrong with where it says they are."""
        properties = properties_of(tensor.external)
        data = self._file(properties.get("location", "")).data
        offset = _number(properties, "offset", 0)
        end = offset + _number(properties, "length", len(data) - offset)
        if offset > len(data) or end > len(data):
            raise Malformed(f"lies at bytes {offset} to {end} of a file of {len(data)}")
        return data[offset:end]

    def _file(self, location: str) -> Mapped:
        if self._model is None:
            raise Malformed("lies in another file, and the model came without a folder")
        if location not in self._maps:
            root = self._model.parent
            found = resolve_include(root, self._model, location, self._limits)
            if isinstance(found, Refusal):
                raise Malformed(f"lies in the file '{location}', which {found.reason}", hint=found.hint)
            name = found.relative_to(Path(root).resolve()).as_posix()
            self._maps[location] = _mapped(Path(root).resolve(), name, self._limits)
        return self._maps[location]


def _mapped(root: Path, name: str, limits: Limits) -> Mapped:
    folder, _, file = name.rpartition("/")
    try:
        return map_bytes_in(root / folder, file, limits)
    except InputError as problem:
        raise Malformed(f"cannot be read: {problem.message}", hint=problem.hint) from None


def _number(properties: dict[str, str], key: str, default: int) -> int:
    text = properties.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise Malformed(f"has the {key} '{text[:40]}', which is no number")
    return int(text)


def check_data(tensor: TensorProto, external: ExternalData) -> None:
    """Refuse a tensor whose numbers cannot be read, without reading them; Malformed says why."""
    element = _element(tensor)
    count = _count(tensor)
    if tensor.is_external:
        _refuse_size(len(external.find(tensor)), element, count)
    elif tensor.raw is not None:
        if tensor.typed:
            raise Malformed("has its numbers twice, raw and typed")
        _refuse_size(len(tensor.raw), element, count)
    elif not tensor.typed and count:
        raise Malformed(f"has no numbers, and its shape asks for {count}")
    elif tensor.typed:
        _typed(tensor, element, count)


def read_array(tensor: TensorProto, external: ExternalData | None = None) -> Array:
    """The array of a tensor: a view of the file wherever it can be one; Malformed says what is wrong."""
    element = _element(tensor)
    count = _count(tensor)
    if len(tensor.dims) > MOST_AXES:
        raise Malformed(f"has {len(tensor.dims)} dimensions, and {MOST_AXES} is the most")
    if tensor.is_external or tensor.raw is not None:
        data = (external or ExternalData(None)).find(tensor) if tensor.is_external else tensor.raw
        image = np.frombuffer(data if data is not None else b"", np.uint8)
        _refuse_size(len(image), element, count)
        if element.bits < 8:
            return from_memory(image, element, count).reshape(tensor.dims)
        return _shaped(image, element, tensor.dims)
    return _typed(tensor, element, count).reshape(tensor.dims)


def _shaped(image: Array, element: ElementType, dims: tuple[int, ...]) -> Array:
    try:
        return view_memory(image, element, dims)
    except ValueError:
        raise Malformed("has a shape that no array can have") from None


def _element(tensor: TensorProto) -> ElementType:
    element = tensor.element
    if element is None:
        raise Malformed(f"has the element type {tensor.data_type}, which nothing computes with here")
    if tensor.has_segment:
        raise Malformed("is a segment of a tensor")
    return element


def _count(tensor: TensorProto) -> int:
    try:
        return product(tensor.dims)
    except OutOfRange:
        raise Malformed(f"has the shape {list(tensor.dims)[:8]}, which no array can have") from None


def _refuse_size(size: int, element: ElementType, count: int) -> None:
    try:
        needed = bytes_for(count, element.bits)
    except OutOfRange:
        needed = -1
    if size != needed:
        raise Malformed(f"has {size} bytes of numbers, and its shape asks for {needed}")


# --- typed fields ---------------------------------------------------------------------------------------------


def _typed(tensor: TensorProto, element: ElementType, count: int) -> Array:
    """The numbers of typed fields as a flat array; those of small types stand one in each integer."""
    wanted = _FIELD_OF.get(element, INT32S)
    if any(block.number != wanted for block in tensor.typed):
        raise Malformed(f"has numbers in a field that is not for {element}")
    parts = [_numbers(block, element) for block in tensor.typed]
    found = np.concatenate(parts) if parts else np.empty(0, numpy_dtype(element))
    if element.bits < 8:
        found = from_memory(found.view(np.uint8), element, min(count, 8 // element.bits * len(found)))
    if len(found) != count:
        raise Malformed(f"has {len(found)} numbers, and its shape asks for {count}")
    return found


def _numbers(block: TypedBlock, element: ElementType) -> Array:
    if block.number in (FLOATS, DOUBLES):
        dtype = np.dtype("<f4" if block.number == FLOATS else "<f8")
        width = numpy_dtype(element).itemsize
        if len(block.data) % width:
            raise Malformed(f"has {len(block.data)} bytes, which are no whole numbers")
        return np.frombuffer(block.data, dtype).view(numpy_dtype(element))
    integers = decode_varints(memoryview(block.data), block.offset)
    if block.number in (INT64S, UINT64S):
        return integers.view(np.uint64).astype(numpy_dtype(element)) if block.number == UINT64S else integers
    if element == types.BOOL:
        return np.asarray(integers != 0)
    if element.bits < 8:
        return integers.astype(np.uint8)
    if element.is_float:
        # The bits of a narrow float stand in an integer.
        bits = np.uint16 if element.bits == 16 else np.uint8
        return integers.astype(bits).view(numpy_dtype(element))
    return integers.astype(numpy_dtype(element))


def read_strings(tensor: TensorProto) -> tuple[bytes, ...]:
    """The items of a tensor of strings."""
    return tuple(bytes(block.data) for block in tensor.typed if block.number == STRINGS)


def read_sparse(tensor: SparseTensor, external: ExternalData | None, limits: Limits = DEFAULT) -> Array:
    """A sparse tensor as a dense array; Malformed says what is wrong with it."""
    values, places = read_array(tensor.values, external), read_array(tensor.indices, external)
    try:
        count = product(tensor.dims)
    except OutOfRange:
        raise Malformed("has a shape that no array can have") from None
    if count * values.dtype.itemsize > limits.max_total_bytes:
        raise Malformed(f"has {count} numbers when it is dense")
    if values.ndim != 1 or places.dtype != np.int64 or places.shape[:1] != values.shape:
        raise Malformed("has values and places that do not fit each other")
    if places.ndim == 2:
        if places.shape[1] != len(tensor.dims) or (places < 0).any() or (places >= tensor.dims).any():
            raise Malformed("has places outside its shape")
        places = np.asarray(np.ravel_multi_index(tuple(places.T), tensor.dims), np.int64)
    if places.ndim != 1 or (len(places) and not 0 <= int(places.min()) <= int(places.max()) < count):
        raise Malformed("has places outside its shape")
    found = np.zeros(count, values.dtype)
    found[places] = values
    return found.reshape(tensor.dims)


def tensor_of(name: str, values: Array) -> TensorProto:
    """A tensor with the numbers of an array in raw bytes."""
    element = element_type_of(values.dtype)
    if element is None or element not in DATA_TYPES:
        raise ValueError(f"ONNX has no element type for {values.dtype}")
    return TensorProto(name, DATA_TYPES[element], values.shape, to_memory(values).data)
