"""Arrays in .npy and .npz files, read without trust and written atomically."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits, OutOfRange, mul, product
from lamella.base.paths import Mapped, map_bytes, read_bytes
from lamella.base.writer import make_folder, write_bytes

Array = NDArray[np.generic]
LARGEST_HEADER = 1 << 17
"""Bytes in which the header of a .npy file must end."""


def read_array(path: Path, limits: Limits = DEFAULT) -> Array:
    """The array of a .npy file; its header is compared with the bytes that follow before anything is made of it."""
    return _decode_array(read_bytes(path, limits), path)


def read_arrays(path: Path, limits: Limits = DEFAULT) -> dict[str, Array]:
    """The arrays of a .npz file by name, each read as a .npy file is; what they unpack to is limited."""
    data = read_bytes(path, limits)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if sum(item.file_size for item in members) > limits.max_total_bytes:
                raise InputError(f"it unpacks to more than {limits.max_total_bytes} bytes", path=path)
            # No member gives more bytes than its entry promises.
            return {
                item.filename.removesuffix(".npy"): _decode_array(archive.read(item), path)
                for item in members
            }
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as problem:
        raise InputError(f"not a readable .npz file: {str(problem)[:200]}", path=path) from None


def map_array(path: Path, limits: Limits = DEFAULT) -> tuple[Mapped, Array]:
    """The array of a .npy file as `read_array` gives it, without reading its numbers, and the file that it lies in."""
    mapped = map_bytes(path, limits)
    return mapped, _decode_array(mapped.data, path)


def _decode_array(data: bytes | memoryview, path: Path) -> Array:
    stream = io.BytesIO(data[:LARGEST_HEADER])
    try:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read_header(stream)
        count = product(shape)
        needed = mul(count, dtype.itemsize)
    except (ValueError, KeyError, OutOfRange, SyntaxError, TypeError) as problem:
        raise InputError(f"not a readable .npy file: {str(problem)[:200]}", path=path) from None
    if dtype.hasobject:
        raise InputError("the array holds Python objects, which are never loaded", path=path)
    found = len(data) - stream.tell()
    if needed != found:
        message = f"the header promises {needed} bytes of {dtype} {list(shape)}, the file holds {found}"
        raise InputError(message, path=path)
    flat: Array = np.frombuffer(data, dtype=dtype, count=count, offset=stream.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def write_array(path: Path, array: Array) -> None:
    """Write one array as a .npy file, with the folder it lies in."""
    make_folder(path.parent)
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    write_bytes(path, stream.getvalue())


def file_name(name: str) -> str:
    """The name of a tensor as that of a file: what would lead to another folder is spelled in numbers."""
    return "".join(
        f"%{ord(letter):02x}" if letter in "/\\%" or not letter.isprintable() else letter for letter in name
    )
