"""Losses, types, created tensors and collectives of `llm`, judged by torch, ml_dtypes and NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from tests.support.judges.draws import arrays, filled, shapes
from tests.support.judges.harness import one, refuse, run
from tests.support.judges.llm import agree, differentiate, draw, torch
from tests.support.judges.registry import Refusal, judged

Data = st.DataObject
Shape = tuple[int, ...]


@judged("torch", "llm.cross_entropy", "llm.cross_entropy_backward")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@given(shapes(1, 3, 1, 3), st.integers(1, 4), st.booleans(), st.data())
def test_cross_entropy(reduction: str, lead: Shape, classes: int, ignoring: bool, data: Data) -> None:
    logits = draw(data, *lead, classes)
    labels = data.draw(arrays(lead, ("int64",), 0, classes - 1))
    ignored = 0 if ignoring else -100
    if ignoring:
        labels.ravel()[0] = classes - 1
        ignored = -1 if classes == 1 else 0

    def loss(logits: Any) -> Any:
        rows, wanted = logits.reshape(-1, classes), torch.tensor(labels.ravel())
        found = torch.nn.functional.cross_entropy(rows, wanted, ignore_index=ignored, reduction=reduction)
        return found.reshape(lead) if reduction == "none" else found

    back = draw(data, *(lead if reduction == "none" else ()))
    (out,), grads = differentiate(loss, [logits], [back], [0])
    agree("cross_entropy", [logits, labels], out, ignore_index=ignored, reduction=reduction)
    agree("cross_entropy_backward", [back, logits, labels], grads, ignore_index=ignored, reduction=reduction)


@judged(
    "torch",
    "llm.linear_cross_entropy",
    "llm.linear_cross_entropy_backward",
    "llm.linear_cross_entropy_gradients",
)
@pytest.mark.parametrize(("reduction", "chunk"), [("mean", 0), ("none", 4), ("mean", 4), ("sum", 3)])
def test_linear_cross_entropy(reduction: str, chunk: int) -> None:
    random, lead, classes = np.random.default_rng(chunk), (2, 5), 4
    x, weight = random.standard_normal((*lead, 3)), random.standard_normal((classes, 3))
    labels = random.integers(0, classes, lead)
    labels[1, 2] = -100

    def loss(x: Any, weight: Any) -> Any:
        rows, wanted = (x @ weight.T).reshape(-1, classes), torch.tensor(labels.ravel())
        found = torch.nn.functional.cross_entropy(rows, wanted, reduction=reduction)
        return found.reshape(lead) if reduction == "none" else found

    back = random.standard_normal(lead if reduction == "none" else ())
    (out,), grads = differentiate(loss, [x, weight], [back], [0, 1])
    agree("linear_cross_entropy", [x, weight, labels], out, reduction=reduction, chunk=chunk)
    given = [back, x, weight, labels]
    agree("linear_cross_entropy_backward", given, grads, reduction=reduction, chunk=chunk)
    if reduction != "none":
        both = [out, *grads]
        agree("linear_cross_entropy_gradients", given, both, reduction=reduction, chunk=chunk)


def test_a_label_outside_the_classes_ends_the_run() -> None:
    with pytest.raises(LamellaError):
        run("llm.cross_entropy", [np.zeros((2, 3)), np.asarray([0, 3])])


def test_far_logits_keep_a_finite_loss() -> None:
    agree("cross_entropy", [np.asarray([[1e4, 0.0]]), np.asarray([1])], np.asarray(1e4))


FLOATS = {
    "f8e4m3": (ml_dtypes.float8_e4m3fn, 448.0),
    "f8e5m2": (ml_dtypes.float8_e5m2, 57344.0),
    "f4e2m1": (ml_dtypes.float4_e2m1fn, 6.0),
}


@judged("numpy", "llm.quantize")
@pytest.mark.parametrize("name", FLOATS)
@given(shapes(0, 3), st.sampled_from([0.25, 1.0, 2.0]), st.integers(0, 2**32 - 1))
def test_quantized_floats(name: str, shape: Shape, scale: float, seed: int) -> None:
    dtype, largest = FLOATS[name]
    x = np.asarray(filled(shape, "float32", seed, -200, 200) ** 3)
    found = run("llm.quantize", [x], {"scale": scale}, [name])[0]
    expected = np.clip(x / scale, -largest, largest).astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(found, np.float32), expected)


@judged("numpy", "llm.quantize", "llm.dequantize")
@given(shapes(0, 3), st.integers(0, 2**32 - 1))
def test_quantized_integers(shape: Shape, seed: int) -> None:
    x = filled(shape, "float64", seed, -80, 80)
    away = np.sign(x / 0.5) * np.floor(np.abs(x / 0.5) + 0.5)
    found = run("llm.quantize", [x], {"scale": 0.5}, ["i8"])[0]
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, np.clip(away, -128, 127).astype(np.int8))
    agree("dequantize", [found], found * 0.5, ["f64"], scale=0.5)
    agree("dequantize", [found], (found * 0.5).astype(np.float32), scale=0.5)


@judged("numpy", "llm.convert_dtype", "llm.convert_dtype_backward")
@given(shapes(0, 3), st.data())
def test_converted(shape: Shape, data: Data) -> None:
    x = draw(data, *shape)
    agree("convert_dtype", [x], x.astype(np.float32), ["f32"])
    agree("convert_dtype", [x], x.astype(np.int32), ["i32"])
    agree("convert_dtype_backward", [x.astype(np.float32), x], x)


@judged("numpy", "llm.zeros", "llm.ones", "llm.fill")
@given(shapes(0, 4), st.sampled_from(["f32", "f64", "i32", "bool"]))
def test_created(shape: Shape, name: str) -> None:
    dtype = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "bool": np.bool_}[name]
    agree("zeros", [], np.zeros(shape, dtype), [name], shape=shape)
    agree("ones", [], np.ones(shape, dtype), [name], shape=shape)
    agree("fill", [], np.full(shape, 2.5).astype(dtype), [name], shape=shape, value=2.5)


@judged("statistics", "llm.fill_normal")
def test_random_numbers() -> None:
    found = one("llm.fill_normal", shape=(100, 100), mean=3.0, std=0.5)
    assert abs(float(found.mean()) - 3.0) < 0.03
    assert abs(float(found.std()) - 0.5) < 0.03


@judged("numpy", "llm.all_gather", "llm.reduce_scatter")
@given(shapes(1, 3), st.data())
def test_one_rank(shape: Shape, data: Data) -> None:
    x = draw(data, *shape)
    agree("all_gather", [x], x)
    agree("reduce_scatter", [x], x, dim=-1)


REDUCTION = "'reduction' must be one of"
WRONG = {"reduction": "median"}
REFUSALS = (
    Refusal("llm.cross_entropy", REDUCTION, ((2, 3), (2,)), WRONG, "f32 i64"),
    Refusal("llm.cross_entropy_backward", REDUCTION, ((), (2, 3), (2,)), WRONG, "f32 f32 i64"),
    *(
        Refusal(f"llm.linear_cross_entropy{name}", message, (*more, (2, 4), (3, 4), (2,)), wrong, types)
        for name, more, types in (
            ("", (), "f32 f32 i64"),
            ("_gradients", ((),), "f32 f32 f32 i64"),
            ("_backward", ((),), "f32 f32 f32 i64"),
        )
        for message, wrong in (
            (REDUCTION, WRONG),
            ("'chunk' must not be negative", {"chunk": -1}),
            ("'rounded' must be one of", {"rounded": "i8"}),
        )
    ),
    Refusal("llm.quantize", "'scale' must be positive", ((2,),), {"scale": 0.0}, types=("i8",)),
    Refusal("llm.dequantize", "'scale' must be positive", ((2,),), {"scale": 0.0}, "i8"),
    *(
        Refusal(f"llm.{name}", "'shape' must not be negative", (), {"shape": (2, -1), **value})
        for name, value in (("zeros", {}), ("ones", {}), ("fill", {"value": 1.0}), ("fill_normal", {}))
    ),
    Refusal("llm.all_gather", "'dim' must be at least -1 and below 1", ((2,),), {"dim": 1}),
    Refusal("llm.reduce_scatter", "'dim' must be at least -1 and below 1", ((2,),), {"dim": 1}),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refused(refusal: Refusal) -> None:
    refuse(refusal)
