"""The opcode registry is complete, and agrees with the baseline and the words of the language."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from lamella.base.paths import read_shipped
from lamella.lang.nem.documents import baseline
from lamella.lang.nem.registry import Opcode, load_registry, opcode
from lamella.lang.nem.words import ELEMENTS, UNITS

FILE = "lang/nem/opcodes.json"
OPERAND_KEYS = {"name": str, "optional": bool, "rank": int, "rank_min": int, "layout": str}
ATTRIBUTE_TYPES = {"int", "float", "bool", "elem_type", "int_list", "string", "id"}
HARDWARE = {"supported", "partial", "future", "escape_hatch"}
NAMES = tuple(load_registry())


def entry(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(read_shipped(FILE))["opcodes"][name]
    return found


def test_there_are_49_opcodes_41_stable_and_8_future() -> None:
    assert Counter(item.status for item in load_registry().values()) == {"stable": 41, "future": 8}
    future = {name for name, item in load_registry().items() if item.hardware == "future"}
    reductions = {"reduce_sum", "reduce_max", "reduce_min", "argmax", "argmin"}
    assert future == reductions | {"conv1d", "conv3d", "depthwise_conv2d"}
    assert future == {name for name, item in load_registry().items() if item.status == "future"}


@pytest.mark.parametrize("name", NAMES)
def test_entries_keep_the_schema(name: str) -> None:
    found = entry(name)
    needed = {"inputs", "outputs", "attributes", "families", "unit", "hardware", "status"}
    assert needed <= set(found) <= needed | {"variadic_inputs", "variadic_outputs"}
    for side in ("inputs", "outputs"):
        operands = found[side]
        assert isinstance(operands, list)
        assert operands
        for operand in operands:
            assert {"name", "optional"} <= set(operand) <= set(OPERAND_KEYS)
            assert all(type(value) is OPERAND_KEYS[key] for key, value in operand.items())
    attributes = found["attributes"]
    assert isinstance(attributes, dict)
    for attribute in attributes.values():
        assert attribute["type"] in ATTRIBUTE_TYPES
        assert attribute["required"] is not ("default" in attribute)


@pytest.mark.parametrize("name", NAMES)
def test_families_units_and_status_are_known(name: str) -> None:
    found = load_registry()[name]
    assert found.name == name
    assert set(found.families) <= set(baseline().families)
    assert set(found.units) <= UNITS - {"SEQ", "WDM"}
    assert found.hardware in HARDWARE
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
