"""Where the text of a model wants tensors to lie among ranks: what `@shard` and `@comm` say, as layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lamella.base.errors import InputError
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import defined
from lamella.train.ranks.layout import Layout, Shard
from lamella.train.ranks.mesh import Mesh
from lamella.train.ranks.rules import HEADS
from lamella.train.sources import TensorMark, TrainableGraph

WHOLE = ("all_reduce", "all_gather", "broadcast", "send", "recv")
"""Exchanges behind which every rank has the whole tensor."""
AXES: Mapping[str, str] = {
    "column": "tp",
    "row": "tp",
    "head": "tp",
    "sequence": "tp",
    "replicated": "tp",
    "expert": "ep",
    "batch": "dp",
}
"""The axis of the mesh that a strategy speaks of; ranks of dp have parts of every batch anyway."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of one tensor."""

    layout: Layout = None
    is_scattered: bool = True
    is_later: bool = True
    product: str = ""
    """Whether the product that makes it is to be divided: by column, or by row; empty where nothing is said of it."""
    is_turned: bool = False
    """Whether it is cut along another dimension than what comes: along the sequence or, where it was, along heads."""


def find_asked(source: TrainableGraph, axis: str, ranks: int) -> dict[str, Asked]:
    """What the text asks of tensors along an axis of the mesh, by tensor."""
    tensors = {item.name: item for item in defined(source.model.graph) if isinstance(item, Tensor)}
    found: dict[str, Asked] = {}
    for name, mark in source.marks.items():
        if name in tensors and _axis(mark) in (axis, ""):
            asked = _asked(tensors[name], mark)
            if asked.layout is not None and not asked.layout.fits(ranks):
                extent = asked.layout.parts[0]
                hint = f"choose {axis} so that it divides that"
                raise InputError(
                    f"'{name[:80]}' has {extent} slices, which {ranks} ranks cannot share", hint=hint
                )
            found[name] = asked
    return found


def _axis(mark: TensorMark) -> str:
    """The axis of the mesh that a mark speaks of; empty for any."""
    if mark.group != "default":
        return mark.group
    return AXES.get(mark.strategy, "")


def _asked(tensor: Tensor, mark: TensorMark) -> Asked:
    rank = len(tensor.shape)
    layout: Layout = None
    if mark.exchange == "reduce_scatter" or (mark.strategy == "sequence" and mark.exchange not in WHOLE):
        layout = _cut(tensor, 1 if rank == 3 else max(rank - 2, 0))
    elif mark.strategy == "head" and not mark.exchange:
        layout = _cut(tensor, HEADS if rank == 4 else rank - 1)
    elif mark.strategy == "column" and not mark.exchange:
        layout = _cut(tensor, rank - 1)
    elif mark.strategy == "expert" and not mark.exchange:
        layout = _cut(tensor, 0)
    product = mark.strategy if mark.strategy in ("column", "row") else ""
    return Asked(layout, mark.is_scattered, mark.is_later, product, mark.exchange == "all_to_all")


def _cut(tensor: Tensor, axis: int) -> Shard:
    extent = tensor.shape[axis] if tensor.shape else None
    if isinstance(extent, int):
        return Shard(axis, (extent,))
    hint = f"say --sequence N, or --shape {extent}=N to look at it, so that every rank knows its slice"
    raise InputError(
        f"'{tensor.name[:80]}' is cut along {extent}, which is not known before the data", hint=hint
    )


def turned(layout: Shard, rank: int) -> int:
    """The dimension along which an all-to-all cuts what is cut along another one."""
    sequence = 1 if rank == 3 else max(rank - 2, 0)
    return (HEADS if rank == 4 else rank - 1) if layout.axis == sequence else sequence


def require_sizes(source: TrainableGraph, mesh: Mesh) -> None:
    """InputError where the text is written for another mesh."""
    for name, mark in _marks(source):
        for axis, size in mark.sizes.items():
            if mesh.extents[axis] > 1 and size != mesh.extents[axis]:
                raise InputError(
                    f"'{name[:80]}' is written for {axis}={size}, and there is {axis}={mesh.extents[axis]}",
                    hint=f"say {axis}={size}, or leave {axis}_size out of its @shard",
                )


def _marks(source: TrainableGraph) -> Iterator[tuple[str, TensorMark]]:
    yield from source.marks.items()
    yield from ((item.path, item.mark) for item in source.policies.values())


__all__ = ["Asked", "find_asked", "require_sizes", "turned"]
