"""A NEM document together with the files it includes: which devices and type families it sees."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import STANDARD_INPUT, default_root, read_text, shipped, shown
from lamella.base.source import Source, Span
from lamella.lang.nem.documents.files import File, Shelf
from lamella.lang.nem.documents.library import SHIPPED, Library, device_hint
from lamella.lang.nem.documents.reading import baseline, gather, take_file
from lamella.lang.nem.nodes import Text, TypeFamily
from lamella.lang.nem.parse import parse
from lamella.lang.nem.rules import UNKNOWN_DEVICE

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
