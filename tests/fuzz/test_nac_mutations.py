"""Mutated NAC files: any bytes give a file and clean findings, and what is found right can be written again."""

from __future__ import annotations

from collections import Counter

from lamella.base.diagnostic import Diagnostic, errors, render
from lamella.lang.nac import RULES, File, check, find_unwritable, parse, restate, write
from lamella.lang.nac.nodes import V1_6
from tests.fuzz.nac_mutate import mutants
from tests.lang.nac.containers import container, count, i16, long, short, u16
from tests.lang.nac.models import in_blocks, perceptron

SEED = 60
CODES = {rule.code for rule in RULES}


def newer() -> bytes:
    """A file of version 1.8 with a training graph and an array."""
    training = count(b"\2\4" + i16(1, 0), b"\3\3" + i16(1, 1) + i16(-1, -1), b"\3\4" + i16(-1))
    return container(
        {
            "OPS ": count(b"\2\0", b"\x14\1" + i16(-1, -1), b"\3\0" + i16(1, 0) + i16(-1)),
            "PERM": count(u16(1) + short(b"TT")),
            "TRNG": training,
            "ARRS": count(long(b"table") + bytes([0, 1, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]) + bytes(4)),
        },
        "1.8",
        bits=0x40,
        counts=(1, 1, 0),
    )


def assert_clean(finding: Diagnostic, size: int) -> None:
    """A finding has a known code, lies in its file and can be shown on a terminal."""
    assert finding.code in CODES
    assert finding.span.source.name == "mutant.nac"
    assert 0 <= finding.span.start <= finding.span.end <= size
    assert all(line.isprintable() for line in render(finding).split("\n"))


def judge(data: bytes) -> tuple[File, list[Diagnostic]]:
    """The file of some bytes with all its findings, which are clean."""
    file, findings = parse(data, "mutant.nac")
    found = [*findings, *check(file)] if len(data) >= 88 and file != File() else list(findings)
    for finding in found:
        assert_clean(finding, len(data))
    return file, found


def test_any_bytes_give_clean_findings(mutations: int) -> None:
    seen: Counter[str] = Counter()
    right = 0
    for data in mutants([write(perceptron()), write(in_blocks()), newer()], mutations, SEED):
        file, found = judge(data)
        seen.update(item.code for item in found)
        if errors(found):
            continue
        right += 1
        again = restate(file)
        if find_unwritable(again):
            assert file.training or file.arrays
            continue
        assert parse(write(again)).file == again
        if file.header.version == V1_6 and not found:
            assert write(parse(write(file)).file) == write(file)
    assert 0 < right < mutations
    assert len(seen) > 40, "mutations reach many rules"
