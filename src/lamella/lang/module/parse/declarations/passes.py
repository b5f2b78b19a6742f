"""`forward:` and `backward:` of a module."""

from __future__ import annotations

from dataclasses import dataclass, field

from lamella.base.cursor import SyntaxProblem
from lamella.lang.module.nodes import (
    Annotation,
    Backward,
    Direct,
    Expr,
    Field,
    Forward,
    Fuse,
    Mapping,
    Port,
    Selection,
    Spec,
    Split,
    SplitPart,
    Statement,
    Transform,
)
from lamella.lang.module.parse.layout import NAME, NEWLINE
from lamella.lang.module.parse.lexis import DOC, INT, OPEN, OPEN_DOC, STRING
from lamella.lang.module.parse.ports import Ports

# --- mappings between parameters and the tensors of a checkpoint --------------------------------------------


# --- fields: `name: value` lines whose names are free -------------------------------------------------------


NO_TEXT = frozenset((NEWLINE, DOC, OPEN, OPEN_DOC))
ITEM = "-"
"""The name of a field that is an item of a list, or a line of free text."""


class Fields(Ports):
    """Recipes, presets, `hf_config:` and the free sections of a primitive."""

    def field(self) -> Field:
        """`name ':' value`, `name ':'` with fields below it, or an item: `'-' value` or a line of text."""
        first = self.index
        self.accept(ITEM)
        if self.at_named() and self.kinds[self.index + 2] == NEWLINE:
            return self._group(first)
        name = ITEM
        if self.at_named():
            name = self.name("the name of a field", "here")
            self.next()
        value = self.free_value()
        self.has_stub = self.has_stub or value == "..."
        span, notes = self.settle(first)
        self.end_line("after a field")
        return Field(name, value, notes, span)

    def _group(self, first: int) -> Field:
        """`name ':'` with the fields below it."""
        notes = self.above(first)
        name = self.name("the name of a field", "here")
        self.next()
        notes = self.headed(notes)
        self.descend("of fields")
        found, last = self.lines(self.field)
        self.depth_left += 1
        return Field(name, tuple(found), self.closed(notes, last), self.span_from(first))

    def free_value(self) -> Expr | str:
        """The rest of a line: an expression if it is one, its text if it is not."""
        first, depth, findings = self.index, self.depth_left, len(self.findings)
        try:
            value: Expr | str = self.expression()
        except SyntaxProblem:
            value = ""
        if self.kind == NEWLINE and len(self.findings) == findings:
            return value
        self.move_to(first)
        self.depth_left = depth
        del self.findings[findings:]
        return self._text()

    def _text(self) -> str:
        """The text of the rest of a line; one that takes several lines is put on one."""
        first = self.index
        self.skip_to(lambda: self.kind in NO_TEXT)
        if self.index == first or self.kind != NEWLINE:
            raise self.problem("a value", "in a field")
        text = self.source.text[self.starts[first] : self.end_of(self.index - 1)]
        return " ".join(self.texts[first : self.index]) if "\n" in text else text


INPUTS, OUTPUTS = ("in", "inputs"), ("out", "outputs")
GRADIENT = "d_"
LISTS = ("save", "recompute")


@dataclass(slots=True)
class _Parts:
    """The parts of a pass, as they are found."""

    where: str
    inputs: tuple[Port, ...] | None = None
    outputs: tuple[Port, ...] | None = None
    graph: tuple[Statement, ...] | None = None
    save: Selection | None = None
    recompute: Selection | None = None
    gradients: list[Port] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


