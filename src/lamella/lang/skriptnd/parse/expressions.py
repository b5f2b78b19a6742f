"""Expressions and types of SkriptND."""

from __future__ import annotations

import re

from lamella.base.cursor import END, SHOWN, SyntaxProblem
from lamella.base.source import Span
from lamella.base.suggest import nearest
from lamella.lang.skriptnd.nodes import (
    Access,
    Bool,
    Bound,
    Bounded,
    Call,
    Cast,
    Chain,
    Coalesce,
    Constant,
    Dtype,
    Expand,
    Expr,
    Extent,
    Fold,
    Format,
    Index,
    Item,
    List,
    ListPattern,
    Member,
    Name,
    NullTest,
    Omitted,
    Pack,
    Parameter,
    Pattern,
    Range,
    Result,
    Select,
    Substitute,
    Text,
    TypeSpec,
    Unary,
    Unzip,
    Zip,
)
from lamella.lang.skriptnd.parse.tokens import BUILT_IN, INT, LEXER, NAME, REAL, STRING, SkriptndTokens
from lamella.lang.skriptnd.rules import syntax
from lamella.lang.skriptnd.words import (
    BUILT_INS,
    CONCRETE_TYPES,
    CUMULATIVE,
    FOLDS,
    KEYWORDS,
    LEVELS,
    MEMBERS,
    NEWER,
    POWER,
)

BRACE = re.compile(r"\\[{}]|[{}]")
PLAIN = re.compile(r"[A-Za-z_][0-9A-Za-z_]{0,99}")
ESCAPED = "a brace that is meant is written \\{ or \\}"
NESTING = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
BEHIND_A_RANGE = frozenset(("]", ",", ":"))
SIGNS = {**LEVELS, "<?": LEVELS["<<"], ">?": LEVELS[">>"]}
UNARY = frozenset(("-", "+", "!"))
DOTS = frozenset(("..", "..."))
CONTROLS = ("static", "dynamic")


class _OpenChain:
    """A chain of operators of one level that still grows."""

    __slots__ = ("first", "level", "rest", "sign")

    def __init__(self, level: int, first: Expr) -> None:
        self.level = level
        self.first = first
        self.rest: list[tuple[str, Expr]] = []
        self.sign = ""


