"""Calls of the operators of `moe`."""

from __future__ import annotations

from tests.support.bridge.operators.calls import call

ROUTES, SLOTS, OFFSETS = "i32 3 2 0..3", "i32 6 0..5", "i32 5 0..6"
TOKENS, GATE = "f32 3 5 -2..2", "f32 4 5 -2..2"
GROUPED = ("f32 6 5 -2..2", "f32 4 3 5 -2..2", OFFSETS)
STRAIGHT = ("f32 6 3 -2..2", "f32 4 3 5 -2..2", OFFSETS)
WIDE, NARROW = "f32 4 6 5 -2..2", "f32 4 3 5 -2..2"
DOWN = "f32 4 5 3 -2..2"
CALLS = (
    call("moe.topk", "f32 3 4", top_k=2),
    call("moe.topk", "f32 3 4", "f32 4 -1..1", top_k=3, normalize=False),
    call("moe.topk_backward", "f32 3 2 -4..4", "f32 3 4", ROUTES),
    call("moe.topk_backward", "f32 3 2 -4..4", "f32 3 4", ROUTES, normalize=False),
    call("moe.router_logits", "f32 3 4 -4..4", top_k=2),
    call("moe.router_logits", "f32 3 4 -4..4", "f32 4 -1..1", top_k=2, use_sigmoid=True),
    call("moe.router_logits_backward", "f32 3 2", "f32 3 4 -4..4", ROUTES, "f32"),
    call("moe.router_logits_backward", "f32 3 2", "f32 3 4 -4..4", ROUTES, use_sigmoid=True, normalize=False),
    call("moe.router", TOKENS, GATE, top_k=2),
    call("moe.router", TOKENS, GATE, "f32 4 -1..1", top_k=3, normalize=False, use_sigmoid=True),
    call("moe.router_backward", "f32 3 2", TOKENS, GATE, ROUTES, "f32"),
    call("moe.router_backward", "f32 3 2", TOKENS, GATE, ROUTES, use_sigmoid=True),
    call("moe.compute_offsets", ROUTES, num_experts=4),
    call("moe.compute_expert_counts", ROUTES, num_experts=4),
    call("moe.compute_expert_offsets", "i32 4 0..3"),
    call("moe.build_indices", ROUTES),
    call("moe.build_indices", ROUTES, "i32 5 0..0"),
    call("moe.permute", TOKENS, ROUTES),
    call("moe.permute", TOKENS, ROUTES, "i32 5 0..0"),
    call("moe.permute_backward", "f32 6 5 -2..2", SLOTS, ROUTES),
    call("moe.unpermute", "f32 6 5 -2..2", "f32 3 2", SLOTS),
    call("moe.unpermute", "f32 6 5 -2..2", "f32 3 2", ROUTES),
    call("moe.unpermute_backward", "f32 3 5 -2..2", "f32 6 5 -2..2", "f32 3 2", SLOTS),
    call("moe.unpermute_backward", "f32 3 5 -2..2", "f32 6 5 -2..2", "f32 3 2", ROUTES),
    call("moe.combine", "f32 6 5 -2..2", "f32 3 2", SLOTS),
    call("moe.combine_backward", "f32 3 5 -2..2", "f32 6 5 -2..2", "f32 3 2", SLOTS),
    call("moe.find_slots", OFFSETS, rows=6, ranks=2, capacity=4),
    call("moe.find_places", "i32 10 0..3", ranks=2, rank=1, capacity=4),
    call("moe.place_rows", "f32 6 5 -2..2", "i32 6 0..8", count=7),
    call("moe.pick_rows", "f32 6 5 -2..2", "i32 4 0..8"),
    call("moe.grouped_gemm", *GROUPED),
    call("moe.grouped_gemm", *STRAIGHT, transpose="NN"),
    call("moe.grouped_gemm_backward", "f32 6 3 -2..2", *GROUPED),
    call("moe.grouped_gemm_backward", "f32 6 5 -2..2", *STRAIGHT, transpose="NN"),
    call("moe.grouped_gemm_weight_grad", "f32 6 5 -2..2", "f32 6 3 -2..2", OFFSETS),
    call("moe.grouped_gemm_weight_grad", "f32 6 3 -2..2", "f32 6 5 -2..2", OFFSETS, transpose="NN"),
    call("moe.grouped_bias", "f32 6 5 -2..2", "f32 4 5 -2..2", OFFSETS),
    *(call("moe.experts", "f32 6 5", WIDE, DOWN, OFFSETS, activation=way) for way in ("swiglu", "geglu")),
    *(call("moe.experts", "f32 6 5", NARROW, DOWN, ROUTES, activation=way) for way in ("silu", "gelu")),
    *(call("moe.experts", "f32 6 5", NARROW, DOWN, ROUTES, activation=way) for way in ("relu", "relu2")),
    *(
        call("moe.experts_backward", "f32 6 5", "f32 6 5", WIDE, DOWN, OFFSETS, activation=way)
        for way in ("swiglu", "geglu")
    ),
    *(
        call("moe.experts_backward", "f32 6 5", "f32 6 5", NARROW, DOWN, ROUTES, activation=way)
        for way in ("silu", "gelu", "relu", "relu2")
    ),
)
