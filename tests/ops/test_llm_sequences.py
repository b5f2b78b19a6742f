"""What encoders add to scores, positions and vectors: distances, padding, kinds of tokens; judged by transformers."""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import arrays
from tests.support.judges.harness import refuse
from tests.support.judges.llm import agree, draw, torch
from tests.support.judges.registry import Refusal, judged

Data = st.DataObject
T5_BUCKETS = ((32, 128), (8, 10), (12, 20))
"""Numbers of buckets and greatest distances; those of the published models first."""


@cache
def theirs(name: str) -> Any:
    """A module of transformers, loaded by the tests alone: the table of judges reads this file too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_module(f"transformers.models.{name}.modeling_{name}")


@judged("torch", "llm.relative_position_bias")
@pytest.mark.parametrize(("buckets", "farthest"), T5_BUCKETS)
@pytest.mark.parametrize("both", [True, False])
def test_buckets_of_distances(buckets: int, farthest: int, both: bool) -> None:
    """All distances, far beyond the greatest that has a bucket of its own; in calls for later tokens too."""
    count, heads = 300, 2
    weight = np.random.default_rng(0).standard_normal((buckets, heads)).astype(np.float32)
    ahead = torch.arange(count)[None, :] - torch.arange(count)[:, None]
    places = theirs("t5").T5Attention._relative_position_bucket(ahead, both, buckets, farthest)
    wanted = torch.from_numpy(weight)[places].permute(2, 0, 1)[None].numpy()
    attributes = {"bidirectional": both, "max_distance": farthest, "keys": count}
    agree("relative_position_bias", [weight, None], [wanted], queries=count, **attributes)
    agree("relative_position_bias", [weight, None], [wanted[:, :, -3:]], queries=3, **attributes)
    seen = np.asarray(7, np.int64)
    agree("relative_position_bias", [weight, seen], [wanted[:, :, 7:9]], queries=2, **attributes)


@judged("torch", "llm.disentangled_bias")
@pytest.mark.parametrize(("buckets", "farthest"), [(256, 512), (8, 96), (0, 9)])
@pytest.mark.parametrize("sides", [(True, True), (True, False), (False, True)])
def test_distances_that_meet_queries_and_keys(buckets: int, farthest: int, sides: tuple[bool, bool]) -> None:
    count, span = 40 if buckets < 100 else 560, buckets or farthest
    chance = np.random.default_rng(1)
    given_ = [
        chance.standard_normal((1, 1, count, 2 * span)).astype(np.float32) if side else None for side in sides
    ]
    layer = torch.zeros(1, count, 1)
    places = theirs("deberta_v2").build_relative_position(layer, layer, buckets or -1, farthest)[0]
    wanted = torch.zeros(1, 1, count, count)
    if given_[0] is not None:
        at = (places + span).clamp(0, 2 * span - 1)[None, None]
        wanted = wanted + torch.gather(torch.from_numpy(given_[0]), -1, at)
    if given_[1] is not None:
        at = (span - places).clamp(0, 2 * span - 1)[None, None]
        wanted = wanted + torch.gather(torch.from_numpy(given_[1]), -1, at).mT
    agree(
        "disentangled_bias", given_, [0.5 * wanted.numpy()], buckets=buckets, max_distance=farthest, scale=0.5
    )


@judged("torch", "llm.padded_positions")
@given(st.integers(1, 3), st.integers(1, 6), st.integers(0, 3), st.data())
def test_positions_behind_padding(batch: int, count: int, pad: int, data: Data) -> None:
    tokens = data.draw(arrays((batch, count), ("int64",), 0, 3))
    wanted = theirs("roberta").RobertaEmbeddings.create_position_ids_from_input_ids(
        torch.from_numpy(tokens), pad
    )
    agree("padded_positions", [tokens], [wanted.numpy()], pad=pad)


@judged("torch", "llm.add_kind", "llm.masked_mean")
@given(st.integers(1, 3), st.integers(1, 4), st.booleans(), st.data())
def test_kinds_and_means(batch: int, count: int, told: bool, data: Data) -> None:
    x, weight = draw(data, batch, count, 2), draw(data, 3, 2)
    kinds = data.draw(arrays((batch, count), ("int64",), 0, 2)) if told else None
    rows = torch.nn.functional.embedding(
        torch.zeros(batch, count, dtype=torch.int64) if kinds is None else torch.tensor(kinds),
        torch.tensor(weight),
    )
    agree("add_kind", [x, weight, kinds], [torch.tensor(x) + rows])
    mask = None if kinds is None else np.maximum(kinds > 0, np.arange(count) == 0).astype(np.int64)
    seen = torch.ones(batch, count) if mask is None else torch.tensor(mask)
    mean = (torch.tensor(x) * seen[..., None]).sum(1) / seen.sum(1, keepdim=True)
    agree("masked_mean", [x, mask], [mean])


REFUSALS = (
    Refusal("llm.relative_position_bias", "1 buckets are too few", ((1, 2),), {"queries": 2, "keys": 2}),
    Refusal(
        "llm.relative_position_bias",
        "'max_distance' must be greater than 2",
        ((8, 2),),
        {"queries": 2, "keys": 2, "max_distance": 2},
    ),
    Refusal("llm.disentangled_bias", "queries, keys or both must meet distances", (), {"max_distance": 4}),
    Refusal("llm.disentangled_bias", "not 3 in all", ((1, 1, 2, 3),), {"max_distance": 4}),
    Refusal(
        "llm.disentangled_bias",
        "'max_distance' must be greater than half of 8 buckets",
        ((1, 1, 2, 16),),
        {"max_distance": 4, "buckets": 8},
    ),
    Refusal("llm.padded_positions", "must not be negative", ((2, 3),), {"pad": -1}, "i64"),
    Refusal("llm.add_kind", "there must be a row for at least one kind", ((1, 2, 3), (0, 3))),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
