"""How arguments stand in files: each rule of the encoding by a program of its own, judged by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.reference import compile_model
from tests.support.bridge.nac_graphs import Array, operators, run, translate

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
Y = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
B = X > 0
N = np.array([3, 1], np.int64)


def unary(call: str) -> str:
    """A program of one call on x."""
    return f"%x = input()\n%y = {call}\n%z = output(%y)"


def binary(call: str) -> str:
    """A program of one call on x and y."""
    return f"%x = input()\n%w = input()\n%y = {call}\n%z = output(%y)"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("nac.add:TT(%x, %w)", X + Y),
        ("nac.add:TTi(%x, %w, 2)", X + 2 * Y),
        ("nac.sub:TTf(%x, %w, 0.5)", X - np.float32(0.5) * Y),
        ("nac.gt:TT(%x, %w)", X > Y),
        ("nac.le:TT(%x, %w)", X <= Y),
        ('"nac.div":TT(%x, %w)', X / np.where(Y == 0, 1, Y)),
        ("aten.minimum.default:TT(%x, %w)", np.minimum(X, Y)),
        ("aten.mul.Tensor:TT(%x, %w)", X * Y),
        ("mul:TT(%x, %w)", X * Y),
    ],
)
def test_two_tensors(call: str, expected: Array) -> None:
    y = np.where(Y == 0, 1, Y) if "div" in call else Y
    np.testing.assert_allclose(run(binary(call), x=X, y=y), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("nac.pass:T(%x)", X),
        ("nac.pass:Tfb(%x, 0.5, true)", X),
        ("nac.add:Ti(%x, 3)", X + 3),
        ("nac.sub:Tf(%x, 1.5)", X - np.float32(1.5)),
        ("nac.sub:iT(1, %x)", 1 - X),
        ("nac.sub:fTi(1.0, %x, 2)", 1 - 2 * X),
        ("nac.gt:Ti(%x, 0)", X > 0),
        ("nac.neg:T(%x)", -X),
        ('nac.clone:Tc(%x, "contiguous_format")', X),
        ("nac.view:TS(%x, [3, 2])", X.reshape(3, 2)),
        ("nac.view:TS(%x, [-1])", X.reshape(-1)),
        ("nac.view:T(%x)", X),
        ('aten._to_copy.default:Tc(%x, "int64")', X.astype(np.int64)),
        ('aten._to_copy.default:Tccb(%x, "float64", "cpu", false)', X.astype(np.float64)),
        ("aten.relu:T(%x)", np.maximum(X, 0)),
        ('"aten::relu.default":T(%x)', np.maximum(X, 0)),
        ("aten.mean.dim:TSb(%x, [1], true)", X.mean(1, keepdims=True)),
        ("aten.permute.default:TS(%x, [1, 0])", X.T),
        ("aten.cat.default:TTi(%x, %x, 1)", np.concatenate([X, X], 1)),
        ("aten.cat.default:TTA(%x, %x, 1)", np.concatenate([X, X], 1)),
        ("aten.cat.default:TT(%x, %x)", np.concatenate([X, X])),
        ("aten.stack.default:TTTi(%x, %x, %x, -1)", np.stack([X, X, X], -1)),
        ("aten.clamp.default:Tcf(%x, null, 1.0)", np.minimum(X, 1)),
        ("aten.clamp.default:Tf(%x, 1.0)", np.maximum(X, 1)),
        ("aten.sum.dim_IntList:TS(%x, [0])", X.sum(0)),
        (
            'aten.pad.default:TSsf(%x, [1, 0], "constant", 7.0)',
            np.pad(X, ((0, 0), (1, 0)), constant_values=7),
        ),
        ("aten.slice.Tensor:Tiii(%x, 1, 1, 9223372036854775807)", X[:, 1:]),
    ],
)
def test_constants_and_keywords_without_names(call: str, expected: Array) -> None:
    actual = run(unary(call), x=X)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("nac.where:TTf(%c, %x, 0.5)", np.where(B, X, np.float32(0.5))),
        ("nac.where:TfT(%c, 0.5, %x)", np.where(B, np.float32(0.5), X)),
        ("nac.where:TTT(%c, %x, %x)", X),
        ("nac.where:Tff(%c, 1.0, 2.0)", np.where(B, np.float32(1), np.float32(2))),
    ],
)
def test_choices(call: str, expected: Array) -> None:
    code = f"%x = input()\n%c = input()\n%y = {call}\n%z = output(%y)"
    np.testing.assert_array_equal(run(code, x=X, c=B), expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("i(4)", np.arange(4)),
        ("ii(1, 4)", np.arange(1, 4)),
        ("iii(1, 9, 3)", np.arange(1, 9, 3)),
        ('icb(4, "cpu", false)', np.arange(4)),
        ('iccb(4, "float32", "cpu", false)', np.arange(4, dtype=np.float32)),
        ('iicc(1, 4, "int32", "cpu")', np.arange(1, 4, dtype=np.int32)),
        ("fff(0.0, 1.0, 0.25)", np.arange(0, 1, 0.25, dtype=np.float32)),
    ],
)
def test_ranges(arguments: str, expected: Array) -> None:
    actual = run(unary(f"nac.arange:{arguments}"), x=X)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('nac.zeros:Sccb([2, 1], "float64", "cpu", false)', np.zeros((2, 1))),
        ("nac.ones:S([2])", np.ones(2, np.float32)),
        ("nac.full:Si([2], 7)", np.full(2, 7)),
        ('nac.full:Sicc([2], 7, "float32", "cpu")', np.full(2, 7, np.float32)),
        ("nac.full:Sb([1], true)", np.array([True])),
        ('nac.zeros_like:Tc(%x, "int64")', np.zeros((2, 3), np.int64)),
        ("nac.full_like:Tf(%x, 0.5)", np.full((2, 3), 0.5, np.float32)),
        ("nac.new_zeros:TS(%x, [3])", np.zeros(3, np.float32)),
        ("nac.mul:Ti(%x, 2)", X * 2),
        ("nac.div:Ti(%x, 2)", X / 2),
        ("nac.transpose:T(%x)", X.T),
        ("nac.transpose:Tii(%x, 0, 1)", X.T),
        ("nac.matmul:TT(%x, %w)", X @ X.T),
        ("nac.clone:TT(%x, %v)", np.ones((2, 3), np.float32)),
    ],
)
def test_operations_of_the_newer_table(call: str, expected: Array) -> None:
    code = f"%x = input()\n%w = nac.transpose:T(%x)\n%v = nac.ones:S([3])\n%y = {call}\n%z = output(%y)"
    actual = run(code, "1.8", x=X)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(actual, expected)


def test_the_last_two_dimensions_are_swapped() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(run(unary("nac.transpose:T(%x)"), "1.8", x=x), x.swapaxes(1, 2))


def test_a_view_is_a_shape_or_drops_dimensions() -> None:
    x = np.zeros((1, 3, 1), np.float32)
    assert run(unary("nac.view:T(%x)"), x=x).shape == (3,)
    assert run(unary("nac.view:Ti(%x, 0)"), x=x).shape == (3, 1)
    assert run(unary("nac.view:Ti(%x, -1)"), x=x).shape == (1, 3)
    assert run(unary("nac.view:TS(%x, [3])"), x=x).shape == (3,)
    code = "%x = input()\n%s = aten.sym_size.int:Ti(%x, 1)\n%y = nac.view:{}\n%z = output(%y)"
    for call, shape in (
        ("TT(%x, %s)", (3,)),
        ("Ti(%x, %s)", (3,)),
        ("TTi(%x, %s, 1)", (3, 1)),
        ("TiTi(%x, 1, %s, -1)", (1, 3, 1)),
    ):
        assert run(code.format(call), x=x).shape == shape


def test_a_constant_is_what_its_code_says() -> None:
    code = """
        %x = input()
        %a = aten.cat.default:TTi(%x, %x, 1.0)
        %b = aten.mean.dim:TSb(%a, [1.0], 1.0)
        %p = aten.split.Tensor:TiA(%b, true, false)
        %c = getitem:Ti(%p, false)
        %z = output(%c)
    """
    np.testing.assert_allclose(run(code, x=X), X.mean(1, keepdims=True)[:1], rtol=1e-6)


def test_sizes_are_computed() -> None:
    code = """
        %x = input()
        %s = aten.sym_size.int:Ti(%x, 0)
        %t = aten.sym_size.int:Ti(%x, 1)
        %a = mul:TT(%s, %t)
        %b = floordiv:Ti(%a, 2)
        %c = add:Ti(%b, -1)
        %d = nac.sub:TT(%a, %c)
        %v = nac.view:TTi(%x, %a, 1)
        %e = aten.expand.default:TTT(%v, %a, %d)
        %z = output(%e)
    """
    actual = translate(code, x=X)
    assert actual.results[3:8] == (6, 3, 2, 4, actual.results[7])
    assert all(not step for step in actual.steps[:7])
    np.testing.assert_array_equal(run(code, x=X), np.broadcast_to(X.reshape(6, 1), (6, 4)))


def test_flattened_lists_leave_what_others_need() -> None:
    code = "%x = input()\n%s = aten.sym_size.int:Ti(%x, 1)\n{}\n%z = output(%y)"
    for call, expected in (
        ("%y = aten.full.default:Tii(%s, 2, 7)", np.full((3, 2), 7)),
        (
            "%y = aten.constant_pad_nd.default:TTii(%x, %s, 1, 5)",
            np.pad(X, ((0, 0), (3, 1)), constant_values=5),
        ),
        ("%q = aten.split_with_sizes.default:TTii(%x, %s, 0, 1)\n%y = getitem:Ti(%q, 0)", X),
        ("%y = aten.repeat.default:TiT(%x, 1, %s)", np.tile(X, (1, 3))),
    ):
        actual = run(code.format(call), x=X)
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(actual, expected)


def test_indices_may_be_absent() -> None:
    code = "%x = input()\n%n = input()\n%y = aten.index.Tensor:{}\n%z = output(%y)"
    rows, columns = N % 2, N % 3
    np.testing.assert_array_equal(run(code.format("TT(%x, %n)"), x=X, n=rows), X[rows])
    np.testing.assert_array_equal(run(code.format("TcT(%x, null, %n)"), x=X, n=columns), X[:, columns])
    np.testing.assert_array_equal(run(code.format("TTT(%x, %n, %n)"), x=X, n=rows), X[rows, rows])


def test_a_tuple_is_its_first_tensor() -> None:
    weight = np.array([2, 1, 0.5], np.float32)
    code = """
        %x = input()
        %w = input()
        %t = aten.native_layer_norm.default:TSTTf(%x, [3], %w, %w, 1e-05)
        %y = nac.neg:T(%t)
        %z = output(%y, %t)
    """
    scaled = (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + np.float32(1e-5))
    found = compile_model(translate(code, x=X, w=weight).model)(x=X, w=weight)
    np.testing.assert_allclose(found["output_0"], -(scaled * weight + weight), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["output_1"], scaled * weight + weight, rtol=1e-4, atol=1e-5)


def test_results_of_batch_norm_are_used_directly() -> None:
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    c = np.array([1, 2, 3], np.float32)
    code = """
        %x = input()
        %c = input()
        %b = aten._native_batch_norm_legit_no_training.default:TTTTTff(%x, %c, %c, %c, %c, 0.1, 0.0)
        %y = aten.relu.default:T(%b)
        %z = output(%y)
    """
    k = c[:, None]
    np.testing.assert_allclose(run(code, x=x, c=c), np.maximum((x - k) / np.sqrt(k) * k + k, 0), rtol=1e-5)


def test_what_is_changed_in_place_is_seen_changed() -> None:
    code = """
        %x = input()
        %a = nac.neg:T(%x)
        %b = "aten.relu_.default":T(%a)
        %y = nac.add:TT(%a, %b)
        %z = output(%y)
    """
    np.testing.assert_array_equal(run(code, x=X), 2 * np.maximum(-X, 0))


def test_assertions_are_dropped() -> None:
    code = """
        %x = input()
        %s = aten.sym_size.int:Ti(%x, 0)
        %g = ge:Ti(%s, 1)
        %a = aten._assert_scalar.default:Ts(%g, "at least 1")
        %m = aten._assert_tensor_metadata.default:Tccc(%x, null, null, "float32")
        %z = output(%x)
    """
    np.testing.assert_array_equal(run(code, x=X), X)
    assert operators(code, x=X) == ["math.iden"]


def test_operators_of_our_library() -> None:
    code = """
        %x = input()
        %a = math.add:TT(%x, %x)
        %b = layout.concat:iTTi(2, %a, %x, 1)
        %r = math.max_reduce:TSb(%b, [0], false)
        %z = output(%r)
    """
    np.testing.assert_array_equal(run(code, x=X), np.concatenate([X + X, X], 1).max(0, keepdims=True))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=4), st.sampled_from(["TS", "list"]))
def test_any_shape_is_read_either_way(extents: list[int], form: str) -> None:
    sizes = [abs(item) + 1 for item in extents]
    x = np.zeros(sizes, np.float32)
    target = [*reversed(sizes), 1]
    if form == "TS":
        call = f"nac.view:TS(%x, {target})"
    else:
        call = f"nac.view:TT{'i' * (len(target) - 1)}(%x, %s, {', '.join(map(str, target[1:]))})"
    code = f"%x = input()\n%s = aten.sym_size.int:Ti(%x, -1)\n%y = {call}\n%z = output(%y)"
    assert run(code, x=x).shape == tuple(target)
