"""The schemas of ONNX's operators, from `ops/tables/onnx_schemas.csv`: inputs, outputs and attributes by version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from lamella.base.paths import read_shipped
from lamella.bridge.onnx.nodes import MAIN_DOMAIN, AttributeKind

TABLE = "ops/tables/onnx_schemas.csv"
ANY = 1 << 31
"""As many as one likes."""
OLDEST, NEWEST = 7, 28
"""The versions of the main domain that are read."""
KNOWN_DOMAINS = (MAIN_DOMAIN, "com.microsoft")


@dataclass(frozen=True, slots=True)
class OperatorSchema:
    """An operator as it is from one version on: how many inputs and outputs, and its attributes by name."""

    domain: str
    name: str
    since: int
    is_deprecated: bool
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    options: str
    """One letter for each input: single, optional or variadic."""
    attributes: Mapping[str, AttributeKind]
    required: frozenset[str]


@cache
def _table() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The lines of each operator, oldest first; they are read when they are asked for."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in read_shipped(TABLE).splitlines()[1:]:
        domain, name, _ = line.split(",", 2)
        found.setdefault((domain, name), []).append(line)
    return MappingProxyType({key: tuple(lines) for key, lines in found.items()})


@cache
def schemas_of(domain: str, name: str) -> tuple[OperatorSchema, ...]:
    """All versions of an operator, oldest first; none where there is no such operator."""
    return tuple(_schema(line) for line in _table().get((domain, name), ()))


def find_schema(domain: str, name: str, version: int) -> OperatorSchema | None:
    """An operator as it is in a version of its domain."""
    return next((item for item in reversed(schemas_of(domain, name)) if item.since <= version), None)


def operator_names(domain: str) -> tuple[str, ...]:
    """Every operator of a domain."""
    return tuple(name for own, name in _table() if own == domain)


def _schema(line: str) -> OperatorSchema:
    domain, name, since, deprecated, *counts, options, attributes = line.split(",")
    least_in, most_in, least_out, most_out = (int(item) if item else ANY for item in counts)
    parts = [item.rstrip("!").split(":") for item in attributes.split()]
    return OperatorSchema(
        domain,
        name,
        int(since),
        deprecated == "1",
        (least_in, most_in),
        (least_out, most_out),
        options,
        MappingProxyType({key: AttributeKind[kind] for key, kind in parts}),
        frozenset(item.split(":")[0] for item in attributes.split() if item.endswith("!")),
    )
