"""What an operation is for fusion, told by its formulas: its kind, and which elements of its inputs each element needs.

Index maps are compared by their values on a few points of the iteration space. For affine maps that is a proof: the
points hold the origin and one step along every loop. An open extent stands for a small prime number here; a group is a
composition whose meaning does not depend on what is decided here, so a map that only looks like another one costs
time, never numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from math import prod
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lamella.base.dim import Extent, substitute, symbols
from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.graph.binding import bind_operation
from lamella.graph.nodes import Operation, Pack, Tensor, tensors
from lamella.graph.rewrite import members
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Contraction, Counter, Element, Guard, Index, Lookup, Scalar
from lamella.ops.instance import Instance
from lamella.ops.library import Library
from lamella.ops.lower import contractions, reachable
from lamella.ops.specialise import specialise

LARGEST = 1 << 62
"""Larger integers are not sampled: no index is one, and 64-bit arithmetic would wrap around."""
Places: TypeAlias = npt.NDArray[np.int64]
"""Row-major positions of elements, one for each sampled step."""
WINDOW_RANK = 2
"""Dimensions of windows that are computed in strips of rows."""
POINTS = 48
"""Random steps that index maps are compared on, beside the origin and one step along every loop."""
PRIMES = (7, 11, 13, 17, 19, 23, 29, 31)
ASSIGNMENTS = ("=", ":=")
CHEAP = MappingProxyType({"cast": 0, "?:": 1, "neg": 1})
COSTLY = MappingProxyType({"/": 4, "sqrt": 6, "rsqrt": 6, "**": 30, "%": 4, "\\": 4})
FUNCTION_COST = 12
"""Floating-point operations of a built-in function such as exp, in those of an addition."""


class Kind(Enum):
    """What an operation does to its elements."""

    MAP = "map"
    """Each element from elements at index maps of the inputs."""
    VIEW = "view"
    """A map that only renames memory: the same elements in row-major order."""
    REDUCE = "reduce"
    CONTRACT = "contract"
    """Sums of products of two tensors."""
    GATHER = "gather"
    """A map or reduction whose indices are data."""
    SCAN = "scan"
    OPAQUE = "opaque"
    """No formula, random, or with extents that only the run tells."""


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """One access of a formula to an input: where it reads for sampled steps, and where it writes."""

    source: int
    """Which tensor among the tensors of the operation's inputs."""
    places: Places
    first: Places
    """Where it reads in the same steps with the loops of the reduction at their start."""
    targets: Places
    steps: int
    reduced: int
    """How many steps each element of the output sums up."""
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """How the elements of a tensor fall into rows: `length` of them, `stride` apart."""

    full: int
    count: int
    stride: int

    @property
    def length(self) -> int:
        """Elements of a row."""
        return self.full // self.count

    def row(self, places: Places) -> Places:
        """The rows of elements."""
        block = self.length * self.stride
        return places // block * self.stride + places % self.stride


@dataclass(frozen=True, slots=True, eq=False)
class OperationFacts:
    """What is known of an operation: its kind, its accesses, its size and cost."""

    kind: Kind
    reads: tuple[Read, ...] = ()
    size: int = 0
    """Elements of the output."""
    sizes: tuple[int, ...] = ()
    """Elements of each input tensor."""
    steps: int = 0
    cost: int = 0
    """Floating-point operations of one step."""
    rows: Rows | None = None
    """The rows that a reduction sums up; None where its steps do not fall into rows of one stride."""
    is_moving: bool = False
    """Whether every element is an element of an input, untouched."""
    is_strided: bool = False
    """Whether the output is a strided view of the one input: strides and an offset describe it."""
    is_pointwise: bool = False
    """Whether one formula gives every element of the output by itself."""
    windows: int = -1
    """The input whose windows a contraction sums up, those of each channel by themselves; -1 where there is none."""

    @property
    def flops(self) -> int:
        """Floating-point operations of all steps."""
        return self.steps * self.cost


OPAQUE = OperationFacts(Kind.OPAQUE)


def kind_of(library: Library, operation: Operation) -> Kind:
    """What an operation is, told by its formulas."""
    return facts_of(library, operation).kind


