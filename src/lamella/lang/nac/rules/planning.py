"""Plans of the orchestrator: what a verifier proves of them and what goes wrong while they run, NAC240 to NAC249."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

# Before a plan runs
CONSTANT_USE = Rule(
    "NAC240",
    "9 ORCH",
    "{name} at byte {offset} of the plan cannot use constant {id}: {problem}",
    hint="{repair}",
)
UNWRITTEN = Rule(
    "NAC241",
    "9 ORCH",
    "{name} at byte {offset} of the plan reads slot {slot}, which is not written on every way to it",
    hint="write the slot before the branch or the loop that may leave it empty",
)
RUN = Rule(
    "NAC242",
    "9 ORCH",
    "{name} at byte {offset} of the plan {problem}",
    hint="{repair}",
)
UNREACHED = Rule(
    "NAC243",
    "9 ORCH",
    "{name} at byte {offset} of the plan is never reached, and {count} behind it",
    WARNING,
    "remove what no way leads to",
)
UNBOUNDED = Rule(
    "NAC244",
    "9 ORCH",
    "{name} at byte {offset} of the plan {reason}, so that the number of its steps has no bound",
    NOTE,
    "a run ends at its budget of steps",
)

# While it runs
NOT_ALLOWED = Rule(
    "NAC245",
    "9 ORCH",
    "{name} at byte {offset} of the plan {action}, which is not allowed",
    hint="allow it with --allow {flag}",
)
FAULT = Rule(
    "NAC246",
    "9 ORCH",
    "{name} at byte {offset} of the plan {problem}",
    hint="{repair}",
)
BUDGET = Rule(
    "NAC247",
    "9 ORCH",
    "{name} at byte {offset} of the plan {problem}",
    hint="raise it with --limit {limit}=N",
)
REFUSED = Rule(
    "NAC248",
    "9 ORCH",
    "{name} at byte {offset} of the plan {problem}",
    hint="{repair}",
)
PATCH = Rule(
    "NAC249",
    "9 ORCH",
    "constant '{key}' of the plan cannot become {value}: {problem}",
    hint="{repair}",
)
