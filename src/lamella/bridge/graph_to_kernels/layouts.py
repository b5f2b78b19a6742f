"""Layout assignment: channels-last where products want it, halos of zeros for windows, views instead of copies.

Nothing of this is seen outside: inputs, outputs and weights lie as the user has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form, find_form
from lamella.bridge.graph_to_kernels.attention import find_attention, place_in
from lamella.bridge.graph_to_kernels.contraction import elements
from lamella.bridge.graph_to_kernels.coverage import Copy, find_copy, find_part
from lamella.bridge.graph_to_kernels.factors import find_factors, is_contraction
from lamella.bridge.graph_to_kernels.gathers import GATHERED
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.inline import Stages
from lamella.bridge.graph_to_kernels.maps import ACCUMULATED
from lamella.bridge.graph_to_kernels.tiled import extents_of, meet, meeting, place_of
from lamella.graph.nodes import Argument, Graph, Node, Operation, Pack, Tensor
from lamella.graph.rewrite import members, operands_of, results_of
from lamella.kernels.launches import Layout, dense_layout
from lamella.ops.formula import Apply, Contraction, Element, Guard
from lamella.ops.lower import reachable

ROW_BYTES, PIECE_BYTES = 64, 16
"""What the start of a part of a tensor is a multiple of, and its rows, where it is to be read as a tensor itself."""
ALIASED = 512
"""Rows of a multiple of so many elements alias on the same few lines of the first-level cache."""
PADDING = 16
Halo = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PlacedStages:
    """An operation whose tensors have layouts: its stages, and what their tensors are called in the graph."""

    stages: Stages
    names: Mapping[str, str]
    fixed: frozenset[str]
    """Inputs that are the same in every call, by the names of the stages."""


@dataclass(slots=True)
class LayoutPreference:
    """How the readers of a tensor want it to lie."""

    halo: dict[int, tuple[int, int]] = field(default_factory=dict)
    padded: bool = False
    """Whether its rows should be padded against cache aliasing."""
    plain: bool = False
    """Whether its last dimension should lie closest: products of what is not fixed go along it."""
    order: tuple[int, ...] | None = None
    """Its dimensions from outside to inside, where what only moves it would move nothing then."""

    def widen(self, dimension: int, low: int, high: int) -> None:
        """Ask for a halo before and behind a dimension."""
        before = self.halo.get(dimension, (0, 0))
        self.halo[dimension] = max(before[0], low), max(before[1], high)


def choose_layouts(
    operations: Sequence[PlacedStages | None], pinned: Iterable[str], moved: bool = False
) -> dict[str, Layout]:
    """The layouts of tensors that do not lie row by row; pinned tensors do.

    With `moved` attentions store their results in the order that the next product reads, so that nothing has to be
    moved.
    """
    choosing = _Choosing(set(pinned), moved)
    for item in operations:
        if item is not None:
            choosing.read(item)
    for item in reversed(operations):
        if item is not None:
            choosing.pass_on(item)
    for item in operations:
        if item is not None:
            choosing.write(item)
    return choosing.found


class _Choosing:
    """Layouts while they are assigned, from readers to writers."""

    def __init__(self, pinned: set[str], moved: bool = False) -> None:
        self.pinned = pinned
        self.moved = moved
        self.preferences: dict[str, LayoutPreference] = {}
        self.found: dict[str, Layout] = {}
        self.orders: dict[str, tuple[int, ...]] = {}
        self._copies: dict[int, Copy | None] = {}
        self._ordered: dict[object, dict[str, tuple[int, ...]]] = {}
        """What was found for stages, by their identity: equal operations share theirs, and callers keep them."""

    # --- preferences of readers ----------------------------------------------------------------------------

    def read(self, item: PlacedStages) -> None:
        """Collect the preferences of an operation about what it reads."""
        for stage in item.stages.contractions:
            factors = product_factors(stage, item.fixed)
            if find_factors(stage) is not None and factors is None:
                self._keep_plain(item)
            if factors is None:
                continue
            other = factors[1]
            name = item.names.get(other.tensor)
            if name is not None and name not in self.pinned:
                shape = item.stages.tensors[other.tensor].shape
                self._prefer(stage, other, shape, self.preferences.setdefault(name, LayoutPreference()))

    def _keep_plain(self, item: PlacedStages) -> None:
        for name in (*item.stages.inputs, *item.stages.outputs):
            if name in item.names:
                self.preferences.setdefault(item.names[name], LayoutPreference()).plain = True

    def _prefer(
        self, stage: Contraction, element: Element, shape: Sequence[int], preference: LayoutPreference
    ) -> None:
        extents = extents_of(stage)
        for dimension, (index, size) in enumerate(zip(element.indices, shape, strict=True)):
            form = find_form(index.index if isinstance(index, Guard) else index, extents)
            if form is None:
                return
            first, last = form.bounds({name: (0, extents[name] - 1) for name in form.symbols})
            # A strided view takes the places behind its last step too.
            slack = max([factor - 1 for name, factor in form.terms if _counts(stage, name, extents)] or [0])
            low, high = max(0, -first), max(0, last + slack - (size - 1))
            if low or high:
                preference.widen(dimension, low, high)
        preference.padded |= len(shape) > 1

    def pass_on(self, item: PlacedStages) -> None:
        """Pass the preference for a copy on to its source, so that the copy is a view."""
        copy = self._copy_of(item.stages)
        if copy is None:
            return
        preference = self.preferences.get(item.names.get(copy.target.tensor, ""))
        read, order = item.names.get(copy.source.tensor, ""), copy.order()
        if not read or read in self.pinned:
            return
        if self.moved:
            self._pass_order(copy, read, None if preference is None else preference.order)
        if preference is None:
            return
        asked = self.preferences.setdefault(read, LayoutPreference())
        if order is not None:
            for dimension, sides in preference.halo.items():
                asked.widen(order[dimension], *sides)
        rows = {tuple(shape[-1:]) for shape in copy.shapes}
        asked.padded |= preference.padded and (order is not None or len(rows) == 1)
        asked.plain |= preference.plain and len(rows) == 1

    def _pass_order(self, copy: Copy, read: str, wanted: tuple[int, ...] | None) -> None:
        """Ask a source to lie so that its copy is a view: row by row where dimensions are split or joined."""
        order, plain = copy.order(), tuple(range(len(copy.shapes[0])))
        if order is None and wanted in (None, plain):
            self.preferences.setdefault(read, LayoutPreference()).order = tuple(range(len(copy.shapes[1])))
        elif order is not None and wanted is not None:
            self.preferences.setdefault(read, LayoutPreference()).order = tuple(
                order[place] for place in wanted
            )

    # --- what writers choose --------------------------------------------------------------------------------------

    def write(self, item: PlacedStages) -> None:
        """Assign the layouts of an operation's outputs."""
        orders = self._known_orders(item)
        for output in item.stages.outputs:
            name = item.names[output]
            if name in self.pinned:
                continue
            for dimension, slack in _strided_targets(item.stages, output):
                self.preferences.setdefault(name, LayoutPreference()).widen(dimension, 0, slack)
            shape = item.stages.tensors[output].shape
            preference = self.preferences.get(name)
            copy = self._copy_of(item.stages)
            part = self._part_of(item, preference) if copy is None and self.moved else None
            if copy is not None:
                layout = self._copied(item, copy, preference)
            elif part is not None:
                layout = part
            else:
                alike = (
                    order
                    for word, order in temporary_orders(item.stages, item.fixed).items()
                    if len(order) == len(shape)
                )
                plain = tuple(range(len(shape)))
                chosen = (
                    None
                    if preference is not None and preference.plain
                    else orders.get(output) or next(alike, None)
                )
                order = chosen or plain
                if (
                    preference is not None
                    and preference.order
                    and find_attention(item.stages.contractions, [output])
                ):
                    order = preference.order
                layout = self._layout(shape, order, preference)
            self.orders[name] = _sorted_order(shape, layout.strides)
            if layout != dense_layout(shape):
                self.found[name] = layout

    def _copied(self, item: PlacedStages, copy: Copy, preference: LayoutPreference | None) -> Layout:
        """The layout with which a copy is a view of its source, where that has the halo that is preferred."""
        shape, read = copy.shapes[0], item.names.get(copy.source.tensor, "")
        view = None
        if read in self.orders:
            view = copy.view(self.found.get(read) or dense_layout(copy.shapes[1]))
        if view is None or (preference is not None and preference.plain and view.strides[-1:] > (1,)):
            return self._layout(shape, tuple(range(len(shape))), preference)
        wanted = preference.halo.items() if preference is not None else ()
        inside = (view.halo[place][0] >= low and view.halo[place][1] >= high for place, (low, high) in wanted)
        return view if all(inside) else self._layout(shape, _sorted_order(shape, view.strides), preference)

    def _part_of(self, item: PlacedStages, preference: LayoutPreference | None) -> Layout | None:
        """The layout with which a slice is a view of its source, where its contiguous dimension stays so."""
        part = _part_of(item.stages)
        read = "" if part is None else item.names.get(part.source.tensor, "")
        if part is None or read not in self.orders or (preference is not None and preference.halo):
            return None
        held = item.stages.tensors[part.target.tensor]
        lies = self.found.get(read) or dense_layout(part.shapes[1])
        view, size = part.view(lies), held.element.bits // 8
        if (
            view is None
            or held.element.bits % 8
            or (preference is not None and preference.plain and view.strides[-1] != 1)
        ):
            return None
        steps = [(step, extent) for step, extent in zip(view.strides, held.shape, strict=True) if extent > 1]
        row = max((extent for step, extent in steps if step == 1), default=0)
        apart = [step * size for step, _ in steps if step > 1]
        if (
            row * size < ROW_BYTES
            or part.shift(lies) * size % ROW_BYTES
            or any(each % PIECE_BYTES for each in apart)
        ):
            return None
        return view

    def _layout(
        self, shape: Sequence[int], order: tuple[int, ...], preference: LayoutPreference | None
    ) -> Layout:
        around = [(0, 0)] * len(shape)
        for dimension, sides in (preference.halo if preference is not None else {}).items():
            around[dimension] = sides
        row = shape[order[-1]] + sum(around[order[-1]]) if shape else 1
        padding = PADDING if preference is not None and preference.padded and row % ALIASED == 0 else 0
        return dense_layout(shape, order, around, padding)

    def _copy_of(self, stages: Stages) -> Copy | None:
        if id(stages) not in self._copies:
            self._copies[id(stages)] = _copy_of(stages)
        return self._copies[id(stages)]

    def _known_orders(self, item: PlacedStages) -> dict[str, tuple[int, ...]]:
        """The orders of the outputs of an operation; they are those of an equal one whose inputs lie alike."""
        inputs = [item.names.get(name) for name in item.stages.inputs]
        lies = tuple((self.orders.get(name or ""), self.found.get(name or "")) for name in inputs)
        key = id(item.stages), item.fixed, lies
        if key not in self._ordered:
            self._ordered[key] = self.orders_of(item)
        return self._ordered[key]

    def orders_of(self, item: PlacedStages) -> dict[str, tuple[int, ...]]:
        """The dimension order of each output: that of a product's rows, or that of the largest input."""
        found: dict[str, tuple[int, ...]] = {}
        for number, stage in enumerate(item.stages.contractions):
            factors = product_factors(stage, item.fixed)
            if factors is not None:
                epilogues = item.stages.contractions[number + 1 :]
                found.update(_row_orders(stage, factors[0], epilogues, item.stages))
        for name, order in self._inherited(item).items():
            if name in item.stages.outputs:
                found.setdefault(name, order)
        for output in item.stages.outputs:
            # What is read at places that data tell, as when an image is resized, still lies as what it is made of.
            rank = len(item.stages.tensors[output].shape)
            alike = [
                (item.stages.tensors[name].volume, self.orders[item.names[name]])
                for name in item.stages.inputs
                if item.names.get(name) in self.orders and len(item.stages.tensors[name].shape) == rank
            ]
            if output not in found and alike:
                found[output] = max(alike)[1]
        return found

    def _inherited(self, item: PlacedStages) -> dict[str, tuple[int, ...]]:
        """The order of each stage's target that goes along the largest tensor it reads."""
        tensors = item.stages.tensors
        lies = {
            name: (self.found.get(actual) or dense_layout(tensors[name].shape)).strides
            for name, actual in item.names.items()
            if name in item.stages.inputs and actual in self.orders
        }
        found: dict[str, tuple[int, ...]] = {}
        for stage in item.stages.contractions if lies else ():
            target = stage.targets[0].tensor
            shape, factors = tensors[target].shape, product_factors(stage, item.fixed)
            rows = None if factors is None else _rows_of(stage, factors[0])
            if rows is not None:
                lies[target] = dense_layout(shape, _last(_dimension(*rows), len(shape))).strides
                continue
            order = inherited_order(stage, tensors, lies)
            if order is not None and target not in found:
                found[target] = order
                lies[target] = dense_layout(shape, order).strides
        return found


