"""Adapters of operators that hold graphs: If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from lamella.base import dim
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import BOOL, I64
from lamella.bridge.onnx.nodes import Graph
from lamella.bridge.onnx_to_graph.site import NodeSite, Results
from lamella.bridge.onnx_to_graph.values import Value, known_value
from lamella.graph.nodes import Argument, Loop, Pack, Region, Tensor

MOST_UNROLLED = 1024
"""Steps of a loop that is written out, because its steps differ in more than numbers."""
MOST_STEPS = 1 << 20
"""Steps of a loop whose number only the run tells."""


def _if(site: NodeSite) -> Results:
    """A condition that is known chooses its branch before the run."""
    known = site.content(0)
    then, otherwise = site.graph("then_branch"), site.graph("else_branch")
    if known is not None and known.dtype != object:
        return site.translate(then if bool(known.reshape(-1)[0]) else otherwise, [])
    condition = _truth(site, site.tensor())
    given: list[tuple[Tensor, ...]] = []

    def run(graph: Graph) -> Sequence[Tensor]:
        given.append(tuple(site.materialise(item) for item in site.translate(graph, [])))
        _require_alike(site, given[0], given[-1])
        return given[-1]

    return site.builder.branch(condition, lambda: run(then), lambda: run(otherwise))


def _require_alike(site: NodeSite, one: Sequence[Tensor], other: Sequence[Tensor]) -> None:
    types = [tuple((item.element, len(item.shape)) for item in items) for items in (one, other)]
    if types[0] != types[1]:
        shown = " and ".join(
            ", ".join(f"{item.element}{list(map(str, item.shape))}" for item in items)
            for items in (one, other)
        )
        site.refuse(f"has branches that give different types or ranks: {shown}")


# --- loops --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Steps:
    """What a body gives: whether to go on, what is carried on, and what is collected."""

    going: Value | None
    carried: list[Value]
    collected: list[Value]


def _loop(site: NodeSite) -> Results:
    body = site.graph("body")
    count, going = _trip_count(site), _starts(site)
    carried = [item for item in site.values[2:] if item is not None]
    if going is False or count == 0:
        return _nothing(site, body, carried)
    steps = site.attempt(lambda: _as_loop(site, body, carried, count, going))
    if steps is not None:
        return steps
    if going is True and isinstance(count, int) and count <= MOST_UNROLLED:
        return _unrolled(site, body, carried, count)
    return _as_loop(site, body, carried, count, going)


def _trip_count(site: NodeSite) -> Tensor | Extent | None:
    """The number of steps: known, an extent, what the run tells, or none."""
    if not site.has(0):
        return None
    known = site.content(0)
    if known is None:
        return site.reshape(site.tensor(0), ())
    found = known.reshape(-1).tolist()[0]
    return found if isinstance(found, Dim) else max(int(found), 0)


def _starts(site: NodeSite) -> bool | Tensor:
    if not site.has(1):
        return True
    known = site.content(1)
    if known is not None and known.dtype != object:
        return bool(known.reshape(-1)[0])
    return _truth(site, site.tensor(1))


def _truth(site: NodeSite, condition: Tensor) -> Tensor:
    """A condition as one truth."""
    if condition.element != BOOL:
        site.refuse(f"has a condition of type {condition.element}")
    return site.reshape(condition, ())


def _body(site: NodeSite, body: Graph, index: Value, carried: Sequence[Value]) -> _Steps:
    true = known_value(np.asarray(True))
    results = site.translate(body, [index, true, *carried])
    inner = len(carried) + 1
    return _Steps(results[0], list(results[1:inner]), list(results[inner:]))


def _as_loop(
    site: NodeSite, body: Graph, carried: Sequence[Value], count: Tensor | Extent | None, going: bool | Tensor
) -> Results:
    """A loop of the graph; a condition that only the run tells is carried along."""
    builder = site.builder
    start = [site.materialise(item) for item in carried]
    inner = [replace(item, name=builder.fresh("state")) for item in start]
    flag = Tensor(builder.fresh("going"), BOOL, ())
    index = Tensor(builder.fresh("step"), I64, ())
    tested: list[bool] = []

    def run(*_: Tensor) -> Sequence[Tensor]:
        found = _body(
            site, body, Value(index, None, I64), [Value(item, None, item.element) for item in inner]
        )
        tested.append(not _is_true(found.going))
        kept = [site.materialise(item) for item in found.carried]
        _require_same(site, start, kept)
        on = [_truth(site, site.materialise(found.going))] if found.going is not None and tested[0] else []
        return [*kept, *on, *(site.materialise(item) for item in found.collected)]

    region = builder.region(run, *inner, index)
    is_tested = tested[0] or isinstance(going, Tensor)
    if is_tested:
        first = going if isinstance(going, Tensor) else site.scalar(1, BOOL)
        region = _with_flag(region, len(inner), flag, tested[0])
        start, inner = [*start, first], [*inner, flag]
    return emit_loop(site, start, region, count, is_tested)


def _is_true(value: Value | None) -> bool:
    known = None if value is None else value.known
    return value is None or (known is not None and known.dtype != object and bool(known.reshape(-1)[0]))


def _with_flag(region: Region, carried: int, flag: Tensor, given: bool) -> Region:
    """The region of a body with a truth behind its carried tensors."""
    inputs = (*region.inputs[:carried], flag, *region.inputs[carried:])
    if given:
        return replace(region, inputs=inputs)
    return replace(
        region, inputs=inputs, outputs=(*region.outputs[:carried], flag, *region.outputs[carried:])
    )


def _require_same(site: NodeSite, start: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
    for before, after in zip(start, kept, strict=True):
        if before.shape != after.shape or before.element != after.element:
            types = " to ".join(f"{item.element}{list(map(str, item.shape))}" for item in (before, after))
            site.refuse(f"changes what it carries from step to step: '{before.name}' from {types}")


def emit_loop(
    site: NodeSite,
    start: Sequence[Tensor],
    region: Region,
    count: Tensor | Extent | None,
    is_tested: bool,
    scans: Sequence[tuple[Tensor, ...] | Pack] = (),
) -> list[Tensor]:
    """The loop with its results: what is carried, then what is collected, stacked."""
    builder = site.builder
    test = None
    if is_tested:
        seen = tuple(replace(item, name=builder.fresh("state")) for item in region.inputs)
        test = Region(seen, (), (seen[len(start) - 1],))
    outputs: list[Argument] = [replace(item, name=builder.fresh("last")) for item in start]
    for item in region.outputs[len(start) :]:
        outputs.append(_collected(site, item, count, is_tested, scans))
    loop = Loop(
        tuple(start),
        tuple(scans),
        region,
        tuple(outputs),
        count,
        test,
        pretest=is_tested,
        index=len(region.inputs) > len(start) + len(scans),
        origin=builder.origin,
    )
    builder.add_node(loop)
    finals = [item for item in outputs[: len(start)] if isinstance(item, Tensor)]
    stacked = [
        _stacked(site, item, body)
        for item, body in zip(outputs[len(start) :], region.outputs[len(start) :], strict=True)
    ]
    return [*(finals[:-1] if is_tested else finals), *stacked]


def _stacked(site: NodeSite, items: Argument, like: Tensor) -> Tensor:
    if isinstance(items, tuple) and not items:
        return site.make("layout.uniform", like.element, site.scalar(0, like.element), shape=(0, *like.shape))
    return site.call("layout.stack", items, axis=0)


def _collected(
    site: NodeSite,
    item: Tensor,
    count: Tensor | Extent | None,
    is_tested: bool,
    scans: Sequence[tuple[Tensor, ...] | Pack],
) -> Argument:
    """One tensor for each step, or a pack where the run tells how many there are."""
    name = site.builder.fresh("items")
    if scans:
        known: Extent | None = len(scans[0]) if isinstance(scans[0], tuple) else scans[0].size
    else:
        known = count if isinstance(count, int | Dim) and not is_tested else None
    if isinstance(known, int):
        most = site.builder.library.limits.max_steps
        if known > most:
            site.refuse(f"collects tensors of {known} steps; the limit max_steps is {most}")
        return tuple(replace(item, name=f"{name}:{step}") for step in range(1, known + 1))
    most = dim.bounds(count)[1] if isinstance(count, int | Dim) else MOST_STEPS
    size = known if known is not None else dim.symbol(f"{name}.size", most)
    assert isinstance(size, Dim)  # a number was taken above
    return Pack(name, item.element, item.shape, size, origin=site.builder.origin)


def _unrolled(site: NodeSite, body: Graph, carried: list[Value], count: int) -> Results:
    """Every step written out, with its number known."""
    collected: list[list[Tensor]] = []
    for step in range(count):
        found = _body(site, body, known_value(np.asarray(step, np.int64)), carried)
        if not _is_true(found.going):
            known = None if found.going is None else found.going.known
            if known is None:
                site.refuse("ends by a condition that only the run tells")
            carried = found.carried
            collected.append([site.materialise(item) for item in found.collected])
            break
        carried = found.carried
        collected.append([site.materialise(item) for item in found.collected])
    stacks = [site.call("layout.stack", tuple(items), axis=0) for items in zip(*collected, strict=True)]
    return [*carried, *stacks]


def _nothing(site: NodeSite, body: Graph, carried: list[Value]) -> Results:
    """A loop without steps."""
    if len(body.outputs) - 1 > len(carried):
        site.refuse("collects tensors of a loop without steps")
    return list(carried)


# --- Scan ---------------------------------------------------------------------------------------------------------


def _scan(site: NodeSite) -> Results:
    if site.version < 9:
        return _scan_batches(site)
    body, count = site.graph("body"), site.integer("num_scan_inputs")
    values = [item for item in site.values if item is not None]
    split = len(values) - count
    return _scanned(
        site, body, values[:split], [site.materialise(item) for item in values[split:]], _Ways.of(site)
    )


@dataclass(slots=True)
class _Ways:
    """Axes and directions of what a scan takes apart and puts together."""

    input_axes: tuple[int, ...]
    input_back: tuple[int, ...]
    output_axes: tuple[int, ...]
    output_back: tuple[int, ...]

    @staticmethod
    def of(site: NodeSite) -> _Ways:
        return _Ways(
            site.ints("scan_input_axes") or (),
            site.ints("scan_input_directions") or site.ints("directions") or (),
            site.ints("scan_output_axes") or (),
            site.ints("scan_output_directions") or (),
        )


def _scanned(
    site: NodeSite, body: Graph, carried: Sequence[Value], scans: Sequence[Tensor], ways: _Ways
) -> Results:
    builder = site.builder
    apart = [
        take_apart(site, item, _at(ways.input_axes, n), _at(ways.input_back, n))
        for n, item in enumerate(scans)
    ]
    start = [site.materialise(item) for item in carried]
    inner = [replace(item, name=builder.fresh("state")) for item in start]
    items = [item_of(site, item) for item in apart]

    def run(*given: Tensor) -> Sequence[Tensor]:
        results = site.translate(body, [Value(item, None, item.element) for item in given])
        found = [site.materialise(item) for item in results]
        _require_same(site, start, found[: len(start)])
        return found

    region = builder.region(run, *inner, *items)
    results = emit_loop(site, start, region, None, False, apart)
    collected = [
        _turned(site, item, _at(ways.output_axes, n), _at(ways.output_back, n))
        for n, item in enumerate(results[len(start) :])
    ]
    return [*results[: len(start)], *collected]


def _at(items: Sequence[int], index: int) -> int:
    return items[index] if index < len(items) else 0


def take_apart(site: NodeSite, x: Tensor, axis: int, back: int) -> tuple[Tensor, ...] | Pack:
    """The items of a tensor along an axis, from its end where `back` says so."""
    if back:
        x = site.call("aten.flip", x, dims=(site.axis_in(axis, len(x.shape)),))
    (found,) = site.builder.call_all("layout.unstack", x, axis=site.axis_in(axis, len(x.shape)))
    assert isinstance(found, tuple | Pack)  # what an operator gives a pack for
    return found


def item_of(site: NodeSite, items: tuple[Tensor, ...] | Pack) -> Tensor:
    """A new tensor like one of some items, for the body of a loop."""
    if isinstance(items, Pack):
        return Tensor(site.builder.fresh("item"), items.element, items.shape)
    if not items:
        site.refuse("scans a tensor without items")
    return replace(items[0], name=site.builder.fresh("item"))


def _turned(site: NodeSite, x: Tensor, axis: int, back: int) -> Tensor:
    """What was collected, along the axis and in the direction that is asked for."""
    if back:
        x = site.call("aten.flip", x, dims=(0,))
    rank = len(x.shape)
    place = site.axis_in(axis, rank)
    if place:
        order = list(range(1, rank))
        order.insert(place, 0)
        x = site.transpose(x, order)
    return x


def _scan_batches(site: NodeSite) -> Results:
    """Version 8: every input has a batch before what it is, and each batch is scanned alone."""
    if site.has(0):
        site.refuse("has lengths of sequences in version 8")
    body, count = site.graph("body"), site.integer("num_scan_inputs")
    tensors = [site.tensor(index) for index in range(1, len(site.values))]
    split = len(tensors) - count
    batch = tensors[0].shape[0]
    if not isinstance(batch, int):
        site.refuse_open("scans each batch of", batch)
    results: list[list[Tensor]] = []
    for number in range(batch):
        index = site.scalar(number, I64)
        own = [site.call("layout.gather", item, index, axis=0) for item in tensors]
        states = [Value(item, None, item.element) for item in own[:split]]
        found = _scanned(site, body, states, own[split:], _Ways.of(site))
        results.append([item for item in _listed(found) if isinstance(item, Tensor)])
    return [site.call("layout.stack", tuple(items), axis=0) for items in zip(*results, strict=True)]


def _listed(found: Results) -> Sequence[object]:
    return found if isinstance(found, list | tuple) else [found]


FLOW: Mapping[str, Callable[[NodeSite], Results]] = MappingProxyType(
    {"If": _if, "Loop": _loop, "Scan": _scan}
)
"""Adapters by the names of ONNX's operators."""
