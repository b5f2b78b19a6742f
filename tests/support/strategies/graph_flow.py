"""Random graphs of branches inside branches and of convergences, over tensors of one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from lamella.base.dtype import BOOL, F32
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Branch, Tensor
from tests.support.strategies.graph import library

UNARY = ("math.sin", "math.neg", "math.exp", "nn.relu", "math.abs")
BINARY = ("math.add", "math.mul", "math.max", "math.sub")
SHAPE = (2, 3)
DEEPEST = 3


@dataclass
class Grower:
    """Adds operations, branches and convergences to a graph; what a block makes is known in it alone."""

    draw: st.DrawFn
    builder: Builder
    known: list[Tensor]
    conditions: list[Tensor]

    def grow(self, depth: int) -> None:
        """A few steps."""
        for _ in range(self.draw(st.integers(1, 4))):
            kinds = (
                "unary",
                "unary",
                "binary",
                "converge",
                *(("branch", "chain") if depth < DEEPEST else ()),
            )
            kind = self.draw(st.sampled_from(kinds))
            self.known += self._make(kind, depth)

    def _make(self, kind: str, depth: int) -> list[Tensor]:
        match kind:
            case "unary":
                return [self.builder.call(self.draw(st.sampled_from(UNARY)), self.pick())]
            case "binary":
                operator = self.draw(st.sampled_from(BINARY))
                return [self.builder.call(operator, self.pick(), self.pick())]
            case "converge":
                merged = tuple(self.pick() for _ in range(self.draw(st.integers(1, 4))))
                threshold = self.draw(st.sampled_from((1, 30, 50, 99)))
                return [self.builder.call("nac.converge", merged, threshold=threshold)]
            case "branch":
                return self._branch(depth)
        return self._chain(depth)

    def pick(self) -> Tensor:
        """A tensor that is known, the newest more often."""
        return self.draw(st.sampled_from([*self.known, *self.known[-3:]]))

    def _branch(self, depth: int) -> list[Tensor]:
        count, condition = self.draw(st.integers(1, 5)), self._condition()
        return list(self.builder.branch(condition, self._block(depth, count), self._block(depth, count)))

    def _condition(self) -> Tensor:
        """An input, or one that the data decide."""
        if self.draw(st.booleans()):
            return self.draw(st.sampled_from(self.conditions))
        positive = self.builder.call("math.gt", self.pick(), self.builder.constant(0.0, F32))
        return self.builder.call("math.any_reduce", positive, squeeze=True)

    def _block(self, depth: int, count: int) -> Callable[[], list[Tensor]]:
        """A block, which sees what is known and hands over some of it, tensors from outside too."""

        def block() -> list[Tensor]:
            outer, self.known = self.known, list(self.known)
            if self.draw(st.booleans()):
                self.grow(depth + 1)
            found = [self.pick() for _ in range(count)]
            self.known = outer
            return found

        return block

    def _chain(self, depth: int) -> list[Tensor]:
        """A branch of two conditions, the second of which is computed only where the first fails."""
        first = self.builder.region(lambda: [self._condition()])
        second = self.builder.region(lambda: [self._condition()])
        blocks = [self.builder.region(self._block(depth, 1)) for _ in range(3)]
        result = Tensor(self.builder.fresh("chosen"), F32, SHAPE)
        self.builder._nodes.append(Branch((first, second), tuple(blocks), (result,)))
        return [result]


@st.composite
def flow_models(draw: st.DrawFn) -> Model:
    """A model of branches and convergences, with weights and constants."""
    builder = Builder(library(), "G")
    known = [builder.input(f"x{number}", F32, SHAPE) for number in range(2)]
    conditions = [builder.input(f"c{number}", BOOL, ()) for number in range(2)]
    known += [builder.variable(f"w{number}", F32, SHAPE) for number in range(2)]
    known.append(builder.constant(tuple(float(item) for item in range(6)), F32, SHAPE))
    grower = Grower(draw, builder, known, conditions)
    grower.grow(0)
    grower.known += grower._branch(0)
    outputs = draw(st.lists(st.sampled_from(grower.known[-6:]), min_size=1, max_size=3, unique=True))
    return Model(builder.finish(*outputs), library())
