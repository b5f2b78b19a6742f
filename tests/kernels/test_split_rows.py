"""Rows split across subgroups compute the same; what does not suit stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cuda.compile import with_sizes
from lamella.base.arrays import Array
from lamella.kernels.sizes import default_sizes
from lamella.kernels.split_rows import split_rows
from lamella.kernels.target import find_target
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Program
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options

MANY = 1 << 10
LINES = {
    "softmax": "nn.softmax{axes=[1]}(x)",
    "layer norm": "aten.layer_norm{normalized_shape=[C]}(x)",
    "RMS norm": "aten.rms_norm{normalized_shape=[C]}(x)",
}


def judge(name: str, x: Array) -> Array:
    """The same in double precision."""
    wide = x.astype(np.float64)
    if name == "softmax":
        powers = np.exp(wide - wide.max(1, keepdims=True))
        found: Array = powers / powers.sum(1, keepdims=True)
        return found
    centred = wide - wide.mean(1, keepdims=True) if name == "layer norm" else wide
    least = 1e-5 if name == "layer norm" else np.finfo(np.float32).eps
    return np.asarray(centred / np.sqrt((centred**2).mean(1, keepdims=True) + least))


def kernel_of(folder: Path, line: str, rows: int, columns: int) -> Program:
    """The one kernel of a graph."""
    path = folder / "rows.sknd"
    shape = f"real[{rows},{columns}]"
    call = line.replace("C", str(columns))
    path.write_text(
        f"import nn, aten;\ngraph Rows {{ @input {{ x: {shape}; }} @output {{ y: {shape}; }}"
        f" @compose {{ y = {call}; }} }}\n"
    )
    model: Any = lamella.load(path)
    made = to_kernels(prepare(model, Options()), Options(), {}, True, find_target("sm_90a"))
    return with_sizes(made.program)


@pytest.mark.parametrize("name", LINES)
def test_several_subgroups_compute_a_row(name: str, tmp_path: Path) -> None:
    program = kernel_of(tmp_path, LINES[name], 2, 1024)
    (function,) = program.functions
    shared = split_rows(program, {function.name: MANY})
    assert default_sizes(shared.functions[0]).work_group_size == (128, 1)
    x = np.random.default_rng(4).standard_normal((2, 1024)).astype(np.float32)
    y = np.full(2048, np.nan, np.float32)
    interpreter.compile_program(shared, check_bounds=True).call(function.name, (y, x.reshape(-1)), 2)
    np.testing.assert_allclose(y.reshape(2, 1024), judge(name, x), rtol=2e-5, atol=2e-6)
    # What later loops read lies in local memory: the array is loaded once for each element.
    assert write(shared).count("load %x") == 1


@pytest.mark.parametrize(("columns", "groups"), [(1024, 1), (1000, MANY), (128, MANY)])
def test_short_rows_and_small_launches_stay(columns: int, groups: int, tmp_path: Path) -> None:
    program = kernel_of(tmp_path, LINES["softmax"], 2, columns)
    assert split_rows(program, {program.functions[0].name: groups}) == program


def test_a_number_of_each_row_is_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "logs.sknd"
    path.write_text(
        "import math;\ngraph Logs { @input { x: real[2,1024]; } @output { y: real[2,1024]; s: real[2,1]; }"
        " @compose { e = math.exp(x); s = math.sum_reduce{axes=[1]}(e); y = math.div(e, s); } }\n"
    )
    model: Any = lamella.load(path)
    made = to_kernels(prepare(model, Options()), Options(), {}, True, find_target("sm_90a"))
    program = with_sizes(made.program)
    (function,) = program.functions
    shared = split_rows(program, {function.name: MANY})
    assert default_sizes(shared.functions[0]).work_group_size == (128, 1)
    x = np.random.default_rng(4).standard_normal((2, 1024)).astype(np.float32)
    arrays = {"x": x.reshape(-1), "y": np.empty(2048, np.float32), "s": np.empty(2, np.float32)}
    given = [arrays[item.value.name[0]] for item in function.parameters]
    interpreter.compile_program(shared, check_bounds=True).call(function.name, given, 2)
    powers = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(arrays["s"], powers.sum(1), rtol=1e-5)
    np.testing.assert_allclose(arrays["y"].reshape(2, 1024), powers / powers.sum(1, keepdims=True), rtol=1e-5)
