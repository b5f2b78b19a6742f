"""The parser of the assembly text: one class, one method per grammar rule, several errors per run."""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from lamella.base.cursor import COMMENT, END, SHOWN, Lexer, SyntaxProblem
from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, LARGEST, SMALLEST, Limits, hint_for
from lamella.base.source import Source, Span
from lamella.base.suggest import nearest
from lamella.base.trivia import TriviaCursor
from lamella.lang.nac.assembly import words
from lamella.lang.nac.assembly.nodes import (
    Argument,
    Assembly,
    AssemblyRow,
    AssemblySection,
    Blob,
    Bytes,
    Encoding,
    Field,
    FileSlice,
    Id,
    InlineBytes,
    InlineConstant,
    Label,
    Line,
    MemoryOrder,
    Moment,
    OperationCall,
    ProgramStep,
    Raw,
    RowItem,
    Scaled,
    StepOperand,
    System,
    WeightRow,
    Zeros,
)
from lamella.lang.nac.assembly.programs import MANIFEST_NAMES, PLAN_WORDS
from lamella.lang.nac.assembly.words import ACTIONS, RAW, SYSTEM, read_string, single
from lamella.lang.nac.nodes import (
    Constant,
    ConstantType,
    ConstantValue,
    Input,
    Operation,
    Parameter,
    Signature,
)
from lamella.lang.nac.rules import assembly as rules

T = TypeVar("T")
LABEL, SECTION, WORD, SIGN = "label", "section", "word", "sign"
INT, FLOAT, STRING, ODD, OPEN = "int", "float", "string", "odd", "open"
NAMES = (WORD, STRING)

DECIMAL = r"(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+\-]?[0-9]++)?+|[0-9]++[eE][+\-]?[0-9]++"
LEXER = Lexer(
    {
        LABEL: r"%[0-9A-Za-z_]++",
        INT: r"-?[0-9]++(?![0-9A-Za-z_.])",
        FLOAT: rf"-?(?:{DECIMAL}|inf|nan)(?![0-9A-Za-z_.])",
        WORD: r"[A-Za-z_][0-9A-Za-z_]*+(?:\.[0-9A-Za-z_]++)*+",
        SIGN: r"[=,()\[\]:@#]",
        STRING: r'"(?:[^"\\\x00-\x1f\ud800-\udfff]++|\\["\\nrt]|\\u\{[0-9A-Fa-f]{1,6}\})*+"',
        SECTION: r"\.[A-Za-z_][0-9A-Za-z_]*+",
        ODD: r"[+\-]?\.?[0-9](?:[eE][+\-][0-9]|[0-9A-Za-z_.])*+",
        OPEN: r'"[^\r\n]*+',
        COMMENT: r";[^\n]*+",
    }
)
DIGITS = 20
MOST_SUGGESTIONS = 50
"""Finding a word that is close takes long, and nobody reads more suggestions than that."""
NUMBERED = ("state", "saved", "target")
_ENCODINGS: Mapping[str, Encoding] = MappingProxyType({"hex": "hex", "base64": "base64", "text": "text"})
DATA = (words.ZEROS, *_ENCODINGS, words.FILE)
_REPAIRS = MappingProxyType(
    {"hex": "two digits stand for each byte", "base64": "four characters stand for three bytes", "text": ""}
)


