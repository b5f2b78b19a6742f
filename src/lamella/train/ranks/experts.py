"""The graph of a rank that has some of the experts: rows go to the ranks of their experts, and come back.

permuted ─ place ─ all_to_all ─ place ─▶ rows of own experts ─ grouped_gemm … ─ pick ─ all_to_all ─ pick ─▶ expert_out

Ranks along ep have tokens of their own, as those along dp have. A rank has `capacity` slots for what each other one
sends it, more than an even share: they all know from the offsets of all whether these are enough, and where they are
not nobody goes on, and the step is taken again with more. So nothing is left out, and sizes are known before the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from lamella.base.dim import Extent, ceil_divide, mul, smaller
from lamella.base.errors import InputError
from lamella.graph.insert_calls import ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER
from lamella.graph.model import Model
from lamella.graph.nodes import Node, Operation, Tensor
from lamella.graph.rewrite import operands_of, results_of
from lamella.train.ranks.asked import WHOLE
from lamella.train.ranks.division import AxisRank, Division, filled
from lamella.train.ranks.layout import Layout, Shard
from lamella.train.ranks.rules import ELEMENTWISE, Ruling, is_number, rule
from lamella.train.sources import TrainableGraph

EIGHTHS = 12
"""Slots for the rows that one rank sends another, in eighths of an even share, before any step has needed more."""
GROUPED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "moe.grouped_gemm": ("rwo", "r"),
        "moe.grouped_gemm_backward": ("rrwo", "rw"),
        "moe.experts": ("rwwo", "r"),
        "moe.experts_backward": ("rrwwo", "rww"),
    }
)
"""What the operands and results of operators on experts are: rows, weights, offsets."""
STILL = ELEMENTWISE - {
    f"{module}.{name}{ending}"
    for module in ("math", "llm", "nn")
    for name in ("exp", "log", "sigmoid")
    for ending in ("", "_backward")
}
"""Operators that make 0 of zeros; a quotient is one of rows and a scale."""
ALONG_ROWS = ("llm.split", "llm.concat")
"""Operators that leave rows alone where their attribute `dim` is not the first."""


def capacity(rows: Extent, ranks: int, eighths: int) -> Extent:
    """Slots for the rows that one rank sends another, of all that it has."""
    return smaller(rows, ceil_divide(mul(rows, eighths), 8 * ranks))


def wanted_home(source: TrainableGraph) -> frozenset[str]:
    """Tensors that `@comm(…, group="ep")` lets every rank have for its own tokens."""
    marks = source.marks.items()
    return frozenset(name for name, mark in marks if mark.group == "ep" and mark.exchange in WHOLE)


@dataclass(frozen=True, slots=True)
class Routes:
    """How rows of one order go to the ranks of their experts."""

    rows: Extent
    capacity: Extent
    slots: Tensor
    """Where each row lies in what is sent."""
    places: Tensor
    """Where what is received goes."""
    offsets: Tensor
    """Where the rows of each of the rank's own experts begin."""


class NeedsWholeError(InputError):
    """An operation needs the whole of a gradient, of which each rank has a part."""


