"""Options of the commands on kernels: bounds checks, traces, strictness, and targets that are shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import lamella
from lamella.backend.interpreter import InterpretedKernels
from lamella.base.diagnostic import LamellaError
from lamella.cli import lamella as command
from lamella.kernels.target import TARGETS
from lamella.pipeline.backends.kernels import MOST_LINES

TEXT = """\
func @double(%x: memref<f32x4>, %m: memref<f32x4x4>) {
  %0 = constant 0 : index
  %four = constant 4 : index
  %y = subview %x[%0:%four] : memref<f32x?>
  foreach (%i):index=(%0),(%four) {
    %v = load %y[%i] : f32
    %w = arith.add %v, %v : f32
    store %w, %x[%i]
  }
  parallel {
    %a = cooperative_matrix_load.n %m[%0,%0] : coopmatrix<f32x4x4,matrix_acc>
    cooperative_matrix_store %a, %m[%0,%0]
  }
}
"""
OUTSIDE = """\
func @f(%x: memref<f32x4>, %n: index) {
  %0 = constant 0 : index
  %y = subview %x[%0:%n] : memref<f32x?>
}
"""
ENDLESS = """\
func @f() {
  %0 = constant 0 : index
  %n = constant 20000 : index
  for %i=%0,%n {
    %a = arith.add %i, %i : index
  }
}
"""
STEPS = """\
func @f(%s: i64) {
  %a = constant 0 : i64
  %z = constant 9 : i64
  for %i:i64=%a,%z,%s {}
}
"""


def written(folder: Path, text: str) -> Path:
    """A file with a text in it."""
    path = folder / "k.tensor"
    path.write_text(text, encoding="utf-8")
    return path


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_a_trace_has_a_line_for_each_executed_statement(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.float32))
    words = ("run", written(tmp_path, TEXT), "--arg", f"x={tmp_path / 'x.npy'}")
    plain, traced = run(*words), run(*words, "--trace")
    assert (plain.exit_code, traced.exit_code) == (0, 0)
    assert plain.stdout == traced.stdout
    lines = traced.stderr.splitlines()
    assert len([line for line in lines if "%w = arith.add %v, %v : f32" in line]) == 4
    assert len([line for line in lines if re.search(r"line 11 .*work-item \d+: %a = ", line)]) == 16
    first = "line 2 of @double, work-group 0: %0 = constant 0 : index ; 0"
    third = "line 7 of @double, work-group 0, work-item 3: %w = arith.add %v, %v : f32 ; 6.0"
    view = "line 4 of @double, work-group 0: %y = subview %x[%0:%four] : memref<f32x?>"
    assert lines[0] == first
    assert third in lines
    assert f"{view} ; memref 4, strides 1, from element 0" in lines
    assert any("; matrix 4x4 [" in line and line.endswith("…]") for line in lines)


def test_a_trace_is_bounded(tmp_path: Path) -> None:
    done = run("run", written(tmp_path, ENDLESS), "--trace")
    assert done.exit_code == 0
    lines = done.stderr.splitlines()
    last = f"the trace ends after {MOST_LINES} statements, the run goes on"
    assert lines.index(last) == MOST_LINES


def test_a_trace_shows_what_came_before_a_fault(tmp_path: Path) -> None:
    text = "func @f(%x: memref<i32x2>, %i: index) { %v = load %x[%i] : i32 %w = load %x[%v] : i32 }"
    path = written(tmp_path, text.replace("%w = load %x[%v]", "%j = cast %v : index %w = load %x[%j]"))
    np.save(tmp_path / "x.npy", np.array([1, 7], np.int32))
    done = run("run", path, "--arg", f"x={tmp_path / 'x.npy'}", "--arg", "i=1", "--trace")
    assert done.exit_code == 1
    assert "%v = load %x[%i] : i32 ; 7\n" in done.stderr
    assert "TEN215" in done.stderr


def test_bounds_of_views_are_checked_where_asked(tmp_path: Path) -> None:
    words = ("run", written(tmp_path, OUTSIDE), "--arg", "n=5", "--backend", "interpreter")
    assert run(*words).exit_code == 0
    done = run(*words, "--check-bounds")
    assert done.exit_code == 1
    assert "TEN216" in done.stderr


def test_the_api_takes_the_same_options(tmp_path: Path) -> None:
    path, lines = written(tmp_path, OUTSIDE), list[str]()
    kernels = lamella.compile(path, backend="interpreter", check_bounds=True, trace=lines.append)
    assert isinstance(kernels, InterpretedKernels)
    x = np.zeros(4, np.float32)
    kernels.f(x, 4)
    assert [line.partition(": ")[2][:2] for line in lines] == ["%0", "%y"]
    with pytest.raises(LamellaError, match="TEN216"):
        kernels.f(x, 5)
    with pytest.raises(LamellaError, match="option 'trace' is a function"):
        lamella.compile(path, trace="yes")  # type: ignore[arg-type]
    with pytest.raises(LamellaError, match="option 'check_bounds' is of type 'bool'"):
        lamella.compile(path, check_bounds="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("%r = math.exp %a : f32", 0),
        ("%r = math.tanh %a : f32", 1),
        ("%r = math.pow %a, %a : f32", 1),
        ("%r = arith.select %c, %a, %a : f32", 1),
        ("%r = add %a, %a : f32", 1),
        ("%r = constant inf : f32", 1),
        ("%r = constant 2 -> i32", 1),
        ("hadamard_product %a, %A, %B, %a, %C", 0),
    ],
)
def test_strict_refuses_what_the_specification_does_not_have(tmp_path: Path, line: str, status: int) -> None:
    memory = ", ".join(f"%{name}: memref<f32x8>" for name in "ABC")
    path = written(tmp_path, f"func @f(%c: bool, %a: f32, {memory}) {{\n  {line}\n}}\n")
    assert run("check", path).exit_code == 0
    assert run("check", path, "--strict").exit_code == status


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_shown(name: str) -> None:
    done = run("show", name)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{name}: a target of kernels")
    data = json.loads(run("show", name, "--json").stdout)
    assert (data["kind"], data["name"]) == ("target", name)
    assert data["subgroup_sizes"] == list(TARGETS[name].subgroup_sizes)


def test_a_file_named_like_a_target_is_shown_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pvc").write_text("func @f() {}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = run("show", "pvc", "--language", "tensor")
    assert done.exit_code == 0
    assert "1 kernel" in done.stdout


def test_loops_that_may_not_end_are_interpreted(tmp_path: Path) -> None:
    file = written(tmp_path, STEPS)
    done = run("run", file, "--arg", "s=0", "--limit", "max_steps=100")
    assert done.exit_code == 1
    assert "TEN226" in done.output
    assert run("run", file, "--arg", "s=4").exit_code == 0


def test_a_loop_that_steps_past_the_largest_integer_of_its_launch_is_interpreted(tmp_path: Path) -> None:
    text = "func @far(%b: index, %x: memref<f32x1>) {\n  %0 = constant 0 : index\n"
    text += f"  %s = constant {2**62} : index\n  %v = constant 1.0 : f32\n"
    text += "  for %i:index=%0,%b,%s {\n    store %v, %x[%0]\n  }\n}\n"
    file = written(tmp_path, text)
    done = run("run", file, "--arg", f"b={2**63 - 1}", "--limit", "max_steps=100")
    assert done.exit_code == 1
    assert "TEN226" in done.output
    assert run("run", file, "--arg", f"b={2**62}").exit_code == 0
    assert "--arg 'b' is not" in run("run", file, "--arg", "b").output


@pytest.mark.parametrize(
    ("target", "attributes", "code"),
    [
        ("pvc", "work_group_size=[17,1]", "TEN061"),
        ("pvc", "subgroup_size=8", "TEN238"),
        ("tgl", "subgroup_size=8", None),
        ("cpu-avx2", "work_group_size=[17,1]", None),
    ],
)
def test_sizes_are_those_of_the_target(
    tmp_path: Path, target: str, attributes: str, code: str | None
) -> None:
    file = written(tmp_path, f"func @f() attributes{{{attributes}}} {{}}\n")
    done = run("lower", file, "--to", "tensor", "--target", target)
    assert done.exit_code == (code is not None)
    assert code is None or code in done.output
