"""Plans over files that the virtual machine of NAC runs: whole models, blocks of them, and generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from lamella.backend.mep import run_plan
from lamella.backend.mep.state import UntrainedModel
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.lang.nac import assemble, check
from lamella.lang.nac.blocks import extract_block, find_block
from lamella.lang.nac.nodes import File
from lamella.pipeline.nac.model import Model
from lamella.pipeline.nac.running import compile_file
from lamella.pipeline.options import Options
from tests.backend.mep.test_mep_generation import Application, example
from tests.support.backend.mep.fakes import RecordingHost

XOR = Path(__file__).parents[3] / "examples" / "nac" / "xor.nacs"
INPUTS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)


@dataclass(frozen=True)
class FileModel(UntrainedModel):
    """A file on the virtual machine."""

    file: File

    def __call__(self, *inputs: Array) -> Sequence[Array]:
        """Run the file."""
        executable = compile_file(Model(Path("model.nac"), self.file, ()), Options())
        names = executable.inputs
        return list(executable(**dict(zip(names, inputs, strict=True))).values())

    def run_block(self, first: int, last: int, values: Sequence[Array], /) -> Sequence[Array]:
        """Run a block as a file of its own."""
        return FileModel(extract_block(self.file, first, last))(*values)


def xor(plan: str) -> File:
    """The example with a plan."""
    file, found = assemble(Source("xor.nacs", f"{XOR.read_text(encoding='utf-8')}\n.orchestrator\n{plan}\n"))
    assert not found
    return replace(file, resources=())


@pytest.mark.parametrize("cut", range(1, 8))
def test_blocks_of_a_model_are_the_model(cut: int) -> None:
    file = xor("EXEC_HALT()")
    first, second = find_block(file, 0, cut - 1), find_block(file, cut, 8)
    slots = {index: 10 + place for place, index in enumerate(dict.fromkeys(first.gives + second.gives))}
    takes = [slots.get(index, 0) for index in second.takes]
    plan = f"""RES_LOAD_MODEL(0, 0)
        RES_LOAD_DATAFILE(0, 2, 1)
        MODEL_RUN_STATIC(0, [0], [1])
        MODEL_RUN_BLOCK(0, 0, {cut - 1}, [0], {[slots[index] for index in first.gives]})
        MODEL_RUN_BLOCK(0, {cut}, 8, {takes}, {[slots[index] for index in second.gives]})
        EXEC_RETURN([1, {slots[7]}])
        0 = "self"
        1 = "x.npy" """
    file = xor(plan)
    assert not check(file)
    host = RecordingHost({"x.npy": INPUTS}, models=lambda path: FileModel(file))
    whole, pieces = run_plan(file, host, grants=["read"]).values
    np.testing.assert_array_equal(np.asarray(whole), np.asarray(pieces))
    assert np.asarray(whole).reshape(-1).tolist() == [0, 1, 1, 0]


def test_generation_on_the_virtual_machine() -> None:
    file = example(0)
    host = Application(file, FileModel(file))
    assert run_plan(file, host, answers=["a"], grants=["print"]).values == ("a b c",)
    assert host.printed == "a b c\n"
