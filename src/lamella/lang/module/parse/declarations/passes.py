"""`forward:` and `backward:` of a module."""

from __future__ import annotations

from dataclasses import dataclass, field

from lamella.base.cursor import SyntaxProblem
from lamella.lang.module.nodes import Annotation, Backward, Forward, Port, Selection, Statement
from lamella.lang.module.parse.mappings import Mappings

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


class Passes(Mappings):
    """The rules of the grammar `forward_section` and `backward_section`."""

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
