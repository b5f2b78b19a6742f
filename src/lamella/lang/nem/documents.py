"""A NEM document together with the files it includes: which devices and type families it sees."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from lamella.base.suggest import nearest
from lamella.lang.nem import rules
from lamella.lang.nem.device import FamilyVariant
from lamella.lang.nem.families import Variants, expand
from lamella.lang.nem.nodes import Broken, Device, Document, Include, Text, TypeFamily
from lamella.lang.nem.parse import ParsedNem, parse
from lamella.lang.nem.rules import UNKNOWN_DEVICE

# --- what a document sees: the devices and type families of its file and of the files it includes -----------


BASELINE = "nem_baseline_1.0.nem"
SHIPPED = MappingProxyType(
    {
        "nem_baseline_1_0": BASELINE,
        "npm_lite": "npm_lite.nem",
        "npm_mid": "npm_mid.nem",
        "npm_pro": "npm_pro.nem",
        "npm_pro_x1": "npm_pro.nem",
    }
)
"""The devices that come with the package, and their files."""
FILE_ALIASES = MappingProxyType({"npm_baseline_1.0.nem": BASELINE})
LONGEST_CYCLE = 8
DEVICE_ALIASES = MappingProxyType({"npm_baseline_1_0": "nem_baseline_1_0"})


@dataclass(frozen=True, slots=True)
class DeviceLibrary:
    """A document and what it sees."""

    document: Document
    source: Source
    declarations: tuple[TypeFamily | Device, ...]
    """Everything declared in the file and its includes, in the order of definition, each name once."""
    devices: Mapping[str, Device]
    families: Mapping[str, TypeFamily]
    """By name; the families of the baseline are always among them."""
    variants: Variants
    """The legal type combinations that the families stand for."""
    findings: tuple[Diagnostic, ...]
    """What was found while reading the files and the families."""
    broken: frozenset[str] = frozenset()
    """Names of declarations that could not be read; nothing more is said of them."""
    complete: bool = True
    """Whether every include was read, so that an unknown name is really unknown."""
    limits: Limits = DEFAULT
    wanted: str = ""
    """The device that the caller chose by name."""
    target: DeviceLibrary | None = None
    """The file that the caller or the program's directive names for its device."""

    def device(self, name: str) -> Device | None:
        """A visible device by its name or by the name it is also known by."""
        return self.devices.get(name) or self.devices.get(DEVICE_ALIASES.get(name, name))

    def may_know(self, name: str) -> bool:
        """Whether a name may be one of those that could not be read."""
        return not self.complete or name in self.broken

    @property
    def own_devices(self) -> tuple[Device, ...]:
        """The devices that the document itself declares."""
        return tuple(item for item in self.document.declarations if isinstance(item, Device))


def show_cycle(names: Sequence[str]) -> str:
    """`a -> b -> a`; the middle of a long cycle is left out."""
    cycle = [*names, names[0]]
    if len(cycle) > LONGEST_CYCLE:
        cycle = [*cycle[:3], f"… {len(cycle) - 6} more …", *cycle[-3:]]
    return " -> ".join(cycle)


def device_hint(device: str, known: Iterable[str]) -> str:
    """The known device that a misspelt name is close to."""
    close = nearest(device, list(known)[:1000])
    return f"did you mean '{close[0]}'?" if close else ""


# --- the files that a document consists of: found, read and parsed once each --------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class NemFile:
    """A parsed file, compared by identity; the path is canonical, None for a text that is no file."""

    path: Path | None
    root: Path
    source: Source
    parsed: ParsedNem


def read_file(path: Path, root: Path, limits: Limits) -> NemFile:
    """Read and parse a file that `locate` found; InputError where that is not possible."""
    source = Source(_name_of(path), read_included(root, path, limits))
    return NemFile(path, root, source, parse(source, limits))


def _name_of(path: Path) -> str:
    """How findings name a file; a shipped one has the same name on every machine."""
    return f"lamella/devices/{path.name}" if path.parent == shipped("devices") else shown(path)


@cache
def baseline_file() -> NemFile:
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


