"""The graph of one rank: parameters as slices, operations on slices, and the exchanges between them.

Layouts of tensors go from parameters through the graph, forward and backward alike. Where an operation can work on the
slices that there are it does; results of which each rank has a summand are summed at once; where an operation needs a
whole tensor the slices are gathered before it. So every graph is right, whatever its annotations say; they decide how
much is exchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lamella.base.arrays import Array
from lamella.base.dtype import ElementType
from lamella.graph.build import call
from lamella.graph.insert_calls import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER, WAIT
from lamella.graph.model import FusionHint, Model
from lamella.graph.nodes import Argument, Node, Operation, Shape, Tensor, Value, tensors
from lamella.graph.rewrite import FreshNames, Substitution, defined, members, operands_of, rename, results_of
from lamella.train.ranks.asked import Asked, turned
from lamella.train.ranks.layout import Layout, Shard
from lamella.train.ranks.rules import MATMUL, PRODUCT_AXES, Ruling, is_number, rule
from lamella.train.step import EXCHANGES

FIRST_NUMBER = EXCHANGES + 16
"""Numbers below are those of the sums over whole axes."""
COPY = "math.iden"
MAGNITUDE, LARGEST = "math.abs", "math.max_reduce"
NUMBERS_EACH = 2
"""Numbers of an exchange: it has one, the wait for it the next."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One thing that ranks do together in a graph: an operation of it, which a function does by its number."""

    kind: str
    """all_reduce, all_gather or reduce_scatter."""
    axis: str
    """The axis of the mesh whose ranks take part."""
    tensor: str
    shape: Shape
    """What each rank has behind it."""
    element: ElementType
    number: int
    dim: int = 0
    """Along which dimension slices lie."""
    is_later: bool = False
    """Whether it goes on while the rank computes, until its result is read."""
    to: int = 0
    """Along which dimension slices lie behind an all-to-all."""
    eighths: int = 0
    """Of offsets of experts: the slots of a rank for the rows of each other, in eighths of an even share."""


@dataclass(frozen=True, slots=True)
class AxisRank:
    """A rank along one axis of a mesh."""

    axis: str
    rank: int
    ranks: int
    number: int
    """The number of the calls that sum over the axis."""
    first: int = FIRST_NUMBER
    """The number of the first exchange."""


