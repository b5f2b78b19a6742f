"""Collective instructions in every variety: cases, their kernels, their arrays and what NumPy makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.backend.interpreter.kernels import COMPLEX, DTYPES, EPSILON, INTEGERS, draw_array, widen
from tests.support.differential.layouts import arrange, spell_memref

Array = npt.NDArray[Any]
FUNCTIONS = ("axpby", "cumsum", "sum", "gemm", "gemv", "ger", "hadamard")
ACCUMULATION = {"bf16": "f32", "f16": "f32"}
BETWEEN = {"i16": "i8", "i32": "i16", "i64": "i32", "index": "i16", "bf16": "i8", "f16": "i8"}
BETWEEN |= {"f32": "bf16", "f64": "f32", "c32": "f32", "c64": "f64"}
SMALLEST = 2.0**-24
"""The smallest number of f16: below it a result may vanish."""
LAUNCHES = 3
"""Work-groups that add to one result."""


@dataclass(frozen=True, slots=True)
class Case:
    """One variety of one instruction."""

    function: str
    elements: tuple[str, ...]
    """Those of the memrefs, the result last."""
    order: int
    """That of the result; 0 where it does not matter."""
    transposes: tuple[bool, ...]
    alpha: str
    beta: str
    """`0`, `1`, `other`: constants; `run` and `run 0`: known only at run time."""
    factors: str
    """The types of alpha and beta: those of the memrefs, smaller ones, or the smallest."""
    atomic: bool
    dynamic: bool
    """Whether the sizes are known only at run time."""
    layouts: tuple[str, str]
    """The strides of the inputs, and of the result."""
    sizes: tuple[int, int, int]
    group: tuple[int, int, int]
    """Subgroup size and work-group size; zeros where nothing is asked for."""
    mode: int

    @property
    def result(self) -> str:
        """The element type of the result."""
        return self.elements[-1]

    @property
    def launches(self) -> int:
        """How many work-groups run: several where they may."""
        return LAUNCHES if self.atomic and self.beta == "1" else 1


# --- shapes -------------------------------------------------------------------------------------------------


def shapes_of(case: Case) -> list[tuple[int, ...]]:
    """The shapes of the memrefs, as they are declared."""
    m, n, k = case.sizes
    order = case.order
    plain: Mapping[str, list[tuple[int, ...]]] = {
        "gemm": [(m, k), (k, n), (m, n)],
        "gemv": [(m, k), (k,), (m,)],
        "ger": [(m,), (n,), (m, n)],
        "hadamard": [(m, n)[:order]] * 3,
        "axpby": [(m, n)[:order]] * 2,
        "sum": [(*(m,)[:order], k), (m,)[:order]],
        "cumsum": [(m, n, 3)[:order]] * 2,
    }
    shapes = plain[case.function]
    return [
        shape[::-1] if turned else shape
        for shape, turned in zip(shapes, (*case.transposes, False, False, False), strict=False)
    ]


# --- the kernel ---------------------------------------------------------------------------------------------


def factor_types(case: Case) -> tuple[str, str]:
    """The types of alpha and beta: never wider than what they multiply."""
    inputs = case.elements[:-1]
    order = list(DTYPES)
    alpha = max(inputs, key=order.index)
    if case.factors == "smallest":
        return (_narrow(alpha, "i8"), _narrow(case.result, "i8"))
    if case.factors == "smaller":
        return (BETWEEN.get(alpha, alpha), BETWEEN.get(case.result, case.result))
    return alpha, case.result


def _narrow(element: str, smallest: str) -> str:
    return smallest if element != "i8" else element


def factor_value(level: str, element: str) -> float:
    """The number that a level stands for, exact in every type."""
    if level == "other":
        return -2.0 if element in INTEGERS else -1.5
    if level == "run":
        return 3.0 if element in INTEGERS else 0.75
    return {"0": 0.0, "1": 1.0, "run 0": 0.0}[level]


def spell_number(value: float, element: str) -> str:
    """A constant of a type as it is written."""
    if element in INTEGERS:
        return str(int(value))
    return f"[{value}, 0.0]" if element in COMPLEX else str(value)


def write_case(case: Case, name: str) -> str:
    """The text of a kernel of this case."""
    names = [*("%A", "%B")[: len(case.elements) - 1], "%R"]
    parameters = [
        f"{item}: {spell_memref(element, shape, case.dynamic, layout)}"
        for item, element, shape, layout in zip(
            names, case.elements, shapes_of(case), _layouts(case), strict=True
        )
    ]
    lines = []
    for factor, level, element in zip(("%a", "%b"), (case.alpha, case.beta), factor_types(case), strict=True):
        if level.startswith("run"):
            parameters.append(f"{factor}: {element}")
        else:
            number = spell_number(factor_value(level, element), element)
            lines.append(f"  {factor} = constant {number} : {element}")
    mode = f"{case.mode}, " if case.function == "cumsum" else ""
    operands = f"%a, {', '.join(names[:-1])}, {mode}%b, %R"
    lines.append(f"  {case.function}{_forms(case)} {operands}")
    return "\n".join([f"func @{name}({', '.join(parameters)}){_sizes(case)} {{", *lines, "}", ""])


def _layouts(case: Case) -> list[str]:
    return [case.layouts[0]] * (len(case.elements) - 1) + [case.layouts[1]]


def _forms(case: Case) -> str:
    forms = "".join(".t" if turned else ".n" for turned in case.transposes)
    return forms + (".atomic" if case.atomic else "")


def _sizes(case: Case) -> str:
    subgroup, rows, columns = case.group
    if not subgroup:
        return ""
    return f" attributes{{subgroup_size={subgroup}, work_group_size=[{rows},{columns}]}}"


# --- arguments ----------------------------------------------------------------------------------------------


def make_arguments(case: Case, seed: int) -> list[object]:
    """Arrays of small numbers and the factors; a result that must not be read holds NaN."""
    random = np.random.default_rng(seed)
    arrays = [
        arrange(draw_array(random, element, shape), layout)
        for element, shape, layout in zip(case.elements, shapes_of(case), _layouts(case), strict=True)
    ]
    if case.beta in ("0", "run 0") and case.result not in INTEGERS:
        arrays[-1][...] = np.nan
    found: list[object] = list(arrays)
    for level, element in zip((case.alpha, case.beta), factor_types(case), strict=True):
        if level.startswith("run"):
            value = factor_value(level, element)
            found.append(int(value) if element in INTEGERS else value)
    return found


# --- the judge ----------------------------------------------------------------------------------------------


def expect(case: Case, arrays: Sequence[Array]) -> tuple[Array, Array]:
    """What the result is in the widest type, and how far off each element may be."""
    wide = [widen(item, element) for item, element in zip(arrays, case.elements, strict=True)]
    alpha, beta = (
        factor_value(level, element)
        for level, element in zip((case.alpha, case.beta), factor_types(case), strict=True)
    )
    if case.result in INTEGERS:
        alpha, beta = int(alpha), int(beta)
    value = compute(case, wide, alpha, beta)
    if case.result in INTEGERS:
        return value.astype(DTYPES[case.result]), np.zeros(value.shape)
    scale = compute(case, [abs(item) for item in wide], abs(alpha) + 1, abs(beta))
    unit = EPSILON[ACCUMULATION.get(case.result, case.result)]
    bound = (4 * (_length(case) + 4) * unit + 2 * case.launches * EPSILON[case.result]) * scale
    return value, bound + (SMALLEST if case.result == "f16" else 0.0)


def _length(case: Case) -> int:
    """How many numbers are added to one."""
    m, n, k = case.sizes
    if case.function == "cumsum":
        return (m, n, 3)[case.mode]
    return k if case.function in ("gemm", "gemv", "sum") else 1


def compute(case: Case, arrays: Sequence[Array], alpha: float, beta: float) -> Array:
    """The formula of the instruction on arrays, for all work-groups that run."""
    turned = [
        item.T if flag else item
        for item, flag in zip(arrays, (*case.transposes, False, False, False), strict=False)
    ]
    *inputs, result = turned
    product = alpha * case.launches * _formula(case, inputs)
    return np.asarray(product if beta == 0 else product + beta * result)


def _formula(case: Case, inputs: Sequence[Array]) -> Array:
    if case.function == "axpby":
        return inputs[0]
    if case.function == "cumsum":
        return np.cumsum(inputs[0], case.mode)
    if case.function == "sum":
        return np.asarray(np.sum(inputs[0], -1))
    if case.function == "ger":
        return np.asarray(np.multiply.outer(inputs[0], inputs[1]))
    return np.asarray(inputs[0] * inputs[1] if case.function == "hadamard" else inputs[0] @ inputs[1])
