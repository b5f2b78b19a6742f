"""Constants of plans are patched by id or by name, and keep their types."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.generate import repaired
from lamella.backend.mep import constant_names, patch_constants
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.lang.nac import parse, write
from lamella.lang.nac.nodes import File
from tests.support.backend.mep.fakes import assembled

BAD = Path(__file__).parents[2] / "lang" / "nac" / "bad"
POOL = 'EXEC_HALT()\n0 = 3\n1 = 0.5\n2 = true\n3 = "text"\n4 = [1, 2]\n5 = [0.5, 1.5]\n6 = null'
NOTES = '\n.resources\nlamella.json = text("{\\"format\\": 1, \\"plan\\": {\\"constants\\": {\\"max_tokens\\": 0}}}")'


def values(file: File) -> dict[int, object]:
    """The constants of a plan by id."""
    return {item.id: item.value for item in file.orchestrator.constants}


@pytest.mark.parametrize(
    ("key", "given", "wanted"),
    [
        ("0", "7", 7), ("0", 7, 7), ("0", "-9223372036854775808", -(2**63)), ("1", "7", 7.0), ("1", 2, 2.0),
        ("1", "1e3", 1000.0), ("2", "false", False), ("2", True, True), ("3", "", ""), ("3", "7", "7"),
        ("4", "5,6", (5, 6)), ("4", [7], (7,)), ("5", "0.25, 3", (0.25, 3.0)), ("5", (0.1,), (0.10000000149011612,)),
    ],
)  # fmt: skip
def test_patched(key: str, given: object, wanted: object) -> None:
    file = assembled(POOL)
    found = patch_constants(file, {key: given})
    assert values(found) == {**values(file), int(key): wanted}
    assert type(values(found)[int(key)]) is type(wanted)
    assert [item.type for item in found.orchestrator.constants] == [
        item.type for item in file.orchestrator.constants
    ]
    rewritten = parse(write(patch_constants(assembled(POOL, "1.6"), {key: given}))).file
    assert values(rewritten) == values(found)


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("0", "7.5"), ("0", 7.5), ("0", "9223372036854775808"), ("0", "many"), ("1", "half"), ("1", 10**400),
        ("2", "maybe"), ("3", 7), ("4", "1,a"), ("4", [1 << 40]), ("4", 3), ("5", "a"), ("6", "1"), ("7", "1"),
        ("tokens", "1"), ("-1", "1"), ("999999999999", "1"),
    ],
)  # fmt: skip
def test_what_does_not_fit(key: str, given: object) -> None:
    with pytest.raises(LamellaError) as caught:
        patch_constants(assembled(POOL), {key: given, "0": "1"} if key != "0" else {key: given})
    assert [item.code for item in caught.value.findings] == ["NAC249"]


def test_names_stand_in_the_notes() -> None:
    file = assembled(POOL + NOTES)
    assert constant_names(file) == {"max_tokens": 0}
    assert values(patch_constants(file, {"max_tokens": "64"}))[0] == 64
    assert patch_constants(file, {}) == file


@given(st.text('{}[]":,plancost01e', max_size=30))
def test_any_notes_name_something_or_nothing(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    constant_names(assembled(f'{POOL}\n.resources\nlamella.json = text("{escaped}")'))


def findings(text: str) -> list[Diagnostic]:
    """What is wrong with a program of constants and patches."""
    rows = [line for line in text.splitlines() if line and not line.startswith(";")]
    file = assembled("\n".join(["EXEC_HALT()", *(row for row in rows if not row.startswith("patch"))]))
    pairs = (row.partition(";")[0].split()[1:] for row in rows if row.startswith("patch"))
    try:
        patch_constants(file, {str(key): value for key, value in pairs})
    except LamellaError as problem:
        return list(problem.findings)
    return []


def test_the_wrong_program_and_its_repair() -> None:
    text = (BAD / "nac249_number.txt").read_text(encoding="utf-8")
    expected = re.findall(r"expect (NAC\d+)", text)
    assert [item.code for item in findings(re.sub(r"; right:.*\n", "", text))] == expected == ["NAC249"]
    assert findings(repaired(text)) == []
