"""Wrong programs say themselves what is wrong with them and how it is repaired; a repaired one has nothing wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from docs.generate import RIGHT, repaired
from tests.support.lang.nac.programs import expectations, findings_of, is_patched

PROGRAMS = sorted((Path(__file__).parent / "bad").glob("nac*.nacs"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_has_exactly_the_findings_it_announces(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    findings = findings_of(path.name, text)
    wanted = expectations(text)
    assert wanted
    if is_patched(text):
        codes = Counter(item.code for item in findings)
        assert codes == Counter(code for _, code in wanted.elements()), "\n".join(map(str, findings))
    else:
        found = Counter((item.span.line, item.code) for item in findings)
        assert found == wanted, "\n".join(map(str, findings))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_repaired_program_has_nothing_wrong(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert RIGHT.search(text)
    findings = findings_of(path.name, repaired(text))
    assert not findings, "\n".join(map(str, findings))