def inherited_order(
    stage: Contraction, tensors: Mapping[str, GroupTensor], lies: Mapping[str, Sequence[int]]
) -> tuple[int, ...] | None:
    """The order of a stage's target that goes along the largest tensor it reads, of those whose strides are told."""
    shape = tensors[stage.targets[0].tensor].shape
    read = {element.tensor: element for element in elements(stage) if element.tensor in lies}
    orders = (
        (tensors[name].volume, order)
        for name, element in read.items()
        if (order := _order_along(stage, element, lies[name], shape)) is not None
    )
    return max(orders, default=(0, None))[1]


def _order_along(
    stage: Contraction, element: Element, strides: Sequence[int], shape: Sequence[int]
) -> tuple[int, ...] | None:
    """The order in which a target lies as what it is made of does; None where some of its loops do not count that."""
    if not _has_steps(stage):
        return None
    extents, steps = extents_of(stage), dict[str, int]()
    for index, stride in zip(element.indices, strides, strict=True):
        form = find_form(index.index if isinstance(index, Guard) else index, extents)
        for name, factor in form.terms if form is not None else ():
            steps[name] = abs(factor) * stride
    found: list[int] = []
    for index, size in zip(stage.targets[0].indices, shape, strict=True):
        form = find_form(index.index if isinstance(index, Guard) else index, extents)
        counted = [steps.get(name, 0) for name, _ in form.terms] if form is not None else [0]
        if size > 1 and 0 in (counted or [0]):
            return None
        found.append(min(counted, default=0))  # of dimensions that were joined the closest one decides
    return _sorted_order(shape, found)


