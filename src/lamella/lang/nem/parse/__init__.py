"""Recursive-descent parser of NEM: text to nodes, with several errors per run and one finding for each mistake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from lamella.base.cursor import END, SHOWN, SyntaxProblem
from lamella.base.diagnostic import Diagnostic
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NO_TRIVIA, Source, Span, Trivia
from lamella.base.suggest import nearest
from lamella.lang.nem import rules
from lamella.lang.nem.nodes import (
    Attribute,
    Broken,
    Buffer,
    Const,
    Decorator,
    Device,
    DeviceRef,
    Document,
    Expr,
    Include,
    Let,
    Loop,
    Name,
    Operand,
    RegionDef,
    Statement,
    Task,
    Text,
    TypeFamily,
    Wait,
)
from lamella.lang.nem.parse.devices import read_device_block, read_type_family
from lamella.lang.nem.parse.tokens import NAME, STRING, NemCursor
from lamella.lang.nem.words import (
    FORMS,
    KEYWORDS,
    LEVELS,
    MOVES,
    NOTE_DECORATORS,
    RESERVED,
    STATEMENT_WORDS,
    TASK_DECORATORS,
)

BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


class DocumentStage(IntEnum):
    """How far a document has been read; its parts come in this order."""

    INCLUDES = 0
    DECLARATIONS = 1
    DIRECTIVE = 2
    HEADER = 3
    STATEMENTS = 4


PROPERTIES = ("size", "align", "import", "codec", "stored")
"""Of buffers; `codec` and `stored` are ours."""


@dataclass(slots=True)
class _BufferProperties:
    """The properties of one buffer, as they are found."""

    size: Expr | None = None
    align: Expr | None = None
    imported: bool = False
    codec: Name | None = None
    stored: Expr | None = None


@dataclass(frozen=True, slots=True)
class _LoopHeader:
    """The header of a loop; `broken` is the name that stands for its unreadable bounds."""

    variable: Name
    first: Expr
    last: Expr
    decorators: tuple[Decorator, ...]
    broken: Name | None = None


class NemParser(NemCursor):
    """The rules of the grammar from `document` to `hatch`, and error recovery.

    All parts of a document are read as one block of statements, so that what is wrong with one of them, or with the
    place where it stands, never keeps the others from being read.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self._stage = DocumentStage.INCLUDES
        self._includes: list[Include] = []
        self._declarations: list[TypeFamily | Device | Broken] = []
        self._device: DeviceRef | None = None
        self._name: Name | None = None
        self._name_notes = NO_TRIVIA
        self._has_statements = False
        self._count = 0
        self._aside: list[Broken] = []
        self._unclosed = False
        self._lost_loops = 0
        self._broken_count = 0
        self._indent = 0
        self._openers: dict[str, Callable[[], Statement | None]] = {
            "include": self.include,
            "type_family": lambda: self.declaration(read_type_family),
            "device": self.device,
            "program": self.header,
            "const": self.const,
            "let": self.let,
            "buffer": self.buffer,
            "loop": self.loop,
            "wait": self.wait,
            "endloop": self.stray_endloop,
        }

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
    def stage(self) -> DocumentStage:
        """What has been read so far; statements may have been added since it was set."""
        return DocumentStage.STATEMENTS if self._has_statements else self._stage

    def include(self) -> None:
        """`include := 'include' STRING`; a late one is reported and counts all the same."""
        first = self.next()
        path = self.string("after 'include'")
        if self.stage > DocumentStage.INCLUDES:
            self.report(rules.LATE_INCLUDE.at(self.span_from(first)))
        self._includes.append(Include(path, *self.finish(first)))

    def device(self) -> None:
        """`device_block` or `device_ref`: a block goes on with `{` or `extends`."""
        if self._at_block():
            self.declaration(read_device_block)
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

    def declaration(self, parse: Callable[[NemCursor], TypeFamily | Device]) -> None:
        """A type family or a device block; a late one is reported and counts all the same."""
        start, depth = self.index, self.depth_left
        late = self.stage > DocumentStage.DECLARATIONS
        try:
            found: TypeFamily | Device | Broken = parse(self)
        except SyntaxProblem:
            self.depth_left = depth
            found = self.broken(start)
        else:
            if late:
                what = "type families and device blocks"
                self._report_late(start, what, "before the device directive and the program")
        self._declarations.append(found)
        self._stage = max(self._stage, DocumentStage.DECLARATIONS)

    def _report_late(self, first: int, what: str, where: str) -> None:
        found = f"'{self.texts[first]}'"
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
        elif self.stage > DocumentStage.DIRECTIVE:
            self._report_late(first, "the device directive", "before the program")
        reference = DeviceRef(target, *self.finish(first))
        self._device = self._device or reference
        self._stage = max(self._stage, DocumentStage.DIRECTIVE)

    def header(self) -> None:
        """`'program' ID ':'`."""
        first = self.next()
        name = self.declare("the name of a program", "after 'program'")
        self.expect(":", "after the name of a program")
        if self.stage > DocumentStage.DIRECTIVE:
            self.report(rules.SECOND_PROGRAM.at(self.span_from(first), what="program"))
        notes = self.finish(first)[1]
        if self._name is None:
            self._name, self._name_notes = name, notes
        self._stage = DocumentStage.HEADER

    # --- blocks of statements ---------------------------------------------------------------------------------

    def block(self, in_loop: bool) -> list[Statement]:
        """`stmt*`; a statement that cannot be read becomes `Broken`, and the next one is looked for."""
        found: list[Statement] = []
        depth = self.depth_left
        # Outside of loops `endloop` is a statement of its own, which is reported.
        while self.kind != END and not (in_loop and self.text == "endloop"):
            if self.text == ";":
                self.next()
                continue
            start = self.begin()
            try:
                statement = self.statement()
            except SyntaxProblem:
                self.depth_left = depth
                statement = self.broken(start)
            if self._aside:
                found += self._aside
                self._aside.clear()
            if statement is not None:
                found.append(statement)
                self._count_one(statement)
        return found

    def statement(self) -> Statement | None:
        """One statement; None for what belongs to the document instead."""
        parse = self._openers.get(self.text)
        if parse is not None and not self.at_definition():
            return parse()
        return self.definition()

    def _count_one(self, statement: Statement) -> None:
        """Count a statement; beyond the limit nothing more is read."""
        self._has_statements = self._has_statements or not isinstance(statement, Broken)
        self._count += 1
        if self._count == self.limits.max_statements + 1:
            self._unclosed = True
            limit = self.limits.max_statements
            self.exceed(self.index - 1, "the number of statements", limit, "max_statements")
            # At the end of the file every open rule stops; that loops are not closed there is no second finding.
            self.move_to(self.end)

    # --- declarations ---------------------------------------------------------------------------------------

    def const(self) -> Const:
        """`const := 'const' ID '=' expr`."""
        first = self.next()
        name = self.declare("the name of a constant", "after 'const'")
        self.expect("=", "after the name of a constant")
        return Const(name, self.expression(), *self.finish(first))

    def let(self) -> Let | RegionDef:
        """`let := 'let' ID '=' ( region deco* | expr | STRING | list )`."""
        first = self.next()
        name = self.declare("a name", "after 'let'")
        self.expect("=", "after the name of a let")
        if self.text == "region":
            return RegionDef(name, self.region(), self.decorators(), True, *self.finish(first))
        return Let(name, self.value(), *self.finish(first))

    def definition(self) -> RegionDef | Task:
        """`(ID '=')? (region deco* | move | compute)`."""
        first = self.index
        if self.at_call() and self.text not in KEYWORDS:
            return self.task(first, None)
        if not self.at_definition():
            raise self.no_statement()
        name = self.declare("a name", "here")
        self.next()
        if self.text == "region":
            return RegionDef(name, self.region(), self.decorators(), False, *self.finish(first))
        return self.task(first, name)

    def buffer(self) -> Buffer:
        """`buffer := 'buffer' ID ':' LEVEL '(' prop (',' prop)* ')' deco*`."""
        first = self.next()
        name = self.declare("the name of a buffer", "after 'buffer'")
        self.expect(":", "after the name of a buffer")
        level, index = self.level()
        self.expect("(", "after the memory level")
        found = _BufferProperties()
        if self.text != ")":
            self.separated(lambda: self.buffer_property(name, found))
        self.expect(")", "after the properties of a buffer")
        if found.size is None:
            self.report(rules.BUFFER_PROPERTY.at(name.span, name=name.id, problem="has no size"))
        decorators = self.decorators()
        properties = (found.size, found.align, found.imported)
        packed = (found.codec, found.stored)
        return Buffer(name, level, index, *properties, decorators, *packed, *self.finish(first))

    def level(self) -> tuple[str, Expr | None]:
        """`'DDR' | 'L2' | 'L1' ('[' expr ']')?`."""
        if self.text not in LEVELS:
            raise self.problem("DDR, L2 or L1", "after ':'")
        level = self.text
        self.next()
        if level != "L1" or not self.accept("["):
            return level, None
        index = self.expression()
        self.expect("]", "after the index of an engine")
        return level, index

    def buffer_property(self, name: Name, found: _BufferProperties) -> None:
        """`prop := 'size' '=' expr | 'align' '=' expr | 'import' | 'codec' '=' ID | 'stored' '=' expr`."""
        word = self.text
        if word not in PROPERTIES:
            close = nearest(word, PROPERTIES)
            hint = f"did you mean {close[0]}?" if close else ""
            raise self.problem("size, align or import", "as a property of a buffer", hint)
        first = self.next()
        value: Expr | Name | bool = True
        field = "imported"
        if word != "import":
            self.expect("=", "after a property of a buffer")
            value = self.use("a codec", "after 'codec='") if word == "codec" else self.expression()
            field = word
        if getattr(found, field):
            problem = f"has two properties '{word}'"
            self.report(rules.BUFFER_PROPERTY.at(self.span(first), name=name.id, problem=problem))
        else:
            setattr(found, field, value)

    # --- control --------------------------------------------------------------------------------------------

    def wait(self) -> Wait:
        """`wait := 'wait' '(' ID,+ ')'`."""
        first = self.next()
        self.expect("(", "after 'wait'")
        if self.text == ")":
            last = self.next()
            raise self.report(rules.EMPTY_WAIT.at(self.span(first, last)))
        tokens = self.separated(self.token_name)
        self.expect(")", "after the tokens")
        return Wait(tuple(tokens), *self.finish(first))

    def stray_endloop(self) -> None:
        """An `endloop` without a loop; silent where the loop itself could not be read."""
        if not self._lost_loops:
            self.problem("a statement", "outside a loop")
        self._lost_loops = max(0, self._lost_loops - 1)
        self.next()

    def loop(self) -> Loop | Broken:
        """`loop := 'loop' ID 'in' '[' expr '..' expr ']' deco* ':' stmt* 'endloop'`."""
        first = self.next()
        if self.text in STATEMENT_WORDS and self.ahead() != "in":
            raise self.problem("the name of the loop variable", "after 'loop'")
        if self.depth_left == 0:
            return self.skipped_loop(first)
        header = self.loop_header(first)
        head, notes = self.finish(first)
        broken_count = self._broken_count
        self.depth_left -= 1
        body = self.block(in_loop=True)
        self.depth_left += 1
        end_notes = self.loop_end(header, head, self._broken_count > broken_count)
        if header.broken is not None:
            self._aside.append(Broken((header.broken,), head))
        span = self.span_from(first)
        return Loop(
            header.variable,
            header.first,
            header.last,
            header.decorators,
            tuple(body),
            span,
            notes,
            end_notes,
        )

    def loop_header(self, first: int) -> _LoopHeader:
        """`'loop' ID 'in' '[' expr '..' expr ']' deco* ':'`; the body is read also when this is broken."""
        depth = self.depth_left
        try:
            variable = self.declare("the name of the loop variable", "after 'loop'")
            self.expect("in", "after the loop variable")
            self.expect("[", "before the range of a loop")
            start = self.expression()
            self.expect("..", "between the ends of a range")
            last = self.expression()
            self.expect("]", "after the range of a loop")
            header = _LoopHeader(variable, start, last, self.decorators())
            self.expect(":", "after the header of a loop")
        except SyntaxProblem:
            self.depth_left = depth
            header = self._broken_header(first)
        return header

    def _broken_header(self, first: int) -> _LoopHeader:
        """A header whose bounds are a name that nobody can write and that counts as broken."""
        self.skip_to(lambda: self.text == ":" or self.at_statement())
        self.accept(":")
        unknown = Name(f"?{self.starts[first]}", self.span(first))
        variable = self.declared[0] if self.declared else unknown
        return _LoopHeader(variable, unknown, unknown, (), unknown)

    def loop_end(self, header: _LoopHeader, head: Span, is_doubtful: bool) -> Trivia:
        """`'endloop'`; that it is missing is said once for a file, and not where something else was unreadable."""
        end = self.index
        if self.accept("endloop"):
            self.pass_semicolons()
            return self.margin.close(self.starts[end], self.end_of(self.index - 1), self.starts[self.index])
        if header.broken is None and not is_doubtful and not self._unclosed:
            self._unclosed = True
            where = f"for the loop over '{header.variable.id[:SHOWN]}'"
            found = "the end of the file"
            self.report(rules.SYNTAX.at(head, wanted="'endloop'", where=where, found=found))
        return NO_TRIVIA

    def skipped_loop(self, first: int) -> Broken:
        """A loop that is nested too deeply: reported, and passed over whole."""
        self.too_deep("of loops")
        opened = 1
        while opened and self.kind != END:
            opened += (self.text == "loop") - (self.text == "endloop")
            self.next()
        self._unclosed = self._unclosed or opened > 0
        return self.passed_over(first, ())

    # --- tasks ----------------------------------------------------------------------------------------------

    def at_call(self, distance: int = 0) -> bool:
        """Whether `NAME '.' FORM` stands ahead."""
        texts, index = self.texts, self.index + distance
        return texts[index + 1] == "." and texts[index + 2] in FORMS and self.kinds[index] == NAME

    def at_definition(self) -> bool:
        """Whether `ID '='` stands ahead, followed by `region` or `NAME '.' FORM`: the beginning of a statement."""
        if self.kind != NAME or self.texts[self.index + 1] != "=":
            return False
        return self.texts[self.index + 2] == "region" or self.at_call(2)

    def task(self, first: int, token: Name | None) -> Task:
        """`(ID '=')? (move | compute)`, from the opcode on."""
        opcode = self.use("an opcode", "here")
        self.next()
        form = self.text
        self.next()
        if opcode.id in MOVES:
            return self.move(first, token, opcode, form)
        return self.compute(first, token, opcode, form)

    # --- moves ----------------------------------------------------------------------------------------------

    def move(self, first: int, token: Name | None, opcode: Name, form: str) -> Task:
        """`('transfer' | 'store') '.' FORM '(' (('dst' | 'src') '=' operand | deps),+ ')' deco*`."""
        ends: dict[str, Operand] = {}
        deps: tuple[Name, ...] | None = None
        self.expect("(", "after a transfer or store")
        while True:
            if self.text == "deps":
                deps = self.dependencies(deps)
            else:
                self.move_end(opcode, ends)
            if not self.accept(","):
                break
        self.expect(")", "after the operands")
        decorators = self.decorators()
        missing = [word for word in ("dst", "src") if word not in ends]
        if missing:
            problem = f"has no {' and no '.join(missing)}"
            raise self.report(rules.MOVE_OPERANDS.at(opcode.span, opcode=opcode.id, problem=problem))
        places = ((ends["src"],), (ends["dst"],))
        return Task(token, opcode, form, *places, (), deps or (), decorators, *self.finish(first))

    def move_end(self, opcode: Name, ends: dict[str, Operand]) -> None:
        """`('dst' | 'src') '=' operand`."""
        word = self.text
        if word not in ("dst", "src"):
            raise self.problem("dst, src or deps", "in a transfer or store")
        first = self.next()
        self.expect("=", "after dst or src")
        operand = self.operand()
        if word in ends:
            problem = f"has two {word}"
            self.report(rules.MOVE_OPERANDS.at(self.span(first), opcode=opcode.id, problem=problem))
        else:
            ends[word] = operand

    def dependencies(self, given: tuple[Name, ...] | None) -> tuple[Name, ...]:
        """`'deps' '=' '[' ID,* ']'`."""
        word = self.next()
        self.expect("=", "after 'deps'")
        self.expect("[", "after 'deps ='")
        found = [] if self.text == "]" else self.separated(self.token_name)
        self.expect("]", "after the tokens")
        if given is not None:
            self.report(rules.DUPLICATE_ATTRIBUTE.at(self.span(word), name="deps"))
            return given
        return tuple(found)

    def token_name(self) -> Name:
        """The name of a token."""
        return self.use("the name of a token", "here")

    def _no_move(self, opcode: Name) -> SyntaxProblem:
        """Brackets behind an opcode that moves nothing: a misspelt move, or a task that is written another way."""
        close = nearest(opcode.id, MOVES)
        hint = f"did you mean {close[0]}?" if close else ""
        return self.problem("'in'", f"after '{opcode.id[:SHOWN]}.{self.texts[self.index - 1]}'", hint)

    # --- compute --------------------------------------------------------------------------------------------

    def compute(self, first: int, token: Name | None, opcode: Name, form: str) -> Task:
        """`OPCODE '.' FORM hatch? 'in' operand,+ 'out' operand,+ attr* deco*`."""
        attributes = self.hatch() if self.text == "(" and opcode.id == "compute" else []
        if self.text == "(" and not attributes:
            raise self._no_move(opcode)
        self.expect("in", "before the inputs of a task")
        inputs = self.separated(self.operand)
        self.expect("out", "before the outputs of a task")
        outputs = self.separated(self.operand)
        # @debug and @profile behind the last operand are the task's only where no attribute follows.
        before = self.index
        deps = self.attributes(attributes)
        last, moved = _divide(outputs[-1], ends_task=self.index == before)
        outputs[-1] = last
        return Task(
            token,
            opcode,
            form,
            tuple(inputs),
            tuple(outputs),
            tuple(attributes),
            deps,
            moved + self.decorators(),
            *self.finish(first),
        )

    def attributes(self, found: list[Attribute]) -> tuple[Name, ...]:
        """`attr*`, `attr := 'deps' '=' '[' ID,* ']' | ID '=' value`; the list ends before a definition."""
        deps: tuple[Name, ...] | None = None
        while True:
            if self.text == "deps":
                deps = self.dependencies(deps)
            elif self.at_attribute():
                found.append(self.attribute())
            elif self.at_misspelt_attribute():
                self.next()
                raise self.problem("'='", "after the name of an attribute")
            else:
                return deps or ()

    def at_attribute(self) -> bool:
        """Whether an attribute stands ahead, rather than the next statement."""
        if self.kind != NAME or (self.text in KEYWORDS and self.text != "strides"):
            return False
        return self.texts[self.index + 1] == "=" and not self.at_definition()

    def at_misspelt_attribute(self) -> bool:
        """Whether a name stands ahead, on the same line, that begins neither an attribute nor a statement."""
        if self.kind != NAME or self.text in KEYWORDS or self.at_definition() or self.at_call():
            return False
        return self.source.text.find("\n", self.end_of(self.index - 1), self.starts[self.index]) < 0

    def hatch(self) -> list[Attribute]:
        """`'(' 'op' '=' STRING (',' 'attrs' '=' '{' (ID ('='|':') value),* '}')? ')'`, as attributes."""
        self.next()
        word = self.expect("op", "in compute(…)")
        self.expect("=", "after 'op'")
        text = self.string("as the name of the operation")
        found = [Attribute(Name("op", self.span(word)), text, self.span_from(word))]
        if self.accept(","):
            self.expect("attrs", "after the name of the operation")
            self.expect("=", "after 'attrs'")
            self.expect("{", "after 'attrs ='")
            found += [] if self.text == "}" else self.separated(self.hatch_attribute)
            self.expect("}", "after the attributes")
        self.expect(")", "after compute(…")
        return found

    def hatch_attribute(self) -> Attribute:
        """`ID ('='|':') value`."""
        first = self.index
        name = self.attribute_name()
        if self.text not in ("=", ":"):
            raise self.problem("'=' or ':'", "after the name of an attribute")
        self.next()
        return Attribute(name, self.value(), self.span_from(first))

    # --- error recovery; one mistake makes one finding ------------------------------------------------------

    def begin(self) -> int:
        """Begin a statement; where it begins a line, its indent separates later lines from its continuation."""
        self.declared.clear()
        self.begun = self.index
        indent = self._indent_ahead()
        if indent is not None and self.at_statement():
            self._indent = indent
        return self.index

    def _indent_ahead(self) -> int | None:
        """The indent of the token ahead, or None if it is not the first of its line."""
        index = self.index
        if index == 0:
            return self.starts[0]
        newline = self.source.text.rfind("\n", self.end_of(index - 1), self.starts[index])
        return None if newline < 0 else self.starts[index] - newline - 1

    def broken(self, start: int) -> Broken:
        """What stands in for an unreadable statement: the names it would have declared, up to the next statement."""
        if self.index == start:
            self.next()
        taken = self.texts[start : self.index]
        is_block = "{" in self.texts[start : start + 4] or taken[0] in ("device", "type_family")
        is_task = any(mark == "." and form in FORMS for mark, form in pairwise(taken))
        names = {name.id: name for name in self.declared}
        opened = sum(BRACKETS.get(text, 0) for text in taken)
        while self.index < self.end and self.text not in STATEMENT_WORDS:
            if not is_block and self._at_next_statement(opened <= 0, is_task):
                break
            if opened <= 0 and not is_task and self._looks_defined():
                names.setdefault(self.text, Name(self.text, self.span(self.index)))
            opened += BRACKETS.get(self.text, 0)
            self.next()
        # A range in an unreadable statement was the head of a loop: its `endloop` will have no loop.
        self._lost_loops += ".." in self.texts[start : self.index]
        self._broken_count += 1
        return self.passed_over(start, tuple(names.values()))

    def _looks_defined(self) -> bool:
        return self.kind == NAME and self.ahead() == "=" and self.text not in KEYWORDS

    def _at_next_statement(self, is_outside: bool, is_task: bool) -> bool:
        """Whether the layout says that another statement begins here; its own words say so by themselves.

        That takes a name at the beginning of a line. A definition or a task is enough outside brackets; within them, as
        their end may be missing, only when it is not indented. Any other name is enough when neither brackets are open
        nor a task is broken, whose attributes look like definitions, unless it stands further left than the statement.
        """
        if self.kind != NAME or self.text in RESERVED:
            return is_outside and self.text == ";"
        indent = self._indent_ahead()
        if indent is None:
            return False
        is_sure, is_aligned = self.at_definition() or self.at_call(), indent <= self._indent
        is_left = is_aligned and (not is_task or indent < self._indent)
        return (is_sure and (is_outside or is_aligned)) or (is_outside and is_left)

    def at_statement(self) -> bool:
        """Whether a statement surely begins here."""
        if self.text in STATEMENT_WORDS or self.text == ";":
            return True
        return self.at_definition() or self.at_call()

    def passed_over(self, start: int, names: tuple[Name, ...]) -> Broken:
        """What stands in for the tokens from `start` to here."""
        span = self.span_from(start)
        return Broken(names, span, self.margin.skip(span.start, span.end, self.starts[self.index]))

    def no_statement(self) -> SyntaxProblem:
        """Say what is missing where no statement begins."""
        if self.kind != NAME or self.text in KEYWORDS:
            return self.problem("a statement", "here")
        name = self.name()
        if self.text == ".":
            return self._no_form(name)
        self.declared.append(name)
        if not self.accept("="):
            return self._no_keyword(name)
        if self.kind == NAME and self.ahead() == ".":
            return self._no_form(self.name())
        hint = "a constant begins with const, another value with let"
        if self.ahead() == "in":
            hint = f"a task is written {self.text[:SHOWN]}.async or {self.text[:SHOWN]}.sync"
        return self.problem("a region or a task", f"after '{name.id[:SHOWN]} ='", hint)

    def _no_keyword(self, name: Name) -> SyntaxProblem:
        """A word begins no statement; where another follows it, that one was to be declared."""
        close = nearest(name.id, STATEMENT_WORDS)
        if close and (self.kind == END or self._indent_ahead() is not None):
            found, hint = f"'{name.id[:SHOWN]}'", f"did you mean {close[0]}?"
            place = {"wanted": "a statement", "where": "here", "found": found}
            return self.report(rules.SYNTAX.at(name.span, hint=hint, labels=(), **place))
        problem = self.problem(
            "'=', '.async' or '.sync'",
            f"after '{name.id[:SHOWN]}'",
            f"did you mean {close[0]}?" if close else "",
        )
        if self.kind == NAME and self.text not in KEYWORDS and self.ahead() != ".":
            self.declared.append(self.name())
        return problem

    def _no_form(self, opcode: Name) -> SyntaxProblem:
        self.next()
        return self.problem("async or sync", f"after '{opcode.id[:SHOWN]}.'")


def _divide(last: Operand, ends_task: bool) -> tuple[Operand, tuple[Decorator, ...]]:
    """The last operand without the decorators that belong to its task, and these decorators.

    `@resource`, `@deterministic`, `@memmove` and `@seq_engine` always belong to the task; `@debug` and `@profile` do
    when no attribute follows them, for then they end the statement; all others stay on the operand.
    """
    if not last.decorators:
        return last, ()
    kinds = TASK_DECORATORS | NOTE_DECORATORS if ends_task else TASK_DECORATORS
    moved = tuple(item for item in last.decorators if item.name in kinds)
    kept = tuple(item for item in last.decorators if item.name not in kinds)
    return Operand(last.value, kept, last.span), moved


class ParsedNem(NamedTuple):
    """A document and what was found wrong with its text; what could not be read is `Broken` in it."""

    document: Document
    findings: tuple[Diagnostic, ...]


def parse(source: Source, limits: Limits = DEFAULT) -> ParsedNem:
    """The document of a text; never raises, whatever the text is."""
    with gc_paused():
        parser = NemParser(source, limits)
        document = parser.document()
    return ParsedNem(document, tuple(parser.findings))
