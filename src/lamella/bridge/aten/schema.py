"""The text in which ATen writes a schema, such as `aten::div.Scalar(Tensor self, Scalar other) -> Tensor`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lamella.bridge.aten.nodes import Parameter, Schema

_ALIAS = re.compile(r"\([a-z]!?(?: -> \*)?\)")
"""What a schema says about views and changes in place, which a graph has none of."""
_SCHEMA = re.compile(r"aten::(\w+)(?:\.(\w+))?\((.*)\) -> (.*)")
_PARAMETER = re.compile(r"(\S+) (\w+)(?:=(.*))?")


def parse_schema(text: str, operator: str) -> Schema:
    """The schema that a text says; ValueError where it is none."""
    match = _SCHEMA.fullmatch(_ALIAS.sub("", text))
    if match is None:
        raise ValueError(f"no schema: {text}")
    name = f"aten.{match[1]}.{match[2] or 'default'}"
    results = match[4][1:-1] if match[4].startswith("(") else match[4]
    kinds = tuple(item.split(" ")[0] for item in _split(results))
    return Schema(name, tuple(_parameters(match[3])), kinds, operator)


def _parameters(text: str) -> Iterator[Parameter]:
    keyword = False
    for item in _split(text):
        if item == "*":
            keyword = True
            continue
        match = _PARAMETER.fullmatch(item)
        if match is None:
            raise ValueError(f"no parameter: {item}")
        yield Parameter(match[2], match[1], match[3], keyword)


def _split(text: str) -> list[str]:
    """The items between commas that stand in no list."""
    return [item for item in re.split(r", (?![^\[]*\])", text) if item]
