"""The opcode registry is complete, and agrees with the baseline and the words of the language."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import pytest

from lamella.base.paths import read_shipped
from lamella.lang.nem.documents import baseline
from lamella.lang.nem.registry import Opcode, load_registry, opcode
from lamella.lang.nem.words import ELEMENTS, UNITS

Json: TypeAlias = Any  # whatever json.loads gives
FILE = "lang/nem/opcodes.json"
SCHEMA = "lang/nem/opcodes.schema.json"
KINDS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        **{"object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,)},
        **{"integer": (int,), "number": (int, float)},
    }
)
NAMES = tuple(load_registry())


def entry(name: str) -> Json:
    return json.loads(read_shipped(FILE))["opcodes"][name]


def violations(value: Json, schema: Json, known: Json, place: str = "") -> Iterator[str]:
    """The places of a value that break a schema; of JSON Schema as much as ours uses."""
    if "$ref" in schema:
        schema = known[schema["$ref"].removeprefix("#/$defs/")]
    if "enum" in schema and value not in schema["enum"]:
        yield place
    if "type" in schema and type(value) not in KINDS[schema["type"]]:
        yield place
    elif isinstance(value, list):
        yield from [place] if len(value) < schema.get("minItems", 0) else []
        for number, item in enumerate(value):
            yield from violations(item, schema["items"], known, f"{place}/{number}")
    elif isinstance(value, dict):
        yield from (place for name in schema.get("required", ()) if name not in value)
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, schema["additionalProperties"])
            yield from [place] if inner is False else violations(item, inner, known, f"{place}/{name}")


def test_there_are_49_opcodes_41_stable_and_8_future() -> None:
    assert Counter(item.status for item in load_registry().values()) == {"stable": 41, "future": 8}
    future = {name for name, item in load_registry().items() if item.hardware == "future"}
    reductions = {"reduce_sum", "reduce_max", "reduce_min", "argmax", "argmin"}
    assert future == reductions | {"conv1d", "conv3d", "depthwise_conv2d"}
    assert future == {name for name, item in load_registry().items() if item.status == "future"}


def test_the_registry_keeps_its_schema() -> None:
    schema = json.loads(read_shipped(SCHEMA))
    assert not list(violations(json.loads(read_shipped(FILE)), schema, schema["$defs"]))


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('"hardware": "supported"', '"hardware": "planned"', "/opcodes/transfer/hardware"),
        ('"optional": false', '"optional": 0', "/opcodes/transfer/inputs/0/optional"),
        ('"families": []', '"family": []', "/opcodes/transfer"),
        ('"type": "elem_type"', '"type": "element"', "/opcodes/gemm/attributes/accum_type/type"),
    ],
)
def test_the_schema_refuses_what_it_should(old: str, new: str, where: str) -> None:
    schema = json.loads(read_shipped(SCHEMA))
    wrong = json.loads(read_shipped(FILE).replace(old, new, 1))
    assert set(violations(wrong, schema, schema["$defs"])) == {where}


@pytest.mark.parametrize("name", NAMES)
def test_attributes_have_a_default_or_are_required(name: str) -> None:
    for attribute in entry(name)["attributes"].values():
        assert attribute["required"] is not ("default" in attribute)


@pytest.mark.parametrize("name", NAMES)
def test_families_units_and_status_are_known(name: str) -> None:
    found = load_registry()[name]
    assert found.name == name
    assert set(found.families) <= set(baseline().families)
    assert set(found.units) <= UNITS - {"SEQ", "WDM"}
    assert name not in ELEMENTS


@pytest.mark.parametrize("name", NAMES)
def test_operands_are_unique_and_optional_ones_come_last(name: str) -> None:
    found = load_registry()[name]
    names = [operand.name for operand in (*found.inputs, *found.outputs)]
    assert len(names) == len(set(names))
    flags = [operand.optional for operand in found.inputs]
    assert flags == sorted(flags)
    assert not any(operand.optional for operand in found.outputs)


def test_every_family_serves_an_opcode() -> None:
    assert {name for item in load_registry().values() for name in item.families} == set(baseline().families)


def test_variadic_lists_repeat_their_last_operand() -> None:
    def variadic(name: str) -> tuple[list[bool], list[bool]]:
        found = load_registry()[name]
        return [item.variadic for item in found.inputs], [item.variadic for item in found.outputs]

    assert variadic("concat") == ([True], [False])
    assert variadic("split") == ([False], [True])
    assert variadic("compute") == ([True], [True])
    many = {name for name in NAMES if True in variadic(name)[0] + variadic(name)[1]}
    assert many == {"concat", "split", "compute"}


def test_operand_families_bind_operands_of_their_opcodes() -> None:
    """A family speaks of registry operands, or in general of inputs and outputs."""
    general = {"input", "output", "src", "dst"}
    for found in load_registry().values():
        operands = {operand.name for operand in (*found.inputs, *found.outputs)}
        for name in found.families:
            bound = {operand for item in baseline().variants[name] for operand in item.operands}
            assert bound <= general or bound - operands <= {"C"}, (found.name, name)


def test_one_opcode_is_found_by_name() -> None:
    conv = opcode("conv2d")
    assert isinstance(conv, Opcode)
    assert [(item.name, item.rank, item.layout) for item in conv.inputs] == [
        ("X", 4, "NHWC"),
        ("W", 4, "HWIO"),
        ("B", 1, ""),
    ]
    assert conv.attributes["groups"].default == 1
    assert not conv.attributes["groups"].required
    assert opcode("gemm") is load_registry()["gemm"]
    assert opcode("convolve") is None
