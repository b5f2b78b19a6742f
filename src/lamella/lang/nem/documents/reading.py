"""The walk over a document and its includes, without recursion: every file once, parents before children."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import TypeVar

from lamella.base.diagnostic import Diagnostic, Label, Rule
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT
from lamella.base.paths import Refusal
from lamella.lang.nem import rules
from lamella.lang.nem.device import FamilyVariant
from lamella.lang.nem.documents.files import File, Shelf, baseline_file, locate
from lamella.lang.nem.documents.library import Library, show_circle
from lamella.lang.nem.families import expand
from lamella.lang.nem.nodes import Broken, Device, Include, Text, TypeFamily

LOST = re.compile(r"(include|device|type_family)\b")
"""How an unreadable statement begins that would have made names visible."""
Item = TypeVar("Item", TypeFamily, Device)


@cache
def baseline() -> Library:
    """The standard baseline: 13 type families and the abstract device that has every MUST variant."""
    return _read_all(Shelf(DEFAULT), baseline_file()).library({}, {})


def gather(shelf: Shelf, main: File) -> Library:
    """A document with everything it sees."""
    standard = baseline()
    return _read_all(shelf, main).library(standard.families, standard.variants)


def _read_all(shelf: Shelf, main: File) -> _Reading:
    reading = _Reading(shelf, main)
    reading.follow()
    return reading


class _Reading:
    """One walk and what it has found so far."""

    def __init__(self, shelf: Shelf, main: File) -> None:
        self.shelf = shelf
        self.main = main
        self.open: dict[File, None] = {}
        self.declarations: list[TypeFamily | Device] = []
        self.devices: dict[str, Device] = {}
        self.families: dict[str, TypeFamily] = {}
        self.variants: dict[str, tuple[FamilyVariant, ...]] = {}
        self.findings: list[Diagnostic] = []
        self.broken: set[str] = set()
        self.complete = True

    def library(
        self, families: Mapping[str, TypeFamily], variants: Mapping[str, tuple[FamilyVariant, ...]]
    ) -> Library:
        """The result; the given families are seen where the files declare none of the same name."""
        return Library(
            document=self.main.parsed.document,
            source=self.main.source,
            declarations=tuple(self.declarations),
            devices=MappingProxyType(self.devices),
            families=MappingProxyType({**families, **self.families}),
            variants=MappingProxyType({**variants, **self.variants}),
            findings=tuple(self.findings),
            broken=frozenset(self.broken),
            complete=self.complete,
            limits=self.shelf.limits,
        )

    def follow(self) -> None:
        """Read the main file and all it includes; what a file includes is declared before the file itself."""
        done: set[File] = set()
        stack = [self._enter(self.main)]
        while stack:
            file, includes = stack[-1]
            include = next(includes, None)
            if include is None:
                stack.pop()
                del self.open[file]
                done.add(file)
                self._declare(file)
                continue
            inner = self.take(file, include.path)
            if inner is not None and inner not in done:
                stack.append(self._enter(inner))

    def _enter(self, file: File) -> tuple[File, Iterator[Include]]:
        self.open[file] = None
        return file, iter(file.parsed.document.includes)

    def take(self, file: File, path: Text) -> File | None:
        """The file that another one names; None, after one finding, where it cannot be had."""
        found = take_file(self.shelf, file, path)
        if isinstance(found, File) and found in self.open:
            found = rules.INCLUDE_CYCLE.at(path.span, path=path.value, chain=self._circle(found))
        if isinstance(found, File):
            return found
        self.findings += [found] if found else []
        self.complete = False
        return None

    def _circle(self, file: File) -> str:
        """The files from one that is open to itself."""
        names = [item.source.name for item in self.open]
        return show_circle(names[list(self.open).index(file) :])

    # --- declarations ---------------------------------------------------------------------------------------

    def _declare(self, file: File) -> None:
        """Add what a file declares; its program, unless it is the main file's, is nobody's business."""
        self.findings += file.parsed.findings
        document = file.parsed.document
        if any(isinstance(item, Broken) and LOST.match(item.span.text) for item in document.statements):
            self.complete = False
        for item in document.declarations:
            if isinstance(item, Broken):
                self.broken.update(name.id for name in item.names)
                self.complete = self.complete and bool(item.names)
            elif isinstance(item, Device):
                self._add(self.devices, item, rules.DUPLICATE_DEVICE)
            elif self._add(self.families, item, rules.DUPLICATE_FAMILY):
                self._expand(item)

    def _add(self, known: dict[str, Item], item: Item, rule: Rule) -> bool:
        """Declare a name; the first of two definitions stays."""
        first = known.setdefault(item.name.id, item)
        if first is item:
            self.declarations.append(item)
            return True
        label = Label(first.name.span, "first defined here")
        self.findings.append(rule.at(item.name.span, name=item.name.id, labels=[label]))
        return False

    def _expand(self, family: TypeFamily) -> None:
        name = family.name.id
        self.variants[name], findings = expand(family)
        if findings:
            self.findings += findings
            self.broken.add(name)


def take_file(shelf: Shelf, file: File, path: Text) -> File | Diagnostic | None:
    """The file that another one names, or the finding that says why not; None once the limit is told."""
    if shelf.closed:
        return None
    found = locate(path.value, file.path, file.root, shelf.limits)
    place = None if isinstance(found, Refusal) else found[0]
    if not shelf.has_room(place):
        shelf.closed = True
        limit, what = shelf.limits.max_includes, "the number of files of one program"
        return rules.LIMIT.at(path.span, what=what, limit=limit, option="max_includes")
    if isinstance(found, Refusal):
        return _refuse(shelf, path, found)
    try:
        return shelf.take(*found)
    except InputError as problem:
        return _refuse(shelf, path, Refusal(f"cannot be read: {problem.message}", problem.hint))


def _refuse(shelf: Shelf, path: Text, refusal: Refusal) -> Diagnostic:
    shelf.failures += 1
    told = refusal.reason.removeprefix("cannot be read: ")
    cause = f"it {told}" if told == refusal.reason else told
    return rules.UNREADABLE_INCLUDE.at(path.span, path=path.value, cause=cause, hint=refusal.hint)
