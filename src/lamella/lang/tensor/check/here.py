"""The statement that is being checked, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.source import Span
from lamella.lang.tensor.check.context import Context
from lamella.lang.tensor.check.roles import header_span, type_span, word_of
from lamella.lang.tensor.nodes import INDEX, Statement, Type, Value
from lamella.lang.tensor.rules import instructions as rules
from lamella.lang.tensor.write.types import write_type


@dataclass(frozen=True, slots=True)
class Here:
    """A statement in its context."""

    context: Context
    statement: Statement

    @property
    def word(self) -> str:
        """What the instruction is called."""
        return word_of(self.statement.instruction)

    @property
    def span(self) -> Span:
        """The place of the instruction, without its regions."""
        return header_span(self.statement)

    @property
    def type_span(self) -> Span:
        """The place of the type of what the instruction gives."""
        return type_span(self.statement)

    def say(self, rule: Rule, span: Span, about: Iterable[Value] = (), **words: object) -> None:
        """Report a finding, with the places where the values it is about are defined."""
        labels = self.context.labels(*about)
        self.context.report(rule.at(span, hint=None, labels=labels, **{"instruction": self.word, **words}))

    def say_all(self, findings: Iterable[Diagnostic]) -> None:
        """Report findings that others made."""
        for finding in findings:
            self.context.report(finding)

    def expect(self, value: Value, type_: Type, fits: bool, wanted: str) -> bool:
        """Whether an operand is of the kind that is wanted; that it is not is a finding."""
        if not fits:
            self.say(
                rules.OPERAND_KIND,
                value.span,
                [value],
                name=value.name,
                type=write_type(type_),
                wanted=wanted,
            )
        return fits

    def expect_result(self, type_: Type, wanted: Type, about: Iterable[Value] = ()) -> None:
        """The type that is written behind the instruction is the one it gives."""
        if type_ != wanted:
            self.say(
                rules.RESULT_TYPE, self.type_span, about, wanted=write_type(wanted), type=write_type(type_)
            )

    def expect_indices(self, values: Iterable[Value], what: str) -> None:
        """Indices, offsets and sizes are of type index."""
        for value in values:
            type_ = self.context.type_of(value)
            if type_ is not None and type_ != INDEX:
                self.say(
                    rules.INDEX_TYPE, value.span, [value], name=value.name, type=write_type(type_), what=what
                )
