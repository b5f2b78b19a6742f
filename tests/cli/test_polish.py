"""What makes commands pleasant: colours where they are wanted, quiet, times of passes, every stage at once."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from lamella.cli import COMMANDS, ELSEWHERE, _wants_colour, lamella
from lamella.cli.asked import help_command
from tests.support.repository import ROOT

CONV = str(ROOT / "examples/npu/conv_relu.nem")
KERNELS = str(ROOT / "examples/kernels/fused.tensor")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def run(*words: str, color: bool | None = None) -> int:
    """The status of a command in this process, as `main` would run it."""
    with pytest.raises(SystemExit) as ended:
        lamella.main([*words], prog_name="lamella", color=color)
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, None),
        ({"NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_the_environment_decides_about_colours(
    variables: dict[str, str], wanted: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.setenv(name, variables.get(name, ""))
    assert _wants_colour() is wanted


@pytest.mark.parametrize(
    "words",
    [("show", "nn.relu"), ("show", CONV), ("sim", CONV), ("fmt", KERNELS)],
    ids=lambda words: words[0],
)
def test_colours_change_no_letter(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for color in (True, False, None):
        assert run(*words, color=color) == 0
        found[color] = capsys.readouterr().out
    assert ANSI.search(found[True])
    assert ANSI.sub("", found[True]) == found[False] == found[None]


def test_quiet_says_errors_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("check", CONV) == 0
    seen = capsys.readouterr()
    assert "warning[" in seen.err
    assert "1 file checked" in seen.out
    assert run("--quiet", "check", CONV) == 0
    assert capsys.readouterr() == ("", "")
    assert run("-q", "check", f"{tmp_path}/missing.nem") == 1
    assert "error[LAM001]" in capsys.readouterr().err


def test_stages_and_the_times_of_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("lower", KERNELS, "--to", "llvm", "--print-after-all", "--timing") == 0
    seen = capsys.readouterr()
    stages = re.findall(r"^--- (\d+)-([\w-]+)\.\w+$", seen.out, re.MULTILINE)
    assert [int(number) for number, _ in stages] == list(range(len(stages)))
    passes = re.findall(r"^ +[\d.]+ ms +[\d.]+%  ([\w-]+)$", seen.err, re.MULTILINE)
    assert passes == [name for _, name in stages[1:]], "the first stage is the text itself"
    assert "define " in seen.out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_does_not_wait_for_what_a_command_loads(name: str) -> None:
    """The help that is made of a command's text is that of the command."""
    asked = help_command(name)
    real = lamella.get_command(click.Context(lamella), name)
    assert real is not None
    assert (asked is None) == (name in ("demo", "explain", "genome", "lsp", "reduce", "rules"))
    if asked is not None:
        # click keeps the option `--help` of a command that was asked for it once, as tests before this one do
        pages = [item.get_help(click.Context(item, info_name=name)) for item in (asked, real)]
        assert len({re.sub(r" +(-h, )?--help +", " --help ", page) for page in pages}) == 1


def test_verbose_says_what_a_command_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-v", "check", CONV) == 0
    said = capsys.readouterr().err
    assert re.search(r"\d+\.\d\d s, \d+\.\d\d s of processors", said)
    assert run("-q", "-v", "check", CONV) == 2


@pytest.mark.parametrize(
    ("word", "meant"), [("import-hf", "convert"), ("Netron", "view"), ("compile", "lower"), ("dif", "diff")]
)
def test_words_of_other_tools_lead_to_ours(word: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(word) == 2
    assert f"did you mean '{meant}'?" in capsys.readouterr().err


def test_an_interruption_has_a_status_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lamella.cli.sim.read_checked", interrupt)
    assert run("sim", CONV) == 130
    assert capsys.readouterr() == ("", "\ninterrupted\n")


def test_words_of_other_tools_mean_commands() -> None:
    assert set(ELSEWHERE.values()) <= set(COMMANDS)
    assert not set(ELSEWHERE) & set(COMMANDS)
