"""Every rule has a code of its language, a wrong program that expects it, a right one and a row in the docs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from docs.generate import WIDEST, examples, page
from lamella.base.diagnostic import Rule
from tests.support.repository import ROOT, TESTS, environment, languages

CODES = {
    "module": re.compile(r"[EW]\d{3}"),
    "skriptnd": re.compile(r"SKR\d{3}"),
    "nac": re.compile(r"NAC\d{3}"),
    "tensor": re.compile(r"TEN\d{3}"),
    "nem": re.compile(r"NEM\d{3}"),
}
EXPECT = re.compile(r"[#;]\s*expect\s+((?:[A-Z]+\d{3}[ ,]*)+)")
LARGEST_GAP = 10
LANGUAGES = pytest.mark.parametrize("name", languages())


@cache
def table(name: str) -> tuple[Rule, ...]:
    """The rule table of a language."""
    rules: tuple[Rule, ...] = importlib.import_module(f"lamella.lang.{name}.rules").RULES
    return rules


@cache
def expected(name: str) -> dict[str, Path]:
    """The codes that the wrong programs of a language expect, each with one of its files."""
    files = [path for path in (TESTS / "lang" / name / "bad").rglob("*") if path.is_file()]
    texts = [(path, path.read_text(encoding="utf-8", errors="replace")) for path in files]
    found = ((path, match[1]) for path, text in texts for match in EXPECT.finditer(text))
    return {code: path for path, codes in found for code in re.findall(r"[A-Z]+\d{3}", codes)}


@LANGUAGES
def test_codes_are_of_the_language_and_unique(name: str) -> None:
    codes = [rule.code for rule in table(name)]
    assert codes
    assert not [code for code in codes if not CODES[name].fullmatch(code)]
    assert len(codes) == len(set(codes))


@LANGUAGES
def test_codes_ascend_without_large_gaps(name: str) -> None:
    numbers = [(rule.code[:-3], int(rule.code[-3:])) for rule in table(name)]
    assert numbers == sorted(numbers)
    # a new group of rules may begin at a round hundred
    gaps = [(a, b) for (_, a), (_, b) in pairwise(numbers) if a // 100 == b // 100 and b - a > LARGEST_GAP]
    assert not gaps


@LANGUAGES
def test_the_table_holds_every_rule(name: str) -> None:
    module = importlib.import_module(f"lamella.lang.{name}.rules")
    named = {value for value in vars(module).values() if isinstance(value, Rule)}
    assert named <= set(table(name))


@LANGUAGES
def test_sentences_are_written_alike(name: str) -> None:
    for rule in table(name):
        assert rule.severity in ("error", "warning", "note"), rule.code
        assert rule.section, rule.code
        for text in filter(None, (rule.sentence, rule.hint)):
            assert not text.endswith((".", "!")), f"{rule.code}: {text}"
            assert not re.match(r"[A-Z][a-z]", text), f"{rule.code}: {text}"


@LANGUAGES
def test_every_rule_has_a_wrong_program(name: str) -> None:
    assert not [rule.code for rule in table(name) if rule.code not in expected(name)]


@LANGUAGES
def test_every_rule_has_a_right_program(name: str) -> None:
    """The tests of each language repair the wrong programs and find nothing wrong with them then."""
    shown = examples(name)
    assert not [rule.code for rule in table(name) if not shown[rule.code].right]


@LANGUAGES
def test_explained_programs_are_shown_whole(name: str) -> None:
    lines = [line for shown in examples(name).values() for line in [*shown.wrong, *shown.right]]
    assert not [line for line in lines if line == "…" or len(line) == WIDEST]


@LANGUAGES
def test_wrong_programs_expect_rules_that_exist(name: str) -> None:
    codes = {rule.code for rule in table(name)}
    assert not {code: path.name for code, path in expected(name).items() if code not in codes}


def test_the_pages_are_up_to_date() -> None:
    command = [sys.executable, "-m", "docs.generate", "--check"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@LANGUAGES
def test_every_rule_has_a_row(name: str) -> None:
    rows = re.findall(r"^\| \[?([A-Z]+\d{3})", page(name), re.MULTILINE)
    assert rows == [rule.code for rule in table(name)]
