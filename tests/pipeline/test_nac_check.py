"""The check of NAC files goes as far as a run does: with types to the shapes, without them to names and arguments."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.cli import lamella as command
from lamella.lang.nac import save_file
from lamella.pipeline.nac.model import read_checked
from lamella.pipeline.options import Options

WRONG = """nac 1.6
.code
    %x = input()
    %w = parameter(w)
    %a = nac.nge:TT(%x, %w)
    %b = aten.reluu.default:T(%x)
    %c = aten.matmul.default:TT(%w, %w)
    %d = aten.linear.default:T(%x)
    %e = aten.softmax.int:Ts(%x, "last")
    %f = nn.softmax:TTTTT(%x, %x, %x, %x, %x)
    %g = getitem:T(%x)
    %h = nac.neg:T(%a)
    %i = aten.cat.default:TTi(%x, %x, 1)
    %j = output(%h)
.inputs
    0 = x
.parameters
    1 = w
.tensors
    1 = float32[2, 3] zeros(24)
"""
FOUND = {5: "NAC226", 6: "NAC226", 7: "NAC231", 8: "NAC227", 9: "NAC227", 10: "NAC227", 11: "NAC227"}
PRODUCT = """nac 1.6
.code
    %x = input()
    %w = parameter(w)
    %y = aten.matmul.default:TT(%x, %w)
    %z = output(%y)
.inputs
    0 = x
.parameters
    1 = w
.tensors
    1 = float32[3, 2] zeros(24)
"""


def write(folder: Path, text: str, name: str = "m.nacs") -> Path:
    """A text in a file."""
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_names_and_arguments_are_checked_without_types(tmp_path: Path) -> None:
    found = lamella.check(write(tmp_path, WRONG))
    assert {item.span.line: item.code for item in found} == FOUND
    assert "did you mean aten.relu.default?" in (found[1].hint or "")
    assert [item.code for item in lamella.check(_binary(tmp_path))] == list(FOUND.values())


def _binary(folder: Path) -> Path:
    """The bytes of the text in a folder."""
    save_file(folder / "m.nac", read_checked(folder / "m.nacs", Options().limits).file)
    return folder / "m.nac"


def test_shapes_are_checked_where_types_are_told(tmp_path: Path) -> None:
    path = write(tmp_path, PRODUCT)
    assert not lamella.check(path)
    assert not lamella.check(path, types={"x": "f32[4,3]"})
    (finding,) = lamella.check(path, types={"x": "f32[4,5]"})
    assert finding.code == "NAC231"
    assert finding.span.line == 5
    assert "5" in finding.message
    done = CliRunner().invoke(command, ["check", str(path), "--type", "x=f32[4,5]"])
    assert done.exit_code == 1
    assert "NAC231" in done.output
    noted = '{\\"format\\": 1, \\"inputs\\": [{\\"name\\": \\"x\\", \\"dtype\\": \\"f32\\", \\"shape\\": [4, 5]}]}'
    described = write(tmp_path, f'{PRODUCT}.resources\n    lamella.json = text("{noted}")\n', "d.nacs")
    assert [item.code for item in lamella.check(described)] == ["NAC231"]


def test_what_blocks_hand_over_may_be_unknown(tmp_path: Path) -> None:
    code = """nac 1.6
.code
    %x = input()
    %s = aten.sum.default:T(%x)
    %c = nac.gt:Tf(%s, 0.0)
    %b = branch(%c, 2, 2)
    %p = nac.neg:T(%x)
    %q = suboutput(%p)
    %r = nac.add:TT(%x, %x)
    %t = suboutput(%r)
    %y = getitem:Ti(%b, 0)
    %u = custom.op:T(%y)
    %z = output(%u)
.inputs
    0 = x
