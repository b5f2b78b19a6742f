"""Hazards as findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.limits import hint_for
from lamella.lang.nem.rules import (
    HOISTABLE,
    IDEMPOTENT_RELOAD,
    NOT_PROVED,
    READ_AFTER_WRITE,
    WRITE_AFTER_READ,
    WRITE_AFTER_WRITE,
)
from lamella.plan.hazards.accesses import Access
from lamella.plan.hazards.find import Found, Hazard
from lamella.plan.hazards.words import IRREGULAR, TOO_MANY, show_bytes, show_iterations, window_hint
from lamella.plan.order import Site

_RULES = {"RAW": READ_AFTER_WRITE, "WAR": WRITE_AFTER_READ, "WAW": WRITE_AFTER_WRITE}
_ROLES = {"RAW": ("reader", "writer"), "WAR": ("writer", "reader"), "WAW": ("second", "first")}


def report_hazards(hazards: Iterable[Hazard]) -> Iterator[Diagnostic]:
    """One error for each pair of tasks."""
    told: dict[tuple[int, int], Hazard] = {}
    for hazard in hazards:
        known = told.setdefault(hazard.sites, hazard)
        if hazard.rank < known.rank:
            told[hazard.sites] = hazard
    return (_report_hazard(hazard) for hazard in told.values())


def _report_hazard(hazard: Hazard) -> Diagnostic:
    """An error at the later access, with the earlier one as a second place."""
    late, early = hazard.late, hazard.early
    roles = _ROLES[hazard.kind]
    names = {roles[0]: late.site.task.title, roles[1]: early.site.task.title}
    if late.site is early.site and hazard.kind == "WAW":
        names["first"] = "itself"
    later, earlier = (late.site, hazard.late_point), (early.site, hazard.early_point)
    return _RULES[hazard.kind].at(
        late.span,
        hint=window_hint(earlier, later),
        labels=() if early.span == late.span else [_label(early)],
        range=show_bytes(*hazard.range),
        buffer=late.footprint.buffer.name,
        iterations=show_iterations(later, earlier),
        **names,
    )


def report_reloads(reloads: list[Hazard]) -> Iterator[tuple[Site, Diagnostic]]:
    """One warning for each task that reloads, with the other side as a second place."""
    told: set[int] = set()
    for hazard in reloads:
        for access, other in ((hazard.late, hazard.early), (hazard.early, hazard.late)):
            if access.write and access.site.index not in told:
                told.add(access.site.index)
                yield access.site, _report_reload(access, other)


def _label(access: Access) -> Label:
    deed = "writes" if access.write else "reads"
    return Label(access.span, f"{access.site.task.title} {deed} it here")


def _report_reload(access: Access, other: Access) -> Diagnostic:
    labels = [] if other.site is access.site else [_label(other)]
    return IDEMPOTENT_RELOAD.at(
        access.span, labels=labels, task=access.site.task.title, buffer=access.footprint.buffer.name
    )


def report_unproved(found: Found) -> Iterator[Diagnostic]:
    """A warning for each pair that could not be decided and is no hazard otherwise, and where the search ended."""
    if found.stopped is not None:
        name = found.stopped.footprint.buffer.name
        what = f"the order of all accesses to '{name}'"
        yield NOT_PROVED.at(found.stopped.span, hint=hint_for("max_pairs"), what=what, cause=TOO_MANY)
    wrong = {hazard.sites for hazard in found.hazards.values()}
    told: set[tuple[int, int]] = set()
    for early, late in found.unproved.values():
        sites = early.site.index, late.site.index
        pair = min(sites), max(sites)
        if pair not in wrong and pair not in told:
            told.add(pair)
            yield _report_unproved(early, late)


def _report_unproved(early: Access, late: Access) -> Diagnostic:
    first, second = early.site.task.title, late.site.task.title
    what = f"the order of {first} and {second} on '{late.footprint.buffer.name}'"
    labels = [] if early.span == late.span else [Label(early.span, f"{first} is here")]
    return NOT_PROVED.at(late.span, hint=hint_for("max_pairs"), labels=labels, what=what, cause=IRREGULAR)


def report_hoistable(site: Site) -> Diagnostic:
    """A note at the task."""
    return HOISTABLE.at(site.task.span, task=site.task.title)