class ExpertDivision(Division):
    """Rewrites a graph for one of the ranks that share experts.

    What is made of the elements of their weights, such as a narrow type, is sliced like these, unless `is_plain`.
    """

    def __init__(
        self,
        model: Model,
        layouts: Mapping[str, Shard],
        place: AxisRank,
        eighths: int = EIGHTHS,
        home: frozenset[str] = frozenset(),
        is_plain: bool = False,
    ) -> None:
        super().__init__(model, layouts, place)
        self._is_plain = is_plain
        self._eighths, self._home = eighths, home
        self._routes: dict[str, Routes] = {}
        """By the offsets that rows are in the order of."""
        self._routed: dict[str, Routes] = {}
        """By tensors of which this rank has the rows of its own experts."""
        self._dispatched: dict[tuple[str, str], Tensor] = {}
        self._returned: dict[str, Tensor] = {}
        self._weights = set(layouts)
        """Slices of which all ranks together have the whole: parameters, and what is made of their elements."""
        self._empty: set[str] = set()
        """Of what is sent, that which is 0 in slots without a row."""

    def _visit(self, node: Node) -> None:
        operands = [item for item in operands_of(node) if isinstance(item, Tensor)]
        results = [item for item in results_of(node) if isinstance(item, Tensor)]
        if isinstance(node, Operation) and self._is_maximum(node) and operands[0].name in self._empty:
            # The largest of the rows of one's own experts; `share_maxima` finds that of all.
            self._nodes.append(
                replace(node, inputs=filled(node.inputs, iter([self._local[operands[0].name]])))
            )
            for item in results:
                self._result(item, None)
            return
        if isinstance(node, Operation):
            routes = self._grouped(node, operands) or self._aligned(node, operands, results)
            if routes is not None:
                self._route(node, routes, operands, results)
                return
        super()._visit(node)

    def _ruling(self, node: Operation, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Ruling | None:
        """Slices stay slices element by element; all else takes whole weights, and the tokens of the rank."""
        sliced = [item for item in inputs if self._layouts.get(item.name)]
        if not sliced:
            return None
        layouts = [self._layouts.get(item.name) for item in inputs]
        ruling = rule(node, inputs, outputs, layouts, self._place.ranks)
        is_mixed = any(
            not is_number(item) and not layout for item, layout in zip(inputs, layouts, strict=True)
        )
        has_sums = any(is_number(item) and item.name in self._read for item in outputs)
        if all(item.name in self._weights for item in sliced):
            if self._is_plain or node.operator not in ELEMENTWISE or is_mixed or has_sums:
                return None
            self._weights |= {item.name for item in outputs if ruling is not None}
            return ruling
        if node.operator not in ELEMENTWISE or ruling is None or is_mixed or has_sums:
            raise NeedsWholeError(
                f"{node.operator} needs the whole of '{sliced[0].name[:80]}', of which each rank of ep has a part",
                hint="leave ep out, or take the experts out of what makes this",
            )
        return ruling

    # --- operations on rows -----------------------------------------------------------------------------------

    def _grouped(self, node: Operation, inputs: Sequence[Tensor]) -> Routes | None:
        """The routes of an operation on experts that ranks share."""
        kinds, _ = GROUPED.get(node.operator, ("", ""))
        if not kinds or len(kinds) != len(inputs):
            return None
        rows, weights, offsets = (
            [item for item, kind in zip(inputs, kinds, strict=True) if kind == one] for one in "rwo"
        )
        count = weights[0].shape[0]
        if not isinstance(count, int):
            return None
        are_shared = all(self._layouts.get(item.name) == Shard(0, (count,)) for item in weights)
        if not are_shared or offsets[0].shape != (count + 1,):
            return None
        return self._routes_of(offsets[0], rows[0].shape[0])

    def _aligned(self, node: Operation, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> Routes | None:
        """The routes of an operation that makes each row of the same row of its operands, some of them sent."""
        routes = next((self._routed[item.name] for item in inputs if item.name in self._routed), None)
        if routes is None:
            return None
        if node.operator in ALONG_ROWS:
            dim, rank = dict(node.attributes).get("dim"), len(inputs[0].shape)
            is_aligned = isinstance(dim, int) and dim % rank != 0
        else:
            shapes = {item.shape for item in (*inputs, *results) if not is_number(item)}
            has_sums = any(is_number(item) and item.name in self._read for item in results)
            is_aligned = node.operator in ELEMENTWISE and len(shapes) == 1 and not has_sums
        rows = [item for item in (*inputs, *results) if not is_number(item)]
        return routes if is_aligned and all(len(item.shape) == 2 for item in rows) else None

    def _route(
        self, node: Operation, routes: Routes, inputs: Sequence[Tensor], results: Sequence[Tensor]
    ) -> None:
        """The operation on the rows of the rank's own experts."""
        of_inputs, of_results = GROUPED.get(node.operator, ("r" * len(inputs), "r" * len(results)))
        given = [
            {"w": self._local.get(item.name, item), "o": routes.offsets}.get(kind) or self._sent(item, routes)
            for item, kind in zip(inputs, of_inputs, strict=True)
        ]
        made = [
            self._slice_of(item) if kind == "w" else item if is_number(item) else self._rows_of(item, routes)
            for item, kind in zip(results, of_results, strict=True)
        ]
        self._nodes.append(
            replace(node, inputs=filled(node.inputs, iter(given)), outputs=filled(node.outputs, iter(made)))
        )
        rows = [
            item for item, kind in zip(inputs, of_inputs, strict=True) if kind == "r" and not is_number(item)
        ]
        is_still = node.operator in STILL or node.operator in ALONG_ROWS
        if node.operator in GROUPED or (is_still and all(map(self._is_empty, rows))):
            self._empty |= {item.name for item, kind in zip(results, of_results, strict=True) if kind == "r"}
        for item in results:
            if item.name in self._home and item.name in self._routed:
                self._local[item.name] = self._brought_home(item)
                del self._routed[item.name]

    def _is_empty(self, item: Tensor) -> bool:
        """Whether what is sent of a tensor is 0 in slots without a row: all that comes from home is."""
        return item.name in self._empty or item.name not in self._routed

    def _slice_of(self, item: Tensor) -> Tensor:
        """The gradient of the weights of the rank's own experts, of the tokens of all ranks."""
        extent = item.shape[0]
        return self._result(item, Shard(0, (extent,)) if isinstance(extent, int) else None)

    def _rows_of(self, item: Tensor, routes: Routes) -> Tensor:
        """A result that has the rows of the rank's own experts."""
        shape = (mul(routes.capacity, self._place.ranks), *item.shape[1:])
        self._routed[item.name] = routes
        self._local[item.name] = made = replace(item, shape=shape, quantization=None)
        return made

    # --- routes -----------------------------------------------------------------------------------------------

    def _routes_of(self, offsets: Tensor, rows: Extent) -> Routes:
        if offsets.name not in self._routes:
            ranks, own = self._place.ranks, self._convert(offsets, None)
            slots = capacity(rows, ranks, self._eighths)
            name = self._names.take(f"{offsets.name}_all")
            whole = replace(own, name=name, shape=(mul(own.shape[0], ranks),))
            self._exchange(ALL_GATHER, own, whole)
            self.exchanges[-1] = replace(self.exchanges[-1], eighths=self._eighths)
            sizes = {"ranks": ranks, "capacity": slots}
            sent = self._make("moe.find_slots", (own,), rows=rows, **sizes)
            places, local = self._make_all(
                "moe.find_places", (whole,), ("", "_offsets"), rank=self._place.rank, **sizes
            )
            self._routes[offsets.name] = Routes(rows, slots, sent, places, local)
        return self._routes[offsets.name]

    def _sent(self, item: Tensor, routes: Routes) -> Tensor:
        """The rows of a tensor that the rank's own experts take, from all ranks."""
        if is_number(item):
            return self._convert(item, None)
        if self._routed.get(item.name) is routes:
            return self._local[item.name]
        key = item.name, routes.slots.name
        if key not in self._dispatched:
            sent = self._placed(self._convert(item, None), routes.slots, routes)
            self._dispatched[key] = self._placed(
                self._turned(sent, routes, f"{item.name}_sent"), routes.places, routes
            )
        return self._dispatched[key]

    def _convert(self, item: Tensor, wanted: Layout) -> Tensor:
        """What a rank has of a tensor; rows that were sent are brought home to their tokens."""
        if item.name in self._routed and wanted is None:
            if item.name not in self._returned:
                self._returned[item.name] = self._brought_home(item)
            return self._returned[item.name]
        return super()._convert(item, wanted)

    def _brought_home(self, item: Tensor) -> Tensor:
        routes = self._routed[item.name]
        back = self._make("moe.pick_rows", (self._local[item.name], routes.places))
        return self._make(
            "moe.pick_rows", (self._turned(back, routes, f"{item.name}_back", is_back=True), routes.slots)
        )

    def _placed(self, item: Tensor, places: Tensor, routes: Routes) -> Tensor:
        count = mul(routes.capacity, self._place.ranks)
        return self._make("moe.place_rows", (item, places), count=count)

    def _turned(self, item: Tensor, routes: Routes, name: str, is_back: bool = False) -> Tensor:
        """What ranks have for each other, exchanged: rows by who takes them become rows by who sent them."""
        ranks, columns = self._place.ranks, item.shape[1]
        flat = mul(routes.capacity, ranks)
        ends = [(1, flat, columns), (ranks, routes.capacity, columns)]
        before, after = reversed(ends) if is_back else ends
        view = self._make("aten.reshape", (item,), shape=before)
        result = replace(item, name=self._names.take(name), shape=after)
        self._exchange(ALL_TO_ALL, view, result, int(is_back), to=int(not is_back))
        return self._make("aten.reshape", (result,), shape=(flat, columns))

    def _end(self, name: str, layout: Layout) -> Tensor:
        """An output; a gradient of whole weights is one of the rank's own tokens: the ranks' are summed, and cut."""
        item = self._tensors[name]
        if layout is None or self._layouts.get(name) is not None:
            return super()._end(name, layout)
        own = replace(
            item, name=self._names.take(f"{name}_own"), shape=layout.local(item.shape, self._place.ranks)
        )
        self._exchange(REDUCE_SCATTER, self._convert(item, None), own, layout.axis)
        return own
