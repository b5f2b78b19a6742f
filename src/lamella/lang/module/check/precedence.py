"""Which of several findings in one place is said."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from lamella.base.diagnostic import ERROR, Diagnostic

ORDER = (
    ("E001",),
    ("E009", "E023", "E024"),
    ("E002", "E014"),
    ("E012", "E011"),
    ("E026", "E027"),
    ("E016",),
    ("E003",),
    ("E017",),
    ("E007",),
    ("E004",),
    ("E015",),
    ("E013", "E008"),
    ("E005", "E006", "E018", "E019", "E020", "E021", "E022", "E025"),
)
"""Errors from the strongest to the weakest: what comes first explains what comes later."""
UNKNOWN = "E002"
NAMED = frozenset((UNKNOWN, "E005", "E006", "E010", "E011", "E012", "E014"))
"""Codes that say of a name that nothing declares it, or that something lacks it."""
_QUOTED = re.compile(r"'([^']+)'")
_RANKS = {code: rank for rank, codes in enumerate(ORDER) for code in codes}


def rank(finding: Diagnostic) -> int:
    """The place of a finding in the order; codes of our own come behind the published ones, warnings last."""
    if finding.severity != ERROR:
        return len(ORDER) + 1
    return _RANKS.get(finding.code, len(ORDER))


def is_of(finding: Diagnostic, names: Collection[str]) -> bool:
    """Whether a finding says of one of these names that nothing declares it, or that something lacks it."""
    return finding.code in NAMED and not set(_QUOTED.findall(finding.message)).isdisjoint(names)


def settle(findings: Iterable[Diagnostic], lost: Collection[str] = ()) -> list[Diagnostic]:
    """Of the errors in one place the strongest, each finding once.

    `lost` are names in lines that could not be read: that nothing declares them follows from that.
    """
    kept: dict[tuple[object, ...], Diagnostic] = {}
    for item in findings:
        if is_of(item, lost):
            continue
        place = (item.span.source.name, item.span.start, item.span.end)
        key = place if item.severity == ERROR else (*place, item.code)
        if key not in kept or rank(item) < rank(kept[key]):
            kept[key] = item
    return list(kept.values())
