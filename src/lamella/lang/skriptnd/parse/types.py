"""Types, shapes and parameters."""

from __future__ import annotations

from lamella.base.source import Span
from lamella.lang.skriptnd.nodes import (
    Bound,
    Chain,
    Coalesce,
    Dtype,
    Expr,
    Extent,
    Fold,
    ListPattern,
    Omitted,
    Pack,
    Parameter,
    Pattern,
    Result,
    Select,
    TypeSpec,
    Unary,
    Unzip,
)
from lamella.lang.skriptnd.parse.values import Values
from lamella.lang.skriptnd.rules import syntax
from lamella.lang.skriptnd.words import CUMULATIVE, FOLDS, LEVELS, NEWER, POWER

# --- expressions: operators, folds, selection ---------------------------------------------------------------


SIGNS = {**LEVELS, "<?": LEVELS["<<"], ">?": LEVELS[">>"]}
UNARY = frozenset(("-", "+", "!"))
DOTS = frozenset(("..", "..."))


class _Open:
    """A chain of operators of one level that still grows."""

    __slots__ = ("first", "level", "rest", "sign")

    def __init__(self, level: int, first: Expr) -> None:
        self.level = level
        self.first = first
        self.rest: list[tuple[str, Expr]] = []
        self.sign = ""


class Expressions(Values):
    """The rules of the grammar under `rvalue-expr`."""

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
        opened: list[_Open] = []
        folds = 0
        while (level := SIGNS.get(self.text)) is not None:
            while opened and opened[-1].level > level:
                value = self._close(opened.pop(), value)
            if opened and opened[-1].level == level:
                opened[-1].rest.append((opened[-1].sign, value))
            else:
                opened.append(_Open(level, value))
            opened[-1].sign = self.binary_sign()
            if self.text in DOTS:
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

    def _close(self, chain: _Open, last: Expr) -> Expr:
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

    def fold(self, chain: _Open) -> Expr:
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


CONTROLS = ("static", "dynamic")


class Types(Expressions):
    """The rules of the grammar from `type-spec` to `param-definition`, and the patterns of results."""

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
        found = []
        while self.accept(","):
            first = self.index
            index = self.identifier("the name of an index", "after ','")
            self.expect("<", "after the name of an index")
            limit = self.expression()
            found.append(Bound(index, limit, self.span_from(first)))
        return tuple(found)

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
