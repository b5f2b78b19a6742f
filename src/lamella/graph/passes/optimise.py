"""The optimiser: passes over and over until nothing changes, and what they did.

A round is `simplify`, `cancel_transposes`, `fold_constants`, `cse` and `dce`; each takes time linear in the graph, and
there are at most `MOST_ROUNDS` rounds. At the end `variable_dce` takes away what only dead operations read. All of it
keeps every bit of every output. Where it is asked for, `fast_math` joins the round, which keeps numbers only as far as
its own equations do. `propagate_layout` is left out: sums are added up in another order behind it.

Where weights are loaded is not said by a graph: variables are there from the start. A format with loads in its code
puts each load in front of its first reader when the graph is written in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.records import dataclass
from lamella.graph.model import Model
from lamella.graph.nodes import Graph
from lamella.graph.passes.cancel_transposes import cancel_transposes
from lamella.graph.passes.cse import cse
from lamella.graph.passes.dce import dce
from lamella.graph.passes.fast_math import fast_math
from lamella.graph.passes.fold_constants import Evaluate, fold_constants
from lamella.graph.passes.simplify import simplify
from lamella.graph.passes.variable_dce import variable_dce

MOST_ROUNDS = 4
_Step: TypeAlias = Callable[[Model, Evaluate], Model]


@dataclass(frozen=True, slots=True)
class Optimised:
    """A model after the optimiser, and how many operations and variables went on the way."""

    model: Model
    removed: Mapping[str, int]
    """Operations by the pass that took them away; dead ones count for the pass that finds them so."""
    variables: int
    rounds: int
    before: int
    """Operations that the model had."""

    @property
    def after(self) -> int:
        """Operations that the model has."""
        return _size(self.model.graph)

    def lines(self) -> list[str]:
        """What was done, for people: one line in all, and one for each pass that did something."""
        found = [
            f"{self.before} operations before, {self.after} after, in {self.rounds} round{'s' * (self.rounds > 1)}"
        ]
        found += [f"  {count:5} by {name}" for name, count in self.removed.items() if count]
        if self.variables:
            found.append(f"  {self.variables:5} unused variable{'s' * (self.variables > 1)}")
        return found


def optimise(model: Model, evaluate: Evaluate, relaxed: bool = False) -> Optimised:
    """The model after all passes of the optimiser; the backend that is given computes constants."""
    steps = {name: step for name, step in _ROUND.items() if relaxed or step is not _fast_math}
    removed = dict.fromkeys(steps, 0)
    found, rounds = model, 0
    while rounds < MOST_ROUNDS:
        rounds += 1
        start = found.graph
        for name, step in steps.items():
            size = _size(found.graph)
            found = step(found, evaluate)
            removed[name] += size - _size(found.graph)
        # Each pass may open the way for an earlier one, so the round is repeated.
        if found.graph == start:
            break
    found = variable_dce(found)
    variables = len(model.graph.variables) - len(found.graph.variables)
    return Optimised(found, MappingProxyType(removed), variables, rounds, _size(model.graph))


def _size(graph: Graph) -> int:
    return sum(1 for _ in graph.operations())


def _fast_math(model: Model, evaluate: Evaluate) -> Model:
    return fast_math(model)


_ROUND: Mapping[str, _Step] = MappingProxyType(
    {
        "simplify": lambda model, _: simplify(model),
        "fast_math": _fast_math,
        "cancel_transposes": lambda model, _: cancel_transposes(model),
        "fold_constants": fold_constants,
        "cse": lambda model, _: cse(model),
        "dce": lambda model, _: dce(model),
    }
)
