"""Every rule of the Module DSL under its published code; our own additions begin at E100 and W100.

One code covers several situations: the first sentence of a code is the rule, those made from it with `also` are the
same rule said of another situation.
"""

from __future__ import annotations

from lamella.base.diagnostic import Rule
from lamella.lang.module.rules import (
    annotated,
    constants,
    gradients,
    graphs,
    inheritance,
    mappings,
    names,
    syntax,
)

_MODULES = (syntax, names, constants, inheritance, graphs, annotated, gradients, mappings)
_FIRST = {
    rule.code: rule
    for module in reversed(_MODULES)
    for rule in reversed(vars(module).values())
    if isinstance(rule, Rule)
}
RULES: tuple[Rule, ...] = tuple(_FIRST[code] for code in sorted(_FIRST))
"""All rules, by code."""
