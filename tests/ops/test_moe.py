"""The routes of `moe`, judged by the sorting of torch and NumPy, and by automatic gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import filled
from tests.support.judges.gradients import draw_normal, gives, pull, torch
from tests.support.judges.harness import one, refuse, run, same
from tests.support.judges.registry import Given, Refusal, judged
from tests.support.judges.routes import SEEDS, Sizes, draw_routes, offsets_of, order, rank, sizes

# --- routing ------------------------------------------------------------------------------------------------


def route(logits: Any, told: dict[str, Any], correction: Any = None) -> tuple[Any, Any, Any]:
    """Weights, experts and loss as Hugging Face computes them."""
    probs = torch.sigmoid(logits) if told["use_sigmoid"] else torch.softmax(logits, -1)
    scores = probs if correction is None else probs + correction
    indices = rank(scores, told["top_k"])
    weights = probs.gather(1, indices)
    if told["normalize"]:
        weights = weights / weights.sum(-1, keepdim=True)
    used = torch.nn.functional.one_hot(indices, logits.shape[1]).to(logits.dtype).mean(0)
    loss = (used * probs.mean(0)).sum() * logits.shape[1] * told["aux_loss_coef"]
    return weights, indices, loss


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Attributes of a router but for the number of experts."""
    normalize, squeeze = draw(st.booleans()), draw(st.booleans())
    return {"normalize": normalize, "use_sigmoid": squeeze, "aux_loss_coef": 0.25}


@judged("torch", "moe.router", "moe.router_backward")
@judged("torch", "moe.router_logits", "moe.router_logits_backward")
@given(sizes(), options(), SEEDS)
def test_routes(drawn: Sizes, told: dict[str, Any], seed: int) -> None:
    n, e, k, c = drawn
    x, gate, back, loss = draw_normal(seed, (n, c), (e, c), (n, k), ())
    logits = x @ gate.T
    whole = {**told, "top_k": k}
    weights, indices, aux = route(torch.tensor(logits), whole)
    chosen = indices.int()
    gives("moe.router", [x, gate], [weights, chosen, aux], whole)
    gives("moe.router_logits", [logits], [weights, chosen, aux], whole)

    def forward(a: Any, b: Any) -> tuple[Any, Any]:
        found = route(a @ b.T, whole)
        return found[0], found[2]

    pulled = pull(forward, [x, gate], [back, np.asarray(loss)])
    saved = chosen.numpy()
    gives("moe.router_backward", [back, x, gate, saved, np.asarray(loss)], pulled, told)
    pulled = pull(lambda leaf: route(leaf, whole)[0], [logits], [back])
    gives("moe.router_logits_backward", [back, logits, saved], pulled, told)


@judged("torch", "moe.topk", "moe.topk_backward")
@given(sizes(), st.booleans(), SEEDS)
def test_the_best_experts(drawn: Sizes, normalize: bool, seed: int) -> None:
    n, e, k, _ = drawn
    probs, back = draw_normal(seed, (n, e), (n, k))
    probs = np.abs(probs)

    def forward(leaf: Any) -> Any:
        best = leaf.gather(1, rank(leaf, k))
        return best / best.sum(-1, keepdim=True) if normalize else best

    indices = rank(torch.tensor(probs), k).int()
    told: dict[str, Given] = {"normalize": normalize}
    gives("moe.topk", [probs], [forward(torch.tensor(probs)), indices], {**told, "top_k": k})
    gives("moe.topk_backward", [back, probs, indices.numpy()], pull(forward, [probs], [back]), told)


@given(sizes(), SEEDS)
def test_among_equals_the_lower_number_comes_first(drawn: Sizes, seed: int) -> None:
    probs = filled((drawn.tokens, drawn.experts), "float64", seed, 0, 1)
    wanted = np.argsort(-probs, axis=-1, kind="stable")[:, : drawn.top]
    _, indices = run("moe.topk", [probs], {"top_k": drawn.top, "normalize": False})
    same(np.asarray(indices), wanted.astype(np.int32))


@given(sizes(), SEEDS)
def test_a_correction_changes_the_choice_but_not_the_weights(drawn: Sizes, seed: int) -> None:
    n, e, k, c = drawn
    x, gate, correction = draw_normal(seed, (n, c), (e, c), (e,))
    told = {"top_k": k, "normalize": True, "use_sigmoid": True, "aux_loss_coef": 0.01}
    weights, indices, aux = route(torch.tensor(x @ gate.T), told, torch.tensor(correction))
    gives("moe.router", [x, gate, correction], [weights, indices.int(), aux], told)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.data(), SEEDS)
