"""A divergence inside of a loop or a branch: the step and the operation of the body at which both sides part.

Both loops run once more and collect what each step leaves. The first step that leaves other numbers is compared by
itself: its body is a model on both sides, with what the left carried into the step as inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from lamella.base import dim
from lamella.base.arrays import Array
from lamella.base.dtype import I64
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Branch, Graph, Loop, Node, Pack, Region, Tensor
from lamella.graph.rewrite import Substitution, extent_substitution, operands_of, rename, results_of
from lamella.pipeline.diff.flow import CANNOT_RUN, Subgraph, inside_of, listed
from lamella.pipeline.diff.gap import measure
from lamella.pipeline.diff.sides import Side
from lamella.pipeline.diff.values import extents_of, run_side
from lamella.pipeline.options import Options

ITEMS = "items of "
MOST_STEPS = 1 << 20

Values: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """A loop or a branch of one side: its node, the part that it is in, and what the tensors of the side hold."""

    side: Side
    part: Subgraph
    node: Node
    values: Values


@dataclass(frozen=True, slots=True)
class BodyPair:
    """The body of a loop or a branch on both sides, as models with the same inputs, and where it is."""

    where: str
    sides: tuple[Side, Side]
    inputs: Values


def control_flow(side: Side, part: Subgraph, values: Values) -> ControlFlow | None:
    """The one loop or branch among the nodes of a part; None where there are none or several."""
    found = [node for node in part.nodes if isinstance(node, Branch | Loop)]
    return ControlFlow(side, part, found[0], values) if len(found) == 1 else None


def find_body(left: ControlFlow, right: ControlFlow, options: Options) -> BodyPair | str | None:
    """The body in which both sides part; a sentence where they part before it, None where it cannot be told."""
    nodes = left.node, right.node
    try:
        if isinstance(nodes[0], Loop) and isinstance(nodes[1], Loop):
            return _find_step((left, nodes[0]), (right, nodes[1]), options)
        if isinstance(nodes[0], Branch) and isinstance(nodes[1], Branch):
            return _find_branch((left, nodes[0]), (right, nodes[1]), options)
    except (*CANNOT_RUN, KeyError, StopIteration):
        pass  # as it may where a body reads what only the run knows: the loop itself is named then
    return None


# --- loops ----------------------------------------------------------------------------------------------------

_LoopOf: TypeAlias = tuple[ControlFlow, Loop]
Trace: TypeAlias = list[Array]
"""What a loop carried and collected: for each result of its body one array with a row for each step."""


def _find_step(left: _LoopOf, right: _LoopOf, options: Options) -> BodyPair | str | None:
    """The first step that leaves other numbers, as models."""
    loop = left[1]
    counts = [(len(item.carried), len(item.scans), len(item.body.outputs)) for _, item in (left, right)]
    if counts[0] != counts[1] or not loop.body.outputs:
        return None
    mine, theirs = _trace(*left, options), _trace(*right, options)
    if len(mine[0]) != len(theirs[0]):
        return f"the loop of the left takes {len(mine[0])} steps, that of the right {len(theirs[0])}"
    steps = (
        number
        for number in range(len(mine[0]))
        for one, other in zip(mine, theirs, strict=True)
        if measure("", one[number], other[number]).relative > options.tolerance
    )
    step = next(steps, None)
    if step is None:
        return None
    names = [f"state {number}" for number, _ in enumerate(loop.carried)]
    names += [f"item {number}" for number, _ in enumerate(loop.scans)]
    names = _unlike([*names, "number of the step"], left[0].values, right[0].values)
    sides = [_body_side(flow, item.body, names) for flow, item in (left, right)]
    values = [*_carried(*left, mine, step), *_scanned(*left, step, options), np.asarray(step, np.int64)]
    inputs = dict(zip(names, values, strict=True))
    return BodyPair(f"step {step + 1} of {len(mine[0])}", (sides[0], sides[1]), inputs)


def _unlike(names: Sequence[str], *known: Values) -> list[str]:
    """Names that no tensor has: those of a loop around this one are called so already."""
    found = list(names)
    while any(name in values for values in known for name in found):
        found = [f"inner {name}" for name in found]
    return found


def _trace(flow: ControlFlow, loop: Loop, options: Options) -> Trace:
    """Run a loop, with all that its body gives collected."""
    carried, results = len(loop.carried), loop.body.outputs
    # What the body carries on comes out once more, as something to collect.
    body = replace(loop.body, outputs=(*results, *results[:carried]))
    packs = [_pack(item, number) for number, item in enumerate((*results[carried:], *results[:carried]))]
    last: list[Argument] = [replace(item, name=f"last {item.name}") for item in loop.carried]
    model = _whole(flow, replace(loop, body=body, outputs=(*last, *packs)), packs)
    found = run_side(flow.side, model, options, _given(model, flow.values))
    rows = [found[item.name] for item in packs]
    collected = len(rows) - carried
    return [*rows[collected:], *rows[:collected]]


def _pack(like: Tensor, number: int) -> Pack:
    name = f"{ITEMS}{number}"
    size = dim.symbol(f"{name}.size", MOST_STEPS)
    assert isinstance(size, dim.Dim)  # it may be of many numbers
    return Pack(name, like.element, like.shape, size)


def _whole(flow: ControlFlow, node: Node, outputs: Sequence[Tensor | Pack]) -> Model:
    """The nodes of a part up to its loop or branch, with another one in its place."""
    model = flow.part.to_model()
    place = next(number for number, item in enumerate(model.graph.nodes) if item is flow.node)
    nodes = (*model.graph.nodes[:place], node)
    return replace(model, graph=replace(model.graph, nodes=nodes, outputs=tuple(outputs)))


def _given(model: Model, values: Values) -> dict[str, Array]:
    return {item.name: values[item.name] for item in listed(model.graph.inputs)}


def _carried(flow: ControlFlow, loop: Loop, trace: Trace, step: int) -> list[Array]:
    """What goes into a step of what the one before it left."""
    if step:
        return [trace[number][step - 1] for number, _ in enumerate(loop.carried)]
    return [flow.values[item.name] for item in loop.carried]


def _scanned(flow: ControlFlow, loop: Loop, step: int, options: Options) -> list[Array]:
    """The items that a step takes of what is scanned."""
    found = []
    for items in loop.scans:
        if isinstance(items, tuple):
            found.append(flow.values[items[step].name])
            continue
        maker = next(node for node in flow.part.nodes if items in results_of(node))
        model = _whole(replace(flow, node=maker), maker, [items])
        found.append(run_side(flow.side, model, options, _given(model, flow.values))[items.name][step])
    return found


# --- branches -------------------------------------------------------------------------------------------------


def _find_branch(
    left: tuple[ControlFlow, Branch], right: tuple[ControlFlow, Branch], options: Options
) -> BodyPair | str | None:
    chosen = [_chosen(*side, options) for side in (left, right)]
    words = [
        "the last branch" if number < 0 else f"the branch of condition {number + 1}" for number in chosen
    ]
    if chosen[0] != chosen[1]:
        return f"the left takes {words[0]}, the right {words[1]}"
    sides = [_body_side(flow, node.branches[chosen[0]], ()) for flow, node in (left, right)]
    return BodyPair(words[0], (sides[0], sides[1]), {})


def _chosen(flow: ControlFlow, branch: Branch, options: Options) -> int:
    """Which branch runs; −1 is the last one, where no condition is true."""
    for number, region in enumerate(branch.conditions):
        model = _body_side(flow, region, ()).model
        found = run_side(flow.side, model, options, {})
        if bool(next(iter(found.values())).reshape(-1)[0]):
            return number
    return -1


# --- bodies as models -----------------------------------------------------------------------------------------


def _body_side(flow: ControlFlow, region: Region, names: Sequence[str]) -> Side:
    """A region as a model: what it is given are inputs by new names, what it reads from around it are variables.

    The last name is that of the number of a step, which the body of one side may take and that of the other not.
    """
    model, inputs = flow.side.model, region.inputs
    if len(inputs) < len(names):
        inputs = (*inputs, Tensor(names[-1], I64, ()))
    inner = {item.name for item in (*inputs, *inside_of(region))}
    read = {
        item.name: item for node in region.nodes for item in operands_of(node) if isinstance(item, Tensor)
    }
    read |= {item.name: item for item in region.outputs}
    constants = tuple(item for item in model.graph.constants if item.tensor.name in read)
    inner |= {item.tensor.name for item in constants}
    outside = tuple(item for name, item in read.items() if name not in inner)
    graph = Graph(
        "body", inputs, region.outputs, region.nodes, outside, constants=constants, checks=region.checks
    )
    named = rename(graph, dict(zip((item.name for item in inputs), names, strict=True)))
    data = {item.name: flow.values[item.name] for item in outside}
    change = extent_substitution(extents_of(model.graph, flow.values))
    renewal = Substitution(lambda item: replace(item, shape=tuple(map(change, item.shape))), change)
    body = replace(model, graph=renewal.graph(named), data=data, hints=(), findings=())
    return replace(flow.side, model=body, notes=(), observed=None)
