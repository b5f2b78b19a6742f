"""Type families."""

from __future__ import annotations

from lamella.lang.nem.nodes import (
    Binding,
    Conformance,
    Constraint,
    Name,
    TypeFamily,
    TypeParameter,
    Variant,
)
from lamella.lang.nem.parse.lexis import NAME, Lexis
from lamella.lang.nem.words import KEYWORDS


class Families(Lexis):
    """The rules of the grammar under `type_family`."""

    def type_family(self) -> TypeFamily:
        """`'type_family' family_id type_params? '{' (binding | constraint)* 'variants' ':' variant* '}'`."""
        first = self.next()
        name = self.family_name()
        parameters = self.type_parameters()
        self.expect("{", "after the name of a type family")
        bindings: list[Binding] = []
        constraints: list[Constraint] = []
        while not (self.text == "variants" and self.ahead() == ":"):
            if self.ahead() == "=":
                constraints.append(self.constraint())
            else:
                bindings.append(self.binding())
        self.next()
        self.next()
        variants = []
        while self.text != "}":
            variants.append(self.variant())
        self.next()
        parts = (parameters, tuple(bindings), tuple(constraints), tuple(variants))
        return TypeFamily(name, *parts, *self.finish(first))

    def family_name(self) -> Name:
        """`family_id := ID ('.' ID)?`."""
        name = self.declare("the name of a type family", "after 'type_family'")
        if not self.accept("."):
            return name
        part = self.use("a name", "after '.'")
        whole = Name(f"{name.id}.{part.id}", name.span.to(part.span))
        self.declared[-1] = whole
        return whole

    def type_parameters(self) -> tuple[TypeParameter, ...]:
        """`type_params := '<' type_param,+ '>'`."""
        if not self.accept("<"):
            return ()
        found = self.separated(self.type_parameter)
        self.expect(">", "after the type parameters")
        return tuple(found)

    def type_parameter(self) -> TypeParameter:
        """`type_param := ID ':' '{' ELEM,+ '}'`."""
        first = self.index
        name = self.word("a type parameter", "here")
        self.expect(":", "after a type parameter")
        self.expect("{", "before the types of a parameter")
        elems = self.separated(self.element)
        self.expect("}", "after the types of a parameter")
        return TypeParameter(name, tuple(item.id for item in elems), self.span_from(first))

    def binding(self) -> Binding:
        """`ID ':' TYPE`."""
        first = self.index
        operand = self.word("an operand, a constraint or 'variants:'", "in a type family")
        self.expect(":", "after the name of an operand")
        return Binding(operand, self.word("a type", "after ':'"), self.span_from(first))

    def constraint(self) -> Constraint:
        """`(ID | 'quant') '=' word+`; a word before ':' or '=' begins the next line."""
        first = self.index
        name = self.name().id if self.text == "quant" else self.word("a constraint", "in a type family")
        self.next()
        words = [self.word("a word", "after '='")]
        while self.kind == NAME and self.text not in KEYWORDS and self.ahead() not in (":", "="):
            words.append(self.name().id)
        return Constraint(name, tuple(words), self.span_from(first))

    def variant(self) -> Variant:
        """`ID ':' '{' binding* '}' 'conformance' ':' '{' conformance* '}'`."""
        first = self.index
        name = self.word("a variant or '}'", "in a type family")
        self.expect(":", "after the name of a variant")
        self.expect("{", "before the operands of a variant")
        bindings = []
        while not self.accept("}"):
            bindings.append(self.binding())
        self.expect("conformance", "after a variant")
        self.expect(":", "after 'conformance'")
        self.expect("{", "after 'conformance:'")
        classes = []
        while not self.accept("}"):
            classes.append(self.conformance())
        return Variant(name, tuple(bindings), tuple(classes), self.span_from(first))

    def conformance(self) -> Conformance:
        """`('MUST' | 'MAY') ('<' ELEM,+ '>')?`."""
        level = self.text
        if level not in ("MUST", "MAY"):
            raise self.problem("MUST, MAY or '}'", "in a conformance block")
        first = self.next()
        return Conformance(level, self.instantiation(), self.span_from(first))

    def instantiation(self) -> tuple[str, ...]:
        """`('<' ELEM,+ '>')?`."""
        if not self.accept("<"):
            return ()
        elems = self.separated(self.element)
        self.expect(">", "after the element types")
        return tuple(item.id for item in elems)
