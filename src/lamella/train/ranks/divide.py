"""The model of one rank of a mesh: what annotations say of parameters, as slices, and a graph that works on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from lamella.base.errors import InputError
from lamella.graph.nodes import Graph, Operation, Tensor, tensors
from lamella.train.ranks.asked import find_asked, require_sizes
from lamella.train.ranks.division import AxisRank, Division, Exchange, LocalData, Wishes, next_number
from lamella.train.ranks.experts import EIGHTHS, ExpertDivision, NeedsWholeError, wanted_home
from lamella.train.ranks.layout import Layout, Shard
from lamella.train.ranks.maxima import find_maxima, share_maxima
from lamella.train.ranks.mesh import Mesh
from lamella.train.ranks.rules import ELEMENTWISE, head_parts
from lamella.train.sources import TrainableGraph
from lamella.train.step import EXCHANGES, STAGES

NUMBERS: Mapping[str, int] = MappingProxyType(
    {"dp": EXCHANGES + 1, "pp": STAGES, "ep": EXCHANGES + 3, "tp": EXCHANGES + 4}
)
"""The numbers of the calls of a graph that sum over the ranks of an axis."""
STRATEGIES: Mapping[str, tuple[str, int]] = MappingProxyType(
    {"column": ("tp", 0), "head": ("tp", 0), "row": ("tp", 1), "expert": ("ep", 0)}
)
"""The axis of the mesh, and the axis of a parameter, along which `@shard` divides; other strategies leave it whole."""
DEPTH = 8
"""Operations between a product and the place where its parts part."""


@dataclass(frozen=True, slots=True)
class Slices:
    """How a parameter is divided, and which slice a rank has."""

    layout: Shard
    place: AxisRank


@dataclass(frozen=True, slots=True)
class DividedModel:
    """What one rank has of a model."""

    source: TrainableGraph
    slices: Mapping[str, Slices]
    """By the variables that are divided."""
    exchanges: tuple[Exchange, ...]
    """What the graph does with others, in its order."""
    stored: frozenset[str] = frozenset()
    """Variables that are slices only where they are stored: the graph gathers them, and sums their gradients."""


def divide(source: TrainableGraph, mesh: Mesh, rank: int, eighths: int = EIGHTHS) -> DividedModel:
    """The model of a rank, stages left aside; ranks of ep have so many eighths of an even share for each other."""
    require_sizes(source, mesh)
    position = mesh.position(rank)
    made = DividedModel(source, {}, ())
    for axis in ("tp", "ep", "dp"):
        first = next_number(made.exchanges)
        place = AxisRank(axis, position[axis], mesh.extents[axis], NUMBERS[axis], first)
        if place.ranks > 1:
            made = _divided(made, place, eighths)
    if mesh.shares == 1:
        return made
    maxima = {item.name for item in find_maxima(source.model)}
    model, exchanges = share_maxima(made.source.model, maxima, mesh, made.exchanges)
    return replace(made, source=replace(made.source, model=model), exchanges=(*made.exchanges, *exchanges))


def _divided(made: DividedModel, place: AxisRank, eighths: int) -> DividedModel:
    """The model, divided along one more axis."""
    source, is_stored = made.source, place.axis == "dp"
    layouts = _streamed(made, place.ranks) if is_stored else _layouts(source, place.axis, place.ranks)
    division = _division(source, layouts, place, eighths)
    if division is None:
        return made
    outputs: dict[str, Layout] = {source.gradients[name]: layouts.get(name) for name in source.gradients}
    try:
        model = division.run(outputs)
    except NeedsWholeError:  # gathered weights have gradients that every rank has as a whole
        division = ExpertDivision(source.model, layouts, place, eighths, wanted_home(source), is_plain=True)
        model = division.run(outputs)
    data = LocalData(model.data or {}, layouts, place.rank, place.ranks)
    stages = {name: source.stages[old] for name, old in division.made_for.items() if old in source.stages}
    divided = {**source.divided, **dict.fromkeys(layouts, place.number)}
    return DividedModel(
        replace(source, model=replace(model, data=data), divided=divided, stages=stages),
        {**made.slices, **{name: Slices(layout, place) for name, layout in layouts.items()}},
        (*made.exchanges, *division.exchanges),
        made.stored | (frozenset(layouts) if is_stored else frozenset()),
    )


def _division(
    source: TrainableGraph, layouts: Mapping[str, Shard], place: AxisRank, eighths: int
) -> Division | None:
    """What rewrites the graph for an axis; None where nothing is divided."""
    if place.axis == "ep":
        return ExpertDivision(source.model, layouts, place, eighths, wanted_home(source))
    is_stored = place.axis == "dp"
    asked = {} if is_stored else find_asked(source, place.axis, place.ranks)
    if not layouts and not asked:
        return None
    at_once = {name for name, item in source.policies.items() if not item.mark.is_later}
    return Division(source.model, layouts, place, Wishes(asked, at_once, is_stored))


# --- what annotations say ---------------------------------------------------------------------------------------


def _layouts(source: TrainableGraph, axis: str, ranks: int) -> dict[str, Shard]:
    """The layouts of the parameters that annotations divide along an axis of the mesh."""
    found: dict[str, Shard] = {}
    parting = _Parting(source.model.graph)
    for item in source.model.graph.variables:
        mesh_axis, own = STRATEGIES.get(source.policy(item.name).mark.strategy, ("", 0))
        if mesh_axis != axis or own >= len(item.shape):
            continue  # a vector beside a matrix whose rows are divided is added once, by every rank
        extent = item.shape[own]
        if not isinstance(extent, int):
            continue
        parts = parting.parts(item) if own == 0 and axis == "tp" else None
        layout = Shard(own, parts if parts is not None and sum(parts) == extent else (extent,))
        if not layout.fits(ranks):
            sizes = " + ".join(map(str, layout.parts))
            raise InputError(
                f"'{source.policy(item.name).path[:80]}' has {sizes} along axis {own}, "
                f"which {ranks} ranks cannot divide",
                hint=f"choose {axis} so that it divides that, or say @shard(replicated)",
            )
        found[item.name] = layout
    if not found and (axis == "ep" or not find_asked(source, axis, ranks)):
        strategies = "expert" if axis == "ep" else "column or row"
        raise InputError(
            f"no parameter is divided along {axis}", hint=f"annotate parameters with @shard: {strategies}"
        )
    return found


def _streamed(made: DividedModel, ranks: int) -> dict[str, Shard]:
    """Parameters with `@memory(stream)` that are not divided otherwise, along their first axis."""
    source = made.source
    found: dict[str, Shard] = {}
    for item in source.model.graph.variables:
        extent = item.shape[0] if item.shape else None
        if source.policy(item.name).is_streamed and item.name not in made.slices and isinstance(extent, int):
            layout = Shard(0, (extent,))
            found |= {item.name: layout} if layout.fits(ranks) else {}
    return found


class _Parting:
    """Finds the places where the results of fused projections are split."""

    def __init__(self, graph: Graph) -> None:
        self._readers: dict[str, list[Operation]] = {}
        for node in graph.operations():
            for item in _inputs(node):
                self._readers.setdefault(item.name, []).append(node)

    def parts(self, parameter: Tensor) -> tuple[int, ...] | None:
        """The extents into which what a parameter makes is split; None where it is not."""
        for node in self._readers.get(parameter.name, ()):
            second = _inputs(node)[1:2]
            if (
                node.operator in ("llm.matmul", "llm.bias_add")
                and second
                and second[0].name == parameter.name
            ):
                found = self._follow(node, DEPTH)
                if found is not None:
                    return found
        return None

    def _follow(self, node: Operation, depth: int) -> tuple[int, ...] | None:
        (result, *_) = (item for argument in node.outputs for item in tensors(argument))
        for reader in self._readers.get(result.name, ()) if depth else ():
            if reader.operator == "llm.split" and dict(reader.attributes).get("dim") in (
                -1,
                len(result.shape) - 1,
            ):
                return _extents(dict(reader.attributes).get("sizes"))
            if reader.operator == "llm.split_and_reshape":
                return head_parts([item for argument in reader.outputs for item in tensors(argument)])
            if reader.operator == "llm.bias_add" or reader.operator in ELEMENTWISE:
                found = self._follow(reader, depth - 1)
                if found is not None:
                    return found
        return None


def _inputs(node: Operation) -> Sequence[Tensor]:
    return [item for argument in node.inputs for item in tensors(argument)]


def _extents(sizes: object) -> tuple[int, ...] | None:
    found: Iterator[object] = iter(sizes if isinstance(sizes, tuple) else ())
    known = tuple(item for item in found if isinstance(item, int))
    return known if isinstance(sizes, tuple) and len(known) == len(sizes) else None


__all__ = ["NUMBERS", "DividedModel", "Slices", "divide"]
