"""What graphs become in NAC: names, roles, loads, constants, sizes, the number of the header."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from lamella.base.arrays import numpy_dtype
from lamella.base.dim import symbol
from lamella.base.dtype import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, ElementType
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.nodes import AtenCall, Operand
from lamella.bridge.aten.table import find_schema
from lamella.bridge.graph_to_nac import Writing, graph_to_nac
from lamella.bridge.nac_to_graph.weights import read_weight
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.lang.nac import File, check, disassemble
from lamella.lang.nac.nodes import ConstantType
from tests.support.bridge.nac_trips import check_trip, with_data
from tests.support.graph.texts import small
from tests.support.strategies.graph import library

Building = Callable[["Program"], Tensor]


class Program:
    """A graph of ATen calls."""

    def __init__(self) -> None:
        self.builder = Builder(library(), "G")

    def x(self, *shape: int, element: ElementType = F32, name: str = "x") -> Tensor:
        """An input."""
        return self.builder.input(name, element, shape)

    def w(self, name: str, *shape: int, element: ElementType = F32) -> Tensor:
        """A parameter."""
        return self.builder.variable(name, element, shape)

    def call(self, name: str, /, **operands: Operand) -> Tensor:
        """The first result of a call."""
        schema = find_schema(f"aten.{name}")
        assert schema is not None
        result = build_call(self.builder, AtenCall(schema, operands))
        found = result[0] if isinstance(result, tuple) else result
        assert isinstance(found, Tensor)
        return found

    def model(self, *outputs: Tensor) -> Model:
        """The model, with numbers."""
        return with_data(Model(self.builder.finish(*outputs), library()))


def code(file: File) -> list[str]:
    """The instructions without memory commands."""
    lines = disassemble(file).partition(".code\n")[2].partition("\n\n")[0].splitlines()
    return [line.strip().partition(" @")[0] for line in lines]


def written(build: Building, **options: bool) -> list[str]:
    """The instructions of a program between its inputs and its output."""
    program = Program()
    file = graph_to_nac(program.model(build(program)), Writing(**options)).file
    assert not check(file)
    return [line.partition(" = ")[2] for line in code(file)[:-1] if not line.endswith("= input()")]


CALLS: dict[str, tuple[Building, list[str]]] = {
    "a standard operation": (
        lambda p: p.call("add.Tensor", self=p.x(2), other=p.x(2, name="y")),
        ["nac.add:TT(%0, %1)"],
    ),
    "with a factor": (
        lambda p: p.call("add.Tensor", self=p.x(2), other=p.x(2, name="y"), alpha=2),
        ["nac.add:TTf(%0, %1, 2.0)"],
    ),
    "a number": (lambda p: p.call("add.Scalar", self=p.x(2), other=0.5), ["nac.add:Tf(%0, 0.5)"]),
    "reversed subtraction": (
        lambda p: p.call("rsub.Scalar", self=p.x(2), other=1.0),
        ["nac.sub:fT(1.0, %0)"],
    ),
    "reversed subtraction with a factor": (
        lambda p: p.call("rsub.Scalar", self=p.x(2), other=1.0, alpha=2),
        ["aten.rsub.Scalar:Tff(%0, 1.0, 2.0)"],
    ),
    "reversed subtraction of tensors": (
        lambda p: p.call("rsub.Tensor", self=p.x(2), other=p.x(2, name="y")),
        ["nac.sub:TT(%1, %0)"],
    ),
    "a filled mask": (
        lambda p: p.call(
            "masked_fill.Scalar", self=p.x(2), mask=p.x(2, element=BOOL, name="m"), value=-math.inf
        ),
        ["nac.where:TfT(%1, -inf, %0)"],
    ),
    "squeezing": (lambda p: p.call("squeeze.dim", self=p.x(1, 3), dim=0), ["nac.view:TS(%0, [3])"]),
    "squeezing several": (
        lambda p: p.call("squeeze.dims", self=p.x(1, 3, 1), dim=(0, 2)),
        ["nac.view:TS(%0, [3])"],
    ),
    "an operation of its own": (lambda p: p.call("relu.default", self=p.x(2)), ["aten.relu.default:T(%0)"]),
    "an axis": (
        lambda p: p.call("softmax.int", self=p.x(2, 3), dim=-1),
        ["aten.softmax.int:TA(%0, -1)"],
    ),
    "a type": (
        lambda p: p.call("_to_copy.default", self=p.x(2), dtype=BF16),
        ['aten._to_copy.default:Tc(%0, "bfloat16")'],
    ),
    "a list of tensors": (
        lambda p: p.call("cat.default", tensors=(p.x(2), p.x(3, name="y")), dim=0),
        ["aten.cat.default:TT(%0, %1)"],
    ),
    "a result of several": (
        lambda p: p.call("max.dim", self=p.x(2, 3), dim=1),
        ["aten.max.dim:TA(%0, 1)", "getitem:Ti(%1, 0)"],
    ),
    "a layer": (
        lambda p: p.call("linear.default", input=p.x(2, 3), weight=p.w("w", 4, 3), bias=p.w("b", 4)),
        ["parameter(w)", "parameter(b)", "aten.linear.default:TWB(%0, %1, %2)"],
    ),
    "a sum of a product": (
        lambda p: p.call("addmm.default", self=p.w("b", 4), mat1=p.x(2, 3), mat2=p.w("w", 3, 4)),
        ["parameter(b)", "parameter(w)", "aten.addmm.default:BTW(%1, %0, %2)"],
    ),
    "another parameter": (
        lambda p: p.call("mul.Tensor", self=p.x(2), other=p.w("scale", 2)),
        ["parameter(scale)", "aten.mul.Tensor:TP(%0, %1)"],
    ),
    "attention": (
        lambda p: p.call(
            "scaled_dot_product_attention.default",
            **{name: p.x(1, 2, 3, 4, name=name) for name in ("query", "key", "value")},
            attn_mask=p.x(3, 3, name="mask"),
        ),
        ["aten.scaled_dot_product_attention.default:QKVM(%0, %1, %2, %3)"],
    ),
    "what does nothing": (
        lambda p: p.call("relu.default", self=p.call("detach.default", self=p.x(2))),
        ["aten.relu.default:T(%0)"],
    ),
}


@pytest.mark.parametrize(("build", "wanted"), CALLS.values(), ids=CALLS)
def test_calls(build: Building, wanted: list[str]) -> None:
    assert written(build) == wanted


@pytest.mark.parametrize(("build", "wanted"), CALLS.values(), ids=CALLS)
def test_plain_signatures_have_no_roles(build: Building, wanted: list[str]) -> None:
    roles = str.maketrans("QKVMBWPA", "TTTTTTTi")
    heads = [line.partition("(") for line in wanted]
    plain = [
        (name.partition(":")[0], name.partition(":")[2].translate(roles), rest) for name, _, rest in heads
    ]
    lines = [f"{name}:{codes}({rest}" if codes else f"{name}({rest}" for name, codes, rest in plain]
    assert written(build, plain_signatures=True) == lines


def test_sizes_are_computed_once_and_before_their_user() -> None:
    builder, n = Builder(library(), "G"), symbol("n", 9, 1)
    x = builder.input("x", F32, (n, 4))
    schema = find_schema("aten.view.default")
    assert schema is not None
    flat = build_call(builder, AtenCall(schema, {"self": x, "size": (n, 2, 2)}))
    again = build_call(builder, AtenCall(schema, {"self": flat, "size": (n, 4)}))
    assert isinstance(again, Tensor)
    file = graph_to_nac(Model(builder.finish(again), library())).file
    assert code(file) == [
        "%0 = input()",
        "%1 = aten.sym_size.int:TA(%0, 0)",
        "%2 = nac.view:TTii(%0, %1, 2, 2)",
        "%3 = nac.view:TTi(%2, %1, 4)",
        "%4 = output(%3)",
    ]


def test_own_operators_have_all_their_attributes() -> None:
    model = small(
        "x: real[2, 3];", "y = math.lp_reduce{axes=[1], p=2.0}(x); z = layout.cast<f64>(y);", "z: f64"
    )
    assert code(graph_to_nac(model).file) == [
        "%0 = input()",
        "%1 = math.lp_reduce:TSbf(%0, [1], false, 2.0)",
        '%2 = aten._to_copy.default:Tc(%1, "float64")',
        "%3 = output(%2)",
    ]


def test_a_pack_says_its_length() -> None:
    model = small("x: real[2]; z: real[2];", "y = math.sum_n([x, z, x]);")
    assert code(graph_to_nac(model).file)[2] == "%2 = math.sum_n:iTTT(3, %0, %1, %0)"


def test_loads_stand_before_their_first_user() -> None:
    program = Program()
    x, late, shared = program.x(2), program.w("late", 2), program.w("shared", 2)
    a = program.call("mul.Tensor", self=x, other=shared)
    b = program.call("relu.default", self=a)
    c = program.call("addcmul.default", self=b, tensor1=late, tensor2=shared)
    file = graph_to_nac(program.model(c)).file
    assert [line.partition(" = ")[2] for line in code(file)] == [
        *("input()", "parameter(shared)", "aten.mul.Tensor:TP(%0, %1)", "aten.relu.default:T(%2)"),
        *("parameter(late)", "aten.addcmul.default:TPP(%3, %4, %1)", "output(%5)"),
    ]
    assert [item.name for item in file.parameters] == ["late", "shared"]


def test_equal_numbers_of_different_types_are_different_constants() -> None:
    program = Program()
    x = program.x(2, element=F64)
    for number in (1, 1.0, -0.0, 0.0, True, 1.0):
        x = program.call("mul.Scalar", self=x, other=number)
    file = graph_to_nac(program.model(x)).file
    kinds = [(item.id, item.type, str(item.value)) for item in file.constants]
    assert len({item[1:] for item in kinds}) == len(kinds)
    assert [item[0] for item in kinds] == list(range(2, 2 + len(kinds)))


def test_null_is_constant_1() -> None:
    file = graph_to_nac(small("x: real[2];", "y = nn.relu{max=6.0}(x);")).file
    null, _ = file.constants
    assert (null.id, null.type) == (1, ConstantType.NULL)


@pytest.mark.parametrize("element", [F32, F64, F16, BF16, I64, I32, I16, I8, U8, BOOL], ids=str)
def test_parameters_of_every_type_keep_their_numbers(element: ElementType) -> None:
    program = Program()
    model = program.model(program.call("clone.default", self=program.w("w", 3, 2, element=element)))
    file = check_trip(model)
    assert model.data is not None
    stored = graph_to_nac(model).file.tensors[0]
    found = read_weight(stored)
    assert found.dtype == numpy_dtype(element)
    np.testing.assert_array_equal(found, model.data["w"])
    assert file.header.internal


def test_weights_are_not_copied() -> None:
    program = Program()
    model = program.model(program.call("clone.default", self=program.w("w", 64, 64)))
    assert model.data is not None
    tensor = graph_to_nac(model).file.tensors[0]
    assert np.shares_memory(np.frombuffer(tensor.data, np.uint8), model.data["w"])


def test_external_weights_are_left_out() -> None:
    program = Program()
    model = program.model(program.call("clone.default", self=program.w("w", 3)))
    file = graph_to_nac(model, Writing(external=True)).file
    assert (file.header.internal, file.tensors) == (False, ())
    assert [item.name for item in file.parameters] == ["w"]


def test_the_schedule_can_be_left_out() -> None:
    program = Program()
    model = program.model(program.call("exp.default", self=program.call("sin.default", self=program.x(2))))
    assert graph_to_nac(model).file.schedule
    assert not graph_to_nac(model, Writing(schedule=False)).file.schedule


WIDTHS: dict[str, tuple[Building, int]] = {
    "nothing": (lambda p: p.call("exp.default", self=p.x(2)), 0),
    "a linear layer": (
        lambda p: p.call("linear.default", input=p.x(2, 3), weight=p.w("w", 4, 3), bias=None),
        3,
    ),
    "a transposed weight": (
        lambda p: p.call("mm.default", self=p.x(2, 3), mat2=p.call("t.default", self=p.w("w", 4, 3))),
        3,
    ),
    "an embedding": (
        lambda p: p.call(
            "linear.default",
            input=p.call("embedding.default", weight=p.w("e", 7, 5), indices=p.x(2, element=I64)),
            weight=p.w("w", 4, 5),
            bias=None,
        ),
        5,
    ),
}


@pytest.mark.parametrize(("build", "wanted"), WIDTHS.values(), ids=WIDTHS)
def test_d_model(build: Building, wanted: int) -> None:
    program = Program()
    assert graph_to_nac(program.model(build(program))).file.header.d_model == wanted


def test_a_width_beyond_its_field_is_left_out_and_said() -> None:
    program = Program()
    layer = program.call(
        "linear.default", input=program.x(1, 70000), weight=program.w("w", 1, 70000), bias=None
    )
    found = graph_to_nac(program.model(layer))
    assert found.file.header.d_model == 0
    (note,) = found.findings
    assert (note.code, note.severity) == ("NAC217", "note")
    assert "70000" in note.message
