"""Hazards: accesses to the same bytes that nothing orders, proved on whole loops."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nem.resolved import Plan
from lamella.plan.feasible import Budget
from lamella.plan.hazards.accesses import Accesses
from lamella.plan.hazards.alias import Aliases
from lamella.plan.hazards.find import Finder, Found
from lamella.plan.hazards.hoist import find_hoistable
from lamella.plan.hazards.questions import Questions
from lamella.plan.hazards.reload import Reloads
from lamella.plan.hazards.report import report_hazards, report_hoistable, report_reloads, report_unproved
from lamella.plan.hazards.within import check_operands
from lamella.plan.hazards.writes import Writes
from lamella.plan.order import Order


def budget_of(limits: Limits) -> Budget:
    """The steps that all questions of one kind about a plan may take together, and each of them."""
    return Budget(limits.max_pairs // 20, limits.max_pairs // 100)


def find_hazards(plan: Plan, limits: Limits = DEFAULT) -> Found:
    """The pairs of tasks that race, each with one witness; reloads are not told apart here."""
    order = Order(plan)
    accesses = Accesses(order, budget_of(limits))
    finder = Finder(order, accesses, Questions(budget_of(limits)), limits.max_pairs)
    for site, unordered in order.sweep():
        finder.look_at(site, unordered)
    finder.look_across()
    return finder.found


def check_hazards(
    plan: Plan, order: Order, accesses: Accesses, limits: Limits = DEFAULT
) -> Iterator[Diagnostic]:
    """All findings about bytes that tasks share."""
    questions = Questions(budget_of(limits))
    yield from check_operands(accesses, questions)
    finder = Finder(order, accesses, questions, limits.max_pairs)
    aliases = Aliases(plan, order, accesses)
    for site, unordered in order.sweep():
        finder.look_at(site, unordered)
        aliases.look_at(site, unordered)
    finder.look_across()
    aliases.look_across()
    yield from aliases.findings()
    writes = Writes(access for touched in accesses.of for access in touched)
    reloads = Reloads(order, accesses, writes, finder.found)
    yield from report_hazards(reloads.errors)
    yield from report_unproved(finder.found)
    told: set[int] = set()
    for site, finding in report_reloads(reloads.reloads):
        told.add(site.index)
        yield finding
    for site, _ in find_hoistable(order, accesses):
        if site.index not in told:
            yield report_hoistable(site)
