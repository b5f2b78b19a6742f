"""What the machine is given: the instructions of a file, and the graph operations that each of them stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dim import Extent
from lamella.graph.nodes import Constant, Operation, Tensor
from lamella.lang.nac.nodes import File
from lamella.ops.library import Library

Result: TypeAlias = "Tensor | Extent | tuple[Result, ...] | None"
"""What an instruction gives: a tensor, a size, or a tuple; None stands for what nobody may use."""
Path: TypeAlias = tuple[int, ...]
"""Where a tensor stands in a result: the numbers of the items to take, none for the result itself."""


@dataclass(frozen=True, slots=True)
class ProgramState:
    """What is kept between runs: the id by which instructions load it, and the number of the output it becomes.

    `start` gives the numbers of the first run.
    """

    id: int
    tensor: Tensor
    update: int
    start: Callable[[], Array]


@dataclass(frozen=True, slots=True)
class NacProgram:
    """A file with its meaning: for each instruction its graph operations, often one, and what it gives.

    All shapes are numbers. `constants` are tensors that operations read and no instruction gives; `load` reads and
    dequantises the weights of a parameter id, on any thread. Outputs that states become are not given to callers.
    """

    file: File
    steps: tuple[tuple[Operation, ...], ...]
    results: tuple[Result, ...]
    constants: tuple[Constant, ...]
    library: Library
    load: Callable[[int], Array]
    states: tuple[ProgramState, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """Something that a traced run did to memory: at a tick, to the result of an instruction, on a thread.

    Kinds are `load`, `preload start`, `preload end`, `save`, `free` and `forward`.
    """

    kind: str
    tick: int
    target: int
    thread: int


def paths(result: Result, path: Path = ()) -> Iterator[tuple[Tensor, Path]]:
    """The tensors of a result with the places where they stand."""
    if isinstance(result, Tensor):
        yield result, path
    elif isinstance(result, tuple):
        for number, item in enumerate(result):
            yield from paths(item, (*path, number))


def size_of(result: Result) -> int:
    """The bytes of a result; sizes take none."""
    return sum(tensor_bytes(tensor) for tensor, _ in paths(result))


def tensor_bytes(tensor: Tensor) -> int:
    """The bytes of a tensor; 0 where only the run tells its shape."""
    size: int = numpy_dtype(tensor.element).itemsize
    for extent in tensor.shape:
        size *= extent if isinstance(extent, int) else 0
    return size
