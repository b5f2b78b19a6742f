"""Every normative statement of SkriptND: code, place in the specification, sentence, repair."""

from __future__ import annotations

from lamella.base.diagnostic import Rule
from lamella.lang.skriptnd.rules import (
    aten,
    composition,
    data,
    exports,
    graphs,
    invocation,
    lowering,
    names,
    shapes,
    syntax,
    types,
)

RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            rule
            for module in (
                syntax,
                names,
                types,
                shapes,
                lowering,
                composition,
                invocation,
                graphs,
                data,
                aten,
                exports,
            )
            for rule in vars(module).values()
            if isinstance(rule, Rule)
        ),
        key=lambda rule: rule.code,
    )
)
"""All rules, by code."""
