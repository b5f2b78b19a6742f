"""Models against all possibilities, and vocabularies that are broken."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.tisa import load_tokenizer
from lamella.backend.tisa.models import LONG, PENALTY, BytePairs, LikeliestPieces
from lamella.backend.tisa.vocabulary import Vocabulary
from lamella.base.diagnostic import LamellaError
from lamella.lang.nac.nodes import File, Resource
from tests.support.backend.tisa.manifests import file_of, tables

MERGES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "ab", "ba", "aa", "abab"]), st.sampled_from(["a", "b", "ab", "aab"]))
)


@given(MERGES, st.text("abc", max_size=40), st.integers(0, 3))
def test_byte_pairs_merge_the_lowest_first(merges: list[tuple[str, str]], word: str, more: int) -> None:
    merges = list(dict.fromkeys(merges))
    texts = dict.fromkeys(["?", "a", "b", *(part for pair in merges for part in (*pair, "".join(pair)))])
    ids = {text: number for number, text in enumerate(texts)}
    model = BytePairs(Vocabulary(ids, {}, tuple(merges)), None, "")
    word *= 1 + more * LONG // 10
    symbols = list(word)
    while pairs := [pair for pair in pairwise(symbols) if pair in merges]:
        best = min(pairs, key=merges.index)
        at = list(pairwise(symbols)).index(best)
        symbols[at : at + 2] = ["".join(best)]
    assert model.encode(word) == [ids.get(symbol, 0) for symbol in symbols]


@given(
    st.dictionaries(st.text("ab", min_size=1, max_size=3), st.integers(-9, -1), min_size=1),
    st.text("abc", max_size=8),
)
def test_the_likeliest_pieces_are_the_best_of_all(scores: dict[str, int], word: str) -> None:
    ids = {text: number for number, text in enumerate(["<unk>", *scores])}
    given_scores = {"<unk>": -9.0} | {text: float(score) for text, score in scores.items()}
    worst = min(given_scores.values()) - PENALTY

    def value(pieces: list[str]) -> float:
        return sum(given_scores.get(piece, worst) for piece in pieces)

    def ways(rest: str) -> list[list[str]]:
        cut = [(rest[:size], rest[size:]) for size in range(1, len(rest) + 1)]
        known = [(piece, after) for piece, after in cut if piece in scores or len(piece) == 1]
        return [[piece, *way] for piece, after in known for way in ways(after)] if rest else [[]]

    pieces = LikeliestPieces(Vocabulary(ids, given_scores), None)._best(word)
    assert "".join(pieces) == word
    assert value(pieces) == max(map(value, ways(word)))


# --- resources ----------------------------------------------------------------------------------------------


@given(st.data())
def test_broken_resources_are_findings(data: st.DataObject) -> None:
    made = tables({"a": 0, "b": 1, "ab": 2}, [["a", "b"]])
    broken = []
    for resource in made:
        text = bytearray(resource.data)
        for _ in range(data.draw(st.integers(0, 2))):
            text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
        broken.append(
            Resource(resource.name, bytes(text[: data.draw(st.integers(len(text) // 2, len(text)))]))
        )
    file = File(manifest=file_of([("BPE_ENCODE",)], {}).manifest, resources=tuple(broken))
    assert codes_of(file) in ([], ["NAC253"])


def codes_of(file: File) -> list[str]:
    """The findings of a file whose tokenizer is loaded and run."""
    try:
        load_tokenizer(file).encode("abab")
    except LamellaError as problem:
        return [item.code for item in problem.findings]
    return []


@pytest.mark.parametrize(
    "text", ["[]", "{", "[" * 100_000, '{"a": 1.5}', '{"a": 99999999999}', "\\ud800", ""]
)
def test_broken_texts_are_findings(text: str) -> None:
    for name in ("vocab.json", "tokenizer.json"):
        with pytest.raises(LamellaError) as problem:
            load_tokenizer(
                File(
                    manifest=file_of([("BPE_ENCODE",)], {}).manifest,
                    resources=(Resource(name, text.encode()),),
                )
            )
        assert problem.value.findings[0].code == "NAC253"
