"""Module DSL text to nodes, with several errors per run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lamella.base.cursor import SHOWN, SyntaxProblem
from lamella.base.diagnostic import Diagnostic
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NO_NOTES, Notes, Source, Span
from lamella.base.suggest import nearest
from lamella.lang.module.nodes import (
    Broken,
    Document,
    Export,
    Field,
    Import,
    Imported,
    Item,
    Preset,
    Recipe,
    Setting,
)
from lamella.lang.module.parse.declarations.primitives import Primitives
from lamella.lang.module.parse.layout import NAME
from lamella.lang.module.parse.lexis import DOC, STRING, read_doc
from lamella.lang.module.rules import syntax
from lamella.lang.module.words import KINDS, OPENERS, SECTIONS, SETTINGS

# --- documents: imports, exports and declarations -----------------------------------------------------------


EXPORTED = KINDS | {"primitive", "recipe", "preset"}
ALL = "*"
"""The kind of an export of all that is imported."""
VERSION_DIGITS = 9


class DocumentParser(Primitives):
    """The rules of the grammar `program` and `import_decl`, and the declarations without sections."""

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self._settings: set[str] = set()
        """The blocks of settings that the file has so far."""

    def document(self) -> Document:
        """A file."""
        notes, doc = NO_NOTES, ""
        if self.kind == DOC:
            notes = self.above(self.index)
            doc = read_doc(self.text)
        items: list[Item] = self.members(self.item, 0)
        end = len(self.source.text)
        last = self.blocks.within(0, end + 1)
        closed, span = self.closed(notes, last), Span(self.source, 0, end)
        return Document(tuple(items), doc, closed, span, frozenset(self.lost))

    def item(self) -> Item:
        """An import, an export or a declaration; one that cannot be read is `Broken`."""
        first, depth = self.index, self.depth_left
        try:
            return self._reader()()
        except SyntaxProblem:
            self.depth_left = depth
            self.pass_line()
            return Broken("", self.span(first))

    def _reader(self) -> Callable[[], Item]:
        readers: dict[str, Callable[[], Item]] = {
            "import": self._import,
            "from": self._from,
            "export": self._export,
            "primitive": self.primitive,
            "recipe": self._recipe,
            "preset": self._preset,
            "abstract": self.module,
            **dict.fromkeys(KINDS, self.module),
            **dict.fromkeys(SETTINGS, self._setting),
        }
        read = readers.get(self.text)
        if read is not None:
            return read
        if self.text in SECTIONS and self.ahead() == ":":
            self.misindented("a section stands inside a declaration", "indent it, and all that belongs to it")
            raise SyntaxProblem
        wanted, where = "an import or a declaration", "here"
        is_head = self.kinds[self.index + 1] == NAME
        if is_head and self.reword(OPENERS, wanted, where):
            return readers[self.text]
        close = nearest(self.text, OPENERS | SETTINGS) if self.kind == NAME else []
        raise self.problem(wanted, where, f"did you mean {close[0]}?" if close else "")

    # --- imports --------------------------------------------------------------------------------------------

    def _import(self) -> Import:
        """`'import' path ('as' name | '.' '*' | '.' '{' imported,+ '}')?`."""
        first = self.next()
        path = [self.name("the path of a module", "after 'import'")]
        names: tuple[Imported, ...] | None = None
        while names is None and self.accept("."):
            if self.accept("*"):
                names = ()
            elif self.accept("{"):
                names = self._imported("}")
            else:
                path.append(self.name("a name", "after '.'"))
        version = self._version(path)
        alias = self.name("a name", "after 'as'") if names is None and self.accept("as") else None
        span, notes = self.settle(first)
        self.end_line("after an import")
        return Import(tuple(path), version, alias, names, notes, span)

    def _from(self) -> Import:
        """`'from' path 'import' (imported,+ | '(' imported,+ ')' | '*')`."""
        first = self.next()
        path = self.dotted("the path of a module", "after 'from'").split(".")
        version = self._version(path)
        self.expect("import", "after the path of a module")
        if self.accept("*"):
            names: tuple[Imported, ...] = ()
        else:
            names = self._imported(")" if self.accept("(") else "")
        span, notes = self.settle(first)
        self.end_line("after an import")
        return Import(tuple(path), version, None, names, notes, span)

    def _imported(self, end: str) -> tuple[Imported, ...]:
        """`name ('as' name)?` in a row, up to a closing bracket if there is one."""
        found = [self._imported_name()]
        while self.accept(","):
            if end and self.text == end:
                break
            found.append(self._imported_name())
        if end:
            self.expect(end, "after the names of an import")
        return tuple(found)

    def _imported_name(self) -> Imported:
        first = self.index
        name = self.name("the name of a declaration", "in an import")
        alias = self.name("a name", "after 'as'") if self.accept("as") else None
        return Imported(name, alias, self.span_from(first))

    def _version(self, path: list[str]) -> int | None:
        """Take a last part like `v2` from a path."""
        digits = path[-1][1:]
        if len(path) < 2 or not path[-1].startswith("v") or not (digits.isascii() and digits.isdigit()):
            return None
        if len(digits) > VERSION_DIGITS:
            place, hint = self.span(self.index - 1), f"a version has at most {VERSION_DIGITS} digits"
            raise self.report(syntax.TOO_LARGE.at(place, hint=hint, text=digits[:SHOWN]))
        del path[-1]
        return int(digits)

    def _export(self) -> Export:
        """`'export' (kind name | '*')`."""
        first = self.next()
        name = ""
        if self.accept(ALL):
            kind = ALL
        elif self.text in EXPORTED:
            kind = self.name("a kind", "here")
            name = self.name("the name of a declaration", f"after '{kind}'")
        else:
            raise self.problem("module, block, model, primitive, recipe, preset or '*'", "after 'export'")
        span, notes = self.settle(first)
        self.end_line("after an export")
        return Export(kind, name, notes, span)

    # --- declarations without sections ----------------------------------------------------------------------

    def _recipe(self) -> Recipe | Broken:
        """`'recipe' name ':'` with fields."""
        name, fields, doc, notes, span = self._named_fields()
        return Recipe(name, fields, doc, notes, span) if fields is not None else Broken(name, span)

    def _preset(self) -> Preset | Broken:
        """`'preset' name ':'` with fields."""
        name, fields, doc, notes, span = self._named_fields()
        return Preset(name, fields, doc, notes, span) if fields is not None else Broken(name, span)

    def _setting(self) -> Setting:
        """`('verify_backward' | 'topology' | 'groups') ':'` with fields; the names of groups may be strings."""
        first = self.index
        notes, word = self.above(first), self.text
        self.next()
        self.expect(":", f"after '{word}'")
        if word in self._settings:
            self.twice(first, "this file")
        self._settings.add(word)
        notes = self.headed(notes)
        doc = self.doc_below()
        fields, last = self.body(self._group_of_devices if word == "groups" else self.field, "of fields")
        return Setting(word, fields, doc, self.closed(notes, last), self.span_from(first))

    def _group_of_devices(self) -> Field:
        """`(name | string) ':' text`."""
        first = self.index
        wanted, where = "the name of a group", "in 'groups:'"
        name = self.string(wanted, where).value if self.kind == STRING else self.name(wanted, where)
        self.expect(":", "after the name of a group")
        value = self.free_value()
        span, notes = self.settle(first)
        self.end_line("after a group")
        return Field(name, value, notes, span)

    def _named_fields(self) -> tuple[str, tuple[Field, ...] | None, str, Notes, Span]:
        """The parts of a recipe or a preset; its fields are None where the head is broken."""
        first = self.index
        notes = self.above(first)
        name, is_broken = self.plain_head()
        notes = self.headed(notes)
        doc = self.doc_below()
        fields, last = self.body(self.field, "of fields")
        notes, span = self.closed(notes, last), self.span_from(first)
        return name, None if is_broken else fields, doc, notes, span


class Parsed(NamedTuple):
    """A document and what was found wrong with its text; what could not be read is `Broken` in it or left out."""

    document: Document
    findings: tuple[Diagnostic, ...]


def parse(source: Source, limits: Limits = DEFAULT) -> Parsed:
    """The document of a text; never raises, whatever the text is."""
    with gc_paused():
        parser = DocumentParser(source, limits)
        document = parser.document()
    return Parsed(document, tuple(parser.findings))
