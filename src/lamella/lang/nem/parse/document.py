"""Documents: includes, declarations, the device directive, the program header."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from lamella.base.cursor import SyntaxProblem
from lamella.base.limits import Limits
from lamella.base.source import NO_NOTES, Source, Span
from lamella.lang.nem import rules
from lamella.lang.nem.nodes import Broken, Device, DeviceRef, Document, Include, Name, Text, TypeFamily
from lamella.lang.nem.parse.devices import Devices
from lamella.lang.nem.parse.lexis import STRING
from lamella.lang.nem.parse.statements import Statements
from lamella.lang.nem.words import STATEMENT_WORDS


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
