"""How deep blocks stand inside each other: as the wrong program of NAC273 says, and as its right one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lamella.base.source import Source
from lamella.lang.nac import check
from lamella.lang.nac.assembly import assemble

WORDS = (Path(__file__).parent / "bad" / "nac273_deep.txt").read_text(encoding="utf-8")
LEVELS = [int(number) for number in re.findall(r"levels (\d+)", WORDS)]


def nested(levels: int) -> str:
    """A program of branches, each in the first block of the one before it."""
    lengths = [3 * (levels - level) - 2 for level in range(levels)]
    begins = [f"%b{level} = branch(%x, {length}, 1)" for level, length in enumerate(lengths)]
    ends = [f"%{word}{level} = suboutput(%x)" for level in range(levels) for word in ("s", "f")]
    return "\n".join(["nac 1.6", ".code", "%x = input()", *begins, *ends, "%z = output(%x)", ""])


@pytest.mark.parametrize(("levels", "codes"), [(LEVELS[0], {"NAC273"}), (LEVELS[1], set())])
def test_blocks_stand_inside_each_other_up_to_a_depth(levels: int, codes: set[str]) -> None:
    file, findings = assemble(Source("deep.nacs", nested(levels)), lambda name: b"")
    assert not findings
    found = {item.code for item in check(file)}
    assert found & {"NAC273"} == codes
