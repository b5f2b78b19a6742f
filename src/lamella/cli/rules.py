"""`lamella rules`: list the rules of a language."""

from __future__ import annotations

import click

from lamella.cli.options import Words, command, print_json
from lamella.pipeline.languages import LANGUAGES, REGISTRY
from lamella.pipeline.options import Options


@command("rules")
@click.argument("language", type=Words(sorted(LANGUAGES)), required=False)
def rules(language: str | None, options: Options) -> None:
    """List the numbered rules of a language, or of all."""
    found = [
        rule for name in ([language] if language else sorted(LANGUAGES)) for rule in REGISTRY[name].rules()
    ]
    if options.as_json:
        keys = ("code", "severity", "section", "sentence", "hint")
        print_json({"rules": [{key: getattr(rule, key) for key in keys} for rule in found]})
        return
    for rule in found:
        click.echo(f"{rule.code}  {rule.severity:7}  {rule.sentence}")
