"""Assembly text to its nodes, with several errors per run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lamella.base.cursor import END, SyntaxProblem
from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits, hint_for
from lamella.base.source import Source, Span
from lamella.lang.nac.assembly import words
from lamella.lang.nac.assembly.nodes import Assembly, Field, Item, Moment, Row, Section
from lamella.lang.nac.assembly.parse.data import DATA, DataParser
from lamella.lang.nac.assembly.parse.lexis import FLOAT, INT, LABEL, NAMES, SECTION, WORD
from lamella.lang.nac.assembly.programs import MANIFEST_NAMES, PLAN_WORDS
from lamella.lang.nac.nodes import Constant, Input, Operation, Parameter, Signature
from lamella.lang.nac.rules import assembly as rules

# --- header, sections and tables: the rules of the grammar from `start` to `constant` -----------------------


class AssemblyParser(DataParser):
    """Reads a whole text, row by row; a row that is wrong is left out."""

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source)
        self._most = limits.max_statements
        self._count = 0

    def assembly(self) -> Assembly:
        """`NAC VERSION field* section*`."""
        fields = self._fields()
        sections: list[Section] = []
        while self.kind != END:
            sections += self._section()
        self._refuse_repeated([(f".{item.name}", item.span) for item in sections], "the section {}")
        end = len(self.source.text)
        return Assembly(
            tuple(fields),
            tuple(sections),
            Span(self.source, 0, end),
            self.margin.close(end, end, end + 1),
        )

    # --- the header -----------------------------------------------------------------------------------------

    def _fields(self) -> list[Field]:
        found: list[Field] = []
        if self.text != "nac":
            self.problem("'nac' and a version", "at the beginning of a text")
            self._leave_field()
        while self.kind not in (END, SECTION):
            try:
                found.append(self.field(first=not found))
            except SyntaxProblem:
                self._leave_field()
        self._refuse_repeated([(item.name, item.span) for item in found], "the field {}")
        return found

    def _leave_field(self) -> None:
        self.skip_to(lambda: self.kind == SECTION or (self.kind == WORD and self.text in words.FIELDS))

    def field(self, first: bool) -> Field:
        """One field; `nac` is the first and no other is."""
        start = self.index
        known = ("nac",) if first and self.text == "nac" else words.FIELDS
        name = self.choose("field of the header", known, "in the header")
        value: str | int
        if name == "nac":
            value = self._version()
        elif name == "weights":
            value = self.choose("place of weights", words.STORAGE, "after 'weights'")
        elif name == "quantization":
            value = self.choose("quantization", words.METHODS, "after 'quantization'")
        else:
            value = self.size("a number", f"after '{name}'")
        span, notes = self.settle(start)
        return Field(name, value, span, notes)

    def _version(self) -> str:
        token = self.expect_kind(FLOAT, "a version", "after 'nac'")
        if self.texts[token] not in words.VERSIONS:
            raise self.unknown(token, "version", words.VERSIONS)
        return self.texts[token]

    # --- sections -------------------------------------------------------------------------------------------

    def _section(self) -> list[Section]:
        """A section, or nothing where its name is unknown."""
        token = self.index
        name = self.text[1:]
        if self.kind != SECTION or name not in words.SECTIONS:
            if self.kind == SECTION:
                self.unknown(token, "section", [f".{section}" for section in words.SECTIONS])
            else:
                self.problem("a section", "here")
            self.next()
            self.skip_to(lambda: self.kind == SECTION)
            return []
        self.next()
        span, notes = self.settle(token)
        rows: list[Row] = []
        if name in (words.MANIFEST, words.ORCHESTRATOR):
            self._program(name, rows)
        else:
            self._rows(self._reader(name), rows)
        return [Section(name, tuple(rows), span, notes)]

    def _reader(self, name: str) -> Callable[[], Item]:
        """How a row of a section is read."""
        readers: dict[str, Callable[[], Item]] = {
            words.CODE: self.line,
            words.TRAINING: self.line,
            words.CONSTANTS: self.constant_row,
            words.SCHEDULE: self.moment,
            words.TENSORS: self.tensor,
            words.ARRAYS: self.array,
            words.RESOURCES: self.resource,
        }
        return readers.get(name, lambda: self.named(name))

    def _rows(self, read: Callable[[], Item], rows: list[Row]) -> None:
        while self.kind not in (END, SECTION):
            self._row(read, rows)

    def _program(self, name: str, rows: list[Row]) -> None:
        """A manifest, or a plan with its constants: bytes or instructions."""
        is_plan = name == words.ORCHESTRATOR
        names = PLAN_WORDS if is_plan else MANIFEST_NAMES
        if self.kind == WORD and self.text in DATA:
            self._row(self.nameless, rows)
        elif self.kind == WORD or not is_plan:
            self._row(lambda: self.step(names), rows)
            while self.kind == WORD:
                self._row(lambda: self.step(names), rows)
        if is_plan:
            self._rows(self.constant_row, rows)
        elif self.kind not in (END, SECTION):
            self.problem("a section", "after the manifest")
            self.skip_to(lambda: self.kind == SECTION)

    def _row(self, read: Callable[[], Item], found: list[Row]) -> None:
        start = self.index
        self._count += 1
        if self._count > self._most:
            self._give_up()
            return
        try:
            item = read()
        except SyntaxProblem:
            self._leave_row(start)
            return
        _, notes = self.settle(start)
        found.append(Row(item, notes))

    def _give_up(self) -> None:
        """There are more rows than anybody reads: go to the end."""
        what, repair = "the number of rows", hint_for("max_statements")
        span = self.span(self.index)
        self.report(rules.LIMIT.at(span, what=what, limit=self._most, repair=repair))
        self.move_to(self.end)

    def _leave_row(self, start: int) -> None:
        """Go on where a row can begin: a label or an id with '=' behind it, or the next section."""
        if self.index == start and self.kind != SECTION:
            self.next()
        self.skip_to(self._at_row)

    def _at_row(self) -> bool:
        if self.kind == SECTION:
            return True
        if self.kind == WORD and self.text.isupper():
            return self.ahead() == "("
        return self.kind in (LABEL, INT, *NAMES) and self.ahead() == "="

    def _refuse_repeated(self, named: list[tuple[str, Span]], what: str) -> None:
        seen: set[str] = set()
        for name, span in named:
            if name in seen:
                self.report(rules.REPEATED.at(span, what=what.format(f"'{name}'")))
            seen.add(name)

    # --- tables ---------------------------------------------------------------------------------------------

    def named(self, section: str) -> Item:
        """`INT '=' name`."""
        first = self.index
        index = self.key("an index" if section == words.INPUTS else "an id")
        name = self.name("a name", "after '='")
        span = self.span_from(first)
        if section == words.OPERATIONS:
            return Operation(index, name, span)
        if section == words.SIGNATURES:
            return Signature(index, name, span)
        return Parameter(index, name, span) if section == words.PARAMETERS else Input(index, name, span)

    def constant_row(self) -> Constant:
        """`INT '=' value`."""
        first = self.index
        number = self.key("an id")
        value = self.value("after '='")
        return Constant(number, value.type, value.value, self.span_from(first))

    def moment(self) -> Moment:
        """`INT '=' command*`."""
        first = self.index
        tick = self.key("a tick")
        orders = self.orders()
        return Moment(tick, orders, self.span_from(first))


class ParsedAssembly(NamedTuple):
    """An assembly text and what was found wrong with it; what could not be read is not in it."""

    assembly: Assembly
    findings: tuple[Diagnostic, ...]


def parse_assembly(source: Source, limits: Limits = DEFAULT) -> ParsedAssembly:
    """The nodes of a text; never raises, whatever the text is."""
    with gc_paused():
        parser = AssemblyParser(source, limits)
        assembly = parser.assembly()
    return ParsedAssembly(assembly, tuple(sort_findings(parser.findings)))
