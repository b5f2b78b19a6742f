"""Files with weights beside them from descriptions of a few lines; stores are written by hand, not by our writer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.bridge.nac_to_graph.convert_weights import with_internal
from lamella.bridge.nac_to_graph.weights import read_external, read_weight
from lamella.lang.nac import nodes as n
from tests.support.bridge.nac_numbers import TYPES

STORE_TYPES = {
    **{
        "float32": "F32",
        "float64": "F64",
        "float16": "F16",
        "bfloat16": "BF16",
        "int64": "I64",
        "int32": "I32",
    },
    **{"int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "uint16": "U16"},
}
TYPED = re.compile(r"([\w.]+)(?:: (\w+)\[(.*)\])?")


def store_bytes(arrays: Mapping[str, Array], metadata: object = None) -> bytes:
    """The bytes of a store with these arrays in the order in which they are given."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    image = b""
    for name, values in arrays.items():
        place = [len(image), len(image) + values.nbytes]
        kind = STORE_TYPES[str(values.dtype)]
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": place}
        image += values.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + image


def external(*names: str, method: n.Method = n.Method.NONE) -> n.File:
    """A file of these parameters whose weights stand elsewhere."""
    parameters = tuple(n.Parameter(at + 1, name) for at, name in enumerate(names))
    return n.File(header=n.Header(method=method), parameters=parameters)


def _typed(rest: str) -> tuple[str, Array | None]:
    found = TYPED.fullmatch(rest)
    assert found, rest
    name, dtype, sizes = found.groups()
    shape = [int(size) for size in sizes.split(",") if size] if sizes is not None else []
    return name, None if dtype is None else np.ones(shape, dtype)


def described(text: str) -> tuple[n.File, bytes]:
    """The file of a description and the bytes beside it."""
    file, arrays, metadata = n.File(), dict[str, Array](), dict[str, str]()
    for line in text.splitlines():
        word, _, rest = line.partition(";")[0].strip().partition(" ")
        if word == "method":
            file = n.File(n.Header(method=n.Method[rest.upper()]))
        elif word == "parameter":
            file = _with_parameter(file, *_typed(rest))
        elif word == "array":
            name, values = _typed(rest)
            assert values is not None
            arrays[name] = values
        elif word == "resource":
            key, _, content = rest.partition(": ")
            file = replace(file, resources=(n.Resource(key, content.encode()),))
        elif word:
            key, _, metadata_text = rest.partition(": ")
            metadata[key] = metadata_text
    return file, store_bytes(arrays, metadata)


def _with_parameter(file: n.File, name: str, values: Array | None) -> n.File:
    number = len(file.parameters) + 1
    parameters = (*file.parameters, n.Parameter(number, name))
    if values is None:
        return replace(file, parameters=parameters)
    tensor = n.Tensor(number, TYPES.index(str(values.dtype)), values.shape, n.Unscaled(), values.tobytes())
    header = n.Header(method=file.header.method, internal=True)
    return n.File(header, parameters=parameters, tensors=(*file.tensors, tensor))


def findings_of(folder: Path, text: str) -> list[Diagnostic]:
    """What is wrong with the weights beside a file, or with taking them in."""
    file, store = described(text)
    (folder / "m.safetensors").write_bytes(store)
    try:
        found = read_external(file, folder / "m.nac")
        if not errors(found.findings):
            arrays = {name: read_weight(item, file.header.method) for name, item in found.tensors.items()}
            with_internal(file, arrays)
    except LamellaError as problem:
        return list(problem.findings)
    return list(found.findings)
