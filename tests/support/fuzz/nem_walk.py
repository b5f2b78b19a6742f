"""The whole road of a NEM text, every stage as a hostile user would walk it; the judges are outside the stages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from lamella.backend.npu import PlanExecutable, compile_plan
from lamella.backend.npu.stream import compile_stream
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError, errors, render
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.nem import parse, write
from lamella.lang.nem.resolved import Plan, Task
from lamella.pipeline.nem.program import Program, check_program
from lamella.plan.bind import bind
from lamella.plan.report import chrome_trace, summary
from lamella.plan.stcb import from_bytes, from_json, list_stream, to_bytes, to_json, verify_stream
from lamella.plan.timing import simulate
from lamella.plan.timing.cost import MachineModel, cost_of
from lamella.studio.page import plan_page

SMALL = Limits(
    max_total_bytes=1 << 20, max_expansion=2000, max_records=2000, max_pairs=20_000, max_statements=5000
)
MOST_WORK = 20_000_000
"""Multiplications and bytes that one run of a mutated program may take; more only says that NumPy is slow."""
NOT_PROVED = "NEM146"
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters and bidirectional overrides; newlines part our own lines."""


def walk(text: str, path: Path, device: str | None) -> set[str]:
    """Take a text down the road; which stages it reached. Anything but a finding is an exception."""
    try:
        program = check_program(Source(str(path), text), path, device, SMALL)
    except LamellaError as problem:
        judge_refusal(problem)
        return {"refused"}
    judge(program.findings)
    reached = {"checked"} | _rewrite(program.source)
    if program.plan is not None and not errors(program.findings):
        reached |= {"sound"}
        for stage in (_simulate, _bind, _execute):
            try:
                reached |= stage(program, program.plan)
            except LamellaError as problem:
                judge_refusal(problem)
    return reached


def judge(findings: Iterable[Diagnostic]) -> None:
    """Findings have places inside their sources, and can be shown in every form."""
    for finding in findings:
        for span in (finding.span, *(label.span for label in finding.labels)):
            assert 0 <= span.start <= span.end <= len(span.source.text), finding
        assert finding.message
        shown = render(finding)
        assert not RAW.search(shown), repr(shown)
        assert len(shown) < 20_000
        json.dumps(finding.to_json(), allow_nan=False).encode()


def judge_refusal(problem: LamellaError) -> None:
    """What is raised holds an error."""
    judge(problem.findings)
    assert errors(problem.findings)


def _rewrite(source: Source) -> set[str]:
    """The canonical text of what has no syntax error means the same and is its own canonical text."""
    document, findings = parse(source, SMALL)
    judge(findings)
    if errors(findings):
        return set()
    text = write(document)
    again, found = parse(Source("again", text), SMALL)
    assert not errors(found), render(errors(found)[0])
    assert again == document
    assert write(again) == text
    return {"written"}


def _simulate(program: Program, plan: Plan) -> set[str]:
    report = simulate(plan, SMALL)
    assert all(report.cycles >= bound.cycles for bound in report.bounds)
    json.dumps(report.to_json(instances=True), allow_nan=False)
    trace = json.dumps(chrome_trace(report, plan), allow_nan=False)
    assert json.loads(trace)["traceEvents"]
    for shown in (plan_page(report, plan), summary(report, plan)):
        assert not RAW.search(shown), repr(RAW.findall(shown))
    return {"simulated"}


def _bind(program: Program, plan: Plan) -> set[str]:
    """The stream is proved, and both its written forms give it back."""
    stream, findings = bind(plan, limits=SMALL)
    judge(findings)
    assert (stream is None) == bool(errors(findings))
    if stream is None:
        return set()
    assert not verify_stream(stream)
    assert from_bytes(to_bytes(stream)) == stream
    assert from_json(to_json(stream)) == stream
    assert not RAW.search("\n".join(list_stream(stream)))
    if _work(plan) <= MOST_WORK and _is_proved(program):
        _compare(_run(compile_plan(plan, limits=SMALL)), _run(compile_stream(stream, limits=SMALL)))
    return {"bound"}


def _execute(program: Program, plan: Plan) -> set[str]:
    """Another legal order gives the same bytes."""
    if _work(plan) > MOST_WORK:
        return {"heavy"}
    found = _run(compile_plan(plan, limits=SMALL))
    if found is not None and _is_proved(program):
        _compare(found, _run(compile_plan(plan, limits=SMALL, order="random")))
    return {"run"} if found else set()


def _run(executable: PlanExecutable) -> dict[str, Array] | None:
    """The outputs; None where the run ends with an error, which may depend on the order."""
    try:
        found = executable()
    except LamellaError as problem:
        judge_refusal(problem)
        return None
    judge(executable.findings)
    return found


def _compare(one: dict[str, Array] | None, two: dict[str, Array] | None) -> None:
    if one is None or two is None:
        assert one is two
        return
    assert one.keys() == two.keys()
    for name, array in one.items():
        assert np.array_equal(array.view(np.uint8), two[name].view(np.uint8)), name


def _is_proved(program: Program) -> bool:
    return not any(finding.code == NOT_PROVED for finding in program.findings)


def _work(plan: Plan) -> int:
    """What all instances ask of NumPy, coarsely."""
    return sum(
        _work_of(item) * math.prod(loop.trips for loop in around)
        for item, around in plan.walk()
        if isinstance(item, Task)
    )


def _work_of(task: Task) -> int:
    kind, macs = task.attributes.get("kernel_shape", ()), cost_of(task, MachineModel(None)).work
    windows = math.prod(kind) if isinstance(kind, tuple) else 1
    return windows * (macs + sum(region.extent for region in (*task.inputs, *task.outputs)))
