"""Weights of a folder are read once, a part at a time, and what was read is given back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from lamella.backend.reference import compile_model
from lamella.base.dtype import F32
from lamella.bridge.hf_to_module import Checkpoint, Weight, open_folder, plan_import
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.ops.library import Library
from tests.support.bridge.hf.mappings import context, read_model

ROWS, WIDTH, COUNT = 2048, 512, 24
PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
from lamella.bridge.hf_to_module import Weight, open_folder, plan_import
from tests.support.bridge.hf.mappings import context, read_model
def told(word):
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith(word))
rows, width, count = map(int, sys.argv[2:5])
entries = read_model(sys.argv[5]).hf_mapping
weights = [Weight(f"w{i}", (2 * rows, width), "fp32") for i in range(count)] + [Weight("v", (rows, width), "fp32")]
data = plan_import(weights, entries, open_folder(Path(sys.argv[1])).checkpoint, context()).data()
before = told("VmRSS")
kept = [np.array(data[f"w{i}"]) if i % 2 else data[f"w{i}"] for i in range(count)] + [np.array(data["v"])]
print(json.dumps([told("VmHWM") - before, sum(item.nbytes for item in kept)]))
"""


def _mapping() -> str:
    lines = [f'    w{i}: fuse("a{i}", "b{i}", dim=0)' for i in range(COUNT)]
    return "\n".join([*lines, '    v: "c"'])


def _save(folder: Path) -> None:
    parts = {f"{side}{i}": np.full((ROWS, WIDTH), i, np.float32) for i in range(COUNT) for side in "ab"}
    save_file({**parts, "c": np.ones((ROWS, WIDTH), np.float32)}, str(folder / "model.safetensors"))
    (folder / "config.json").write_text("{}", encoding="utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_the_peak_is_that_of_the_weights_and_the_largest_of_them(tmp_path: Path) -> None:
    _save(tmp_path)
    words = [str(tmp_path), str(ROWS), str(WIDTH), str(COUNT), _mapping()]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], check=True, capture_output=True, text=True)
    peak, weights = json.loads(done.stdout)
    largest = 2 * ROWS * WIDTH * 4
    assert weights <= peak <= weights + 2 * largest


def test_whether_a_weight_is_there_is_told_without_reading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {"a": np.zeros((2, 3), np.float32), "b": np.ones((2, 3), np.float32)}
    save_file(tensors, str(tmp_path / "model.safetensors"))
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    entries = read_model('    w: fuse("a", "b", dim=0)').hf_mapping or ()
    checkpoint = open_folder(tmp_path).checkpoint
    data = plan_import([Weight("w", (4, 3))], entries, checkpoint, context()).data()
    read: list[str] = []
    plain = Checkpoint.read

    def reading(self: Checkpoint, name: str) -> object:
        read.append(name)
        return plain(self, name)

    monkeypatch.setattr(Checkpoint, "read", reading)
    assert "w" in data
    assert "x" not in data
    assert not read
    assert data["w"].tolist() == [[0] * 3] * 2 + [[1] * 3] * 2
    assert read == ["a", "b"]


def test_an_array_that_nobody_may_write_is_held_as_it_is() -> None:
    builder = Builder(Library(), "G")
    x, w = builder.input("x", F32, (3,)), builder.variable("w", F32, (3,))
    graph = builder.finish(builder.call("math.add", x, w))
    fixed, free = np.arange(3, dtype=np.float32), np.arange(3, dtype=np.float32)
    fixed.setflags(write=False)
    for array, is_same in ((fixed, True), (free, False), (fixed[:], False)):
        executable = compile_model(Model(graph, Library(), data={"w": array}))
        assert np.shares_memory(executable.state["w"], array) == is_same
    free[:] = 9
    assert next(
        iter(compile_model(Model(graph, Library(), data={"w": fixed}))(x=free).values())
    ).tolist() == [
        9,
        10,
        11,
    ]
