"""Tensor files (.dat), .safetensors and .json files for the commands: check and show."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, printable
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import shown
from lamella.graph.data import read_dat, read_safetensors
from lamella.pipeline.data.documents import check_document, describe_document
from lamella.pipeline.languages import DOCUMENT, Description
from lamella.pipeline.options import Options

SHOWN = 6


def check(path: Path, options: Options) -> list[Diagnostic]:
    """The whole file is read; what is wrong with it is raised by the reader."""
    if path.suffix.lower() == DOCUMENT:
        return check_document(path, options)
    _read(path, options.limits)
    return []


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """Data have no text."""
    raise InputError(f"'{path.name}' holds data, not text", path=path)


def describe(name: str, options: Options) -> Description:
    """Each tensor with its type, shape and range."""
    path = Path(name)
    if path.suffix.lower() == DOCUMENT:
        return describe_document(path, options)
    arrays = _read(path, options.limits)
    total = sum(array.nbytes for array in arrays.values())
    lines = [f"{printable(shown(path))}: {len(arrays)} tensor{'s' * (len(arrays) != 1)}, {total:,} bytes"]
    lines += [f"  {printable(item)}: {_facts(array)}" for item, array in arrays.items()]
    data = {
        item: {"dtype": str(array.dtype), "shape": list(array.shape), "bytes": array.nbytes}
        for item, array in arrays.items()
    }
    return Description("\n".join(lines), {"file": shown(path), "kind": "data", "tensors": data})


def _read(path: Path, limits: Limits) -> dict[str, Array]:
    if path.suffix.lower() == ".safetensors":
        return dict(read_safetensors(path, limits))
    return {path.name.removesuffix(".dat"): read_dat(path, limits).values}


def _facts(array: Array) -> str:
    """Type, shape and what the numbers are like."""
    head = f"{array.dtype}{list(array.shape)}"
    if not array.size or array.dtype.kind in "bc":
        return head
    with np.errstate(all="ignore"):
        numbers = array.astype(np.float64)
        return f"{head}  {numbers.min():.6g} .. {numbers.max():.6g}, mean {numbers.mean():.6g}"
