"""Two models beside each other, or one on two backends: interfaces, weights, operations, numbers.

This is what `lamella diff` reports. Operations are aligned by operator and type, both models run on the same random
inputs with every aligned tensor as an output, and the first pair of tensors that parts names the first diverging
operation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, printable
from lamella.base.dim import Extent, bounds, symbols
from lamella.base.errors import Found, InputError
from lamella.bridge.hf_to_module import is_model_folder
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Graph, Operation, Tensor, tensors
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.graph.rewrite import copy_of
from lamella.pipeline.arrays import file_name, write_array
from lamella.pipeline.backends import make_executable
from lamella.pipeline.languages import MODULE, NAC, SKRIPTND, language_of
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.execution import write_model

TOLERANCE = 1e-5
"""How far results may lie apart, in parts of the largest number."""
MOST = 20_000
"""Operations that are aligned by what they are; of larger graphs the n-th is taken for the n-th."""
DEFAULT_EXTENT = 4
"""The size of an extent that both models leave open under different names."""
LISTED = 4
"""Variables that are listed by name where only one model has them; of more, only the number is given."""
MACHINE, REFERENCE = "nacvm", "reference"


# --- loading ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two models, and the backend that it runs on; None is the reference."""

    model: Model
    backend: str | None = None
    notes: tuple[str, ...] = ()


def load_sides(paths: Sequence[Path], backends: Sequence[str], options: Options) -> tuple[Side, Side]:
    """Both sides of a comparison: two models, or one model on two backends.

    A module without weights of its own takes those of the Hugging Face folder beside it. Extents that one model
    leaves open and the other does not get the other's size; `shape` speaks of the side that has such an extent.
    """
    if len(backends) > 2:
        raise InputError(f"{len(backends)} backends are given, for two sides", hint="name one or two")
    if len(paths) == 1 and len(backends) != 2:
        hint = "name a second model, or two backends: --backend reference --backend cpu"
        raise InputError("one model on one backend has nothing to be compared with", hint=hint)
    loaded = [_load(path, paths, options) for path in paths]
    shaped = _with_extents([side.model for side in loaded], options)
    sides = [replace(side, model=model) for side, model in zip(loaded, shaped, strict=True)]
    chosen: list[str | None] = [None, None]
    if backends:
        chosen = [backends[0], backends[-1]]
    left, right = (replace(side, backend=name) for side, name in zip((sides * 2)[:2], chosen, strict=True))
    return left, right


def _load(path: Path, paths: Sequence[Path], options: Options) -> Side:
    """The graph of a file in any language that has one."""
    chosen = replace(options, shape={})
    notes: tuple[str, ...] = ()
    language = language_of(path, options.language)
    folder = next((item for item in paths if item != path and is_model_folder(item)), None)
    if language is MODULE and options.weights is None and folder is not None:
        chosen, notes = replace(chosen, weights=folder), (f"{path}: weights of {folder}",)
    model = language.load(path, chosen)
    if language is NAC:
        model = NAC.lower(model, "sknd", chosen)
    if not isinstance(model, Model):
        raise InputError(
            f"'{path}' is no graph but {model.language}",
            hint="compare .sknd, .nac, .module, .pt2 or Hugging Face folders",
        )
    return Side(model, notes=notes)


def _with_extents(models: Sequence[Model], options: Options) -> list[Model]:
    """The models with the extents that the user gives, each of those that it has, and with each other's sizes."""
    owned = [_open_extents(model.graph) for model in models]
    unknown = [name for name in options.shape if not any(name in names for names in owned)]
    if unknown:
        known = ", ".join(sorted(set().union(*owned))) or "none"
        raise InputError(f"there is no open extent '{unknown[0][:80]}'", hint=f"open extents are: {known}")
    given = [{name: size for name, size in options.shape.items() if name in names} for names in owned]
    models = [_specialised(model, values) for model, values in zip(models, given, strict=True)]
    if len(models) == 1:
        return list(models)
    left, right = models
    sizes = _common_sizes(left.graph, right.graph)
    return [_specialised(left, sizes[0]), _specialised(right, sizes[1])]


def _open_extents(graph: Graph) -> set[str]:
    """The names of the extents that the inputs of a graph leave open."""
    shapes = (item.shape for argument in graph.inputs for item in tensors(argument))
    return {symbol.name for shape in shapes for extent in shape for symbol in symbols(extent)}


