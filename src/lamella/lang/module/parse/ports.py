"""Inputs and outputs."""

from __future__ import annotations

from typing import TypeAlias

from lamella.base.cursor import END, SHOWN, SyntaxProblem
from lamella.base.source import NO_NOTES, Notes, Span
from lamella.lang.module.nodes import (
    Arm,
    Bool,
    Call,
    Conditional,
    Expr,
    Flow,
    Name,
    Operation,
    Pattern,
    Port,
    PortType,
    Recompute,
    ScalarType,
    Selection,
    SequenceType,
    ShapeAssertion,
    Star,
    Statement,
    Step,
    Stub,
    Target,
    TensorType,
    TupleType,
)
from lamella.lang.module.parse.blocks import Blocks
from lamella.lang.module.parse.layout import NAME, NEWLINE, SIGN
from lamella.lang.module.rules import syntax
from lamella.lang.module.words import SCALARS

# --- graphs: data flow, guards, recomputation, and the lists of what is saved -------------------------------


_Body: TypeAlias = tuple[tuple[Statement, ...], tuple[str, ...]]
GLOB_SIGNS = frozenset(("*", "**"))


class Graphs(Blocks):
    """The rules of the grammar from `graph_body` to `recompute_block`, and `tensor_list`."""

    def graph(self) -> tuple[Statement, ...]:
        """`'graph' ':'` with its statements."""
        return self.section(self.statement)

    def statement(self) -> Statement:
        """`data_flow | conditional | recompute_block | '...'`."""
        text, behind = self.text, self.ahead()
        if text == "if" and behind != "->":
            return self.conditional()
        if self.at_stub():
            return self.stub()
        if (text == "else" and behind in (":", "if")) or (text == "elif" and behind != "->"):
            self.misindented(
                f"'{text}' belongs to no 'if'", "indent the statements of 'if' further than 'if'"
            )
            raise SyntaxProblem
        if text == "recompute" and behind == ":":
            return self.recompute_block()
        return self.flow()

    def has_arrow(self) -> bool:
        """Whether an arrow stands on this line."""
        index = self.index
        while self.kinds[index] not in (NEWLINE, END):
            if self.texts[index] == "->":
                return True
            index += 1
        return False

    def at_stub(self) -> bool:
        """Whether `...` is ahead."""
        return self.text == "..." and self.kind == SIGN

    def stub(self) -> Stub:
        """`...` in the place of a statement, with all that stands behind it on its line."""
        first = self.index
        self.pass_words()
        span, notes = self.settle(first)
        self.end_line("after '...'")
        return Stub(notes, span)

    # --- data flow ------------------------------------------------------------------------------------------

    def flow(self) -> Flow:
        """`source ('->' step)* '->' target annotation*`."""
        first = self.index
        sources = self._sources()
        if self.text != "->":
            raise self.problem("'->'", "after the source of a statement")
        steps: list[Step] = []
        targets: tuple[Target, ...] | None = None
        while self.accept("->"):
            targets = self._leg(steps)
            if targets is not None:
                break
        if targets is None:
            raise self.problem("'->' and the name of a result", "after an operation")
        annotations = self.annotations()
        if self.text == "->":
            raise self.problem("the end of the statement", "after its results")
        span, notes = self.settle(first)
        self.end_line("after a statement")
        return Flow(sources, tuple(steps), targets, annotations, notes, span)

    def _sources(self) -> tuple[Expr, ...]:
        """A source, or several in parentheses."""
        if self.text != "(":
            return (self.expression(),)
        self.next()
        found = []
        while self.text != ")":
            found.append(self.expression())
            if not self.accept(","):
                break
        self.expect(")", "after the sources of a statement")
        return tuple(found)

    def _leg(self, steps: list[Step]) -> tuple[Target, ...] | None:
        """What stands behind an arrow: a step, which is added, or the results, which are returned."""
        if self.text == "(":
            return self._targets()
        if self.text == "[":
            found = self.tensor()
            steps.append(ShapeAssertion(found, found.span))
            return None
        first = self.index
        if self.kind != NAME:
            raise self.problem("an operation or the name of a result", "after '->'")
        value = self.postfix()
        start = self.index
        annotations = self.annotations()
        if isinstance(value, Call):
            steps.append(Operation(value.callee, value.arguments, annotations, self.span_from(first)))
            return None
        if self.text == "->":
            steps.append(Operation(value, (), annotations, self.span_from(first)))
            return None
        if not isinstance(value, Name):
            raise self._no_target(value)
        self.move_to(start)
        return (Target(value.id, (), value.span),)

    def _no_target(self, value: Expr) -> SyntaxProblem:
        shown, where = f"'{value.span.text[:SHOWN]}'", "at the end of a statement"
        return self.report(syntax.MISPLACED.at(value.span, what=shown, where=where, repair="name the result"))

    def _targets(self) -> tuple[Target, ...]:
        """`'(' target (',' target)* ')'`."""
        self.next()
        found = []
        while self.text != ")":
            found.append(self._target())
            if not self.accept(","):
                break
        self.expect(")", "after the results of a statement")
        return tuple(found)

    def _target(self) -> Target:
        """`name annotation*`."""
        first = self.index
        name = self.name("the name of a result", "after '->'")
        return Target(name, self.annotations(), self.span_from(first))

    # --- blocks ---------------------------------------------------------------------------------------------

    def conditional(self) -> Conditional:
        """`'if' condition ':' body (('elif' | 'else' 'if') condition ':' body)* ('else' ':' body)?`."""
        first = self.index
        arms = [self._arm()]
        while self.text == "elif" or (self.text == "else" and self.ahead() == "if"):
            if self.text == "else":
                self.next()
            arms.append(self._arm())
        notes = NO_NOTES
        otherwise = None
        if self.text == "else" and self.ahead() == ":":
            start = self.next()
            notes = self.above(start)
            self.next()
            notes = self.headed(notes)
            found: _Body = self.body(self.statement, "of a graph")
            otherwise, notes = found[0], self.closed(notes, found[1])
        return Conditional(tuple(arms), otherwise, notes, self.span_from(first))

    def _arm(self) -> Arm:
        """`('if' | 'elif') condition ':' body`; a broken guard does not keep the body from being read."""
        first = self.next()
        notes = self.above(first)
        condition = self._guard()
        notes = self.headed(notes)
        body: _Body = self.body(self.statement, "of a graph")
        return Arm(condition, body[0], self.closed(notes, body[1]), self.span_from(first))

    def _guard(self) -> Expr:
        """`expression ':'`; in the place of a broken one stands `true`."""
        first, depth = self.index, self.depth_left
        try:
            value = self.expression()
            self.expect(":", "after the condition of 'if'")
        except SyntaxProblem:
            self.depth_left = depth
            self.pass_words()
            value = Bool(True, self.span_from(first))
        return value

    def recompute_block(self) -> Recompute:
        """`'recompute' ':'` with its statements."""
        first = self.next()
        notes = self.above(first)
        self.next()
        notes = self.headed(notes)
        body: _Body = self.body(self.statement, "of a graph")
        return Recompute(body[0], self.closed(notes, body[1]), self.span_from(first))

    # --- lists of tensors -----------------------------------------------------------------------------------

    def selection(self) -> Selection:
        """`name ':' '[' pattern,* ']' ('if' condition)?`."""
        first = self.next()
        word = self.texts[first]
        self.expect(":", f"after '{word}'")
        self.expect("[", f"before the tensors of '{word}'")
        items = []
        while self.text != "]":
            items.append(self._pattern())
            if not self.accept(","):
                break
        self.expect("]", f"after the tensors of '{word}'")
        condition = self.expression() if self.accept("if") else None
        span, notes = self.settle(first)
        self.end_line(f"after '{word}'")
        return Selection(tuple(items), condition, notes, span)

    def _pattern(self) -> Pattern:
        """`name`, `na*me`, `*`, or `name...`; the parts of a glob stand side by side."""
        first = self.index
        while self._is_glob_part() and (self.index == first or self._touches()):
            self.next()
        text = (
            self.source.text[self.starts[first] : self.end_of(self.index - 1)] if self.index > first else ""
        )
        spread = self.text == "..."
        if spread:
            self.next()
        if not text and not spread:
            raise self.problem("the name of a tensor", "in a list of tensors")
        return Pattern(text, spread, self.span_from(first))

    def _is_glob_part(self) -> bool:
        return self.kind == NAME or self.text in GLOB_SIGNS

    def _touches(self) -> bool:
        """Whether the token ahead follows without a space."""
        return self.starts[self.index] == self.end_of(self.index - 1)


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
