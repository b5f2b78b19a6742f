"""Modules, blocks and models: the head, and the sections of the body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lamella.base.cursor import SyntaxProblem
from lamella.lang.module.nodes import (
    Annotation,
    Backward,
    Binding,
    Broken,
    ConfigParam,
    Constant,
    Field,
    Forward,
    Mapping,
    Module,
    Param,
    Sublayers,
)
from lamella.lang.module.parse.declarations.sections import Sections
from lamella.lang.module.parse.layout import LAYOUT
from lamella.lang.module.words import KINDS, SECTIONS

REPEATABLE = frozenset(("constraint",))
INNER = frozenset(("in", "inputs", "out", "outputs", "graph", "save", "recompute"))
"""Words of lines that stand in 'forward:'."""


@dataclass(slots=True)
class _Head:
    """The head of a declaration; `is_broken` where it could not be read to its end."""

    kind: str = ""
    name: str = ""
    params: tuple[ConfigParam, ...] | None = None
    abstract: bool = False
    extends: str | None = None
    is_broken: bool = False


@dataclass(slots=True)
class _Body:
    """The sections of a declaration, as they are found."""

    annotations: list[Annotation] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    constants: tuple[Constant, ...] = ()
    tensors: tuple[Param, ...] = ()
    sublayers: Sublayers | None = None
    forward: Forward | None = None
    backward: Backward | None = None
    hf_config: tuple[Field, ...] | None = None
    hf_mapping: tuple[Mapping, ...] | None = None
    hf_export: tuple[Mapping, ...] | None = None
    is_astray: bool = False
    """Whether the line before was none of a section, and that was told."""


class Modules(Sections):
    """The rules of the grammar from `module_decl` to `model_body`."""

    def module(self) -> Module | Broken:
        """`'abstract'? ('module' | 'block' | 'model') name params? ('extends' name)? ':'` with its sections."""
        first = self.index
        notes = self.above(first)
        self.has_stub = False
        head = self._head()
        notes = self.headed(notes)
        doc = self.doc_below()
        body = _Body()
        where = f"'{head.name[:40]}'"
        seen: set[str] = set()
        _, last = self.body(lambda: self._section_line(body, seen, where), "of sections")
        notes, span = self.closed(notes, last), self.span_from(first)
        if head.is_broken:
            return Broken(head.name, span)
        return Module(
            head.kind,
            head.name,
            head.params if head.params is not None or head.extends else (),
            head.abstract,
            head.extends,
            doc,
            tuple(body.annotations),
            tuple(body.bindings),
            body.constants,
            body.tensors,
            body.sublayers,
            body.forward,
            body.backward,
            body.hf_config,
            body.hf_mapping,
            body.hf_export,
            self.has_stub,
            notes,
            span,
        )

    def _head(self) -> _Head:
        """The head of a declaration; the body is read also when the head is broken."""
        head, depth = _Head(), self.depth_left
        try:
            self._read_head(head)
        except SyntaxProblem:
            self.depth_left = depth
            self.pass_words()
            head.is_broken = True
        return head

    def _read_head(self, head: _Head) -> None:
        head.abstract = self.accept("abstract")
        if self.text not in KINDS:
            raise self.problem("module, block or model", "after 'abstract'")
        head.kind = self.name("a word", "here")
        head.name = self.name(f"the name of the {head.kind}", f"after '{head.kind}'")
        if self.text == "(":
            head.params = self.config_params()
        if self.accept("extends"):
            head.extends = self.dotted("the name of a declaration", "after 'extends'")
        self.expect(":", f"after the head of '{head.name[:40]}'")

    def _section_line(self, body: _Body, seen: set[str], where: str) -> None:
        """One section, or the annotations of the whole declaration."""
        if self.text == "@":
            body.annotations += self.annotation_line()
            return
        if self.skip_stub():
            return
        first = self.index
        if self.text not in SECTIONS or self.ahead() != ":":
            self._require_section(body, where)
        body.is_astray = False
        word = self.text
        read = self._readers(body)[word]
        if word in seen and word not in REPEATABLE:
            self.twice(first, where)
            read = self._readers(_Body())[word]
        seen.add(word)
        read()

    def _require_section(self, body: _Body, where: str) -> None:
        """What stands in the place of a section: a word that is nearly one, or a line that belongs into one.

        Of several such lines behind each other the first is told.
        """
        if self.text in SECTIONS:
            self.next()
            raise self.problem("':'", f"after '{self.texts[self.index - 1]}'")
        is_inner = self.text in INNER or self.has_arrow()
        if (
            self.ahead() == ":"
            and self.text not in INNER
            and self.reword(SECTIONS, "a section", f"in {where}")
        ):
            return
        if body.is_astray:
            raise SyntaxProblem
        body.is_astray = True
        if self.begins_line() and (is_inner or self._follows_head()):
            inside = (
                "'graph:'"
                if self.has_arrow()
                else "'forward:'"
                if self.text in INNER
                else "the section above"
            )
            self.misindented(f"it belongs into {inside}", "indent it further than the head of its section")
            raise SyntaxProblem
        hint = "sections are let, constants, params, pattern, forward, backward, hf_config, hf_mapping, hf_export"
        raise self.problem("a section", f"in {where}", hint)

    def _follows_head(self) -> bool:
        """Whether the line before is the head of a section with nothing below it."""
        index = self.index - 1
        while index and self.kinds[index] in LAYOUT:
            index -= 1
        return self.texts[index] == ":" and self.texts[index - 1] in SECTIONS

    def _readers(self, body: _Body) -> dict[str, Callable[[], None]]:
        """What reads each section into a body."""

        def read(name: str, parse: Callable[[], object]) -> Callable[[], None]:
            return lambda: setattr(body, name, parse())

        return {
            "let": lambda: body.bindings.extend(self.let_section()),
            "constraint": lambda: body.bindings.extend(self.constraint_section()),
            "constants": read("constants", lambda: self.section(self.constant)),
            "params": read("tensors", lambda: self.section(self.param)),
            "pattern": read("sublayers", self.pattern_section),
            "forward": read("forward", self.forward),
            "backward": read("backward", self.backward),
            "hf_config": read("hf_config", lambda: self.section(self.hf_field)),
            "hf_mapping": read("hf_mapping", lambda: self.section(self.hf_entry)),
            "hf_export": read("hf_export", lambda: self.section(self.hf_entry)),
        }
