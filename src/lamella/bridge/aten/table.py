"""The overloads of ATen that we can say, each with our operator, from `ops/tables/aten.txt`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from lamella.base.paths import read_shipped
from lamella.bridge.aten.nodes import Schema
from lamella.bridge.aten.schema import parse_schema

TABLE = "ops/tables/aten.txt"
DROP, SIZE, REFUSE = "drop", "size", "refuse"
"""What stands in place of an operator: nothing is computed, a size is, or it cannot be said."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: an overload, and the word for how its operands are fitted to the operator."""

    schema: Schema
    how: str


@cache
def rows() -> Mapping[str, Row]:
    """All lines, by the names of the overloads, in their order."""
    return MappingProxyType({row.schema.name: row for row in _read()})


def _read() -> Iterator[Row]:
    for line in read_shipped(TABLE).splitlines():
        if not line.startswith("#"):
            operator, how, text = line.split(maxsplit=2)
            yield Row(parse_schema(text, operator), how)


@cache
def schemas() -> Mapping[str, Schema]:
    """All overloads by their names, such as `aten.add.Tensor` and `aten.relu.default`."""
    return MappingProxyType({name: row.schema for name, row in rows().items()})


def find_schema(name: str) -> Schema | None:
    """The overload of a name; `aten.relu` is `aten.relu.default`."""
    return schemas().get(name if name.count(".") > 1 else f"{name}.default")


def overloads(stem: str) -> tuple[Schema, ...]:
    """All overloads of an operation, such as those of `aten.add`."""
    return _by_stem().get(stem, ())


@cache
def _by_stem() -> Mapping[str, tuple[Schema, ...]]:
    found: dict[str, tuple[Schema, ...]] = {}
    for name, schema in schemas().items():
        stem = name.rpartition(".")[0]
        found[stem] = (*found.get(stem, ()), schema)
    return MappingProxyType(found)


def calling(operator: str) -> tuple[Row, ...]:
    """The overloads that call an operator of ours, the one that we write first."""
    return _by_operator().get(operator, ())


@cache
def _by_operator() -> Mapping[str, tuple[Row, ...]]:
    found: dict[str, tuple[Row, ...]] = {}
    for row in rows().values():
        found[row.schema.operator] = (*found.get(row.schema.operator, ()), row)
    return MappingProxyType(found)
