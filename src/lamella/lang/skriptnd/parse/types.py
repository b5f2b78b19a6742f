"""Types, shapes and parameters."""

from __future__ import annotations

from lamella.lang.skriptnd.nodes import (
    Bound,
    Dtype,
    Expr,
    Extent,
    ListPattern,
    Omitted,
    Pack,
    Parameter,
    Pattern,
    Result,
    TypeSpec,
    Unzip,
)
from lamella.lang.skriptnd.parse.expressions import Expressions
from lamella.lang.skriptnd.rules import syntax

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
