"""A NEM document together with the files it includes: which devices and type families it sees."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from lamella.base.diagnostic import Diagnostic, Label, Rule
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import (
    STANDARD_INPUT,
    Refusal,
    default_root,
    read_included,
    read_text,
    resolve_include,
    shipped,
    shown,
)
from lamella.base.source import Source, Span
from lamella.lang.nem import rules
from lamella.lang.nem.device import FamilyVariant
from lamella.lang.nem.documents.library import (
    BASELINE,
    FILE_ALIASES,
    SHIPPED,
    Library,
    device_hint,
    show_circle,
)
from lamella.lang.nem.families import expand
from lamella.lang.nem.nodes import Broken, Device, Include, Text, TypeFamily
from lamella.lang.nem.parse import Parsed, parse
from lamella.lang.nem.rules import UNKNOWN_DEVICE

# --- the files that a document consists of: found, read and parsed once each --------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class File:
    """A parsed file, compared by identity; the path is canonical, None for a text that is no file."""

    path: Path | None
    root: Path
    source: Source
    parsed: Parsed


def read_file(path: Path, root: Path, limits: Limits) -> File:
    """Read and parse a file that `locate` found; InputError where that is not possible."""
    source = Source(_name_of(path), read_included(root, path, limits))
    return File(path, root, source, parse(source, limits))


def _name_of(path: Path) -> str:
    """How findings name a file; a shipped one has the same name on every machine."""
    return f"lamella/devices/{path.name}" if path.parent == shipped("devices") else shown(path)


@cache
def baseline_file() -> File:
    """The standard baseline as it comes with the package."""
    folder = shipped("devices")
    return read_file(folder / BASELINE, folder, DEFAULT)


def locate(text: str, including: Path | None, root: Path, limits: Limits) -> tuple[Path, Path] | Refusal:
    """The canonical path of a file that a document names and the root it lies below, or why it is refused.

    The baseline and the shipped device files are known by their bare names, where no file of that name stands
    beside the including one.
    """
    found = resolve_include(root, including or STANDARD_INPUT, text, limits)
    if isinstance(found, Path):
        return found, root
    name = FILE_ALIASES.get(text, text)
    beside = including.parent if including else root
    if name not in SHIPPED.values() or os.path.lexists(beside / text):
        return found
    folder = shipped("devices")
    return folder / name, folder


class Shelf:
    """The files read so far; the limit on their number holds for all of them together."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.files: dict[Path, File] = {}
        self.failures = 0
        self.closed = False

    def has_room(self, path: Path | None) -> bool:
        """Whether a file is here already or may still be read; what could not be read counts as well."""
        return path in self.files or len(self.files) + self.failures < self.limits.max_includes

    def take(self, path: Path, root: Path) -> File:
        """A file, read at most once."""
        if path not in self.files:
            builtin = baseline_file()
            self.files[path] = builtin if path == builtin.path else read_file(path, root, self.limits)
        return self.files[path]


# --- the walk over a document and its includes, without recursion: every file once, parents before ----------


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


__all__ = ["SHIPPED", "Library", "baseline", "load"]


def load(
    source: Source,
    path: Path | None = None,
    limits: Limits = DEFAULT,
    root: Path | None = None,
    device: str | None = None,
) -> Library:
    """Read a document and its includes, which stay below the root: by default the folder of the document.

    `device` names the target and wins over the text: a device the document sees, a shipped one, or a file.
    """
    shelf = Shelf(limits)
    main = _main_file(source, path, limits, root)
    if main.path is not None:
        shelf.files[main.path] = main
    library = gather(shelf, main)
    directive = library.document.device
    if device is not None:
        return _choose(library, shelf, device)
    if directive is not None and isinstance(directive.target, Text):
        found = take_file(shelf, main, directive.target)
        return _with_target(library, shelf, found)
    return library


def _main_file(source: Source, path: Path | None, limits: Limits, root: Path | None) -> File:
    place = path or STANDARD_INPUT
    parsed = parse(source, limits)
    canonical = None if place == STANDARD_INPUT else Path(os.path.realpath(place.parent)) / place.name
    return File(canonical, root or default_root(place), source, parsed)


def _choose(library: Library, shelf: Shelf, device: str) -> Library:
    """The library with the target that the caller names."""
    library = replace(library, wanted=device)
    if library.device(device) is not None:
        return library
    path = Path(device)
    file = SHIPPED.get(device, device)
    if file in SHIPPED.values() and not path.exists():
        folder = shipped("devices")
        return _with_target(library, shelf, shelf.take(folder / file, folder))
    if not path.suffix and path.name == device and not path.exists():
        listed = f"the shipped devices are {', '.join(SHIPPED)}; a file is named with its ending"
        hint = " ".join(filter(None, (device_hint(device, [*library.devices, *SHIPPED]), listed)))
        unknown = UNKNOWN_DEVICE.at(Span(library.source, 0, 0), name=device, hint=hint)
        return _with_target(library, shelf, unknown)
    try:
        text = Source(shown(path), read_text(path, shelf.limits))
    except InputError as problem:
        return replace(library, findings=(*library.findings, *problem.findings))
    return _with_target(library, shelf, _main_file(text, path, shelf.limits, None))


def _with_target(library: Library, shelf: Shelf, found: File | Diagnostic | None) -> Library:
    """The library with the file of its device; the type families declared there are seen as well."""
    if not isinstance(found, File):
        return replace(library, findings=(*library.findings, *([found] if found else [])))
    target = gather(shelf, found)
    own = {item.name.id for item in library.declarations if isinstance(item, TypeFamily)}
    families = {name: item for name, item in target.families.items() if name not in own}
    variants = {name: items for name, items in target.variants.items() if name not in own}
    return replace(
        library,
        target=target,
        families=MappingProxyType({**library.families, **families}),
        variants=MappingProxyType({**library.variants, **variants}),
        findings=tuple(dict.fromkeys((*library.findings, *target.findings))),
    )
