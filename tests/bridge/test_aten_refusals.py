"""Calls of ATen operations that cannot be said, and what is said about them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from lamella.base import dtype
from lamella.base.dim import symbol
from lamella.base.dtype import BOOL, F32, I64
from lamella.base.errors import Found
from lamella.base.origin import Origin
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.nodes import AtenCall, Operand
from lamella.bridge.aten.sizes import compute_size, is_size_operation
from lamella.bridge.aten.table import find_schema
from lamella.graph.build import Builder
from lamella.graph.nodes import Operation, Tensor
from tests.support.bridge.aten.judge import library

BAD = Path(__file__).parent.parent / "lang" / "skriptnd" / "bad"
PROGRAMS = sorted(path.stem for path in BAD.glob("skr37[0-5]_*.txt"))
TENSOR = re.compile(r"(\w+): (\w+)\[(.*)\]")


def findings(lines: list[str]) -> list[str]:
    """The codes of what is found wrong with a call that is written out."""
    builder, tensors = Builder(library(), "written"), dict[str, Tensor]()
    for line in lines:
        match = TENSOR.fullmatch(line)
        if match is not None:
            element = dtype.find(match[2])
            assert element is not None
            extents = [int(item) for item in match[3].split(",")]
            tensors[match[1]] = builder.input(match[1], element, extents)
            continue
        try:
            run(builder, line, tensors)
        except Found as problem:
            return [item.code for item in problem.findings]
    return []


def run(builder: Builder, line: str, tensors: dict[str, Tensor]) -> None:
    tree = ast.parse(line, mode="eval").body
    assert isinstance(tree, ast.Call)
    name = ast.unparse(tree.func)
    if is_size_operation(name):
        compute_size(name, [ast.literal_eval(item) for item in tree.args])
        return
    operands: dict[str, Operand] = {}
    for item in tree.keywords:
        is_name = isinstance(item.value, ast.Name)
        operands[item.arg or ""] = (
            tensors[ast.unparse(item.value)] if is_name else ast.literal_eval(item.value)
        )
    call(builder, name, **operands)


def call(builder: Builder, name: str, **operands: Operand) -> object:
    schema = find_schema(name)
    assert schema is not None, name
    return build_call(builder, AtenCall(schema, operands))


@pytest.mark.parametrize("name", PROGRAMS)
def test_wrong_calls_are_found_and_right_ones_are_not(name: str) -> None:
    lines = (BAD / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    right = next(line.removeprefix("# right: ") for line in lines if line.startswith("# right: "))
    wrong = next(line for line in lines if "# expect" in line)
    around = [line for line in lines if not line.startswith("#") and line != wrong]
    assert findings([*around, wrong.split("  #")[0]]) == [name[:6].upper()]
    assert findings([*around, right]) == []


def message(name: str, **operands: Operand) -> str:
    with pytest.raises(Found) as caught:
        call(Builder(library(), "refused"), name, **operands)
    return caught.value.findings[0].message


X = Tensor("x", F32, (2, 3))
N = symbol("n", 64)


def test_what_is_refused_is_named() -> None:
    assert "aten.linalg_lu.default" in message("aten.linalg_lu", A=X, pivot=False)
    assert "'indices' of aten.index.Tensor" in message("aten.index.Tensor", self=X, indices=(None, None))
    assert "mask" in message("aten.index.Tensor", self=X, indices=(Tensor("mask", BOOL, ()),))
    assert "'dropout_p'" in message(
        "aten.scaled_dot_product_attention", query=X, key=X, value=X, dropout_p=0.1
    )
    assert "'dim0' of aten.transpose.int" in message("aten.transpose.int", self=X, dim0=N, dim1=0)
    assert "tensor x of f32[2, 3]" in message("aten.arange", end=X)
    assert "'p' of aten.geometric" in message("aten.geometric", self=X, p=1.5)
    assert "n" in message("aten.split.Tensor", self=Tensor("y", F32, (N,)), split_size=2)
    assert "3 dimensions" not in message("aten.sym_size.int", self=X, dim=4)


def test_findings_and_operations_tell_where_they_come_from() -> None:
    origin = Origin("layer.fc1")
    schema = find_schema("aten.relu")
    assert schema is not None
    with pytest.raises(Found) as caught:
        build_call(Builder(library(), "told"), AtenCall(schema, {"self": 1}), origin)
    assert caught.value.findings[0].origins == ("layer.fc1",)
    builder = Builder(library(), "told")
    build_call(builder, AtenCall(schema, {"self": builder.input("x", I64, (2,))}), origin)
    assert builder.origin is None
    nodes = [node for node in builder.finish().nodes if isinstance(node, Operation)]
    assert [node.origin for node in nodes] == [origin]