def test_experts_of_the_best_groups(
    tokens: int, groups: int, size: int, data: st.DataObject, seed: int
) -> None:
    """As DeepSeek has it: a group is as good as the sum of its best experts, corrections included."""
    best, left = data.draw(st.integers(1, size)), data.draw(st.integers(1, groups))
    count = data.draw(st.integers(1, left * size))
    logits, correction = draw_normal(seed, (tokens, groups * size), (groups * size,))
    probs = torch.sigmoid(torch.tensor(logits))
    rated = (probs + torch.tensor(correction)).view(tokens, groups, size)
    sums = rated.topk(best, dim=-1).values.sum(-1)
    kept = torch.zeros_like(sums).scatter(1, sums.topk(left, dim=-1).indices, 1)
    shown = rated.masked_fill(kept[..., None] == 0, -np.inf).view(tokens, -1)
    indices = shown.topk(count, dim=-1).indices
    told: dict[str, Given] = {"groups": groups, "top_groups": left, "group_best": best}
    whole = {"top_k": count, "normalize": False, **told}
    gives("moe.topk", [probs.numpy(), correction], [probs.gather(1, indices), indices.int()], whole)
    routed = run("moe.router_logits", [logits, correction], {**whole, "use_sigmoid": True})
    same(np.asarray(routed[1]), indices.int().numpy())


@judged("torch", "moe.grouped_bias")
@given(sizes(), SEEDS)
def test_biases_of_experts(drawn: Sizes, seed: int) -> None:
    indices = draw_routes(drawn, seed)
    offsets = offsets_of(indices, drawn.experts)
    x, bias = draw_normal(seed, (drawn.tokens * drawn.top, drawn.columns), (drawn.experts, drawn.columns))
    owners = torch.repeat_interleave(torch.arange(drawn.experts), torch.tensor(np.diff(offsets)))
    gives("moe.grouped_bias", [x, bias, offsets], [torch.tensor(x) + torch.tensor(bias)[owners]])


# --- the order of the experts -------------------------------------------------------------------------------


