"""Every normative statement of NAC: code, place in the specification, sentence, repair."""

from __future__ import annotations

from lamella.base.diagnostic import Rule
from lamella.lang.nac.rules import assembly, container, data, graphs, instructions, schedule, sections

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            rule
            for module in (container, instructions, schedule, data, sections, assembly, graphs)
            for rule in vars(module).values()
            if isinstance(rule, Rule)
        ),
        key=lambda rule: rule.code,
    )
)
"""All rules, by code."""
