"""What reading a file needs everywhere: its bytes, its findings, and a way to give a section up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.reader import Reader
from lamella.base.source import Binary, Span
from lamella.lang.nac.rules import container as rules

T = TypeVar("T")
MOST_FINDINGS = 1000
"""Findings of one rule, however often it is broken."""


class GivenUpError(Exception):
    """The rest of a section cannot be read; carries the finding to whoever reads the next section."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Reading:
    """A file while it is read: its bytes, the bounds that it must keep, and what is wrong with it."""

    __slots__ = ("_counts", "data", "findings", "limits", "source")

    def __init__(self, data: memoryview, name: str, limits: Limits) -> None:
        self.data = data
        self.source = Binary(name)
        self.limits = limits
        self.findings: list[Diagnostic] = []
        self._counts: Counter[str] = Counter()

    def span(self, start: int, end: int) -> Span:
        """A range of bytes."""
        return Span(self.source, start, end)

    def report(self, rule: Rule, start: int, end: int, **values: object) -> None:
        """A finding about a range of bytes; of each rule only the first ones are kept."""
        self._counts[rule.code] += 1
        if self._counts[rule.code] <= MOST_FINDINGS:
            self.findings.append(rule.at(self.span(start, end), hint=None, labels=(), **values))

    def report_stray(self, start: int, end: int, behind: str, repair: str = "") -> None:
        """Bytes between two sections belong to nothing, so there must be none."""
        if start < end:
            self.report(rules.STRAY_BYTES, start, end, count=end - start, section=behind, repair=repair)

    def keep_limit(self, option: str, value: int, what: str, start: int) -> None:
        """Give up where a number passes a limit."""
        problem = self.limits.excess(option, value, what)
        if problem:
            raise GivenUpError(rules.LIMIT.at(self.span(start, start), problem=problem, option=option))


class Section:
    """One section while it is read: no field reaches beyond its end."""

    __slots__ = ("reader", "reading", "tag")

    def __init__(self, reading: Reading, tag: str, reader: Reader) -> None:
        self.reading = reading
        self.tag = tag
        self.reader = reader

    @property
    def name(self) -> str:
        """The section as messages name it."""
        return self.tag.strip()

    def span(self, start: int) -> Span:
        """From a byte to where reading is now."""
        return self.reading.span(start, self.reader.position)

    def report(self, rule: Rule, start: int, **values: object) -> None:
        """A finding about what was read since a byte."""
        self.reading.report(rule, start, self.reader.position, **values)

    def give_up(self, rule: Rule, start: int, **values: object) -> GivenUpError:
        """The error that ends the section with a finding about what was read since a byte."""
        return GivenUpError(rule.at(self.span(start), hint=None, labels=(), **values))

    def counted(self, each: int, what: str) -> range:
        """As many numbers as the next 32 bits say, once it is certain that so many records can follow."""
        start = self.reader.position
        count = int.from_bytes(self.reader.take(4, f"the number of {what}"), "little")
        self.reader.count(count, each, what)
        self.reading.keep_limit("max_statements", count, f"the number of {what} in {self.name}", start)
        return range(count)

    def text(self, size: int, what: str) -> str:
        """UTF-8 of a given number of bytes; other bytes are a finding and shown as escapes."""
        start = self.reader.position
        data = bytes(self.reader.view(size, what))
        if 0 in data:
            self.report(rules.NOT_TEXT, start, what=what, problem="holds a NUL character")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as problem:
            self.report(rules.NOT_TEXT, start + problem.start, what=what, problem="is not UTF-8")
            return data.decode("utf-8", errors="backslashreplace")

    def finish(self, repair: str = "") -> None:
        """What lies behind the last record belongs to nothing."""
        self.reading.report_stray(self.reader.position, self.reader.end, self.name, repair)

    def close(self, problem: InputError) -> Diagnostic:
        """The finding of a field that reaches beyond the end of the section."""
        start = self.reader.position if problem.offset is None else problem.offset
        place = self.reading.span(start, self.reader.end)
        return rules.CUT_OFF.at(place, section=self.name, problem=problem.message, end=self.reader.end)


def collect(section: Section, records: Iterable[T], repair: str = "") -> list[T]:
    """The records of a section up to the first that cannot be read, which is a finding."""
    found: list[T] = []
    try:
        for record in records:
            found.append(record)
        section.finish(repair)
    except InputError as problem:
        section.reading.findings.append(section.close(problem))
    except GivenUpError as problem:
        section.reading.findings.append(problem.finding)
    return found
