"""Schedule IR: in which order, on which stream, and where in memory."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.bridge.module_to_ir.nodes.graph import Symbol


@dataclass(frozen=True, slots=True)
class BufferAlias:
    """Memory that belongs to another buffer: which, and how far behind its start."""

    buffer: str
    offset: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of one tensor; a size is a number of bytes, or the id of an expression where it is negative.

    It is in use from the start of op `first` to the end of op `last`; what is there before the first op begins at -1.
    One that aliases another has that one's pool and an offset in it.
    """

    id: str
    tensor: str
    kind: str
    dtype: str
    bytes: int
    first: int
    last: int
    pool: str
    offset: int
    aliases: tuple[BufferAlias, ...] = ()


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A part of a buffer that an op reads or writes."""

    buffer: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ScheduledOp:
    """An op in its turn: the kernel, its memory, its stream, and the node of the graph that it is."""

    order: int
    kernel: str
    node: str
    inputs: tuple[BufferRef, ...]
    outputs: tuple[BufferRef, ...]
    stream: str
    layer: int | None = None
    hook: str | None = None


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """Where streams wait for each other: before op `before`, `stream` waits until op `after_op` is done."""

    after_op: int
    before: int
    stream: str
    kind: str
    group: str


@dataclass(frozen=True, slots=True)
class LayoutField:
    """A tensor in a layout: where it begins, and how long it is."""

    name: str
    offset: int
    bytes: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Tensors that lie together in one block of memory."""

    fields: tuple[LayoutField, ...]
    total: int


@dataclass(frozen=True, slots=True)
class ActivationLayout(Layout):
    """The activations that outlive the forward pass."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A block of memory from which buffers take theirs."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes of one kind of buffers that are in use at once, and without reuse of memory."""

    kind: str
    bytes: int
    unshared: int


@dataclass(frozen=True, slots=True)
class ScheduleIR:
    """An execution plan."""

    format: str
    name: str
    alignment: int
    symbols: tuple[Symbol, ...]
    ops: tuple[ScheduledOp, ...]
    buffers: tuple[Buffer, ...]
    pools: tuple[Pool, ...]
    sync_points: tuple[SyncPoint, ...]
    activation_layout: ActivationLayout
    gradient_layout: Layout
    peaks: tuple[Peak, ...]
