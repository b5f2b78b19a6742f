"""Patterns: Python's own matcher is the judge where it says the same; time grows with the text alone."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lamella.backend.tisa.patterns import (
    Automaton,
    Matcher,
    PatternMatch,
    build_program,
    parse_pattern,
    settle,
)
from lamella.base.errors import Malformed
from tests.support.bridge.tokenizer_kinds import LLAMA_3, O200K
from tests.support.watch import watched

GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\z|\s*[\r\n]|\s+(?!\S)|\s"
)
ALPHABET = "ab1 \n"
SECONDS, MEBIBYTES = 60, 600


@cache
def by_automaton(*patterns: str) -> Automaton:
    """The slow way alone."""
    return Automaton(build_program([settle(parse_pattern(pattern)) for pattern in patterns]))


def by_python(pattern: str, text: str) -> list[tuple[int, int]]:
    """The matches of Python's own matcher that take a character."""
    compiled, found, at = re.compile(pattern), list[tuple[int, int]](), 0
    while at < len(text):
        match = compiled.match(text, at)
        if match and match.end() > at:
            found.append(match.span())
        at = max(at + 1, match.end() if match else 0)
    return found


def spans(found: list[PatternMatch]) -> list[tuple[int, int]]:
    """Without the numbers of rules."""
    return [(start, end) for start, end, _ in found]


# --- generated patterns -------------------------------------------------------------------------------------

SINGLE = st.sampled_from(
    ["a", "b", "1", " ", "[ab]", "[^a]", r"\s", r"\S", r"\d", r"\w", "[a-b1]", ".", r"\n"]
)
COUNT = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "*?", "+?", "??", "{1,3}?"])
LOOK = st.sampled_from(["(?!a)", r"(?=\s)", r"(?!\S)", r"(?=b|\Z)", r"\Z", r"\A"])


def rows(parts: SearchStrategy[str]) -> SearchStrategy[str]:
    """Parts in a row with one that takes a character, so that no loop is around nothing."""
    taking = st.builds(lambda first, rest: first + "".join(rest), SINGLE, st.lists(parts, max_size=2))
    return st.one_of(
        taking,
        st.builds(lambda a, b: f"(?:{a}|{b})", taking, taking),
        st.builds(lambda a, b, count: f"(?:{a}|{b}){count}", taking, taking, COUNT),
    )


PARTS = st.recursive(st.one_of(SINGLE, st.builds(str.__add__, SINGLE, COUNT), LOOK), rows, max_leaves=6)
PATTERNS = st.lists(PARTS, min_size=1, max_size=3).map("|".join)


@given(PATTERNS, st.text(ALPHABET, max_size=14))
@example(r"\s*\n|\s+(?!\S)|\s+", "  \n  a \n")
@example("a+b|a", "aaab aa")
@example("(?:a|ab)(?:b1|1)", "ab1ab1")
def test_matches_are_those_of_a_backtracking_matcher(pattern: str, text: str) -> None:
    wanted = by_python(pattern, text)
    assert spans(Matcher([parse_pattern(pattern)]).find(text)) == wanted
    assert spans(by_automaton(pattern).find(text)) == wanted


@given(st.lists(PARTS, min_size=1, max_size=3), st.text(ALPHABET, max_size=14))
def test_the_first_rule_that_fits_is_told(patterns: list[str], text: str) -> None:
    for start, end, rule in Matcher([parse_pattern(item) for item in patterns]).find(text):
        fits = [place for place, item in enumerate(patterns) if re.compile(item).match(text, start)]
        assert rule == fits[0]
        match = re.compile(patterns[rule]).match(text, start)
        assert match is not None
        assert match.end() == end


@pytest.mark.parametrize("pattern", [GPT_2, LLAMA_3, O200K, POSSESSIVE])
@given(
    text=st.text(
        st.one_of(st.sampled_from("aAbZ 1'sSlL\n\r\t.,\u00a0é\u0301漢Ǆſ😀𝐀٣"), st.characters()), max_size=30
    )
)
def test_both_ways_agree_on_patterns_in_use(pattern: str, text: str) -> None:
    matcher = Matcher([parse_pattern(pattern)])
    assert matcher.linear
    found = matcher.find(text)
    assert by_automaton(pattern).find(text) == found
    assert "".join(matcher.cut(text)) == text


