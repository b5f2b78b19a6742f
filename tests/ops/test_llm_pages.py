"""Attention to pages, and pages that get new tokens: NumPy judges both."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from tests.support.judges.harness import refuse, run
from tests.support.judges.llm import agree
from tests.support.judges.registry import Refusal, judged

PAGE, PAGES, ROOM, LENGTHS = 3, 12, 4, np.array([7, 0, 12])


def draw(queries: int) -> dict[str, Array]:
    """Queries of four heads, pages of two, and a table that has no page behind the end of a sequence."""
    random = np.random.default_rng(queries)
    table = random.permutation(PAGES).reshape(3, ROOM)
    table[0, 3], table[1] = -1, PAGES
    return {
        "q": random.standard_normal((3, 4, queries, 5)),
        "keys": random.standard_normal((PAGES, PAGE, 2, 5)),
        "values": random.standard_normal((PAGES, PAGE, 2, 6)),
        "table": table,
        "lengths": LENGTHS,
    }


def attend(given: dict[str, Array], causal: bool, scale: float, window: int | None) -> Array:
    """Row by row of scores, each over the keys that its query sees."""
    out = np.zeros((*given["q"].shape[:3], 6))
    queries = given["q"].shape[2]
    for sequence, head, query in np.ndindex(out.shape[:3]):
        length = int(LENGTHS[sequence])
        place = length - queries + query
        seen = [
            key
            for key in range(length)
            if (key <= place or not causal) and (window is None or place - key < window)
        ]
        if not seen:
            continue
        where = [(given["table"][sequence, key // PAGE], key % PAGE, head // 2) for key in seen]
        scores = (
            np.array([given["keys"][place] @ given["q"][sequence, head, query] for place in where]) * scale
        )
        weights = np.exp(scores - scores.max())
        mixed = [weight * given["values"][place] for weight, place in zip(weights, where, strict=True)]
        out[sequence, head, query] = np.sum(mixed, 0) / weights.sum()
    return out


@judged("numpy", "llm.paged_attention", "llm.paged_decode")
@pytest.mark.parametrize("queries", [1, 2, 9])
@pytest.mark.parametrize(("causal", "window"), [(True, None), (True, 3), (False, None)])
def test_attention_to_pages(queries: int, causal: bool, window: int | None) -> None:
    given = draw(queries)
    want = attend(given, causal, 0.3, window)
    more = {} if window is None else {"window_size": window}
    for name in ("paged_attention", "paged_decode"):
        agree(name, [*given.values()], want, causal=causal, softmax_scale=0.3, **more)


def test_scores_are_divided_by_the_root_of_their_length() -> None:
    given = draw(1)
    agree("paged_attention", [*given.values()], attend(given, True, 5**-0.5, None))


@judged("numpy", "llm.store_pages")
def test_new_tokens_go_to_the_end_of_their_sequences() -> None:
    given, random = draw(2), np.random.default_rng(1)
    lengths, new = np.array([7, 2, 12]), random.standard_normal((3, 2, 2, 5))
    given["table"][1] = given["table"][0, 2], -1, -1, -1
    given["table"][0, 2] = 11 if 11 not in given["table"] else given["table"][0, 2]
    want = given["keys"].copy()
    for sequence, head, token in np.ndindex(new.shape[:3]):
        place = lengths[sequence] - 2 + token
        want[given["table"][sequence, place // PAGE], place % PAGE, head] = new[sequence, head, token]
    agree("store_pages", [given["keys"], new, given["table"], lengths], want)


def test_a_page_that_is_seen_must_be_one() -> None:
    given = draw(1)
    given["table"][0, 1] = -1
    with pytest.raises(LamellaError):
        run("llm.paged_attention", [*given.values()])


SHAPES = ((1, 3, 1, 4), (2, 2, 2, 4), (2, 2, 2, 4), (1, 2), (1,))
REFUSALS = tuple(
    Refusal(f"llm.{name}", message, shapes, attributes, "f32 f32 f32 i64 i64")
    for name in ("paged_attention", "paged_decode")
    for message, shapes, attributes in (
        ("3 heads of queries cannot share 2 heads of keys", SHAPES, {}),
        ("'window_size' must be positive", ((1, 2, 1, 4), *SHAPES[1:]), {"window_size": 0}),
    )
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refused(refusal: Refusal) -> None:
    refuse(refusal)
