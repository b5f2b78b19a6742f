"""The language's own rules on a program: names, regions, placement, types, operands, shapes, attributes, memory."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.collector import collector_paused
from lamella.base.diagnostic import Diagnostic, Label, errors, sort_findings
from lamella.base.source import Span
from lamella.lang.tensor.check.functions import check_function
from lamella.lang.tensor.check.memory import check_memory
from lamella.lang.tensor.check.roles import cut_before, result_types
from lamella.lang.tensor.nodes import Function, Program
from lamella.lang.tensor.rules import values as rules

__all__ = ["check", "result_types"]


def check(program: Program, *, memory: bool = True) -> list[Diagnostic]:
    """What is wrong or doubtful in a program, in the order of the text.

    With `memory` the accesses of functions without errors are followed: bounds, races, aliases, what is read first.
    """
    findings = list(_check_names(program))
    with collector_paused():
        for function in program.functions:
            found = check_function(function)
            findings += found
            if memory and not errors(found):
                findings += check_memory(function)
    return sort_findings(findings)


def _check_names(program: Program) -> Iterator[Diagnostic]:
    first: dict[str, Span] = {}
    for function in program.functions:
        head = _head(function)
        if function.name in first:
            labels = [Label(first[function.name], "defined here first")]
            yield rules.FUNCTION_REDEFINED.at(head, name=function.name, labels=labels)
        first.setdefault(function.name, head)


def _head(function: Function) -> Span:
    """The place of a function's first line, where its name stands."""
    head = cut_before(function.span, function.body.span)
    text, newline = head.text, head.text.find("\n")
    return head if newline < 0 else Span(head.source, head.start, head.start + len(text[:newline].rstrip()))