def facts_of(
    library: Library, operation: Operation, extents: Mapping[str, int] | None = None
) -> OperationFacts:
    """Kind, accesses and cost of an operation; one without usable formulas is opaque.

    `extents` are numbers for open ones, the same for all operations that are compared.
    """
    arguments = (*operation.inputs, *operation.outputs)
    if any(isinstance(item, Pack) for item in arguments) or "random" in library.traits(operation.operator):
        return OPAQUE
    results = [item for argument in operation.outputs for item in tensors(argument)]
    numbers = {**sample_extents(members(arguments)), **(extents or {})}
    try:
        instance = bind_operation(library, operation)
        if instance.definition.operator.kind != "lower" or not results:
            return OPAQUE
        formulas = [specialise(item, numbers) for item in contractions(instance)]
        return _Classifier(instance, operation, numbers).facts(formulas)
    except (Fault, Found, ZeroDivisionError, _Irregular):
        return OPAQUE


def sample_extents(items: Iterable[Tensor | Pack]) -> dict[str, int]:
    """A number for every open extent: primes, so that no two products of extents are equal by accident."""
    found: dict[str, int] = {}
    for symbol in (found for item in items for extent in item.shape for found in symbols(extent)):
        if symbol.name not in found:
            wanted = PRIMES[len(found) % len(PRIMES)]
            found[symbol.name] = max(min(wanted, symbol.high), symbol.low, 1)
    return found


def size_of(tensor: Tensor, numbers: Mapping[str, int]) -> int:
    """The number of elements of a tensor."""
    return prod(_known(substitute(extent, numbers)) for extent in tensor.shape)


def _known(extent: Extent) -> int:
    if not isinstance(extent, int):
        raise _Irregular
    return extent


class _Irregular(Exception):
    """An index that is not a function of loops alone, or a shape that nobody knows."""


class _DataDependent(Exception):
    """An index that reads a tensor."""