class AssemblyParser(TriviaCursor):
    """Recursive descent over the grammar of the assembly text; a row with a syntax error is left out."""

    def __init__(self, source: Source, limits: Limits) -> None:
        # A NUL ends the text: what stands behind it is counted in the finding, not read.
        nul = source.text.find("\0")
        tokens = LEXER.cut(source, 0, None if nul < 0 else nul)
        super().__init__(source, tokens, rules.SYNTAX, rules.BAD_CHARACTER)
        self._most = limits.max_statements
        self._count = 0
        self._suggested = 0
        if nul >= 0:
            rest = len(source.text) - nul - 1
            self.report(rules.NUL.at(Span(source, nul, nul + 1), count=rest))

    def assembly(self) -> Assembly:
        """`NAC VERSION field* section*`."""
        fields = self._fields()
        sections: list[AssemblySection] = []
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

    def _section(self) -> list[AssemblySection]:
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
        rows: list[AssemblyRow] = []
        if name in (words.MANIFEST, words.ORCHESTRATOR):
            self._program(name, rows)
        else:
            self._rows(self._reader(name), rows)
        return [AssemblySection(name, tuple(rows), span, notes)]

    def _reader(self, name: str) -> Callable[[], RowItem]:
        """How a row of a section is read."""
        readers: dict[str, Callable[[], RowItem]] = {
            words.CODE: self.line,
            words.TRAINING: self.line,
            words.CONSTANTS: self.constant_row,
            words.SCHEDULE: self.moment,
            words.TENSORS: self.tensor,
            words.ARRAYS: self.array,
            words.RESOURCES: self.resource,
        }
        return readers.get(name, lambda: self.named(name))

    def _rows(self, read: Callable[[], RowItem], rows: list[AssemblyRow]) -> None:
        while self.kind not in (END, SECTION):
            self._row(read, rows)

    def _program(self, name: str, rows: list[AssemblyRow]) -> None:
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

    def _row(self, read: Callable[[], RowItem], found: list[AssemblyRow]) -> None:
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
        found.append(AssemblyRow(item, notes))

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

    def named(self, section: str) -> RowItem:
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

    # --- instructions ---------------------------------------------------------------------------------------

    def line(self) -> Line:
        """`LABEL '=' body command*`."""
        first = self.index
        label = self.label("here")
        self.expect("=", "after a label")
        body = self.body()
        orders = self.orders()
        return Line(label, body, orders, self.span_from(first))

    def body(self) -> System | OperationCall | Raw:
        """What an instruction does."""
        if self.kind == WORD and self.text in SYSTEM:
            return self.system(self.texts[self.next()])
        if self.kind == WORD and self.text == RAW:
            self.next()
            return self.raw()
        return self.call()

    # --- system operations ----------------------------------------------------------------------------------

    def system(self, word: str) -> System:
        """An instruction without signature, behind its word."""
        self.expect("(", f"after '{word}'")
        found = self._inside(word)
        self.expect(")", f"after the operands of '{word}'")
        return found

    def _inside(self, word: str) -> System:
        if word == "input":
            return System(word)
        if word == "parameter":
            return System(word, (self.parameter(),))
        if word in NUMBERED:
            return System(word, (self.integer("an id", f"in '{word}(…)'"),))
        if word == "constant":
            return System(word, (self.constant("in 'constant(…)'"),))
        if word == "update":
            return System(word, (self.parameter(),), self._more_labels())
        if word == "branch":
            return self._branch()
        if word == "converge":
            return self._converge()
        return System(word, (), self._labels(word))

    def parameter(self) -> int | str:
        """A parameter by its id or by its name."""
        if self.kind == INT:
            return self.integer("an id", "here")
        return self.name("the id or the name of a parameter", "in '(…)'")

    def constant(self, where: str) -> InlineConstant | Id:
        """A constant by its value or by its id."""
        return self.id(where) if self.text == "#" else self.value(where)

    def _labels(self, word: str) -> tuple[Label, ...]:
        if self.text == ")":
            return ()
        return tuple(self.separated(lambda: self.label(f"in '{word}(…)'")))

    def _more_labels(self) -> tuple[Label, ...]:
        found: list[Label] = []
        while self.accept(","):
            found.append(self.label("in 'update(…)'"))
        return tuple(found)

    def _branch(self) -> System:
        label = self.label("in 'branch(…)'")
        self.expect(",", "in 'branch(…)'")
        yes = self.integer("the length of the first branch", "in 'branch(…)'")
        self.expect(",", "in 'branch(…)'")
        return System("branch", (yes, self.integer("the length of the second", "in 'branch(…)'")), (label,))

    def _converge(self) -> System:
        label = self.label("in 'converge(…)'")
        self.expect(",", "in 'converge(…)'")
        found = [self.integer("the threshold in percent", "in 'converge(…)'")]
        while self.accept(","):
            found.append(self.integer("the length of a block", "in 'converge(…)'"))
        return System("converge", tuple(found), (label,))

    # --- regular operations ---------------------------------------------------------------------------------

    def raw(self) -> Raw:
        """`'(' INT ',' INT ',' ints ',' ints ')'`."""
        self.expect("(", "after 'raw'")
        operation = self.integer("field A", "in 'raw(…)'")
        self.expect(",", "after field A")
        variant = self.integer("field B", "in 'raw(…)'")
        self.expect(",", "after field B")
        constants = self.integers("before field C")
        self.expect(",", "after field C")
        offsets = self.integers("before field D")
        self.expect(")", "after field D")
        return Raw(operation, variant, constants, offsets)

    def call(self) -> OperationCall:
        """`(operation | id) (':' name)? '(' argument,* ')'`."""
        operation = self._operation()
        signature = self.name("a signature", "after ':'") if self.accept(":") else None
        self.expect("(", "after an operation")
        arguments = [] if self.text == ")" else self.separated(self.argument)
        self.expect(")", "after arguments")
        return OperationCall(operation, signature, tuple(arguments))

    def _operation(self) -> str | Id:
        if self.text == "#":
            return self.id("here")
        if self.kind not in NAMES:
            raise self.problem("an operation", "after '='")
        return self.name("an operation", "after '='")

    def argument(self) -> Argument:
        """`LABEL | value | id`."""
        return self.label("here") if self.kind == LABEL else self.constant("among arguments")

    # --- memory commands ------------------------------------------------------------------------------------

    def orders(self) -> tuple[MemoryOrder, ...]:
        """`command*`."""
        found: list[MemoryOrder] = []
        while self.text == "@":
            found.append(self.order())
        return tuple(found)

    def order(self) -> MemoryOrder:
        """`'@' (ACTION | INT) '(' target (',' target)* ')'`."""
        first = self.next()
        action = self._action()
        self.expect("(", "after an action")
        targets = self.separated(self.target)
        self.expect(")", "after the targets of an action")
        return MemoryOrder(action, tuple(targets), self.span_from(first))

    def _action(self) -> int:
        if self.kind == INT:
            return self.integer("an action", "after '@'")
        return ACTIONS[self.choose("action", ACTIONS, "after '@'")]

    def target(self) -> Label | int:
        """An instruction by its label or by its index."""
        if self.kind == LABEL:
            return self.label("here")
        return self.integer("a label or an index", "in '@…(…)'")

    def key(self, what: str) -> int:
        """`INT '='`, which begins a row."""
        number = self.size(what, "at the beginning of a row")
        self.expect("=", f"after {what}")
        return number

    # --- data -----------------------------------------------------------------------------------------------

    def tensor(self) -> WeightRow:
        """`INT '=' type shape quantization? data`."""
        first = self.index
        return self._weights(first, self.key("an id"), quantized=True)

    def array(self) -> WeightRow:
        """`name '=' type shape data`."""
        first = self.index
        return self._weights(first, self._name_before("an array"), quantized=False)

    def _name_before(self, what: str) -> str:
        name = self.name(f"the name of {what}", "at the beginning of a row")
        self.expect("=", "after a name")
        return name

    def _weights(self, first: int, key: int | str, quantized: bool) -> WeightRow:
        dtype = self.id("here").number if self.text == "#" else self._dtype()
        shape = self._shape("before a shape")
        scaled = self.scaled() if quantized and self.text in words.METHODS and self.text != "none" else None
        return WeightRow(key, dtype, shape, scaled, self.data(), self.span_from(first))

    def _shape(self, where: str) -> tuple[int, ...]:
        return self.listed(lambda: self.size("a dimension", "in a shape"), where)

    def _dtype(self) -> int:
        return words.DTYPES.index(self.choose("element type", words.DTYPES, "after '='"))

    def scaled(self) -> Scaled:
        """`fp16`, or a method with its numbers in parentheses."""
        method = self.texts[self.next()]
        if method == "fp16":
            return Scaled(method)
        self.expect("(", f"after '{method}'")
        found = self._scaled(method)
        self.expect(")", f"after the scales of '{method}'")
        return found

    def _scaled(self, method: str) -> Scaled:
        if method == "int8_tensor":
            return Scaled(method, (self.single("in 'int8_tensor(…)'"),))
        size = self.integer("an axis or a block size", f"in '{method}(…)'")
        self.expect(",", f"in '{method}(…)'")
        shape: tuple[int, ...] = ()
        if method == "block_fp8":
            shape = self._shape("before the original shape")
            self.expect(",", "after the original shape")
        return Scaled(method, self._scales(), size, shape)

    def _scales(self) -> tuple[float, ...] | Bytes:
        return self.singles("before the scales") if self.text == "[" else self.data()

    def resource(self) -> Blob:
        """`name '=' data`."""
        first = self.index
        name = self._name_before("a resource")
        return Blob(name, self.data(), self.span_from(first))

    def nameless(self) -> Blob:
        """`data` alone."""
        first = self.index
        return Blob(None, self.data(), self.span_from(first))

    def data(self) -> Bytes:
        """Bytes in one of their forms."""
        first = self.index
        word = self.choose("form of data", DATA, "here")
        self.expect("(", f"after '{word}'")
        found = self._data(word, first)
        self.expect(")", f"after what '{word}' takes")
        return found

    def _data(self, word: str, first: int) -> Bytes:
        if word == words.ZEROS:
            size = self.size("a number of bytes", "in 'zeros(…)'")
            return Zeros(size, self.span_from(first))
        if word == words.FILE:
            return self._slice(first)
        pieces = self.separated(lambda: self.string("a string", f"in '{word}(…)'"))
        span = self.span_from(first)
        try:
            return InlineBytes(_ENCODINGS[word], _decode(word, "".join(pieces)), span)
        except ValueError:
            raise self.report(rules.BAD_DATA.at(span, encoding=word, repair=_REPAIRS[word])) from None

    def _slice(self, first: int) -> FileSlice:
        name = self.string("the name of a file", "in 'file(…)'")
        self.expect(",", "after the name of a file")
        offset = self.size("an offset", "in 'file(…)'")
        self.expect(",", "after the offset")
        size = self.size("a number of bytes", "in 'file(…)'")
        return FileSlice(name, offset, size, self.span_from(first))

    # --- manifest and plan ----------------------------------------------------------------------------------

    def step(self, names: Collection[str]) -> ProgramStep:
        """`WORD '(' operand,* ')'`."""
        first = self.index
        name = self.choose("instruction", names, "here")
        self.expect("(", f"after '{name}'")
        operands = [] if self.text == ")" else self.separated(self._operand)
        self.expect(")", f"after the operands of '{name}'")
        return ProgramStep(name, tuple(operands), self.span_from(first))

    def _operand(self) -> StepOperand:
        return self.listed(self._atom, "here") if self.text == "[" else self._atom()

    def _atom(self) -> int | str:
        if self.kind == STRING:
            return self.string("a string", "here")
        return self.integer("a number, a string or a list", "among operands")

    # --- what is wrong --------------------------------------------------------------------------------------

    def problem(self, wanted: str, where: str, hint: str = "") -> SyntaxProblem:
        """Record what is wrong at the token ahead: what is no token at all is more wrong than a misplaced one."""
        span, text = self.span(self.index), self.text[:SHOWN]
        if self.kind == ODD:
            return self.report(rules.NUMBER_FORM.at(span, text=text))
        if self.kind == OPEN:
            return self.report(rules.OPEN_STRING.at(span, text=text))
        return super().problem(wanted, where, hint)

    def unknown(self, token: int, what: str, words: Collection[str]) -> SyntaxProblem:
        """Report a word that is none of those that may stand here."""
        text = self.texts[token][:SHOWN]
        self._suggested += 1
        close = nearest(text, words) if self._suggested <= MOST_SUGGESTIONS else []
        repair = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(words)}"
        return self.report(rules.UNKNOWN_WORD.at(self.span(token), what=what, text=text, repair=repair))

    def _out_of_range(self, repair: str) -> SyntaxProblem:
        text = self.text
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
        return self.report(rules.OUT_OF_RANGE.at(self.span(self.index), text=shown, repair=repair))

    # --- words ----------------------------------------------------------------------------------------------

    def choose(self, what: str, words: Collection[str], where: str) -> str:
        """One of some words."""
        token = self.expect_kind(WORD, f"a {what}", where)
        if self.texts[token] not in words:
            raise self.unknown(token, what, words)
        return self.texts[token]

    def name(self, what: str, where: str) -> str:
        """A name, in quotes or without."""
        if self.kind == WORD:
            return self.texts[self.next()]
        return self.string(what, where)

    def string(self, what: str, where: str) -> str:
        """A string in quotes."""
        if self.kind != STRING:
            raise self.problem(what, where)
        found = read_string(self.text)
        if found is None:
            raise self.report(rules.OPEN_STRING.at(self.span(self.index), text=self.text[:SHOWN]))
        self.next()
        return found

    def label(self, where: str) -> Label:
        """`%name` or `%12`."""
        token = self.expect_kind(LABEL, "a label", where)
        return Label(self.texts[token][1:], self.span(token))

    def id(self, where: str) -> Id:
        """`'#' INT`."""
        first = self.expect("#", where)
        number = self.integer("an id", "after '#'")
        return Id(number, self.span_from(first))

    # --- numbers --------------------------------------------------------------------------------------------

    def integer(self, what: str, where: str) -> int:
        """A 64-bit integer."""
        text = self.text
        if self.kind != INT:
            raise self.problem(what, where)
        digits = text.lstrip("-0") or "0"
        value = 0 if len(digits) > DIGITS else int(digits) * (-1 if text[0] == "-" else 1)
        if len(digits) > DIGITS or not SMALLEST <= value <= LARGEST:
            raise self._out_of_range(f"integers reach from {SMALLEST} to {LARGEST}")
        self.next()
        return value

    def size(self, what: str, where: str) -> int:
        """An integer that is not negative."""
        if self.kind == INT and self.text[0] == "-":
            raise self._out_of_range("sizes and offsets are not negative")
        return self.integer(what, where)

    def real(self, where: str) -> float:
        """A double-precision number; every NaN is the same."""
        if self.kind != FLOAT:
            raise self.problem("a floating-point number", where)
        text = self.text
        value = float(text)
        if math.isinf(value) and not text.endswith("inf"):
            raise self._out_of_range("write inf where it is meant")
        self.next()
        return math.nan if math.isnan(value) else value

    def single(self, where: str) -> float:
        """A single-precision number."""
        found = single(float(self.text)) if self.kind == FLOAT else 0.0
        if found is None:
            raise self._out_of_range("numbers in lists and scales are of single precision")
        self.real(where)
        return found

    def listed(self, item: Callable[[], T], where: str) -> tuple[T, ...]:
        """`'[' (item (',' item)*)? ']'`."""
        self.expect("[", where)
        found = [] if self.text == "]" else self.separated(item)
        self.expect("]", "after a list")
        return tuple(found)

    def integers(self, where: str) -> tuple[int, ...]:
        """A list of integers."""
        return self.listed(lambda: self.integer("an integer", "in a list"), where)

    def singles(self, where: str) -> tuple[float, ...]:
        """A list of single-precision numbers."""
        return self.listed(lambda: self.single("in a list"), where)

    # --- constants ------------------------------------------------------------------------------------------

    def value(self, where: str) -> InlineConstant:
        """`null`, a truth value, a number, a string or a list of numbers of one kind."""
        first = self.index
        type_, found = self._value(where)
        return InlineConstant(type_, found, self.span_from(first))

    def _value(self, where: str) -> tuple[ConstantType, ConstantValue]:
        if self.kind == INT:
            return ConstantType.INT64, self.integer("an integer", where)
        if self.kind == FLOAT:
            return ConstantType.FLOAT64, self.real(where)
        if self.kind == STRING:
            return ConstantType.STRING, self.string("a string", where)
        if self.text == "[" and self.kinds[self.index + 1] == FLOAT:
            return ConstantType.FLOAT32_LIST, self.singles(where)
        if self.text == "[":
            return ConstantType.INT32_LIST, self.integers(where)
        if self.text == "null":
            self.next()
            return ConstantType.NULL, None
        if self.text in ("true", "false"):
            return ConstantType.BOOL, self.texts[self.next()] == "true"
        if self.text == "floats":
            self.next()
            self.expect("[", "after 'floats'")
            self.expect("]", "after 'floats['")
            return ConstantType.FLOAT32_LIST, ()
        raise self.problem("a constant", where)


def _decode(encoding: str, text: str) -> bytes:
    """The bytes of a text; a ValueError where it is not in the encoding."""
    if encoding == words.TEXT:
        return text.encode("utf-8")
    if encoding == words.HEX:
        return bytes.fromhex(text)
    return binascii.a2b_base64(text.encode("ascii"), strict_mode=True) if text else b""


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
