"""`lamella demo`: the stages in order, each compared with the one above, and a report that is safe to open."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.base.paths import shipped
from lamella.cli.demo import demo
from lamella.cli.sim import sim
from lamella.demo import STAGES, DemoStage
from lamella.demo.page import report_page
from lamella.demo.story import Story
from tests.support.repository import ROOT


def without_peer(name: str) -> object:
    """No package of others is there."""
    raise LamellaError([])


def test_the_whole_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without onnxruntime, and twice into the same folder."""
    monkeypatch.setattr("lamella.demo.race.need", without_peer)
    folder = tmp_path / "demo"
    done = CliRunner().invoke(demo, ["--quick", "--json", str(folder)])
    assert done.exit_code == 0, done.output
    stages = {item["name"]: item for item in json.loads(done.stdout)["stages"]}
    assert tuple(stages) == STAGES
    read = [stages[name]["accuracy"] for name in STAGES[1:]]
    assert min(read) > 0.7
    assert stages["formats"]["largest_difference"] < 1e-4
    assert stages["machine code"]["largest_difference"] < 1e-4
    assert "onnxruntime" not in stages["machine code"]["race"]["microseconds"]["1"]
    assert stages["integers"]["bytes_after"] < 0.3 * stages["integers"]["bytes_before"]
    assert (stages["NPU"]["above"], stages["NPU"]["largest_difference"]) == ("equal bit by bit", 0.0)
    timed = CliRunner().invoke(sim, [str(folder / "npu" / "digits.nem"), "--json"])
    assert stages["NPU"]["cycles"] == json.loads(timed.stdout)["cycles"]
    image = np.load(shipped("demo/digits") / "digits.npz")["image"][:1].astype(np.float32)
    wanted = lamella.compile(folder / "hf", backend="reference")(image)["scores"]
    for name in ("digits.sknd", "digits.nac", "digits.onnx"):
        np.testing.assert_allclose(lamella.compile(folder / name)(image)["scores"], wanted, atol=1e-4)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert f"{stages['NPU']['cycles']:,} cycles" in page
    assert not re.search(r'<(?:script|link|img|iframe)|href="http', page)
    (folder / "hf" / "model.safetensors").unlink()
    story = Story(folder, lambda items, total: items, quick=True)
    assert next(story.stages()).name == STAGES[0], "what an earlier run left is replaced"
    assert not (folder / "hf").exists()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    done = CliRunner().invoke(demo, ["--quick", str(tmp_path)])
    assert done.exit_code == 1
    assert "holds something else" in done.output
    assert [item.name for item in tmp_path.iterdir()] == ["mine.txt"]


def test_words_of_files_are_no_markup(tmp_path: Path) -> None:
    story = Story(tmp_path, lambda items, total: items, quick=True)
    story.losses = [1.0, 0.5]
    page = report_page(
        story, [DemoStage("<b>", "<i>", "<script>", 0.5, "<u>", {}, ("<a>",), "</pre><script>", 1.0)]
    )
    for word in ("<i>", "<script>", "<u>", "<a>", "</pre><script"):
        assert word not in page


def test_the_shipped_classifier_is_that_of_the_examples() -> None:
    for path in (ROOT / "examples" / "digits").iterdir():
        ours = shipped("demo/digits") / path.name
        if ours.exists():
            assert ours.read_bytes() == path.read_bytes(), path.name
    names = {path.name for path in shipped("demo/digits").iterdir()}
    assert names == {"digits.module", "digits_layers.sknd", "digits.npz", "ATTRIBUTION.md"}
