"""What enters a run: arrays by the names of the inputs, checked against the graph, or random from the seed.

The same seed and name give the same numbers, whatever else the graph has and in whatever precision it runs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from lamella.backend.drawing import refuse_missing
from lamella.backend.executor.extents import Extents
from lamella.backend.executor.findings import findings_at
from lamella.backend.formula.storage import Storage, TensorValue
from lamella.base import arrays
from lamella.base.arrays import Array, DType, uniform, uniform_value
from lamella.base.background import Background
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dim import Extent, bounds, substitute, symbols
from lamella.base.dtype import ElementType, Kind
from lamella.base.errors import Found, Malformed
from lamella.base.filling import draw_normal
from lamella.base.mapping import is_unwritable
from lamella.base.optional import Foreign
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.graph.compose.decompose import compose_call
from lamella.graph.nodes import Argument, Graph, Operation, Pack, Tensor, tensors
from lamella.lang.skriptnd.rules.graphs import INPUT_TYPE, UNKNOWN_INPUT
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Contraction, Element, Guard, Lookup
from lamella.ops.instance import Instance
from lamella.ops.library import Library

ENDLESS = 1 << 16
"""Beyond it the bound of an extent is no size that somebody has in mind."""


def list_parts(arguments: Sequence[Argument]) -> tuple[Tensor | Pack, ...]:
    """Inputs or outputs in order; the tensors of a pack of known length stand for themselves."""
    return tuple(part for argument in arguments for part in _parts(argument))


def _parts(argument: Argument) -> Sequence[Tensor | Pack]:
    return (argument,) if isinstance(argument, Pack) else tensors(argument)


def input_type(part: Tensor | Pack) -> str:
    """The type of an input as its graph declares it: `f32[1, 3, n]`."""
    text = f"{part.element.name}[{', '.join(map(str, part.shape))}]"
    return f"{text}..({part.size})" if isinstance(part, Pack) else text


Adopt: TypeAlias = Callable[[object, DType], Array | None]
"""An array of a device as one of the host, which launches know by itself: of the given type it need not be read here.
None for what is no array of a device."""


@dataclass(frozen=True, slots=True)
class GraphInputs:
    """Fills the inputs of one call; `place` tells where a name is declared."""

    graph: Graph
    storage: Storage
    seed: int
    place: Callable[[str], Span]
    adopt: Adopt | None = None
    """Takes arrays that lie on the device of the executable."""

    def take(
        self,
        given: Mapping[str, npt.ArrayLike],
        extents: Extents,
        picks: Callable[[str], Sequence[Extent]],
        draws: bool = True,
    ) -> dict[str, TensorValue]:
        """The arrays of all inputs; the symbols of their shapes get their values, random ones the largest.

        Inputs that are not given are drawn, or refused where nobody wants that. Those that are dense and of the stored
        type are read where they lie.
        """
        parts = list_parts(self.graph.inputs)
        findings = [self._unknown(name) for name in given if name not in {part.name for part in parts}]
        found: dict[str, TensorValue] = {}
        for part in parts:
            if part.name in given:
                try:
                    with findings_at(part.name, part.origin, self.place(part.name)):
                        found[part.name] = self._enter(part, given[part.name], extents)
                except LamellaError as problem:
                    findings += problem.findings
        if findings:
            raise LamellaError(findings)
        if not draws:
            refuse_missing({part.name: input_type(part) for part in parts if part.name not in found})
        # Integers come last: they may pick elements of what is drawn before them.
        for part in sorted(parts, key=lambda item: item.element.is_integer):
            if part.name not in found:
                with findings_at(part.name, part.origin, self.place(part.name)):
                    found[part.name] = self._draw(part, extents, picks)
        return found

    def fit_all(self, given: Mapping[str, npt.ArrayLike]) -> dict[str, Array] | None:
        """All inputs that are given, in their stored types; None where one is not right or no tensor of bytes."""
        parts = {part.name: part for part in list_parts(self.graph.inputs)}
        found = {}
        for name, value in given.items():
            part = parts.get(name)
            if not isinstance(part, Tensor) or part.element.bits < 8:
                return None
            try:
                found[name] = self._fit(part, value)
            except (Fault, Found, LamellaError):  # the run tells what is wrong with it
                return None
        return found

    def _unknown(self, name: str) -> Diagnostic:
        parts = list_parts(self.graph.inputs)
        names = ", ".join(part.name for part in parts) or "none"
        span = self.place(parts[0].name if parts else "")
        return UNKNOWN_INPUT.at(span, name=name, graph=self.graph.name, names=names)

    def _enter(self, part: Tensor | Pack, given: npt.ArrayLike, extents: Extents) -> TensorValue:
        if isinstance(part, Tensor):
            array = self._fit(part, given)
            extents.bind(part.name, part.shape, array.shape)
            return array
        items = list(given) if isinstance(given, Sequence | np.ndarray) else [given]
        found = tuple(self._fit(part, item) for item in items)
        extents.bind_extent(f"the length of '{part.name}'", part.size, len(found))
        for array in found:
            extents.bind(part.name, part.shape, array.shape)
        return found

    def _fit(self, part: Tensor | Pack, given: npt.ArrayLike) -> Array:
        try:
            stored = self.storage.dtype(part.element)
            adopted = None if self.adopt is None else self.adopt(given, stored)
            if adopted is not None and adopted.dtype == stored and part.element.bits >= 8:
                return adopted
            array = as_array(given) if adopted is None else adopted
            if part.element.is_float and isinstance(given, int | Sequence) and array.dtype.kind == "i":
                array = array.astype(np.float64)  # [[1, 2], [3, 4]] says nothing of a type, as an array does
            return fit(array, part.element, self.storage, in_place=True)
        except Malformed as problem:
            raise Fault(INPUT_TYPE, name=part.name, found=str(problem), element=part.element.name) from None

    def _draw(
        self, part: Tensor | Pack, extents: Extents, picks: Callable[[str], Sequence[Extent]]
    ) -> TensorValue:
        random = generator(self.seed, part.name)
        shape = [choose_extent(extent, extents) for extent in part.shape]
        if isinstance(part, Pack):
            count = choose_extent(part.size, extents)
            return tuple(draw(random, part.element, shape, self.storage, SMALL) for _ in range(count))
        end = smallest(picks(part.name), extents) if part.element.is_integer else SMALL
        return draw(random, part.element, shape, self.storage, end)


def choose_extent(extent: Extent, extents: Extents) -> int:
    """An extent of a random input: what others fixed, or the largest that is allowed; a small one of endless ones."""
    for item in symbols(extent):
        if item.name not in extents:
            extents[item.name] = item.high if item.high <= ENDLESS else max(item.low, SMALL)
    found = substitute(extent, extents)
    return found if isinstance(found, int) else bounds(found)[1]


# --- arrays of the outside ----------------------------------------------------------------------------------


def as_array(given: npt.ArrayLike) -> Array:
    """What a caller gives, as an array."""
    is_foreign = hasattr(given, "__dlpack__") and not hasattr(given, "__array__")
    try:
        return np.from_dlpack(cast(Foreign, given)) if is_foreign else np.asarray(given)
    except (BufferError, RuntimeError, TypeError, ValueError) as problem:
        # Rows of several lengths; a tensor that is on a device, records gradients, or has a type that NumPy lacks.
        is_uneven = isinstance(problem, ValueError) and not is_foreign
        raise Malformed(f"no array: {'its rows differ in length' if is_uneven else problem}") from None


def fit(values: Array, element: ElementType, storage: Storage, in_place: bool = False) -> Array:
    """An array in the stored type of a tensor: reals are rounded, integers must fit, kinds do not mix.

    One that is of that type already is copied, unless its numbers stay or it is only read `in_place` for a while. A
    uniform one stays uniform, unless it is an input.
    """
    if in_place and uniform_value(values) is not None:
        values = np.ascontiguousarray(values)
    if element.is_integer and element.bits < 8:
        in_place = False  # its bytes may be others, and are changed below
    stored = _fit(values, element, storage, in_place)
    return arrays.sign_extended(stored) if element.is_integer and element.bits < 8 else stored


def _fit(values: Array, element: ElementType, storage: Storage, in_place: bool) -> Array:
    found = arrays.element_type_of(values.dtype)
    if found is None or _kind(found) != _kind(element):
        raise Malformed(f"an array of {values.dtype}")
    one = uniform_value(values)
    if one is not None:
        stored = _fit(one, element, storage, False)
        return uniform(values.shape, stored, stored.dtype)
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    if native.dtype == storage.dtype(element):
        if in_place and native.flags.c_contiguous and native.flags.aligned:
            return _read_only(native)
        return native if _is_fixed(native) else np.array(native, order="C")
    if element.is_float:
        return native.astype(storage.dtype(element)) if storage.wide else arrays.cast(native, element)
    # Unsigned 64-bit numbers stay: as signed ones large values would look negative, and so seem to be too small.
    wide = native if native.dtype == np.uint64 else native.astype(np.int64)
    low, high = (int(wide.min()), int(wide.max())) if wide.size else (0, 0)
    if low < element.minimum or high > element.maximum:
        raise Malformed(f"the number {low if low < element.minimum else high}")
    return arrays.cast(wide, element)


def _read_only(values: Array) -> Array:
    found = values.view()
    found.flags.writeable = False
    return found


def _is_fixed(values: Array) -> bool:
    """Whether an array keeps its numbers without a copy: nobody may write to its memory, its own or that of a file."""
    flags = values.flags
    is_kept = flags.owndata or is_unwritable(values)
    return is_kept and flags.c_contiguous and flags.aligned and not flags.writeable


def _kind(element: ElementType) -> str:
    if element.is_float:
        return "real"
    return "int" if element.is_integer else element.kind.value if element.kind is Kind.BOOL else element.name


# --- random tensors ------------------------------------------------------------------------------------------


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
    storage.allocate(shape, storage.dtype(element))  # refuses what memory has no room for, before it is drawn
    if element.kind is Kind.BOOL:
        return np.asarray(random.integers(0, 2, shape) > 0)  # of rank 0 it would be no array
    if element.is_float:
        return _rounded(random.standard_normal(shape), element, storage)
    end = max(min(below, element.maximum + 1), 1)
    return storage.store(random.integers(0, end, shape), element)


def draw_variable(
    random: np.random.Generator,
    tensor: Tensor,
    shape: Sequence[int],
    storage: Storage,
    filling: Background | None = None,
) -> Array:
    """A random variable that keeps deep networks finite; a large one is full when `filling` has been waited for.

    Tensors of rank 2 and more are normal with a deviation of 1 / sqrt(fan-in), the fan-in being all extents but the
    first; vectors and scalars are uniform between 0.5 and 1.5, so that they can be scales and variances.
    """
    element = tensor.element
    if not element.is_float:
        return draw(random, element, shape, storage)
    found = storage.allocate(shape, storage.dtype(element))
    if len(shape) < 2:
        return _rounded(random.uniform(0.5, 1.5, shape), element, storage)
    fan_in = max(int(np.prod(shape[1:], dtype=np.int64)), 1)
    convert = partial(_rounded, element=element, storage=storage)
    draw_normal(random, found, np.sqrt(fan_in), convert, filling)
    return found


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