@judged("numpy", "moe.compute_offsets", "moe.compute_expert_counts")
@judged("numpy", "moe.compute_expert_offsets", "moe.build_indices")
@given(sizes(), st.sampled_from(["int32", "int64"]), SEEDS)
def test_places(drawn: Sizes, dtype: str, seed: int) -> None:
    indices = draw_routes(drawn, seed).astype(dtype)
    slots, offsets = order(indices), offsets_of(indices, drawn.experts)
    told: dict[str, Given] = {"num_experts": drawn.experts}
    gives("moe.compute_offsets", [indices], [offsets], told)
    (counts,) = gives("moe.compute_expert_counts", [indices], [np.diff(offsets)], told)
    gives("moe.compute_expert_offsets", [counts], [offsets])
    rows = np.argsort(slots).astype(np.int32)
    for known in (offsets, None):
        gives("moe.build_indices", [indices, known], [slots // drawn.top, rows])


@judged("torch", "moe.permute", "moe.permute_backward")
@given(sizes(), st.booleans(), SEEDS)
def test_permuted_tokens(drawn: Sizes, known: bool, seed: int) -> None:
    n, e, k, c = drawn
    indices = draw_routes(drawn, seed)
    slots = order(indices)
    x, back = draw_normal(seed, (n, c), (n * k, c))
    offsets = offsets_of(indices, e) if known else None
    gives("moe.permute", [x, indices, offsets], [x[slots // k], slots])
    pulled = pull(lambda leaf: leaf[torch.tensor(slots // k)], [x], [back])
    gives("moe.permute_backward", [back, slots, indices], pulled)


@judged("torch", "moe.unpermute", "moe.unpermute_backward", "moe.combine", "moe.combine_backward")
@given(sizes(), SEEDS)
def test_combined_tokens(drawn: Sizes, seed: int) -> None:
    n, _, k, c = drawn
    indices = draw_routes(drawn, seed)
    slots = order(indices)
    outputs, weights, back = draw_normal(seed, (n * k, c), (n, k), (n, c))
    rows = np.argsort(slots).astype(np.int32)

    def forward(a: Any, b: Any) -> Any:
        return (a[torch.tensor(rows)].reshape(n, k, c) * b[..., None]).sum(1)

    expected = [forward(torch.tensor(outputs), torch.tensor(weights))]
    pulled = pull(forward, [outputs, weights], [back])
    for operator, routes in (("unpermute", slots), ("unpermute", indices), ("combine", rows)):
        gives(f"moe.{operator}", [outputs, weights, routes], expected)
        gives(f"moe.{operator}_backward", [back, outputs, weights, routes], pulled)


def test_many_tokens_are_placed_in_one_pass() -> None:
    indices = np.random.default_rng(2).integers(0, 16, (1000, 2)).astype(np.int32)
    x = np.arange(1000.0)[:, None]
    slots = order(indices)
    gives("moe.permute", [x, indices, offsets_of(indices, 16)], [x[slots // 2], slots])


# --- refusals -----------------------------------------------------------------------------------------------

REAL = "f32 f32 f32 i32"
MANY = "'top_k' must be at least 1 and at most 3, the number of experts"
PLACED = ((6, 4), (3, 2), (5,))
SHARED = {"ranks": 2, "capacity": 4}
REFUSALS = (
    Refusal("moe.topk", "5 experts do not stand in 2 groups", ((3, 5),), {"top_k": 1, "groups": 2}),
    Refusal(
        "moe.topk", "'top_groups' must be at least 1", ((3, 4),), {"top_k": 1, "groups": 2, "top_groups": 3}
    ),
    Refusal("moe.topk", "1 of 2 groups have fewer than 3 of 4", ((3, 4),), {"top_k": 3, "groups": 2}),
    Refusal(
        "moe.topk", "'group_best' must be at least 1", ((3, 4),), {"top_k": 1, "groups": 2, "group_best": 3}
    ),
    Refusal("moe.grouped_bias", "there must be 4 places for 3", ((5, 2), (3, 2), (3,)), {}, "f32 f32 i32"),
    Refusal("moe.topk", MANY, ((2, 3),), {"top_k": 4}),
    Refusal("moe.router_logits", MANY, ((2, 3),), {"top_k": 0}),
    Refusal("moe.router", MANY, ((2, 4), (3, 4)), {"top_k": 4}),
    Refusal("moe.compute_offsets", "'num_experts' must be positive", ((2, 3),), {"num_experts": 0}, "i32"),
    Refusal(
        "moe.compute_expert_counts", "'num_experts' must be positive", ((2, 3),), {"num_experts": 0}, "i32"
    ),
    Refusal("moe.permute_backward", "there are 6 rows for 8 slots", ((6, 4), (6,), (4, 2)), {}, "f32 i32"),
    Refusal("moe.unpermute", "must have 1 or 2 dimensions", ((6, 4), (3, 2), (3, 2, 1)), {}, "f32 f32 i32"),
    Refusal("moe.unpermute", "there must be 6 rows and indices", PLACED, {}, "f32 f32 i32"),
    Refusal(
        "moe.unpermute_backward",
        "must have 1 or 2 dimensions",
        ((3, 4), (6, 4), (3, 2), (3, 2, 1)),
        {},
        "f32 f32 f32 i32",
    ),
    Refusal("moe.unpermute_backward", "there must be 6 rows and indices", ((3, 4), *PLACED), {}, REAL),
    Refusal("moe.combine", "there are 6 rows for 8 weights", ((6, 4), (4, 2), (6,)), {}, "f32 f32 i32"),
    Refusal(
        "moe.combine_backward", "there are 6 rows for 8 weights", ((4, 4), (6, 4), (4, 2), (6,)), {}, REAL
    ),
    Refusal(
        "moe.find_slots", "3 experts cannot be divided among 'ranks'", ((4,),), SHARED | {"rows": 3}, "i32"
    ),
    Refusal(
        "moe.find_places", "7 offsets are not those of all 'ranks'", ((7,),), SHARED | {"rank": 0}, "i32"
    ),
    Refusal(
        "moe.find_places", "3 experts cannot be divided among 'ranks'", ((8,),), SHARED | {"rank": 0}, "i32"
    ),
    Refusal("moe.find_places", "'rank' must be at least 0 and below 2", ((6,),), SHARED | {"rank": 2}, "i32"),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)


# --- routes between ranks -----------------------------------------------------------------------------------


@judged("numpy", "moe.find_slots", "moe.find_places", "moe.place_rows", "moe.pick_rows")
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(0, 2), SEEDS)
def test_rows_go_to_the_ranks_of_their_experts_and_back(
    ranks: int, each: int, rows: int, spare: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    experts = np.sort(draw.integers(0, ranks * each, (ranks, rows)))
    offsets = np.array([np.searchsorted(item, np.arange(ranks * each + 1)) for item in experts], np.int32)
    capacity = int(np.diff(offsets[:, ::each], axis=1).max()) + spare
    told = {"ranks": ranks, "capacity": capacity}
    arrays = draw.standard_normal((ranks, rows, 2))
    slots, sent = [], []
    for own, array in zip(offsets, arrays, strict=True):
        slots.append(one("moe.find_slots", own, **told, rows=rows))
        sent.append(one("moe.place_rows", array, slots[-1], count=ranks * capacity))
    blocks = np.array(sent).reshape(ranks, ranks, capacity, 2)
    came = []
    for number in range(ranks):
        places, local = run("moe.find_places", [offsets.reshape(-1)], {**told, "rank": number})
        assert isinstance(places, np.ndarray)
        assert isinstance(local, np.ndarray)
        found = one("moe.place_rows", blocks[:, number].reshape(-1, 2), places, count=ranks * capacity)
        wanted = [arrays[experts == number * each + item] for item in range(each)]
        same(local, np.cumsum([0, *map(len, wanted)], dtype=np.int32))
        same(found[: local[-1]], np.concatenate(wanted))
        assert not found[local[-1] :].any()
        came.append(one("moe.pick_rows", found, places))
    back = np.array(came).reshape(ranks, ranks, capacity, 2)
    for number in range(ranks):
        same(one("moe.pick_rows", back[:, number].reshape(-1, 2), slots[number]), arrays[number])
