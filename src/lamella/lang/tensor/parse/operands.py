"""Operands: values, and the numbers that may stand where a value is expected."""

from __future__ import annotations

from itertools import count

from lamella.base.cursor import SHOWN
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.tensor.nodes import (
    INDEX,
    Constant,
    IndexOrSize,
    Instruction,
    Number,
    Scalar,
    SizeOf,
    Statement,
    Type,
    Value,
)
from lamella.lang.tensor.nodes.types import FLOATS
from lamella.lang.tensor.parse.lexis import FLOAT, INT, LOCAL, MODIFIER
from lamella.lang.tensor.parse.types import Types
from lamella.lang.tensor.rules import syntax


class Operands(Types):
    """What instructions work on.

    A number where only a value may stand becomes a constant before the instruction. For that, and for a lone `:`, the
    types of the values of a function are remembered: a visible name has the type that it was given last.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self.types_of: dict[str, Type] = {}
        self.hoisted: list[Statement] = []
        self._numbers = count()
        self._taken: frozenset[str] | None = None

    # --- what stands before an instruction ------------------------------------------------------------------

    def hoist(self, instruction: Instruction, type_: Type, token: int) -> Value:
        """Put an instruction before the one that is being read; the value it produces."""
        span = self.span(token)
        value = Value(self.fresh_name(), span)
        self.types_of[value.name] = type_
        self.hoisted.append(Statement((value,), instruction, span))
        return value

    def fresh_name(self) -> str:
        """A name that stands nowhere in the text."""
        if self._taken is None:
            self._taken = frozenset(text[1:] for text in self.texts if text.startswith("%"))
        return next(name for number in self._numbers if (name := f"c{number}") not in self._taken)

    def literal(self, token: int, number: Number, type_: Type) -> Value:
        """The value of a number that stands where only a value may stand."""
        if type(number) is int and isinstance(type_, Scalar) and type_.name in FLOATS:
            number = float(number)
        value = self.hoist(Constant(number, type_), type_, token)
        text = self.texts[token]
        self.note(
            syntax.LITERAL_OPERAND, self.span(token), text=text, name=value.name, type=_type_word(type_)
        )
        return value

    def size_of(self, operand: Value, mode: int, token: int) -> Value:
        """The size of a mode that only the run knows."""
        return self.hoist(SizeOf(operand, mode), INDEX, token)

    # --- operands -------------------------------------------------------------------------------------------

    def operand(self) -> Value:
        """A value that an instruction takes."""
        return self.local("a value", "as an operand")

    def next_operand(self) -> Value:
        """`',' value`."""
        self.expect(",", "between operands")
        return self.operand()

    def operands(self, count: int) -> tuple[Value, ...]:
        """As many values as an instruction takes, with commas between them."""
        return (self.operand(), *(self.next_operand() for _ in range(count - 1)))

    def index_value(self) -> Value:
        """An index of an element, a value or leniently a number."""
        if self.kind == INT:
            token = self.index
            return self.literal(token, self.integer("an index", "here"), INDEX)
        return self.local("an index", "in '[…]'")

    def index_list(self) -> tuple[Value, ...]:
        """`'[' index,* ']'`."""
        self.expect("[", "before the indices")
        found = [] if self.text == "]" else self.separated(self.index_value)
        self.expect("]", "after the indices")
        return tuple(found)

    def position(self) -> tuple[Value, Value]:
        """`'[' index ',' index ']'`."""
        self.expect("[", "before the position")
        row = self.index_value()
        self.expect(",", "between the row and the column")
        column = self.index_value()
        self.expect("]", "after the position")
        return row, column

    def index_or_size(self, what: str, where: str) -> IndexOrSize:
        """A value or a number."""
        if self.kind == LOCAL:
            return self.local(what, where)
        return self.integer(what, where)

    def number(self) -> Number:
        """A constant of any kind."""
        if self.text in ("true", "false"):
            return self.texts[self.next()] == "true"
        if self.kind == INT:
            return self.integer("a constant", "here")
        if self.kind == FLOAT:
            return self.real("here")
        if not self.accept("["):
            raise self.problem("a constant", "after 'constant'")
        real = self.real("as the real part")
        self.expect(",", "between the parts of a complex number")
        imaginary = self.real("as the imaginary part")
        self.expect("]", "after a complex number")
        return real, imaginary

    def modifiers(self) -> list[int]:
        """The tokens of the modifiers ahead."""
        found = []
        while self.kind == MODIFIER:
            found.append(self.next())
        return found

    def reject_modifier(self, instruction: str, token: int, why: str, repair: str) -> None:
        """Report a modifier that an instruction does not take there, and read on without it."""
        span, text = self.span(token), self.texts[token][:SHOWN]
        self.report(syntax.MODIFIER.at(span, instruction=instruction, modifier=text, why=why, repair=repair))


def _type_word(type_: Type) -> str:
    return type_.name if isinstance(type_, Scalar) else "index"