def _specialised(model: Model, values: Mapping[str, int]) -> Model:
    if not values:
        return model
    try:
        return specialise_shapes(model, values)
    except Found as problem:
        raise LamellaError(problem.findings) from None


def _common_sizes(left: Graph, right: Graph) -> tuple[dict[str, int], dict[str, int]]:
    """Sizes for extents that are open on one side only, or that bear two names, by the places of inputs."""
    found: tuple[dict[str, int], dict[str, int]] = ({}, {})
    one, other = (_listed(graph.inputs) for graph in (left, right))
    for mine, theirs in zip(one, other, strict=False):
        for pair in zip(mine.shape, theirs.shape, strict=False):
            if pair[0] == pair[1]:
                continue
            size = _size_for(pair, found)
            for extent, values in zip(pair, found, strict=True):
                name = _name(extent)
                if name is not None and size is not None:
                    values.setdefault(name, size)
    return found


def _size_for(pair: tuple[Extent, Extent], found: tuple[dict[str, int], dict[str, int]]) -> int | None:
    """One size for two extents: what is known of either, else a small one that both allow."""
    for extent, values in zip(pair, found, strict=True):
        name = _name(extent)
        if isinstance(extent, int):
            return extent
        if name in values:
            return values[name]
    low, high = max(bounds(item)[0] for item in pair), min(bounds(item)[1] for item in pair)
    return min(max(low, DEFAULT_EXTENT), high) if low <= high else None


def _name(extent: Extent) -> str | None:
    """The name of an extent that is nothing but open; None of a number and of a computed one."""
    found = list(symbols(extent))
    return found[0].name if len(found) == 1 and str(extent) == found[0].name else None


# --- alignment ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alignment:
    """Operations that are the same in both graphs, in order, and those that only one has."""

    pairs: tuple[tuple[Operation, Operation], ...]
    left: tuple[Operation, ...]
    right: tuple[Operation, ...]


def align(left: Graph, right: Graph) -> Alignment:
    """The longest runs of operations with equal operators and types, those of regions left aside."""
    one, other = _operations(left), _operations(right)
    keys = [_key(item) for item in one], [_key(item) for item in other]
    if max(len(one), len(other)) > MOST:
        pairs = [(a, b) for a, b in zip(one, other, strict=False) if _key(a) == _key(b)]
    else:
        blocks = SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks()
        pairs = [
            (one[block.a + step], other[block.b + step]) for block in blocks for step in range(block.size)
        ]
    seen = {id(item) for pair in pairs for item in pair}
    return Alignment(
        tuple(pairs),
        tuple(item for item in one if id(item) not in seen),
        tuple(item for item in other if id(item) not in seen),
    )


def _operations(graph: Graph) -> list[Operation]:
    return [node for node in graph.nodes if isinstance(node, Operation)]


def _key(operation: Operation) -> tuple[object, ...]:
    return operation.operator, tuple((item.element, item.shape) for item in _listed(operation.outputs))


def _listed(arguments: Iterable[Argument]) -> list[Tensor]:
    """The tensors of arguments, in order."""
    return [item for argument in arguments for item in tensors(argument)]


# --- numbers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Apart:
    """How far two arrays are from each other, and the largest number of the first."""

    name: str
    largest: float
    scale: float
    unlike: str = ""
    """Why the arrays cannot be compared: their types or shapes."""

    @property
    def relative(self) -> float:
        """The difference in parts of the largest number; infinite where shapes or types differ."""
        return self.largest / self.scale if self.scale else self.largest


@dataclass(frozen=True, slots=True)
class Diverging:
    """A pair of operations whose results differ although all before them agree."""

    left: Operation
    right: Operation
    apart: Apart


def apart(name: str, one: Array, other: Array) -> Apart:
    """The largest difference of two arrays; equal infinities and NaN are no difference."""
    if one.shape != other.shape or one.dtype != other.dtype:
        left, right = (f"{item.dtype}[{', '.join(map(str, item.shape))}]" for item in (one, other))
        return Apart(name, math.inf, 1.0, f"{left} against {right}")
    first, second = (item.astype(np.float64) for item in (one, other))
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        gaps = np.where(same, 0.0, np.abs(first - second))
    largest = float(gaps.max(initial=0.0))
    scale = float(np.abs(first[np.isfinite(first)]).max(initial=0.0))
    return Apart(name, math.inf if math.isnan(largest) else largest, scale)