def test_pieces_and_replacements_keep_what_lies_between() -> None:
    for pattern in ("b+", "(?:b|bb)+"):
        matcher = Matcher([parse_pattern(pattern)])
        assert matcher.cut("abbcb") == ["a", "bb", "c", "b"]
        assert matcher.matches("abbcb") == ["bb", "b"]
        assert matcher.replace("abbcb", str.upper) == "aBBcB"


@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
    [
        (r"(?i:'S)t", "'st'ſt'St'sT", ["'st", "'ſt", "'St"]),
        (r"(?i)k", "kK\u212a", ["k", "K", "\u212a"]),
        (r"\p{Lu}|\pN", "aBc1Ⅷ", ["B", "1", "Ⅷ"]),
        (r"\P{L}|\p{^L}", "a-", ["-"]),
        (r"[^\P{L}a]", "abé1", ["b", "é"]),
        (r"[\]\-\\^]", "]-\\^a", ["]", "-", "\\", "^"]),
        (r"[]a-]", "]-ab", ["]", "-", "a"]),
        (r"\x41\x{42}\u0043\U00000044", "ABCD", ["ABCD"]),
        (r"a{,2}b|{", "aab{", ["aab", "{"]),
        (r"\p{Letter}\p{Punct}", "a!", ["a!"]),
        (r"a(?-i:b)(?:c)", "abc", ["abc"]),
        (r"^a|b\z", "aab", ["a", "b"]),
    ],
)
def test_the_pattern_language(pattern: str, text: str, wanted: list[str]) -> None:
    assert Matcher([parse_pattern(pattern)]).matches(text) == wanted
    assert [text[start:end] for start, end, _ in by_automaton(pattern).find(text)] == wanted


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a**", "a{2}{3}", "*a", "[a", "[b-a]", "[[a]]", "[a&&b]", r"\p{Greek}", r"\p", r"\b", r"(a)\1",
     "(?<=a)b", "(?>a)", "(?P<n>a)", "(?=ab)", r"(?!a+)", "^*", "a{3,2}", "a{1001}", r"\x{110000}", "\\",
     "(" * 60 + ")" * 60, "a" * 30_000],
)  # fmt: skip
def test_other_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(Malformed):
        parse_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(?:a{1000}){1000}", "(?:a++b)+", "a++a", "(?:(?:a?){99}){99}"])
def test_patterns_that_no_automaton_is_made_for_are_refused(pattern: str) -> None:
    with pytest.raises(Malformed):
        by_automaton(pattern)


# --- hostile patterns ---------------------------------------------------------------------------------------

HOSTILE = (
    "(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*a){8}b", "(a*)*b", "a+b|a", "a*a*a*a*a*b", "(a?){30}a{30}", "([a-z]+)*1",
    "a+$|a", r"(\w+\s?)*$", "(x+x+)+y|a", r"\s*a+\s*$|.", "(?:a|b)*c|(?:a|b)*d|a", "a+b+c|b+c|a",
)  # fmt: skip


@pytest.mark.parametrize("pattern", HOSTILE)
def test_hostile_patterns_do_not_hang(pattern: str) -> None:
    texts = ("a" * 20_000, "a" * 20_000 + "!", "ab" * 10_000 + "!", "a " * 10_000 + "!")
    matcher = Matcher([parse_pattern(pattern)])
    with watched(SECONDS, MEBIBYTES):
        for text in texts:
            assert all(start < end for start, end, _ in matcher.find(text))


@pytest.mark.parametrize("pattern", [GPT_2, LLAMA_3, O200K, POSSESSIVE, r"▁[^▁]*|[^▁]+"])
@pytest.mark.parametrize("unit", ["a", "A", " ", "\n", " \n", "1", "'", "a ", "  a", "é", "漢", "A a", "▁"])
def test_patterns_in_use_read_long_rows_once(pattern: str, unit: str) -> None:
    text = unit * (200_000 // len(unit)) + "x"
    matcher = Matcher([parse_pattern(pattern)])
    assert matcher.linear
    with watched(SECONDS, MEBIBYTES):
        assert "".join(matcher.cut(text)) == text


@pytest.mark.parametrize(
    "pattern", ["a+b", "a+b|a", "(a+)+", "a*b*c|a", "a*", r"a+(?!b)|b+(?=c)", "(?:ab?){65}"]
)
def test_what_is_not_proved_is_not_given_to_a_backtracking_matcher(pattern: str) -> None:
    assert not Matcher([parse_pattern(pattern)]).linear
