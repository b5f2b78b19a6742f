"""Random graphs over many operators of the library: packs, branches, loops, sized types, open extents."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from lamella.base.dim import symbol
from lamella.base.errors import Found
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Quantization, Tensor
from lamella.graph.rewrite import Substitution
from lamella.ops.library import Library
from tests.support.strategies.graph_moves import MOVES, TYPES, Move, Pool

STEPS = 8
LARGEST = 400


@cache
def library() -> Library:
    """The library that all generated graphs share; operators are read once."""
    return Library()


def _grow(pool: Pool, moves: list[Move]) -> None:
    for move in moves:
        try:
            found = move(pool)
        except Found:  # an assertion of the operator: this way leads nowhere
            continue
        for item in found if isinstance(found, tuple) else (found,):
            if item is not None and _volume(item) <= LARGEST:
                pool.tensors.append(item)


def _volume(tensor: Tensor) -> int:
    total = 1
    for extent in tensor.shape:
        total *= extent if isinstance(extent, int) else 4
    return total


def _with_quantization(graph: Graph) -> Graph:
    attributes = (("zero_point", (0,)), ("scale", (0.5,)), ("bits", 8))
    rest = (("signed", True), ("symmetric", False), ("channel_axis", 1))

    def change(tensor: Tensor) -> Tensor:
        if not tensor.name.startswith("quantized"):
            return tensor
        size = tensor.shape[1]
        full = tuple(
            (name, value * size if isinstance(value, tuple) and isinstance(size, int) else value)
            for name, value in (*attributes, *rest)
        )
        return replace(tensor, quantization=Quantization("quant.zero_point_linear_quantize", full))

    return Substitution(change).graph(graph)


@st.composite
def models(draw: st.DrawFn, only: tuple[str, ...] = tuple(MOVES), open_extents: bool = True) -> Model:
    """A model of a few inputs and some of these moves."""
    builder = Builder(library(), "G")
    pool = Pool(draw, builder)
    sizes = st.integers(1, 4)
    extents = sizes | st.just(symbol("n", 4)) if open_extents else sizes
    for number in range(draw(st.integers(1, 3))):
        shape = draw(st.lists(extents, max_size=4))
        pool.tensors.append(builder.input(f"x{number}", draw(st.sampled_from(TYPES)), shape))
    _grow(pool, draw(st.lists(st.sampled_from([MOVES[name] for name in only]), min_size=3, max_size=STEPS)))
    outputs = draw(st.lists(st.sampled_from(pool.tensors), min_size=1, max_size=3, unique=True))
    return Model(_with_quantization(builder.finish(*outputs)), library())