class Passes(Fields):
    """The rules of the grammar `forward_section` and `backward_section`."""

    def mapping(self) -> Mapping:
        """`path '?'? (':' | '->') spec ('if' condition)?`."""
        first = self.index
        path = self.path("the path of a parameter", "in a mapping")
        optional = self.accept("?")
        if not self.accept("->"):
            self.expect(":", "after the path of a parameter")
        spec = self._spec()
        condition = self.expression() if self.accept("if") else None
        span, notes = self.settle(first)
        self.end_line("after a mapping")
        return Mapping(path, spec, optional, condition, notes, span)

    def _spec(self) -> Spec:
        """`string | fuse | split | transform | tied`."""
        if self.kind == NAME and self.ahead() == "(":
            if self.text == "fuse":
                return self._fuse()
            if self.text == "split":
                return self._split()
            if self.text == "tied_to":
                return self.tied()
        return self._source()

    def _source(self) -> Direct | Transform:
        """`string | transform`."""
        if self.text == "transform" and self.ahead() == "(":
            return self._transform()
        if self.kind != STRING:
            raise self._no_source()
        found = self.string("the name of a tensor", "here")
        return Direct(found.value, found.span)

    def _no_source(self) -> SyntaxProblem:
        wanted = "the name of a tensor in quotes, or fuse, split, transform or tied_to"
        return self.problem(wanted, "in a mapping")

    def _transform(self) -> Transform:
        """`'transform' '(' string ',' 'fn' (':' | '=') name ')'`."""
        first = self.next()
        self.next()
        name = self.string("the name of a tensor", "in 'transform'").value
        self.expect(",", "after the name of a tensor")
        self.expect("fn", "in 'transform'")
        if not self.accept("="):
            self.expect(":", "after 'fn'")
        function = self.name("the name of a function", "after 'fn'")
        self.accept(",")
        self.expect(")", "after the function")
        return Transform(name, function, self.span_from(first))

    def _fuse(self) -> Fuse:
        """`'fuse' '(' source,+ (',' 'dim' '=' integer)? ')'`."""
        first = self.next()
        self.next()
        sources: list[Direct | Transform] = []
        dim = 0
        while self.text != ")":
            if self.text == "dim":
                dim = self._dim_argument()
            else:
                sources.append(self._source())
            if not self.accept(","):
                break
        self._close(bool(sources), "fuse")
        return Fuse(tuple(sources), dim, self.span_from(first))

    def _split(self) -> Split:
        """`'split' '(' part,+ (',' 'dim' '=' integer)? ')'`."""
        first = self.next()
        self.next()
        parts: list[SplitPart] = []
        dim = 0
        while self.text != ")":
            if self.text == "dim":
                dim = self._dim_argument()
            else:
                parts.append(self._part())
            if not self.accept(","):
                break
        self._close(bool(parts), "split")
        return Split(tuple(parts), dim, self.span_from(first))

    def _close(self, has_items: bool, word: str) -> None:
        if not has_items:
            raise self.problem("the name of a tensor", f"in '{word}'")
        self.expect(")", f"after the tensors of '{word}'")

    def _part(self) -> SplitPart:
        """`string ':' '[' expression ',' expression ']'`."""
        first = self.index
        name = self.string("the name of a tensor", "in 'split'").value
        self.expect(":", "after the name of a tensor")
        self.expect("[", "before the range of a tensor")
        low = self.expression()
        self.expect(",", "between the ends of a range")
        high = self.expression()
        self.expect("]", "after the range of a tensor")
        return SplitPart(name, low, high, self.span_from(first))

    def _dim_argument(self) -> int:
        """`'dim' '=' '-'? integer`."""
        self.next()
        self.expect("=", "after 'dim'")
        sign = -1 if self.accept("-") else 1
        if self.kind != INT:
            raise self.problem("a whole number", "after 'dim='")
        return sign * self.integer().value

    def forward(self) -> Forward:
        """`'forward' ':'` with inputs, outputs, graph, `save:` and `recompute:` in any order."""
        first = self.next()
        notes = self.above(first)
        self.expect(":", "after 'forward'")
        notes = self.headed(notes)
        parts = _Parts("'forward:'")
        _, last = self.body(lambda: self._forward_line(parts), "of sections")
        return Forward(
            parts.inputs,
            parts.outputs,
            parts.graph,
            parts.save,
            parts.recompute,
            tuple(parts.annotations),
            self.closed(notes, last),
            self.span_from(first),
        )

    def backward(self) -> Backward:
        """`'backward' ':'` with gradients, inputs, outputs and graph in any order."""
        first = self.next()
        notes = self.above(first)
        self.expect(":", "after 'backward'")
        notes = self.headed(notes)
        parts = _Parts("'backward:'")
        _, last = self.body(lambda: self._backward_line(parts), "of sections")
        return Backward(
            tuple(parts.gradients),
            parts.inputs,
            parts.outputs,
            parts.graph,
            tuple(parts.annotations),
            self.closed(notes, last),
            self.span_from(first),
        )

    def _forward_line(self, parts: _Parts) -> None:
        if self.text in LISTS and self.ahead() == ":":
            self._selection(parts)
        elif not self._either_line(parts):
            wanted, where = "in, out, graph, save or recompute with ':'", "in 'forward:'"
            words = (*INPUTS, *OUTPUTS, *LISTS, "graph")
            if self.ahead() == ":" and self.reword(words, wanted, where):
                self._forward_line(parts)
                return
            self._astray(parts)
            raise self.problem(wanted, where)

    def _backward_line(self, parts: _Parts) -> None:
        if self._either_line(parts):
            return
        if not self.text.startswith(GRADIENT) or self.has_arrow():
            self._astray(parts)
            raise self.problem("in, out, graph or a gradient with ':'", "in 'backward:'")
        parts.gradients += self.port_row(is_open=False)
        self.end_line("after a gradient")

    def _astray(self, parts: _Parts) -> None:
        """A statement that is indented like 'graph:' itself: of several the first is told."""
        if not self.has_arrow() or not self.begins_line():
            return
        if "->" not in parts.seen:
            parts.seen.add("->")
            self.misindented("a statement stands inside 'graph:'", "indent it further than 'graph:'")
        raise SyntaxProblem

    def _selection(self, parts: _Parts) -> None:
        first = self.index
        word = self.text
        found = self.selection()
        if self._is_second(parts, word, first):
            return
        if word == "save":
            parts.save = found
        else:
            parts.recompute = found

    def _either_line(self, parts: _Parts) -> bool:
        """A line that both passes may have; False where it is none."""
        first = self.index
        if self.text == "@":
            parts.annotations += self.annotation_line()
        elif self.at_stub():
            parts.graph = (*(parts.graph or ()), self.stub())
        elif self.ahead() != ":":
            return False
        elif self.text in INPUTS:
            inputs = self.ports(is_open=False)
            if not self._is_second(parts, INPUTS[0], first):
                parts.inputs = inputs
        elif self.text in OUTPUTS:
            outputs = self.ports(is_open=False)
            if not self._is_second(parts, OUTPUTS[0], first):
                parts.outputs = outputs
        elif self.text == "graph":
            graph = self.graph()
            if not self._is_second(parts, "graph", first):
                parts.graph = (*(parts.graph or ()), *graph)
        else:
            return False
        return True

    def annotation_line(self) -> tuple[Annotation, ...]:
        """Annotations of a whole section or declaration, on a line of their own."""
        first = self.index
        found = self.annotations()
        self.carry(first)
        self.end_line("after an annotation")
        return found

    def _is_second(self, parts: _Parts, word: str, first: int) -> bool:
        """Whether a part was there before; it is reported."""
        if word not in parts.seen:
            parts.seen.add(word)
            return False
        self.twice(first, parts.where)
        return True