def _copy_of(stages: Stages) -> Copy | None:
    """The copy that an operation is, if it is nothing else."""
    shapes = {name: item.shape for name, item in stages.tensors.items()}
    return find_copy(stages.contractions[0], shapes) if len(stages.contractions) == 1 else None


def _part_of(stages: Stages) -> Copy | None:
    """The slice that an operation is, if it is nothing else."""
    shapes = {name: item.shape for name, item in stages.tensors.items()}
    found = find_part(stages.contractions[0], shapes) if len(stages.contractions) == 1 else None
    return found if found is not None and found.is_part else None


def _sorted_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The dimension order of some strides, outermost first; dimensions of one element stay where they are."""
    places = [place for place, size in enumerate(shape) if size > 1]
    moved = iter(sorted(places, key=lambda place: -strides[place]))
    return tuple(next(moved) if size > 1 else place for place, size in enumerate(shape))


def temporary_orders(stages: Stages, fixed: frozenset[str]) -> dict[str, tuple[int, ...]]:
    """The order of the dimensions of what transposed windows gather, which lies as products want it."""
    found: dict[str, tuple[int, ...]] = {}
    for stage in stages.contractions:
        target = stage.targets[0].tensor
        factors = product_factors(stage, fixed) if target.endswith(GATHERED) else None
        rows = None if factors is None else _rows_of(stage, factors[0])
        if rows is not None:
            found[target] = _last(_dimension(*rows), len(rows[0]))
    return found


def _strided_targets(stages: Stages, output: str) -> Iterator[tuple[int, int]]:
    """The dimensions of an output that a product writes in steps, with the places that a view takes behind the last."""
    for stage in stages.contractions:
        target = stage.targets[0]
        summed = is_contraction(stage) and target.tensor.removesuffix(ACCUMULATED) == output
        gathered = target.tensor == output and any(item.endswith(GATHERED) for item in _read(stage))
        if not (summed or gathered) or not _has_steps(stage):
            continue
        extents = extents_of(stage)
        for dimension, index in enumerate(target.indices):
            form = None if isinstance(index, Guard) else find_form(index, extents)
            step = 1 if form is None else max([factor for _, factor in form.terms] or [1])
            if step > 1:
                yield dimension, step - 1


def _has_steps(stage: Contraction) -> bool:
    """Whether the loops of a formula are known to have steps: without any nothing is read, and no layout helps."""
    return all(isinstance(loop.extent, int) and loop.extent > 0 for loop in stage.loops)


def _read(stage: Contraction) -> Iterator[str]:
    return (item.tensor for item in reachable(*stage.values) if isinstance(item, Element))


def product_factors(stage: Contraction, fixed: frozenset[str]) -> tuple[Element, Element] | None:
    """The filter of a sum of products, and the other factor: the fixed one, or that which is read without tests."""
    factors = find_factors(stage) if _has_steps(stage) else None
    if factors is None:
        return None
    first, second = (item.element for item in factors)
    filters = [item for item in (first, second) if item.tensor in fixed]
    if not filters:
        tested = [any(isinstance(index, Guard) for index in item.indices) for item in (first, second)]
        filters = [item for item, others in zip((first, second), tested, strict=True) if not others]
    if len(filters) != 1:
        return None
    return (first, second) if filters[0] is first else (second, first)


def _counts(stage: Contraction, name: str, extents: Mapping[str, int]) -> bool:
    """Whether a loop counts the target."""
    forms = [find_form(item, extents) for item in stage.targets[0].indices if not isinstance(item, Guard)]
    return any(form is not None and form.coefficient(name) for form in forms)


def _row_orders(
    stage: Contraction, weight: Element, epilogues: Sequence[Contraction], stages: Stages
) -> dict[str, tuple[int, ...]]:
    """The dimension of each output of a product that the fixed factor counts alone lies closest."""
    rows, target = _rows_of(stage, weight), stage.targets[0]
    if rows is None:
        return {}
    places, row = rows
    found: dict[str, tuple[int, ...]] = {}
    if target.tensor in stages.outputs:
        found[target.tensor] = _last(_dimension(places, row), len(places))
    for end in epilogues:
        output = end.targets[0].tensor
        read = meeting(end, target.tensor)
        if output not in stages.outputs or not read:
            continue
        try:
            own = extents_of(end)
            loops = meet([(item, places) for item in read], own)
            forms = [place_in(item, loops, own) for item in end.targets[0].indices]
        except (Unsupported, KeyError):
            continue
        found[output] = _last(_dimension(forms, row), len(forms))
    return found


def _rows_of(stage: Contraction, weight: Element) -> tuple[list[Form], str] | None:
    """Where a product writes, and the loop of its rows."""
    extents = extents_of(stage)
    try:
        places = [place_of(item, {}, extents) for item in stage.targets[0].indices]
    except Unsupported:
        return None
    row = _row_loop(stage, weight, places, extents)
    return None if row is None else (places, row)


def _row_loop(
    stage: Contraction, weight: Element, places: Sequence[Form], extents: Mapping[str, int]
) -> str | None:
    """The longest loop of the target that only the fixed factor has."""
    value = stage.values[0]
    if not isinstance(value, Apply):
        return None
    other = next(item for item in value.operands if item is not weight)
    used = [
        form
        for index in (other.indices if isinstance(other, Element) else ())
        if (form := find_form(index.index if isinstance(index, Guard) else index, extents)) is not None
    ]
    names = {name for form in places for name in form.symbols}
    alone = [name for name in names if not any(form.coefficient(name) for form in used)]
    return max(alone, key=lambda name: (extents[name], name), default=None)


def _dimension(forms: Sequence[Form], loop: str) -> int:
    return next((place for place, form in enumerate(forms) if form.coefficient(loop)), len(forms) - 1)


def _last(dimension: int, rank: int) -> tuple[int, ...]:
    return (*(place for place in range(rank) if place != dimension), dimension)


# --- the border of a graph ------------------------------------------------------------------------------------


Planning = Callable[[Operation, frozenset[str]], PlacedStages | None]
COPY = "math.iden"


def pinned_tensors(graph: Graph) -> set[str]:
    """The tensors that are visible outside of the graph, which lie row by row."""
    found = {item.name for item in members((*graph.inputs, *graph.outputs, *graph.variables))}
    found |= {item.tensor.name for item in graph.constants} | {item.value.name for item in graph.updates}
    for node in graph.nodes:
        if not isinstance(node, Operation):
            found |= {item.name for item in (*operands_of(node), *results_of(node))}
            continue
        for argument in (*node.inputs, *node.outputs):
            if isinstance(argument, Pack):
                found.add(argument.name)
    return found


def insert_copies(graph: Graph, plan: Planning) -> Graph:
    """The graph with copies of inputs that windows want a halo round, and of outputs that products want otherwise."""
    if not all(isinstance(node, Operation) for node in graph.nodes):
        return graph
    pinned, fixed = pinned_tensors(graph), fixed_tensors(graph)
    copies = _Copies(pinned, {item.name for item in members(graph.outputs)})
    nodes: list[Node] = []
    operations = [item for item in graph.nodes if isinstance(item, Operation)]
    for node, stages in _fixed_first([(item, plan(item, fixed)) for item in operations], fixed):
        nodes += copies.change(node, stages)
    return replace(graph, nodes=tuple(nodes))


Planned = tuple[Operation, PlacedStages | None]


def _fixed_first(planned: list[Planned], fixed: frozenset[str]) -> list[Planned]:
    """What weights alone decide before the rest, where some of it has no kernel: it would cut the rest in two."""
    early = [item for item in planned if all(tensor.name in fixed for tensor in members(item[0].outputs))]
    if all(stages is not None for _, stages in early):
        return planned
    names = {id(operation) for operation, _ in early}
    return [*early, *(item for item in planned if id(item[0]) not in names)]


def crossing_tensors(graph: Graph, is_border: Callable[[Operation], bool]) -> set[str]:
    """The tensors that are made before and read behind a node that no list of launches goes across.

    Lists of launches end there, and what leaves one lies row by row.
    """
    made: dict[str, int] = {}
    found: set[str] = set()
    borders = 0
    for node in graph.nodes:
        cuts = not isinstance(node, Operation) or is_border(node)
        for item in operands_of(node):
            if made.get(item.name, borders) != borders or (cuts and item.name in made):
                found.add(item.name)
        borders += cuts
        for item in results_of(node):
            made[item.name] = borders
            if cuts:
                found.add(item.name)
    return found


@dataclass(slots=True)
class _Copies:
    """The copies of a graph while they are made."""

    pinned: set[str]
    outputs: set[str]
    inside: dict[str, Tensor] = field(default_factory=dict)

    def change(self, operation: Operation, plan: PlacedStages | None) -> Iterator[Node]:
        """An operation with the copies that it needs before and behind it."""
        if plan is None:
            yield operation
            return
        wanted = self._wanted(plan)
        before: dict[str, Tensor] = {}
        for tensor in _tensors_of(operation.inputs):
            if tensor.name in wanted:
                if tensor.name not in self.inside:
                    self.inside[tensor.name] = replace(tensor, name=f"{tensor.name} inside")
                    yield _copy(tensor, self.inside[tensor.name], operation)
                before[tensor.name] = self.inside[tensor.name]
        choosing = _Choosing(set())
        orders = choosing.orders_of(plan)
        behind: dict[str, Tensor] = {}
        for tensor in _tensors_of(operation.outputs):
            word = next((new for new, old in plan.names.items() if old == tensor.name), "")
            order = orders.get(word)
            if tensor.name in self.outputs and order is not None and order != tuple(range(len(order))):
                # Who wants a halo round it later reads it where it is made, not a copy of its copy.
                behind[tensor.name] = replace(tensor, name=f"{tensor.name} inside")
        self.inside.update(behind)
        yield replace(
            operation,
            inputs=_renamed(operation.inputs, before),
            outputs=_renamed(operation.outputs, behind),
        )
        for tensor in _tensors_of(operation.outputs):
            if tensor.name in behind:
                yield _copy(behind[tensor.name], tensor, operation)

    def _wanted(self, plan: PlacedStages) -> set[str]:
        choosing = _Choosing(set())
        choosing.read(plan)
        return {
            name
            for name, preference in choosing.preferences.items()
            if preference.halo and name in self.pinned
        }


def _copy(source: Tensor, target: Tensor, operation: Operation) -> Operation:
    return Operation(COPY, (source,), (target,), (), (("T", source.element),), origin=operation.origin)


def _tensors_of(arguments: Iterable[Argument]) -> list[Tensor]:
    return [item for item in members(arguments) if isinstance(item, Tensor)]


def _renamed(arguments: Sequence[Argument], names: Mapping[str, Tensor]) -> tuple[Argument, ...]:
    return tuple(
        names.get(item.name, item)
        if isinstance(item, Tensor)
        else tuple(names.get(part.name, part) for part in item)
        if isinstance(item, tuple)
        else item
        for item in arguments
    )


def fixed_tensors(graph: Graph) -> frozenset[str]:
    """The tensors that are the same in every call: weights, constants, and what is made of them alone."""
    updated = {item.variable.name for item in graph.updates}
    found = {item.name for item in graph.variables if item.name not in updated}
    found |= {item.tensor.name for item in graph.constants}
    for node in graph.nodes:
        if isinstance(node, Operation):
            given = [item.name for item in members(node.inputs)]
            if given and all(name in found for name in given):
                found.update(item.name for item in members(node.outputs))
    return frozenset(found)
