"""The way of a NAC file through everything that only reads it: findings come out, and nothing else."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, errors, render
from lamella.base.source import Source
from lamella.lang.nac import (
    RULES,
    File,
    assemble,
    check,
    describe_schedule,
    disassemble,
    find_unwritable,
    parse,
    plan_memory,
    upgrade_version,
    write,
)
from lamella.lang.nac.listing import listing
from lamella.lang.nac.schedule import stored_sizes
from lamella.pipeline.nac.describe import describe_file, file_to_json
from lamella.pipeline.nac.model import Model
from lamella.pipeline.options import Options

CODES = {rule.code for rule in RULES}


def assert_clean(finding: Diagnostic, size: int) -> None:
    """A finding has a known code, lies in its file and can be shown on a terminal."""
    assert finding.code in CODES
    assert finding.span.source.name == "mutant.nac"
    assert 0 <= finding.span.start <= finding.span.end <= size
    assert all(line.isprintable() for line in render(finding).split("\n"))


def read(data: bytes) -> tuple[File, list[Diagnostic]]:
    """The file of some bytes with all its findings, which are clean."""
    file, findings = parse(data, "mutant.nac")
    found = [*findings, *check(file)]
    for finding in found:
        assert_clean(finding, len(data))
    return file, found


def walk(data: bytes) -> tuple[list[Diagnostic], bool]:
    """Read, check, show and, where nothing is wrong, write a file; what was found, and whether it was written."""
    file, found = read(data)
    _show(file)
    plan_memory(file)
    if errors(found):
        return found, False
    again = upgrade_version(file)
    describe_schedule(file, stored_sizes(file))
    if find_unwritable(again):
        assert file.training or file.arrays
        return found, False
    written = write(again)
    assert parse(written).file == again
    assert write(parse(written).file) == written
    assert write(assemble(Source("mutant.nacs", disassemble(again))).file) == written
    return found, True


def _show(file: File) -> None:
    """All that `show` and `fmt` print, which a terminal can take."""
    model = Model(Path("mutant.nac"), file, ())
    for text in (describe_file(model), listing(file), disassemble(file)):
        assert all(line.isprintable() for line in text.split("\n")), ascii(text)[:300]
    assert file_to_json(model, Options())["kind"] == "nac"
