"""`lamella bind`: lower a plan to a task-control stream."""

from __future__ import annotations

from pathlib import Path

import click

from lamella.base.diagnostic import LamellaError, errors, printable
from lamella.cli.options import command, file_argument, print_findings, print_json, without_notes
from lamella.cli.waiting import waiting
from lamella.pipeline.languages import is_stream
from lamella.pipeline.nem.files import need_program
from lamella.pipeline.nem.numbers import carry_numbers
from lamella.pipeline.nem.program import plan_of, read_checked
from lamella.pipeline.nem.streams import save_stream
from lamella.pipeline.options import Options
from lamella.plan.bind import bind as bind_plan


@command("bind")
@file_argument
def bind(file: Path, options: Options) -> None:
    """Bind FILE.nem to its device: addresses, units and token bits, written as STCB (binary or JSON by ending)."""
    output, limits = options.output or Path(), options.limits
    if not is_stream(output):
        raise click.UsageError("streams are written as .stcb (binary) or .json")
    need_program(file, options.language)
    with waiting(f"binding {printable(str(file))}"):
        program = read_checked(file, options.device, limits, options.root)
        stream, findings = bind_plan(plan_of(program), allow_future=options.allow_future, limits=limits)
    if stream is None:
        raise LamellaError(findings)
    carried = carry_numbers(file, output, limits)
    save_stream(stream, output)
    known = {(item.code, item.span) for item in program.findings}
    found = [*program.findings, *(item for item in findings if (item.code, item.span) not in known)]
    records = stream.count()
    if options.as_json:
        facts = {"device": stream.device, "records": records, "bits": stream.bits, "memory": stream.peaks()}
        written = {"output": str(output), "numbers": None if carried is None else str(carried)}
        diagnostics = [item.to_json() for item in found]
        print_json({"ok": not errors(findings), "diagnostics": diagnostics, **written, **facts})
        return
    print_findings(without_notes(found))
    engines = f"{len(stream.engines)} engine{'s' if len(stream.engines) > 1 else ''}"
    click.echo(
        f"{printable(str(output))}: {records} records on {engines} of {stream.device}, {stream.bits} token bits"
    )
    for level, used in sorted(stream.peaks().items()):
        click.echo(f"  {level:6} {used:>12,} bytes")
    if carried is not None:
        click.echo(f"{printable(str(carried))}: the numbers of {printable(file.name)}")
