"""The parser of SkriptND: modules, definitions and their blocks, one method per rule of the grammar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

from lamella.base.cursor import END, SHOWN, SyntaxProblem
from lamella.base.dtype import find_in
from lamella.base.limits import Limits
from lamella.base.source import NO_TRIVIA, Source, Span, Trivia
from lamella.lang.skriptnd.nodes import (
    Access,
    Assertion,
    Attribute,
    Block,
    Branch,
    Callee,
    Carried,
    Component,
    Document,
    Expr,
    Format,
    Import,
    Index,
    Invocation,
    Iteration,
    Local,
    Loop,
    Lowering,
    Omitted,
    Operator,
    Printed,
    Quantization,
    Scan,
    Section,
    Statement,
    Text,
    Using,
)
from lamella.lang.skriptnd.parse.expressions import SkriptndExpressions
from lamella.lang.skriptnd.parse.tokens import BLOCK, DEFINITION_WORDS, NAME, STRING
from lamella.lang.skriptnd.rules import syntax
from lamella.lang.skriptnd.words import KEYWORDS, LOWERING_SIGNS, NEWER, PARAMETER_BLOCKS, TYPE_WORDS

LOOP_WORDS = frozenset(("with", "for", "while", "do", "unroll"))
BY_PLACE = "tensors go by their place; attributes stand in braces before the arguments, as in op{name=1}(x)"
ALONE = "an invocation stands alone: give its result a name, and compute with operators such as math.add"
AFTER = MappingProxyType(
    {"{": "attributes come before the arguments, as in op{axis=1}(x)", **dict.fromkeys("+-*/%[?", ALONE)}
)
"""What may follow an invocation by mistake, and how it is meant to be written."""
BEHIND_A_BLOCK = frozenset((";", "then", "elif", "else", "do", "while"))


class _Head:
    """Where a component begins, and the notes before it; those are taken before the notes of its blocks."""

    __slots__ = ("notes", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.notes: Trivia | None = None

    def joined(self, last: Trivia) -> Trivia:
        """The notes of the component, given those that are found further on."""
        first = self.notes
        return last if first is None else Trivia(first.above + last.above, last.behind, first.blank)


class SkriptndParser(SkriptndExpressions):
    """The rules of the grammar from `document` to `quantization`."""

    def __init__(self, source: Source, limits: Limits, start: int = 0, end: int | None = None) -> None:
        super().__init__(source, limits, start, end)
        self._heads: list[_Head] = []
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

    def opened(self, first: int, where: str) -> Trivia:
        """The brace that opens a definition or a block; the notes of what stands before it."""
        brace = self.expect("{", where)
        return self.margin.take(self.starts[first], self.end_of(brace), self.starts[self.index])

    def closed(self, wanted: str, where: str, known: int) -> Trivia:
        """The brace that closes a definition or a block; it is not missed where there were errors since it opened."""
        if self.text == "}":
            end = self.next()
            return self.margin.close(self.starts[end], self.end_of(end), self.starts[self.index])
        if not self.at_end():
            raise self.problem(wanted, where)
        # An error inside may have swallowed the brace: one mistake makes one finding.
        if self.error_count == known:
            self.problem(wanted, where)
        return NO_TRIVIA

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
        # A second block of a name is reported above; the first is the one that counts.
        sections.setdefault(name, section)

    def statements(self, parse: Callable[[], Statement]) -> list[Statement]:
        """The statements of a block, as many of them as can be read."""
        items: list[Statement] = []
        depth, known = self.depth_left, self.error_count
        while not self.at_end() and not self._at_close():
            start = self.index
            try:
                self._pass_stray(known)
                items.append(parse())
            except SyntaxProblem:
                self.depth_left = depth
                leave = self.pass_whole if self.is_too_deep else self.pass_over
                self.is_too_deep = False
                leave(start)
        return items

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

    # --- helper symbols, assertions and formulas ------------------------------------------------------------

    def using(self) -> Using:
        """`pattern '=' expr ';'`."""
        first = self.index
        target = self.pattern()
        self.expect("=", "after a helper symbol")
        value = self.expression()
        return Using(target, value, *self.finish(first, "after the value of a helper symbol"))

    # --- assertions -----------------------------------------------------------------------------------------

    def assertion(self) -> Assertion:
        """`expr [':' STRING+ (',' [STRING ':'] expr)*] ';'`."""
        first = self.index
        condition = self.expression()
        message, values = None, []
        if self.accept(":"):
            message = self.message()
            while self.accept(","):
                values.append(self.printed())
        return Assertion(condition, message, tuple(values), *self.finish(first, "after an assertion"))

    def message(self) -> Text | Format:
        """`STRING+`."""
        if self.kind != STRING:
            raise self.problem("a string", "after the condition of an assertion")
        return self.string()

    def printed(self) -> Printed:
        """`[STRING ':'] expr`."""
        first = self.index
        label = self.label() if self.kind == STRING and self._at_label() else None
        value = self.expression()
        return Printed(value, label, self.span_from(first))

    def _at_label(self) -> bool:
        index = self.index
        while self.kinds[index] == STRING:
            index += 1
        return self.texts[index] == ":"

    def label(self) -> str:
        """`STRING+ ':'`, without holes."""
        literal = self.string()
        if isinstance(literal, Format):
            problem, repair = "has a hole, but is the label of a value", "write the braces as \\{ and \\}"
            raise self.report(syntax.HOLE.at(literal.span, problem=problem, repair=repair))
        self.next()
        return literal.value

    # --- formulas -------------------------------------------------------------------------------------------

    def lowering(self) -> Lowering:
        """`['unroll' count] (local ',')* access sign expr (',' bound)* ['|' expr] ';'`."""
        first = self.index
        unroll = None
        if self.accept("unroll"):
            unroll = self.iteration("after 'unroll'")
        locals_ = self.newer_locals() if self.text == "with" else self.locals()
        target = self.target()
        sign = self.lowering_sign()
        value = self.expression()
        bounds = self.bounds()
        condition = self.expression() if self.accept("|") else None
        place = self.finish(first, "after a formula")
        return Lowering(target, sign, value, bounds, condition, locals_, unroll, *place)

    def locals(self) -> tuple[Local, ...]:
        """`(IDENT '=' expr ',')*`."""
        locals_ = []
        while self.kind == NAME and self.ahead() == "=":
            locals_.append(self.local())
            self.expect(",", "after a local value")
        return tuple(locals_)

    def newer_locals(self) -> tuple[Local, ...]:
        """`'with' local,+ ':'`."""
        self.note(syntax.NEWER_LOCALS.at(self.span(self.index)))
        self.next()
        locals_ = self.separated(self.local)
        self.expect(":", "after local values")
        return tuple(locals_)

    def local(self) -> Local:
        """`IDENT '=' expr`."""
        first = self.index
        name = self.identifier("the name of a local value", "here")
        self.expect("=", "after the name of a local value")
        value = self.expression()
        return Local(name, value, self.span_from(first))

    def target(self) -> Access:
        """The access on the left side."""
        first = self.index
        value = self.postfix()
        if isinstance(value, Access):
            return value
        repair = "an element is written y[i, j], y[i..], y[i,] for a single index, y[] for none"
        if isinstance(value, Index):
            repair = "a single index needs a comma behind it, y[i,], and a packed one two points, y[i..]"
        raise self.report(syntax.NO_ACCESS.at(self.span_from(first), repair=repair))

    def lowering_sign(self) -> str:
        """`'=' | ':=' | '+=' | '*=' | '&=' | '|=' | '<=' | '>='`."""
        sign = self.text
        if sign in ("<?=", ">?="):
            self.note(syntax.NEWER_EXTREME.at(self.span(self.index), sign=sign, other=NEWER[sign]))
            sign = NEWER[sign]
        elif sign not in LOWERING_SIGNS:
            raise self.problem("= := += *= &= |= <= or >=", "after the left side of a formula")
        self.next()
        return sign

    def iteration(self, where: str) -> Iteration:
        """`'..' '(' [IDENT '->'] [expr] ')'`."""
        first = self.expect("..", where)
        self.expect("(", "before the number of steps")
        index = None
        if self.kind == NAME and self.ahead() == "->":
            index = self.identifier("the name of an index", "before '->'")
            self.next()
        count = self.expression() if index is None or self.text != ")" else None
        self.expect(")", "after the number of steps")
        return Iteration(index, count, self.span_from(first))

    # --- components -----------------------------------------------------------------------------------------

    def component(self) -> Component:
        """`pattern,+ '=' (branch | loop | callable) ';'`."""
        first = self.index
        head = _Head(self.starts[first])
        self._heads.append(head)
        try:
            results = tuple(self.separated(self.pattern))
            self.expect("=", "after the results of a component")
            value = self.component_value()
            span, notes = self.finish(first, "after a component")
        finally:
            self._heads.pop()
        return Component(results, value, span, head.joined(notes))

    def component_value(self) -> Callee | Branch | Loop:
        """`branch | loop | callable`."""
        if self.text == "if":
            return self.branch()
        return self.loop() if self.text in LOOP_WORDS else self.callee()

    # --- callables ------------------------------------------------------------------------------------------

    def callee(self) -> Callee:
        """`[IDENT ':'] (invocation | block) | expr`."""
        if self.text == "{":
            return self.block(None, self.index)
        if self.kind == NAME and self.text not in KEYWORDS:
            if self.ahead() == ":":
                return self.labelled()
            if self.at_invocation():
                return self.invocation(None, self.index)
        return self.expression()

    def labelled(self) -> Callee:
        """`IDENT ':' (invocation | block)`."""
        first = self.index
        label = self.identifier("a label", "here")
        self.next()
        return self.block(label, first) if self.text == "{" else self.invocation(label, first)

    def at_invocation(self) -> bool:
        """Whether an operator stands ahead, with its types, attributes or arguments, and no comparison."""
        # `f32(x)` is a cast, although it looks like an invocation.
        index, texts = self.index, self.texts
        if texts[index + 1] == "(" and find_in("skriptnd", self.text) is not None:
            return False
        while texts[index + 1] == "." and self.kinds[index + 2] == NAME:
            index += 2
        behind = texts[index + 1]
        if behind == "<":
            return self._at_types(index + 2)
        return behind == "(" or behind == "{"

    def _at_types(self, index: int) -> bool:
        """Whether a list of types stands here that is closed by `>` and followed by attributes or arguments."""
        texts = self.texts
        while self.kinds[index] == NAME and (texts[index] not in KEYWORDS or texts[index] in TYPE_WORDS):
            if texts[index + 1] == ">":
                return texts[index + 2] in ("(", "{")
            if texts[index + 1] != ",":
                return False
            index += 2
        return False

    def invocation(self, label: str | None, first: int) -> Invocation:
        """`qualified ['<' type,+ '>'] ['{' attribute,* '}'] '(' (expr | '~'),* ')'`."""
        operator = self.qualified("an operator", "here")
        types = self.types()
        attributes = self.attributes()
        self.expect("(", "before the arguments of an operator")
        self.descend("of arguments")
        arguments: list[Expr | Omitted] = [] if self.text == ")" else self.separated(self.or_omitted)
        self.depth_left += 1
        if self.text != ")":
            hint = BY_PLACE if self.text == "=" else ""
            raise self.problem("')'", "after the arguments of an operator", hint)
        self.next()
        if self.text in AFTER:
            raise self.problem("';'", "after an invocation", AFTER[self.text])
        return Invocation(operator, types, attributes, tuple(arguments), label, self.span_from(first))

    def types(self) -> tuple[str, ...]:
        """`['<' type,+ '>']`."""
        if not self.accept("<"):
            return ()
        names = self.separated(lambda: self.type_name("between '<' and '>'"))
        self.expect(">", "after types")
        return tuple(names)

    def attributes(self) -> tuple[Attribute, ...]:
        """`['{' (attribute (',' attribute)* [','])? '}']`."""
        if not self.accept("{"):
            return ()
        items = []
        while self.text != "}":
            items.append(self.attribute())
            if not self.accept(","):
                break
        self.expect("}", "after attributes")
        return tuple(items)

    def attribute(self) -> Attribute:
        """`IDENT ('=' | ':') expr`: the specification writes both."""
        first = self.index
        name = self.identifier("the name of an attribute", "here")
        if not self.accept(":"):
            self.expect("=", "after the name of an attribute")
        value = self.expression()
        return Attribute(name, value, self.span_from(first))

    def block(self, label: str | None, first: int) -> Block:
        """`'{' component* 'yield' expr,+ ';' '}'`."""
        self._take_head()
        self.next()
        self.descend("of blocks")
        depth = self.depth_left
        components: list[Component] = []
        broken = False
        while self.text not in ("yield", "}") and not self.at_end():
            component = self.recovered(self.component, depth)
            broken = broken or component is None
            components += [] if component is None else [component]
        results, notes = self.ending(broken)
        self.depth_left += 1
        return Block(tuple(components), results, label, self.span_from(first), notes)

    def _take_head(self) -> None:
        """Take the notes up to the brace that opens a block, before those of the block."""
        # The margin hands out comments in the order of the text.
        head, end = self._heads[-1], self.end_of(self.index)
        head.notes = head.joined(self.margin.take(head.start, end, end))

    def ending(self, broken: bool) -> tuple[tuple[Expr, ...], Trivia]:
        """`'yield' expr,+ ';' '}'`; what is missing is said unless something else was found wrong in the block."""
        outcome = None
        if self.text == "yield":
            outcome = self.recovered(self.results, self.depth_left)
            broken = broken or outcome is None
        if not broken and (outcome is None or self.text != "}"):
            self.problem("'yield'" if outcome is None else "'}'", "at the end of a block")
            broken = True
        if self.text != "}" or outcome is None or broken:
            self.pass_rest()
            raise SyntaxProblem
        end = self.next()
        last = self.margin.close(self.starts[end], self.starts[end], self.starts[end] + 1)
        results, notes = outcome
        return results, replace(notes, last=last.above) if last.above else notes

    def results(self) -> tuple[tuple[Expr, ...], Trivia]:
        """`'yield' expr,+ ';'`."""
        first = self.next()
        values = self.separated(self.expression)
        return tuple(values), self.finish(first, "after the results of a block")[1]

    # --- control --------------------------------------------------------------------------------------------

    def branch(self) -> Branch:
        """`'if' callable 'then' callable ('elif' callable 'then' callable)* 'else' callable`."""
        first = self.index
        cases = []
        while self.text in ("if", "elif"):
            self.next()
            condition = self.callee()
            self.expect("then", "after a condition")
            cases.append((condition, self.callee()))
        self.expect("else", "after the consequent of a branch")
        otherwise = self.callee()
        return Branch(tuple(cases), otherwise, self.span_from(first))

    def loop(self) -> Loop:
        """`[with] [for] ['while' callable] ('do' | 'unroll') [count] callable ['while' callable]`."""
        first = self.index
        carried = tuple(self.separated(self.carried)) if self.accept("with") else ()
        scans = tuple(self.separated(self.scan)) if self.accept("for") else ()
        before = self.callee() if self.accept("while") else None
        unroll = self.text == "unroll"
        if not unroll and self.text != "do":
            raise self.problem("'do' or 'unroll'", "before the body of a loop")
        self.next()
        iteration: Iteration | None = None
        if self.text == "..":
            iteration = self.iteration("here")
        body = self.callee()
        after = self.callee() if self.accept("while") else None
        return Loop(body, carried, scans, before, after, iteration, unroll, self.span_from(first))

    def carried(self) -> Carried:
        """`IDENT [':' type [shape]] '=' expr`."""
        first = self.index
        name = self.identifier("the name of a carried value", "here")
        type_ = self.result_type() if self.text == ":" else None
        self.expect("=", "after the name of a carried value")
        value = self.expression()
        return Carried(name, value, type_, self.span_from(first))

    def scan(self) -> Scan:
        """`IDENT ':' expr`."""
        first = self.index
        name = self.identifier("the name of an item", "here")
        self.expect(":", "after the name of an item")
        value = self.expression()
        return Scan(name, value, self.span_from(first))

    # --- quantisation ---------------------------------------------------------------------------------------

    def quantization(self) -> Quantization:
        """`qualified ':' qualified ['<' type,+ '>'] ['{' attribute,* '}'] ';'`."""
        first = self.index
        tensor = self.qualified("the name of a tensor", "in @quantize")
        self.expect(":", "after the name of a tensor")
        operator = self.qualified("an operator", "after ':'")
        types = self.types()
        attributes = self.attributes()
        place = self.finish(first, "after a quantization")
        return Quantization(tensor, operator, types, attributes, *place)
