"""No operator without a judge, no assertion that is never broken."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lamella.lang.skriptnd.nodes import Assertion, Format, Operator, Text
from tests.support.judges.registry import operators, prefix_of, refusals, table, texts
from tests.support.lang.skriptnd.library import module


def test_every_operator_has_a_judge() -> None:
    assert [name for name, judges in table().items() if not judges] == []


def test_every_judged_operator_exists() -> None:
    assert set(table()) - set(operators()) == _judged_private()


def _judged_private() -> set[str]:
    """Private operators need no judge of their own, but may have one."""
    return {name for name in table() if "._" in name}


def _defined() -> Iterator[tuple[str, Operator]]:
    for path in texts():
        for operator in module(path).declarations:
            yield f"{prefix_of(path)}{path.stem}.{operator.name}", operator


def _said(assertion: Assertion) -> str:
    """What an assertion says, the values left out."""
    message = assertion.message
    if isinstance(message, Format):
        return "".join(part if isinstance(part, str) else "{}" for part in message.parts)
    return message.value if isinstance(message, Text) else ""


PUBLIC = [(name, operator) for name, operator in _defined() if not operator.name.startswith("_")]


@pytest.mark.parametrize(("name", "operator"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_every_assertion_is_broken_once(name: str, operator: Operator) -> None:
    fragments = [item.fragment for item in refusals() if item.operator == name]
    said = [_said(item) for item in operator.items("assert") if isinstance(item, Assertion)]
    assert "" not in said
    assert [text for text in said if not any(_covers(fragment, text) for fragment in fragments)] == []


def _covers(fragment: str, said: str) -> bool:
    """Whether a piece of a message belongs to an assertion; any number may be a value that was filled in."""
    return re.sub(r"\d+", "{}", fragment) in re.sub(r"\d+", "{}", said)
