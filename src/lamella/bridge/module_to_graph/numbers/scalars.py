"""Real numbers that depend on runtime dimensions, as `1.0 / (B * T)`: tensors of rank 0 that the graph computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.dim import Dim
from lamella.base.dtype import I64, ElementType
from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.road import Road
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate.evaluate import Problem, Surroundings, evaluate
from lamella.lang.module.instantiate.messages import describe
from lamella.lang.module.instantiate.nodes import Value
from lamella.lang.module.nodes import Call, Chain, Expr, Name, Unary
from lamella.lang.module.rules.constants import KIND, NOT_CONSTANT

SIGNS: Mapping[str, str] = MappingProxyType(
    {"+": "math.add", "-": "math.sub", "*": "math.mul", "/": "math.div", "**": "math.pow"}
)
FUNCTIONS: Mapping[str, str] = MappingProxyType({"sqrt": "math.sqrt", "log2": "math.log2", "abs": "math.abs"})
FOLDS: Mapping[str, str] = MappingProxyType({"min": "math.min", "max": "math.max"})
"""Intrinsics of one argument and of several, and what computes them in a graph."""


def evaluate_real(
    expr: Expr, frame: Frame, road: Road, element: ElementType, around: Surroundings | None = None
) -> Value | Tensor:
    """The value of an expression; a tensor of rank 0 where only the run tells it."""
    try:
        value = evaluate(expr, frame.known, around or Surroundings())
    except Problem as problem:
        if problem.finding.code != NOT_CONSTANT.code:
            raise
        return _Computation(frame, road, element).compute(expr, problem)
    if isinstance(value, Dim):
        return road.builder.call("layout.cast", road.builder.constant(value, I64), types={"R": element})
    return value


@dataclass(frozen=True, slots=True)
class _Computation:
    """One number under way into the graph."""

    frame: Frame
    road: Road
    element: ElementType

    def compute(self, expr: Expr, why: Problem) -> Tensor:
        """The operations that give a number; what they cannot give stays the problem that it was."""
        match expr:
            case Chain(first, rest) if all(sign in SIGNS for sign, _ in rest):
                return self._fold(first, [(SIGNS[sign], operand) for sign, operand in rest])
            case Unary("-", operand):
                return self.road.builder.call("math.neg", self._operand(operand))
            case Call(Name(name), (argument,)) if name in FUNCTIONS:
                return self.road.builder.call(FUNCTIONS[name], self._operand(argument.value))
            case Call(Name(name), (argument, *others)) if name in FOLDS:
                return self._fold(argument.value, [(FOLDS[name], item.value) for item in others])
        raise why

    def _fold(self, first: Expr, rest: Sequence[tuple[str, Expr]]) -> Tensor:
        found = self._operand(first)
        for operator, operand in rest:
            found = self.road.builder.call(operator, found, self._operand(operand))
        return found

    def _operand(self, expr: Expr) -> Tensor:
        value = evaluate_real(expr, self.frame, self.road, self.element)
        if isinstance(value, Tensor):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Problem(
                KIND.at(expr.span, what="an operand", found=describe(value), wanted="a number", repair="")
            )
        return self.road.builder.constant(float(value), self.element)
