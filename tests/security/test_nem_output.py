"""Names and strings of a hostile program reach no output raw: no terminal escape, no override, no markup."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lamella.base.source import Source
from lamella.cli import lamella
from lamella.pipeline.api import load
from lamella.pipeline.nem.program import check_program, plan_of
from lamella.plan.report import chrome_trace, summary
from lamella.plan.timing import simulate
from lamella.studio.page import plan_page
from tests.support.fuzz.nem_walk import RAW

OURS = re.compile(r"\x1b\[[0-9;]*m")
MARKUP = "</script><img src=x onerror=alert(1)>"
EVIL = "\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\u{9b}31m\\u{202e}\\u{2066}\\r\\n{title} " + MARKUP
RAW_EVIL = "\x1b[2J\x9b31m\u202e\u2066\x7f" + MARKUP
PROGRAM = f"""include "npm_lite.nem"
device npm_lite
# {RAW_EVIL}
program p:
buffer A : L2 (size=4096) @debug("{EVIL}")
buffer B : L1 (size=4096) @profile("{EVIL}")
let R = region(B, 0, 64) elem=i8, shape=[64], layout=C @debug("{EVIL}")
loop i in [0..3] @profile("{EVIL}") @debug("{EVIL}"):
    t = transfer.async(dst=R, src=region(A, 0, 64)) @debug("{EVIL}")
    wait(t)
    abs.sync in R out R @debug("{EVIL}") @profile("{EVIL}")
endloop
"""
WRONG = {
    "operation": f'compute.sync in R out R op="{EVIL}" k="{EVIL}"\n',
    "string": f'let s = "{EVIL}" + 1\n',
    "escape": f'let s = "\\q{RAW_EVIL}"\n',
    "word": f"const {RAW_EVIL} = 1\n",
    "value": f'abs.sync in R out R axis="{EVIL}"\n',
    "comment": f"const c = 1 / 0  # {RAW_EVIL}\n",
    "decorator": f'abs.sync in R out R @resource("{EVIL}")\n',
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.nem"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def raw(text: str) -> list[str]:
    """What is raw in a text, apart from the colours of our own."""
    return RAW.findall(OURS.sub("", text))


def call(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(lamella, [str(item) for item in arguments], color=True)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize(
    "command", [("check",), ("show",), ("sim",), ("sim", "--advise"), ("run",), ("run", "--order", "random")]
)
def test_no_command_prints_them_raw(program: Path, command: tuple[str, ...]) -> None:
    result = call(command[0], program, *command[1:])
    assert result.exit_code == 0, result.output
    assert not raw(result.output)


def test_bound_streams_do_not_either(program: Path, tmp_path: Path) -> None:
    for ending in ("stcb", "json"):
        bound = tmp_path / f"bound.{ending}"
        assert not raw(call("bind", program, "-o", bound).output)
        for command in ("show", "run"):
            result = call(command, bound)
            assert result.exit_code == 0, result.output
            assert not raw(result.output)


@pytest.mark.parametrize("name", ["../../evil", "/evil", "a/b", "a\\b", ".", "\x1b[2J", "\u202e", "a b"])
def test_a_stream_names_no_files(program: Path, tmp_path: Path, name: str) -> None:
    """`run --output` calls files after what a stream names: only identifiers are names."""
    bound = tmp_path / "bound.json"
    assert call("bind", program, "-o", bound).exit_code == 0
    text = bound.read_text(encoding="utf-8")
    for old in ("A", "R", "p", "npm_lite"):
        assert f'"{old}"' in text
        bound.write_text(text.replace(f'"{old}"', json.dumps(name)), encoding="utf-8")
        result = call("run", bound, "--output", tmp_path / "deep" / "er")
        assert result.exit_code == 1
        assert "is not a name" in result.output
        assert not raw(result.output)
    assert not list(tmp_path.rglob("*.npy"))


@pytest.mark.parametrize("name", WRONG)
def test_findings_do_not_either(tmp_path: Path, name: str) -> None:
    path = tmp_path / "wrong.nem"
    path.write_text(PROGRAM + WRONG[name], encoding="utf-8")
    for command in ("check", "run", "fmt"):
        result = call(command, path)
        shown = result.stderr if command == "fmt" else result.output
        assert result.exit_code == (1 if command != "fmt" or "error" in shown else 0)
        assert not raw(shown)
        assert "Traceback" not in shown


def test_file_names_do_not_either(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2J\u202e<b>.nem"
    path.write_text("program p:\nconst a = 1/0\n", encoding="utf-8")
    for command in ("check", "show", "sim", "fmt", "run"):
        result = call(command, path)
        assert not raw(result.output)
    assert not raw(call("fmt", path, "--check").output)
    assert not raw(call("bind", path, "-o", tmp_path / "x.stcb").output)
    assert not raw(call("check", tmp_path / "\x1b[2Jmissing.nem").output)


def test_json_stays_json(program: Path) -> None:
    for arguments in (("check", program), ("show", program), ("sim", program), ("run", program)):
        json.loads(call(*arguments, "--json").stdout)


def test_the_page_and_the_trace_hold_no_markup(program: Path, tmp_path: Path) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    assert call("sim", program, "--html", page, "--trace", trace).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert not raw(text)
    assert MARKUP not in text
    assert "onerror=alert(1)" in text, "the name itself must still be readable, as data"
    assert text.count("<script") == text.count("</script>")
    assert not re.search(r"<[^>]*onerror", text)
    assert json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]


def test_a_name_that_looks_like_a_placeholder_stays_a_name() -> None:
    found = check_program(Source("{script}.nem", PROGRAM.replace("{title}", "{policy}{script}{style}")), None)
    plan = plan_of(found)
    report = simulate(plan)
    assert plan_page(report, plan).count("{policy}{script}{style}") > 0
    assert chrome_trace(report, plan)
    assert not raw(summary(report, plan))


def test_the_representation_of_a_program_is_safe(program: Path) -> None:
    assert not RAW.search(repr(load(program)))
