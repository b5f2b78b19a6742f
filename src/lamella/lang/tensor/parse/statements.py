"""One statement: its results, the word of its instruction, and what is kept beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lamella.base.limits import Limits
from lamella.base.source import Notes, Source
from lamella.lang.tensor.nodes import (
    Alloca,
    For,
    If,
    Instruction,
    Statement,
    Type,
    Value,
)
from lamella.lang.tensor.parse.lexis import LOCAL, WORD
from lamella.lang.tensor.parse.matrices import Matrices
from lamella.lang.tensor.rules import syntax
from lamella.lang.tensor.words import ALIASES, DOTTED, NEWER, REDUCTIONS, TRANSPOSES, VALUELESS


class Statements(Matrices):
    """The rules of the grammar for `instruction`."""

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self.first = 0
        """The first token of the statement that is being read."""
        self.head: Notes | None = None
        """The notes of an instruction that holds a region: they are those of the line that opens it."""
        families: dict[str, Callable[[str], Instruction]] = {
            "arith": self.arith,
            "cmp": self.compare,
            "math": self.math,
            "builtin": self.builtin,
        }
        self.openers: dict[str, Callable[[str], Instruction]] = {
            **{word: families.get(word.partition(".")[0], self.subgroup_operation) for word in DOTTED},
            **dict.fromkeys(TRANSPOSES, self.blas),
            **dict.fromkeys(("store", "store.atomic", "store.atomic_add"), self.store),
            **{f"cooperative_matrix_store{flag}": self.coop_store for flag in ("", ".atomic", ".atomic_add")},
            **{f"atomic_{name}": self.atomic for name in REDUCTIONS},
            "alloca": self.alloca,
            "barrier": self.barrier,
            "cast": self.cast,
            "constant": self.constant,
            "cooperative_matrix_construct": self.coop_construct,
            "cooperative_matrix_extract": self.coop_extract,
            "cooperative_matrix_insert": self.coop_insert,
            "cooperative_matrix_load": self.coop_load,
            "cooperative_matrix_mul_add": self.coop_mul_add,
            "cooperative_matrix_scale": self.coop_scale,
            "expand": self.expand,
            "fuse": self.fuse,
            "lifetime_stop": self.lifetime_stop,
            "load": self.load,
            "size": self.size_instruction,
            "subgroup_broadcast": self.subgroup_broadcast,
            "subview": self.subview,
            "yield": self.yield_values,
        }

    def statement(self) -> Statement:
        """`(value,+ '=')? instruction`."""
        first = self.index
        results: tuple[Value, ...] = ()
        if self.kind == LOCAL:
            results = self.locals("a value", "before '='")
            self.expect("=", "after the names of the results")
        self.first = first
        token = self.index
        word = self.instruction_word()
        instruction = self.openers[word](word)
        self.check_results(token, word.partition(".")[0], results, instruction)
        self.types_of.update(
            (value.name, kind) for value, kind in zip(results, _types(instruction), strict=False)
        )
        span, head = self.span_from(first), self.head
        self.head = None
        return Statement(results, instruction, span, self.settle(first)[1] if head is None else head)

    def instruction_word(self) -> str:
        """Take the word that begins an instruction; the specification's name for it."""
        text, span = self.text, self.span(self.index)
        word = ALIASES.get(text) or NEWER.get(text, text)
        if self.kind != WORD or word not in self.openers:
            raise self.problem("an instruction", "here")
        self.next()
        if text == "group_id":
            self.note(syntax.BARE_GROUP_ID, span)
        elif text in NEWER:
            self.note(syntax.NEWER_NAME, span, word=text, repair=word)
        return word

    def check_results(
        self, token: int, word: str, results: tuple[Value, ...], instruction: Instruction
    ) -> None:
        """Report where not as many values are named as an instruction produces; loops and branches may name none."""
        is_multiple = isinstance(instruction, (For, If))
        produced = 0 if word in VALUELESS else len(_types(instruction))
        if len(results) == produced or (is_multiple and not results):
            return
        repair = "name each of them" if produced else "leave out what stands before it"
        given = f"{_counted(len(results))} {'is' if len(results) == 1 else 'are'}"
        span, name, counted = self.span(token), self.texts[token], _counted(produced)
        self.report(syntax.RESULTS.at(span, instruction=name, produced=counted, given=given, repair=repair))

    def led_by_hoisted(self, statement: Statement, found: list[Statement]) -> Statement:
        """Put the instructions that a statement needs before it; comments above it stand above them."""
        notes = statement.notes
        above = Notes(above=notes.above, blank=notes.blank)
        found.append(replace(self.hoisted[0], notes=above))
        found += self.hoisted[1:]
        self.hoisted.clear()
        return replace(statement, notes=Notes(behind=notes.behind))


def _types(instruction: Instruction) -> tuple[Type, ...]:
    """The types of the values that an instruction produces."""
    if isinstance(instruction, (For, If)):
        return instruction.types
    if isinstance(instruction, Alloca):
        return (instruction.type,)
    found: Type | None = getattr(instruction, "type", None)
    return () if found is None else (found,)


def _counted(number: int) -> str:
    return f"{number or 'no'} value{'s' * (number != 1)}"
