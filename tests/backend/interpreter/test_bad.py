"""Programs that are right until they run: each says how it is launched, what is found, and how it is repaired.

`; launch @f f32:4x8 2.5 [f32:4,f32:4]+2 groups=3 checked` launches a kernel with an array, a number and a group with
an offset; behind an array may stand `rows` (last mode fastest), `padded`, `backwards`, `fixed` (read-only) or
`past16` (16 bytes past a multiple of 64); `same` is the argument before it once more. With `machine` it is launched as
machine code, and what is said of how it runs counts too.
`; target pvc` names the target that code is written for, and nothing is launched.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from docs.generate import RIGHT, expected, repaired
from lamella.backend import cpu
from lamella.backend.cpu.compile import emit
from lamella.backend.interpreter import Arrays, compile_program
from lamella.backend.named import NamedKernels
from lamella.base.diagnostic import Diagnostic, LamellaError, Rule
from lamella.base.source import Source
from lamella.kernels.sizes import check_sizes
from lamella.kernels.target import find_target
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import Program
from lamella.lang.tensor.rules import running
from tests.support.backend.interpreter.kernels import DTYPES, Array

BAD = Path(__file__).parents[2] / "lang" / "tensor" / "bad"
LAUNCH = re.compile(r"^; launch @(\w+)([^;\n]*)", re.MULTILINE)
TARGET = re.compile(r"^; target ([\w-]+)", re.MULTILINE)
PROGRAMS = sorted(
    path
    for path in BAD.glob("ten2*.tensor")
    if LAUNCH.search(text := path.read_text(encoding="utf-8")) or TARGET.search(text)
)


def make_array(text: str) -> Array:
    """The array that a word of a launch stands for."""
    element, shape, *form = text.split(":")
    sizes = [int(size) for size in shape.split("x")]
    kind = form[0] if form else ""
    array = np.zeros(sizes, DTYPES[element], order="C" if kind == "rows" else "F")
    if kind == "padded":
        array = np.zeros([sizes[0] + 1, *sizes[1:]], DTYPES[element], order="F")[: sizes[0]]
    if kind.startswith("past"):
        memory = np.zeros(array.nbytes + 128, np.uint8)
        start = -memory.ctypes.data % 64 + int(kind.removeprefix("past"))
        array = memory[start : start + array.nbytes].view(DTYPES[element])
    array.flags.writeable = kind != "fixed"
    return array[::-1] if kind == "backwards" else array


def make_argument(text: str) -> object:
    """The argument that a word of a launch stands for."""
    if text.startswith("["):
        items, _, offset = text[1:].partition("]")
        arrays = [make_array(item) for item in items.split(",")]
        return Arrays(arrays, int(offset)) if offset else arrays
    return make_array(text) if ":" in text else ast.literal_eval(text)


def emitted(program: Program, target: str) -> tuple[Diagnostic, ...]:
    """What the compiler finds when it writes code for a target."""
    try:
        emit(program, find_target(target))
    except LamellaError as error:
        return error.findings
    return ()


def run(name: str, text: str) -> tuple[Diagnostic, ...]:
    """What the launch of a program finds."""
    parsed = parse(Source(name, text))
    assert not [item for item in parsed.findings if item.severity == "error"], parsed.findings
    target = TARGET.search(text)
    if target is not None:
        sizes = check_sizes(parsed.program.functions[0], find_target(target[1]))
        return tuple(sizes) or emitted(parsed.program, target[1])
    launch = LAUNCH.search(text)
    assert launch is not None
    words = launch[2].split()
    asked = [word.removeprefix("groups=").split(",") for word in words if word.startswith("groups=")]
    groups = [int(item[0]) if len(item) == 1 else tuple(map(int, item)) for item in asked]
    arguments: list[object] = []
    for word in (word for word in words if word not in ("checked", "machine") and "=" not in word):
        arguments.append(arguments[-1] if word == "same" else make_argument(word))
    try:
        kernels: NamedKernels = compile_program(parsed.program, check_bounds="checked" in words)
        if "machine" in words:
            kernels = cpu.compile_program(parsed.program, threads=1)
        kernels.call(launch[1], arguments, *groups)
    except LamellaError as error:
        return error.findings
    return tuple(kernels.findings)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_run_finds_what_the_program_announces(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    (finding,) = run(path.name, text)
    assert [finding.code] == expected(text)
    marked = next(number for number, line in enumerate(text.split("\n"), 1) if "; expect" in line)
    assert marked == 1 or finding.span.line == marked


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_repaired_program_runs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert RIGHT.search(text)
    assert not run(path.name, repaired(text))


def test_every_rule_of_runs_has_a_program() -> None:
    codes = {rule.code for rule in vars(running).values() if isinstance(rule, Rule)}
    assert codes == {path.name[:6].upper() for path in PROGRAMS}
