"""The verifier of plans: what must hold of a program beyond the rules of its text."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NOWHERE
from lamella.lang.nem.resolved import Plan
from lamella.lang.nem.rules import LIMIT
from lamella.plan.bounds import check_bounds, check_resources
from lamella.plan.capacity import check_capacity
from lamella.plan.hazards import budget_of, check_hazards
from lamella.plan.hazards.accesses import Accesses
from lamella.plan.order import Order
from lamella.plan.tokens import check_tokens
from lamella.plan.unwritten import check_unwritten

# Sets of tasks are compared word by word: so many pairs of tasks cost about as much as one pair of accesses.
PAIRS_PER_STEP = 1 << 14


def verify(plan: Plan, limits: Limits = DEFAULT) -> list[Diagnostic]:
    """Capacity, live tokens, bounds, unit indices and hazards; only a plan that was read whole can be judged."""
    findings = [*check_capacity(plan), *check_tokens(plan), *check_unwritten(plan)]
    tasks = sum(1 for _ in plan.tasks())
    if tasks * tasks > limits.max_pairs * PAIRS_PER_STEP:
        span = next((task.span for task in plan.tasks()), NOWHERE)
        findings.append(
            LIMIT.at(span, what=f"comparing {tasks} tasks", limit=limits.max_pairs, option="max_pairs")
        )
        return sort_findings(findings)
    budget, order = budget_of(limits), Order(plan)
    accesses = Accesses(order, budget)
    findings += check_bounds(plan, accesses.suspects, budget)
    findings += check_resources(order, plan.device, budget)
    findings += check_hazards(plan, order, accesses, limits)
    return sort_findings(findings)
