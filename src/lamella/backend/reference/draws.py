"""Random tensors from the seed: inputs that are not given, variables without data.

The same seed and name give the same numbers, whatever else the graph has and in whatever precision it runs.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from lamella.backend.reference.storage import Storage
from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.dim import Extent, substitute
from lamella.base.dtype import ElementType, Kind
from lamella.base.errors import Found
from lamella.graph.compose.decompose import compose_call
from lamella.graph.nodes import Graph, Operation, Tensor, tensors
from lamella.ops.formula import Apply, Contraction, Element, Guard, Lookup
from lamella.ops.instance import Instance
from lamella.ops.library import Library

SMALL = 8
"""Random integers that pick nothing are drawn below this number."""


def generator(seed: int, name: str) -> np.random.Generator:
    """Random numbers of one tensor."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def draw(
    random: np.random.Generator,
    element: ElementType,
    shape: Sequence[int],
    storage: Storage,
    below: int = SMALL,
) -> Array:
    """A random array: reals are standard normal, integers small and not negative."""
    storage.allocate(shape, storage.dtype(element))
    if element.kind is Kind.BOOL:
        return np.asarray(random.integers(0, 2, shape) > 0)  # of rank 0 it would be no array
    if element.is_float:
        return _rounded(random.standard_normal(shape), element, storage)
    end = max(min(below, element.maximum + 1), 1)
    return storage.store(random.integers(0, end, shape), element)


def draw_variable(
    random: np.random.Generator, tensor: Tensor, shape: Sequence[int], storage: Storage
) -> Array:
    """A random variable that keeps deep networks finite.

    Tensors of rank 2 and more are normal with a deviation of 1 / sqrt(fan-in), the fan-in being all extents but the
    first; vectors and scalars are uniform between 0.5 and 1.5, so that they can be scales and variances.
    """
    element = tensor.element
    if not element.is_float:
        return draw(random, element, shape, storage)
    storage.allocate(shape, storage.dtype(element))
    if len(shape) < 2:
        return _rounded(random.uniform(0.5, 1.5, shape), element, storage)
    fan_in = max(int(np.prod(shape[1:], dtype=np.int64)), 1)
    return _rounded(random.standard_normal(shape) / np.sqrt(fan_in), element, storage)


def _rounded(values: Array, element: ElementType, storage: Storage) -> Array:
    """Numbers of the element type, also where they are held in a wider one."""
    return arrays.cast(np.asarray(values), element).astype(storage.dtype(element), copy=False)


# --- integers that pick elements ----------------------------------------------------------------------------


def find_picks(
    graph: Graph, bound: Iterator[tuple[Sequence[str], Instance, Sequence[Contraction]]]
) -> Mapping[str, Sequence[Extent]]:
    """For integer inputs that an operation uses as indices, the extents they pick from.

    `bound` lists operations with the names of their inputs, where these are single tensors.
    """
    wanted = {item.name for item in graph.inputs if isinstance(item, Tensor) and item.element.is_integer}
    found: dict[str, list[Extent]] = {name: [] for name in wanted}
    for names, instance, formulas in bound:
        parameters = dict(zip([name for name, _ in instance.inputs], names, strict=True))
        if not wanted.isdisjoint(names):
            for parameter, extent in _picks(instance, formulas):
                if parameters.get(parameter) in wanted:
                    found[parameters[parameter]].append(extent)
    return found


def reading(library: Library, graph: Graph, operations: Iterable[Operation]) -> Iterator[Operation]:
    """The operations that read an integer input; a composed one by what it is made of."""
    wanted = {item.name for item in graph.inputs if isinstance(item, Tensor) and item.element.is_integer}
    for operation in operations:
        names = {item.name for argument in operation.inputs for item in tensors(argument)}
        if wanted.isdisjoint(names):
            continue
        definition = library.find(operation.operator)
        if definition is None or definition.operator.kind != "compose":
            yield operation
            continue
        try:
            inner = compose_call(library, operation).nodes
        except (Found, LamellaError):  # the run tells what is wrong with it
            continue
        yield from (node for node in inner if isinstance(node, Operation))


def smallest(extents: Sequence[Extent], values: Mapping[str, int]) -> int:
    """How many indices every extent that is known has; a small number where none is."""
    known = [extent for item in extents if isinstance(extent := substitute(item, values), int)]
    return min(known, default=SMALL)


def _picks(instance: Instance, formulas: Sequence[Contraction]) -> Iterator[tuple[str, Extent]]:
    """Parameters whose elements are indices, each with the extent of the dimension they index."""
    shapes = {name: getattr(value, "shape", ()) for name, value in instance.inputs}
    shapes |= {item.name: item.shape or () for item in instance.outputs}
    waiting: list[object] = [
        part for item in formulas for part in (*item.targets, *item.values, item.condition)
    ]
    seen: set[int] = set()
    while waiting:
        term = waiting.pop()
        if id(term) in seen:
            continue
        seen.add(id(term))
        if isinstance(term, Element):
            waiting += term.indices
            for index, extent in zip(term.indices, shapes.get(term.tensor, ()), strict=False):
                if isinstance(index, Element):
                    yield index.tensor, extent
        elif isinstance(term, Apply):
            waiting += term.operands
        elif isinstance(term, Lookup):
            waiting += (term.index, *term.table)
        elif isinstance(term, Guard):
            waiting += (term.index, term.below, term.above)
