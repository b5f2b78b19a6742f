"""Fenced blocks of Markdown pages, and sessions of commands with their output."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

LINK = re.compile(r"\]\(([^()\s]+)\)")
OPEN = re.compile(r"^( *)(`{3,}|~{3,})\s*([^`]*)$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, the other words of its opening line, its text."""

    page: Path
    line: int
    language: str
    words: frozenset[str]
    text: str


@dataclass(slots=True)
class Command:
    """One command of a session and the lines that it is to print."""

    text: str
    output: list[str] = field(default_factory=list)


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found: list[Block] = []
    number = 0
    while number < len(lines):
        opened = OPEN.match(lines[number])
        if opened:
            start = number
            number = _closing(lines, start, opened[2])
            body = [line.removeprefix(opened[1]) for line in lines[start + 1 : number]]
            language, *words = opened[3].split() or [""]
            found.append(Block(page, start + 1, language, frozenset(words), "\n".join(body) + "\n"))
        number += 1
    return found


def _closing(lines: list[str], start: int, fence: str) -> int:
    for number in range(start + 1, len(lines)):
        text = lines[number].strip()
        if text.startswith(fence) and not text.strip(fence[0]):
            return number
    raise ValueError(f"the fence of line {start + 1} is not closed")


def links(page: Path) -> list[str]:
    """Where the links of a page lead, those to other sites left out."""
    text = re.sub(r"`+[^`]*`+", "", _without_blocks(page))
    return [target for target in LINK.findall(text) if "://" not in target]


@cache
def anchors(page: Path) -> set[str]:
    """The places of a page that a link can name: its headings, as Markdown sites spell them."""
    titles = re.findall(r"^#+ (.+)$", _without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _without_blocks(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^( *)(`{3,})[^`\n]*\n.*?^ *\2$", "", text, flags=re.MULTILINE | re.DOTALL)


def session(text: str) -> list[Command]:
    """The commands of a console block: `$ ` begins one, `> ` goes on with it, the rest is output."""
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:]))
        elif not commands:
            raise ValueError(f"a session begins with a command, not with {line!r}")
        elif line.startswith("> ") and not commands[-1].output:
            commands[-1].text += "\n" + line[2:]
        else:
            commands[-1].output.append(line)
    return commands


def matches(wanted: list[str], printed: list[str]) -> bool:
    """Whether lines are as wanted, where `...` stands for any lines and `…` for any text within one."""
    pattern = "".join(_pattern(line) for line in _without_edges(wanted))
    text = "".join(f"{line.rstrip()}\n" for line in _without_edges(printed))
    return re.fullmatch(pattern, text) is not None


def _pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:[^\n]*\n)*?"
    return "[^\n]*".join(re.escape(part) for part in line.rstrip().split("…")) + "\n"


def _without_edges(lines: list[str]) -> list[str]:
    """Empty lines at both ends are layout, not output."""
    return "\n".join(lines).rstrip().lstrip("\n").splitlines()
