"""The device that a program is meant for."""

from __future__ import annotations

from pathlib import PurePath

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Span
from lamella.lang.nem import rules
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.devices.inherit import include_hint
from lamella.lang.nem.devices.resolve import resolve_device
from lamella.lang.nem.documents.library import Library, device_hint
from lamella.lang.nem.nodes import Name

Target = tuple[ResolvedDevice | None, list[Diagnostic]]


def pick_target(library: Library) -> Target:
    """The target of a document, if it has one: the caller's choice, the directive, or the last inline device.

    Findings are those of the choice and of the device and its parents; what `load` told is not told again.
    """
    document, place = library.document, _place(library)
    if library.target is not None:
        return _pick_from_file(library.target, library.wanted, place)
    if library.wanted:
        return _pick(library, library.wanted, place)
    if document.device is not None:
        target = document.device.target
        return _pick_named(library, target) if isinstance(target, Name) else (None, [])
    own = library.own_devices
    if document.is_program and own:
        return _pick(library, own[-1].name.id, own[-1].name.span)
    return None, []


def _place(library: Library) -> Span:
    """Where the choice of the device stands; the start of the file for a choice from outside."""
    directive = library.document.device
    return Span(library.source, 0, 0) if directive is None or library.wanted else directive.target.span


def _pick_named(library: Library, name: Name) -> Target:
    if library.device(name.id) is None and not library.may_know(name.id):
        hint = device_hint(name.id, library.devices) or include_hint(name.id)
        return None, [rules.UNKNOWN_DEVICE.at(name.span, name=name.id, hint=hint)]
    return _pick(library, name.id, name.span)


def _pick_from_file(library: Library, wanted: str, place: Span) -> Target:
    """The named device of a file, else the only one, else the one that is named like the file."""
    own = [item.name.id for item in library.own_devices]
    stem = PurePath(library.source.name).stem
    chosen = next((name for name in (wanted, stem) if name in own), own[0] if len(own) == 1 else None)
    if chosen is not None:
        return _pick(library, chosen, place)
    if library.broken or not library.complete:
        return None, []
    path = library.source.name
    return None, [rules.AMBIGUOUS_DEVICE.at(place, path=path, count=len(own))]


def _pick(library: Library, name: str, place: Span) -> Target:
    device, findings = resolve_device(library, name)
    if device is not None and device.topology is None:
        return None, [*findings, rules.ABSTRACT_TARGET.at(place, name=name)]
    return device, findings
