"""Hostile files and full disks through the command line: a short report, the right status, the old file intact.

The path resolver and the atomic writer have their own tests (tests/base/test_paths.py, tests/base/test_writer.py: every
write, fsync and rename fails once), bound streams theirs (tests/plan/test_stcb_format.py); here is what a user sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked import Lamella, small_disk
from tests.support.repository import ROOT, environment

CONV = ROOT / "examples" / "npu" / "conv_relu.nem"
GOOD = b"program p:\nbuffer A : L2 (size=64)\nbuffer B : L1 (size=64)\ntransfer.sync(dst=B, src=A)\n"
WITHOUT_TASKS = {"empty": b"", "blank": b" \n\r\n\t ", "comments": b"# one\n# two", "semicolons": b";;;\n"}
STRANGE = {
    "bom": b"\xef\xbb\xbf" + GOOD,
    "crlf": GOOD.replace(b"\n", b"\r\n"),
    "cr": GOOD.replace(b"\n", b"\r"),
    "no end": GOOD.rstrip(),
}
REFUSED = {
    "nul": (GOOD + b"\0", "NUL"),
    "two boms": (b"\xef\xbb\xbf\xef\xbb\xbf" + GOOD, "no meaning"),
    "invalid": (GOOD + b"\xff\xfe", "not UTF-8"),
    "cut": (GOOD + b"# \xe2\x82", "not UTF-8"),
    "surrogate": (GOOD + b"# \xed\xa0\x80", "not UTF-8"),
    "overlong": (GOOD + b"# \xc0\xaf", "not UTF-8"),
    "utf-16": (GOOD.decode().encode("utf-16"), "not UTF-8"),
    "binary": (bytes(range(256)) * 64, ""),
}


# --- what is read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITHOUT_TASKS)
def test_texts_without_tasks_are_no_errors(tmp_path: Path, name: str, lamella: Lamella) -> None:
    path = tmp_path / "x.nem"
    path.write_bytes(WITHOUT_TASKS[name])
    for command in ("check", "show", "fmt"):
        done = lamella(command, path)
        assert done.returncode == 0, done.stderr
    for command in ("sim", "run"):
        done = lamella(command, path)
        assert done.returncode in (0, 1)


@pytest.mark.parametrize("name", STRANGE)
def test_marks_and_line_ends_do_not_matter(tmp_path: Path, name: str, lamella: Lamella) -> None:
    path = tmp_path / "x.nem"
    path.write_bytes(STRANGE[name])
    assert lamella("check", path, "--strict").returncode == 0
    assert (
        lamella("fmt", path).stdout.encode()
        == lamella("fmt", "-", "--language", "nem", data=GOOD).stdout.encode()
    )


@pytest.mark.parametrize("name", REFUSED)
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, name: str, lamella: Lamella) -> None:
    data, words = REFUSED[name]
    path = tmp_path / "x.nem"
    path.write_bytes(data)
    done = lamella("check", path)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.isprintable() or all(line.isprintable() for line in done.stderr.split("\n"))
    assert lamella("check", "-", "--language", "nem", data=data).returncode == 1


def test_standard_input_is_a_file_like_any_other(lamella: Lamella) -> None:
    for command in ("check", "show", "sim", "run", "fmt"):
        done = lamella(command, "-", "--language", "nem", data=GOOD)
        assert done.returncode == 0, done.stderr
    assert "<stdin>" in lamella("check", "-", "--language", "nem", data=b"const a = 1 / 0\n").stderr
    assert lamella("check", "-", data=GOOD).returncode == 1
    assert (
        lamella("fmt", "-", "--write", "--language", "nem", data=GOOD.replace(b"=64", b" = 64")).returncode
        == 2
    )


def test_a_file_name_that_is_no_text_can_be_told(tmp_path: Path, lamella: Lamella) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.nem"))
    path.write_text("program p:\nconst a = 1 / 0\n", encoding="utf-8")
    for arguments in (("check", path), ("check", path, "--json"), ("show", path), ("show", path, "--json")):
        done = lamella(*arguments)
        assert "udcff" in done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["folder", "fifo", "zero", "missing", "unreadable", "long"])
def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path, kind: str, lamella: Lamella) -> None:
    path = tmp_path / "x.nem"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "unreadable":
        path.symlink_to("x.nem")
    elif kind == "long":
        path = tmp_path / f"{'x' * 300}.nem"
    for command in ("check", "show", "sim", "run", "fmt"):
        done = lamella(command, path)
        assert done.returncode == 1
        assert "LAM001" in done.stderr


@pytest.mark.parametrize(
    "target", ["/dev/zero", "../../../../../../dev/zero", "zero.nem", "fifo.nem", "/etc/passwd", "."]
)
def test_includes_of_devices_are_refused_at_once(tmp_path: Path, target: str, lamella: Lamella) -> None:
    (tmp_path / "zero.nem").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo.nem")
    path = tmp_path / "x.nem"
    for text in (f'include "{target}"\n', f'device "{target}"\nprogram p:\n'):
        path.write_text(text, encoding="utf-8")
        done = lamella("check", path)
        assert done.returncode == 1
        assert "NEM011" in done.stderr
        assert "root:" not in done.stderr


# --- what is written ----------------------------------------------------------------------------------------


def outputs(folder: Path, target: Path) -> list[tuple[str | Path, ...]]:
    """Every command that writes a file."""
    return [
        ("bind", CONV, "-o", target.with_suffix(".stcb")),
        ("bind", CONV, "-o", target.with_suffix(".json")),
        ("sim", CONV, "--trace", target.with_suffix(".json")),
        ("sim", CONV, "--html", target.with_suffix(".html")),
        ("sim", CONV, "--fix", target.with_suffix(".nem")),
        ("run", CONV, "--output", target.with_suffix("")),
    ]


@pytest.mark.parametrize("number", range(6))
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, number: int, lamella: Lamella) -> None:
    command = outputs(tmp_path, tmp_path / "out")[number]
    target = Path(command[-1])
    if target.suffix:
        target.write_text("old", encoding="utf-8")
    done = lamella(*command, prepare=small_disk)
    assert done.returncode == 1, done.stderr
    assert "LAM002" in done.stderr
    assert not target.suffix or target.read_text(encoding="utf-8") == "old"
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path != target]
    assert not left, left


@pytest.mark.parametrize("number", range(6))
def test_an_output_that_cannot_be_written_is_told(tmp_path: Path, number: int, lamella: Lamella) -> None:
    command = outputs(tmp_path, tmp_path / "out")[number]
    target = Path(command[-1])
    if target.suffix:
        target.mkdir()
    else:
        target.write_text("a file where a folder should be", encoding="utf-8")
    done = lamella(*command)
    assert done.returncode == 1, done.stderr
    assert "LAM002" in done.stderr
    beside = outputs(tmp_path, tmp_path / "none" / "such" / "out")[number]
    if target.suffix:
        assert lamella(*beside).returncode == 1


def test_formatting_in_place_keeps_the_file_on_a_full_disk(tmp_path: Path, lamella: Lamella) -> None:
    path = tmp_path / "x.nem"
    text = GOOD.replace(b"=64", b" = 64") + b"# " + b"x" * 2000
    path.write_bytes(text)
    done = lamella("fmt", path, "--write", prepare=small_disk)
    assert done.returncode == 1
    assert path.read_bytes() == text


@pytest.mark.parametrize("command", [("show", "npm_pro"), ("fmt", CONV), ("rules",), ("sim", CONV)])
def test_a_reader_that_leaves_ends_the_command_silently(command: tuple[str | Path, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "lamella", *map(str, command)],
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment(),
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert done.returncode in (0, 141, -13)
    assert b"Traceback" not in done.stderr
    assert b"rror" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full on this machine")
@pytest.mark.parametrize("command", [("show", "npm_pro"), ("fmt", CONV), ("sim", CONV, "--json"), ("rules",)])
def test_a_full_standard_output_is_an_error(command: tuple[str | Path, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lamella", *map(str, command)],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert done.returncode == 1, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"no space left" in done.stderr.lower()
