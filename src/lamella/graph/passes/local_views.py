"""Views made local: a chain of reshapes as the shortest one, each step over the axes that change.

    unflatten{0, [1, 8, 4, 8]}(flatten(x)) = unflatten{2, [4, 8]}(x)      for x of [1, 8, 32]

A step that joins or splits neighbouring axes leaves the strides of the others alone, so a tensor that is a slice or a
transposition of another one stays a view through it, where a flat tensor in between would be a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce
from itertools import product

from lamella.base.dim import Extent, mul
from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Shape, Tensor, Value
from lamella.graph.rewrite import Replacement, RewriteWalk, rewrite
from lamella.ops.library import Library


def local_views(model: Model) -> Model:
    """The model with reshapes of the axes that change, and none that undo each other."""
    return replace(model, graph=rewrite(model.graph, partial(_visit, model.library)))


def _visit(library: Library, node: Node, walk: RewriteWalk) -> Replacement | None:
    if not isinstance(node, Operation) or not is_reshape(library, node):
        return None
    source, count = _root(library, node, walk)
    (output,) = node.outputs
    if not isinstance(output, Tensor) or output.quantization is not None:
        return None
    if source.shape == output.shape:
        return Replacement(results={output.name: source})
    blocks = match_blocks(source.shape, output.shape)
    steps = [] if blocks is None else list(_steps(blocks))
    if not steps or (count == 1 and _is_formula(library, node)):
        return None
    try:
        nodes = tuple(_calls(library, steps, source, output, walk))
    except Found:
        return None
    return Replacement(tuple(replace(item, origin=node.origin) for item in nodes))


def is_reshape(library: Library, node: Operation) -> bool:
    """Whether an operation gives the elements of its one input in row-major order."""
    return (
        "reshape" in library.traits(node.operator)
        and len(node.inputs) == len(node.outputs) == 1
        and isinstance(node.inputs[0], Tensor)
    )


def _is_formula(library: Library, node: Operation) -> bool:
    definition = library.find(node.operator)
    return definition is not None and definition.operator.kind == "lower"


def _root(library: Library, node: Operation, walk: RewriteWalk) -> tuple[Tensor, int]:
    """What a chain of reshapes begins with, and how many they are."""
    count, found = 1, node.inputs[0]
    while isinstance(found, Tensor) and found.quantization is None:
        maker = walk.maker(found)
        if maker is None or not is_reshape(library, maker):
            break
        count, found = count + 1, maker.inputs[0]
    if not isinstance(found, Tensor):
        raise TypeError(found)
    return found, count


@dataclass(frozen=True, slots=True)
class AxisBlock:
    """Neighbouring axes of a source that are neighbouring axes of a result, with as many elements."""

    old: Shape
    new: Shape


def match_blocks(old: Shape, new: Shape) -> list[AxisBlock] | None:
    """The smallest blocks of axes that correspond; None where open extents leave that open."""
    if 0 in old:
        return None  # every product is equal then
    found: list[AxisBlock] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            found.append(AxisBlock((old[i],), (new[j],)))
            i, j = i + 1, j + 1
        elif i < len(old) and old[i] == 1:
            found.append(AxisBlock((1,), ()))
            i += 1
        elif j < len(new) and new[j] == 1:
            found.append(AxisBlock((), (1,)))
            j += 1
        else:
            block = _grow(old[i:], new[j:])
            if block is None:
                return None
            found.append(block)
            i, j = i + len(block.old), j + len(block.new)
    return found


def _grow(old: Shape, new: Shape) -> AxisBlock | None:
    """The fewest axes from here on with as many elements on both sides."""
    pairs = sorted(product(range(1, len(old) + 1), range(1, len(new) + 1)), key=sum)
    found = (AxisBlock(old[:i], new[:j]) for i, j in pairs if _volume(old[:i]) == _volume(new[:j]))
    return next(found, None)


def _volume(shape: Shape) -> Extent:
    start: Extent = 1
    return reduce(mul, shape, start)


Step = tuple[str, dict[str, Value]]


def _steps(blocks: list[AxisBlock]) -> Iterator[Step]:
    """Join what becomes one axis, from the last axis to the first, then split what becomes several."""
    axis = sum(len(item.old) for item in blocks)
    for block in reversed(blocks):
        axis -= len(block.old)
        if len(block.old) > 1:
            yield "layout.flatten", {"axis": axis, "rank": len(block.old)}
        elif block.old and not block.new:
            yield "layout.squeeze", {"axes": (axis,)}
    joined = [block for block in blocks if block.new]
    axis = sum(1 for block in joined if block.old)
    for block in reversed(joined):
        axis -= 1 if block.old else 0
        if not block.old:
            yield "layout.unsqueeze", {"axes": (axis,)}
        elif len(block.new) > 1:
            shape: Value = tuple(block.new)
            yield "layout.unflatten", {"axis": axis, "shape": shape}


def _calls(
    library: Library, steps: list[Step], source: Tensor, output: Tensor, walk: RewriteWalk
) -> Iterator[Operation]:
    current: Argument = source
    for number, (operator, attributes) in enumerate(steps, 1):
        last = number == len(steps)
        name = output.name if last else walk.fresh(f"{output.name}.step")
        made = call(library, operator, (current,), attributes, [name])
        (current,) = made.outputs
        if last:
            if not isinstance(current, Tensor) or current.shape != output.shape:
                raise Found
            made = replace(made, outputs=(output,))
        yield made
