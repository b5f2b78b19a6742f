"""`lamella explain`: one rule, what it asks, and how it looks when it is broken."""

from __future__ import annotations

import re

import click

from lamella.base.diagnostic import Rule, printable
from lamella.base.errors import RULES as FILE_RULES
from lamella.base.paths import read_shipped
from lamella.base.suggest import nearest
from lamella.pipeline.languages import LANGUAGES, REGISTRY, bridge_rules

MOST_CODES = 3
"""Codes that are offered instead of one that no rule has."""


@click.command()
@click.argument("code")
def explain(code: str) -> None:
    """Explain the rule with this CODE, such as NEM140."""
    rule = find_rule(code.upper())
    if rule is None:
        known = ", ".join(sorted(LANGUAGES))
        meant = " or ".join(_close_codes(code.upper()))
        hint = f"did you mean {meant}? " if meant else ""
        shown = printable(code, 40)
        raise click.UsageError(f"'{shown}' is not a rule; {hint}`lamella rules` lists those of {known}")
    click.echo(_explanation(rule))


def _all_rules() -> list[Rule]:
    """The rules of all languages; faults of files have codes of their own, whatever the language."""
    return [*FILE_RULES, *(rule for name in LANGUAGES for rule in REGISTRY[name].rules())]


def find_rule(code: str) -> Rule | None:
    """The rule with a code; translations are loaded only for a code that no language has."""
    # The language whose name a code begins with comes first: the others need not be loaded then.
    names = sorted(LANGUAGES, key=lambda name: name[:3].upper() != code[:3])
    tables = (lambda: FILE_RULES, *(REGISTRY[name].rules for name in names), bridge_rules)
    return next((rule for table in tables for rule in table() if rule.code == code), None)


def _close_codes(code: str) -> list[str]:
    """Codes of rules that may be meant by one that no rule has: those that begin with it first."""
    known = [rule.code for rule in (*_all_rules(), *bridge_rules())]
    begun = [item for item in known if code and item.startswith(code)]
    # NEM0140 has a digit too many, and means 140; E4 has two too few.
    usual = re.sub(r"(?<=[A-Z])0*([0-9]{1,3})$", lambda match: match[1].zfill(3), code)
    meant = [item for item in known if item == usual]
    return (begun or list(dict.fromkeys([*meant, *nearest(code, known, MOST_CODES)])))[:MOST_CODES]


def _explanation(rule: Rule) -> str:
    """What a rule asks, with a wrong program and the right one where they are shipped."""
    parts = [f"{rule.code} ({rule.severity})", "", rule.sentence, f"specification: {rule.section}"]
    if rule.hint:
        parts.append(f"hint: {rule.hint}")
    wrong, _, right = _shipped_programs(rule.code).partition("\n--- right\n")
    for title, program in (("wrong:", wrong), ("right:", right)):
        if program:
            parts += ["", title, "", *(f"    {line}".rstrip() for line in program.splitlines())]
    return "\n".join(parts)


def _shipped_programs(code: str) -> str:
    """The programs of a rule, from the pages that `make docs` writes."""
    for name in LANGUAGES:
        for block in read_shipped(f"lang/{name}/wrong.txt").split("\n=== ")[1:]:
            head, _, body = block.partition("\n")
            if head.strip() == code:
                return body.strip("\n")
    return ""
