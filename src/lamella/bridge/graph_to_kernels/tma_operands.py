"""Operands of attention as matrices that TMA (the copy engine of Hopper) reads in tiles, and its grid order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels.accesses import Access, Axis, form_value
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.k_major import GRAIN, k_major_access, write_k_major_pack
from lamella.bridge.graph_to_kernels.tile_kernels import PACKED
from lamella.bridge.graph_to_kernels.tile_parameters import TileKernel
from lamella.bridge.graph_to_kernels.tiled import Key
from lamella.kernels.build import Builder
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Dictionary, DictionaryEntry, Slice, Value
from lamella.lang.tensor.nodes.types import FLOATS, INDEX, Memref

NARROW = "bf16"
TILE = 128
"""Columns of a work-group: queries or keys."""


def flatten_lines(access: Access, line: str, inner: str) -> Access:
    """An operand as a matrix: what is closer than its lines (vectors of heads perhaps), and all lines as one mode."""
    axes = [axis for axis in access.axes if axis.size > 1 or axis.index.symbols]
    places = [place for place, axis in enumerate(axes) if axis.index.coefficient(line)]
    if len(places) != 1 or places[0] == len(axes) - 1:
        raise Unsupported("a factor has no lines")
    lines, near = _joined(axes[: places[0] + 1]), _joined(axes[places[0] + 1 :])
    whole = near.stride == 1 and near.index.coefficient(inner) == lines.index.coefficient(line) == 1
    if not whole or lines.index.coefficient(inner) or lines.stride % GRAIN:
        raise Unsupported("a factor is no matrix that the copy engine reads")
    return replace(access, axes=(lines, near))


def _joined(axes: Sequence[Axis]) -> Axis:
    """Contiguous modes fused into one."""
    size, stride, index = 1, axes[-1].stride, Affine[str](0)
    for axis in reversed(axes):
        if axis.stride != stride * size or axis.ring:
            raise Unsupported("a factor is no matrix")
        index = index.plus(axis.index, size)
        size *= axis.size
    return Axis(size, stride, index)


def with_pairs(kernel: TileKernel) -> TileKernel:
    """The kernel with the alignment of pairs promised for its reals and all their rows."""
    parameters = []
    for item in kernel.parameters:
        kind = item.type
        even = isinstance(kind, Memref) and not any((step or 1) % 2 for step in kind.stride if step != 1)
        if isinstance(kind, Memref) and even and kind.element in FLOATS and item.attributes is None:
            promise = DictionaryEntry("alignment", 2 * BYTES[kind.element])
            item = replace(item, attributes=Dictionary((promise,)))
        parameters.append(item)
    return replace(kernel, parameters=tuple(parameters))


def padded(count: int) -> int:
    """So many queries or keys in whole tiles."""
    return -(-count // TILE) * TILE


def tma_operand(
    access: Access, keys: tuple[Key, str], line: str, loops: Sequence[str], extents: Mapping[str, int]
) -> tuple[Access, Key, list[TileKernel]]:
    """An operand as a matrix of halves in whole tiles, with its key: in place, or packed and rounded by a kernel.

    The last of the loops goes along vectors. Keys are that of the operand and a word for what is packed.
    """
    (key, word), count, inner = keys, extents[line], loops[-1]
    try:
        if access.element != NARROW or count % TILE:
            raise Unsupported("it is not narrow, or no whole tiles")
        return flatten_lines(access, line, inner), key, []
    except Unsupported:
        own: Key = (f"{PACKED[0]}_{word}", None)
        kept = tuple(name for name in loops if name in access.loops())
        ends = {line: count} if count % TILE else {}
        sizes = {**extents, line: padded(count)}
        kernel = write_k_major_pack(access, (key, own), kept, sizes, element=NARROW, ends=ends)
        return flatten_lines(k_major_access(access, kept, sizes, NARROW), line, inner), own, [kernel]


def head_view(
    builder: Builder, side: Access, line: tuple[str, int], inner: tuple[str, int], values: Mapping[str, Value]
) -> Value:
    """The vectors of one head as a matrix: so many lines, so many elements each."""
    lines, near = side.axes
    none: Form = Affine(0)
    slices = [
        Slice(form_value(builder, near.index.replace(inner[0], none), values), inner[1]),
        Slice(form_value(builder, lines.index.replace(line[0], none), values), padded(line[1])),
    ]
    type_ = Memref(side.element, (inner[1], padded(line[1])), (1, lines.stride))
    return builder.subview(side.memref, slices, type_)


def balanced_blocks(
    builder: Builder, loops: Sequence[str], sizes: Mapping[str, int], block: str, target: Target
) -> dict[str, Value]:
    """The indices of a work-group: blocks from the first to the last, all heads of each, balanced.

    The first blocks are the longest ones. Multiprocessors take work-groups in rounds, every second round backwards, so
    that who had the longest of one round has the shortest of the next.
    """
    names = [block, *(name for name in loops if sizes[name] > 1)]
    total, together = prod(sizes[name] for name in names), max(1, target.multiprocessors)
    values = {name: builder.constant(0) for name in (*loops, block)}
    number = builder.builtin("group_id", INDEX)
    if total > together:
        many, one, two = (builder.constant(item) for item in (together, 1, 2))
        turn = builder.arith("div", number, many)
        begin = builder.arith("mul", turn, many)
        left = builder.arith("min", many, builder.arith("sub", builder.constant(total), begin))
        place = builder.arith("sub", number, begin)
        back = builder.arith("sub", builder.arith("sub", left, one), place)
        odd = builder.arith("rem", turn, two)
        # One of both, without a choice: threads that copy run this too.
        ahead = builder.arith("mul", builder.arith("sub", one, odd), place)
        number = builder.arith("add", begin, builder.arith("add", ahead, builder.arith("mul", odd, back)))
        # It is a number of a work-group whatever it is: who proves accesses sees that here.
        number = builder.arith(
            "min", builder.arith("max", number, builder.constant(0)), builder.constant(total - 1)
        )
    for name in reversed(names[1:]):
        size = builder.constant(sizes[name])
        values[name], number = builder.arith("rem", number, size), builder.arith("div", number, size)
    values[block] = number
    return values
