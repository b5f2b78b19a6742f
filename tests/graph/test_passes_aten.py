"""Each law on operators of ATen: what stands before and after it, and that both compute the same."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import (
    BF16,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    ElementType,
)
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.passes import PASSES
from lamella.graph.passes.fold_constants import LARGEST, fold_constants
from lamella.graph.passes.simplify import represents
from lamella.graph.rewrite import members
from lamella.graph.verify import verify
from lamella.pipeline.skriptnd.run_passes import evaluator
from tests.support.graph.aten_models import run_special, same_bits
from tests.support.graph.texts import body_of, small

X = "x: real[2, 3, 4];"
M = "x: real[2, 3];"
N = "x: int[2, 3]; z: int[2, 3];"
OPEN = "x: real[n|8, 3, 4];"
Cases = Mapping[str, tuple[str, str, str]]

SIMPLIFIED: Cases = {
    "product with one": (X, "y = aten.mul(x, 1.0);", "y = math.iden(x);"),
    "product with ones": (X, "a = aten.ones<real>{size=[4]}(); y = aten.mul(a, x);", "y = math.iden(x);"),
    "product with zero of reals stays": (X, "y = aten.mul(x, 0.0);", "y = aten.mul(x, constant);"),
    "product with zero of integers": (N, "a = aten.mul(x, 0); y = aten.add(a, x);", "y = math.iden(x);"),
    "quotient by one": (X, "y = aten.div(x, 1.0);", "y = math.iden(x);"),
    "rounded quotient by one stays": (
        X,
        "y = aten.div{rounding_mode='floor'}(x, 1.0);",
        "y = aten.div{rounding_mode='floor'}(x, constant);",
    ),
    "whole quotient by one": (N, "y = aten.floor_divide(x, 1);", "y = math.iden(x);"),
    "first power": (X, "y = aten.pow(x, 1.0);", "y = math.iden(x);"),
    "sum with zero of reals stays": (X, "y = aten.add(x, 0.0);", "y = aten.add{alpha=1.0}(x, constant);"),
    "sum with minus zero": (X, "y = aten.add(x, -0.0);", "y = math.iden(x);"),
    "sum with a factor of zero": (N, "y = aten.add{alpha=0}(x, z);", "y = math.iden(x);"),
    "sum with a factor of minus one": (X, "y = aten.add{alpha=-1.0}(x, 0.0);", "y = math.iden(x);"),
    "difference with zero": (X, "y = aten.sub(x, 0.0);", "y = math.iden(x);"),
    "difference with minus zero stays": (
        X,
        "y = aten.sub(x, -0.0);",
        "y = aten.sub{alpha=1.0}(x, constant);",
    ),
    "difference from the other side": (N, "y = aten.rsub(0, x);", "y = math.iden(x);"),
    "added and taken away": (N, "a = aten.add(x, z); y = aten.sub(a, z);", "y = math.iden(x);"),
    "taken away and added": (
        N,
        "a = aten.sub{alpha=3}(x, z); y = aten.add{alpha=3}(a, z);",
        "y = math.iden(x);",
    ),
    "taken from itself": (N, "a = aten.sub(x, z); y = aten.rsub(a, x);", "y = math.iden(z);"),
    "added and taken away in other parts stays": (
        N,
        "a = aten.add{alpha=3}(x, z); y = aten.sub{alpha=2}(a, z);",
        "a = aten.add{alpha=3}(x, z); y = aten.sub{alpha=2}(a, z);",
    ),
    "added and taken away of reals stays": (
        "x: real[2]; z: real[2];",
        "a = aten.add(x, z); y = aten.sub(a, z);",
        "a = aten.add{alpha=1.0}(x, z); y = aten.sub{alpha=1.0}(a, z);",
    ),
    "two negations": (X, "a = aten.neg(x); b = aten.neg(a); y = aten.exp(b);", "y = aten.exp(x);"),
    "size of the opposite": (N, "a = aten.neg(x); y = aten.abs(a);", "y = aten.abs(x);"),
    "relu of relu": (
        X,
        "a = aten.relu(x); b = aten.relu(a); y = aten.exp(b);",
        "a = aten.relu(x); y = aten.exp(a);",
    ),
    "maximum of the same": (X, "y = aten.maximum(x, x);", "y = math.iden(x);"),
    "copies": (
        X,
        "a = aten.clone(x); b = aten.detach(a); c = aten.dropout(b); d = aten.alias(c); y = aten.exp(d);",
        "y = aten.exp(x);",
    ),
    "dropout with its mask": (
        X,
        "a, m = aten.native_dropout(x); b = aten.to_copy<real>(m); y = aten.maximum(a, b);",
        "m = aten.ones<bool>{size=[2, 3, 4]}(); b = aten.to_copy<real>(m); y = aten.maximum(x, b);",
    ),
    "cast to the same": (X, "a = aten.to_copy<real>(x); y = aten.exp(a);", "y = aten.exp(x);"),
    "cast to a wider type and back": (
        X,
        "a = aten.to_copy<f64>(x); b = aten.to_copy<real>(a); y = aten.exp(b);",
        "y = aten.exp(x);",
    ),
    "cast to another stays": (
        X,
        "a = aten.to_copy<f16>(x); y = aten.to_copy<real>(a);",
        "a = aten.to_copy<f16>(x); y = aten.to_copy<real>(a);",
    ),
    "clamp without bounds": (X, "y = aten.clamp(x);", "y = math.iden(x);"),
    "clamp with a bound stays": (X, "y = aten.clamp(x, 1.0);", "y = aten.clamp(x, constant);"),
    "a choice that is made": (X, "y = aten.where(true, x, 0.0);", "y = math.iden(x);"),
    "a choice that stretches": (
        M,
        "y = aten.where(false, x, 2.0);",
        "y = aten.expand{size=[2, 3]}(constant_2);",
    ),
    "a choice of the same": ("x: real[2]; c: bool[2];", "y = aten.where(c, x, x);", "y = math.iden(x);"),
    "a mask of nothing": (X, "y = aten.masked_fill(x, false, 1.0);", "y = math.iden(x);"),
    "stretching to the same": (X, "y = aten.expand{size=[-1, 3, 4]}(x);", "y = math.iden(x);"),
    "whole slice": (X, "y = aten.slice{dim=1, start=0, end=9}(x);", "y = math.iden(x);"),
    "whole slice of an open extent": (OPEN, "y = aten.slice{dim=0, start=0}(x);", "y = math.iden(x);"),
    "part stays": (X, "y = aten.slice{dim=1, start=1}(x);", "y = aten.slice{dim=1, start=1}(x);"),
    "nothing around": (X, "y = aten.constant_pad_nd{pad=[0, 0, 0, 0]}(x);", "y = math.iden(x);"),
    "repeated once": (X, "y = aten.repeat{repeats=[1, 1, 1]}(x);", "y = math.iden(x);"),
    "put over all of it": (N, "y = aten.copy(x, z);", "y = math.iden(z);"),
    "join of one": (X, "y = aten.cat{dim=0}([x]);", "y = math.iden(x);"),
    "cut into one": (X, "a..(1) = aten.split{split_size=5}(x); y = aten.exp(a[0]);", "y = aten.exp(x);"),
    "view of view": (
        X,
        "a = aten.flatten(x); b = aten.view{size=[3, 8]}(a); y = aten.exp(b);",
        "b = aten.view{size=[3, 8]}(x); y = aten.exp(b);",
    ),
    "view there and back": (
        OPEN,
        "a = aten.view{size=[-1, 12]}(x); b = aten.view{size=[-1, 3, 4]}(a); y = aten.exp(b);",
        "y = aten.exp(x);",
    ),
    "view of view with an open extent": (
        OPEN,
        "a = aten.flatten(x); b = aten.view{size=[-1, 6]}(a); y = aten.exp(b);",
        "b = aten.view{size=[2 * n, 6]}(x); y = aten.exp(b);",
    ),
    "longer and shorter": (
        X,
        "a = aten.unsqueeze{dim=1}(x); b = aten.squeeze{dim=[1]}(a); y = aten.exp(b);",
        "y = aten.exp(x);",
    ),
    "like another": (
        M,
        "a = aten.exp(x); b = aten.full_like(a, 2.0); y = aten.mul(b, x);",
        "b = aten.full{size=[2, 3]}(constant); y = aten.mul(b, x);",
    ),
    "like another of open shape stays": (
        OPEN,
        "b = aten.zeros_like(x); y = aten.maximum(b, x);",
        "b = aten.zeros_like(x); y = aten.maximum(b, x);",
    ),
}
TURNED: Cases = {
    "exchange there and back": (
        X,
        "a = aten.transpose{dim0=0, dim1=-1}(x); b = aten.transpose{dim0=2, dim1=0}(a); y = aten.exp(b);",
        "y = aten.exp(x);",
    ),
    "two orders": (
        X,
        "a = aten.permute{dims=[1, 2, 0]}(x); b = aten.transpose{dim0=0, dim1=1}(a); y = aten.exp(b);",
        "b = aten.permute{dims=[2, 1, 0]}(x); y = aten.exp(b);",
    ),
    "a matrix turned twice": (M, "a = aten.t(x); b = aten.t(a); y = aten.exp(b);", "y = aten.exp(x);"),
    "an order that changes nothing": (X, "y = aten.permute{dims=[0, 1, -1]}(x);", "y = math.iden(x);"),
    "orders of both libraries": (
        M,
        "a = layout.transpose(x); b = aten.t(a); y = aten.exp(b);",
        "y = aten.exp(x);",
    ),
}
MERGED: Cases = {
    "equal operations": (
        X,
        "a = aten.softmax{dim=1}(x); b = aten.softmax{dim=1}(x); y = aten.add(a, b);",
        "a = aten.softmax{dim=1}(x); y = aten.add{alpha=1.0}(a, a);",
    ),
    "other factors stay": (
        M,
        "a = aten.add(x, x); b = aten.add{alpha=2.0}(x, x); y = aten.mul(a, b);",
        "a = aten.add{alpha=1.0}(x, x); b = aten.add{alpha=2.0}(x, x); y = aten.mul(a, b);",
    ),
}
CASES = {
    "simplify": SIMPLIFIED,
    "cancel_transposes": TURNED,
    "cse": MERGED,
}
RELAXED: Cases = {
    "sum with zero": (X, "y = aten.add(x, 0.0);", "y = math.iden(x);"),
    "zero with a sum": (X, "y = math.add(0.0, x);", "y = math.iden(x);"),
    "product with zero": (
        M,
        "a = aten.mul(x, 0.0); y = aten.maximum(a, x);",
        "y = aten.maximum(a, x);",
    ),
    "added and taken away": (
        "x: real[2]; z: real[2];",
        "a = aten.add{alpha=2.0}(z, x); b = math.sub(a, z); c = aten.sub{alpha=2.0}(a, x); y = aten.add(b, c);",
        "y = aten.add{alpha=2.0}(z, x);",
    ),
    "multiplied and divided": (
        "x: real[2]; z: real[2];",
        "a = aten.mul(x, z); b = math.div(a, z); y = aten.exp(b);",
        "y = aten.exp(x);",
    ),
    "divided and multiplied": (
        "x: real[2]; z: real[2];",
        "a = aten.div(x, z); b = aten.mul(z, a); y = aten.exp(b);",
        "y = aten.exp(x);",
    ),
    "rounded and multiplied stays": (
        "x: real[2]; z: real[2];",
        "a = aten.div{rounding_mode='floor'}(x, z); y = aten.mul(a, z);",
        "a = aten.div{rounding_mode='floor'}(x, z); y = aten.mul(a, z);",
    ),
}


def model_of(inputs: str, body: str) -> Model:
    return small(inputs, body, "y: int" if "x: int" in inputs else "y: real")


def text_of(model: Model) -> str:
    return " ".join(body_of(model)).replace('"', "'")


def run_powers(model: Model) -> dict[str, Array]:
    """The outputs for powers of two, on which nothing is rounded."""
    source = np.random.default_rng(0)
    inputs = [item for item in members(model.graph.inputs) if isinstance(item, Tensor)]
    sizes = {item.name: [size for size in item.shape if isinstance(size, int)] for item in inputs}
    powers = {name: np.float32(2) ** source.integers(-9, 9, size) for name, size in sizes.items()}
    return compile_model(model)(**{name: array.astype(np.float32) for name, array in powers.items()})


@pytest.mark.parametrize(("what", "name"), [(what, name) for what, cases in CASES.items() for name in cases])
def test_before_and_after(what: str, name: str) -> None:
    inputs, before, after = CASES[what][name]
    model = model_of(inputs, before)
    found = PASSES["dce"](PASSES[what](model))
    assert text_of(found) == after
    assert not verify(found.graph, found.library)
    same_bits(run_special(model, {}, {"n": 3}), run_special(found, {}, {"n": 3}))


@pytest.mark.parametrize("name", RELAXED)
def test_relaxed_equations(name: str) -> None:
    inputs, before, after = RELAXED[name]
    model = model_of(inputs, before)
    found = PASSES["dce"](PASSES["fast_math"](model))
    assert text_of(found) == after
    assert not verify(found.graph, found.library)
    same_bits(run_powers(model), run_powers(found))


@pytest.mark.parametrize("name", [name for name, case in RELAXED.items() if case[1] != case[2]])
def test_relaxed_equations_are_not_exact(name: str) -> None:
    """Some number tells the two apart, so that the pass does not belong to the others."""
    inputs, before, _ = RELAXED[name]
    model = model_of(inputs, before)
    assert text_of(PASSES["simplify"](model)) == text_of(model)
    values = np.asarray([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e38, -3e38, 0.1, 1e-45, 3.0], np.float32)
    grid = np.resize(values, 4096)
    other = np.resize(np.roll(values, 3), 4096) if "z:" in inputs else grid
    assert not np.array_equal(*_both(name, grid, other))


def _both(name: str, x: Array, z: Array) -> tuple[Array, Array]:
    """Both sides of an equation by NumPy, as bits."""
    with np.errstate(all="ignore"):
        sides = {
            "sum with zero": (x + np.float32(0), x),
            "zero with a sum": (np.float32(0) + x, x),
            "product with zero": (x * np.float32(0), np.zeros_like(x)),
            "added and taken away": ((x + z) - z, x),
            "multiplied and divided": ((x * z) / z, x),
            "divided and multiplied": ((x / z) * z, x),
        }[name]
    return sides[0].view(np.int32), sides[1].view(np.int32)


NUMBERS = (F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64)


def edges(element: ElementType) -> Array:
    """The values of a type that another type is the first to lose."""
    dtype = numpy_dtype(element)
    if element.is_float:
        shape = np.finfo(dtype)
        return np.asarray([shape.max, shape.tiny, shape.smallest_subnormal, 1 + shape.eps, -1.5], dtype)
    powers = [1 << bit for bit in range(element.bits + 1)]
    found = {sign * (power + step) for power in powers for step in (-1, 0, 1) for sign in (1, -1)}
    return np.asarray(sorted(item for item in found if element.minimum <= item <= element.maximum), dtype)


@pytest.mark.parametrize("narrow", NUMBERS, ids=str)
@pytest.mark.parametrize("wide", NUMBERS, ids=str)
def test_which_types_say_all_of_another(wide: ElementType, narrow: ElementType) -> None:
    """A type says all of another where each value is the same number in both, told exactly by Python."""
    values = edges(narrow)
    with np.errstate(all="ignore"):
        there = values.astype(numpy_dtype(wide)).tolist()
    same = there == values.tolist()
    assert wide == narrow or represents(wide, narrow) == same


def test_what_bfloat16_represents_of() -> None:
    assert [item for item in NUMBERS if represents(BF16, item)] == [I8, U8]
    assert [item for item in NUMBERS if represents(item, BF16)] == [F32, F64]


# --- constants ----------------------------------------------------------------------------------------------


def folded(inputs: str, body: str, blocks: str = "") -> Model:
    model = small(inputs, body, blocks=blocks)
    found = fold_constants(model, evaluator(model.library))
    assert not verify(found.graph, found.library)
    return found


def test_what_is_made_of_nothing_is_computed_with() -> None:
    body = (
        "a = aten.arange<int>{end=6}(); b = aten.view{size=[2, 3]}(a); c = aten.add{alpha=2}(b, b);"
        " d..(2) = aten.split{split_size=1}(c); e = aten.cat([d[1], d[1], d[0]]);"
        " f = aten.to_copy<real>(e); y = aten.mul(x, f);"
    )
    found = PASSES["dce"](folded("x: real[3, 3];", body))
    assert text_of(found) == "y = aten.mul(x, f);"
    (constant,) = found.graph.constants
    whole = np.arange(6).reshape(2, 3) * 3
    expected = np.concatenate([whole[1:], whole[1:], whole[:1]]).reshape(-1)
    assert constant.value == tuple(expected.astype(float).tolist())


def test_makers_stay_for_those_who_read_them_at_the_run() -> None:
    found = folded("x: real[3];", "a = aten.full{size=[3]}(2.0); y = aten.mul(x, a);")
    assert text_of(found) == "a = aten.full{size=[3]}(constant); y = aten.mul(x, a);"


def test_weights_are_not_folded() -> None:
    body = "a = aten.mul(w, 2.0); y = aten.add(x, a);"
    found = folded("x: real[3];", body, "@variable { w: real[3]; }")
    assert text_of(found) == "a = aten.mul(w, constant); y = aten.add{alpha=1.0}(x, a);"


@pytest.mark.parametrize(
    "body",
    [
        f"a = aten.full{{size=[{LARGEST + 1}]}}(2.0); b = aten.exp(a); y = aten.add(b, x);",
        "b = aten.sum{dim=[0]}(c); y = aten.add(b, x);",
        "b = aten.log(-1.0); y = aten.add(b, x);",
    ],
)
def test_what_is_too_large_or_no_number_stays(body: str) -> None:
    blocks = "@constant { c: real[1000000000000] = 2.0; }"
    found = folded("x: real[1];", body, blocks)
    assert [item.tensor.name for item in found.graph.constants if item.tensor.name in ("a", "b")] == []


def test_a_long_chain_of_makers_is_not_climbed() -> None:
    lines = ["a0 = aten.full{size=[]}(2.0);"]
    lines += [f"a{place + 1} = aten.full{{size=[]}}(a{place});" for place in range(1500)]
    found = folded("x: real[];", " ".join([*lines, "b = aten.neg(a1500); y = aten.add(x, b);"]))
    assert not [item for item in found.graph.constants if item.tensor.name == "b"]


def test_operations_that_are_kept_compiled_are_told_apart() -> None:
    """Both zeros compare equal, and so do 1 and true; the evaluator must not take one for the other."""
    lines = ["a = aten.add{alpha=0.0}(-0.0, 1.0);", "b = aten.add{alpha=-0.0}(-0.0, 1.0);"]
    lines += ["c = aten.add(x, a);", "y = aten.sub(c, b);"]
    values = {
        item.tensor.name: repr(item.value) for item in folded("x: real[2];", " ".join(lines)).graph.constants
    }
    assert (values["a"], values["b"]) == ("0.0", "-0.0")
