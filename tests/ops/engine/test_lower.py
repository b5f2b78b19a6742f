"""Formulas written out: run step by step and judged by NumPy and torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.dim import Dim, symbol
from lamella.base.dtype import BOOL, F32, I64, ElementType
from lamella.base.errors import Found
from lamella.ops.formula import Apply, Contraction, Counter, Element, Guard, Index, Lookup, Loop
from lamella.ops.instance import Argument, Declared, Instance, Shape, Value
from lamella.ops.library import Library
from lamella.ops.lower import contractions
from lamella.ops.specialise import decide, specialise
from tests.support.ops.engine.calls import FakePack, bind, call, tensor
from tests.support.ops.engine.interpret import Array, Interpreter

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
LIBRARY = Library()
KINDS: Mapping[str, ElementType] = {"f": F32, "i": I64, "b": BOOL}
DTYPES = {F32: np.float64, I64: np.int64, BOOL: np.bool_}


def fake(value: Array | Sequence[Array] | float | None) -> Argument:
    if isinstance(value, np.ndarray):
        return tensor(*value.shape, element=KINDS[value.dtype.kind])
    if isinstance(value, list):
        return tuple(tensor(*item.shape, element=KINDS[item.dtype.kind]) for item in value)
    assert value is None or isinstance(value, int | float)
    return value


def empty(declared: Declared) -> Array | list[Array]:
    dtype = DTYPES[declared.element]
    if declared.items is not None:
        return [np.zeros(sizes(shape), dtype) for shape in declared.items]
    return np.zeros(sizes(declared.shape or ()), dtype)


def sizes(shape: Shape) -> tuple[int, ...]:
    assert all(isinstance(extent, int) for extent in shape)
    return tuple(extent for extent in shape if isinstance(extent, int))


def execute(
    instance: Instance, values: Sequence[Array | list[Array] | float | None], found: Sequence[Contraction]
) -> Array | list[Array]:
    """The output of contractions on arrays."""
    output = empty(instance.outputs[0])
    given = zip((name for name, _ in instance.inputs), values, strict=True)
    tensors = {
        name: value if isinstance(value, list) else np.asarray(value)
        for name, value in given
        if value is not None
    }
    Interpreter({**tensors, instance.outputs[0].name: output}).run(found)
    return output


def run(name: str, *values: Array | list[Array] | float | None, **attributes: Value) -> Array:
    instance = call(LIBRARY, name, [fake(value) for value in values], attributes)
    padded = [*values, *[None] * (len(instance.inputs) - len(values))]
    found = execute(instance, padded, contractions(instance))
    assert isinstance(found, np.ndarray)
    return found


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


SMALL = st.integers(1, 4)

# --- judged -------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from((1, 3)), max_size=3), st.lists(st.sampled_from((1, 3)), max_size=3))
def test_broadcasting(left: list[int], right: list[int]) -> None:
    x, y = numbers(*left), numbers(*right, seed=1)
    assert np.array_equal(run("math.add", x, y), x + y)


def test_a_scalar_is_folded_into_the_formula() -> None:
    x = numbers(2, 3)
    assert np.array_equal(run("math.mul", x, 2.0), x * 2.0)
    (found,) = contractions(call(LIBRARY, "math.mul", [tensor(2, 3), 2.0]))
    assert isinstance(found.values[0], Apply)
    assert found.values[0].operands[1] == 2.0


@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), SMALL)
def test_convolution(groups: int, width: int, kernel: int, stride: int, padding: int, size: int) -> None:
    torch = pytest.importorskip("torch")
    x, w, b = (
        numbers(1, 2 * groups, size + 2),
        numbers(width * groups, 2, kernel, seed=1),
        numbers(width * groups),
    )
    attributes = {"stride": stride, "padding": padding, "groups": groups}
    expected = torch.nn.functional.conv1d(*map(torch.from_numpy, (x, w, b)), stride, padding, 1, groups)
    assert np.allclose(run("nn.conv", x, w, b, **attributes), expected.numpy())


@given(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.integers(-2, 1))
def test_concatenation(sizes: list[int], axis: int) -> None:
    arrays = [numbers(2, size, seed=size) if axis % 2 else numbers(size, 2, seed=size) for size in sizes]
    assert np.array_equal(run("layout.concat", arrays, axis=axis), np.concatenate(arrays, axis))


@given(
    st.lists(st.integers(0, 2), min_size=4, max_size=4), st.sampled_from(("CONSTANT", "REFLECT", "REPLICATE"))
)
def test_padding(widths: list[int], method: str) -> None:
    x = numbers(3, 4)
    modes: dict[str, Literal["constant", "reflect", "edge"]] = {
        **{"CONSTANT": "constant", "REFLECT": "reflect", "REPLICATE": "edge"},
    }
    pairs = [(widths[0], widths[2]), (widths[1], widths[3])]
    expected = np.pad(x, pairs, mode=modes[method])
    assert np.array_equal(run("layout.pad", x, padding=tuple(widths), method=method), expected)


@given(st.permutations(range(3)))
def test_transposition(perm: list[int]) -> None:
    x = numbers(2, 3, 4)
    assert np.array_equal(run("layout.transpose", x, perm=tuple(perm)), x.transpose(perm))


def test_gathering_by_packs_of_indices() -> None:
    x, places = numbers(3, 4, 2), np.array([[0, 1], [2, 3], [1, 1]])
    assert np.array_equal(run("layout.gather_nd", x, places), x[places[:, 0], places[:, 1]])


def test_several_targets_are_assigned_in_one_step() -> None:
    x = numbers(3, 4)
    instance = call(LIBRARY, "math.argmax_nd", [fake(x)])
    found = execute(instance, [x], contractions(instance))
    assert [item.item() for item in found] == list(np.unravel_index(int(x.argmax()), x.shape))


def test_an_item_that_the_formula_computes() -> None:
    arrays = [numbers(2, 3, seed=seed) for seed in range(4)]
    assert np.array_equal(run("math.argmax_n", arrays), np.stack(arrays).argmax(0))


# --- forms --------------------------------------------------------------------------------------------------


def lowered(text: str, *arguments: Argument, **attributes: Value) -> tuple[Contraction, ...]:
    return contractions(bind(text, *arguments, **attributes))


ADD_TO_ALL = """operator o { @input { xs: real[n]..(k); z: real[n]; } @output { ys: real[n]..(k); }
    @lower { FORMULA } }"""


@pytest.mark.parametrize(
    "formula",
    [
        "ys[ki][i,] = xs[ki][i,] + z[i,], ki < k, i < n;",
        "unroll..(ki -> k) ys[ki][i,] = xs[ki][i,] + z[i,], i < n;",
    ],
)
def test_a_pack_written_item_by_item(formula: str) -> None:
    found = lowered(ADD_TO_ALL.replace("FORMULA", formula), (tensor(4), tensor(4)), tensor(4))
    assert [item.targets[0].item for item in found] == [0, 1]
    assert all(item.loops == (Loop("i", 4),) for item in found)


def test_a_pack_written_at_once() -> None:
    text = ADD_TO_ALL.replace("FORMULA", "ys[i,] = xs[i,] + z[i,], i < n;")
    (found,) = lowered(text, (tensor(4), tensor(4)), tensor(4))
    assert [item.item for item in found.targets] == [0, 1]
    assert len(found.values) == 2


def test_a_pack_of_unknown_length_stays_a_loop() -> None:
    text = ADD_TO_ALL.replace("FORMULA", "ys[ki][i,] = xs[ki][i,] + z[i,], ki < k, i < n;")
    k = symbol("k", 5)
    assert isinstance(k, Dim)
    (found,) = lowered(text, FakePack("xs", (4,), k), tensor(4))
    assert found.loops == (Loop("ki", k), Loop("i", 4))
    assert found.targets[0].item == Index("ki")


def test_what_is_null_is_dropped() -> None:
    text = """operator o { @input { x: real[n]; b: optional real[n]; } @output { y: real[n]; }
        @lower { y[i,] = b[i,], i < n; y[i,] += x[i,], i < n; } }"""
    assert [item.sign for item in lowered(text, tensor(3))] == ["+="]
    assert [item.sign for item in lowered(text, tensor(3), tensor(3))] == ["=", "+="]


def test_local_values_are_shared() -> None:
    text = """operator o { @input { x: real[n]; } @output { y: real[n]; }
        @lower { z = x[i,] * x[i,], y[i,] = z + z, i < n; } }"""
    (found,) = lowered(text, tensor(3))
    assert isinstance(found.values[0], Apply)
    assert found.values[0].operands[0] is found.values[0].operands[1]


def test_guards_that_cannot_fail_are_dropped() -> None:
    text = """operator o { @attrib { p: int; } @input { x: real[n]; } @output { y: real[n - 2]; }
        @lower { y[i,] += x[|i + j - p|,], i < n - 2, j < 3; } }"""
    for p, guarded in ((0, False), (1, True), (-1, True)):
        (found,) = lowered(text, tensor(6), p=p)
        assert isinstance(found.values[0], Element)
        assert isinstance(found.values[0].indices[0], Guard) is guarded


def test_remapped_guards_keep_their_other_indices() -> None:
    text = """operator o { @attrib { p: int; } @input { x: real[n]; } @output { y: real[n + 2 * p]; }
        @lower { y[i,] = x[|i - p <> 0 : n - 1|,], i < n + 2 * p; } }"""
    (found,) = lowered(text, tensor(3), p=2)
    assert isinstance(found.values[0], Element)
    assert found.values[0].indices == (Guard(Apply("-", (Index("i"), 2), "int"), 0, 2),)


def test_a_pack_of_values_is_a_table() -> None:
    text = """operator o { @attrib { values: int..(k); } @output { y: int[k]; }
        @lower { y[i,] = values[i], i < k; } }"""
    (found,) = lowered(text, values=(3, 1, 2))
    assert found.values == (Lookup((3, 1, 2), Index("i"), "int"),)


def test_counters_and_whole_ranges() -> None:
    text = """operator o { @input { x: real[s..(d)]; } @output { index: int[d, k|(s * ..)]; }
        @lower { index[:, k] = i, i < s | x[i..] != 0.0; } }"""
    (found,) = lowered(text, tensor(3, 4))
    assert [item.indices for item in found.targets] == [(0, Counter("k")), (1, Counter("k"))]
    assert found.values == (Index("i.0"), Index("i.1"))


def test_uniform_constants_are_values() -> None:
    text = """operator o { @input { x: real[n]; } @constant { c: real[n] = 2.0; w: real[n] = real(i), i < n; }
        @output { y: real[n]; } @lower { y[i,] = x[i,] * c[i,] + w[i,], i < n; } }"""
    instance = bind(text, tensor(3))
    assert instance.constants[1][1] == (0.0, 1.0, 2.0)
    (found,) = contractions(instance)
    assert isinstance(found.values[0], Apply)
    product, constant = found.values[0].operands
    assert isinstance(product, Apply)
    assert product.operands[1] == 2.0
    assert isinstance(constant, Element)


def test_deep_terms_are_refused() -> None:
    text = f"""operator o {{ @input {{ x: real[]; }} @output {{ y: real[]; }}
        @lower {{ y[] = x[]{" + x[]" * 3000}; }} }}"""
    with pytest.raises(Found, match="nested more than 200 deep"):
        lowered(text, tensor())


def test_unrolling_without_end_is_refused() -> None:
    text = """operator o { @attrib { k: int; } @input { x: real[]; } @output { y: real[]; }
        @lower { unroll..(i -> k) y[] += x[] * real(i); } }"""
    assert len(lowered(text, tensor(), k=5)) == 5
    with pytest.raises(Found, match="written out 1000000000000 times"):
        lowered(text, tensor(), k=10**12)


# --- dynamic extents ----------------------------------------------------------------------------------------

DYNAMIC: Sequence[tuple[str, tuple[tuple[str | int, ...], ...], dict[str, Value]]] = (
    ("math.add", (("n", 3), (3,)), {}),
    ("nn.conv", (("n", 2, "h"), (4, 2, 3)), {"stride": 2, "padding": 1}),
    ("nn.max_pool", (("n", 2, "h"),), {"size": 2, "stride": 2}),
    ("linalg.matmul", ((2, "n", "h"), (2, "h", 3)), {}),
    ("layout.transpose", (("n", "h", 2),), {}),
    ("layout.flatten", (("n", "h", 2),), {"axis": 1}),
    ("layout.slice", (("n", "h"),), {"axes": (1,), "begin": (1,), "end": (-1,)}),
    ("math.sum_reduce", (("n", "h", 2),), {"axes": (1,)}),
    ("layout.tile", (("n", "h"),), {"repeats": (2, 3)}),
    ("image.nearest_upsample", (("n", 2, "h"),), {"axes": (2,), "factor": (2,)}),
    ("nn.relu", (("n", "h"),), {}),
    ("layout.pad", (("n", "h"),), {"padding": (1, 0, 2, 1), "method": "REPLICATE"}),
)


@given(st.sampled_from(DYNAMIC), st.integers(1, 4), st.integers(4, 7))
def test_formulas_of_unknown_extents_become_those_of_known_ones(
    case: tuple[str, tuple[tuple[str | int, ...], ...], dict[str, Value]], n: int, h: int
) -> None:
    name, declared, attributes = case
    values = {"n": n, "h": h}
    symbols = {"n": symbol("n", 8), "h": symbol("h", 9, 4)}
    shapes = [[symbols[item] if isinstance(item, str) else item for item in shape] for shape in declared]
    known = [[values[item] if isinstance(item, str) else item for item in shape] for shape in declared]
    dynamic = call(LIBRARY, name, [tensor(*shape) for shape in shapes], attributes)
    static = call(LIBRARY, name, [tensor(*shape) for shape in known], attributes)
    assert all(decide(check, values) for check in dynamic.checks)
    arrays: list[Array | list[Array] | float | None] = [numbers(*shape, seed=1) for shape in known]
    arrays += [None] * (len(static.inputs) - len(arrays))
    found = [specialise(item, values) for item in contractions(dynamic)]
    expected = execute(static, arrays, contractions(static))
    assert np.array_equal(execute(static, arrays, found), expected)


def test_run_time_checks_are_decided_by_values() -> None:
    instance = call(LIBRARY, "math.add", [tensor(symbol("n", 9)), tensor(symbol("m", 9))])
    (check,) = instance.checks
    assert decide(check, {"n": 3, "m": 3})
    assert not decide(check, {"n": 3, "m": 4})
    assert "do not broadcast" in check.message
    with pytest.raises(Found):
        decide(check, {"n": 3})


def test_an_operator_without_a_formula_has_none() -> None:
    text = """operator o { @input { x: real[n]; } @output { y: real[n]; } @compose { y = x; } }"""
    assert contractions(bind(text, tensor(3))) == ()
