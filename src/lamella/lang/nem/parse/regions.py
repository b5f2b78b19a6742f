"""Regions, their types, and operands."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.lang.nem import rules
from lamella.lang.nem.nodes import Expr, Name, Operand, Quant, Region, TypeAttributes
from lamella.lang.nem.parse.expressions import Expressions
from lamella.lang.nem.words import QUANT_FORMS, TYPE_WORDS


@dataclass(slots=True)
class _Parts:
    """The type attributes of one region, as they are found."""

    first: int | None = None
    elem: Name | None = None
    shape: tuple[Expr, ...] | None = None
    layout: Name | None = None
    strides: tuple[Expr, ...] | None = None
    quant: Quant | None = None


class Regions(Expressions):
    """The rules of the grammar from `region` to `operand`."""

    def region(self) -> Region:
        """`region := 'region' '(' ID ',' expr ',' expr (',' tattrs)? ')' tattrs?`."""
        first = self.next()
        self.expect("(", "after 'region'")
        buffer = self.use("the name of a buffer", "in a region")
        self.expect(",", "after the buffer of a region")
        offset = self.expression()
        self.expect(",", "after the offset of a region")
        extent = self.expression()
        parts = _Parts()
        if self.accept(","):
            self.type_attributes(parts)
        self.expect(")", "after a region")
        if self.text in TYPE_WORDS:
            self.type_attributes(parts)
        return Region(buffer, offset, extent, self._type(parts), self.span_from(first))

    def _type(self, parts: _Parts) -> TypeAttributes | None:
        if parts.first is None:
            return None
        span = self.span_from(parts.first)
        return TypeAttributes(parts.elem, parts.shape, parts.layout, parts.strides, parts.quant, span)

    def type_attributes(self, parts: _Parts) -> None:
        """`tattrs := tattr (',' tattr)*`; a comma continues only before another attribute."""
        parts.first = self.index if parts.first is None else parts.first
        self.type_attribute(parts)
        while self.text == "," and self.ahead() in TYPE_WORDS:
            self.next()
            self.type_attribute(parts)
        if self.text in TYPE_WORDS and self.text != "strides":
            raise self.problem("','", "between type attributes")

    def type_attribute(self, parts: _Parts) -> None:
        """`tattr := 'elem' '=' ELEM | 'shape' '=' … | 'layout' '=' ID | 'strides' '=' … | 'quant' '=' quant`."""
        word = self.text
        if word not in TYPE_WORDS:
            raise self.problem("a type attribute", "in a region")
        first = self.next()
        self.expect("=", "after a type attribute")
        value: Name | Quant | tuple[Expr, ...]
        if word == "elem":
            value = self.element()
        elif word == "layout":
            value = self.use("the name of a layout", "after 'layout ='")
        elif word == "quant":
            value = self.quant()
        else:
            value = self.expressions("around sizes")
        if getattr(parts, word) is None:
            setattr(parts, word, value)
        else:
            self.report(rules.DOUBLE_TYPE.at(self.span(first), what=word))

    def quant(self) -> Quant:
        """`quant := ('per_tensor' | 'per_channel' | 'per_group') '(' (ID '=' value),+ ')'`."""
        form = self.text
        if form not in QUANT_FORMS:
            raise self.problem("per_tensor, per_channel or per_group", "after 'quant ='")
        first = self.next()
        self.expect("(", "after the form of a quant descriptor")
        fields = self.separated(self.attribute)
        self.expect(")", "after a quant descriptor")
        return Quant(form, tuple(fields), self.span_from(first))

    def operand(self) -> Operand:
        """`operand := (ID | region) deco*`; a name that is followed by '=' or '.' belongs to the next statement."""
        first = self.index
        value: Name | Region
        if self.text == "region":
            value = self.region()
        elif self.ahead() in ("=", "."):
            raise self.problem("a region", "as an operand")
        else:
            value = self.use("a region", "as an operand")
        return Operand(value, self.decorators(), self.span_from(first))
