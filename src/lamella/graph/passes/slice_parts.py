"""Parts of a tensor as slices, each an operation of its own.

    [a, b] = split{axis=1, sizes=[2, 3]}(x)   =   a = slice{axes=[1], begin=[0], end=[2]}(x), b = slice{…}(x)

What reads one part can then read it where it lies, whoever reads the others.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lamella.base.errors import Found
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Node, Operation, Tensor
from lamella.graph.rewrite import Replacement, RewriteWalk, rewrite
from lamella.ops.library import Library

SPLIT, SLICE = "layout.split", "layout.slice"


def slice_parts(model: Model) -> Model:
    """The model with a slice for each part of a split."""
    return replace(model, graph=rewrite(model.graph, partial(_visit, model.library)))


def _visit(library: Library, node: Node, walk: RewriteWalk) -> Replacement | None:
    if not isinstance(node, Operation) or node.operator != SPLIT:
        return None
    (source,), (parts,) = node.inputs, node.outputs
    axis = dict(node.attributes).get("axis")
    if not isinstance(source, Tensor) or not isinstance(parts, tuple) or not isinstance(axis, int):
        return None
    sizes = [item.shape[axis] for item in parts]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes) or any(item.quantization is not None for item in (source, *parts)):
        return None
    made, begin = list[Operation](), 0
    try:
        for item, size in zip(parts, known, strict=True):
            cut = {"axes": (axis,), "begin": (begin,), "end": (begin + size,)}
            made.append(call(library, SLICE, [source], cut, [item.name]))
            begin += size
    except Found:
        return None
    return Replacement(tuple(replace(item, origin=node.origin) for item in made))
