"""The table of ATen overloads that have an operator of ours, from `ops/tables/aten.txt`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from lamella.base.paths import read_shipped
from lamella.bridge.aten.nodes import AtenParameter, AtenSchema

# --- ATen's text of a schema: `aten::div.Scalar(Tensor self, Scalar other) -> Tensor` -----------------------


_ALIAS = re.compile(r"\([a-z]!?(?: -> \*)?\)")
"""What a schema says about views and changes in place, which a graph has none of."""
_SCHEMA = re.compile(r"aten::(\w+)(?:\.(\w+))?\((.*)\) -> (.*)")
_PARAMETER = re.compile(r"(\S+) (\w+)(?:=(.*))?")


def parse_schema(text: str, operator: str) -> AtenSchema:
    """The schema that a text says; ValueError where it is none."""
    match = _SCHEMA.fullmatch(_ALIAS.sub("", text))
    if match is None:
        raise ValueError(f"no schema: {text}")
    name = f"aten.{match[1]}.{match[2] or 'default'}"
    results = match[4][1:-1] if match[4].startswith("(") else match[4]
    kinds = tuple(item.split(" ")[0] for item in _split(results))
    return AtenSchema(name, tuple(_parameters(match[3])), kinds, operator)


def _parameters(text: str) -> Iterator[AtenParameter]:
    keyword = False
    for item in _split(text):
        if item == "*":
            keyword = True
            continue
        match = _PARAMETER.fullmatch(item)
        if match is None:
            raise ValueError(f"no parameter: {item}")
        yield AtenParameter(match[2], match[1], match[3], keyword)


def _split(text: str) -> list[str]:
    """The items between commas that stand in no list."""
    return [item for item in re.split(r", (?![^\[]*\])", text) if item]


TABLE = "ops/tables/aten.txt"
DROP, SIZE, REFUSE = "drop", "size", "refuse"
"""What stands in place of an operator: nothing is computed, a size is, or it cannot be said."""


@dataclass(frozen=True, slots=True)
class OverloadRow:
    """One line of the table: an overload, and the word for how its operands are fitted to the operator."""

    schema: AtenSchema
    how: str


@cache
def rows() -> Mapping[str, OverloadRow]:
    """All lines, by the names of the overloads, in their order."""
    return MappingProxyType({row.schema.name: row for row in _read()})


def _read() -> Iterator[OverloadRow]:
    for line in read_shipped(TABLE).splitlines():
        if not line.startswith("#"):
            operator, how, text = line.split(maxsplit=2)
            yield OverloadRow(parse_schema(text, operator), how)


FOREIGN = MappingProxyType({"transformers.grouped_mm_fallback.default": "aten._grouped_mm.default"})
"""Operations that other packages register, and the overloads of ATen that take the same and give the same."""


def find_row(operation: str) -> OverloadRow | None:
    """The line of an overload of ATen, or of what another package calls so."""
    return rows().get(FOREIGN.get(operation, operation))


@cache
def schemas() -> Mapping[str, AtenSchema]:
    """All overloads by their names, such as `aten.add.Tensor` and `aten.relu.default`."""
    return MappingProxyType({name: row.schema for name, row in rows().items()})


def find_schema(name: str) -> AtenSchema | None:
    """The overload of a name; `aten.relu` is `aten.relu.default`."""
    return schemas().get(name if name.count(".") > 1 else f"{name}.default")


def overloads(stem: str) -> tuple[AtenSchema, ...]:
    """All overloads of an operation, such as those of `aten.add`."""
    return _by_stem().get(stem, ())


@cache
def _by_stem() -> Mapping[str, tuple[AtenSchema, ...]]:
    found: dict[str, tuple[AtenSchema, ...]] = {}
    for name, schema in schemas().items():
        stem = name.rpartition(".")[0]
        found[stem] = (*found.get(stem, ()), schema)
    return MappingProxyType(found)


def calling(operator: str) -> tuple[OverloadRow, ...]:
    """The overloads that call an operator of ours, the one that we write first."""
    return _by_operator().get(operator, ())


@cache
def _by_operator() -> Mapping[str, tuple[OverloadRow, ...]]:
    found: dict[str, tuple[OverloadRow, ...]] = {}
    for row in rows().values():
        found[row.schema.operator] = (*found.get(row.schema.operator, ()), row)
    return MappingProxyType(found)
