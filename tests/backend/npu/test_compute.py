"""Operators of the library as `compute` tasks on the NPU: against the reference, and the same bytes when bound."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from lamella.backend import cpu
from lamella.backend.npu import compile_plan, vpu
from lamella.backend.npu.stream import compile_stream
from lamella.base.arrays import Array
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.bridge.graph_to_kernels import flatten
from lamella.kernels.operation_count import count_operations
from lamella.lang.nem.resolved import Plan
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import Function, Program
from lamella.plan.bind import bind
from lamella.plan.stcb import from_bytes, from_json, to_bytes, to_json
from lamella.plan.timing.cost import MachineModel, cost_of
from tests.support.bridge.operators import layouts, mathematics, networks, others, scans
from tests.support.bridge.operators.calls import TOLERANCE, Invocation, build, by_reference
from tests.support.plan.tasks import plan_of_tasks

KINDS = {
    "elementwise": ("math.exp", "math.sqrt", "nn.erf", "math.asinh", "math.floor", "math.sign", "nn.selu"),
    "binary": ("math.add", "math.pow", "math.mod", "math.lt", "math.max", "math.xor"),
    "choice": ("math.select", "math.clamp"),
    "reductions": (
        "math.sum_reduce",
        "math.max_reduce",
        "math.mean_reduce",
        "math.any_reduce",
        "math.moments",
    ),
    "scans": ("math.cumsum", "mamba.conv1d"),
    "layouts": (
        "layout.transpose",
        "layout.concat",
        "layout.pad",
        "layout.slice",
        "layout.tile",
        "layout.stack",
    ),
    "networks": (
        "nn.softmax",
        "nn.batch_norm",
        "nn.conv",
        "nn.max_pool",
        "nn.gelu",
        "nn.local_response_norm",
    ),
    "products": ("linalg.matmul", "linalg.outer", "nn.linear"),
}
SHORT = {"f32": "float32", "bf16": "bfloat16", "'f16": "float16"}
NAMES = [name for names in KINDS.values() for name in names]


@cache
def calls() -> dict[str, Invocation]:
    """For each operator one call whose tensors regions can hold."""
    found: dict[str, Invocation] = {}
    for module in (mathematics, layouts, networks, others, scans):
        for item in module.CALLS:
            words = [word for told in item.inputs for word in (told if isinstance(told, list) else [told])]
            types = {word.split()[0] for word in words if isinstance(word, str)}
            if types <= {"f32", "f16", "bf16", "i32", "i8", "bool"} and not set(item.types) & {"int"}:
                found.setdefault(item.operator, item)
    return found


Case = tuple[Plan, dict[str, Array], dict[str, Array]]


@cache
def case(name: str) -> Case:
    """The plan of a call, its inputs, and what the reference gives, by the names of the plan."""
    model, fed = build([calls()[name]])
    plan, names = plan_of_tasks(flatten(model))
    expected = by_reference(model)(**fed)
    return (
        plan,
        {names[key]: _held(value) for key, value in fed.items() if key in names},
        {names[key]: _held(value) for key, value in expected.items()},
    )


def _held(values: Array) -> Array:
    """An array as a region holds it: truth values are 0 and 1, one number is a list of one, bf16 travels as f32."""
    flat = values.reshape(values.shape or (1,))
    if flat.dtype == np.bool_:
        return flat.astype(np.int8)
    return flat.astype(np.float32) if flat.dtype.name == "bfloat16" else flat


def _allowed(name: str) -> float:
    """The precision of the narrowest type of a call."""
    words = str(calls()[name].inputs)
    narrow = [TOLERANCE[long] for short, long in SHORT.items() if short in words]
    return max(narrow, default=0.0)


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_is_a_task(name: str) -> None:
    plan, inputs, expected = case(name)
    found, allowed = compile_plan(plan)(**inputs), _allowed(name)
    for key, values in expected.items():
        assert found[key].shape == values.shape
        np.testing.assert_allclose(
            found[key].astype(np.float64), values.astype(np.float64), rtol=allowed, atol=allowed
        )


@pytest.mark.parametrize("name", [names[0] for names in KINDS.values()])
def test_a_bound_task_gives_the_same_bytes(name: str) -> None:
    plan, inputs, _ = case(name)
    stream, findings = bind(plan)
    assert stream is not None, findings
    again = from_bytes(to_bytes(stream))
    assert again == stream == from_json(to_json(stream))
    assert [item.name for item in stream.kernels] == sorted(plan.kernels)
    program, bound = compile_plan(plan)(**inputs), compile_stream(again, order="random")(**inputs)
    assert all(program[key].tobytes() == bound[key].tobytes() for key in program)


@pytest.mark.parametrize(
    "name", ["math.add", "math.select", "math.sum_reduce", "layout.pad", "linalg.matmul"]
)
def test_machine_code_gives_the_bytes_of_the_interpreter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, inputs, _ = case(name)
    by_letter = compile_plan(plan)(**inputs)
    compiled, make = list[Program](), cpu.compile_program

    def watched(program: Program, *, limits: Limits) -> cpu.CompiledKernels:
        compiled.append(program)
        return make(program, limits=limits)

    monkeypatch.setattr(vpu, "WORTH_COMPILING", 0)
    monkeypatch.setattr(cpu, "compile_program", watched)
    fast = compile_plan(plan)(**inputs)
    assert compiled
    assert all(by_letter[key].tobytes() == fast[key].tobytes() for key in by_letter)


@pytest.mark.parametrize("name", NAMES[::2])
def test_lanes_give_the_bytes_of_the_interpreter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, inputs, _ = case(name)
    found = compile_plan(plan)(**inputs)
    monkeypatch.setattr(vpu, "runs_in_lanes", lambda function: False)
    by_letter = compile_plan(plan)(**inputs)
    assert all(by_letter[key].tobytes() == found[key].tobytes() for key in by_letter)


def test_a_function_that_is_not_fixed_to_the_bit_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, inputs, _ = case("math.exp")
    monkeypatch.setattr(vpu, "WORTH_COMPILING", 0)
    monkeypatch.setattr(cpu, "compile_program", None)
    compile_plan(plan)(**inputs)


def test_work_is_counted_from_the_text() -> None:
    plan, _, _ = case("linalg.matmul")
    (task,) = plan.tasks()
    first, second = (region.type.shape for region in task.inputs if region.type is not None)
    made = np.prod([size for region in task.outputs[:1] if region.type for size in region.type.shape])
    assert task.work is not None
    assert task.work >= 2 * made * first[-1], (first, second)
    assert cost_of(task, MachineModel(plan.device)).work == task.work


def test_a_text_that_does_not_tell_costs_its_outputs() -> None:
    assert count_operations(function("%n = load %c[%0] : index"), {"x": (4,), "c": (1,)}, {}) is None
    assert count_operations(function("%n = constant 3 : index"), {"x": (4,), "c": (1,)}, {}, groups=5) == 15
    assert count_operations(function("%n = size %x[0] : index"), {"x": (4,), "c": (1,)}, {}) == 4


def function(line: str) -> Function:
    """A kernel that takes as many operations as a line says."""
    text = f"""
    func @f(%x: memref<f32x?>, %c: memref<indexx1>) {{
      %0 = constant 0 : index
      {line}
      %v = constant 1.0 : f32
      for %i:index=%0,%n {{
        %w = arith.add %v, %v : f32
      }}
    }}"""
    return parse(Source("f", text)).program.functions[0]
