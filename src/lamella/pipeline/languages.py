"""The languages by name and file ending, with their rules."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Rule
from lamella.base.errors import RULES as FILE_RULES
from lamella.base.errors import InputError
from lamella.base.paths import read_shipped
from lamella.lang.nem.rules import RULES as NEM_RULES

LANGUAGES = {"nem": ".nem"}
STREAM_ENDINGS = (".stcb", ".json")


def language_of(path: Path, language: str | None) -> str:
    """The language of a file: as the user says, else by its ending."""
    name = language or path.suffix.removeprefix(".").lower()
    if str(path) == "-" and language is None:
        raise InputError("standard input has no ending", hint="say --language nem")
    if language is None and is_stream(path):
        hint = "streams are checked, shown and run; programs in .nem are simulated, bound and formatted"
        raise InputError(f"'{path.name}' is a bound stream, not a program", path=path, hint=hint)
    if name not in LANGUAGES:
        known = ", ".join(LANGUAGES.values())
        raise InputError(
            f"cannot tell the language of '{path}'", path=path, hint=f"known endings are {known}"
        )
    return name


def is_stream(path: Path) -> bool:
    """Whether a file is a task-control stream, by its ending."""
    return path.suffix.lower() in STREAM_ENDINGS


def rules_of(language: str) -> tuple[Rule, ...]:
    """The rules of a language, in order."""
    return {"nem": NEM_RULES}[language]


def find_rule(code: str) -> Rule | None:
    """The rule with a code; faults of files have codes of their own, whatever the language."""
    known = [*FILE_RULES, *(rule for name in LANGUAGES for rule in rules_of(name))]
    return next((rule for rule in known if rule.code == code), None)


def explanation(rule: Rule) -> str:
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
    """The programs of a rule, from the page that `make docs` writes."""
    for block in read_shipped("lang/nem/wrong.txt").split("\n=== ")[1:]:
        head, _, body = block.partition("\n")
        if head.strip() == code:
            return body.strip("\n")
    return ""
