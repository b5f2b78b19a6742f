"""`lamella explain`: one rule, what it asks, and how it looks when it is broken."""

from __future__ import annotations

import click

from lamella.pipeline.languages import LANGUAGES, explanation, find_rule


@click.command()
@click.argument("code")
def explain(code: str) -> None:
    """Explain the rule with this CODE, such as NEM140."""
    rule = find_rule(code.upper())
    if rule is None:
        known = ", ".join(sorted(LANGUAGES))
        raise click.UsageError(f"'{code}' is not a rule; `lamella rules` lists those of {known}")
    click.echo(explanation(rule))
