"""Mutated NEM programs: any text gives a document and clean findings."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, errors, render
from lamella.base.source import Source
from lamella.lang.nem.parse import parse
from lamella.lang.nem.rules import BY_CODE
from lamella.lang.nem.write import write
from tests.support.strategies.mutation import mutants

GOOD = sorted((Path(__file__).parents[1] / "lang" / "nem" / "good").glob("*.nem"))
SEED = 20


def assert_clean(finding: Diagnostic, source: Source) -> None:
    """A finding has a known code, lies in its text and can be shown on a terminal."""
    assert finding.code in BY_CODE
    assert finding.span.source is source
    assert 0 <= finding.span.start <= finding.span.end <= len(source.text)
    assert all(line.isprintable() for line in render(finding).split("\n"))


def test_any_text_gives_clean_findings(mutations: int) -> None:
    texts = [path.read_bytes().decode("utf-8") for path in GOOD]
    right = 0
    for text in mutants(texts, mutations, SEED):
        source = Source("mutant.nem", text)
        parsed = parse(source)
        for finding in parsed.findings:
            assert_clean(finding, source)
        if not errors(parsed.findings):
            right += 1
            written = write(parsed.document)
            again = parse(Source("written.nem", written))
            assert again.document == parsed.document
            assert write(again.document) == written
    assert 0 < right < mutations
