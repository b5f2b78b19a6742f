"""The lock file: which version or which text each import of a program led to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.source import Source, Span
from lamella.lang.module.resolve.nodes import Resolved, SourceUnit
from lamella.lang.module.rules import names as rules

FILE_NAME = "module.lock"
_DIGITS = 12
_SHOWN = 80
_HEAD = "# written by lamella: what the imports of this program lead to"
_ENTRY = re.compile(
    r"  ([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*): (v[0-9]{1,9}|local@[0-9a-f]{7,64})(?: +#.*)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Locked:
    """An entry of a lock file."""

    name: str
    found: str
    span: Span


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file as it was read."""

    entries: Mapping[str, Locked]
    findings: tuple[Diagnostic, ...] = ()


def write_lock(resolved: Resolved) -> str:
    """The lock file of a program."""
    entries = {use.path: _state(use.unit) for use in resolved.uses}
    lines = [f"  {name}: {state}" for name, state in sorted(entries.items())]
    return "\n".join([_HEAD, "version: 1", "resolved_modules:", *lines, ""])


def _state(unit: SourceUnit) -> str:
    """A file of the standard library by its version, another by its text."""
    return f"v{unit.version}" if unit.standard else f"local@{unit.digest[:_DIGITS]}"


def read_lock(source: Source) -> Lock:
    """The entries of a lock file; lines that are none are findings."""
    entries: dict[str, Locked] = {}
    findings: list[Diagnostic] = []
    lines = _lines(source)
    for wanted in ("version: 1", "resolved_modules:"):
        line, span = next(lines, ("", Span(source, 0, 0)))
        if line != wanted:
            return Lock({}, (_malformed(line, f"'{wanted}'", span),))
    for line, span in lines:
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            findings.append(_malformed(line, "'NAME: vN' or 'NAME: local@DIGEST'", span))
        elif entry[1] in entries:
            findings.append(_malformed(line, "another name", span))
        else:
            entries[entry[1]] = Locked(entry[1], entry[2], span)
    return Lock(entries, tuple(findings))


def _malformed(line: str, wanted: str, span: Span) -> Diagnostic:
    return rules.LOCK_FORM.at(span, text=line.strip()[:_SHOWN], wanted=wanted)


def _lines(source: Source) -> Iterator[tuple[str, Span]]:
    """The lines that say something."""
    start = 0
    for line in source.text.split("\n"):
        text = line.rstrip("\r ")
        if text and not text.lstrip().startswith("#"):
            yield text, Span(source, start, start + len(text))
        start += len(line) + 1


def check_lock(resolved: Resolved, lock: Lock) -> tuple[Diagnostic, ...]:
    """The imports that lead elsewhere than the lock file says, and what is wrong with the file itself."""
    findings = list(lock.findings)
    for use in resolved.uses:
        locked = lock.entries.get(use.path)
        if locked is not None and not _agrees(locked.found, use.unit):
            wanted = _state(use.unit)
            label = Label(use.span, "imported here")
            findings.append(
                rules.LOCK.at(locked.span, labels=[label], name=use.path, found=locked.found, wanted=wanted)
            )
    return tuple({item.span: item for item in reversed(findings)}.values())[::-1]


def _agrees(found: str, unit: SourceUnit) -> bool:
    digest = found.removeprefix("local@")
    return unit.digest.startswith(digest) and not unit.standard if digest != found else found == _state(unit)
