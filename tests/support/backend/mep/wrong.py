"""Wrong programs of plans: what the verifier finds, else what a run finds that may do nothing but train."""

from __future__ import annotations

from lamella.backend.mep import run_plan
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.lang.nac.check import check
from lamella.lang.nac.nodes import File
from tests.support.backend.mep.fakes import RecordingHost


def plan_findings(file: File) -> list[Diagnostic]:
    """What is wrong with a file, and with its plan while it runs."""
    found = check(file)
    if errors(found):
        return found
    try:
        run_plan(file, RecordingHost(), grants={"train"})
    except LamellaError as problem:
        found += problem.findings
    return found
