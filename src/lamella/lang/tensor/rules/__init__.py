"""Every normative statement of the tensor language: code, place in the specification, sentence, repair."""

from __future__ import annotations

from lamella.base.diagnostic import Rule
from lamella.lang.tensor.rules import (
    instructions,
    memory,
    running,
    syntax,
    types,
    values,
)

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            rule
            for module in (syntax, types, values, instructions, memory, running)
            for rule in vars(module).values()
            if isinstance(rule, Rule)
        ),
        key=lambda rule: rule.code,
    )
)
"""All rules, by code."""
