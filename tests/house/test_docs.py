"""What README, docs and examples show is what happens: their blocks are executed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import lamella
from lamella.base.limits import DEFAULT, GIB
from tests.support.markdown import Block, Command, anchors, blocks, links, matches, session
from tests.support.repository import ROOT

PROGRAMS = ("module", "nacs", "nem", "sknd", "tensor")
EXECUTED = ("console", "python", "json", *PROGRAMS)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("README.md")])
BLOCKS = [block for page in PAGES for block in blocks(page)]


def place(item: Path | Block) -> str:
    """How a page or a block is named in a test."""
    if isinstance(item, Path):
        return item.relative_to(ROOT).as_posix()
    return f"{place(item.page)}:{item.line}"


def of(language: str) -> list[Block]:
    """The blocks in one language."""
    return [block for block in BLOCKS if block.language == language]


def pages_with(*languages: str) -> list[Path]:
    """The pages that have a block in one of these languages."""
    return [page for page in PAGES if any(b.page == page and b.language in languages for b in BLOCKS)]


def workplace(page: Path, folder: Path) -> Path:
    """Copy the examples; give the folder where a page's commands run: its own, or the one above them all."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder / page.parent.relative_to(ROOT) if page.is_relative_to(ROOT / "examples") else folder


def execute(command: Command, cwd: Path, shell: dict[str, str]) -> int:
    """Run one command of a session, compare what it prints and give its exit status."""
    done = subprocess.run(
        ["bash", "-c", command.text],
        cwd=cwd,
        env=shell,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stdout, done.stdout
    assert matches(command.output, done.stdout.splitlines()), f"$ {command.text}\n{done.stdout}"
    return done.returncode


def test_blocks_were_found() -> None:
    assert [block for block in of("console") if block.page == ROOT / "README.md"]


def test_a_session_is_read_and_compared() -> None:
    one, two = session("$ a \\\n> b\nx … z\n...\nend\n\n$ c\n")
    assert (one.text, two.text, two.output) == ("a \\\nb", "c", [])
    assert matches(one.output, ["x 1 2 z", "any", "thing", "end"])
    assert matches(one.output, ["x  z", "end"])
    assert not matches(one.output, ["x 1 2 z", "end", "more"])
    assert not matches(one.output, ["x 1 2", "z", "end"])
    assert not matches([], ["unexpected"])


def test_every_block_says_what_it_is() -> None:
    known = (*EXECUTED, "text")
    may_be_wrong = ("console", *PROGRAMS)
    assert not [place(block) for block in BLOCKS if block.language not in known]
    words = ((block, {"wrong"} if block.language in may_be_wrong else set()) for block in BLOCKS)
    assert not [place(block) for block, allowed in words if not block.words <= allowed]


def test_pages_for_newcomers_lead_on() -> None:
    """Who has read a page of the first five minutes to its end finds there where to go on."""
    first = ROOT / "docs"
    pages = [first / "start.md", first / "tour.md", *first.glob("sessions/*.md"), *first.glob("from/*.md")]
    ends = {page: page.read_text(encoding="utf-8").rstrip().rpartition("\n\n")[2] for page in pages}
    assert not [place(page) for page, end in ends.items() if "](" not in end and page.name != "index.md"]


def test_paths_in_the_pages_of_the_code_exist() -> None:
    """What CONTRIBUTING and the walks name as a file or a folder is one, in the repository or below the package."""
    wrong = []
    for page in (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"):
        for path in re.findall(r"`([a-z_]+(?:/[a-z_.]+)+)`", page.read_text(encoding="utf-8")):
            if not any((folder / path).exists() for folder in (ROOT, ROOT / "src" / "lamella")):
                wrong.append(f"{place(page)}: {path}")
    assert not wrong


def test_links_lead_somewhere() -> None:
    wrong = []
    for page in (*PAGES, ROOT / "CONTRIBUTING.md"):
        for link in links(page):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                wrong.append(f"{place(page)}: {link}")
    assert not wrong


@pytest.mark.parametrize("page", pages_with("console", "python"), ids=place)
def test_sessions_and_scripts(page: Path, tmp_path: Path, shell: dict[str, str]) -> None:
    cwd = workplace(page, tmp_path)
    for block in (block for block in of("console") if block.page == page):
        failed = [command.text for command in session(block.text) if execute(command, cwd, shell) != 0]
        assert bool(failed) == ("wrong" in block.words), f"{place(block)}: {failed}"
    script = "".join(block.text for block in of("python") if block.page == page)
    subprocess.run(["bash", "-c", 'python -c "$0"', script], cwd=cwd, env=shell, check=True)


@pytest.mark.parametrize("language", PROGRAMS)
def test_programs(language: str, tmp_path: Path) -> None:
    """A program shown as wrong has errors, another has none."""
    wrong = []
    program = tmp_path / f"shown.{language}"
    for block in of(language):
        program.write_text(block.text, encoding="utf-8")
        errors = [str(finding) for finding in lamella.check(program) if finding.severity == "error"]
        if bool(errors) != ("wrong" in block.words):
            wrong.append((place(block), errors))
    assert not wrong


def test_json() -> None:
    for block in of("json"):
        json.loads(block.text)


def test_limits_are_told_as_they_are() -> None:
    page = (ROOT / "docs" / "layers" / "graph.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(max_\w+)` \| ([\d ]+?)( GiB)? \|", page, re.MULTILINE)
    told = {name: int(digits.replace(" ", "")) * (GIB if unit else 1) for name, digits, unit in rows}
    assert told
    assert told == {name: getattr(DEFAULT, name) for name in told}
