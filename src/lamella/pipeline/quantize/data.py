"""Calibration data: batches of inputs from .npz and .npy files or a folder of them, or drawn from the seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import is_folder, shown
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.pipeline.arrays import read_array, read_arrays
from lamella.pipeline.diff.flow import listed

DRAWN = 4
"""Batches that are drawn where there are no data."""
CHUNK = 32
"""Items of the first axis in a batch of a model that leaves it open."""
ENDINGS = (".npz", ".npy")

Batch = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class CalibrationData:
    """Batches of inputs by name, all of which fit the model."""

    batches: Sequence[Batch]
    source: str
    """Where they come from, in words."""
    is_drawn: bool = False
    left_over: int = 0
    """Items of the data that fill no batch, or are more than was asked for."""

    def note(self) -> str:
        """One line about them."""
        more = f"; {self.left_over} items are not used" if self.left_over else ""
        return (
            f"calibrated on {len(self.batches)} batch{'es' * (len(self.batches) != 1)} of {self.source}{more}"
        )


def draw_batches(model: Model, seed: int, limits: Limits) -> CalibrationData:
    """Batches of random inputs."""
    runs = (compile_model(model, seed=seed + number, limits=limits) for number in range(DRAWN))
    return CalibrationData([run.draw_inputs() for run in runs], f"random inputs from seed {seed}", True)


def read_batches(path: Path, model: Model, most: int, limits: Limits) -> CalibrationData:
    """The batches of a file or a folder, at most so many; InputError says what does not fit the model."""
    wanted = {item.name: item for item in listed(model.graph.inputs)}
    batches: list[Batch] = []
    unused = 0
    for file, arrays in _files(path, list(wanted), limits):
        found, rest = split_batches(arrays, wanted, file)
        batches += found
        unused += rest
    if not batches:
        raise InputError("there are no data in it", path=shown(path), hint="give .npz or .npy files")
    more = sum(_length(item) for item in batches[most:])
    return CalibrationData(batches[:most], f"'{printable(path.name)}'", left_over=unused + more)


def _length(batch: Batch) -> int:
    return max((array.shape[0] if array.ndim else 1 for array in batch.values()), default=0)


def _files(path: Path, names: Sequence[str], limits: Limits) -> Iterator[tuple[Path, dict[str, Array]]]:
    """The arrays of each file by the names of inputs; .npy files of a folder are one set, named by their stems."""
    if not is_folder(path):
        yield path, _arrays(path, names, limits)
        return
    files = sorted(item for item in path.iterdir() if item.suffix.lower() in ENDINGS)
    single = [item for item in files if item.suffix.lower() == ".npy"]
    if len(names) == 1 and not any(item.stem in names for item in single):
        yield from ((item, {names[0]: read_array(item, limits)}) for item in single)
    elif single:
        yield path, {item.stem: read_array(item, limits) for item in single}
    yield from ((item, read_arrays(item, limits)) for item in files if item not in single)


def _arrays(path: Path, names: Sequence[str], limits: Limits) -> dict[str, Array]:
    if path.suffix.lower() == ".npz":
        return read_arrays(path, limits)
    if path.suffix.lower() != ".npy":
        raise InputError(
            f"'{path.name}' holds no calibration data", path=shown(path), hint="give .npz or .npy"
        )
    if len(names) != 1:
        hint = f"give a .npz file or a folder with: {', '.join(map(printable, names))}"
        raise InputError(f"one array, and the model has {len(names)} inputs", path=shown(path), hint=hint)
    return {names[0]: read_array(path, limits)}


# --- arrays as batches --------------------------------------------------------------------------------------


def split_batches(
    arrays: Mapping[str, Array], wanted: Mapping[str, Tensor], path: Path | None
) -> tuple[list[Batch], int]:
    """Arrays cut along their first axes into what the model takes at once, and the items that fill no batch.

    Names that are no inputs are ignored, such as labels beside images.
    """
    missing = next((name for name in wanted if name not in arrays), None)
    if missing is not None:
        hint = f"it holds: {printable(', '.join(arrays), 200) or 'nothing'}"
        raise InputError(f"there is no array for input '{printable(missing)}'", path=path, hint=hint)
    cuts = {name: _cut(arrays[name], tensor, path) for name, tensor in wanted.items()}
    counts = {len(pieces) for pieces, _, is_cut in cuts.values() if is_cut}
    if len(counts) > 1:
        raise InputError(f"the arrays give {' and '.join(map(str, sorted(counts)))} batches", path=path)
    count = next(iter(counts), 1)
    batches: list[Batch] = [
        {name: pieces[number if is_cut else 0] for name, (pieces, _, is_cut) in cuts.items()}
        for number in range(count)
    ]
    return batches, max((rest for _, rest, _ in cuts.values()), default=0)


def _cut(array: Array, tensor: Tensor, path: Path | None) -> tuple[list[Array], int, bool]:
    """The pieces of one array, the items that are left, and whether it was cut."""
    values = array.astype(numpy_dtype(tensor.element)) if tensor.element.is_float else array
    if values.ndim == len(tensor.shape) - 1:
        values = values[None] if tensor.shape[0] == 1 else values
    if values.ndim == len(tensor.shape) + 1 and tensor.shape[:1] == (1,):
        values = values.reshape(-1, *values.shape[2:])
    if values.ndim != len(tensor.shape) or not _fits(values.shape[1:], tensor.shape[1:]):
        shape = ", ".join(map(str, tensor.shape))
        message = f"input '{printable(tensor.name)}' has the shape [{shape}], the array {list(array.shape)}"
        raise InputError(message, path=path)
    if not values.ndim:
        return [values], 0, False
    first = tensor.shape[0]
    size = first if isinstance(first, int) else min(CHUNK, max(len(values), 1))
    whole = len(values) // size if size else 0
    if not whole:
        message = f"input '{printable(tensor.name)}' takes {size} items at once, the array has {len(values)}"
        raise InputError(message, path=path)
    pieces = [np.ascontiguousarray(values[size * number : size * (number + 1)]) for number in range(whole)]
    return pieces, len(values) - whole * size, whole > 1


def _fits(shape: Sequence[int], wanted: Sequence[object]) -> bool:
    """Whether extents are those of a tensor, where it says them."""
    return all(
        not isinstance(extent, int) or extent == size for size, extent in zip(shape, wanted, strict=True)
    )
