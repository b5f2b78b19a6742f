"""Inputs and outputs."""

from __future__ import annotations

from lamella.base.source import Notes, Span
from lamella.lang.module.nodes import (
    Port,
    PortType,
    ScalarType,
    SequenceType,
    Star,
    TensorType,
    TupleType,
)
from lamella.lang.module.parse.graphs import Graphs
from lamella.lang.module.parse.layout import NAME, NEWLINE
from lamella.lang.module.words import SCALARS

ANY = (Star(),)


class Ports(Graphs):
    """The rules of the grammar from `io_signature` to `named_tensor`; a primitive may leave types open."""

    def ports(self, is_open: bool) -> tuple[Port, ...]:
        """`('in' | 'out' | 'inputs' | 'outputs') ':'` and what follows: ports in parentheses, in a row, or in lines."""
        self.section_head()
        if self.kind == NEWLINE:
            found, last = self.lines(lambda: self._port_line(is_open))
            self.carry_over(last)
            return tuple(port for row in found for port in row)
        row = self.port_row(is_open)
        self.end_line("after inputs or outputs")
        return row

    def port_row(self, is_open: bool) -> tuple[Port, ...]:
        """Ports in parentheses or in a row, without the end of their line."""
        if self.text == "(" and not self._at_tuple_type():
            return self._tuple(is_open)
        return self._row(is_open)

    def _port_line(self, is_open: bool) -> tuple[Port, ...]:
        """A line of an `inputs:` block; a comma at its end means nothing."""
        found = self._row(is_open)
        self.end_line("after an input or output")
        return found

    def _row(self, is_open: bool) -> tuple[Port, ...]:
        """`port (',' port)*`."""
        found = [self._port(is_open)]
        while self.texts[self.index - 1] == "," and self.kind != NEWLINE:
            found.append(self._port(is_open))
        return tuple(found)

    def _tuple(self, is_open: bool) -> tuple[Port, ...]:
        """`'(' port,* ')'`."""
        self.next()
        found = []
        while self.text != ")":
            found.append(self._port(is_open))
            if self.texts[self.index - 1] != ",":
                break
        self.expect(")", "after inputs or outputs")
        return tuple(found)

    def _at_tuple_type(self) -> bool:
        """Whether a parenthesis opens a tuple of types without names."""
        return self.ahead() in ("[", "Tensor")

    def _port(self, is_open: bool) -> Port:
        """`(name ':')? type ('=' expression)? annotation*`, with the comma behind it."""
        first = self.index
        name, type_ = self._name_and_type(is_open)
        default = None
        if self.text == "=" and name is not None and type_ is not None:
            self.next()
            default = self.expression()
        annotations = self.annotations()
        span, notes = self._with_comma(first)
        return Port(name, type_, default, annotations, notes, span)

    def _with_comma(self, first: int) -> tuple[Span, Notes]:
        """The span of a port, the comma behind it, and the notes: a comment behind the comma is the port's."""
        span = self.span_from(first)
        self.accept(",")
        return span, self.settle(first)[1]

    def _name_and_type(self, is_open: bool) -> tuple[str | None, PortType | None]:
        if self.at_named():
            name = self.name("a name", "here")
            self.next()
            return name, self.port_type(is_open)
        if self.kind == NAME and self.ahead() == "...":
            name = self.name("a name", "here")
            self.next()
            return name, SequenceType()
        if is_open and self.kind == NAME and not self._at_type():
            name = self.name("a name", "here")
            return name, TensorType(ANY, None, True) if self.accept("?") else None
        return None, self.port_type(is_open)

    def _at_type(self) -> bool:
        return self.at_tensor() or (self.text == "tuple" and self.ahead() in ("<", "("))

    def port_type(self, is_open: bool) -> PortType | None:
        """`tensor | '(' tensor,+ ')' | 'tuple' '<' tensor '>' | 'int' | 'float'`; in a primitive also a free word."""
        first = self.index
        if self.at_tensor():
            return self.tensor()
        if self.text == "(":
            self.next()
            items = tuple(self.separated(self.tensor))
            self.expect(")", "after the types of a tuple")
            return TupleType(items, self.span_from(first))
        if self.text == "tuple" and self.ahead() in ("<", "("):
            return self._sequence()
        if self.text in SCALARS:
            word = self.name("a type", "here")
            return ScalarType(word, self.accept("?"), self.span_from(first))
        if is_open and self.kind == NAME:
            self.next()
            return None
        raise self.problem("the type of a tensor, such as [B, T]", "here")

    def _sequence(self) -> SequenceType:
        """`'tuple' '<' tensor '>'`, or the comprehension of the specification."""
        first = self.next()
        closing = ">" if self.text == "<" else ")"
        self.next()
        item = self.tensor()
        if closing == ")" and self.accept("for"):
            self.name("a name", "after 'for'")
            self.expect("in", "after the name of an index")
            self.expression()
        self.expect(closing, "after the type of the items")
        return SequenceType(item, self.span_from(first))
