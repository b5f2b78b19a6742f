"""Operations are written under the names that other readers of NAC implement, wherever there is a choice."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.diagnostic import LamellaError
from lamella.base.paths import read_shipped
from lamella.bridge.aten.nodes import Operand
from lamella.bridge.aten.table import rows
from lamella.bridge.graph_to_nac import graph_to_nac
from lamella.graph.nodes import Tensor
from lamella.lang.nac import File
from lamella.lang.nac.check.tables import read_tables
from lamella.lang.nac.nodes import FIRST_REGULAR
from lamella.lang.nac.operations import is_public
from tests.bridge.test_graph_to_nac import Program
from tests.support.bridge.nac_trips import read_back
from tests.support.bridge.operators import layouts, llm, mathematics, networks, others
from tests.support.bridge.operators.calls import Invocation, build
from tests.support.graph.running import same
from tests.support.graph.texts import small

RESTATED = (
    "llm.matmul",
    "llm.bias_add",
    "llm.embedding",
    "llm.softmax",
    "llm.concat",
    "llm.reshape",
    "llm.scale",
)
REASONS = {
    row["name"]: row["reason"] for row in csv.DictReader(read_shipped("ops/tables/nac_own.csv").splitlines())
}


def by_operator() -> Mapping[str, Sequence[Invocation]]:
    """Calls of the operators of the library whose names the table tells one by one."""
    found: defaultdict[str, list[Invocation]] = defaultdict(list)
    for part in (mathematics, layouts, networks, others):
        for item in part.CALLS:
            if item.operator.startswith(("math.", "layout.", "nn.", "linalg.")):
                found[item.operator].append(item)
    for item in llm.CALLS:
        if item.operator in RESTATED:
            found[item.operator].append(item)
    return found


def names_of(file: File) -> set[str]:
    """What the regular operations of a file are called."""
    tables = read_tables(file)
    called = {item.operation for item in file.instructions if item.operation >= FIRST_REGULAR}
    return {tables.name_of(number) or "" for number in called}


def reason_for(name: str) -> str | None:
    """Why a name outside the list is written: by its own row, else by that of its module."""
    return REASONS.get(name) or next((REASONS[row] for row in REASONS if fnmatch(name, row)), None)


def test_every_name_outside_the_list_has_a_reason_and_others_compute_the_same() -> None:
    groups, written = by_operator(), set[str]()
    for operator, calls in groups.items():
        model, fed = build(calls)
        try:
            file = graph_to_nac(model).file
        except LamellaError:
            continue
        names = names_of(file)
        written |= names
        lacking = [name for name in names if not is_public(name) and reason_for(name) is None]
        assert not lacking, f"{operator} is written as {lacking}"
        if names != {operator}:
            with np.errstate(all="ignore"):
                same(compile_model(model)(**fed), compile_model(read_back(file))(**fed))
    assert {"nac.add", "aten.conv2d.default", "aten.softmax.int", "aten.linear.default"} <= written
    assert len(groups) > 120


def test_no_reason_is_given_for_what_is_on_the_list() -> None:
    assert not [name for name in REASONS if is_public(name)]
    assert all(REASONS.values())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("y = math.div(x, 3.0);", "aten.div.Tensor"),
        ("y = math.mul(x, 3.0);", "aten.mul.Tensor"),
        ("y = math.add(x, 3.0);", "nac.add"),
        ("y = math.pow(x, 2.0);", "aten.pow.Tensor_Scalar"),
        ("y = linalg.matmul(x, x);", "aten.matmul.default"),
        ("y = linalg.matmul{transB=true}(x, x);", "aten.linear.default"),
        ("y = nn.gelu{approximate='TANH'}(x);", "aten.gelu.default"),
        ("y = layout.reshape{shape=[4, 1]}(x);", "nac.view"),
        ("y = math.mean_reduce{axes=[1]}(x);", "aten.mean.dim"),
    ],
)
def test_operators_of_the_library_are_those_of_the_list(text: str, name: str) -> None:
    model = small("x: real[2, 2];", text)
    assert names_of(graph_to_nac(model).file) == {name}


@pytest.mark.parametrize(
    ("name", "operands", "written"),
    [
        ("div.Scalar", {"self": (2, 2), "other": 3.0}, "aten.div.Tensor"),
        ("mul.Scalar", {"self": (2, 2), "other": 3.0}, "aten.mul.Tensor"),
        ("mm.default", {"self": (2, 3), "mat2": (3, 4)}, "aten.matmul.default"),
        ("bmm.default", {"self": (2, 2, 3), "mat2": (2, 3, 4)}, "aten.matmul.default"),
        ("t.default", {"self": (2, 3)}, "aten.transpose.int"),
        ("reshape.default", {"self": (2, 3), "shape": (3, 2)}, "nac.view"),
        ("flatten.using_ints", {"self": (2, 3)}, "nac.view"),
        ("minimum.default", {"self": (2, 3), "other": (2, 3)}, "aten.min.other"),
        ("clamp_min.default", {"self": (2, 3), "min": 0.5}, "aten.clamp.default"),
        ("new_zeros.default", {"self": (2, 3), "size": (4,)}, "aten.zeros.default"),
        ("narrow.default", {"self": (4, 3), "dim": 0, "start": 1, "length": 2}, "aten.slice.Tensor"),
        (
            "convolution.default",
            {
                **{"input": (1, 2, 4, 4), "weight": (3, 2, 3, 3), "bias": None, "stride": (1, 1)},
                **{"padding": (1, 1), "dilation": (1, 1), "transposed": False, "output_padding": (0, 0)},
                "groups": 1,
            },
            "aten.conv2d.default",
        ),
    ],
)
def test_overloads_of_aten_are_those_of_the_list(
    name: str, operands: Mapping[str, Operand], written: str
) -> None:
    program = Program()
    shapes = {"self", "other", "mat2", "input", "weight"}
    given = {
        key: program.x(*map(int, map(str, value)), name=key)
        if key in shapes and isinstance(value, tuple)
        else value
        for key, value in operands.items()
    }
    model = program.model(program.call(name, **given))
    file = graph_to_nac(model).file
    assert names_of(file) == {written}
    fed = {
        item.name: np.random.default_rng(3).random([int(str(size)) for size in item.shape], np.float32)
        for item in model.graph.inputs
        if isinstance(item, Tensor)
    }
    same(compile_model(model)(**fed), compile_model(read_back(file))(**fed))


def test_the_overload_that_is_written_is_public_where_one_is() -> None:
    """Of the overloads of one operator the first that fits is written; `restate` turns the others."""
    turned = {"aten.arange", "aten.permute", "aten.pow", "aten.squeeze"}
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name, row in rows().items():
        groups[row.schema.operator].append(name)
    mixed = {key for key, names in groups.items() if any(map(is_public, names)) and not is_public(names[0])}
    assert mixed - {"drop", "size", "refuse"} <= turned | {
        "aten.bitwise_and",
        "aten.bitwise_or",
        "aten.where",
    }


def test_another_dialect_keeps_its_own_names() -> None:
    newer = [item for item in layouts.CALLS if item.operator == "newer/layout.slice"]
    assert newer
    file = graph_to_nac(build(newer[:1])[0]).file
    assert names_of(file) == {"layout.slice"}
    assert read_back(file).library.dialect == "newer"
