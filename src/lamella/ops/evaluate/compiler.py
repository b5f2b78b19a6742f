"""What makes expressions ready once: each becomes a function of the names that have values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from lamella.base.dim import TooComplex
from lamella.base.dtype import ElementType
from lamella.base.limits import Limits
from lamella.base.source import Span
from lamella.lang.skriptnd.rules.invocation import NO_VALUE, TOO_COMPLEX
from lamella.ops.evaluate.elementwise import lift
from lamella.ops.evaluate.folds import contains
from lamella.ops.evaluate.walk import Node
from lamella.ops.problem import Fault
from lamella.ops.scalars.arithmetic import Arithmetic, Binary, Budget
from lamella.ops.scalars.values import Code, Scope, Unknown, word_of_type


class Compiler:
    """Makes expressions of one operator ready; `words` are the types of the names it declares."""

    def __init__(
        self, makers: Makers, limits: Limits, words: Mapping[str, str], budget: Budget | None = None
    ) -> None:
        self.makers = makers
        self.limits = limits
        self.words = words
        self.arithmetic = Arithmetic(limits, budget)
        self.binary: Mapping[str, Binary] = {
            **{sign: lift(sign, rule, self.arithmetic.spend) for sign, rule in self.arithmetic.signs.items()},
            "in": contains(self.arithmetic),
        }

    def compile(self, node: Node) -> Code:
        """An expression as a function of the names that have values."""
        return self.makers[type(node)](self, node)

    def compile_some(self, node: Node | None) -> Code | None:
        """An expression that may be left out."""
        return None if node is None else self.compile(node)


Makers: TypeAlias = Mapping[type, Callable[..., Code]]
"""What makes each kind of node ready: a function of the compiler and the node."""


def guarded(code: Code, span: Span) -> Code:
    """The same code; a fault inside gets the place of the expression."""

    def _run(scope: Scope) -> object:
        try:
            return code(scope)
        except Fault as fault:
            raise fault.at(span) from None
        except TooComplex as problem:
            raise Fault(TOO_COMPLEX, what=problem).at(span) from None

    return _run


def read(name: str, span: Span) -> Code:
    """The value of a name."""

    def _run(scope: Scope) -> object:
        try:
            value = scope[name]
        except KeyError:
            raise Fault(NO_VALUE, name=name).at(span) from None
        if type(value) is Unknown:
            raise value.problem
        return value

    return _run


def word_in(element: object) -> str:
    """The primitive type that a generic one stands for in this call."""
    return word_of_type(element) if isinstance(element, ElementType) else "int"