def next_number(exchanges: Sequence[Exchange]) -> int:
    """The number of one more exchange."""
    return FIRST_NUMBER + NUMBERS_EACH * len(exchanges)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the text says of a division beside the layouts of parameters."""

    asked: Mapping[str, Asked] = field(default_factory=dict)
    """By tensor."""
    at_once: Collection[str] = frozenset()
    """Parameters whose products are exchanged before a rank goes on."""
    is_stored: bool = False
    """Whether slices are only how variables are stored: every operation that reads one gathers it before."""


class Division:
    """Rewrites a graph for one rank of an axis, given the layouts of variables."""

    def __init__(
        self, model: Model, layouts: Mapping[str, Shard], place: AxisRank, wishes: Wishes | None = None
    ) -> None:
        self._model, self._place, self._wishes = model, place, wishes or Wishes()
        self._cuts, self._is_stored = layouts, self._wishes.is_stored
        self._layouts: dict[str, Layout] = {} if self._is_stored else dict(layouts)
        self._names = FreshNames(item.name for item in defined(model.graph))
        self._local: dict[str, Tensor] = {}
        self._converted: dict[tuple[str, Layout], Tensor] = {}
        self._nodes: list[Node] = []
        self._apart: set[str] = set()
        self._tensors = {item.name: item for item in defined(model.graph) if isinstance(item, Tensor)}
        self._read = _find_read(model)
        self._magnitudes = {
            item.name
            for node in model.graph.operations()
            if node.operator == MAGNITUDE
            for item in results_of(node)
        }
        self.exchanges: list[Exchange] = []
        self.made_for: dict[str, str] = {}
        """The first result of the operation that a tensor was made for, by the tensor."""

    def run(self, outputs: Mapping[str, Layout]) -> Model:
        """The model of the rank, whose outputs have these layouts, whole where none is said."""
        graph = self._model.graph
        variables = tuple(self._cut(item) for item in graph.variables)
        for item in members(graph.inputs):
            asked = self._wishes.asked.get(item.name)
            if asked is not None and asked.layout is not None and isinstance(item, Tensor):
                self._local[item.name] = self._sliced(item, asked.layout)
                self._layouts[item.name] = asked.layout
        for node in graph.nodes:
            if not any(item.name in self._read for item in results_of(node)):
                continue
            start = len(self._nodes)
            self._visit(node)
            self._trace(node, start)
        self._let_wait()
        ends = {
            item.name: outputs.get(item.name) for item in members(graph.outputs) if isinstance(item, Tensor)
        }
        found = {name: self._end(name, layout) for name, layout in ends.items()}
        reading = Substitution(lambda item: found.get(item.name, item))
        whole = replace(
            graph,
            variables=variables,
            nodes=tuple(self._nodes),
            outputs=tuple(map(reading.argument, graph.outputs)),
        )
        # An output keeps its name: what it was made of is called otherwise.
        swapped: dict[str, str] = {}
        for name, item in found.items():
            if item.name != name:
                swapped |= {item.name: name, name: self._names.take(f"{name}_local")}
        whole = rename(whole, swapped)
        self._apart = {swapped.get(name, name) for name in self._apart}
        self.exchanges = [
            replace(item, tensor=swapped.get(item.tensor, item.tensor)) for item in self.exchanges
        ]
        hint = FusionHint(frozenset(self._apart), is_apart=True, reason="ranks exchange it")
        hints = (*self._model.hints, hint) if self._apart else self._model.hints
        return replace(self._model, graph=whole, hints=hints)

    # --- operations -----------------------------------------------------------------------------------------------

    def _cut(self, item: Tensor) -> Tensor:
        layout = self._cuts.get(item.name)
        made = item if layout is None else replace(item, shape=layout.local(item.shape, self._place.ranks))
        self._local[item.name] = made
        return made

    def _visit(self, node: Node) -> None:
        node = self._with_stored(node) if self._is_stored else node
        if isinstance(node, Operation) and self._is_maximum(node) and self._layouts.get(_first(node).name):
            self._find_largest(node)
            return
        operands, results = list(operands_of(node)), list(results_of(node))
        inputs = [item for item in operands if isinstance(item, Tensor)]
        outputs = [item for item in results if isinstance(item, Tensor)]
        ruling = None
        if isinstance(node, Operation) and len(inputs + outputs) == len(operands + results):
            ruling = self._ruling(node, inputs, outputs)
        if ruling is None:
            ruling = Ruling((None,) * len(inputs), (None,) * len(outputs))
        given = [self._convert(item, layout) for item, layout in zip(inputs, ruling.inputs, strict=True)]
        if isinstance(node, Operation) and len(inputs + outputs) == len(operands + results):
            self._operate(node, ruling, given, outputs)
            return
        whole = {item.name: other for item, other in zip(inputs, given, strict=True)}
        self._nodes.append(Substitution(lambda item: whole.get(item.name, item)).node(node))

    def _ruling(self, node: Operation, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Ruling | None:
        """How an operation works on the slices that there are; None where it takes the whole of all operands."""
        layouts = [self._layouts.get(item.name) for item in inputs]
        layouts = self._divided_product(node, inputs, outputs, layouts)
        return rule(node, inputs, outputs, layouts, self._place.ranks)

    def _operate(self, node: Operation, ruling: Ruling, given: list[Tensor], outputs: list[Tensor]) -> None:
        """The operation on what is given, and what makes of its results what is asked."""
        made = [
            self._made(item, layout, number in ruling.sums)
            for number, (item, layout) in enumerate(zip(outputs, ruling.outputs, strict=True))
        ]
        attributes = tuple((name, ruling.attributes.get(name, value)) for name, value in node.attributes)
        inputs, results = filled(node.inputs, iter(given)), filled(node.outputs, iter(made))
        self._nodes.append(replace(node, inputs=inputs, outputs=results, attributes=attributes))
        is_later = not any(item.name in self._wishes.at_once for item in members(node.inputs))
        for number, (item, own) in enumerate(zip(outputs, made, strict=True)):
            if number in ruling.sums:
                if item.name in self._read:
                    self._sum(own, item, is_later)
            elif own.name != item.name:
                self._turn(own, item, ruling.outputs[number])

    # --- the largest number of slices -----------------------------------------------------------------------------

    def _is_maximum(self, node: Operation) -> bool:
        """Whether an operation finds the largest magnitude of a whole tensor, of which a scale is made."""
        results = [item for item in results_of(node) if isinstance(item, Tensor)]
        if node.operator != LARGEST or not all(map(is_number, results)):
            return False
        return _first(node).name in self._magnitudes

    def _find_largest(self, node: Operation) -> None:
        """The largest of what all ranks find in their slices."""
        (result,) = (item for item in results_of(node) if isinstance(item, Tensor))
        own = replace(result, name=self._names.take(f"{result.name}_own"))
        given = self._local[_first(node).name]
        self._nodes.append(replace(node, inputs=filled(node.inputs, iter([given])), outputs=(own,)))
        row = self._make("aten.reshape", (own,), shape=(1,))
        every = replace(row, name=self._names.take(f"{result.name}_all"), shape=(self._place.ranks,))
        self._exchange(ALL_GATHER, row, every)
        largest = self._make(LARGEST, (every,), axes=(0,), squeeze=True)
        last = call(self._model.library, "aten.reshape", (largest,), {"shape": result.shape}, (result.name,))
        self._nodes.append(replace(last, outputs=(self._result(result, None),)))

    def _divided_product(
        self, node: Operation, inputs: Sequence[Tensor], outputs: Sequence[Tensor], layouts: list[Layout]
    ) -> list[Layout]:
        """Layouts of factors for a product that the text divides, where its parameter is not divided already."""
        asked = self._wishes.asked.get(outputs[0].name) if outputs else None
        axes = PRODUCT_AXES.get(str(dict(node.attributes).get("transpose")))
        if asked is None or not asked.product or node.operator != MATMUL or axes is None or any(layouts):
            return layouts
        summed, kept = axes
        number = kept if asked.product == "column" else summed
        extent = inputs[1].shape[number]
        return [None, Shard(number, (extent,))] if isinstance(extent, int) else layouts

    def _asked(self, name: str, layout: Layout, rank: int) -> tuple[bool, Layout]:
        """Whether something is asked of a tensor, and what."""
        asked = self._wishes.asked.get(name)
        if asked is None:
            return False, layout
        if not asked.is_turned:
            return True, asked.layout
        item = self._tensors[name]
        other = None if layout is None else item.shape[turned(layout, rank)]
        return True, Shard(turned(layout, rank), (other,)) if layout is not None and isinstance(
            other, int
        ) else layout

    def _made(self, item: Tensor, layout: Layout, is_sum: bool) -> Tensor:
        """What the operation gives in the place of a result: the result itself, or what that is made of."""
        if is_sum:
            return replace(item, name=self._names.take(f"{item.name}_summand"))
        _, wanted = self._asked(item.name, layout, len(item.shape))
        if wanted == layout:
            return self._result(item, layout)
        own = replace(item, name=self._names.take(f"{item.name}_made"))
        self._tensors[own.name] = own
        return self._result(own, layout)

    def _sum(self, summand: Tensor, item: Tensor, is_later: bool) -> None:
        """The sum of what ranks have, in the place of a result: the whole of it, or the slice that is asked for."""
        asked = self._wishes.asked.get(item.name)
        _, wanted = self._asked(item.name, None, len(item.shape))
        later = is_later and (asked is None or asked.is_later)
        if wanted is None:
            self._exchange(ALL_REDUCE, summand, self._result(item, None), is_later=later)
        elif asked is not None and asked.is_scattered:
            self._exchange(REDUCE_SCATTER, summand, self._result(item, wanted), wanted.axis)
        else:
            whole = replace(item, name=self._names.take(f"{item.name}_sum"))
            self._tensors[whole.name] = whole
            self._exchange(ALL_REDUCE, summand, self._result(whole, None), is_later=later)
            self._turn(whole, item, None)

    def _turn(self, own: Tensor, item: Tensor, layout: Layout) -> None:
        """A tensor that an operation made, under the name of the result, as it is asked for."""
        _, wanted = self._asked(item.name, layout, len(item.shape))
        found = self._convert(self._tensors[own.name], wanted)
        result = self._result(item, wanted)
        self._nodes.append(Operation(COPY, (found,), (result,), (), (("T", result.element),)))

    def _trace(self, node: Node, start: int) -> None:
        """Let what was made for an operation be of its place in the model."""
        first = next((item.name for item in results_of(node)), None)
        for number in range(start, len(self._nodes)):
            made = self._nodes[number]
            if first is not None:
                self.made_for |= {item.name: first for item in results_of(made)}
            if isinstance(made, Operation) and made.origin is None:
                self._nodes[number] = replace(made, origin=node.origin)

    def _result(self, item: Tensor, layout: Layout) -> Tensor:
        """A result under its own name, as the rank has it."""
        self._layouts[item.name] = layout
        if layout is not None:
            item = replace(item, shape=layout.local(item.shape, self._place.ranks), quantization=None)
        self._local[item.name] = item
        return item

    def _exchange(
        self, operator: str, given: Tensor, result: Tensor, dim: int = 0, is_later: bool = False, to: int = 0
    ) -> None:
        """What the ranks make of what each of them has, in the place of a result."""
        number = self._place.first + NUMBERS_EACH * len(self.exchanges)
        attributes: dict[str, Value] = {"number": number, "group": self._place.axis}
        if operator != ALL_REDUCE:
            attributes |= {"axis": dim, "ranks": self._place.ranks}
        if operator == ALL_TO_ALL:
            attributes["to"] = to
        node = call(self._model.library, operator, (given,), attributes, (result.name,))
        self._nodes.append(replace(node, outputs=(result,)))
        self._apart.add(result.name)
        kind = operator.rpartition(".")[2]
        self.exchanges.append(
            Exchange(
                kind, self._place.axis, result.name, result.shape, result.element, number, dim, is_later, to
            )
        )

    def _let_wait(self) -> None:
        """Let sums go on while a rank computes: what reads a sum waits for it, where something stands between."""
        readers: dict[str, int] = {}
        for number, node in enumerate(self._nodes):
            for item in operands_of(node):
                readers.setdefault(item.name, number)
        makers = {item.name: number for number, node in enumerate(self._nodes) for item in results_of(node)}
        waits: dict[int, list[Node]] = {}
        for place, exchange in enumerate(self.exchanges):
            start = makers[exchange.tensor]
            begins, reader = self._nodes[start], readers.get(exchange.tensor, start)
            if not (exchange.is_later and reader > start + 1 and isinstance(begins, Operation)):
                self.exchanges[place] = replace(exchange, is_later=False)
                continue
            (result,) = (made for made in results_of(begins) if isinstance(made, Tensor))
            begun = replace(result, name=self._names.take(f"{result.name}_begun"))
            said = tuple((name, name == "later" or value) for name, value in begins.attributes)
            self._nodes[start] = replace(begins, outputs=(begun,), attributes=said)
            later: dict[str, Value] = {"number": exchange.number + 1}
            wait = call(self._model.library, WAIT, (begun,), later, (result.name,))
            waits.setdefault(reader, []).append(replace(wait, outputs=(result,), origin=begins.origin))
            self._apart.add(begun.name)
        self._nodes = [
            made for number, node in enumerate(self._nodes) for made in (*waits.get(number, ()), node)
        ]

    # --- conversions ----------------------------------------------------------------------------------------------

    def _convert(self, item: Tensor, wanted: Layout) -> Tensor:
        """What a rank has of a tensor, in another layout."""
        layout = self._layouts.get(item.name)
        if layout == wanted:
            return self._local.get(item.name, item)
        key = item.name, wanted
        if key not in self._converted and layout is not None and wanted is not None:
            found = self._exchanged(item, layout, wanted)
            if found is not None:
                self._converted[key] = found
        if key not in self._converted:
            whole = self._local.get(item.name, item) if layout is None else self._gathered(item, layout)
            self._converted[key] = whole if wanted is None else self._sliced(whole, wanted)
        return self._converted[key]

    def _gathered(self, item: Tensor, layout: Shard) -> Tensor:
        """The whole of a tensor, each part of it from the slices of all ranks."""
        key = item.name, None
        if key not in self._converted:
            local, start = self._local[item.name], 0
            pieces: list[Tensor] = []
            for part in layout.parts:
                own, size = local, part // self._place.ranks
                if len(layout.parts) > 1:
                    own = self._slice(local, layout.axis, start, start + size)
                shape = tuple(
                    part if axis == layout.axis else extent for axis, extent in enumerate(item.shape)
                )
                whole = replace(item, name=self._names.take(f"{item.name}_whole"), shape=shape)
                self._exchange(ALL_GATHER, own, whole, layout.axis)
                pieces.append(whole)
                start += size
            self._converted[key] = self._joined(pieces, layout.axis)
        return self._converted[key]

    def _exchanged(self, item: Tensor, layout: Shard, wanted: Shard) -> Tensor | None:
        """A tensor that is cut along another dimension, without anybody having the whole; None where parts differ."""
        if len(layout.parts) != 1 or len(wanted.parts) != 1 or layout.axis == wanted.axis:
            return None
        shape = wanted.local(item.shape, self._place.ranks)
        result = replace(item, name=self._names.take(f"{item.name}_turned"), shape=shape)
        self._exchange(ALL_TO_ALL, self._local[item.name], result, layout.axis, to=wanted.axis)
        return result

    def _sliced(self, whole: Tensor, layout: Shard) -> Tensor:
        pieces = [self._slice(whole, layout.axis, *ends) for ends in layout.bounds(*self._where)]
        return self._joined(pieces, layout.axis)

    def _slice(self, item: Tensor, axis: int, begin: int, end: int) -> Tensor:
        return self._make("layout.slice", (item,), axes=(axis,), begin=(begin,), end=(end,))

    def _joined(self, pieces: list[Tensor], axis: int) -> Tensor:
        return pieces[0] if len(pieces) == 1 else self._make("layout.concat", (tuple(pieces),), axis=axis)

    @property
    def _where(self) -> tuple[int, int]:
        return self._place.rank, self._place.ranks

    def _make(self, operator: str, inputs: tuple[Argument, ...], **attributes: Value) -> Tensor:
        (result,) = self._make_all(operator, inputs, ("",), **attributes)
        return result

    def _make_all(
        self, operator: str, inputs: tuple[Argument, ...], endings: Sequence[str], **attributes: Value
    ) -> list[Tensor]:
        """The results of an operation on what there is, each with an ending of its name."""
        (first, *_) = tensors(inputs[0])
        stem = f"{first.name}_{operator.rpartition('.')[2]}"
        names = tuple(self._names.take(f"{stem}{ending}") for ending in endings)
        node = call(self._model.library, operator, inputs, attributes, names)
        self._nodes.append(node)
        return [item for item in results_of(node) if isinstance(item, Tensor)]

    # --- variables that are only stored as slices -----------------------------------------------------------------

    def _with_stored(self, node: Node) -> Node:
        """An operation that reads whole variables, gathered for it alone: nothing keeps them longer."""
        read = [item for item in operands_of(node) if item.name in self._cuts and isinstance(item, Tensor)]
        whole = {item.name: self._gathered(item, self._cuts[item.name]) for item in read}
        for item in read:
            del self._converted[item.name, None]
        return Substitution(lambda item: whole.get(item.name, item)).node(node) if whole else node

    def _end(self, name: str, layout: Layout) -> Tensor:
        """An output in a layout; gradients of variables that are stored as slices are summed before they are cut."""
        item = self._tensors[name]
        if self._is_stored and layout is not None:
            shape = layout.local(item.shape, self._place.ranks)
            own = replace(item, name=self._names.take(f"{name}_own"), shape=shape)
            self._exchange(REDUCE_SCATTER, item, own, layout.axis)
            return own
        return self._convert(item, layout)


def _find_read(model: Model) -> set[str]:
    """What somebody needs: outputs, the next values of variables, what is watched, and all that they are made of."""
    graph = model.graph
    found = {item.name for item in members(graph.outputs)} | {item.tensor for item in model.places}
    found |= {item.value.name for item in graph.updates}
    for node in reversed(graph.nodes):
        if any(item.name in found for item in results_of(node)):
            found |= {item.name for item in operands_of(node)}
    return found


def _first(node: Operation) -> Tensor:
    (found, *_) = (item for argument in node.inputs for item in tensors(argument))
    return found


def filled(arguments: tuple[Argument, ...], items: Iterator[Tensor]) -> tuple[Argument, ...]:
    """Arguments with other tensors in their places, packs and missing ones as they are."""

    def fill(argument: Argument) -> Argument:
        if argument is None:
            return None
        return tuple(next(items) for _ in argument) if isinstance(argument, tuple) else next(items)

    return tuple(map(fill, arguments))


@dataclass(frozen=True, slots=True)
class LocalData(Mapping[str, Array]):
    """The numbers of a model of which a rank has slices, each cut when it is asked for."""

    data: Mapping[str, Array]
    layouts: Mapping[str, Shard]
    rank: int
    ranks: int

    def __getitem__(self, name: str) -> Array:
        layout = self.layouts.get(name)
        array = self.data[name]
        return array if layout is None else layout.cut(array, self.rank, self.ranks)

    def __contains__(self, name: object) -> bool:
        return name in self.data

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)
