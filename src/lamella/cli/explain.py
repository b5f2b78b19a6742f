"""`lamella explain`: one rule, what it asks, and how it looks when it is broken."""

from __future__ import annotations

import click

from lamella.base.diagnostic import printable
from lamella.pipeline.languages import LANGUAGES
from lamella.pipeline.rules import close_codes, explanation, find_rule


@click.command()
@click.argument("code")
def explain(code: str) -> None:
    """Explain the rule with this CODE, such as NEM140."""
    rule = find_rule(code.upper())
    if rule is None:
        known = ", ".join(sorted(LANGUAGES))
        meant = " or ".join(close_codes(code.upper()))
        hint = f"did you mean {meant}? " if meant else ""
        shown = printable(code, 40)
        raise click.UsageError(f"'{shown}' is not a rule; {hint}`lamella rules` lists those of {known}")
    click.echo(explanation(rule))
