"""The verifier: what is wrong with a file that could be read. Nothing of the file is executed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.gc import gc_paused
from lamella.lang.nac.check.data import (
    check_arrays,
    check_inputs,
    check_parameters,
    check_resources,
    check_tensors,
)
from lamella.lang.nac.check.instructions import check_instructions, check_training
from lamella.lang.nac.check.manifest import check_manifest
from lamella.lang.nac.check.memory.peak import PeakMemory, peak_bytes
from lamella.lang.nac.check.memory.schedule import check_schedule
from lamella.lang.nac.check.plan import check_plan
from lamella.lang.nac.check.tables import check_constants, check_operations, check_signatures, read_tables
from lamella.lang.nac.check.training import check_steps, read_entry
from lamella.lang.nac.nodes import File

__all__ = ["PeakMemory", "check", "peak_bytes"]


MOST_FINDINGS = 1000
"""Findings of one severity that each group of rules gives, however much is wrong."""


def check(file: File) -> list[Diagnostic]:
    """What is wrong or doubtful in a file, in the order of its bytes or of its text."""
    with gc_paused():
        return sort_findings(item for group in _groups(file) for item in _bounded(group))


def _groups(file: File) -> Iterator[Iterator[Diagnostic]]:
    tables = read_tables(file)
    yield check_operations(file, tables)
    yield check_signatures(file, tables)
    yield check_constants(file, tables)
    yield check_instructions(file, tables)
    yield check_training(file, tables)
    yield check_steps(file, tables)
    yield check_schedule(file)
    yield check_parameters(file, tables)
    yield check_inputs(file)
    yield check_tensors(file, tables)
    yield check_arrays(file)
    yield check_resources(file)
    yield iter(read_entry(file, check)[1])
    yield check_manifest(file)
    yield check_plan(file)


def _bounded(findings: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """The first findings of each severity; a file can be wrong in more places than there is memory for."""
    counts: Counter[str] = Counter()
    for item in findings:
        counts[item.severity] += 1
        if counts[item.severity] <= MOST_FINDINGS:
            yield item
