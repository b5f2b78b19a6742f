"""Every hostile Module DSL program and folder is refused with its finding: soon, in little memory, touching nothing."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lamella
from lamella.base.diagnostic import Diagnostic, LamellaError, render
from lamella.bridge.module_to_graph.backward import differentiate
from tests.support.fuzz.module_folders import CONFIG, header
from tests.support.lang.module.instances import built
from tests.support.repository import ROOT, environment
from tests.support.security.module_attacks import GROUPS, module

SECONDS = 20
"""Processor time, bounded generously: it tells what grows like the text from what does not."""
MEBIBYTES = 300


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of all attacks, by their group and their title."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.security.module_child",
            str(tmp_path_factory.mktemp("attacks")),
        ],
        capture_output=True,
        cwd=ROOT,
        env=environment(),
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_every_attack_gives_its_finding(group: str, told: dict[str, dict[str, Any]]) -> None:
    wrong = []
    for title, attack in GROUPS[group].items():
        item = told[group][title]
        fine = attack.code in item["codes"] if attack.code else not item["codes"]
        if item["escaped"] or not item["printable"] or not fine:
            wrong.append((title, attack.code, item))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("group", GROUPS)
def test_no_attack_takes_long_or_touches_a_file(group: str, told: dict[str, dict[str, Any]]) -> None:
    for title, item in told[group].items():
        assert item["seconds"] < SECONDS, title
        assert item["mib"] < MEBIBYTES, title
        assert not item["touched"], title


# --- M6: gradients ------------------------------------------------------------------------------------------------


BACKWARD = """
    save: [x, h]
  backward:
    graph:
{lines}
"""
CIRCLES = {
    "of gradients": ("E019", ["(d_y, d_x) -> add() -> d_x", "(d_y, saved.x) -> mul() -> d_w"]),
    "of what is recomputed": (
        "E022",
        [
            *("recompute:", "  b -> relu() -> a", "  a -> relu() -> b"),
            *("(d_y, w) -> mul() -> d_x", "(d_y, a) -> mul() -> d_w"),
        ],
    ),
}


@pytest.mark.parametrize("circle", CIRCLES)
def test_circles_of_backward_graphs_are_found(circle: str) -> None:
    code, lines = CIRCLES[circle]
    text = module("(x, w) -> mul() -> h\nh -> relu() -> y", "w: [d]")
    text = text.rstrip() + BACKWARD.format(lines="\n".join(f"      {line}" for line in lines))
    found = differentiate(built(text)).compiled.findings
    assert code in {item.code for item in found}


# --- I3 and M9: folders -------------------------------------------------------------------------------------------


def write_folder(folder: Path, config: object, tensors: dict[str, Any] | None = None) -> Path:
    """A folder with this config, and the tiny checkpoint unless another header is given."""
    found, size = header()
    head = json.dumps(found if tensors is None else tensors).encode()
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config), "utf-8")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(size))
    return folder


def check(folder: Path) -> list[Diagnostic]:
    """What is found in a folder, all of it fit to be shown."""
    try:
        found = lamella.check(folder)
    except LamellaError as problem:
        found = list(problem.findings)
    assert all(line.isprintable() for item in found for line in render(item).split("\n"))
    return found


def test_the_folder_is_right_before_it_is_attacked(tmp_path: Path) -> None:
    assert not check(write_folder(tmp_path, CONFIG))


CONFIGS: dict[str, dict[str, Any]] = {
    "numbers as strings": {"hidden_size": "8"},
    "a billion layers": {"num_hidden_layers": 10**9},
    "more layers than integers": {"num_hidden_layers": 10**400},
    "negative sizes": {"hidden_size": -8},
    "no heads": {"num_attention_heads": 0},
    "no number": {"rms_norm_eps": float("nan")},
    "infinity": {"rms_norm_eps": float("inf")},
    "a list": {"hidden_size": [8]},
    "a class": {"architectures": ["os.system"], "model_type": "subprocess.Popen"},
    "an attribute": {"architectures": ["__class__"], "model_type": "__init__"},
    "a path": {"architectures": ["../../models/llama"], "model_type": "/etc/passwd"},
    "escapes": {"architectures": ["\x1b]0;owned\x07"], "model_type": "\x9b2J"},
    "no names": {"architectures": 7, "model_type": None},
}


@pytest.mark.parametrize("attack", CONFIGS)
def test_hostile_configs_are_refused(attack: str, tmp_path: Path) -> None:
    assert check(write_folder(tmp_path, {**CONFIG, **CONFIGS[attack]}))


def test_remote_code_is_never_run(tmp_path: Path) -> None:
    """`auto_map` and files of Python beside the weights are as if they were not there."""
    mark = tmp_path / "ran"
    folder = write_folder(
        tmp_path / "model", {**CONFIG, "auto_map": {"AutoModel": "evil.Model"}, "trust_remote_code": True}
    )
    code = f"open({str(mark)!r}, 'w')\nclass Model: pass\n"
    for name in ("evil.py", "modeling_llama.py", "configuration_llama.py", "__init__.py", "setup.py"):
        (folder / name).write_text(code, encoding="utf-8")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n.")
    assert {item.code for item in check(folder)} == {"W111"}
    lamella.load(folder)
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/hostname", "a/../../secret.safetensors", "link"]
)
def test_shards_outside_the_folder_are_not_opened(name: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", CONFIG)
    (folder / "model.safetensors").rename(tmp_path / "secret.safetensors")
    (folder / "link").symlink_to(tmp_path / "secret.safetensors")
    index = {"weight_map": dict.fromkeys(header()[0], name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert check(folder)


HEADERS: dict[str, dict[str, Any]] = {
    "a name with dots": {"../../model.norm.weight": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}},
    "a layer too many": {
        "model.layers.2.input_layernorm.weight": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}
    },
    "a huge shape": {
        "model.norm.weight": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 32]}
    },
    "a negative shape": {"model.norm.weight": {"dtype": "F32", "shape": [-8, -1], "data_offsets": [0, 32]}},
    "beyond the end": {
        "model.norm.weight": {"dtype": "F32", "shape": [8], "data_offsets": [1 << 60, (1 << 60) + 32]}
    },
    "no type": {"model.norm.weight": {"dtype": "object", "shape": [8], "data_offsets": [0, 32]}},
}


@pytest.mark.parametrize("attack", HEADERS)
def test_hostile_headers_are_refused(attack: str, tmp_path: Path) -> None:
    found, _ = header()
    assert check(write_folder(tmp_path, CONFIG, {**found, **HEADERS[attack]}))


def test_nothing_beside_the_folder_changes(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", {**CONFIG, "num_hidden_layers": 3})
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert check(folder)
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert os.listdir(tmp_path) == ["model"]