"""
    assert [(item.code, item.span.line) for item in lamella.check(write(tmp_path, code))] == [("NAC226", 12)]
    assert not lamella.check(write(tmp_path, code.replace("custom.op", "nac.neg")))


@pytest.mark.parametrize(
    "use", [lamella.load, lamella.compile, lambda path: lamella.compile(path, backend="cpu")]
)
def test_an_unknown_operation_is_found_before_a_run(tmp_path: Path, use: Callable[[Path], object]) -> None:
    with pytest.raises(LamellaError) as caught:
        use(write(tmp_path, WRONG))
    assert [item.code for item in caught.value.findings] == ["NAC226", "NAC226"]


def test_a_wrong_call_is_found_when_a_file_is_compiled(tmp_path: Path) -> None:
    path = write(tmp_path, PRODUCT.replace("%x, %w", "%w, %w"))
    for backend in (None, "cpu"):
        with pytest.raises(LamellaError) as caught:
            lamella.compile(path, backend=backend)
        assert [item.code for item in caught.value.findings] == ["NAC231"]


def test_files_with_operations_of_others_are_still_shown_and_converted(tmp_path: Path) -> None:
    path = write(tmp_path, PRODUCT.replace("aten.matmul.default", "custom.op"))
    for words in (("show", path, "--listing"), ("convert", path, tmp_path / "m.nac"), ("fmt", path)):
        done = CliRunner().invoke(command, [str(word) for word in words])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("backend", [None, "reference", "cpu", "interpreter"])
def test_a_file_without_types_takes_those_of_the_arrays(tmp_path: Path, backend: str | None) -> None:
    path = write(tmp_path, PRODUCT.replace("zeros(24)", 'hex("' + "0000803f" * 6 + '")'))
    run = lamella.compile(path, backend=backend)
    assert (run.inputs, run.outputs) == (("x",), ("output",))
    for rows in (1, 4, 1):
        given = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_array_equal(run(x=given)["output"], given @ np.ones((3, 2), np.float32))
    for wrong, code in (({}, "LAM001"), ({"x": np.ones((2, 5), np.float32)}, "NAC231")):
        with pytest.raises(LamellaError) as caught:
            run(**wrong)
        assert [item.code for item in caught.value.findings] == [code]


def test_no_backend_of_another_name_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(LamellaError, match="no backend 'gpu'"):
        lamella.compile(write(tmp_path, PRODUCT), backend="gpu")


def test_missing_weights_leave_types_open(tmp_path: Path) -> None:
    text = PRODUCT.partition(".tensors")[0].replace("nac 1.6", "nac 1.6\nweights external")
    assert not lamella.check(write(tmp_path, text))
    found = lamella.check(write(tmp_path, text.replace("aten.matmul.default", "custom.op")))
    assert [item.code for item in found] == ["NAC226"]


def test_the_check_is_linear(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        lines = [f'    %v{n + 1} = aten.gelu.default:Ts(%v{n}, "tanh")' for n in range(count)]
        body = "\n".join(["nac 1.6", ".code", "    %v0 = input()", *lines, f"    %z = output(%v{count})"])
        path = write(tmp_path, f"{body}\n.inputs\n    0 = x\n")
        start = time.process_time()
        assert not [item for item in lamella.check(path) if item.severity == "error"]
        return time.process_time() - start

    seconds(10)
    assert seconds(4000) < 12 * seconds(1000) + 0.1


def test_a_lifted_constant_may_have_a_name_beside_those_of_inputs(tmp_path: Path) -> None:
    """The specification says so (7.1.4); its value stands in CNST, so that no caller gives it."""
    path = tmp_path / "lifted.nacs"
    path.write_text(
        "nac 1.6\n.code\n    %x = input()\n    %c = constant(2.5)\n"
        "    %y = nac.add:TT(%x, %c)\n    %z = output(%y)\n.inputs\n    0 = x\n    1 = alpha\n",
        encoding="utf-8",
    )
    assert not lamella.check(path)
    for backend in ("nacvm", "reference"):
        machine = lamella.compile(path, backend=backend)
        assert tuple(machine.inputs) == ("x",)
        (found,) = machine(x=np.array([1, 2], np.float32)).values()
        assert found.tolist() == [3.5, 4.5]
