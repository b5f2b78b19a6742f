"""Write docs/rules and what `lamella explain` shows, from the rule tables and the wrong programs.

usage: generate.py [--check]     with --check nothing is written and stale pages are named
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "rules"
TITLES = {
    "module": "Module DSL",
    "skriptnd": "SkriptND",
    "nac": "NAC",
    "tensor": "the tensor language",
    "nem": "NEM",
}
EXPECT = re.compile(r"#\s*expect\s+((?:[A-Z]+\d{3}[ ,]*)+)")
LONGEST = 12


class Rule(Protocol):
    """What a page shows of a rule."""

    @property
    def code(self) -> str:
        """The number that findings carry."""

    @property
    def section(self) -> str:
        """The place in the specification."""

    @property
    def sentence(self) -> str:
        """What is wrong, with gaps for names and numbers."""

    @property
    def severity(self) -> str:
        """Whether it is an error, a warning or a note."""

    @property
    def hint(self) -> str:
        """The repair."""


def languages() -> list[str]:
    """The languages that have a rule table."""
    folder = ROOT / "src" / "lamella" / "lang"
    return [name for name in TITLES if list(folder.glob(f"{name}/rules*"))]


def rules(language: str) -> tuple[Rule, ...]:
    """The rule table of a language."""
    table: tuple[Rule, ...] = importlib.import_module(f"lamella.lang.{language}.rules").RULES
    return table


def expected(text: str) -> list[str]:
    """The codes that a wrong program says it triggers."""
    return [code for found in EXPECT.finditer(text) for code in re.findall(r"[A-Z]+\d{3}", found[1])]


def wrong_programs(language: str) -> dict[str, str]:
    """For each code the wrong program that shows it best: named after the code, else the shortest one."""
    shown: dict[str, tuple[bool, int, str]] = {}
    for path in sorted((ROOT / "tests" / "lang" / language / "bad").rglob("*")):
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for code in expected(text):
            candidate = (not path.name.upper().startswith(code), len(text), text)
            shown[code] = min(shown.get(code, candidate), candidate)
    return {code: text for code, (_, _, text) in shown.items()}


def page(language: str) -> str:
    """The page of one language."""
    table = rules(language)
    programs = wrong_programs(language)
    lines = [
        f"# Rules of {TITLES[language]}",
        "",
        f"{len(table)} rules, written here by `make docs`; `lamella explain CODE` prints one of them.",
        "",
        "| code | severity | section | sentence |",
        "|---|---|---|---|",
        *(row(rule, rule.code in programs) for rule in table),
    ]
    for rule in table:
        if rule.code in programs:
            lines += details(rule, programs[rule.code])
    return "\n".join(lines) + "\n"


def shipped_programs(language: str) -> str:
    """The wrong programs as `lamella explain` prints them: one block for each code."""
    programs = wrong_programs(language)
    blocks = [
        "\n".join([f"=== {rule.code}", *excerpt(programs[rule.code].rstrip().splitlines(), rule.code)])
        for rule in rules(language)
        if rule.code in programs
    ]
    return "\n".join(["Wrong programs, written here by `make docs`.", *blocks, ""])


def row(rule: Rule, linked: bool) -> str:
    """One rule as a row of the table."""
    code = f"[{rule.code}](#{rule.code.lower()})" if linked else rule.code
    return f"| {code} | {rule.severity} | {cell(rule.section)} | {cell(rule.sentence)} |"


def cell(text: str) -> str:
    """Text that stays inside one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def details(rule: Rule, program: str) -> Iterator[str]:
    """The hint of a rule and the wrong program that triggers it."""
    yield from ("", f"## {rule.code}", "")
    if rule.hint:
        yield from (f"Hint: {cell(rule.hint)}.", "")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", program)), default=0))
    yield from (f"{fence}text", *excerpt(program.rstrip().splitlines(), rule.code), fence)


def excerpt(lines: list[str], code: str) -> Iterable[str]:
    """A short program whole; of a long one, what stands around the expected finding."""
    clean = [
        "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)[:160] for line in lines
    ]
    if len(clean) <= LONGEST:
        return clean
    at = next((number for number, line in enumerate(clean) if code in expected(line)), 0)
    start = max(0, min(at - LONGEST // 2, len(clean) - LONGEST))
    return ["…"] * (start > 0) + clean[start : start + LONGEST] + ["…"] * (start + LONGEST < len(clean))


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check name those that are stale."""
    source = ROOT / "src" / "lamella" / "lang"
    pages = {PAGES / f"{name}.md": page(name) for name in languages()}
    pages |= {source / name / "wrong.txt": shipped_programs(name) for name in languages()}
    stale = [path for path, text in pages.items() if not path.is_file() or path.read_text("utf-8") != text]
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale; run: make docs")
        return int(bool(stale))
    PAGES.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(pages[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
