"""Mappings between parameters and the tensors of a checkpoint."""

from __future__ import annotations

from lamella.base.cursor import SyntaxProblem
from lamella.lang.module.nodes import (
    Direct,
    Fuse,
    Mapping,
    Spec,
    Split,
    SplitPart,
    Transform,
)
from lamella.lang.module.parse.fields import Fields
from lamella.lang.module.parse.layout import NAME
from lamella.lang.module.parse.lexis import INT, STRING


class Mappings(Fields):
    """The rules of the grammar from `hf_weight_mapping` to `hf_weight_spec`."""

    def mapping(self) -> Mapping:
        """`path '?'? (':' | '->') spec ('if' condition)?`."""
        first = self.index
        path = self.path("the path of a parameter", "in a mapping")
        optional = self.accept("?")
        if not self.accept("->"):
            self.expect(":", "after the path of a parameter")
        spec = self._spec()
        condition = self.expression() if self.accept("if") else None
        span, notes = self.settle(first)
        self.end_line("after a mapping")
        return Mapping(path, spec, optional, condition, notes, span)

    def _spec(self) -> Spec:
        """`string | fuse | split | transform | tied`."""
        if self.kind == NAME and self.ahead() == "(":
            if self.text == "fuse":
                return self._fuse()
            if self.text == "split":
                return self._split()
            if self.text == "tied_to":
                return self.tied()
        return self._source()

    def _source(self) -> Direct | Transform:
        """`string | transform`."""
        if self.text == "transform" and self.ahead() == "(":
            return self._transform()
        if self.kind != STRING:
            raise self._no_source()
        found = self.string("the name of a tensor", "here")
        return Direct(found.value, found.span)

    def _no_source(self) -> SyntaxProblem:
        wanted = "the name of a tensor in quotes, or fuse, split, transform or tied_to"
        return self.problem(wanted, "in a mapping")

    def _transform(self) -> Transform:
        """`'transform' '(' string ',' 'fn' (':' | '=') name ')'`."""
        first = self.next()
        self.next()
        name = self.string("the name of a tensor", "in 'transform'").value
        self.expect(",", "after the name of a tensor")
        self.expect("fn", "in 'transform'")
        if not self.accept("="):
            self.expect(":", "after 'fn'")
        function = self.name("the name of a function", "after 'fn'")
        self.accept(",")
        self.expect(")", "after the function")
        return Transform(name, function, self.span_from(first))

    def _fuse(self) -> Fuse:
        """`'fuse' '(' source,+ (',' 'dim' '=' integer)? ')'`."""
        first = self.next()
        self.next()
        sources: list[Direct | Transform] = []
        dim = 0
        while self.text != ")":
            if self.text == "dim":
                dim = self._dim_argument()
            else:
                sources.append(self._source())
            if not self.accept(","):
                break
        self._close(bool(sources), "fuse")
        return Fuse(tuple(sources), dim, self.span_from(first))

    def _split(self) -> Split:
        """`'split' '(' part,+ (',' 'dim' '=' integer)? ')'`."""
        first = self.next()
        self.next()
        parts: list[SplitPart] = []
        dim = 0
        while self.text != ")":
            if self.text == "dim":
                dim = self._dim_argument()
            else:
                parts.append(self._part())
            if not self.accept(","):
                break
        self._close(bool(parts), "split")
        return Split(tuple(parts), dim, self.span_from(first))

    def _close(self, has_items: bool, word: str) -> None:
        if not has_items:
            raise self.problem("the name of a tensor", f"in '{word}'")
        self.expect(")", f"after the tensors of '{word}'")

    def _part(self) -> SplitPart:
        """`string ':' '[' expression ',' expression ']'`."""
        first = self.index
        name = self.string("the name of a tensor", "in 'split'").value
        self.expect(":", "after the name of a tensor")
        self.expect("[", "before the range of a tensor")
        low = self.expression()
        self.expect(",", "between the ends of a range")
        high = self.expression()
        self.expect("]", "after the range of a tensor")
        return SplitPart(name, low, high, self.span_from(first))

    def _dim_argument(self) -> int:
        """`'dim' '=' '-'? integer`."""
        self.next()
        self.expect("=", "after 'dim'")
        sign = -1 if self.accept("-") else 1
        if self.kind != INT:
            raise self.problem("a whole number", "after 'dim='")
        return sign * self.integer().value