class _Classifier:
    """The formulas of one operation while its facts are found."""

    def __init__(self, instance: Instance, operation: Operation, numbers: Mapping[str, int]) -> None:
        self.numbers = numbers
        self.sources = _places_of(instance, operation)
        self.results = {item.name: operation.outputs[number] for number, item in enumerate(instance.outputs)}
        self.given = [item for argument in operation.inputs for item in tensors(argument)]
        self.size = sum(size_of(item, numbers) for out in operation.outputs for item in tensors(out))
        self.single = len(list(members(operation.outputs))) == 1

    def facts(self, formulas: Sequence[Contraction]) -> OperationFacts:
        """The facts of the operation that these formulas are."""
        kinds: list[Kind] = []
        reads: list[Read] = []
        steps = cost = 0
        for formula in formulas:
            kind, found = self._formula(formula)
            kinds.append(kind)
            reads += found
            count = prod(_known(loop.extent) for loop in formula.loops)
            steps, cost = max(steps, count), cost + cost_of(formula)
        kind = next((item for item in _STRONGEST if item in kinds), Kind.MAP)
        moving = kind is Kind.MAP and all(map(_is_moving, formulas)) and not self._is_rounding(reads)
        pointwise = (
            kind is Kind.MAP and self.single and len(formulas) == 1 and self._is_pointwise(formulas[0])
        )
        affine = moving and all(map(_is_affine, formulas)) and len({item.source for item in reads}) == 1
        strided = affine and (pointwise or self._are_parts(formulas))
        sizes = tuple(size_of(item, self.numbers) for item in self.given)
        if strided and pointwise and is_identity(reads[0], sizes[reads[0].source], self.size):
            kind = Kind.VIEW
        rows = self._rows(reads, sizes) if kind is Kind.REDUCE else None
        windows = self._windows(formulas) if kind is Kind.CONTRACT else -1
        return OperationFacts(
            kind, tuple(reads), self.size, sizes, steps, cost, rows, moving, strided, pointwise, windows
        )

    def _windows(self, formulas: Sequence[Contraction]) -> int:
        """The input whose windows are summed up channel by channel: other indices are those of the output."""
        sums = [item for item in formulas if item.sign == "+=" and isinstance(item.values[0], Apply)]
        if len(sums) != 1 or not isinstance(sums[0].values[0], Apply):
            return -1
        target, points = sums[0].targets[0], _Samples(sums[0]).points
        for item in sums[0].values[0].operands:
            source = self.sources.get((item.tensor, None)) if isinstance(item, Element) else None
            if source is None or not isinstance(item, Element) or len(item.indices) != len(target.indices):
                continue
            pairs = zip(item.indices, target.indices, strict=True)
            other = [one for one, two in pairs if (points.evaluate(one) != points.evaluate(two)).any()]
            if len(other) == WINDOW_RANK and all(isinstance(one, Guard | Apply) for one in other):
                return source
        return -1

    def _is_rounding(self, reads: Sequence[Read]) -> bool:
        """Whether an element changes its type on the way, as one of another real type does without a word."""
        made = {item.element for out in self.results.values() for item in tensors(out)}
        return any(self.given[item.source].element not in made for item in reads)

    def _rows(self, reads: Sequence[Read], sizes: Sequence[int]) -> Rows | None:
        """The rows that a reduction sums up, the elements of each apart by a product of trailing extents."""
        if not self.size or len({item.source for item in reads}) != 1:
            return None
        read, full = reads[0], sizes[reads[0].source]
        if full % self.size or read.steps != full:
            return None
        extents = [_known(substitute(extent, self.numbers)) for extent in self.given[read.source].shape]
        strides = dict.fromkeys(prod(extents[axis:]) for axis in range(len(extents), 0, -1))
        found = (Rows(full, self.size, stride) for stride in strides if self.size % stride == 0)
        return next((item for item in found if np.array_equal(item.row(read.places), read.targets)), None)

    def _formula(self, formula: Contraction) -> tuple[Kind, list[Read]]:
        inner = [item for item in _elements(formula) if not any(item is target for target in formula.targets)]
        if any(isinstance(item, Counter) for item in _terms(formula)):
            return Kind.OPAQUE, []
        own = {target.tensor for target in formula.targets}
        if any(item.tensor in self.results and item.tensor not in own for item in inner):
            return Kind.OPAQUE, []
        sampled = _Samples(formula)
        try:
            reads = [read for item in inner if (read := self._read(item, formula, sampled)) is not None]
            for item in formula.targets:
                self._flat(item, sampled.points)
        except _DataDependent:
            return Kind.GATHER, []
        if any(item.tensor in own for item in inner):
            return Kind.SCAN, reads
        return self._kind(formula, sampled), reads

    def _kind(self, formula: Contraction, sampled: _Samples) -> Kind:
        if formula.sign in ASSIGNMENTS:
            return Kind.MAP if not sampled.reduced else Kind.OPAQUE
        if not sampled.reduced and all(_is_plain(item) for item in formula.targets):
            return Kind.MAP
        if any(self._is_cumulative(item, sampled) for item in _elements(formula)):
            return Kind.SCAN
        return Kind.CONTRACT if formula.sign == "+=" and _is_product(formula.values[0]) else Kind.REDUCE

    def _is_cumulative(self, element: Element, sampled: _Samples) -> bool:
        source = self.sources.get((element.tensor, None))
        if source is None:
            return False
        shape = [_known(substitute(extent, self.numbers)) for extent in self.given[source].shape]
        return any(_is_prefix(*pair, sampled) for pair in zip(element.indices, shape, strict=True))

    def _read(self, element: Element, formula: Contraction, sampled: _Samples) -> Read | None:
        """The access to an input; None for one to a constant or to the output itself."""
        if element.tensor in self.results or not any(name == element.tensor for name, _ in self.sources):
            for index in element.indices:
                sampled.points.evaluate(index)
            return None
        if element.item is not None and not isinstance(element.item, int):
            raise _DataDependent
        source = self.sources[element.tensor, element.item if isinstance(element.item, int) else None]
        shape = [_known(substitute(extent, self.numbers)) for extent in self.given[source].shape]
        places = sampled.points.flatten(element, shape)
        first = sampled.starts.flatten(element, shape)
        target = self._flat(formula.targets[0], sampled.points)
        guarded = any(isinstance(item, Guard) for item in element.indices)
        return Read(source, places, first, target, sampled.steps, sampled.reduced_steps, guarded)

    def _flat(self, target: Element, points: _Steps) -> Places:
        """Where a target is written; items of a pack of results are counted one by one."""
        out = self.results[target.tensor]
        items = tensors(out)
        item = items[target.item] if isinstance(target.item, int) else items[0]
        shape = [_known(substitute(extent, self.numbers)) for extent in item.shape]
        return points.flatten(target, shape)

    def _are_parts(self, formulas: Sequence[Contraction]) -> bool:
        """Whether each result is a view by itself, as the parts of a split tensor are."""
        targets = [item.targets[0] for item in formulas if len(item.targets) == 1]
        names = {(item.tensor, item.item) for item in targets if isinstance(item.item, int)}
        steps = sum(prod(_known(loop.extent) for loop in item.loops) for item in formulas)
        return len(names) == len(formulas) and all(map(_is_plain, targets)) and steps == self.size

    def _is_pointwise(self, formula: Contraction) -> bool:
        """Whether every element of the output is assigned once, or a sum of one step, as gradients are."""
        if formula.sign not in (*ASSIGNMENTS, "+=") or formula.condition is not None:
            return False
        if any(isinstance(item, Guard) for item in formula.targets[0].indices):
            return False
        # Each step writes a place of its own inside the output; as many steps as places cover them all.
        return prod(_known(loop.extent) for loop in formula.loops) == self.size


