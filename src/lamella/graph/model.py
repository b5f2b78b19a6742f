"""A model: a composed graph, the operators it calls, and the data of its variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from lamella.base.card import Card, show_html, show_line
from lamella.base.diagnostic import Diagnostic
from lamella.base.levels import at_level
from lamella.base.origin import GroupOrigin, Origin
from lamella.base.records import dataclass
from lamella.graph.blocks import cut_block
from lamella.graph.nodes import Graph
from lamella.ops.library import Library

if TYPE_CHECKING:
    from lamella.base.arrays import Array


@dataclass(frozen=True, slots=True)
class FusionHint:
    """What a model says of operations that are written together: fuse them, keep them apart, or give them a name.

    They are those that make `tensors`, and what these are decomposed into.
    """

    tensors: frozenset[str]
    is_apart: bool = False
    """Whether no group may hold one of them and something else."""
    is_together: bool = False
    """Whether they are to be one group, whatever that costs."""
    is_free: bool = False
    """Whether they may be fused with each other whatever that costs, in one group or in several."""
    kernel: str = ""
    """The name of the group that they are, by which a target may have a kernel of its own."""
    workspace: int | None = None
    """The bytes that such a kernel may take beside its operands; None where that is its own business."""
    is_tuned: bool = True
    """Whether a target may choose it by measuring."""
    reason: str = ""
    refused: Diagnostic | None = None
    """What is wrong where they cannot be one group; None where that is not asked for."""

    def holds(self, tensor: str) -> bool:
        """Whether a tensor is made by one of the operations, or inside one."""
        parts = tensor.split(".")
        return any(".".join(parts[:count]) in self.tensors for count in range(1, len(parts) + 1))


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor that others may look at while the graph runs, or change: a hook, a probe, an assertion, a trace."""

    kind: str
    """`hook`, `probe`, `assert` or `trace`."""
    name: str
    tensor: str
    path: str = ""
    layer: int | None = None
    mode: str = "observe"
    """What a hook may do: observe, modify (the array as it lies), replace (by the one that it gives)."""
    priority: int = 0
    capture: str = "stats"
    """What a probe keeps, or how much a trace tells."""
    frequency: int = 1
    """A probe looks at every so manieth call."""
    reads: tuple[str, ...] = ()
    """The tensors that its condition reads."""
    holds: Callable[[Mapping[str, Array]], bool] | None = None
    """Its condition, of those tensors; None where it has none."""
    finding: Diagnostic | None = field(default=None, compare=False)
    """Of an assertion: what is said where it does not hold."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """How a tensor that lies outside of memory comes in when it is read, and goes again."""

    is_kept: bool = False
    """Whether it stays from its first use in a run to its last, not only while it is used."""
    priority: int = 0
    """Of several, lower ones go first."""
    is_fetched: bool = True
    """Whether it is asked for ahead of its use."""
    is_waited_for: bool = False
    """Whether the run waits until what was asked for is there."""


@dataclass(frozen=True, slots=True)
class ProfiledRegion:
    """A part of the source whose time others may ask for: the paths of its operations."""

    name: str
    path: str
    operations: frozenset[str]
    has_memory: bool = False
    """Whether bytes are asked for too."""
    has_events: bool = True
    """Whether its time is that of its own launches, on a GPU by events; else that of the host's clock around them."""
    has_markers: bool = True
    """Whether it is marked in time lines."""

    def share_of(self, origin: object) -> float:
        """How much of what has an origin belongs to the region: the part of the operations that it stands for."""
        members = origin.members if isinstance(origin, GroupOrigin) and origin.members else (origin,)
        inside = (
            isinstance(member, Origin) and any(link.what in self.operations for link in member.chain())
            for member in members
        )
        return sum(inside) / len(members)


@dataclass(frozen=True, slots=True)
class Model:
    """A graph with what is needed to run it; two models are equal when their graphs are.

    Variables that `data` does not hold have no value yet.
    """

    graph: Graph
    library: Library = field(compare=False, repr=False)
    data: Mapping[str, Array] | None = field(default=None, compare=False, repr=False)
    findings: tuple[Diagnostic, ...] = field(default=(), compare=False, repr=False)
    """Warnings about the data."""
    hints: tuple[FusionHint, ...] = field(default=(), compare=False, repr=False)
    """What the source says of fusion."""
    places: tuple[Place, ...] = field(default=(), compare=False, repr=False)
    """Where a run may be watched."""
    regions: tuple[ProfiledRegion, ...] = field(default=(), compare=False, repr=False)
    """What profiles tell the time of by name."""
    streams: Mapping[str, Streaming] = field(default_factory=dict, compare=False, repr=False)
    """The variables, and the tensors of `misc.offload`, that lie outside of memory while nothing reads them."""
    fixed: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Inputs of the source for whose contents the graph is made: it does not take them any more."""

    tables: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Variables that are no parameters: the source computes them by itself, such as angles of positions."""

    @property
    def language(self) -> str:
        """The language that the model is written in."""
        return "skriptnd"

    def __getitem__(self, path: str) -> Model:
        """A block as a model of its own, by the path of its weights, such as `blocks.0.mlp`."""
        part = cut_block(self.graph, path)
        names = {item.name for item in part.variables}
        data = None if self.data is None else {name: self.data[name] for name in self.data if name in names}
        return Model(part, self.library, data)

    __repr__ = show_line
    _repr_html_ = show_html
    at = at_level

    def _card(self) -> Card:
        """The card of the graph, and what is known of its weights."""
        card = self.graph._card()
        known = 0 if self.data is None else sum(item.name in self.data for item in self.graph.variables)
        words = "weights known" if known == len(self.graph.variables) else f"{known} weights known"
        return replace(card, facts=(*card.facts, ("weights", words)) if self.graph.variables else card.facts)
