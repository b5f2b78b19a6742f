"""Graphs that are called again for the next tokens: what was computed before stays in variables."""

from __future__ import annotations

from lamella.base.dim import Extent
from lamella.base.dtype import I64, ElementType
from lamella.base.origin import Origin
from lamella.bridge.module_to_graph.frames import graph_name
from lamella.graph.build import Builder
from lamella.graph.nodes import Tensor

SEEN = "tokens_seen"


class Caches:
    """The variables of a graph that generates: how many tokens were seen, and what each layer keeps of them."""

    def __init__(self, builder: Builder, length: int) -> None:
        self.length = length
        self._builder = builder
        self._seen: Tensor | None = None
        self._positions: dict[Extent, Tensor] = {}

    @property
    def seen(self) -> Tensor:
        """How many tokens earlier calls saw."""
        if self._seen is None:
            self._seen = self._builder.variable(SEEN, I64, ())
        return self._seen

    def positions(self, count: Extent) -> Tensor:
        """The positions of the tokens of this call; the first to ask makes the next call begin behind them."""
        if count not in self._positions:
            if not self._positions:
                self._advance(count)
            self._positions[count] = self._builder.call(
                "llm.positions", self.seen, count=count, results=("positions",)
            )
        return self._positions[count]

    def _advance(self, count: Extent) -> None:
        """Make the next call begin behind the tokens of this one; where there is no room for them, the run ends."""
        builder = self._builder
        before, builder.origin = (
            builder.origin,
            Origin(f"a cache with room for {self.length} tokens (--cache)"),
        )
        room = builder.call("layout.range", first=0, last=self.length + 1, results=("tokens_room",))
        after = builder.call("llm.advance", self.seen, room, count=count, results=("tokens_after",))
        builder.origin = before
        builder.update(self.seen, after)

    def remember(self, path: str, tensor: Tensor, origin: Origin | None) -> Tensor:
        """The vectors of all positions so far, `[batch, heads, length, width]`, with those of this call put in."""
        batch, heads, count, width = tensor.shape
        self.positions(count)
        cache = self._builder.variable(graph_name(path), tensor.element, (batch, heads, self.length, width))
        self._builder.origin = origin
        kept = self._builder.call("llm.remember", cache, tensor, self.seen, results=(f"{cache.name}_now",))
        self._builder.update(cache, kept)
        return kept

    def keep(self, path: str, element: ElementType, shape: tuple[Extent, ...]) -> Tensor:
        """A variable for a state of this shape that the graph computes anew in each call."""
        return self._builder.variable(graph_name(path), element, shape)