_STRONGEST = (Kind.OPAQUE, Kind.GATHER, Kind.SCAN, Kind.CONTRACT, Kind.REDUCE)


def _places_of(instance: Instance, operation: Operation) -> dict[tuple[str, int | None], int]:
    """The number of each input tensor by the name that the formulas give it, and by its item in a pack."""
    found: dict[tuple[str, int | None], int] = {}
    count = 0
    for (name, _), argument in zip(instance.inputs, operation.inputs, strict=False):
        if isinstance(argument, Tensor):
            found[name, None] = count
            count += 1
        elif isinstance(argument, tuple):
            for item in range(len(argument)):
                found[name, item] = count
                count += 1
    return found


def is_identity(read: Read, source: int, size: int) -> bool:
    """Whether an access reads the element of the same row-major place, of a tensor of the same size."""
    return source == size and bool(np.array_equal(read.places, read.targets))


# --- steps of a formula ---------------------------------------------------------------------------------------


class _Samples:
    """Steps of a formula at which its indices are evaluated: corners, single steps, random ones."""

    def __init__(self, formula: Contraction) -> None:
        extents = {loop.index: _known(loop.extent) for loop in formula.loops}
        if any(extent <= 0 for extent in extents.values()):
            raise _Irregular
        names = list(extents)
        self.free = {
            item.name for target in formula.targets for item in reachable(target) if isinstance(item, Index)
        }
        self.reduced = [name for name in names if name not in self.free and extents[name] > 1]
        self.extents = extents
        self.steps = prod(extents.values())
        self.reduced_steps = prod(extents[name] for name in self.reduced)
        source = np.random.default_rng(len(names))
        rows = [np.zeros((2 + len(names), len(names)), np.int64)]
        rows[0][1] = [extents[name] - 1 for name in names]
        for number, name in enumerate(names):
            rows[0][2 + number, number] = min(1, extents[name] - 1)
        limits = np.array([extents[name] for name in names], np.int64)
        rows.append(source.integers(0, np.maximum(limits, 1), (POINTS, len(names))))
        table = np.concatenate(rows)
        zero = np.zeros(len(table), np.int64)
        points = {name: table[:, number] for number, name in enumerate(names)}
        starts = {name: zero if name in self.reduced else item for name, item in points.items()}
        self.points, self.starts = _Steps(points, len(table)), _Steps(starts, len(table))


class _Steps:
    """Where each loop of a formula stands at sampled steps, and the values of integer terms there.

    Terms form a graph: `z1 = z0 * z0, z2 = z1 * z1 …` has as many paths as a power of two, so each is evaluated once.
    """

    def __init__(self, points: Mapping[str, Places], count: int) -> None:
        self._points = points
        self._count = count
        self._values: dict[int, Places] = {}

    def flatten(self, element: Element, shape: Sequence[int]) -> Places:
        """The row-major places that an access touches."""
        found = np.zeros(self._count, np.int64)
        for index, extent in zip(element.indices, shape, strict=True):
            found = found * extent + self.evaluate(index)
        return found

    def evaluate(self, term: Scalar | Guard) -> Places:
        """An integer term."""
        if id(term) not in self._values:
            self._values[id(term)] = self._evaluate(term)
        return self._values[id(term)]

    def _evaluate(self, term: Scalar | Guard) -> Places:
        if isinstance(term, Guard):
            if term.below is not None or term.above is not None:
                raise _Irregular
            return self.evaluate(term.index)
        if isinstance(term, Index):
            return self._points[term.name]
        if isinstance(term, bool | int):
            if not -LARGEST < term < LARGEST:
                raise _Irregular
            return np.full(self._count, int(term), np.int64)
        if isinstance(term, Element):
            raise _DataDependent
        if isinstance(term, Apply):
            return _apply(term, [self.evaluate(item) for item in term.operands])
        if isinstance(term, Lookup):
            table = np.stack([self.evaluate(item) for item in term.table])
            picked = np.clip(self.evaluate(term.index), 0, len(table) - 1)
            return np.asarray(table[picked, np.arange(len(picked))], np.int64)
        raise _Irregular


