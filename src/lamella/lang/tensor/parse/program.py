"""Programs and functions."""

from __future__ import annotations

from lamella.base.cursor import END, SyntaxProblem
from lamella.base.source import Notes, Span
from lamella.lang.tensor.nodes import Function, Parameter, Program
from lamella.lang.tensor.parse.regions import Regions


class ProgramParser(Regions):
    """The rules of the grammar from `program` to `parameter`."""

    def program(self) -> Program:
        """`function+`."""
        found: list[Function] = []
        if self.kind == END:
            self.problem("'func'", "at the beginning of a program")
        while self.kind != END:
            try:
                found.append(self.function())
            except SyntaxProblem:
                self._leave()
        end = len(self.source.text)
        return Program(tuple(found), Span(self.source, 0, end), self.margin.close(end, end, end + 1))

    def _leave(self) -> None:
        """Go on with the next function; the body of this one is read for what is wrong in it."""
        self.depth_left = self._deepest
        self.open_braces = 0
        while self.kind != END and self.text != "func":
            if self.text == "{" and not self.at_dictionary():
                self.body(self.next())
                return
            self.next()

    def function(self) -> Function:
        """`'func' name '(' parameter,* ')' ('attributes' dictionary)? region`."""
        first = self.expect("func", "here")
        name = self.global_name("the name of a function", "after 'func'")
        opened = self.expect("(", "after the name of a function")
        inside = self.end_of(opened)
        head = self.margin.take(self.starts[first], inside, inside)
        self.types_of.clear()
        parameters = [] if self.text == ")" else self.parameters()
        close = self.expect(")", "after the parameters")
        attributes = self.dictionary("after 'attributes'") if self.accept("attributes") else None
        brace, tail = self.opened(close, "before the body of a function")
        body = self.body(brace)
        region = self.region(body)
        between = tuple(line for line in tail.above if line)
        notes = Notes(head.above + between, tail.behind, head.blank)
        return Function(name, tuple(parameters), region, attributes, self.span_from(first), notes)

    def parameters(self) -> list[Parameter]:
        """`parameter,+`."""
        found = [self.parameter()]
        while self.texts[self.index - 1] == ",":
            found.append(self.parameter())
        return found

    def parameter(self) -> Parameter:
        """`value ':' type dictionary?`, with the comma behind it, so that a comment there is the parameter's."""
        first = self.index
        value = self.local("a parameter", "in '(…)'")
        self.expect(":", "after a parameter")
        type_ = self.type("after ':'")
        attributes = self.dictionary("here") if self.text == "{" else None
        self.types_of[value.name] = type_
        span = self.span_from(first)
        self.accept(",")
        end = self.end_of(self.index - 1)
        notes = self.margin.take(span.start, end, self.starts[self.index])
        return Parameter(value, type_, attributes, span, notes)
