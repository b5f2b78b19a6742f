"""The file of kernels beside a NEM program: found by its name, inside the folder, written again, carried by streams."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.pipeline.nem.files import check
from lamella.pipeline.nem.program import read_program
from lamella.pipeline.options import Options
from lamella.plan.bind import bind
from lamella.plan.stcb import to_json

KERNEL = """func @twice(%x: memref<i16x?>,
            %y: memref<i16x?,strided<?>>) {
  %0 = constant 0 : index
  %n = size %x[0] : index
  foreach (%i):index=(%0),(%n) {
    %v = load %x[%i] : i16
    %w = arith.add %v, %v : i16
    store %w, %y[%i]
  }
}
"""
PROGRAM = """device "npm_lite.nem"
buffer A : L2 (size=16, import)
buffer B : L2 (size=48)
let X = region(A, 0, 16) elem=i16, shape=[8], layout=C
let Y = region(B, 0, 46) elem=u16, shape=[8], strides=[3]
compute.sync in X out Y op="twice"
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A program with its kernels."""
    (tmp_path / "plan.nem").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "plan.tensor").write_text(KERNEL, encoding="utf-8")
    return tmp_path / "plan.nem"


def codes(path: Path) -> list[str]:
    """What is wrong with a program."""
    return [item.code for item in read_program(path).findings]


def test_strided_and_unsigned_regions_reach_the_kernel(plan: Path) -> None:
    x = np.arange(-4, 4, dtype=np.int16)
    found = lamella.compile(lamella.load(plan))(X=x)
    assert (found["Y"] == (2 * x).view(np.uint16)).all()
    assert not found["B"][6:].reshape(-1, 6)[:, :4].any(axis=1).all()


def test_saved_programs_keep_their_kernels(plan: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    lamella.save(lamella.load(plan), other / "again.nem")
    assert codes(other / "again.nem") == []
    assert (other / "again.tensor").read_text("utf-8") == KERNEL


def test_a_link_is_not_followed(plan: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "plan.nem").write_text(PROGRAM, encoding="utf-8")
    (inner / "plan.tensor").symlink_to(tmp_path / "plan.tensor")
    assert codes(inner / "plan.nem") == ["NEM011"]


def test_a_folder_is_no_file_of_kernels(plan: Path) -> None:
    plan.with_suffix(".tensor").unlink()
    plan.with_suffix(".tensor").mkdir()
    (finding,) = read_program(plan).findings
    assert (finding.code, finding.message) == ("NEM011", "cannot read 'plan.tensor': it is a folder")


def test_what_is_wrong_with_the_kernels_is_told_there(plan: Path) -> None:
    plan.with_suffix(".tensor").write_text(KERNEL.replace("%v, %v", "%v, %u"), encoding="utf-8")
    program = read_program(plan)
    assert program.plan is None
    assert [item.span.source.name for item in program.findings] == [str(plan.with_suffix(".tensor"))]
    assert [item.code[:3] for item in program.findings] == ["TEN"]


def test_an_access_that_leaves_its_region_ends_the_run(plan: Path) -> None:
    far = KERNEL.replace("store %w, %y[%i]", "%k = arith.add %i, %i : index\n    store %w, %y[%k]")
    plan.with_suffix(".tensor").write_text(far, encoding="utf-8")
    with pytest.raises(LamellaError, match="index 8 of mode 0 leaves '%y', whose size there is 8"):
        lamella.compile(lamella.load(plan))(X=np.zeros(8, np.int16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("@twice", "@thrice"), "another one's"),
        (("i16x?", "i32x?"), "'load' gives i32 here, not i16"),
        (("  %0 =", "   %0 ="), "not canonical"),
        (("foreach", "for each"), "there is no word"),
    ],
)
def test_a_stream_with_other_kernels_is_refused(
    plan: Path, tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    program = read_program(plan)
    assert program.plan is not None
    stream, _ = bind(program.plan)
    assert stream is not None
    top = json.loads(to_json(stream))
    top["kernels"][0]["text"] = top["kernels"][0]["text"].replace(*change)
    path = tmp_path / "plan.stcb.json"
    path.write_text(json.dumps(top), encoding="utf-8")
    with pytest.raises(LamellaError, match=message):
        lamella.compile(lamella.load(path))
    with pytest.raises(LamellaError, match=message):
        check(path, Options())


def test_a_task_without_an_operation_is_one_error(plan: Path) -> None:
    plan.write_text(PROGRAM.replace(' op="twice"', ""), encoding="utf-8")
    assert codes(plan) == ["NEM084"]
