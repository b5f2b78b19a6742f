"""Files that a hostile SkriptND model brings along: modules, links, names and origins, data; and what is written of it.

The path resolver and the atomic writer have tests of their own in tests/base; here is what a user sees.
"""

from __future__ import annotations

import json
import os
import resource
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked import Lamella, small_disk
from tests.support.security.skriptnd_attacks import graph, operator
from tests.support.security.skriptnd_files import MODEL, call, write_lowered

MODULE = operator("@lower { y[i,] = x[i,], i < n; }")
EVIL_NAMES = (
    *(
        "../../evil",
        "/evil",
        "a/b",
        "a\\b",
        ".",
        "..",
        "",
        "\x1b[2J\u202e",
        "a" * 300,
        "a" * 5000,
        "CON",
        "w:1",
    ),
    *("v.shape[0]", "%2e%2e", "y.npy", "\n", "<script>", "\u0430"),
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_lowered(tmp_path)


def test_a_path_too_long_for_the_system_is_told(tmp_path: Path) -> None:
    for name in ("x" * 300, "x" * 5000):
        for command in ("check", "show", "fmt", "run"):
            result = call(command, tmp_path / f"{name}.sknd")
            assert result.exit_code == 1
            assert "LAM001" in result.output


# --- modules ------------------------------------------------------------------------------------------------


def linked(path: Path, target: Path, kind: str) -> None:
    """A path that leads elsewhere, or is no file."""
    if kind == "symlink":
        path.symlink_to(target)
    elif kind == "hard link":
        path.hardlink_to(target)
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


KINDS = ("symlink", "hard link", "folder", "fifo", "device")


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_behind_a_link_is_refused(tmp_path: Path, kind: str) -> None:
    home = tmp_path / "model"
    home.mkdir()
    (tmp_path / "secret.sknd").write_text(f"# root:secret\n{MODULE}", encoding="utf-8")
    linked(home / "a.sknd", tmp_path / "secret.sknd", kind)
    (home / "main.sknd").write_text("import a;\n" + graph("y = a.f(x);"), encoding="utf-8")
    for command in ("check", "show", "run"):
        result = call(command, home)
        assert result.exit_code == 1
        assert "SKR056" in result.output
        assert "secret" not in result.output


@pytest.mark.parametrize("kind", KINDS)
def test_a_main_module_behind_a_link_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_text("root:secret\n", encoding="utf-8")
    home = tmp_path / "model"
    home.mkdir()
    linked(home / "main.sknd", tmp_path / "secret", kind)
    for command in ("check", "show", "run"):
        result = call(command, home)
        assert result.exit_code == 1
        assert "LAM001" in result.output
        assert "root:" not in result.output


@pytest.mark.parametrize(
    ("imports", "code"),
    [
        *[
            (text, "SKR001")
            for text in ("..", "../x", "/etc/passwd", "a/b", "a\\b", "a..b", "'a'", "~", ".a", "a.")
        ],
        *[("main", "SKR055"), ("A", "SKR056"), ("CON", "SKR056"), ("sub.b", "SKR056"), ("Math", "SKR056")],
        ("math.math", "SKR056"),
    ],
)
def test_imports_name_modules_of_the_folder(tmp_path: Path, imports: str, code: str) -> None:
    (tmp_path / "a.sknd").write_text(MODULE, encoding="utf-8")
    path = tmp_path / "main.sknd"
    path.write_text(f"import {imports};\n{graph()}", encoding="utf-8")
    result = call("check", path)
    assert result.exit_code == 1
    assert code in result.output
    assert "root:" not in result.output


def test_a_folder_of_ten_thousand_modules_ends_at_the_limit(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"m{number}.sknd").write_text(MODULE, encoding="utf-8")
    path = tmp_path / "main.sknd"
    path.write_text(f"import {', '.join(f'm{n}' for n in range(10_000))};\n{graph()}", encoding="utf-8")
    result = call("check", path)
    assert result.exit_code == 1
    assert "max_includes" in result.output


def test_circles_of_imports_are_told(tmp_path: Path) -> None:
    for one, other in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{one}.sknd").write_text(f"import {other};\n{MODULE}", encoding="utf-8")
    (tmp_path / "main.sknd").write_text("import a;\n" + graph("y = a.f(x);"), encoding="utf-8")
    result = call("check", tmp_path)
    assert result.exit_code == 1
    assert "a -> b -> c -> a" in result.output


def test_a_namesake_of_a_standard_module_is_told(tmp_path: Path) -> None:
    (tmp_path / "math.sknd").write_text(MODULE, encoding="utf-8")
    (tmp_path / "main.sknd").write_text(graph(), encoding="utf-8")
    assert call("check", tmp_path).exit_code == 1


# --- names and origins --------------------------------------------------------------------------------------


def edit(model: Path, change: Callable[[dict[str, dict[str, Any]]], None]) -> None:
    path = model / "origins.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def files_outside(top: Path, inside: Path) -> set[Path]:
    return {path for path in top.rglob("*") if inside not in (path, *path.parents)}


@pytest.mark.parametrize("name", EVIL_NAMES)
@pytest.mark.parametrize("tensor", ["y", "w"])
def test_names_of_a_model_lead_nowhere(model: Path, tmp_path: Path, tensor: str, name: str) -> None:
    edit(model, lambda content: content["tensors"][tensor].update(name=name))
    before = files_outside(tmp_path, tmp_path / "out")
    for command in ("check", "show"):
        assert call(command, model).exit_code == 0
    ran = call("run", model, "--output", tmp_path / "out" / "arrays")
    written = call("lower", model, "--to", "sknd", "-o", tmp_path / "out" / "again")
    assert ran.exit_code == 0 or "LAM002" in ran.output
    assert written.exit_code == 0, written.output
    assert files_outside(tmp_path, tmp_path / "out") == before
    assert all(
        path.parent.name in ("arrays", "again") for path in (tmp_path / "out").rglob("*") if path.is_file()
    )


def test_extents_are_not_made_equal(model: Path) -> None:
    edit(model, lambda content: content["extents"].update(n=content["graph"], m=content["graph"]))
    result = call("run", model)
    assert result.exit_code == 1
    assert "LAM001" in result.output


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[]",
            "null",
            "NaN",
            "{",
            "9" * 5000,
            "[" * 100_000,
            '{"a":' * 100_000,
            "\ufeff\ufeff{}",
            '"\\ud800"',
        ),
        '{"graph": "\\ud800", "dialect": "specification", "tensors": {}, "extents": {}}',
        '{"graph": "G", "dialect": "specification", "tensors": {"y": {"name": "\\udfff"}}, "extents": {}}',
        '{"graph": "G", "dialect": "specification", "tensors": {"y": {"name": 3}}, "extents": {}}',
        '{"graph": "G", "dialect": "newer", "tensors": {"y": {"name": "a"}, "w": {"name": "a"}}, "extents": {}}',
        '{"graph": "G", "dialect": "specification", "tensors": {"y": {"name": "a", "origin": "abc"}}, "extents": {}}',
        '{"graph": "G", "dialect": "specification", "tensors": [], "extents": {}}',
        '{"graph": "G", "dialect": "specification", "tensors": {}, "extents": {"n": null}}',
    ],
)
def test_a_wrong_file_of_origins_is_told(model: Path, text: str) -> None:
    (model / "origins.json").write_text(text, encoding="utf-8")
    result = call("run", model)
    assert result.exit_code == 1
    assert "LAM001" in result.output


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", ["origins.json", "w.dat", "more.safetensors"])
def test_files_of_a_model_behind_links_are_refused(model: Path, tmp_path: Path, kind: str, file: str) -> None:
    path, target = model / file, tmp_path / "elsewhere"
    if path.exists():
        path.rename(target)
    else:
        target.write_bytes(struct.pack("<Q", 2) + b"{}")
    linked(path, target, kind)
    result = call("run", model)
    assert result.exit_code == 1
    assert "LAM001" in result.output


