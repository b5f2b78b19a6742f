"""NEM text to nodes, with several errors per run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, TypeVar

from lamella.base.cursor import SyntaxProblem
from lamella.base.diagnostic import Diagnostic
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NO_NOTES, Notes, Source, Span
from lamella.lang.nem import rules
from lamella.lang.nem.nodes import (
    Binding,
    Broken,
    Conformance,
    Constraint,
    Device,
    DeviceRef,
    Document,
    Include,
    Name,
    Setting,
    Text,
    Topology,
    TypeFamily,
    TypeParameter,
    UnitGroup,
    Variant,
    VariantRef,
)
from lamella.lang.nem.parse.expressions import Expressions
from lamella.lang.nem.parse.lexis import NAME, STRING, Lexis
from lamella.lang.nem.parse.statements import Statements
from lamella.lang.nem.words import KEYWORDS, STATEMENT_WORDS

# --- device configurations ----------------------------------------------------------------------------------


# --- type families ------------------------------------------------------------------------------------------


class Families(Lexis):
    """The rules of the grammar under `type_family`."""

    def type_family(self) -> TypeFamily:
        """`'type_family' family_id type_params? '{' (binding | constraint)* 'variants' ':' variant* '}'`."""
        first = self.next()
        name = self.family_name()
        parameters = self.type_parameters()
        self.expect("{", "after the name of a type family")
        bindings: list[Binding] = []
        constraints: list[Constraint] = []
        while not (self.text == "variants" and self.ahead() == ":"):
            if self.ahead() == "=":
                constraints.append(self.constraint())
            else:
                bindings.append(self.binding())
        self.next()
        self.next()
        variants = []
        while self.text != "}":
            variants.append(self.variant())
        self.next()
        parts = (parameters, tuple(bindings), tuple(constraints), tuple(variants))
        return TypeFamily(name, *parts, *self.finish(first))

    def family_name(self) -> Name:
        """`family_id := ID ('.' ID)?`."""
        name = self.declare("the name of a type family", "after 'type_family'")
        if not self.accept("."):
            return name
        part = self.use("a name", "after '.'")
        whole = Name(f"{name.id}.{part.id}", name.span.to(part.span))
        self.declared[-1] = whole
        return whole

    def type_parameters(self) -> tuple[TypeParameter, ...]:
        """`type_params := '<' type_param,+ '>'`."""
        if not self.accept("<"):
            return ()
        found = self.separated(self.type_parameter)
        self.expect(">", "after the type parameters")
        return tuple(found)

    def type_parameter(self) -> TypeParameter:
        """`type_param := ID ':' '{' ELEM,+ '}'`."""
        first = self.index
        name = self.word("a type parameter", "here")
        self.expect(":", "after a type parameter")
        self.expect("{", "before the types of a parameter")
        elems = self.separated(self.element)
        self.expect("}", "after the types of a parameter")
        return TypeParameter(name, tuple(item.id for item in elems), self.span_from(first))

    def binding(self) -> Binding:
        """`ID ':' TYPE`."""
        first = self.index
        operand = self.word("an operand, a constraint or 'variants:'", "in a type family")
        self.expect(":", "after the name of an operand")
        return Binding(operand, self.word("a type", "after ':'"), self.span_from(first))

    def constraint(self) -> Constraint:
        """`(ID | 'quant') '=' word+`; a word before ':' or '=' begins the next line."""
        first = self.index
        name = self.name().id if self.text == "quant" else self.word("a constraint", "in a type family")
        self.next()
        words = [self.word("a word", "after '='")]
        while self.kind == NAME and self.text not in KEYWORDS and self.ahead() not in (":", "="):
            words.append(self.name().id)
        return Constraint(name, tuple(words), self.span_from(first))

    def variant(self) -> Variant:
        """`ID ':' '{' binding* '}' 'conformance' ':' '{' conformance* '}'`."""
        first = self.index
        name = self.word("a variant or '}'", "in a type family")
        self.expect(":", "after the name of a variant")
        self.expect("{", "before the operands of a variant")
        bindings = []
        while not self.accept("}"):
            bindings.append(self.binding())
        self.expect("conformance", "after a variant")
        self.expect(":", "after 'conformance'")
        self.expect("{", "after 'conformance:'")
        classes = []
        while not self.accept("}"):
            classes.append(self.conformance())
        return Variant(name, tuple(bindings), tuple(classes), self.span_from(first))

    def conformance(self) -> Conformance:
        """`('MUST' | 'MAY') ('<' ELEM,+ '>')?`."""
        level = self.text
        if level not in ("MUST", "MAY"):
            raise self.problem("MUST, MAY or '}'", "in a conformance block")
        first = self.next()
        return Conformance(level, self.instantiation(), self.span_from(first))

    def instantiation(self) -> tuple[str, ...]:
        """`('<' ELEM,+ '>')?`."""
        if not self.accept("<"):
            return ()
        elems = self.separated(self.element)
        self.expect(">", "after the element types")
        return tuple(item.id for item in elems)


T = TypeVar("T")
OPCODE_BLOCKS = ("mandatory", "extended")


@dataclass(slots=True)
class _Body:
    """The blocks of one device, as they are found."""

    version: Text | None = None
    version_notes: Notes = NO_NOTES
    topology: Topology | None = None
    characteristics: tuple[UnitGroup, ...] | None = None
    characteristics_notes: Notes = NO_NOTES
    mandatory: tuple[VariantRef, ...] | None = None
    mandatory_notes: Notes = NO_NOTES
    extended: tuple[VariantRef, ...] | None = None
    extended_notes: Notes = NO_NOTES
    damaged: bool = False


class Devices(Families, Expressions):
    """The rules of the grammar under `device_block`."""

    def device_block(self) -> Device:
        """`'device' ID ('extends' ID)? '{' block* '}'`; the order of the blocks is free."""
        first = self.next()
        name = self.declare("the name of a device", "after 'device'")
        parent = self.use("the name of the parent", "after 'extends'") if self.accept("extends") else None
        notes = self.open_block(first)
        self._body = body = _Body()
        while self.text != "}":
            self.device_item(body)
        end = self.next()
        if body.damaged:
            raise SyntaxProblem
        return Device(
            name,
            parent,
            body.version,
            body.topology,
            body.characteristics,
            body.mandatory,
            body.extended,
            self.span_from(first),
            notes,
            self._closing_notes(end),
            body.version_notes,
            body.characteristics_notes,
            body.mandatory_notes,
            body.extended_notes,
        )

    def device_item(self, body: _Body) -> None:
        """`spec_version`, `topology`, `unit_characteristics`, `opcode.mandatory` or `opcode.extended`."""
        first = self.index
        if self.text == "spec_version":
            self.spec_version(body)
        elif self.text == "topology":
            topology = self.topology()
            body.topology = self._once(body.topology, topology, first, "topology")
        elif self.text == "unit_characteristics":
            self.unit_characteristics(body)
        elif self.text == "opcode" and self.ahead() == "." and self.ahead(2) in OPCODE_BLOCKS:
            self.opcode_block(body)
        elif self.kind == NAME and self.ahead() in ("=", "{", "."):
            finding = rules.UNKNOWN_SETTING.at(self.span(first), name=self.text, place="a device")
            raise self.report(finding)
        else:
            raise self.problem("a block of a device or '}'", "in a device")

    def _once(self, given: T | None, found: T, first: int, what: str) -> T:
        """The first of two equal blocks or settings; the second is reported."""
        if given is None:
            return found
        self.report(rules.DOUBLE_SETTING.at(self.span(first), what=what))
        return given

    def open_block(self, first: int) -> Notes:
        """Take the brace that opens a block, with the notes of what stands before it."""
        brace = self.expect("{", "at the beginning of a block")
        return self.margin.take(self.starts[first], self.end_of(brace), self.starts[self.index])

    def _closing_notes(self, end: int) -> Notes:
        return self.margin.close(self.starts[end], self.end_of(end), self.starts[self.index])

    def close_block(self, notes: Notes) -> Notes:
        """Take the brace that closes a block; comments before and behind it are the last of the block."""
        end = self.expect("}", "at the end of a block")
        found = self._closing_notes(end)
        last = (*found.above, found.behind) if found.behind else found.above
        return replace(notes, last=last) if last else notes

    def spec_version(self, body: _Body) -> None:
        """`'spec_version' '=' STRING`."""
        first = self.next()
        self.expect("=", "after 'spec_version'")
        text = self.string("after 'spec_version ='")
        notes = self.settle(first)[1]
        if body.version is None:
            body.version_notes = notes
        body.version = self._once(body.version, text, first, "spec_version")

    # --- topology and characteristics -----------------------------------------------------------------------

    def topology(self) -> Topology:
        """`'topology' '{' (setting | 'device_units' '{' setting* '}' | 'per_engine' '{' setting* '}')* '}'`."""
        first = self.next()
        notes = self.open_block(first)
        settings: dict[str, Setting] = {}
        blocks: dict[str, tuple[tuple[Setting, ...], Notes]] = {}
        while self.text != "}":
            if self.text in ("device_units", "per_engine"):
                word, start = self.text, self.index
                found = self.unit_counts()
                blocks[word] = self._once(blocks.get(word), found, start, word)
            else:
                self.setting(settings)
        notes = self.close_block(notes)
        units, unit_notes = blocks.get("device_units", (None, NO_NOTES))
        engine, engine_notes = blocks.get("per_engine", (None, NO_NOTES))
        span = self.span_from(first)
        return Topology(tuple(settings.values()), units, engine, span, notes, unit_notes, engine_notes)

    def unit_counts(self) -> tuple[tuple[Setting, ...], Notes]:
        """`('device_units' | 'per_engine') '{' setting* '}'`."""
        notes = self.open_block(self.next())
        settings = self.settings()
        return settings, self.close_block(notes)

    def unit_characteristics(self, body: _Body) -> None:
        """`'unit_characteristics' '{' (UNIT '{' setting* '}')* '}'`."""
        first = self.next()
        notes = self.open_block(first)
        groups: dict[str, UnitGroup] = {}
        while self.text != "}":
            start = self.index
            group = self.unit_group()
            name = group.unit.id
            groups[name] = self._once(groups.get(name), group, start, name)
        notes = self.close_block(notes)
        if body.characteristics is None:
            body.characteristics_notes = notes
        found = tuple(groups.values())
        body.characteristics = self._once(body.characteristics, found, first, "unit_characteristics")

    def unit_group(self) -> UnitGroup:
        """`UNIT '{' setting* '}'`."""
        first = self.index
        unit = self.use("a unit or '}'", "in unit_characteristics")
        notes = self.open_block(first)
        settings = self.settings()
        notes = self.close_block(notes)
        return UnitGroup(unit, settings, self.span_from(first), notes)

    def settings(self) -> tuple[Setting, ...]:
        """`setting*`."""
        found: dict[str, Setting] = {}
        while self.text != "}":
            self.setting(found)
        return tuple(found.values())

    def setting(self, found: dict[str, Setting]) -> None:
        """`ID '=' expr`; after an unreadable value the next setting is read, and the device counts as broken."""
        first = self.index
        depth = self.depth_left
        name = self.use("a setting or '}'", "in a block of a device")
        self.expect("=", "after the name of a setting")
        try:
            value = self.expression()
        except SyntaxProblem:
            self.depth_left = depth
            self._body.damaged = True
            self.skip_to(self.at_setting)
            return
        setting = Setting(name, value, *self.settle(first))
        found[name.id] = self._once(found.get(name.id), setting, first, name.id)

    def at_setting(self) -> bool:
        """Whether a setting, a block or the end of one stands ahead."""
        if self.text == "}" or self.text in STATEMENT_WORDS:
            return True
        return self.kind == NAME and self.ahead() in ("=", "{")

    # --- type variants --------------------------------------------------------------------------------------

    def opcode_block(self, body: _Body) -> None:
        """`'opcode' '.' ('mandatory' | 'extended') '{' variant_ref* '}'`."""
        first = self.next()
        self.next()
        word = self.text
        self.next()
        notes = self.open_block(first)
        found = []
        while self.text != "}":
            found.append(self.variant_reference())
        notes = self.close_block(notes)
        given = getattr(body, word)
        if given is None:
            setattr(body, f"{word}_notes", notes)
        setattr(body, word, self._once(given, tuple(found), first, f"opcode.{word}"))

    def variant_reference(self) -> VariantRef:
        """`ID ('.' ID)? ('<' ELEM,+ '>')? '.' ID`."""
        first = self.index
        parts = [self.word("a variant or '}'", "in a list of variants")]
        while len(parts) < 3 and self.accept("."):
            parts.append(self.word("a name", "after '.'"))
        elems: tuple[str, ...] = ()
        if self.text == "<" and len(parts) < 3:
            elems = self.instantiation()
            self.expect(".", "before the name of a variant")
            parts.append(self.word("the name of a variant", "after '.'"))
        elif len(parts) < 2:
            raise self.problem("'.' or '<'", "after the name of a type family")
        return VariantRef(".".join(parts[:-1]), elems, parts[-1], *self.settle(first))


# --- documents: includes, declarations, the device directive, the program header ----------------------------


class Stage(IntEnum):
    """How far a document has been read; its parts come in this order."""

    INCLUDES = 0
    DECLARATIONS = 1
    DIRECTIVE = 2
    HEADER = 3
    STATEMENTS = 4


class DocumentParser(Statements, Devices):
    """The rules of the grammar from `document` to `device_ref`.

    All parts of a document are read as one block of statements, so that what is wrong with one of them, or with the
    place where it stands, never keeps the others from being read.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self._stage = Stage.INCLUDES
        self._includes: list[Include] = []
        self._declarations: list[TypeFamily | Device | Broken] = []
        self._device: DeviceRef | None = None
        self._name: Name | None = None
        self._name_notes = NO_NOTES
        self.openers.update(
            include=self.include,
            type_family=lambda: self.declaration(self.type_family),
            device=self.device,
            program=self.header,
        )

    def document(self) -> Document:
        """`document := include* (type_family | device_block)* device_ref? ('program' ID ':')? stmt*`."""
        statements = self.block(in_loop=False)
        end = len(self.source.text)
        return Document(
            tuple(self._includes),
            tuple(self._declarations),
            self._device,
            self._name,
            tuple(statements),
            Span(self.source, 0, end),
            self._name_notes,
            self.margin.close(end, end, end + 1),
        )

    @property
    def stage(self) -> Stage:
        """What has been read so far; statements may have been added since it was set."""
        return Stage.STATEMENTS if self.has_statements else self._stage

    def include(self) -> None:
        """`include := 'include' STRING`; a late one is reported and counts all the same."""
        first = self.next()
        path = self.string("after 'include'")
        if self.stage > Stage.INCLUDES:
            self.report(rules.LATE_INCLUDE.at(self.span_from(first)))
        self._includes.append(Include(path, *self.finish(first)))

    def device(self) -> None:
        """`device_block` or `device_ref`: a block goes on with `{` or `extends`."""
        if self._at_block():
            self.declaration(self.device_block)
        else:
            self.device_reference()

    def _at_block(self) -> bool:
        """Whether a block follows `device NAME`, be it that a word is missing or too much before its brace."""
        after = self.ahead(2)
        if after in ("{", "extends"):
            return self.kinds[self.index + 1] != STRING
        third, fourth = self.ahead(3), self.ahead(4)
        return after not in STATEMENT_WORDS and (
            third in ("{", "extends") or (third not in STATEMENT_WORDS and fourth == "{")
        )

    def declaration(self, parse: Callable[[], TypeFamily | Device]) -> None:
        """A type family or a device block; a late one is reported and counts all the same."""
        start, depth = self.index, self.depth_left
        late = self.stage > Stage.DECLARATIONS
        try:
            found: TypeFamily | Device | Broken = parse()
        except SyntaxProblem:
            self.depth_left = depth
            found = self.broken(start)
        else:
            if late:
                self._report_late(start, "type families and device blocks")
        self._declarations.append(found)
        self._stage = max(self._stage, Stage.DECLARATIONS)

    def _report_late(self, first: int, what: str) -> None:
        where, found = "before the device directive and the program", f"'{self.texts[first]}'"
        self.report(rules.SYNTAX.at(self.span(first), wanted=what, where=where, found=found))

    def device_reference(self) -> None:
        """`device_ref := 'device' ( STRING | ID )`."""
        first = self.next()
        target: Name | Text
        if self.kind == STRING:
            target = self.string("after 'device'")
        else:
            target = self.declare("the name or the file of a device", "after 'device'")
        if self._device is not None:
            what = "device directive"
            self.report(rules.SECOND_PROGRAM.at(self.span_from(first), what=what))
        elif self.stage > Stage.DIRECTIVE:
            self._report_late(first, "the device directive")
        reference = DeviceRef(target, *self.finish(first))
        self._device = self._device or reference
        self._stage = max(self._stage, Stage.DIRECTIVE)

    def header(self) -> None:
        """`'program' ID ':'`."""
        first = self.next()
        name = self.declare("the name of a program", "after 'program'")
        self.expect(":", "after the name of a program")
        if self.stage > Stage.DIRECTIVE:
            self.report(rules.SECOND_PROGRAM.at(self.span_from(first), what="program"))
        notes = self.finish(first)[1]
        if self._name is None:
            self._name, self._name_notes = name, notes
        self._stage = Stage.HEADER


class Parsed(NamedTuple):
    """A document and what was found wrong with its text; what could not be read is `Broken` in it."""

    document: Document
    findings: tuple[Diagnostic, ...]


def parse(source: Source, limits: Limits = DEFAULT) -> Parsed:
    """The document of a text; never raises, whatever the text is."""
    with gc_paused():
        parser = DocumentParser(source, limits)
        document = parser.document()
    return Parsed(document, tuple(parser.findings))