def values_of(
    side: Side, wanted: Iterable[Tensor], options: Options, inputs: Mapping[str, Array] | None = None
) -> Mapping[str, Array]:
    """What some tensors of a model hold in a run on its backend; inputs that are not given are random."""
    model = side.model
    copies = {
        f"value of {item.name}": (item, replace(item, name=f"value of {item.name}", quantization=None))
        for item in wanted
    }
    nodes = (*model.graph.nodes, *(copy_of(*pair) for pair in copies.values()))
    outputs = tuple(copy for _, copy in copies.values())
    observed = replace(model, graph=replace(model.graph, nodes=nodes, outputs=outputs, updates=()))
    options = replace(options, shape={}, types={}, weights=None, random=True)  # what loading has honoured
    run = make_executable(
        SKRIPTND.lower(observed, "nac", options) if side.backend == MACHINE else observed,
        side.backend or REFERENCE,
        options,
    )
    found = run(**(inputs or {}))
    return {copies[name][0].name: array for name, array in found.items()}


def find_diverging(
    alignment: Alignment, one: Mapping[str, Array], other: Mapping[str, Array], tolerance: float
) -> Diverging | None:
    """The first pair of operations whose results differ by more than a tolerance."""
    for left, right in alignment.pairs:
        for mine, theirs in zip(_listed(left.outputs), _listed(right.outputs), strict=True):
            gap = apart(mine.name, one[mine.name], other[theirs.name])
            if gap.relative > tolerance:
                return Diverging(left, right, gap)
    return None


# --- comparison ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two models have in common and what not; numbers only where both take the same inputs."""

    interface: tuple[str, ...]
    weights: tuple[Apart, ...]
    alignment: Alignment
    outputs: tuple[Apart, ...] = ()
    diverging: Diverging | None = None
    compared: bool = False
    backends: tuple[str | None, str | None] = (None, None)

    def agrees(self, tolerance: float) -> bool:
        """Whether both were run and their outputs are the same within a tolerance; other code may be in between."""
        return self.compared and all(item.relative <= tolerance for item in self.outputs)


def compare(left: Side, right: Side, options: Options, tolerance: float = TOLERANCE) -> Comparison:
    """The differences of two models, and of their numbers on the same random inputs."""
    graphs = left.model.graph, right.model.graph
    interface = tuple(_compare_interfaces(*graphs))
    weights = tuple(_compare_weights(left.model, right.model))
    found = Comparison(interface, weights, align(*graphs), backends=(left.backend, right.backend))
    if not _same_ends(*graphs):
        return found
    pairs = found.alignment.pairs
    wanted = [_wanted(graph, [pair[side] for pair in pairs]) for side, graph in enumerate(graphs)]
    inputs = [_listed(graph.inputs) for graph in graphs]
    # The reference draws the inputs, whatever runs the left side, and both sides are given the same arrays.
    drawn = values_of(Side(left.model), inputs[0], options)
    given = [drawn[item.name] for item in inputs[0]]
    one, other = (
        values_of(
            side, wanted[at], options, {item.name: x for item, x in zip(inputs[at], given, strict=True)}
        )
        for at, side in enumerate((left, right))
    )
    ends = zip(*(_listed(graph.outputs) for graph in graphs), strict=True)
    outputs = tuple(apart(mine.name, one[mine.name], other[theirs.name]) for mine, theirs in ends)
    diverging = find_diverging(found.alignment, one, other, tolerance)
    return replace(found, outputs=outputs, diverging=diverging, compared=True)


def _wanted(graph: Graph, operations: Iterable[Operation]) -> list[Tensor]:
    found = _listed(graph.outputs)
    found += [item for operation in operations for item in _listed(operation.outputs)]
    return list({item.name: item for item in found}.values())


def _same_ends(left: Graph, right: Graph) -> bool:
    """Whether two graphs take and give the same types in the same order, whatever the names are."""
    return all(
        [(item.element, item.shape) for item in _listed(one)]
        == [(item.element, item.shape) for item in _listed(other)]
        for one, other in ((left.inputs, right.inputs), (left.outputs, right.outputs))
    )


def _compare_interfaces(left: Graph, right: Graph) -> Iterator[str]:
    for what in ("inputs", "outputs", "variables"):
        one, other = (_types(getattr(graph, what)) for graph in (left, right))
        differing = [name for name in one | other if one.get(name) != other.get(name)]
        absent = [name for name in differing if name not in one or name not in other]
        if what == "variables" and len(absent) > LISTED:
            yield f"variables: {len(one.keys() - other)} only left, {len(other.keys() - one)} only right"
            differing = [name for name in differing if name in one and name in other]
        for name in differing:
            sides = (one.get(name, "absent"), other.get(name, "absent"))
            yield f"{what[:-1]} {printable(name)}: {sides[0]} | {sides[1]}"