class SkriptndExpressions(SkriptndTokens):
    """The rules of the grammar from `literal` to `rvalue-expr`, and from `type-spec` to `param-definition`."""

    def expression(self) -> Expr:
        """A binary expression, then `? … [: …]`, then `?? …`."""
        value = self.unary()
        text = self.text
        if text in SIGNS:
            value = self.binary(value)
            text = self.text
        if text == "?":
            value = self.select(value)
            text = self.text
        if text == "??":
            value = self.coalesce(value)
        return value

    def select(self, condition: Expr) -> Expr:
        """`condition '?' expr [':' expr]`; both branches are complete expressions."""
        self.next()
        self.descend("of an expression")
        then = self.expression()
        otherwise = None
        if self.text == ":":
            self.next()
            otherwise = self.expression()
        self.depth_left += 1
        return Select(condition, then, otherwise, self.since(condition))

    def coalesce(self, value: Expr) -> Expr:
        """`value '??' expr`."""
        self.next()
        self.descend("of an expression")
        default = self.expression()
        self.depth_left += 1
        return Coalesce(value, default, self.since(value))

    # --- operators ------------------------------------------------------------------------------------------

    def binary(self, value: Expr) -> Expr:
        """Operators by precedence; those of one level in a row are one flat node, and nothing recurses."""
        opened: list[_OpenChain] = []
        folds = 0
        while (level := SIGNS.get(self.text)) is not None:
            while opened and opened[-1].level > level:
                value = self._close(opened.pop(), value)
            if opened and opened[-1].level == level:
                opened[-1].rest.append((opened[-1].sign, value))
            else:
                opened.append(_OpenChain(level, value))
            opened[-1].sign = self.binary_sign()
            if self.text in DOTS:
                # A fold takes all of its level so far: a + b + .. folds a + b.
                folds += 1
                self.descend("of folds")
                value = self.fold(opened.pop())
            elif self.text in UNARY:
                value = self.power_operand() if level == POWER else self.unary()
            else:
                value = self.postfix()
        while opened:
            value = self._close(opened.pop(), value)
        self.depth_left += folds
        return value

    def _close(self, chain: _OpenChain, last: Expr) -> Expr:
        chain.rest.append((chain.sign, last))
        span = Span(self.source, chain.first.span.start, last.span.end)
        return Chain(chain.first, tuple(chain.rest), span)

    def binary_sign(self) -> str:
        """A binary operator in the specification's spelling."""
        sign = self.text
        if sign in NEWER:
            self.note(syntax.NEWER_EXTREME.at(self.span(self.index), sign=sign, other=NEWER[sign]))
            sign = NEWER[sign]
        self.next()
        if sign == ":=" and self.text != "..":
            raise self.problem("'..'", "after ':='", "':=' only folds a pack to its uniform value")
        return sign

    def fold(self, chain: _OpenChain) -> Expr:
        """`operand sign '..'` or `operand sign '...'`: all of the level so far is folded."""
        sign, dots = chain.sign, self.text
        operand = chain.first
        if chain.rest:
            span = Span(self.source, operand.span.start, chain.rest[-1][1].span.end)
            operand = Chain(operand, tuple(chain.rest), span)
        if sign not in (CUMULATIVE if dots == "..." else FOLDS):
            self._no_fold(sign)
        self.next()
        level = SIGNS.get(self.text, 0)
        if level > chain.level or (level == chain.level and NEWER.get(self.text, self.text) != sign):
            span = self.span(self.index)
            self.report(syntax.FOLD_CONTINUED.at(span, sign=self.text, fold=sign, dots=dots))
        return Fold(operand, sign, dots == "...", self.since(operand))

    def _no_fold(self, sign: str) -> None:
        form = " cumulatively" if sign in FOLDS else ""
        folds = " ".join(item for item in LEVELS if item in (CUMULATIVE if form else FOLDS))
        span = self.span(self.index - 1, self.index)
        self.report(syntax.NO_FOLD.at(span, sign=sign, form=form, repair=f"these do: {folds}"))

    def unary(self) -> Expr:
        """`('+' | '-' | '!')* power`; a sign binds looser than `**`."""
        if self.text not in UNARY:
            return self.postfix()
        # -x ** 2 is -(x ** 2), so the power is read before the signs are put around it.
        signs = self._signs()
        value = self.postfix()
        if self.text == "**":
            value = self._power(value)
        return self._signed(signs, value)

    def power_operand(self) -> Expr:
        """What stands behind `**`: its own signs belong to it alone."""
        if self.text not in UNARY:
            return self.postfix()
        signs = self._signs()
        return self._signed(signs, self.postfix())

    def _signs(self) -> list[int]:
        signs = []
        while self.text in UNARY:
            self.descend("of an expression")
            signs.append(self.next())
        return signs

    def _signed(self, signs: list[int], value: Expr) -> Expr:
        for sign in reversed(signs):
            value = Unary(self.texts[sign], value, Span(self.source, self.starts[sign], value.span.end))
        self.depth_left += len(signs)
        return value

    def _power(self, first: Expr) -> Expr:
        rest: list[tuple[str, Expr]] = []
        while self.text == "**":
            self.next()
            rest.append(("**", self.power_operand()))
        return Chain(first, tuple(rest), self.since(first))

    # --- values ---------------------------------------------------------------------------------------------

    def postfix(self) -> Expr:
        """A value with the brackets behind it: indices, accesses, substitutions."""
        kind, text = self.kind, self.text
        if kind == NAME:
            value = self.named()
        elif kind == INT:
            return self.integer()
        elif kind == REAL:
            return self.real()
        elif text == "(":
            self.next()
            self.descend("of an expression")
            value = self.expression()
            self.depth_left += 1
            self.expect(")", "after an expression")
        elif text == "[":
            value = self.list_literal()
        elif kind == STRING:
            return self.string()
        elif text == "?":
            return self.null_test()
        elif text == "|":
            return self.bounded()
        elif kind == BUILT_IN:
            value = self.built_in()
        else:
            raise self.problem("a value", "here")
        return self.bracketed(value) if self.text == "[" else value

    def nested(self, where: str) -> Expr:
        """A complete expression one level deeper."""
        self.descend(where)
        value = self.expression()
        self.depth_left += 1
        return value

    def since(self, first: Expr) -> Span:
        """The place from the beginning of a node to the last token taken."""
        last = self.index - 1
        return Span(self.source, first.span.start, self.starts[last] + len(self.texts[last]))

    # --- names ----------------------------------------------------------------------------------------------

    def named(self) -> Expr:
        """What begins with a word: a name, a constant, a member, a cast, or a newer draft's built-in function."""
        text, ahead = self.text, self.texts[self.index + 1]
        if ahead == "(":
            return self.called()
        if text in KEYWORDS:
            return self.constant()
        if ahead == "." and self.kinds[self.index + 2] == NAME:
            return self.member()
        start = self.starts[self.index]
        return Name(self.identifier("a value", "here"), Span(self.source, start, start + len(text)))

    def constant(self) -> Expr:
        """`true`, `false`, `inf` or `pi`."""
        text = self.text
        if text in ("true", "false"):
            return Bool(text == "true", self.span(self.next()))
        if text in ("inf", "pi"):
            return Constant(text, self.span(self.next()))
        raise self.problem("a value", "here")

    def member(self) -> Expr:
        """`IDENT '.' ('shape' | 'rank' | 'size')`."""
        first = self.index
        if self.texts[first + 2] not in MEMBERS:
            raise self._no_member()
        name = self.identifier("a value", "here")
        self.next()
        field = self.texts[self.next()]
        return Member(name, field, self.span_from(first))

    def _no_member(self) -> SyntaxProblem:
        first = self.index
        name = self.qualified("a value", "here")
        if self.text in ("(", "{", "<"):
            return self.report(syntax.NESTED_CALL.at(self.span_from(first), operator=name[:SHOWN]))
        self.move_to(first + 2)
        return self.problem("shape, rank or size", "after '.'")

    def called(self) -> Expr:
        """`type '(' [expr] ')'`, or a built-in function without back-ticks."""
        first, name = self.index, self.text
        if name in BUILT_INS:
            self.note(syntax.NEWER_FUNCTION.at(self.span(first), name=name))
            self.next()
            return self._function(first, name)
        if name in KEYWORDS and name not in CONCRETE_TYPES:
            return self.constant()
        self.type_name("here")
        self.next()
        operand = None if self.text == ")" else self.nested("of an expression")
        self.expect(")", "after a cast")
        return Cast(name, operand, self.span_from(first))

    def built_in(self) -> Expr:
        """`` '`' NAME '`' '(' expr ')' ``."""
        first, name = self.index, self.text[1:-1]
        if name not in BUILT_INS:
            close = nearest(name, sorted(BUILT_INS))
            repair = (
                f"did you mean {close[0]}?" if close else f"the functions are {' '.join(sorted(BUILT_INS))}"
            )
            self.report(syntax.UNKNOWN_FUNCTION.at(self.span(first), name=name[:SHOWN], repair=repair))
        self.next()
        return self._function(first, name)

    def _function(self, first: int, name: str) -> Expr:
        self.expect("(", "after the name of a function")
        operand = self.nested("of an expression")
        self.expect(")", "after the argument of a function")
        return Call(name, operand, self.span_from(first))

    # --- what begins with a sign ----------------------------------------------------------------------------

    def null_test(self) -> NullTest:
        """`'?' IDENT`."""
        first = self.next()
        name = self.identifier("a name", "after '?'")
        return NullTest(name, self.span_from(first))

    def bounded(self) -> Bounded:
        """`'|' expr ['<>' expr ':' expr] '|'`."""
        first = self.next()
        index = self.nested("of an expression")
        below = above = None
        if self.accept("<>"):
            below = self.nested("of an expression")
            self.expect(":", "between the indices below and above")
            above = self.nested("of an expression")
        self.expect("|", "after a bounded index")
        return Bounded(index, below, above, self.span_from(first))

    def list_literal(self) -> List:
        """`'[' item,* ']'`."""
        first = self.next()
        self.descend("of a list")
        items = [] if self.text == "]" else self.separated(self.item)
        self.depth_left += 1
        self.expect("]", "after a list")
        return List(tuple(items), self.span_from(first))

    def item(self) -> Item:
        """`expr`, `expr ':' expr [':' expr]`, `expr '..' ['(' expr ')']` or `'(' expr,+ ')' '..'`."""
        if self.text == "(" and self._at_zip():
            return self.zip()
        value = self.expression()
        if self.text == "..":
            return self.expand(value)
        if self.text != ":":
            return value
        self.next()
        end = self.expression()
        step = self.expression() if self.accept(":") else None
        return Range(value, end, step, self.since(value))

    def expand(self, operand: Expr) -> Expand:
        """`operand '..' ['(' expr ')']`."""
        self.next()
        count = None
        if self.accept("("):
            count = self.expression()
            self.expect(")", "after the number of copies")
        return Expand(operand, count, self.since(operand))

    def _at_zip(self) -> bool:
        """Whether the parenthesis ahead encloses several values."""
        # Each level of parentheses is scanned once more, and nesting is bounded: the work stays linear.
        depth = 0
        for index in range(self.index, self.end):
            text = self.texts[index]
            depth += NESTING.get(text, 0)
            if depth == 0 or text == ";":
                return False
            if depth == 1 and text == ",":
                return True
        return False

    def zip(self) -> Zip:
        """`'(' expr ',' expr,+ ')' '..'`."""
        first = self.next()
        operands = self.separated(self.expression)
        self.expect(")", "after packs that are interleaved")
        self.expect("..", "after packs that are interleaved")
        return Zip(tuple(operands), self.span_from(first))

    # --- brackets -------------------------------------------------------------------------------------------

    def bracketed(self, value: Expr) -> Expr:
        """`value '[' … ']'` as often as it is there, then `'<-' expr`."""
        # Each pair of brackets puts what stands before it one node deeper, although the text does not nest.
        depth = self.depth_left
        while self.text == "[":
            self.descend("of indices")
            value = self.indexed(value)
        self.depth_left = depth
        if self.text != "<-" or not isinstance(value, Index):
            return value
        self.next()
        new = self.nested("of an expression")
        return Substitute(value, new, self.since(value))

    def indexed(self, operand: Expr) -> Expr:
        """`operand '[' index ']'`, or an access where an expansion or a comma says so, or nothing is between."""
        bracket = self.next()
        indices: list[Expr | Expand | Range] = []
        commas = 0
        while self.text != "]":
            indices.append(self.index_item())
            if self.text != ",":
                break
            commas += 1
            self.next()
        self.expect("]", "after the indices")
        last = indices[-1] if indices else None
        if commas or last is None or isinstance(last, Expand):
            return self.access(operand, tuple(indices), bracket)
        return Index(operand, last, self.since(operand))

    def index_item(self) -> Expr | Expand | Range:
        """`expr`, `expr '..'` or a range whose parts may be missing."""
        first = self.index
        if self.text != ":":
            value = self.expression()
            if self.text == "..":
                return self.expand(value)
            if self.text != ":":
                return value
        else:
            value = None
        self.next()
        end = None if self.text in BEHIND_A_RANGE else self.expression()
        step = None
        if self.accept(":"):
            step = None if self.text in BEHIND_A_RANGE else self.expression()
        return Range(value, end, step, self.span_from(first))

    def access(self, operand: Expr, indices: tuple[Expr | Expand | Range, ...], bracket: int) -> Expr:
        """`tensor '[' … ']'` or `pack '[' item ']' '[' … ']'`."""
        tensor, item = operand, None
        if isinstance(operand, Index) and not isinstance(operand.index, Range):
            tensor, item = operand.operand, operand.index
        if not isinstance(tensor, Name):
            span = self.span_from(bracket)
            raise self.report(syntax.ACCESS_OPERAND.at(span, indices="…" if indices else ""))
        if any(isinstance(index, Range) for index in indices):
            self.note(syntax.NEWER_RANGE.at(self.span_from(bracket)))
        return Access(tensor.id, item, indices, self.since(operand))

    # --- strings, and the expressions in their holes --------------------------------------------------------

    def string(self) -> Text | Format:
        """`STRING+`: adjacent strings are one."""
        first = self.index
        text = self.text[1:-1]
        self.next()
        # Most strings are one literal without holes.
        if self.kind != STRING and "{" not in text and "}" not in text:
            return Text(text, self.span(first))
        parts: list[str | Expr] = []
        self.move_to(first)
        while self.kind == STRING:
            self._parts(parts)
            self.next()
        span = self.span_from(first)
        if all(isinstance(part, str) for part in parts):
            return Text("".join(map(str, parts)), span)
        return Format(_joined(parts), span)

    def _parts(self, parts: list[str | Expr]) -> None:
        """The text and the holes of one literal."""
        text, start = self.text, self.starts[self.index]
        done, position = 1, 1
        while (brace := BRACE.search(text, position)) is not None:
            position = brace.end()
            if brace[0] == "}":
                self._bad_hole(start + brace.start(), start + position, "has a '}' without a '{'", ESCAPED)
            if brace[0] != "{":
                continue
            parts.append(text[done : brace.start()])
            end = text.find("}", position)
            if end < 0:
                problem = "has a '{' without a '}'"
                raise self._bad_hole(start + brace.start(), start + position, problem, ESCAPED)
            parts.append(self._hole(text[position:end], start + position))
            done = position = end + 1
        parts.append(text[done:-1])

    def _bad_hole(self, start: int, end: int, problem: str, repair: str) -> SyntaxProblem:
        span = Span(self.source, start, end)
        return self.report(syntax.HOLE.at(span, problem=problem, repair=repair))

    def _hole(self, text: str, start: int) -> Expr:
        """The expression in a hole."""
        span = Span(self.source, start, start + len(text))
        if PLAIN.fullmatch(text) and text not in KEYWORDS and text != "_":
            return Name(text, span)
        if not text.strip():
            repair = f"write an expression between the braces; {ESCAPED}"
            raise self._bad_hole(start - 1, span.end + 1, "has a hole without an expression", repair)
        # The tokens of the hole replace those of the text for a while; their offsets are those of the whole text.
        outer = self.kinds, self.texts, self.starts, self.end, self.index
        self.kinds, self.texts, self.starts, _ = tokens = LEXER.cut(self.source, start, span.end)
        self.end = tokens.end
        self.move_to(0)
        self.descend("of a string")
        try:
            value = self.expression()
            if self.kind != END:
                raise self.problem("'}'", "after the expression in a hole")
        finally:
            self.kinds, self.texts, self.starts, self.end, index = outer
            self.move_to(index)
        self.depth_left += 1
        return value

    # --- types, shapes and parameters -----------------------------------------------------------------------

    def type_spec(self) -> TypeSpec:
        """`['optional'] ['dynamic'] type ['^' '(' IDENT ')'] [shape] [pack]`."""
        first = self.index
        optional = dynamic = False
        while (self.text == "optional" and not optional) or (self.text == "dynamic" and not dynamic):
            if self.text == "optional":
                optional = True
            else:
                self.note_control()
                dynamic = True
            self.next()
        name = self.type_name("here")
        rank = None
        if self.accept("^"):
            self.expect("(", "after '^'")
            rank = self.identifier("the name of a rank", "after '^('")
            self.expect(")", "after the name of a rank")
        shape = self.shape() if self.text == "[" else None
        pack = self.pack() if self.text == ".." else None
        return TypeSpec(name, optional, dynamic, rank, shape, pack, self.span_from(first))

    def note_control(self) -> None:
        """Say that `static` and `dynamic` are a newer draft's."""
        self.note(syntax.NEWER_CONTROL.at(self.span(self.index), word=self.text))

    def shape(self) -> tuple[Extent, ...]:
        """`'[' extent,* ']'`."""
        self.next()
        extents = [] if self.text == "]" else self.separated(self.extent)
        self.expect("]", "after a shape")
        return tuple(extents)

    def extent(self) -> Extent:
        """`['..'] ['static'] (expr | '~') ['|' expr] [pack]`."""
        first = self.index
        spread = self.accept("..")
        static = self.text == "static"
        if static:
            self.note_control()
            self.next()
        value = self.or_omitted()
        bound = self.expression() if self.accept("|") else None
        pack = self.pack() if self.text == ".." else None
        return Extent(value, bound, pack, spread, static, self.span_from(first))

    def or_omitted(self) -> Expr | Omitted:
        """`expr | '~'`."""
        return Omitted(self.span(self.next())) if self.text == "~" else self.expression()

    def pack(self) -> Pack:
        """`'..' ['(' ['static' | 'dynamic'] (expr | '~') ['|' expr] ')']`."""
        first = self.next()
        if not self.accept("("):
            return Pack(span=self.span(first))
        control = ""
        if self.text in CONTROLS:
            self.note_control()
            control = self.texts[self.next()]
        length = self.or_omitted()
        bound = self.expression() if self.accept("|") else None
        self.expect(")", "after the length of a pack")
        return Pack(length, bound, control, self.span_from(first))

    # --- declarations ---------------------------------------------------------------------------------------

    def dtype(self) -> Dtype:
        """`IDENT ':' type ['=' type] ';'`."""
        first = self.index
        name = self.identifier("the name of a type", "in @dtype")
        self.expect(":", "after the name of a type")
        base = self.type_name("after ':'")
        default = self.type_name("after '='") if self.accept("=") else None
        return Dtype(name, base, default, *self.finish(first, "after a type"))

    def parameter(self) -> Parameter:
        """`IDENT ':' type-spec ['=' expr (',' bound)*] ';'`."""
        first = self.index
        name = self.identifier("the name of a parameter", "in a block of parameters")
        self.expect(":", "after the name of a parameter")
        type_ = self.type_spec()
        value: Expr | None = None
        bounds: tuple[Bound, ...] = ()
        if self.accept("="):
            value = self.expression()
            bounds = self.bounds()
        return Parameter(name, type_, value, bounds, *self.finish(first, "after a parameter"))

    def bounds(self) -> tuple[Bound, ...]:
        """`(',' IDENT '<' expr)*`."""
        if self.text != ",":
            return ()
        items = []
        while self.accept(","):
            first = self.index
            index = self.identifier("the name of an index", "after ','")
            self.expect("<", "after the name of an index")
            limit = self.expression()
            items.append(Bound(index, limit, self.span_from(first)))
        return tuple(items)

    # --- patterns -------------------------------------------------------------------------------------------

    def pattern(self) -> Pattern:
        """`result | '~' | '[' (result | unzip | '~'),+ ']'`."""
        if self.text != "[":
            return self.result()
        first = self.next()
        items = self.separated(self.pattern_item)
        self.expect("]", "after a list of results")
        return ListPattern(tuple(items), self.span_from(first))

    def pattern_item(self) -> Result | Unzip | Omitted:
        """`result | '~' | '(' result,+ ')' '..' ['(' expr ')']`."""
        if self.text != "(":
            return self.result()
        first = self.next()
        items = self.separated(self.typed_name)
        self.expect(")", "after results that are interleaved")
        if self.text != "..":
            raise self.problem("'..'", "after results that are interleaved")
        return Unzip(tuple(items), self.pack(), self.span_from(first))

    def result(self) -> Result | Omitted:
        """`IDENT [':' type shape] [pack]`, `'~'`, or `'_'` that is thrown away."""
        if self.text == "~" or self.text == "_":
            return Omitted(self.span(self.next()))
        first = self.index
        name = self.identifier("the name of a result", "here")
        type_ = self.result_type() if self.text == ":" else None
        pack = self.pack() if self.text == ".." else None
        return Result(name, type_, pack, self.span_from(first))

    def typed_name(self) -> Result:
        """`IDENT [':' type shape]`."""
        first = self.index
        name = self.identifier("the name of a result", "here")
        type_ = self.result_type() if self.text == ":" else None
        return Result(name, type_, None, self.span_from(first))

    def result_type(self) -> TypeSpec:
        """`':' type [shape]`."""
        self.next()
        first = self.index
        name = self.type_name("after ':'")
        shape = self.shape() if self.text == "[" else None
        return TypeSpec(name, shape=shape, span=self.span_from(first))


def _joined(parts: list[str | Expr]) -> tuple[str | Expr, ...]:
    """The parts with texts in a row made one, and no empty ones."""
    joined: list[str | Expr] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, str) and isinstance(last, str):
            joined[-1] = last + part
        elif part != "":
            joined.append(part)
    return tuple(joined)