def _apply(term: Apply, values: list[Places]) -> Places:
    if term.function == "neg":
        return -values[0]
    if term.function == "?:":
        return np.where(values[0] != 0, values[1], values[2])
    if len(values) != 2 or term.function not in _FUNCTIONS:
        raise _Irregular
    left, right = values
    if term.function in ("/", "\\", "%") and not right.all():
        raise _Irregular
    found: Places = np.asarray(_FUNCTIONS[term.function](left, right), np.int64)
    return found


def _divide_up(left: Places, right: Places) -> Places:
    return -(-left // right)


_FUNCTIONS: Mapping[str, Callable[[Places, Places], npt.NDArray[np.generic]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.floor_divide,
    "\\": _divide_up,
    "%": np.remainder,
    "<<": np.minimum,
    ">>": np.maximum,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "&&": np.logical_and,
    "||": np.logical_or,
}


# --- terms ----------------------------------------------------------------------------------------------------


def _terms(formula: Contraction) -> Iterator[object]:
    condition = () if formula.condition is None else (formula.condition,)
    yield from reachable(*formula.targets, *formula.values, *condition)


def _elements(formula: Contraction) -> Iterator[Element]:
    return (item for item in _terms(formula) if isinstance(item, Element))


def _is_plain(target: Element) -> bool:
    return all(isinstance(item, Index | int) for item in target.indices)


def _is_moving(formula: Contraction) -> bool:
    return formula.sign in ASSIGNMENTS and all(isinstance(item, Element) for item in formula.values)


def _is_affine(formula: Contraction) -> bool:
    """Whether no index tests, divides or chooses: sums of multiples of loops alone."""
    applied = [item for item in _terms(formula) if isinstance(item, Apply | Guard | Lookup)]
    return all(isinstance(item, Apply) and item.function in ("+", "-", "*", "neg") for item in applied)


def _is_product(value: Scalar) -> bool:
    """Whether a value is a product of elements of two places."""
    found = {(item.tensor, item.item, item.indices) for factor in _factors(value) for item in _first(factor)}
    return len([1 for factor in _factors(value) if any(_first(factor))]) > 1 and len(found) > 1


def _factors(value: Scalar) -> list[Scalar]:
    if isinstance(value, Apply) and value.function == "*":
        return [factor for item in value.operands for factor in _factors(item)]
    if isinstance(value, Apply) and value.function == "cast":
        return _factors(value.operands[0])
    return [value]


def _first(factor: Scalar) -> list[Element]:
    return [item for item in reachable(factor) if isinstance(item, Element)]


def _is_prefix(index: object, extent: int, sampled: _Samples) -> bool:
    """Whether a tested index runs from an output's place to an end of its dimension: `x[|i - k|], k < n`."""
    if not isinstance(index, Guard):
        return False
    names = {item.name for item in reachable(index.index) if isinstance(item, Index)}
    inner = [sampled.extents[name] for name in names - sampled.free]
    outer = [sampled.extents[name] for name in names & sampled.free]
    return max(inner, default=0) >= extent > 1 and max(outer, default=0) > 1


def cost_of(formula: Contraction) -> int:
    """Floating-point operations of one step, in additions."""
    joined = 0 if formula.sign in ASSIGNMENTS else 1
    applied = [item for item in reachable(*formula.values) if isinstance(item, Apply)]
    return joined + sum(_price(item) for item in applied if item.type == "real")


def _price(term: Apply) -> int:
    if term.function in CHEAP:
        return CHEAP[term.function]
    if term.function in COSTLY:
        return COSTLY[term.function]
    return 1 if len(term.operands) > 1 else FUNCTION_COST
