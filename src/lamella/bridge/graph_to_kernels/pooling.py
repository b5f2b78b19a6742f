"""Pooling on a GPU: maxima and sums of windows of channels-last images, with their epilogue.

    m[c, i] >= x[c, |2 * i + j - 1|]          y[c, i] = f(m[c, i], …)

Neighbouring threads have neighbouring channels (coalesced), and each of them a tile of windows, which overlap and share
what they load. Indices outside of the image are clamped to its border, and those elements do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from math import prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, Axis
from lamella.bridge.graph_to_kernels.affine import find_form
from lamella.bridge.graph_to_kernels.contraction import join, neutral_value
from lamella.bridge.graph_to_kernels.depthwise import LANES
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
from lamella.bridge.graph_to_kernels.terms import stored_type
from lamella.bridge.graph_to_kernels.thread_tiles import MOST_TAPS, Border, ThreadTiles, TileElements
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters, TileKernel, group_sizes
from lamella.bridge.graph_to_kernels.tiled import (
    Epilogue,
    Key,
    Tensors,
    extents_of,
    find_epilogue,
    itself,
    key_of,
    place_of,
    verify_whole,
)
from lamella.kernels.build import Builder
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Scalar, Value
from lamella.lang.tensor.nodes.types import FLOATS
from lamella.ops.formula import Contraction, Element, Guard

JOINED = ("+=", ">=")
"""The reductions of windows: sums and extremes."""


@dataclass(frozen=True, slots=True)
class Pooling:
    """Windows whose lanes are contiguous, cut into tiles of threads."""

    stage: Contraction
    real: Scalar
    image: Access
    key: Key
    insides: tuple[tuple[int, int], ...]
    """The first and the last place of each axis of the image that is no halo."""
    taps: Mapping[str, int]
    """The loops along a window."""
    epilogues: tuple[Epilogue, ...]
    tiles: ThreadTiles

    @property
    def target(self) -> Element:
        """The element of the output of a window."""
        return self.stage.targets[0]

    @property
    def borders(self) -> tuple[Border, ...]:
        """The valid ranges of the indices of a tile."""
        reach = {name: (0, last) for name, last in self.tiles.beginnings.items()}
        reach |= dict.fromkeys(self.taps, (0, 0))
        return tuple(Border(first, last, reach) for first, last in self.insides)


def _find_pooling(
    stages: Sequence[Contraction], tensors: Tensors, real: Scalar, target: Target, is_needed: bool
) -> Pooling:
    """The windows that the first stage reduces, with their epilogue; Unsupported says why there are none.

    With `is_needed` their own values leave too.
    """
    stage, epilogues = stages[0], stages[1:]
    value = stage.values[0]
    plain = stage.sign in JOINED and stage.condition is None and len(stage.targets) == 1
    if not target.has_threads or not plain or not isinstance(value, Element):
        raise Unsupported("it joins no elements")
    (held,) = stage.targets
    if held.type != "real" or value.type != "real" or stored_type(tensors[key_of(held)].element) != real.name:
        raise Unsupported("its elements are no reals")
    extents = extents_of(stage)
    verify_whole(held, tensors[key_of(held)].shape, extents)
    places = [place_of(index, {}, extents) for index in held.indices]
    found = [find_epilogue(item, held.tensor, places, tensors) for item in epilogues]
    if is_needed or not found:
        found.append(itself(stage, held, extents, tensors))
    _verify_apart(found, value)
    image, insides = _find_image(value, tensors, extents)
    outputs = [item.accesses[id(item.formula.targets[0])] for item in found]
    if any(item.element not in FLOATS for item in (image, *outputs)):
        raise Unsupported("its elements are no reals")
    long = {name: extent for name, extent in extents.items() if extent > 1}
    ordered = sorted(
        (name for name in long if outputs[0].stride(name)), key=lambda item: -outputs[0].stride(item)
    )
    taps = {name: extent for name, extent in long.items() if name not in ordered}
    if not ordered or any(item.stride(ordered[-1]) != 1 for item in (image, *outputs)):
        raise Unsupported("no loop lies closest in all its tensors")
    if long[ordered[-1]] < LANES // 2 or not taps or prod(taps.values()) > MOST_TAPS:
        raise Unsupported("it has few lanes, or no small windows")
    if not all(_is_window(image, name, ordered) for name in taps):
        raise Unsupported("it goes over more than windows")
    if not any(_overlap(image, name, extent, ordered) for name, extent in taps.items()):
        raise Unsupported("each element is read once")
    tiles = ThreadTiles(long, ordered[-1], tuple(ordered[:-1])).fit(taps, [image], target)
    return Pooling(stage, real, image, key_of(value), insides, taps, tuple(found), tiles)


def _verify_apart(epilogues: Sequence[Epilogue], image: Element) -> None:
    """Refuse what reads something that the same kernel writes."""
    written = {item.formula.targets[0].tensor for item in epilogues}
    read = {
        key for item in epilogues for place, key in item.keys.items() if place != id(item.formula.targets[0])
    }
    if len(written) < len(epilogues) or written & {image.tensor, *(name for name, _ in read)}:
        raise Unsupported("one of its outputs is read by another one")


def _find_image(
    element: Element, tensors: Tensors, extents: Mapping[str, int]
) -> tuple[Access, tuple[tuple[int, int], ...]]:
    """The access to what windows are of, which may leave it, and the places that do not."""
    held = tensors[key_of(element)]
    rows: list[tuple[Axis, tuple[int, int]]] = []
    dimensions = zip(element.indices, held.shape, held.lies.strides, held.lies.halo, strict=True)
    for index, size, stride, (low, high) in dimensions:
        tested = isinstance(index, Guard)
        form = find_form(index.index if isinstance(index, Guard) else index, extents)
        if form is None or (isinstance(index, Guard) and not (index.below is None and index.above is None)):
            raise Unsupported("an index is not affine, or another one outside")
        first, last = form.bounds({name: (0, extents[name] - 1) for name in form.symbols})
        if not tested and (first < 0 or last >= size):
            raise Unsupported("an index leaves its tensor")
        rows.append((Axis(low + size + high, stride, form + Affine(low)), (low, low + size - 1)))
    rows.sort(key=lambda row: -row[0].stride)
    axes, insides = tuple(axis for axis, _ in rows), tuple(inside for _, inside in rows)
    return Access(held.memref, stored_type(held.element), axes), insides


def _is_window(image: Access, name: str, ordered: Sequence[str]) -> bool:
    """Whether a loop goes along a dimension that the output counts too."""
    axis = image.axis(name)
    return axis is not None and any(axis.index.coefficient(item) for item in ordered)


def _overlap(image: Access, name: str, extent: int, ordered: Sequence[str]) -> bool:
    """Whether windows along a dimension overlap: else subgroups share them as any reduction."""
    axis = image.axis(name)
    if axis is None:
        return False
    steps = [abs(axis.index.coefficient(item)) for item in ordered if axis.index.coefficient(item)]
    return abs(axis.index.coefficient(name)) * (extent - 1) >= min(steps)


def write_pooling(
    stages: Sequence[Contraction], tensors: Tensors, real: Scalar, target: Target, is_needed: bool
) -> TileKernel:
    """The kernel of a pooling; Unsupported says why there is none. With `is_needed` the windows' values leave too."""
    return _PoolingWriter(_find_pooling(stages, tensors, real, target, is_needed), tensors).write()


