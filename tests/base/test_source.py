"""Places in texts and in bytes, as messages tell them."""

from __future__ import annotations

import pytest

from lamella.base.diagnostic import Label, Rule, render
from lamella.base.source import Binary, Source, Span

RULE = Rule("LAM999", "Files", "{what} is wrong", hint="repair it")


@pytest.mark.parametrize(("offset", "told"), [(0, "1:1"), (2, "1:3"), (3, "2:1"), (5, "3:1")])
def test_a_text_tells_lines_and_columns(offset: int, told: str) -> None:
    assert Source("a.nem", "ab\nc\nd").tell(offset) == told


def test_bytes_tell_offsets() -> None:
    source = Binary("model.nac")
    finding = RULE.at(
        Span(source, 340, 344), what="a count", labels=[Label(Span(source, 12, 20), "its slot")]
    )
    assert render(finding).split("\n") == [
        "model.nac:byte 340: error[LAM999]: a count is wrong",
        "  model.nac:byte 12: its slot",
        "  hint: repair it",
    ]
    told = finding.to_json()
    assert [told[key] for key in ("file", "line", "column", "end_line", "end_column")] == [
        *("model.nac", 1, 341, 1, 345),
    ]
