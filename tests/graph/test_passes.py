"""Each pass on texts: what stands before and after it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from lamella.base.arrays import Array
from lamella.base.errors import Found
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Shape, Tensor
from lamella.graph.passes import FORMER_NAMES, PASSES
from lamella.graph.passes.fold_constants import fold_constants
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.graph.verify import verify
from lamella.ops.library import Library
from tests.support.graph.texts import body_of, small

X = "x: real[2, 3, 4, 5];"
N = "x: int[2, 3];"

CASES: Mapping[str, tuple[str, str, str, str]] = {
    "difference with zero": ("simplify", X, "y = math.sub(x, 0.0);", "y = math.iden(x);"),
    "sum with zero of integers": ("simplify", N, "y = math.add(0, x);", "y = math.iden(x);"),
    "sum with zero of reals stays": ("simplify", X, "y = math.add(x, 0.0);", "y = math.add(x, constant);"),
    "sum with minus zero": ("simplify", X, "y = math.add(x, -0.0);", "y = math.iden(x);"),
    "product with one": ("simplify", X, "y = math.mul(1.0, x);", "y = math.iden(x);"),
    "product with zero of reals stays": (
        "simplify",
        X,
        "y = math.mul(x, 0.0);",
        "y = math.mul(x, constant);",
    ),
    "product with zero of integers": (
        "simplify",
        N,
        "z = math.mul(x, 0); y = math.add(z, x);",
        "y = math.iden(x);",
    ),
    "quotient by one": ("simplify", X, "y = math.div(x, 1.0);", "y = math.iden(x);"),
    "first power": ("simplify", X, "y = math.pow(x, 1.0);", "y = math.iden(x);"),
    "broadcasting keeps its shape": (
        "simplify",
        "x: real[3]; z: real[2, 3];",
        "o = math.sub(z, z); y = math.mul(x, 1.0);",
        "o = math.sub(z, z); y = math.iden(x);",
    ),
    "two negations": (
        "simplify",
        X,
        "z = math.neg(x); w = math.neg(z); y = math.exp(w);",
        "z = math.neg(x); y = math.exp(x);",
    ),
    "floor of floor": (
        "simplify",
        X,
        "z = math.floor(x); w = math.floor(z); y = math.exp(w);",
        "z = math.floor(x); y = math.exp(z);",
    ),
    "size of the opposite": (
        "simplify",
        N,
        "z = math.neg(x); y = math.abs(z);",
        "z = math.neg(x); y = math.abs(x);",
    ),
    "minimum of the same": ("simplify", X, "z = math.min(x, x); y = math.exp(z);", "y = math.exp(x);"),
    "cast to the same": ("simplify", X, "z = layout.cast<real>(x); y = math.exp(z);", "y = math.exp(x);"),
    "cast to another stays": ("simplify", X, "y = layout.cast<f16>(x);", "y = layout.cast<f16>(x);"),
    "reshape of reshape": (
        "simplify",
        X,
        "z = layout.flatten(x); w = layout.reshape{shape=[2, 60]}(z); y = math.exp(w);",
        "z = layout.flatten{rank=4}(x); w = layout.reshape{rank=4, shape=[2, 60]}(x); y = math.exp(w);",
    ),
    "reshape there and back": (
        "simplify",
        X,
        "z = layout.flatten(x); w = layout.reshape{shape=[2, 3, 4, 5]}(z); y = math.exp(w);",
        "z = layout.flatten{rank=4}(x); y = math.exp(x);",
    ),
    "backwards slice stays": (
        "simplify",
        "x: real[3];",
        "y = layout.slice{begin=[-1], end=[-4], stride=[-1]}(x);",
        "y = layout.slice{axes=[0], begin=[-1], end=[-4], stride=[-1]}(x);",
    ),
    "whole slice": (
        "simplify",
        "x: real[3];",
        "y = layout.slice{begin=[0], end=[3]}(x);",
        "y = math.iden(x);",
    ),
    "concat of one": ("simplify", X, "y = layout.concat{axis=0}([x]);", "y = math.iden(x);"),
    "stand-ins take the name of an output": (
        "simplify",
        X,
        "z = math.exp(x); w = math.sin(z); y = math.iden(z);",
        "y = math.exp(x); w = math.sin(y);",
    ),
    "equal operations": (
        "cse",
        X,
        "a = math.exp(x); b = math.exp(x); y = math.add(a, b);",
        "a = math.exp(x); y = math.add(a, a);",
    ),
    "equal operations with their inputs exchanged": (
        "cse",
        X + " z: real[2, 3, 4, 5];",
        "a = math.mul(x, z); b = math.mul(z, x); y = math.add(a, b);",
        "a = math.mul(x, z); y = math.add(a, a);",
    ),
    "exchanged inputs of what is not commutative": (
        "cse",
        X + " z: real[2, 3, 4, 5];",
        "a = math.min(x, z); b = math.min(z, x); y = math.add(a, b);",
        "a = math.min(x, z); b = math.min(z, x); y = math.add(a, b);",
    ),
    "a composition that draws is drawn anew": (
        "cse",
        X,
        "a = llm.fill_normal{shape=[2]}(); b = llm.fill_normal{shape=[2]}(); y = math.sub(a, b);",
        "a = llm.fill_normal<real>{shape=[2]}(); b = llm.fill_normal<real>{shape=[2]}(); y = math.sub(a, b);",
    ),
    "signed zeros differ": (
        "cse",
        X,
        "a = math.add(x, 0.0); b = math.add(x, -0.0); y = math.sub(a, b);",
        "a = math.add(x, constant); b = math.add(x, constant_2); y = math.sub(a, b);",
    ),
    "random numbers are drawn anew": (
        "cse",
        X,
        "a = rand.normal{shape=[2]}(); b = rand.normal{shape=[2]}(); y = math.sub(a, b);",
        "a = rand.normal{shape=[2]}(); b = rand.normal{shape=[2]}(); y = math.sub(a, b);",
    ),
    "dead operations": (
        "dce",
        X,
        "a = math.exp(x); b = math.sin(a); y = math.cos(x);",
        "y = math.cos(x);",
    ),
    "an extent is needed": (
        "dce",
        "x: real[3];",
        "a = layout.nonzero(x); y = layout.uniform{shape=[a.shape[1]]}(1.0);",
        "a = layout.nonzero(x); y = layout.uniform{shape=[a.shape[1]]}(constant);",
    ),
    "transposition there and back": (
        "cancel_transposes",
        X,
        "a = layout.transpose{perm=[0, 2, 3, 1]}(x); b = layout.transpose{perm=[0, 3, 1, 2]}(a); y = math.exp(b);",
        "a = layout.transpose{perm=[0, 2, 3, 1]}(x); y = math.exp(x);",
    ),
    "two transpositions": (
        "cancel_transposes",
        X,
        "a = layout.transpose{axis=1}(x); b = layout.transpose{axis=-2}(a); y = math.exp(b);",
        "a = layout.transpose{axis=1, perm=[3, 2, 1]}(x); b = layout.transpose{perm=[0, 3, 1, 2]}(x); y = math.exp(b);",
    ),
    "through an element-wise operation": (
        "propagate_layout",
        X,
        "a = layout.transpose{perm=[0, 2, 3, 1]}(x); y = math.exp(a);",
        "a = layout.transpose{perm=[0, 2, 3, 1]}(x); y_1 = math.exp(x); y = layout.transpose{perm=[0, 2, 3, 1]}(y_1);",
    ),
    "into a convolution": (
        "propagate_layout",
        X + " w: real[4, 5, 1, 1];",
        "a = layout.transpose{perm=[0, 3, 1, 2]}(x); y = nn.conv{padding=0}(a, w);",
        "a = layout.transpose{perm=[0, 3, 1, 2]}(x);"
        " y_1 = nn.conv{padding=[0, 0, 0, 0], data_format='NXC'}(x, w);"
        " y = layout.transpose{perm=[0, 3, 1, 2]}(y_1);",
    ),
    "along axes": (
        "propagate_layout",
        X,
        "a = layout.transpose{perm=[0, 3, 1, 2]}(x); y = nn.max_pool{size=[2, 2]}(a);",
        "a = layout.transpose{perm=[0, 3, 1, 2]}(x);"
        " y_1 = nn.max_pool{axes=[1, 2], size=[2, 2]}(x); y = layout.transpose{perm=[0, 3, 1, 2]}(y_1);",
    ),
    "not where it is read twice": (
        "propagate_layout",
        X,
        "a = layout.transpose{perm=[0, 2, 3, 1]}(x); b = math.exp(a); y = math.add(a, b);",
        "a = layout.transpose{perm=[0, 2, 3, 1]}(x); b = math.exp(a); y = math.add(a, b);",
    ),
}


def output_shape(model: Model) -> Shape:
    (output,) = model.graph.outputs
    assert isinstance(output, Tensor)
    return output.shape


def joined(lines: Sequence[str]) -> str:
    return " ".join(lines).replace('"', "'")


@pytest.mark.parametrize("name", CASES)
def test_before_and_after(name: str) -> None:
    what, inputs, before, after = CASES[name]
    kind = re.search(r"int|real", inputs)
    model = small(inputs, before, f"y: {'f16' if 'f16' in before else kind[0] if kind else 'real'}")
    found = PASSES[what](model)
    assert joined(body_of(found)) == after
    assert not verify(found.graph, found.library)


def test_quantised_tensors_are_not_taken_away() -> None:
    quantize = "@quantize { a: quant.zero_point_linear_quantize{zero_point=0, scale=0.5, bits=8}; }"
    body = "a = math.iden(x); b = math.iden(x); c = math.neg(a); d = math.neg(c); y = math.add(d, b);"
    model = small(X, body, blocks=quantize)
    assert (
        joined(body_of(PASSES["simplify"](model))) == "a = math.iden(x); c = math.neg(a); y = math.add(a, x);"
    )
    assert joined(body_of(PASSES["cse"](model))) == joined(body_of(model))


def test_what_one_branch_computes_the_other_cannot_read() -> None:
    body = "y = if c then { a = math.exp(x); yield a; } else { b = math.exp(x); d = math.neg(b); yield d; };"
    model = small(X + " c: bool[];", body)
    assert PASSES["cse"](model).graph == model.graph
    before = small(
        X + " c: bool[];", "e = math.exp(x); " + body.replace("yield d", "f = math.add(d, e); yield f")
    )
    merged = PASSES["cse"](before)
    assert [item.operator for item in merged.graph.operations()] == ["math.exp", "math.neg", "math.add"]
    assert not verify(merged.graph, merged.library)


def test_results_of_branches_that_nobody_reads() -> None:
    body = "y, z = if c then { a = math.exp(x); b = math.sin(x); yield a, b; } else { yield x, x; };"
    found = PASSES["dce"](small(X + " c: bool[];", body))
    assert [item.operator for item in found.graph.operations()] == ["math.exp"]
    assert not verify(found.graph, found.library)


# --- constants ----------------------------------------------------------------------------------------------


def by_numpy(operation: Operation, arrays: Mapping[str, Array]) -> list[Array]:
    """Two operators told by NumPy."""
    values = list(arrays.values())
    functions = {"math.add": np.add, "math.exp": np.exp, "math.log": np.log}
    with np.errstate(divide="ignore", invalid="ignore"):
        return [np.asarray(functions[operation.operator](*values))]


CONSTANTS = "@constant { c: real[2] = [1.0, 2.0]; d: real[2] = 3.0; }"


def test_constants_are_computed() -> None:
    model = small("x: real[2];", "a = math.add(c, d); y = math.add(x, a);", blocks=CONSTANTS)
    found = PASSES["dce"](fold_constants(model, by_numpy))
    assert body_of(found) == ["y = math.add(x, a);"]
    assert [(item.tensor.name, item.value) for item in found.graph.constants] == [("a", (4.0, 5.0))]
    assert not verify(found.graph, found.library)


@pytest.mark.parametrize(
    "body", ["y = math.add(c, d);", "a = math.log(c); b = math.log(a); e = math.log(b); y = math.add(x, e);"]
)
def test_outputs_and_what_no_literal_says_are_not_folded(body: str) -> None:
    found = fold_constants(small("x: real[2];", body, blocks=CONSTANTS), by_numpy)
    assert not [item for item in found.graph.constants if item.tensor.name in ("y", "e")]
    assert not verify(found.graph, found.library)


# --- extents ------------------------------------------------------------------------------------------------


def test_extents_get_their_numbers() -> None:
    model = small(
        "x: real[n|8, 3]; z: real[m|8, 3];", "a = layout.concat{axis=0}([x, z]); y = nn.softmax(a);"
    )
    found = specialise_shapes(model, {"n": 2})
    assert str(output_shape(found)[0]) == "m + 2"
    whole = specialise_shapes(found, {"m": 5})
    assert output_shape(whole) == (7, 3)
    assert not verify(whole.graph, whole.library)


def test_an_extent_that_is_one_broadcasts() -> None:
    model = small("x: real[n|8, 3]; z: real[m|8, 3];", "y = math.add(x, z);")
    found = specialise_shapes(model, {"n": 1, "m": 5})
    assert output_shape(found) == (5, 3)
    assert not verify(found.graph, found.library)


@pytest.mark.parametrize(("values", "code"), [({"n": 9}, "SKR358"), ({"k": 1}, "SKR359")])
def test_extents_that_do_not_fit(values: dict[str, int], code: str) -> None:
    model = small("x: real[n|8, 3];", "y = math.exp(x);")
    with pytest.raises(Found) as problem:
        specialise_shapes(model, values)
    assert [item.code for item in problem.value.findings] == [code]


def test_extents_inside_of_loops_and_branches() -> None:
    body = (
        "a = with s = x do..(3) math.add(s, x); b = math.any_reduce{squeeze=true}(c);"
        " y = if b then math.exp(a) else { z = math.neg(a); yield z; };"
    )
    model = small("x: real[n|8]; c: bool[n];", body)
    found = specialise_shapes(model, {"n": 4})
    assert not verify(found.graph, found.library)
    assert output_shape(found) == (4,)


# --- what formulas say --------------------------------------------------------------------------------------


ELEMENTWISE = ("math.exp", "math.neg", "nn.relu", "nn.gelu", "math.not", "math.iden", "layout.cast")
OTHERS = (
    "nn.softmax",
    "nn.prelu",
    "quant.zero_point_linear_quantize",
    "layout.transpose",
    "math.sum_reduce",
    "math.add",
)


@pytest.mark.parametrize("name", [*ELEMENTWISE, *OTHERS])
def test_formulas_tell_what_works_element_by_element(name: str) -> None:
    assert ("elementwise" in Library().traits(name)) == (name in ELEMENTWISE)


def test_passes_keep_the_model_they_are_given() -> None:
    model: Model = small(X, "a = math.exp(x); b = math.exp(x); y = math.add(a, b);")
    before = model.graph
    for apply in PASSES.values():
        apply(model)
    assert model.graph is before


def test_former_names_mean_passes_that_are() -> None:
    assert set(FORMER_NAMES.values()) <= PASSES.keys()
    assert not FORMER_NAMES.keys() & PASSES.keys()