@dataclass(slots=True)
class _PoolingWriter:
    """Writes the kernel."""

    plan: Pooling
    tensors: Tensors
    parameters: Parameters = field(default_factory=Parameters)
    accesses: dict[int, Access] = field(default_factory=dict)

    def write(self) -> TileKernel:
        """Write it."""
        plan, tiles = self.plan, self.plan.tiles
        for end in plan.epilogues:
            for place, access in end.accesses.items():
                self.accesses[place] = self.parameters.add(end.keys[place], access)
        image = self.parameters.add(plan.key, plan.image)
        builder = self.parameters.builder()
        with builder.parallel() as region:
            values = tiles.begin(region)
            for number, found in enumerate(self._windows(region, image, values)):
                here = tiles.shifted(region, values, number)
                for end in plan.epilogues:
                    self._finish(region, end, here, found)
        return replace(self.parameters.close(builder, tiles.groups), attributes=group_sizes(1))

    def _windows(self, builder: Builder, image: Access, values: Mapping[str, Value]) -> list[Value]:
        """What the windows of a tile give; an element that several of them reach is loaded once."""
        plan = self.plan
        writing = EpilogueWriter(plan.real, self.tensors, {}, [builder])
        neutral = neutral_value(writing, plan.stage.sign, plan.target)
        here = {**values, **{name: builder.constant(0) for name in plan.taps}}
        side = TileElements(builder, image, here, plan.real, plan.borders, neutral)
        found = [neutral] * plan.tiles.sums
        for places in product(*(range(extent) for extent in plan.taps.values())):
            inside = dict(zip(plan.taps, places, strict=True))
            for number, held in enumerate(found):
                element = side.load({**plan.tiles.steps(number), **inside})
                found[number] = join(writing, plan.stage.sign, held, element, plan.target)
        return found

    def _finish(self, builder: Builder, end: Epilogue, values: Mapping[str, Value], found: Value) -> None:
        """Store what an output is made of."""
        plan, (target,) = self.plan, end.formula.targets
        value, access = found, self.accesses[id(target)]
        if end.formula.values[0] is not target:
            writing = EpilogueWriter(plan.real, self.tensors, end.extents, [builder])
            writing.accesses, writing.loops = self.accesses, values
            value = writing.epilogue_value(end, plan.target.tensor, found)
        if access.element != plan.real.name:
            value = builder.cast(value, Scalar(access.element))
        builder.store(value, access.memref, access.places(builder, values))
