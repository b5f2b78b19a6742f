"""JSON read without trust: what Python reads we read, and a mistake has a place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.base.errors import InputError
from lamella.base.jsontext import parse_json
from lamella.base.source import Source

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_values_are_read_as_python_reads_them(value: object) -> None:
    assert parse_json(Source("a.json", json.dumps(value, indent=1))) == value


@settings(max_examples=50, deadline=None)
@given(VALUES, st.data())
def test_a_text_cut_anywhere_is_read_or_refused(value: object, data: st.DataObject) -> None:
    text = json.dumps([value, "end"])
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    with pytest.raises(InputError) as caught:
        parse_json(Source("a.json", cut))
    assert caught.value.findings[0].span.start <= len(cut)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ('{"a": 1,, }', 1, 9, "property name"),
        ('{\n "a": 1,\n "b" 2}', 3, 6, "':'"),
        ("[1, 2", 1, 6, "','"),
        ('{"a": 1, "b": {"c": 1,\n "c": 2}}', 2, 2, "has the key 'c' twice"),
        ("", 1, 1, "expecting value"),
        ("1 2", 1, 3, "extra data"),
        ("[" * 100_000, 1, 1, "nests more than 200"),
        ("[" * 300 + "]" * 300, 1, 1, "nests more than 200"),
        ("9" * 5000, 1, 1, "no JSON"),
    ],
)
def test_a_mistake_has_a_place(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_json(Source("a.json", text))
    (finding,) = caught.value.findings
    assert words in finding.message
    assert (finding.span.line, finding.span.column) == (line, column)
