"""The table of ATen's overloads against torch itself."""

from __future__ import annotations

import pytest

from lamella.base.dtype import F32
from lamella.base.paths import read_shipped
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.nodes import AtenCall, Operand
from lamella.bridge.aten.table import (
    DROP,
    REFUSE,
    SIZE,
    TABLE,
    find_schema,
    overloads,
    parse_schema,
    rows,
    schemas,
)
from lamella.graph.build import Builder
from lamella.graph.nodes import Tensor
from tests.support.bridge.aten.judge import library, overload, torch

LINES = [line for line in read_shipped(TABLE).splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("line", LINES, ids=[line.split()[2].partition("(")[0] for line in LINES])
def test_schemas_are_those_of_torch(line: str) -> None:
    operator, _, text = line.split(maxsplit=2)
    schema = parse_schema(text, operator)
    judge = overload(schema.name)._schema
    assert text == str(judge)
    assert schema == rows()[schema.name].schema
    assert len(schema.results) == len(judge.returns)
    for parameter, argument in zip(schema.parameters, judge.arguments, strict=True):
        assert (parameter.name, parameter.keyword) == (argument.name, argument.kwarg_only)
        assert (parameter.default is not None) == argument.has_default_value()


def test_operators_exist() -> None:
    named = {schema.operator for schema in schemas().values()} - {DROP, SIZE, REFUSE}
    assert {name for name in named if library().find(name) is None} == set()


def test_every_operator_is_called() -> None:
    named = {schema.operator for schema in schemas().values()}
    every = {f"aten.{name}" for name in library().operators("aten") if not name.startswith("_")}
    # A part of attention, and what only the library has.
    assert every - named <= {"aten.safe_softmax", "aten.softsign"}


def test_overloads_are_unique_and_found() -> None:
    assert len(schemas()) == len(LINES)
    for name, schema in schemas().items():
        assert find_schema(name) is schema
        assert schema in overloads(name.rpartition(".")[0])
    assert find_schema("aten.relu") is find_schema("aten.relu.default")
    assert find_schema("aten.add") is None
    assert find_schema("aten.no_such_thing") is None
    assert overloads("aten.no_such_thing") == ()


def test_core_operations_are_covered() -> None:
    """Torch marks what `run_decompositions` leaves; Fourier transforms and strides are not ours."""
    missing = set()
    for stem in {
        *dir(torch.ops.aten),
        "resize_",
        "sym_is_contiguous",
    }:  # torch lists some once they are asked for
        packet = getattr(torch.ops.aten, stem)
        for kind in packet.overloads() if hasattr(packet, "overloads") else ():
            if torch.Tag.core in getattr(packet, kind).tags and kind != "out":
                name = f"aten.{stem}.{kind}"
                missing |= set() if name in schemas() else {name}
    assert missing == {
        *("aten._fft_c2r.default", "aten._fft_r2c.default"),
        *("aten.sym_storage_offset.default", "aten.sym_stride.int"),
        *("aten.resize_.default", "aten.sym_is_contiguous.default"),
    }


def test_what_only_tests_sizes_is_dropped() -> None:
    schema = find_schema("aten._assert_tensor_metadata")
    assert schema is not None
    builder = Builder(library(), "dropped")
    x = builder.input("x", F32, (2, 3))
    assert build_call(builder, AtenCall(schema, {"a": x, "size": (2, 3)})) is None
    assert builder.finish().nodes == ()


@pytest.mark.parametrize(
    ("name", "given", "expected"), [("sym_size.int", {"dim": -1}, 3), ("sym_numel", {}, 6)]
)
def test_sizes_are_told(name: str, given: dict[str, int], expected: int) -> None:
    schema = find_schema(f"aten.{name}")
    assert schema is not None
    operands: dict[str, Operand] = {"self": Tensor("x", F32, (2, 3)), **given}
    assert build_call(Builder(library(), "sized"), AtenCall(schema, operands)) == expected
