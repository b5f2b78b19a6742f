"""Primitives: what they take and give, and their free sections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lamella.base.cursor import SyntaxProblem
from lamella.lang.module.nodes import (
    Annotation,
    Backward,
    Binding,
    Broken,
    Call,
    ConfigParam,
    Constant,
    Constraint,
    Equation,
    Field,
    Forward,
    Let,
    Mapping,
    Module,
    Param,
    Port,
    Primitive,
    RuntimeDim,
    Selection,
    Signature,
    Sublayers,
)
from lamella.lang.module.parse.declarations.passes import INPUTS, OUTPUTS, Passes
from lamella.lang.module.parse.layout import LAYOUT, NAME, NEWLINE
from lamella.lang.module.words import KINDS, SECTIONS

# --- sections that declare: `let:`, `constraint:`, `constants:`, `params:`, `pattern:`; and config ----------


class Sections(Passes):
    """The rules of the grammar from `let_section` to `pattern_section`, and `param_list`."""

    # --- config parameters ----------------------------------------------------------------------------------

    def config_params(self) -> tuple[ConfigParam, ...]:
        """`'(' config_param,* ')'`."""
        self.next()
        found: list[ConfigParam] = []
        while self.text != ")":
            if not self._unwritten():
                found.append(self._config_param())
            elif not self.accept(","):
                break
            if self.texts[self.index - 1] != ",":
                break
        self.expect(")", "after the parameters")
        return tuple(found)

    def _unwritten(self) -> bool:
        """Pass over `...` or `name...` in a list of parameters, with a finding."""
        is_spread = self.kind == NAME and self.ahead() == "..."
        if not is_spread and self.text != "...":
            return False
        if is_spread:
            self.next()
        self.unfinished("a parameter")
        self.has_stub = True
        return True

    def _config_param(self) -> ConfigParam:
        """`name (':' type)? ('=' expression)?`, with the comma behind it."""
        first = self.index
        name = self.name("the name of a parameter", "here")
        type_ = self.config_type() if self.accept(":") else None
        default = self.expression() if self.accept("=") else None
        span = self.span_from(first)
        self.accept(",")
        return ConfigParam(name, type_, default, self.settle(first)[1], span)

    def config_line(self) -> ConfigParam | None:
        """A config parameter on a line of its own, in `params:` of a primitive."""
        if self.skip_stub():
            return None
        found = self._config_param()
        self.end_line("after a parameter")
        return found

    def skip_stub(self) -> bool:
        """Pass over `...` in the place of a line; it is remembered."""
        if not self.at_stub():
            return False
        self.stub()
        self.has_stub = True
        return True

    # --- constants ------------------------------------------------------------------------------------------

    def let_section(self) -> list[Binding]:
        """`'let' ':'` with bindings and constraints."""
        return [item for row in self.section(self._bindings) for item in row]

    def _bindings(self) -> tuple[Binding, ...]:
        """One line of `let:`."""
        first = self.index
        if self.at_stub():
            return (self.stub(),)
        if self.text == "constraint" and self.ahead() == ":":
            return self.section(self._constraint)
        name = self.name("the name of a constant", "in 'let:'")
        if self.accept(":"):
            kind = self.name("batch_dim or seq_dim", "after ':'")
            span, notes = self.settle(first)
            self.end_line("after a binding")
            return (RuntimeDim(name, kind, notes, span),)
        self.expect("=", f"after '{name[:40]}'")
        value = self.expression()
        span, notes = self.settle(first)
        self.end_line("after a binding")
        return (Let(name, value, notes, span),)

    def constraint_section(self) -> list[Binding]:
        """`'constraint' ':'` with conditions."""
        return list(self.section(self._constraint))

    def _constraint(self) -> Constraint | None:
        """`expression ',' string`."""
        if self.skip_stub():
            return None
        first = self.index
        condition = self.expression()
        self.expect(",", "after the condition of a constraint")
        message = self.string("the message of the constraint", "after ','").value
        span, notes = self.settle(first)
        self.end_line("after a constraint")
        return Constraint(condition, message, notes, span)

    def constant(self) -> Constant | None:
        """`name ':' builtin '(' argument,* ')'`."""
        if self.skip_stub():
            return None
        first = self.index
        name = self.name("the name of a constant", "in 'constants:'")
        self.expect(":", "after the name of a constant")
        start = self.index
        value = self.postfix()
        if not isinstance(value, Call):
            self.move_to(start)
            raise self.problem("a call such as zeros([4])", "after ':'")
        span, notes = self.settle(first)
        self.end_line("after a constant")
        return Constant(name, value, notes, span)

    # --- parameters -----------------------------------------------------------------------------------------

    def param(self) -> Param | None:
        """`'+'? path ':' type ('if' condition ('else' type)?)? annotation*`."""
        if self.skip_stub():
            return None
        first = self.index
        added = self.accept("+")
        path = self.path("the name of a parameter", "in 'params:'")
        self.expect(":", "after the name of a parameter")
        type_ = self.param_type()
        condition = otherwise = None
        if self.accept("if"):
            condition = self.condition()
            otherwise = self.param_type() if self.accept("else") else None
        annotations = self.annotations()
        span, notes = self.settle(first)
        self.end_line("after a parameter")
        return Param(path, type_, condition, otherwise, added, annotations, notes, span)

    def pattern_section(self) -> Sublayers:
        """`'pattern' ':' name` with `sublayers:` below it."""
        first = self.next()
        notes = self.above(first)
        self.expect(":", "after 'pattern'")
        pattern = self.name("the name of a pattern", "after 'pattern:'")
        notes = self.headed(notes)
        found, last = self.lines(self._sublayers)
        rows = tuple(row for rows in found for row in rows)
        return Sublayers(pattern, rows, self.closed(notes, last), self.span_from(first))

    def _sublayers(self) -> tuple[tuple[str, ...], ...]:
        if self.text != "sublayers":
            raise self.problem("'sublayers:'", "in 'pattern:'")
        return self.section(self._sublayer)

    def _sublayer(self) -> tuple[str, ...]:
        """`'-' '(' name,+ ')'`, or `'-' name`."""
        first = self.index
        self.expect("-", "before a sublayer")
        if self.accept("("):
            found = self.separated(lambda: self.dotted("the name of a parameter", "in a sublayer"))
            self.expect(")", "after a sublayer")
        else:
            found = [self.dotted("a parameter, or several in parentheses", "after '-'")]
        self.carry(first)
        self.end_line("after a sublayer")
        return tuple(found)

    # --- checkpoints ----------------------------------------------------------------------------------------

    def hf_field(self) -> Field | None:
        """A field of `hf_config:`."""
        return None if self.skip_stub() else self.field()

    def hf_entry(self) -> Mapping | None:
        """A line of `hf_mapping:` or `hf_export:`."""
        return None if self.skip_stub() else self.mapping()


# --- modules, blocks and models: the head, and the sections of the body -------------------------------------


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
class _modules_Body:
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
        body = _modules_Body()
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

    def _section_line(self, body: _modules_Body, seen: set[str], where: str) -> None:
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
            read = self._readers(_modules_Body())[word]
        seen.add(word)
        read()

    def _require_section(self, body: _modules_Body, where: str) -> None:
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

    def _readers(self, body: _modules_Body) -> dict[str, Callable[[], None]]:
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
