"""Modules: imports, operators, graphs and their blocks; and how reading goes on after an error."""

from __future__ import annotations

from collections.abc import Callable

from lamella.base.cursor import END, SHOWN, SyntaxProblem
from lamella.base.limits import Limits
from lamella.base.source import NO_NOTES, Notes, Source, Span
from lamella.lang.skriptnd.nodes import Document, Import, Operator, Section, Statement
from lamella.lang.skriptnd.parse.components import Components
from lamella.lang.skriptnd.parse.lexis import BLOCK, TooDeep
from lamella.lang.skriptnd.parse.recovery import DEFINITION_WORDS
from lamella.lang.skriptnd.rules import syntax
from lamella.lang.skriptnd.words import PARAMETER_BLOCKS

BEHIND_A_BLOCK = frozenset((";", "then", "elif", "else", "do", "while"))


class DocumentParser(Components):
    """The rules of the grammar from `document` to `block`."""

    def __init__(self, source: Source, limits: Limits, start: int = 0, end: int | None = None) -> None:
        super().__init__(source, limits, start, end)
        self._statements: dict[str, Callable[[], Statement]] = {
            **dict.fromkeys(PARAMETER_BLOCKS, self.parameter),
            "dtype": self.dtype,
            "using": self.using,
            "assert": self.assertion,
            "lower": self.lowering,
            "compose": self.component,
            "update": self.component,
            "quantize": self.quantization,
        }

    def document(self) -> Document:
        """`import* (operator | graph)*`."""
        imports: list[Import] = []
        definitions: list[Operator] = []
        while self.kind != END:
            start = self.index
            try:
                if self.text == "import":
                    imports.append(self.import_(late=bool(definitions)))
                else:
                    definitions.append(self.definition())
            except SyntaxProblem:
                self._leave(start)
        end = len(self.source.text)
        notes = self.margin.close(end, end, end + 1)
        return Document(tuple(imports), tuple(definitions), Span(self.source, 0, end), notes)

    def _leave(self, start: int) -> None:
        """Go on with the next definition or import."""
        self.depth_left = self._deepest
        if self.index == start:
            self.next()
        self.skip_to(lambda: self.text in DEFINITION_WORDS)

    def import_(self, late: bool) -> Import:
        """`'import' qualified,+ ';'`."""
        first = self.next()
        modules = self.separated(lambda: self.qualified("the name of a module", "after 'import'"))
        place = self.finish(first, "after an import")
        if late:
            self.report(syntax.LATE_IMPORT.at(place[0]))
        return Import(tuple(modules), *place)

    # --- definitions ----------------------------------------------------------------------------------------

    def definition(self) -> Operator:
        """`['public'] 'operator' IDENT '{' block* '}' | 'graph' IDENT '{' block* '}'`."""
        first, known = self.index, self.error_count
        public = self.accept("public")
        graph = self.text == "graph" and not public
        if not graph and self.text != "operator":
            where = "after 'public'" if public else "here"
            raise self.problem("'operator'" if public else "'operator', 'graph' or 'import'", where)
        self.next()
        name = self.identifier(f"the name of {'a graph' if graph else 'an operator'}", "here")
        notes = self.opened(first, f"after the name of {'a graph' if graph else 'an operator'}")
        sections: dict[str, Section] = {}
        while self.kind == BLOCK:
            self.section(name, sections)
        end = self.closed("a block or '}'", f"in {name[:SHOWN]}", known)
        span = self.span_from(first)
        return Operator(name, tuple(sections.values()), public, graph, span, notes, end)

    def opened(self, first: int, where: str) -> Notes:
        """The brace that opens a definition or a block; the notes of what stands before it."""
        brace = self.expect("{", where)
        return self.margin.take(self.starts[first], self.end_of(brace), self.starts[self.index])

    def closed(self, wanted: str, where: str, known: int) -> Notes:
        """The brace that closes a definition or a block; it is not missed where there were errors since it opened."""
        if self.text == "}":
            end = self.next()
            return self.margin.close(self.starts[end], self.end_of(end), self.starts[self.index])
        if not self.at_end():
            raise self.problem(wanted, where)
        if self.error_count == known:
            self.problem(wanted, where)
        return NO_NOTES

    def section(self, operator: str, sections: dict[str, Section]) -> None:
        """`'@' NAME '{' statement* '}'`."""
        first, name, known = self.index, self.text[1:], self.error_count
        if name not in self._statements:
            self.report(self.unknown_block())
            self._pass_block()
            return
        if name in sections:
            self.report(syntax.DOUBLE_BLOCK.at(self.span(first), operator=operator[:SHOWN], name=name))
        self.next()
        notes = self.opened(first, f"after @{name}")
        items = self.statements(self._statements[name])
        end = self.closed("'}'", f"at the end of @{name}", known)
        section = Section(name, tuple(items), self.span_from(first), notes, end)
        sections.setdefault(name, section)

    def statements(self, parse: Callable[[], Statement]) -> list[Statement]:
        """The statements of a block, as many of them as can be read."""
        found: list[Statement] = []
        depth, known = self.depth_left, self.error_count
        while not self.at_end() and not self._at_close():
            start = self.index
            try:
                self._pass_stray(known)
                found.append(parse())
            except SyntaxProblem as problem:
                self.depth_left = depth
                leave = self.pass_whole if isinstance(problem, TooDeep) else self.pass_over
                leave(start)
        return found

    def _pass_stray(self, known: int) -> None:
        """Leave what belongs to a block whose beginning was not read; that is said where nothing else was wrong."""
        if self.text == "}":
            if self.error_count == known:
                self.problem("a statement", "before '}'")
            self.next()
            raise SyntaxProblem
        if self.text == "yield" and self.error_count > known:
            raise SyntaxProblem

    def _at_close(self) -> bool:
        """Whether the block ends here, rather than one in a component whose beginning was not read."""
        return self.text == "}" and self.ahead() not in BEHIND_A_BLOCK

    def _pass_block(self) -> None:
        self.next()
        if self.text == "{":
            self.pass_braces()