class FileCache:
    """The files read so far; the limit on their number holds for all of them together."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.files: dict[Path, NemFile] = {}
        self.failures = 0
        self.closed = False

    def has_room(self, path: Path | None) -> bool:
        """Whether a file is here already or may still be read; what could not be read counts as well."""
        return path in self.files or len(self.files) + self.failures < self.limits.max_includes

    def take(self, path: Path, root: Path) -> NemFile:
        """A file, read at most once."""
        if path not in self.files:
            builtin = baseline_file()
            self.files[path] = builtin if path == builtin.path else read_file(path, root, self.limits)
        return self.files[path]


# --- the walk over a document and its includes, without recursion: every file once, parents first -----------


LOST = re.compile(r"(include|device|type_family)\b")
"""How an unreadable statement begins that would have made names visible."""
Item = TypeVar("Item", TypeFamily, Device)


@cache
def baseline() -> DeviceLibrary:
    """The standard baseline: 13 type families and the abstract device that has every MUST variant."""
    return _read_all(FileCache(DEFAULT), baseline_file()).library({}, {})


def gather(cache: FileCache, main: NemFile) -> DeviceLibrary:
    """A document with everything it sees."""
    standard = baseline()
    return _read_all(cache, main).library(standard.families, standard.variants)


def _read_all(cache: FileCache, main: NemFile) -> _DocumentReading:
    reading = _DocumentReading(cache, main)
    reading.follow()
    return reading


class _DocumentReading:
    """One walk and what it has found so far."""

    def __init__(self, cache: FileCache, main: NemFile) -> None:
        self.cache = cache
        self.main = main
        self.open: dict[NemFile, None] = {}
        self.declarations: list[TypeFamily | Device] = []
        self.devices: dict[str, Device] = {}
        self.families: dict[str, TypeFamily] = {}
        self.variants: dict[str, tuple[FamilyVariant, ...]] = {}
        self.findings: list[Diagnostic] = []
        self.broken: set[str] = set()
        self.complete = True

    def library(
        self, families: Mapping[str, TypeFamily], variants: Mapping[str, tuple[FamilyVariant, ...]]
    ) -> DeviceLibrary:
        """The result; the given families are seen where the files declare none of the same name."""
        return DeviceLibrary(
            document=self.main.parsed.document,
            source=self.main.source,
            declarations=tuple(self.declarations),
            devices=MappingProxyType(self.devices),
            families=MappingProxyType({**families, **self.families}),
            variants=MappingProxyType({**variants, **self.variants}),
            findings=tuple(self.findings),
            broken=frozenset(self.broken),
            complete=self.complete,
            limits=self.cache.limits,
        )

    def follow(self) -> None:
        """Read the main file and all it includes; what a file includes is declared before the file itself."""
        done: set[NemFile] = set()
        # A stack of our own: a chain of includes may be as long as the limit on files.
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

    def _enter(self, file: NemFile) -> tuple[NemFile, Iterator[Include]]:
        self.open[file] = None
        return file, iter(file.parsed.document.includes)

    def take(self, file: NemFile, path: Text) -> NemFile | None:
        """The file that another one names; None, after one finding, where it cannot be had."""
        found = take_file(self.cache, file, path)
        # `open` keeps the order of the includes, so that the cycle can be shown.
        if isinstance(found, NemFile) and found in self.open:
            found = rules.INCLUDE_CYCLE.at(path.span, path=path.value, chain=self._cycle(found))
        if isinstance(found, NemFile):
            return found
        self.findings += [found] if found else []
        self.complete = False
        return None

    def _cycle(self, file: NemFile) -> str:
        """The files from one that is open to itself."""
        names = [item.source.name for item in self.open]
        return show_cycle(names[list(self.open).index(file) :])

    # --- declarations ---------------------------------------------------------------------------------------

    def _declare(self, file: NemFile) -> None:
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


def take_file(cache: FileCache, file: NemFile, path: Text) -> NemFile | Diagnostic | None:
    """The file that another one names, or the finding that says why not; None once the limit is reported."""
    if cache.closed:
        return None
    found = locate(path.value, file.path, file.root, cache.limits)
    place = None if isinstance(found, Refusal) else found[0]
    if not cache.has_room(place):
        cache.closed = True
        limit, what = cache.limits.max_includes, "the number of files of one program"
        return rules.LIMIT.at(path.span, what=what, limit=limit, option="max_includes")
    if isinstance(found, Refusal):
        return _refuse(cache, path, found)
    try:
        return cache.take(*found)
    except InputError as problem:
        return _refuse(cache, path, Refusal(f"cannot be read: {problem.message}", problem.hint))


def _refuse(cache: FileCache, path: Text, refusal: Refusal) -> Diagnostic:
    cache.failures += 1
    return rules.UNREADABLE_INCLUDE.at(path.span, path=path.value, cause=refusal.cause, hint=refusal.hint)


__all__ = ["SHIPPED", "DeviceLibrary", "baseline", "load"]


def load(
    source: Source,
    path: Path | None = None,
    limits: Limits = DEFAULT,
    root: Path | None = None,
    device: str | None = None,
) -> DeviceLibrary:
    """Read a document and its includes, which stay below the root: by default the folder of the document.

    `device` names the target and wins over the text: a device the document sees, a shipped one, or a file.
    """
    cache = FileCache(limits)
    main = _main_file(source, path, limits, root)
    if main.path is not None:
        cache.files[main.path] = main
    library = gather(cache, main)
    directive = library.document.device
    if device is not None:
        return _choose(library, cache, device)
    if directive is not None and isinstance(directive.target, Text):
        found = take_file(cache, main, directive.target)
        return _with_target(library, cache, found)
    return library


def _main_file(source: Source, path: Path | None, limits: Limits, root: Path | None) -> NemFile:
    place = path or STANDARD_INPUT
    parsed = parse(source, limits)
    canonical = None if place == STANDARD_INPUT else Path(os.path.realpath(place.parent)) / place.name
    return NemFile(canonical, root or default_root(place), source, parsed)


def _choose(library: DeviceLibrary, cache: FileCache, device: str) -> DeviceLibrary:
    """The library with the target that the caller names."""
    library = replace(library, wanted=device)
    if library.device(device) is not None:
        return library
    path = Path(device)
    file = SHIPPED.get(device, device)
    if file in SHIPPED.values() and not path.is_file():
        folder = shipped("devices")
        return _with_target(library, cache, cache.take(folder / file, folder))
    if not path.suffix and path.name == device and not path.is_file():
        listed = f"the shipped devices are {', '.join(SHIPPED)}; a file is named with its ending"
        hint = " ".join(filter(None, (device_hint(device, [*library.devices, *SHIPPED]), listed)))
        unknown = UNKNOWN_DEVICE.at(Span(library.source, 0, 0), name=device, hint=hint)
        return _with_target(library, cache, unknown)
    try:
        text = Source(shown(path), read_text(path, cache.limits))
    except InputError as problem:
        return replace(library, findings=(*library.findings, *problem.findings))
    return _with_target(library, cache, _main_file(text, path, cache.limits, None))


def _with_target(
    library: DeviceLibrary, cache: FileCache, found: NemFile | Diagnostic | None
) -> DeviceLibrary:
    """The library with the file of its device; the type families declared there are seen as well."""
    if not isinstance(found, NemFile):
        return replace(library, findings=(*library.findings, *([found] if found else [])))
    target = gather(cache, found)
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
