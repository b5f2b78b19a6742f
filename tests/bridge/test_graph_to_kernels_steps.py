"""Generated formulas, one kernel each, against nested loops over Python numbers: values and steps without one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import assume, given, settings

from lamella.backend.cpu import compile_program
from lamella.backend.interpreter import compile_program as interpret
from lamella.base.arrays import Array, element_type_of
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels.contraction import Held, write_contraction
from lamella.bridge.graph_to_kernels.step_plan import terms
from lamella.bridge.graph_to_kernels.terms import TensorView, stored_type
from lamella.kernels.build import Builder, FreshNames
from lamella.lang.tensor import check
from lamella.lang.tensor.nodes import Function, Parameter, Program, Scalar, Value
from lamella.lang.tensor.nodes.types import make_memref
from lamella.ops.formula import Contraction, Guard, Lookup
from tests.support.backend.reference.drawing import Case, cases
from tests.support.backend.reference.steps import Refused, copy_tensors, run_slowly

Flat = dict[tuple[str, int | None], Array]


def flatten(tensors: Mapping[str, Array | tuple[Array, ...]]) -> Flat:
    """Every array by its name and its place in a pack."""
    found: Flat = {}
    for name, value in tensors.items():
        items = enumerate(value) if isinstance(value, tuple) else [(None, value)]
        found |= {(name, number): np.array(array, order="C") for number, array in items}
    return found


def held(key: tuple[str, int | None], array: Array) -> TensorView:
    """A tensor as kernels see it."""
    element = element_type_of(array.dtype)
    assert element is not None
    return TensorView(Value(f"{key[0]}{'' if key[1] is None else key[1]}"), element, array.shape)


def kernel_of(contraction: Contraction, arrays: Flat) -> tuple[Program, int]:
    """A program of one kernel over all tensors, and the number of its work-groups."""
    tensors = {key: held(key, array) for key, array in arrays.items()}
    builder = Builder(FreshNames({item.memref.name for item in tensors.values()} | {"fault"}))
    groups, _ = write_contraction(builder, contraction, tensors, Scalar("f64"), Value("fault"), Held(True))
    parameters = [
        Parameter(item.memref, make_memref(stored_type(item.element), item.shape[::-1]))
        for item in tensors.values()
    ]
    parameters.append(Parameter(Value("fault"), make_memref("i32", (1,))))
    return Program((Function("f", tuple(parameters), builder.region()),)), groups


def judge(case: Case, machine: bool) -> None:
    """A kernel writes what the loops write, or tells that a step has no value where they are refused."""
    assume(all(loop.extent != 0 for loop in case.contraction.loops))
    arrays = flatten(copy_tensors(case.tensors))
    try:
        program, groups = kernel_of(case.contraction, arrays)
    except Unsupported:
        assume(False)
    assert [item for item in check(program) if item.severity == "error"] == []
    fault = np.zeros(1, np.int32)
    views = [array.view(np.int8) if array.dtype == np.bool_ else array for array in arrays.values()]
    kernels = compile_program(program) if machine else interpret(program)
    kernels.call("f", [*(array.T for array in views), fault], groups)
    expected = copy_tensors(case.tensors)
    try:
        run_slowly(case.contraction, expected)
    except Refused:
        assert fault[0]
        return
    if fault[0]:
        assert _may_alarm(case.contraction)
        return
    for key, array in flatten(expected).items():
        np.testing.assert_allclose(arrays[key], array, rtol=1e-12, atol=0, err_msg=str(key))


def _may_alarm(contraction: Contraction) -> bool:
    """Whether a kernel may tell of a step that has a value after all; the host then computes the operation.

    It looks at every value of a table, and at a tested index before another one that is read from a tensor too.
    """
    found = list(terms(contraction))
    computed = [item for item in found if isinstance(item, Guard) and "Element" in repr(item.index)]
    return len(computed) > 1 or any(isinstance(item, Lookup) for item in found)


@settings(max_examples=80)
@given(cases(finite=True))
def test_formulas_as_machine_code(case: Case) -> None:
    judge(case, machine=True)


@settings(max_examples=80)
@given(cases())
def test_formulas_in_the_interpreter(case: Case) -> None:
    judge(case, machine=False)