# --- write faults -------------------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Path]:
    """A folder with old files, which stay as they are."""
    folder = tmp_path / "old"
    folder.mkdir()
    files = {
        name: f"old {name}".encode()
        for name in ("main.sknd", "origins.json", "w.dat", "v.dat", "y.npy", "u.npy")
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    yield folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


def no_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))


@pytest.mark.parametrize("command", [("lower", "--to", "sknd", "-o"), ("run", "--output")])
def test_a_full_disk_leaves_the_old_files(
    model: Path, old: Path, command: tuple[str, ...], lamella: Lamella
) -> None:
    done = lamella(command[0], model, *command[1:], old, prepare=no_disk)
    assert done.returncode == 1
    assert "LAM002" in done.stderr


def test_formatting_keeps_the_file_on_a_full_disk(tmp_path: Path, lamella: Lamella) -> None:
    path = tmp_path / "m.sknd"
    text = MODEL.replace(" ", "  ") + "#" + "x" * 2000
    path.write_text(text, encoding="utf-8")
    assert lamella("fmt", path, "--write", prepare=small_disk).returncode == 1
    assert path.read_text(encoding="utf-8") == text
    assert [item.name for item in tmp_path.iterdir()] == ["m.sknd"]


@pytest.mark.parametrize("command", [("lower", "--to", "sknd", "-o"), ("run", "--output")])
def test_a_target_that_is_no_folder_is_told(model: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    target = tmp_path / "file"
    target.write_text("old", encoding="utf-8")
    for path in (target, target / "in", Path("/proc/none"), Path("/dev/null/x")):
        result = call(command[0], model, *command[1:], path)
        assert result.exit_code == 1
        assert "LAM002" in result.output
    assert target.read_text(encoding="utf-8") == "old"
