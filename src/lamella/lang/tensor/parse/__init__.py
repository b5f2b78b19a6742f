"""Tensor language text to nodes, with several errors per run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from lamella.base.cursor import END, SyntaxProblem
from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NO_TRIVIA, Source, Span, Trivia
from lamella.lang.tensor.nodes import (
    INDEX,
    Alloca,
    CoopApply,
    Dictionary,
    For,
    Foreach,
    ForeachTile,
    Function,
    If,
    Instruction,
    Parallel,
    Parameter,
    Program,
    Region,
    Scalar,
    Statement,
    Type,
    Value,
)
from lamella.lang.tensor.nodes.types import KEYS
from lamella.lang.tensor.parse.instructions import TensorInstructions
from lamella.lang.tensor.parse.tokens import LOCAL, STRING, WORD
from lamella.lang.tensor.rules import syntax
from lamella.lang.tensor.words import (
    ALIASES,
    DOTTED,
    INSTRUCTIONS,
    NEWER,
    OTHER_NAMES,
    REDUCTIONS,
    TRANSPOSES,
    VALUELESS,
    WORDS,
)

I32 = Scalar("i32")


class _RegionBody(NamedTuple):
    """The statements of a region, and the tokens of its braces."""

    statements: tuple[Statement, ...]
    open: int
    close: int


class TensorParser(TensorInstructions):
    """The rules of the grammar from `program` to `statement`, and the instructions that hold regions."""

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self._statement_count = 0
        self.first = 0
        """The first token of the statement that is being read."""
        self.head: Trivia | None = None
        """The notes of an instruction that holds a region: they are those of the line that opens it."""
        families: dict[str, Callable[[str], Instruction]] = {
            "arith": self.arith,
            "cmp": self.compare,
            "math": self.math,
            "builtin": self.builtin,
        }
        self._readers: dict[str, Callable[[str], Instruction]] = {
            **{word: families.get(word.partition(".")[0], self.subgroup_operation) for word in DOTTED},
            **dict.fromkeys(TRANSPOSES, self.blas),
            **dict.fromkeys(("store", "store.atomic", "store.atomic_add"), self.store),
            **{f"cooperative_matrix_store{flag}": self.coop_store for flag in ("", ".atomic", ".atomic_add")},
            **{f"atomic_{name}": self.atomic for name in REDUCTIONS},
            "alloca": self.alloca,
            "barrier": self.barrier,
            "cast": self.cast,
            "constant": self.constant,
            "cooperative_matrix_construct": self.coop_construct,
            "cooperative_matrix_extract": self.coop_extract,
            "cooperative_matrix_insert": self.coop_insert,
            "cooperative_matrix_load": self.coop_load,
            "cooperative_matrix_mul_add": self.coop_mul_add,
            **{f"cooperative_matrix_reduce_{name}": self.coop_reduce for name in REDUCTIONS},
            "cooperative_matrix_scale": self.coop_scale,
            "expand": self.expand,
            "fuse": self.fuse,
            "lifetime_stop": self.lifetime_stop,
            "load": self.load,
            "size": self.size_instruction,
            "subgroup_broadcast": self.subgroup_broadcast,
            "subview": self.subview,
            "yield": self.yield_values,
            "for": self.for_loop,
            "foreach": self.foreach_loop,
            "foreach_tile": self.foreach_tile,
            "cooperative_matrix_apply": self.coop_apply,
            "if": self.branch,
            "parallel": self.parallel,
        }

    # --- programs and functions -----------------------------------------------------------------------------

    def program(self) -> Program:
        """`function+`."""
        functions: list[Function] = []
        if self.kind == END:
            self.problem("'func'", "at the beginning of a program")
        while self.kind != END:
            try:
                functions.append(self.function())
            except SyntaxProblem:
                self._leave()
        end = len(self.source.text)
        return Program(tuple(functions), Span(self.source, 0, end), self.margin.close(end, end, end + 1))

    def _leave(self) -> None:
        """Go on with the next function; the body of this one is read for what is wrong in it."""
        self.depth_left = self._deepest
        self.open_braces = 0
        while self.kind != END and self.text != "func":
            if self.text == "{" and not self.at_dictionary():
                self.body(self.next())
                return
            self.next()

    def function(self) -> Function:
        """`'func' name '(' parameter,* ')' ('attributes' dictionary)? region`."""
        first = self.expect("func", "here")
        name = self.global_name("the name of a function", "after 'func'")
        opened = self.expect("(", "after the name of a function")
        inside = self.end_of(opened)
        head = self.margin.take(self.starts[first], inside, inside)
        # Names are local to a function: what an earlier one called %a says nothing of this one's.
        self.types_of.clear()
        parameters = [] if self.text == ")" else self.parameters()
        close = self.expect(")", "after the parameters")
        attributes = self.dictionary("after 'attributes'") if self.accept("attributes") else None
        brace, tail = self.opened(close, "before the body of a function")
        body = self.body(brace)
        region = self.region(body)
        between = tuple(line for line in tail.above if line)
        notes = Trivia(head.above + between, tail.behind, head.blank)
        return Function(name, tuple(parameters), region, attributes, self.span_from(first), notes)

    def parameters(self) -> list[Parameter]:
        """`parameter,+`."""
        items = [self.parameter()]
        while self.texts[self.index - 1] == ",":
            items.append(self.parameter())
        return items

    def parameter(self) -> Parameter:
        """`value ':' type dictionary?`, with the comma behind it, so that a comment there is the parameter's."""
        first = self.index
        value = self.local("a parameter", "in '(…)'")
        self.expect(":", "after a parameter")
        type_ = self.type("after ':'")
        attributes = self.dictionary("here") if self.text == "{" else None
        self.types_of[value.name] = type_
        span = self.span_from(first)
        self.accept(",")
        end = self.end_of(self.index - 1)
        notes = self.margin.take(span.start, end, self.starts[self.index])
        return Parameter(value, type_, attributes, span, notes)

    # --- statements -----------------------------------------------------------------------------------------

    def statement(self) -> Statement:
        """`(value,+ '=')? instruction`."""
        first = self.index
        results: tuple[Value, ...] = ()
        if self.kind == LOCAL:
            results = self.locals("a value", "before '='")
            self.expect("=", "after the names of the results")
        self.first = first
        token = self.index
        word = self.instruction_word()
        instruction = self._readers[word](word)
        self.check_results(token, word.partition(".")[0], results, instruction)
        self.types_of.update(
            (value.name, kind) for value, kind in zip(results, _types(instruction), strict=False)
        )
        span, head = self.span_from(first), self.head
        self.head = None
        return Statement(results, instruction, span, self.settle(first)[1] if head is None else head)

    def instruction_word(self) -> str:
        """Take the word that begins an instruction; the specification's name for it."""
        text, span = self.text, self.span(self.index)
        word = ALIASES.get(text) or NEWER.get(text, text)
        if self.kind != WORD or word not in self._readers:
            raise self.problem("an instruction", "here")
        self.next()
        if text == "group_id":
            self.note(syntax.BARE_GROUP_ID, span)
        elif text in NEWER:
            self.note(syntax.NEWER_NAME, span, word=text, repair=word)
        return word

    def check_results(
        self, token: int, word: str, results: tuple[Value, ...], instruction: Instruction
    ) -> None:
        """Report where not as many values are named as an instruction produces; loops and branches may name none."""
        is_multiple = isinstance(instruction, (For, If))
        produced = 0 if word in VALUELESS else len(_types(instruction))
        if len(results) == produced or (is_multiple and not results):
            return
        repair = "name each of them" if produced else "leave out what stands before it"
        given = f"{_counted(len(results))} {'is' if len(results) == 1 else 'are'}"
        span, name, counted = self.span(token), self.texts[token], _counted(produced)
        self.report(syntax.RESULTS.at(span, instruction=name, produced=counted, given=given, repair=repair))

    def led_by_hoisted(self, statement: Statement, statements: list[Statement]) -> Statement:
        """Put the instructions that a statement needs before it; comments above it stand above them."""
        notes = statement.notes
        above = Trivia(above=notes.above, blank=notes.blank)
        statements.append(replace(self.hoisted[0], notes=above))
        statements += self.hoisted[1:]
        self.hoisted.clear()
        return replace(statement, notes=Trivia(behind=notes.behind))

    # --- regions --------------------------------------------------------------------------------------------

    def opened(self, first: int, where: str) -> tuple[int, Trivia]:
        """The brace that opens a region, and the notes of what stands before it."""
        brace = self.expect("{", where)
        return brace, self.margin.take(self.starts[first], self.end_of(brace), self.starts[self.index])

    def body(self, brace: int) -> _RegionBody:
        """The statements of a region up to its closing brace, as many of them as can be read."""
        known = self.error_count
        if self.depth_left == 0:
            self.too_deep("of regions")
            self._pass_inside()
            # One error less than there are: that the brace is missing is not reported as well.
            return _RegionBody((), brace, self._closed(brace, known - 1))
        self.depth_left -= 1
        statements: list[Statement] = []
        while not self._at_end():
            self._one_more(statements)
        self.depth_left += 1
        return _RegionBody(tuple(statements), brace, self._closed(brace, known))

    def _at_end(self) -> bool:
        return self.kind == END or self.text in ("}", "func")

    def _one_more(self, found: list[Statement]) -> None:
        """Read a statement, or go on behind one that cannot be read."""
        start, depth = self.index, self.depth_left
        try:
            statement = self.statement()
        except SyntaxProblem:
            self.depth_left = depth
            self.head = None
            self.hoisted.clear()
            self._pass_over(start)
            return
        if self.hoisted:
            statement = self.led_by_hoisted(statement, found)
        found.append(statement)
        self._statement_count += 1
        if self._statement_count == self.limits.max_statements + 1:
            limit = self.limits.max_statements
            self.exceed(self.index - 1, "the number of statements", limit, "max_statements")
            self.move_to(self.end)

    def _closed(self, brace: int, known: int) -> int:
        """The brace that closes a region; it is not missed where there were errors since the region was opened."""
        if self.text == "}":
            return self.next()
        if self.error_count == known:
            self.unclosed(brace)
        return self.index - 1

    def region(self, body: _RegionBody) -> Region:
        """A region that has been read with all that stands behind it on its last line."""
        return Region(body.statements, self.span(body.open, body.close), self.end_notes(body.close))

    def end_notes(self, close: int) -> Trivia:
        """The notes of the end of a region."""
        if self.texts[close] != "}":
            return NO_TRIVIA
        end = self.end_of(self.index - 1)
        return self.margin.close(self.starts[close], end, self.starts[self.index])

    # --- instructions that hold regions ---------------------------------------------------------------------

    def for_loop(self, word: str) -> For:
        """`'for' value (':' type)? '=' value ',' value (',' value)? carried? region dictionary?`."""
        first = self.first
        variable = self.local("the loop variable", "after 'for'")
        type_ = self._loop_type()
        self.expect("=", "after the loop variable")
        begin, end = self.operand(), self.next_operand()
        step = self.next_operand() if self.text == "," else None
        carried, types = self.carried() if self.text == "init" else ((), ())
        self.types_of[variable.name] = type_
        self.types_of.update((item[0].name, kind) for item, kind in zip(carried, types, strict=False))
        brace, notes = self.opened(first, "before the body of a loop")
        body = self.body(brace)
        attributes = self.loop_attributes()
        region = self.region(body)
        self.head = notes
        return For(variable, begin, end, region, step, type_, carried, types, attributes)

    def _loop_type(self) -> Scalar:
        """The type of a loop variable; index where none is written, whatever its bounds are."""
        return self.integer_type() if self.accept(":") else INDEX

    def carried(self) -> tuple[tuple[tuple[Value, Value], ...], tuple[Type, ...]]:
        """`'init' '(' (value '=' value),+ ')' '->' '(' type,+ ')'`."""
        self.next()
        self.expect("(", "after 'init'")
        pairs = tuple(self.separated(self.carried_value))
        self.expect(")", "after the carried values")
        self.expect("->", "before the types of the carried values")
        self.expect("(", "after '->'")
        types = tuple(self.separated(lambda: self.type("as the type of a carried value")))
        self.expect(")", "after the types")
        return pairs, types

    def carried_value(self) -> tuple[Value, Value]:
        """`value '=' value`."""
        name = self.local("a carried value", "after 'init ('")
        self.expect("=", "after a carried value")
        return name, self.operand()

    def loop_attributes(self) -> Dictionary | None:
        """The dictionary behind a loop."""
        if self.text == "attributes":
            self.note(syntax.NEWER_ATTRIBUTES, self.span(self.next()))
            return self.dictionary("after 'attributes'")
        return self.dictionary("here") if self.text == "{" else None

    def foreach_loop(self, word: str) -> Foreach:
        """`'foreach' range region`."""
        variables, type_, begins, ends = self._range()
        return Foreach(variables, begins, ends, self._loop_body(self.first), type_)

    def _range(self) -> tuple[tuple[Value, ...], Scalar, tuple[Value, ...], tuple[Value, ...]]:
        """`'(' value,+ ')' (':' type)? '=' '(' value,+ ')' ',' '(' value,+ ')'`."""
        variables = self.value_list("a loop variable")
        if len(variables) > self.limits.max_rank:
            raise self.exceed(self.first, "the number of loop variables", self.limits.max_rank, "max_rank")
        type_ = self._loop_type()
        self.expect("=", "after the loop variables")
        begins = self.value_list("a lower bound")
        self.expect(",", "between the bounds")
        ends = self.value_list("an upper bound")
        self.types_of.update((item.name, type_) for item in variables)
        return variables, type_, begins, ends

    def _loop_body(self, first: int) -> Region:
        """The region of an instruction that holds one."""
        brace, notes = self.opened(first, "before the body of a loop")
        region = self.region(self.body(brace))
        self.head = notes
        return region

    def foreach_tile(self, word: str) -> ForeachTile:
        """`'foreach_tile' range 'as' '(' value,+ ')' '<' '=' '(' integer,+ ')' region`."""
        first = self.first
        variables, type_, begins, ends = self._range()
        self.expect("as", "after the bounds")
        sizes = self.value_list("the size of a tile")
        self.expect("<", "after the sizes of a tile")
        self.expect("=", "after '<'")
        self.expect("(", "before the largest sizes")
        tile = tuple(self.separated(lambda: self.integer("the largest size of a tile", "in '(…)'")))
        self.expect(")", "after the largest sizes")
        self.types_of.update((item.name, type_) for item in sizes)
        return ForeachTile(variables, begins, ends, sizes, tile, self._loop_body(first), type_)

    def coop_apply(self, word: str) -> CoopApply:
        """`'cooperative_matrix_apply' '(' value ',' value ',' value ')' '=' value '->' coopmatrix region`."""
        first = self.first
        self.expect("(", "after 'cooperative_matrix_apply'")
        row, column, value = self.operands(3)
        self.expect(")", "after the row, the column and the value of a component")
        self.expect("=", "before the matrix")
        operand = self.operand()
        self.expect("->", "before the type of the result")
        type_ = self.coopmatrix("after '->'")
        self.types_of.update({row.name: I32, column.name: I32, value.name: Scalar(type_.element)})
        return CoopApply(row, column, value, operand, type_, self._loop_body(first))

    def value_list(self, what: str) -> tuple[Value, ...]:
        """`'(' value,+ ')'`."""
        self.expect("(", f"before {what}")
        values = self.locals(what, "in '(…)'")
        self.expect(")", f"after {what}")
        return values

    def branch(self, word: str) -> If:
        """`'if' value ('->' '(' type,* ')')? region ('else' region)?`."""
        first = self.first
        condition = self.operand()
        types = self.branch_types() if self.accept("->") else ()
        brace, notes = self.opened(first, "after the condition")
        body = self.body(brace)
        otherwise = None
        if self.accept("else"):
            brace = self.expect("{", "after 'else'")
            then = self.region(body)
            otherwise = self.region(self.body(brace))
        else:
            then = self.region(body)
        self.head = notes
        return If(condition, then, otherwise, types)

    def branch_types(self) -> tuple[Type, ...]:
        """`'(' type,* ')'`."""
        self.expect("(", "after '->'")
        found = [] if self.text == ")" else self.separated(lambda: self.type("as the type of a result"))
        self.expect(")", "after the types")
        return tuple(found)

    def parallel(self, word: str) -> Parallel:
        """`'parallel' region`."""
        brace, notes = self.opened(self.first, "after 'parallel'")
        region = self.region(self.body(brace))
        self.head = notes
        return Parallel(region)

    # --- after an error -------------------------------------------------------------------------------------

    def _pass_over(self, start: int) -> None:
        """Go on behind a statement that cannot be read: at a line that begins an instruction, or at '}' or 'func'.

        A region that is met on the way is read for what is wrong in it.
        """
        # Braces of dictionaries are not those of regions: they are counted before a '}' ends the region.
        opened, self.open_braces = self.open_braces, 0
        while self.kind != END and self.text != "func":
            if self.index > start and self.at_statement():
                return
            if self.text == "}":
                if opened == 0:
                    return
                opened -= 1
            elif self.text == "{":
                if not self.at_dictionary():
                    self.body(self.next())
                    continue
                opened += 1
            self.next()

    def _pass_inside(self) -> None:
        """Go on before the brace that closes the region that is being read."""
        opened = 0
        while self.kind != END and (opened > 0 or self.text != "}"):
            opened += (self.text == "{") - (self.text == "}")
            self.next()

    def at_statement(self) -> bool:
        """Whether a line begins here, and an instruction with it."""
        before, start = self.end_of(self.index - 1), self.starts[self.index]
        if self.source.text.find("\n", before, start) < 0:
            return False
        return self.text in INSTRUCTIONS or self._at_assignment() or self._at_misspelt()

    def _at_misspelt(self) -> bool:
        """Whether a word that the language does not have stands here; one that begins a line is an instruction's."""
        return self.kind == WORD and (self.text not in WORDS or self.written_word() in OTHER_NAMES)

    def _at_assignment(self) -> bool:
        if self.kind != LOCAL:
            return False
        distance = 1
        while distance < 7 and self.ahead(distance) == "," and self.ahead(distance + 1).startswith("%"):
            distance += 2
        return self.ahead(distance) == "="

    def at_dictionary(self) -> bool:
        """Whether the brace ahead opens a dictionary rather than a region."""
        word = self.ahead()
        is_key = word in KEYS or self.kinds[self.index + 1] == STRING
        return word == "}" or (is_key and self.ahead(2) == "=")


def _types(instruction: Instruction) -> tuple[Type, ...]:
    """The types of the values that an instruction produces."""
    if isinstance(instruction, (For, If)):
        return instruction.types
    if isinstance(instruction, Alloca):
        return (instruction.type,)
    type_: Type | None = getattr(instruction, "type", None)
    return () if type_ is None else (type_,)


def _counted(number: int) -> str:
    return f"{number or 'no'} value{'s' * (number != 1)}"


class ParsedTensor(NamedTuple):
    """A program and what was found wrong with its text; what could not be read is not in it."""

    program: Program
    findings: tuple[Diagnostic, ...]


def parse(source: Source, limits: Limits = DEFAULT) -> ParsedTensor:
    """The program of a text; never raises, whatever the text is."""
    with gc_paused():
        parser = TensorParser(source, limits)
        program = parser.program()
    return ParsedTensor(program, tuple(sort_findings(parser.findings)))
