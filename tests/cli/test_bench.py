"""`lamella bench`: what it prints, writes and refuses; nothing here depends on how long something takes."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn

from lamella.backend.cuda import driver
from tests.support.cli.skriptnd_models import call

NET = """import nn, math;

graph Net {
    @input { x: real[b|4, 6]; }
    @variable { w: real[5, 6]; }
    @output { y: real[~, 5]; }
    @compose { a = nn.linear(x, w); y = nn.relu(a); }
}
"""
QUICK = ("--seconds", "0")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    (folder / "net.sknd").write_text(NET)
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU()).eval()
    torch.export.save(torch.export.export(module, (torch.randn(3, 6),)), folder / "a<b>.pt2")
    return folder


FAKES = {
    "openvino": "raise ModuleNotFoundError(\"No module named 'openvino'\", name='openvino')",
    "onnxruntime": "import os; os.kill(os.getpid(), 9)",
}
"""Packages that a contestant cannot load."""


def test_contests_for_batches_as_data(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FAKES.items():
        (place / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(place))
    peers = ("--against", "openvino,onnxruntime,torch")
    result = call("bench", str(place / "net.sknd"), *peers, "--batch", "2,3", "--json", *QUICK)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["ok"]
    assert [(item["batch"], item["threads"]) for item in facts["contests"]] == [(2, 1), (3, 1)]
    for contest in facts["contests"]:
        assert contest["ratio"] is None
        assert contest["macs"] == contest["batch"] * 5 * 6
        assert contest["bytes"] == 4 * (5 * 6 + contest["batch"] * 6)
        assert all(value > 0 for value in (*contest["ceilings"].values(), *contest["bounds"].values()))
        ours, *others = contest["contestants"]
        assert ours["name"] == "cpu"
        assert 0 < ours["min"] <= ours["median"]
        assert ours["samples"] == 5
        assert ours["peak_bytes"] > 1e6
        assert sum(step["macs"] for step in ours["kernels"]) == contest["macs"]
        assert {item["name"]: item["problem"] for item in others} == {
            "openvino": "package 'openvino' is not installed; pip install 'lamella[bench]'",
            "onnxruntime": "its process was ended by signal 9",
            "torch": "torch runs what torch exported: a .pt2 file",
        }


class Page(HTMLParser):
    """The tags of a page, and what stands in its title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [name for name, _ in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_program_beside_torch_as_a_table_and_a_page(place: Path) -> None:
    words = ("--against", "torch", "--html", str(place / "o.html"))
    result = call("bench", str(place / "a<b>.pt2"), *words, *QUICK)
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "the judge" in lines["torch"]
    assert float(lines["cpu"].split()[-4]) < 1e-5, lines["cpu"]
    assert "by arithmetic" in lines["bounds"]
    page = Page((place / "o.html").read_text())
    assert not page.links
    assert "b" not in page.tags, "the name of the file is text"
    assert "lamella bench " in "".join(page.texts)
    assert "a<b>.pt2" in "".join(page.texts)
    assert {"circle", "polyline", "rect", "table", "style"} <= set(page.tags)


def test_a_peer_that_nobody_knows_is_a_wrong_use(place: Path) -> None:
    result = call("bench", str(place / "net.sknd"), "--against", "torch,onnxruntme")
    assert result.exit_code == 2
    assert "did you mean 'onnxruntime'?" in result.output


@pytest.mark.parametrize("words", ["1,x", "", "0", "1,2000"])
def test_numbers_of_threads_are_numbers(place: Path, words: str) -> None:
    assert call("bench", str(place / "net.sknd"), "--threads", words).exit_code == 2


def test_a_fixed_batch_is_said_to_be_fixed(place: Path) -> None:
    result = call("bench", str(place / "a<b>.pt2"), "--batch", "8", *QUICK)
    assert result.exit_code == 1
    assert "is 3" in result.output
    assert "dynamic=" in result.output


def test_a_broken_program_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "broken.pt2").write_bytes(b"PK\x03\x04" + b"\0" * 64)
    result = call("bench", str(tmp_path / "broken.pt2"), *QUICK)
    assert result.exit_code == 1
    assert "error[SKR" in result.output


def test_a_contest_that_none_of_ours_can_enter_is_an_error(place: Path) -> None:
    absent = driver.missing()
    if absent is None:
        pytest.skip("there is a GPU here")
    result = call("bench", str(place / "net.sknd"), "--backend", "cuda", *QUICK)
    assert result.exit_code == 1
    assert f"backend 'cuda' cannot run here: {absent}" in result.output
