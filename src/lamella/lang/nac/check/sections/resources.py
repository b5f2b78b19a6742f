"""Resources are named like files of one folder, each once on every system."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic, Label
from lamella.lang.nac.nodes import File, Resource
from lamella.lang.nac.rules import sections as rules

LONGEST = 255
"""Bytes of a file name that common systems take."""
_DEVICE = re.compile(r"(?:CON|PRN|AUX|NUL|COM[0-9¹²³]|LPT[0-9¹²³]|CONIN\$|CONOUT\$)(?:\..*)?", re.IGNORECASE)
_FORBIDDEN = frozenset('/\\:*?"<>|')


def check_resources(file: File) -> Iterator[Diagnostic]:
    """Names are safe to make files of, and stay apart where upper and lower case are one."""
    seen: dict[str, Resource] = {}
    for item in file.resources:
        reason = name_problem(item.name)
        if reason:
            yield rules.RESOURCE_NAME.at(item.span, name=item.name, reason=reason)
        first = seen.setdefault(unicodedata.normalize("NFC", item.name).casefold(), item)
        if first is not item:
            labels = [Label(first.span, "given here first")]
            yield rules.RESOURCE_TWICE.at(item.span, name=item.name, first=first.name, labels=labels)


def name_problem(name: str) -> str:
    """Why a name is not taken for a file, as the rest of a sentence; nothing where it is."""
    if not name.strip():
        return "has no name"
    if len(name.encode("utf-8", "surrogatepass")) > LONGEST:
        return f"has a name of more than {LONGEST} bytes"
    if not name.isprintable():
        return "has a control character in its name"
    if name in (".", "..") or not _FORBIDDEN.isdisjoint(name):
        return "is named like a path, or with a character that file names do not have"
    if name[-1] in ". " or name[0] == " ":
        return "has a name that begins with a space, or ends with a space or a dot"
    return "has the name of a device" if _DEVICE.fullmatch(name) else ""
