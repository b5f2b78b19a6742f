"""Type families: from the declarations of the text to the legal type combinations they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.source import Span
from lamella.lang.nem.device import FamilyVariant, VariantId
from lamella.lang.nem.nodes import Binding, Conformance, Constraint, TypeFamily, Variant
from lamella.lang.nem.rules import BAD_FAMILY
from lamella.lang.nem.words import ELEMENTS

ABSENT, ANY = "absent", "any_supported"
LEVELS = ("MUST", "MAY")
MOST_OPERANDS = 64
"""Every variant spells out the type of every operand; the bound keeps that linear in the text."""

Variants: TypeAlias = Mapping[str, tuple[FamilyVariant, ...]]
"""The variants of each family, by the name of the family."""


def expand(family: TypeFamily) -> tuple[tuple[FamilyVariant, ...], tuple[Diagnostic, ...]]:
    """The variants of a family, one for each conformance entry, and what is wrong with its declaration."""
    findings = tuple(check_family(family))
    if findings:
        return (), findings
    found = (
        _instantiate(family, variant, entry) for variant in family.variants for entry in variant.conformance
    )
    return tuple(found), ()


def _instantiate(family: TypeFamily, variant: Variant, entry: Conformance) -> FamilyVariant:
    """One variant with its type variables replaced."""
    meaning = dict(zip((item.name for item in family.parameters), entry.elems, strict=True))
    bindings = (*family.bindings, *variant.bindings)
    words = {item.name: item.words for item in family.constraints}
    accum = words.get("accum", ("",))[0]
    return FamilyVariant(
        id=VariantId(family.name.id, entry.elems, variant.name),
        operands=MappingProxyType({item.operand: meaning.get(item.type, item.type) for item in bindings}),
        accum=meaning.get(accum, accum),
        quant=words.get("quant", ()),
        must=entry.level == "MUST",
    )


def variants_of(variants: Variants, opcode_families: Iterable[str]) -> tuple[FamilyVariant, ...]:
    """The variants that an opcode may match, given the families that the registry lists for it.

    A family that a file adds to one of their domains counts too: `gemm.int16` is of the domain `gemm`.
    """
    domains = {domain_of(name) for name in opcode_families}
    return tuple(item for name, items in variants.items() if domain_of(name) in domains for item in items)


def domain_of(family: str) -> str:
    """The group of operations that a family speaks of: `gemm` for `gemm.float`."""
    return family.partition(".")[0]


# --- what a declaration must keep ---------------------------------------------------------------------------


def check_family(family: TypeFamily) -> Iterator[Diagnostic]:
    """Parameters, operand types, constraints, variants and conformance entries make sense together."""
    return _Declaration(family).check()


class _Declaration:
    """A family being checked, with what is looked up again and again."""

    def __init__(self, family: TypeFamily) -> None:
        self.family = family
        self.variables = {item.name for item in family.parameters}
        self.operands = {item.operand for item in family.bindings}

    def check(self) -> Iterator[Diagnostic]:
        """What is wrong; nothing is said of variants while the parameters they use are wrong."""
        first = [*self.check_parameters(), *self.check_bindings(self.family.bindings)]
        yield from first or self.check_rest()

    def wrong(self, span: Span, problem: str, labels: Iterable[Label] = ()) -> Diagnostic:
        """A finding about this family."""
        return BAD_FAMILY.at(span, name=self.family.name.id, problem=problem, labels=labels)

    def twice(self, what: str, named: Iterable[tuple[str, Span]]) -> Iterator[Diagnostic]:
        """The names that occur again in a list."""
        first: dict[str, Span] = {}
        for name, span in named:
            if name in first:
                yield self.wrong(span, f"{what} '{name}' is given twice", [Label(first[name], "first here")])
            first.setdefault(name, span)

    def check_parameters(self) -> Iterator[Diagnostic]:
        """Type variables are new words that range over element types."""
        yield from self.twice("type variable", [(item.name, item.span) for item in self.family.parameters])
        for parameter in self.family.parameters:
            if parameter.name in ELEMENTS or parameter.name in (ABSENT, ANY):
                yield self.wrong(parameter.span, f"'{parameter.name}' cannot name a type variable")
            yield from self.twice("element type", [(elem, parameter.span) for elem in parameter.elems])
            for elem in parameter.elems:
                if elem not in ELEMENTS:
                    yield self.wrong(parameter.span, f"'{elem}' is not an element type")

    def check_bindings(self, bindings: tuple[Binding, ...]) -> Iterator[Diagnostic]:
        """The operands are few and each type is known."""
        if len(bindings) > MOST_OPERANDS:
            problem = f"it binds {len(bindings)} operands; the most are {MOST_OPERANDS}"
            yield self.wrong(bindings[MOST_OPERANDS].span, problem)
        yield from self.twice("operand", [(item.operand, item.span) for item in bindings])
        for binding in bindings:
            known = binding.type in ELEMENTS or binding.type in self.variables
            if not known and binding.type not in (ABSENT, ANY):
                problem = f"'{binding.type}' is neither an element type nor a type variable"
                yield self.wrong(binding.span, problem)

    def check_rest(self) -> Iterator[Diagnostic]:
        """Constraints and variants, given parameters and operands that make sense."""
        constraints, variants = self.family.constraints, self.family.variants
        yield from self.twice("constraint", [(item.name, item.span) for item in constraints])
        for constraint in constraints:
            problem = self.constraint_problem(constraint)
            if problem:
                yield self.wrong(constraint.span, problem)
        if not variants:
            yield self.wrong(self.family.name.span, "it has no variants")
        yield from self.twice("variant", [(item.name, item.span) for item in variants])
        for variant in variants:
            yield from self.check_variant(variant)

    def constraint_problem(self, constraint: Constraint) -> str:
        """Why a constraint has no meaning, or nothing."""
        words = " ".join(constraint.words)
        if constraint.name == "accum":
            known = words in ELEMENTS or words in self.variables
            return "" if known else f"accum is '{words}'; it must be an element type or a type variable"
        if constraint.name == "quant":
            place = words.removeprefix("required on ")
            known = words in ("required", "absent") or (place != words and place in self.operands)
            wanted = "'required', 'absent' or 'required on' one of its operands"
            return "" if known else f"quant is '{words}'; it must be {wanted}"
        return f"'{constraint.name}' is no constraint; there are accum and quant"

    def check_variant(self, variant: Variant) -> Iterator[Diagnostic]:
        """Its operands are not the family's, and it has a conformance class for each instantiation, once."""
        yield from self.check_bindings(variant.bindings)
        for binding in variant.bindings:
            if binding.operand in self.operands:
                yield self.wrong(binding.span, f"operand '{binding.operand}' is given twice")
        if not variant.conformance:
            yield self.wrong(variant.span, f"variant '{variant.name}' has no conformance entry")
        for entry in variant.conformance:
            problem = self.entry_problem(entry)
            if problem:
                yield self.wrong(entry.span, problem)
        named = [(f"<{', '.join(item.elems)}>", item.span) for item in variant.conformance]
        yield from self.twice("instantiation", named)

    def entry_problem(self, entry: Conformance) -> str:
        """Why an entry does not choose one element type of each parameter's set, or nothing."""
        if entry.level not in LEVELS:
            return f"'{entry.level}' is no conformance class; there are MUST and MAY"
        parameters = self.family.parameters
        if len(parameters) != len(entry.elems):
            return f"an instantiation needs {len(parameters)} element type(s), found {len(entry.elems)}"
        for parameter, elem in zip(parameters, entry.elems, strict=True):
            if elem not in parameter.elems:
                return f"{elem} is outside the set of {parameter.name}"
        return ""
