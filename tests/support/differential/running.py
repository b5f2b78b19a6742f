"""Random kernels run both ways: machine code and the interpreter leave the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.backend import cpu, interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.jit import MACHINES, assemble, load
from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.kernels.target import find_target
from lamella.lang.tensor import check, parse
from lamella.lang.tensor.nodes import Program
from tests.support.backend.interpreter.kernels import COMPLEX, DTYPES, INTEGERS, draw_array
from tests.support.differential.layouts import arrange, is_marked
from tests.support.strategies.tensor_programs import Array, Kernel

Numbers = npt.NDArray[Any]
LOOSE = {"bf16": 2.0**-6, "f16": 2.0**-9, "f32": 2.0**-20, "f64": 2.0**-48}
"""How far apart two functions that are close to the truth may be, relative to the larger of 1 and the value."""


def read(text: str) -> Program:
    """The program of a text without errors."""
    parsed = parse(Source("kernel.tensor", text))
    found = errors([*parsed.findings, *check(parsed.program)])
    assert not found, f"{found[0]}\n{text}"
    return parsed.program


def make_arguments(kernel: Kernel, seed: int = 7) -> list[object]:
    """Arrays, members of the group and scalars, the same for a seed."""
    random = np.random.default_rng(seed)
    arrays = [_make(random, item) for item in kernel.arrays]
    members = [_make(random, item) for item in kernel.members]
    return [*arrays, members, *(_scalar(random, element) for element in kernel.scalars)]


def _make(random: np.random.Generator, array: Array) -> Numbers:
    values = draw_array(random, array.element, array.shape)
    return arrange(values, "padded" if array.gaps else "packed")


def _scalar(random: np.random.Generator, element: str) -> object:
    if element == "bool":
        return bool(random.integers(2))
    if element in INTEGERS:
        return int(random.integers(-9, 10))
    value = float(random.integers(-12, 13)) / 4
    return complex(value, 0.5) if element in COMPLEX else value


def arrays_of(kernel: Kernel, arguments: Sequence[object]) -> list[Numbers]:
    """All arrays among arguments; the one that is only close stands last."""
    count = len(kernel.arrays)
    members = arguments[count]
    found = [*arguments[: count - 1], *(members if isinstance(members, list) else []), arguments[count - 1]]
    return [item for item in found if isinstance(item, np.ndarray)]


def judge(kernel: Kernel, program: Program, seed: int | None = None) -> list[Numbers]:
    """What the interpreter leaves in the arrays."""
    arguments = make_arguments(kernel)
    interpreter.compile_program(program, check_bounds=True, seed=seed).call("f", arguments, kernel.groups)
    return arrays_of(kernel, arguments)


def execute(kernel: Kernel, program: Program, threads: int = 1) -> list[Numbers]:
    """What machine code leaves in the arrays."""
    arguments = make_arguments(kernel)
    cpu.compile_program(program, threads=threads).call("f", arguments, kernel.groups)
    return arrays_of(kernel, arguments)


def execute_for(name: str, kernel: Kernel, program: Program) -> list[Numbers]:
    """What machine code for a named target leaves in the arrays; this processor must be able to run it."""
    arguments = make_arguments(kernel)
    compiled = emit(program, find_target(name))
    code = load(assemble(compiled.text, MACHINES[name]), [entry.symbol for entry in compiled.entries])
    cpu.CompiledKernels(compiled, code, threads=1, proved=True).call("f", arguments, kernel.groups)
    return arrays_of(kernel, arguments)


def agree(kernel: Kernel, expected: Sequence[Numbers], found: Sequence[Numbers], what: str = "") -> None:
    """Hold two runs against each other: the same bits, and the last array close."""
    elements = [*(item.element for item in (*kernel.arrays[:-1], *kernel.members)), kernel.arrays[-1].element]
    assert all(is_marked(item) for item in found), f"memory beside the arrays\n{kernel.text}{what}"
    *exact, loose = zip(expected, found, elements, strict=True)
    for number, (one, other, element) in enumerate(exact):
        assert np.all(_same(one, other)), f"array {number} of {element}\n{one}\n{other}\n{kernel.text}{what}"
    one, other, element = loose
    assert np.all(_close(one, other, LOOSE[element])), f"%loose\n{one}\n{other}\n{kernel.text}{what}"


def _same(one: Numbers, other: Numbers) -> npt.NDArray[np.bool_]:
    """Which numbers are the same; any NaN is like any other, and zeros are not told apart."""
    return np.asarray((one == other) | ((one != one) & (other != other)))


def _close(one: Numbers, other: Numbers, tolerance: float) -> npt.NDArray[np.bool_]:
    wide = [item.astype(DTYPES["f64"]) for item in (one, other)]
    with np.errstate(invalid="ignore"):
        distance = abs(wide[0] - wide[1])
    return np.asarray(_same(one, other) | (distance <= tolerance * np.maximum(1.0, abs(wide[0]))))