def _types(arguments: tuple[Argument, ...]) -> dict[str, str]:
    return {
        item.name: f"{item.element}[{', '.join(map(_extent, item.shape))}]" for item in _listed(arguments)
    }


def _extent(extent: Extent) -> str:
    """An extent with its range where it is open: two of one name may differ in that alone."""
    low, high = bounds(extent)
    return str(extent) if low == high else f"{extent} of {low} to {high}"


def _compare_weights(left: Model, right: Model) -> Iterator[Apart]:
    """Variables of both models whose numbers differ."""
    one, other = left.data or {}, right.data or {}
    if one is other:
        return
    for name in one:
        if name in other:
            gap = apart(name, one[name], other[name])
            if gap.largest:
                yield gap


# --- reports ------------------------------------------------------------------------------------------------


def comparison_lines(found: Comparison) -> Iterator[str]:
    """A comparison as people read it; the first model is the left one."""
    yield from found.interface
    if any(found.backends):
        yield "backends: {} | {}".format(*(name or REFERENCE for name in found.backends))
    for item in found.weights:
        yield f"weights {printable(item.name)}: {_gap(item)}"
    sides = found.alignment
    yield f"operations: {len(sides.pairs)} in both, {len(sides.left)} only left, {len(sides.right)} only right"
    for word, operations in (("left", sides.left), ("right", sides.right)):
        if operations:
            yield f"  only {word}: {printable(_count_operators(operations), 200)}"
    if not found.compared:
        yield "numbers: not compared, because the types of inputs or outputs differ"
    for item in found.outputs:
        yield f"output {printable(item.name)}: {_gap(item)}"
    if found.diverging is not None:
        yield from _diverging_lines(found.diverging)


def _gap(item: Apart) -> str:
    return item.unlike or f"max abs {item.largest:.3g}, of numbers up to {item.scale:.3g}"


def _count_operators(operations: tuple[Operation, ...]) -> str:
    """`2 × aten.add, 1 × aten.mul`: the most frequent ones first."""
    counts = Counter(item.operator for item in operations).most_common()
    return ", ".join(f"{number} × {name}" for name, number in counts)


def _diverging_lines(found: Diverging) -> Iterator[str]:
    gap, left = found.apart, found.left
    how = gap.unlike or f"max abs {gap.largest:.3g}"
    yield f"first diverging operation: {left.operator} -> {printable(gap.name)}: {how}"
    for side, operation in (("left", left), ("right", found.right)):
        if operation.origin is not None:
            yield from (f"  {side} from {word}" for word in operation.origin.words())


def comparison_to_json(found: Comparison) -> dict[str, object]:
    """A comparison as data."""
    sides, first = found.alignment, found.diverging
    return {
        "interface": list(found.interface),
        "backends": [name or REFERENCE for name in found.backends],
        "weights": [_to_json(item) for item in found.weights],
        "operations": {"both": len(sides.pairs), "left": len(sides.left), "right": len(sides.right)},
        "outputs": [_to_json(item) for item in found.outputs],
        "compared": found.compared,
        "first_diverging": None
        if first is None
        else {"operator": first.left.operator, **_to_json(first.apart)},
    }


def _to_json(item: Apart) -> dict[str, object]:
    largest = item.largest if item.largest < float("inf") else None
    found: dict[str, object] = {"name": item.name, "max_abs": largest, "scale": item.scale}
    return {**found, "unlike": item.unlike} if item.unlike else found


def write_reproducer(side: Side, found: Diverging, folder: Path, options: Options) -> Path:
    """The diverging operation of the left model alone: a SkriptND model and one .npy for each of its inputs."""
    model = side.model
    read = {item.name: item for item in _listed(found.left.inputs)}
    constants = tuple(item for item in model.graph.constants if item.tensor.name in read)
    fixed = {item.tensor.name for item in constants}
    inputs = tuple(item for name, item in read.items() if name not in fixed)
    graph = Graph("reproducer", inputs, found.left.outputs, (found.left,), constants=constants)
    values = values_of(side, inputs, options)
    write_model(Model(graph, model.library), folder / "reproducer.sknd")
    for item in inputs:
        write_array(folder / f"{file_name(item.name)}.npy", values[item.name])
    return folder / "reproducer.sknd"
