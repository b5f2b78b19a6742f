"""Every normative statement of NAC: code, place in the specification, sentence, repair."""

from __future__ import annotations

from lamella.base.diagnostic import Rule
from lamella.lang.nac.rules import (
    assembly,
    container,
    data,
    flow,
    instructions,
    planning,
    reading,
    roads,
    running,
    schedule,
    sections,
    tables,
    tokenizing,
    weights,
    writing,
)

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            rule
            for module in (
                container,
                tables,
                instructions,
                schedule,
                data,
                weights,
                sections,
                assembly,
                writing,
                roads,
                reading,
                running,
                tokenizing,
                flow,
                planning,
            )
            for rule in vars(module).values()
            if isinstance(rule, Rule)
        ),
        key=lambda rule: rule.code,
    )
)
"""All rules, by code."""
