"""Programs of the specification's chapters 2 and 3, statement by statement, with what the text demands of each."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.support.lang.skriptnd.conformance.cases import Case, cases, run, write

CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_program_does_what_the_text_demands(case: Case, tmp_path: Path) -> None:
    findings, outputs = run(case, write(tmp_path, case.text))
    assert [item.code for item in findings] == (case.word("expect") or "").split(), findings
    told = case.word("told")
    assert told is None or findings[0].message == told
    demanded = {name: json.loads(text) for name, text in case.assigned("output").items()}
    assert outputs.keys() == demanded.keys()
    for name, values in demanded.items():
        np.testing.assert_allclose(np.asarray(outputs[name], float), np.asarray(values, float), 1e-5, 1e-6)


def test_every_case_demands_something_and_has_a_name_of_its_own() -> None:
    assert all({"fine", "expect", "output"} & case.words.keys() for case in CASES)
    assert max(Counter(case.name for case in CASES).values()) == 1
