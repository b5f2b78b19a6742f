"""Primitives: what they take and give, and their free sections."""

from __future__ import annotations

from dataclasses import dataclass, field

from lamella.base.cursor import SyntaxProblem
from lamella.lang.module.nodes import (
    Broken,
    ConfigParam,
    Equation,
    Field,
    Port,
    Primitive,
    Selection,
    Signature,
)
from lamella.lang.module.parse.declarations.modules import Modules
from lamella.lang.module.parse.declarations.passes import INPUTS, OUTPUTS
from lamella.lang.module.parse.layout import NAME, NEWLINE

NATIVE = "_"


@dataclass(slots=True)
class _Signature:
    """The parts of a signature, as they are found."""

    inputs: tuple[Port, ...] | None = None
    outputs: tuple[Port, ...] | None = None
    equations: list[Equation] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    native: bool = False


@dataclass(slots=True)
class _Body:
    """The sections of a primitive, as they are found."""

    params: tuple[ConfigParam, ...] = ()
    forward: Signature | None = None
    backward: Signature | None = None
    save: Selection | None = None
    sections: list[Field] = field(default_factory=list)


class Primitives(Modules):
    """The rules of the grammar from `primitive_decl` to `invariants_section`."""

    def primitive(self) -> Primitive | Broken:
        """`'primitive' name ':'` with its sections."""
        first = self.index
        notes = self.above(first)
        self.has_stub = False
        name, is_broken = self.plain_head()
        notes = self.headed(notes)
        doc = self.doc_below()
        body = _Body()
        seen: set[str] = set()
        _, last = self.body(lambda: self._primitive_line(body, seen, name), "of sections")
        notes, span = self.closed(notes, last), self.span_from(first)
        if is_broken:
            return Broken(name, span)
        parts = (body.params, body.forward, body.backward, body.save, tuple(body.sections))
        return Primitive(name, doc, *parts, self.has_stub, notes, span)

    def plain_head(self) -> tuple[str, bool]:
        """`word name ':'`: the name, and whether the head is broken; the body is read also then."""
        word = self.text
        self.next()
        name = ""
        try:
            name = self.name(f"the name of the {word}", f"after '{word}'")
            self.expect(":", f"after '{name[:40]}'")
        except SyntaxProblem:
            self.pass_words()
            return name, True
        return name, False

    def _primitive_line(self, body: _Body, seen: set[str], name: str) -> None:
        """One section of a primitive; one that is there twice is reported, and the first stays."""
        if self.skip_stub():
            return
        word = self.text
        if self.at_named() and word in seen:
            self.twice(self.index, f"'{name[:40]}'")
            body = _Body()
        seen.add(word)
        if not self.at_named():
            raise self.problem("a section", f"in '{name[:40]}'")
        if word == "params":
            body.params = self.section(self.config_line)
        elif word == "forward":
            body.forward = self._signature()
        elif word == "backward":
            body.backward = self._signature()
        elif word == "save" and self.ahead(2) == "[":
            body.save = self.selection()
        else:
            body.sections.append(self.field())

    def _signature(self) -> Signature:
        """`('forward' | 'backward') ':'` with inputs, outputs, equations and fields."""
        first = self.next()
        notes = self.above(first)
        self.next()
        notes = self.headed(notes)
        found = _Signature()
        _, last = self.body(lambda: self._signature_line(found), "of sections")
        return Signature(
            found.inputs,
            found.outputs,
            tuple(found.equations),
            tuple(found.fields),
            found.native,
            self.closed(notes, last),
            self.span_from(first),
        )

    def _signature_line(self, found: _Signature) -> None:
        if self.skip_stub():
            return
        if self.text == NATIVE and self.kinds[self.index + 1] == NEWLINE:
            first = self.next()
            found.native = True
            self.carry(first)
            self.end_line("after '_'")
        elif self.text in INPUTS and self.ahead() == ":":
            found.inputs = self._open_ports(found)
        elif self.text in OUTPUTS and self.ahead() == ":":
            found.outputs = self._open_ports(found)
        elif self.text == "(" or (self.kind == NAME and self.ahead() in ("=", ",")):
            found.equations.append(self._equation())
        else:
            found.fields.append(self.field())

    def _open_ports(self, found: _Signature) -> tuple[Port, ...]:
        """Inputs or outputs; `= value` behind them is an equation for them."""
        if self.kinds[self.index + 2] == NEWLINE:
            return self.ports(is_open=True)
        self.section_head()
        first = self.index
        ports = self.port_row(is_open=True)
        if self.accept("="):
            value = self.expression()
            targets = tuple(port.name or "" for port in ports)
            found.equations.append(Equation(targets, value, span=self.span_from(first)))
        self.end_line("after inputs or outputs")
        return ports

    def _equation(self) -> Equation:
        """`(name,+ | '(' name,+ ')') '=' expression`."""
        first = self.index
        is_tuple = self.accept("(")
        targets = self.separated(lambda: self.name("the name of a gradient", "in an equation"))
        if is_tuple:
            self.expect(")", "after the names of gradients")
        self.expect("=", "after the name of a gradient")
        value = self.expression()
        span, notes = self.settle(first)
        self.end_line("after an equation")
        return Equation(tuple(targets), value, notes, span)
