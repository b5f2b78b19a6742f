"""Write what tables hold: docs/rules, docs/operators, docs/standard, what `lamella explain` shows, options of the API.

A wrong program marks its mistakes with `# expect CODE`, and repairs them: lines `# right: TEXT` below a line
stand in its place, and `# right:` without text removes it.

usage: python -m docs.generate [--check]     with --check nothing is written and stale pages are named
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from docs.generate_gradients import gradient_table
from docs.generate_operators import operator_pages
from docs.generate_options import FILE as OPTIONS
from docs.generate_options import options_module
from docs.generate_standard import standard_pages
from docs.markdown import cell, fenced
from lamella.base.limits import DEFAULT
from lamella.base.paths import Mapped
from lamella.base.source import Source
from lamella.lang.nac import assemble, parse, write
from lamella.pipeline.nac.describe import byte_map
from lamella.pipeline.nac.model import Model

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "rules"
TITLES = {
    "module": "Module DSL",
    "skriptnd": "SkriptND",
    "nac": "NAC",
    "tensor": "the tensor language",
    "nem": "NEM",
}
MARKER = re.compile(r"[ \t]*[#;][ \t]*expect[ \t]+((?:[A-Z]+\d{3}[ ,]*)+)")
RIGHT = re.compile(r"^([ \t]*)[#;] right: ?(.*)\n", re.MULTILINE)
REPAIR = re.compile(r"^.*\n((?:[ \t]*[#;] right:.*\n)+)", re.MULTILINE)
LONGEST = 16
WIDEST = 160


@dataclass(frozen=True, slots=True)
class Example:
    """A wrong program and, where it says how, what it is when it is repaired."""

    wrong: list[str]
    right: list[str]


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
    return [code for found in MARKER.finditer(text) for code in re.findall(r"[A-Z]+\d{3}", found[1])]


def repaired(text: str) -> str:
    """A wrong program with its right lines in place of the wrong ones."""

    def right_lines(found: re.Match[str]) -> str:
        return "".join(f"{indent}{line}\n" for indent, line in RIGHT.findall(found[1]) if line)

    return MARKER.sub("", REPAIR.sub(right_lines, text))


def example(text: str, code: str) -> Example:
    """What is shown of a wrong program; remarks that stay the same are not repeated in the right one."""
    wrong = MARKER.sub(_pointer, RIGHT.sub("", text)).rstrip().splitlines()
    right = repaired(text).rstrip().splitlines() if RIGHT.search(text) else []
    remarks = {line for line in wrong if line.startswith(("#", ";"))}
    return Example(excerpt(printable(wrong), code), printable(line for line in right if line not in remarks))


def _pointer(found: re.Match[str]) -> str:
    """What is shown in place of a marker, as a comment of the same language."""
    return f"  {found[0].lstrip()[0]} <- {found[1]}"


def examples(language: str) -> dict[str, Example]:
    """For each code the program that shows it best: repaired, named after the code, short."""
    shown: dict[str, tuple[bool, bool, int, str]] = {}
    for path in sorted((ROOT / "tests" / "lang" / language / "bad").rglob("*")):
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for code in expected(text):
            named = path.name.upper().startswith(code)
            candidate = (not RIGHT.search(text), not named, len(text), text)
            shown[code] = min(shown.get(code, candidate), candidate)
    return {code: example(text, code) for code, (*_, text) in shown.items()}


def page(language: str) -> str:
    """The page of one language."""
    table = rules(language)
    programs = examples(language)
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
    """The programs as `lamella explain` prints them: one block for each code, wrong and then right."""
    programs = examples(language)
    lines = ["Wrong programs and right ones, written here by `make docs`."]
    for code in (rule.code for rule in rules(language) if rule.code in programs):
        lines += [f"=== {code}", *programs[code].wrong]
        lines += ["--- right", *programs[code].right] if programs[code].right else []
    return "\n".join([*lines, ""])


def row(rule: Rule, linked: bool) -> str:
    """One rule as a row of the table."""
    code = f"[{rule.code}](#{rule.code.lower()})" if linked else rule.code
    return f"| {code} | {rule.severity} | {cell(rule.section)} | {cell(rule.sentence)} |"


def details(rule: Rule, program: Example) -> Iterator[str]:
    """The hint of a rule, a wrong program that triggers it and the right one."""
    yield from ("", f"## {rule.code}", "")
    if rule.hint:
        yield from (f"Hint: {cell(rule.hint)}.", "")
    yield from ("Wrong:", "", *fenced(program.wrong))
    if program.right:
        yield from ("", "Right:", "", *fenced(program.right))


def printable(lines: Iterable[str]) -> list[str]:
    """Lines without control characters and without endless width."""
    return [
        "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)[:WIDEST]
        for line in lines
    ]


def excerpt(lines: list[str], code: str) -> list[str]:
    """A short program whole; of a long one, what stands around the finding."""
    if len(lines) <= LONGEST:
        return lines
    at = next((number for number, line in enumerate(lines) if code in line), 0)
    start = max(0, min(at - LONGEST // 2, len(lines) - LONGEST))
    return ["…"] * (start > 0) + lines[start : start + LONGEST] + ["…"] * (start + LONGEST < len(lines))


def nac_picture() -> str:
    """The bytes of an example file."""
    source = Source("xor.nacs", (ROOT / "examples" / "nac" / "xor.nacs").read_text("utf-8"))
    data = write(assemble(source, lambda name: b"", DEFAULT)[0])
    mapped = Mapped(Path("xor.nac"), data)
    return byte_map(Model(Path("xor.nac"), parse(mapped.data, "xor.nac", DEFAULT)[0], (), mapped))


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check name those that are stale."""
    source = ROOT / "src" / "lamella" / "lang"
    pages = {PAGES / f"{name}.md": page(name) for name in languages()}
    pages |= {source / name / "wrong.txt": shipped_programs(name) for name in languages()}
    pages |= {ROOT / "docs" / "operators" / name: text for name, text in operator_pages().items()}
    pages |= {ROOT / "docs" / "standard" / name: text for name, text in standard_pages().items()}
    pages[ROOT / "docs" / "images" / "nac-bytes.svg"] = nac_picture()
    pages[ROOT / "docs" / "gradients.csv"] = gradient_table()
    pages[OPTIONS] = options_module()
    stale = [path for path, text in pages.items() if not path.is_file() or path.read_text("utf-8") != text]
    if arguments == ["--check"]:
        # Pages that nobody ships are not kept in the repository: they are written where somebody wants to read them.
        unkept = [ROOT / "docs" / name for name in ("rules", "operators", "standard")]
        stale = [path for path in stale if path.parent not in unkept]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale; run: make docs")
        return int(bool(stale))
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
