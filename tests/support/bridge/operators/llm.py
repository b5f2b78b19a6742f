"""Calls of the operators of `llm`."""

from __future__ import annotations

from tests.support.bridge.operators.calls import Invocation, call
from tests.support.judges.registry import Given

WAYS = ("NN", "NT", "TN", "TT")
MATRICES = {"NN": ("3 4", "4 5"), "NT": ("3 4", "5 4"), "TN": ("4 3", "4 5"), "TT": ("4 3", "5 4")}
SHARED = ("f32 2 4 3 4 -2..2", "f32 2 2 5 4 -2..2", "f32 2 2 5 4 -2..2")
OPTIONS: dict[str, Given] = {"window_size": 3, "softmax_scale": 0.5, "alibi_slopes": (0.5, 0.25, 0.125, 0.1)}
HEADS = {"num_heads": 4, "num_kv_heads": 2}
PACKED = "f32 2 3 8 4 -2..2"
ANGLES = "f32 6 2 2 -1..1"
TURNED = ("f32 2 4 3 4 -2..2", "f32 2 2 3 4 -2..2")
ROWS = ("f32 2 3 4 -2..2", "f32 2 3 4 -2..2")
STATISTICS = "f32 2 3 0.5..2"
PAIR = ("f32 2 3 -2..2", "f32 2 3 -2..2")
BROADCAST = ("f32 4 2 3 -2..2", "f32 2 1 1..2", "f32 4 1 3 1..2")


def products(way: str) -> tuple[Invocation, ...]:
    """Products of matrices and batches, and their gradients."""
    a, b = (f"f32 {shape} -2..2" for shape in MATRICES[way])
    batches = (f"f32 2 {MATRICES[way][0]}", f"f32 {MATRICES[way][1]}")
    return (
        call("llm.matmul", a, b, transpose=way),
        call("llm.matmul", a, b, "f32 3 5", transpose=way, accumulate=True, alpha=0.5),
        call("llm.matmul_backward", "f32 3 5", a, b, transpose=way, alpha=0.5),
        call("llm.batched_matmul", *batches, transpose=way),
        call("llm.batched_matmul_backward", "f32 2 3 5", *batches, transpose=way),
    )


LINEAR = (
    *(item for way in WAYS for item in products(way)),
    call("llm.matmul", "f32 2 3 4", "f32 5 4", transpose="NT"),
    call("llm.matmul_backward", "f32 2 3 5", "f32 2 3 4", "f32 5 4", transpose="NT"),
    call("llm.matmul_backward", "f32 4 5", "f32 2 3 4", "f32 6 5", transpose="TN"),
    call("llm.batched_matmul", "f32 2 3 4", "f32 1 4 5", "f32 2 3 5", accumulate=True),
    call("llm.weight_grad", "f32 2 3 4", "f32 2 3 5"),
    call("llm.weight_grad", "f32 2 3 4", "f32 2 3 5", "f32 4 5", accumulate=True),
    call("llm.linear_backward", "f32 2 3 4", "f32 2 3 5", "f32 4 5"),
    call("llm.bias_add", "f32 2 3 4", "f32 4"),
    call("llm.bias_add_backward", "f32 2 3 4"),
    call("llm.bias_backward", "f32 2 3 4"),
    call("llm.embedding", "i32 2 3 0..4", "f32 5 4"),
    call("llm.embedding_backward", "f32 2 3 4", "i32 2 3 0..4", "f32 5 4"),
    call("llm.embedding_with_position", "i32 2 3 0..4", "f32 5 4", "f32 6 4", None),
    call("llm.embedding_with_position", "i32 2 3 0..4", "f32 5 4", "f32 6 4", "i32 3 0..5"),
    call("llm.embedding_with_position_backward", "f32 2 3 4", "i32 2 3 0..4", "f32 5 4", "f32 6 4", None),
    call(
        "llm.embedding_with_position_backward",
        "f32 2 3 4",
        "i32 2 3 0..4",
        "f32 5 4",
        "f32 6 4",
        "i32 3 0..5",
    ),
)
NORMS = (
    call("llm.rmsnorm", ROWS[0], "f32 4"),
    call("llm.rmsnorm_backward", *ROWS, "f32 4", STATISTICS),
    call("llm.rmsnorm_backward", *ROWS, "f32 4", None),
    call("llm.fused_residual_rmsnorm", *ROWS, "f32 4"),
    call("llm.fused_residual_rmsnorm_backward", *ROWS, ROWS[0], "f32 4", STATISTICS),
    call("llm.fused_residual_rmsnorm_backward", *ROWS, ROWS[0], "f32 4", None),
    call("llm.layernorm", ROWS[0], "f32 4", "f32 4"),
    call("llm.layernorm", ROWS[0], "f32 4", None),
    call("llm.layernorm_backward", *ROWS, "f32 4", "f32 2 3", STATISTICS),
    call("llm.layernorm_backward", *ROWS, "f32 4", None, None),
    call("llm.group_rmsnorm", ROWS[0], "f32 4", n_groups=2),
    call("llm.group_rmsnorm_backward", *ROWS, "f32 4", "f32 2 3 2 0.5..2", n_groups=2),
    call("llm.group_rmsnorm_backward", *ROWS, "f32 4", None, n_groups=2),
    call("llm.qk_norm", *TURNED, "f32 4", "f32 4"),
    call("llm.qk_norm_backward", *TURNED, *TURNED, "f32 4", "f32 4", None, None),
    call("llm.qk_norm_backward", *TURNED, *TURNED, "f32 4", "f32 4", "f32 2 4 3 0.5..2", "f32 2 2 3 0.5..2"),
)
ACTIVATIONS = (
    call("llm.swiglu", *PAIR),
    call("llm.swiglu_backward", *PAIR, PAIR[0]),
    call("llm.split_swiglu", "f32 2 6 -2..2"),
    call("llm.split_swiglu_backward", PAIR[0], "f32 2 6 -2..2"),
    call("llm.clamped_swiglu", "f32 2 6 -2..2"),
    call("llm.clamped_swiglu", "f32 2 3 4 -2..2", alpha=1.0, limit=0.75),
    *(call("llm.geglu", *PAIR, approximate=way) for way in (False, True)),
    *(call("llm.geglu_backward", *PAIR, PAIR[0], approximate=way) for way in (False, True)),
    *(call("llm.gelu", PAIR[0], approximate=way) for way in (False, True)),
    *(call("llm.gelu_backward", *PAIR, approximate=way) for way in (False, True)),
    *(call(f"llm.{name}_backward", *PAIR) for name in ("silu", "relu", "relu2", "exp_neg")),
    call("llm.relu2", PAIR[0]),
    call("llm.exp_neg", PAIR[0]),
    call("llm.sigmoid_backward", PAIR[0], "f32 2 3 0..1"),
    call("llm.tanh_backward", PAIR[0], "f32 2 3 -1..1"),
    call("llm.sqrt_backward", PAIR[0], "f32 2 3 1..2"),
    call("llm.softmax", "f32 2 3 4 -2..2"),
    call("llm.softmax", "f32 2 3 4 -2..2", dim=1),
    call("llm.softmax_backward", "f32 2 3 4 -2..2", "f32 2 3 4 0..1", dim=1),
)
ATTENTION = (
    call("llm.flash_attention", *SHARED),
    call("llm.flash_attention", *SHARED, causal=False),
    call("llm.flash_attention", *SHARED, **OPTIONS),
    call("llm.flash_attention", *SHARED, None, "i64 1..2"),
    call("llm.flash_attention", *TURNED, TURNED[1], "i32 2 0..1"),
    call("llm.attention", *SHARED, None, None, None, softcap=1.5, window_size=2),
    call(
        "llm.attention", *TURNED, TURNED[1], "f32 1 4 3 3 -1..1", "i64 2 3 1..1", "f32 4 -1..1", causal=False
    ),
    call("llm.attention", *SHARED, None, None, None, "i64 1..2"),
    call("llm.relative_position_bias", "f32 8 2", None, queries=3, keys=20, max_distance=10),
    call("llm.relative_position_bias", "f32 8 2", "i64 2..5", queries=3, keys=9, bidirectional=False),
    call("llm.disentangled_bias", "f32 1 2 5 16", "f32 1 2 5 16", max_distance=20, buckets=8),
    call("llm.disentangled_bias", "f32 1 2 5 6", None, max_distance=3, scale=0.5),
    call("llm.padded_positions", "i64 2 5 0..2", pad=1),
    call("llm.add_kind", "f32 2 3 4", "f32 2 4", "i64 2 3 0..1"),
    call("llm.add_kind", "f32 2 3 4", "f32 2 4", None),
    call("llm.masked_mean", "f32 2 3 4", "i64 2 3 1..1"),
    call("llm.masked_mean", "f32 2 3 4", None),
    *(call("llm.last_token", "f32 3 5 4", "i64 3 5 0..2", pad=pad) for pad in (-1, 1, 9)),
    *(call("llm.first_token", "f32 3 5 4", "i64 3 5 0..4", token=token) for token in (-1, 2, 9)),
    call("llm.positions", "i64 2..5", count=3),
    call("llm.advance", "i64 2..5", "i64 9", count=3),
    call("llm.remember", "f32 2 2 5 4", "f32 2 2 3 4", "i64 0..2"),
    call("llm.flash_attention_backward", SHARED[0], *SHARED, None, None),
    call("llm.flash_attention_backward", SHARED[0], *SHARED, "f32 2 4 3 4", "f32 2 4 3 3..4"),
    call("llm.flash_attention_backward", SHARED[0], *SHARED, None, None, **OPTIONS),
    call("llm.flash_attention_backward", TURNED[0], *TURNED, TURNED[1], None, None, "i32 2 0..1"),
    call("llm.flash_attention_packed", PACKED, **HEADS),
    call("llm.flash_attention_packed", PACKED, **HEADS, **OPTIONS),
    call("llm.flash_attention_packed_backward", "f32 2 3 4 4", PACKED, None, None, **HEADS),
    call(
        "llm.flash_attention_packed_backward", "f32 2 3 4 4", PACKED, "f32 2 3 4 4", "f32 2 4 3 3..4", **HEADS
    ),
    call("llm.rope", *TURNED, ANGLES, None),
    call("llm.rope", *TURNED, ANGLES, "i32 3 0..5", interleaved=True),
    call("llm.rope", *TURNED, "f32 6 1 2", "i64 2 3 0..5"),
    call("llm.rope_backward", *TURNED, ANGLES, None, interleaved=True),
    call("llm.rope_backward", *TURNED, ANGLES, "i32 3 0..5"),
    call("llm.rope_packed", PACKED, ANGLES, None, **HEADS),
    call("llm.rope_packed", PACKED, ANGLES, "i32 3 0..5", **HEADS, rotary_dim=2),
    call("llm.rope_packed_backward", PACKED, ANGLES, "i32 2 3 0..5", **HEADS, interleaved=True),
    call("llm.qkv_qk_norm_rope", PACKED, "f32 4", "f32 4", ANGLES, None, **HEADS),
    call(
        "llm.qkv_qk_norm_rope_backward", PACKED, PACKED, "f32 4", "f32 4", ANGLES, None, None, None, **HEADS
    ),
    call("llm.split_and_reshape", "f32 2 3 32", **HEADS),
    call("llm.split_and_reshape_backward", *TURNED, TURNED[1]),
)
SHAPES = (
    call("llm.split", "f32 2 6 3", sizes=(1, 2, 3), dim=1),
    call("llm.concat", ["f32 2 1", "f32 2 3"]),
    call("llm.concat_backward", "f32 2 4", ["f32 2 1", "f32 2 3"]),
    call("llm.view_backward", "f32 6", "f32 2 3"),
    call("llm.reshape", "f32 2 6", shape=(-1, 3)),
    call("llm.reshape", "f32 2 4 3 5"),
    call("llm.reshape_backward", "f32 4 3", "f32 2 6", shape=(-1, 3)),
    call("llm.reshape_backward", "f32 2 3 20", "f32 2 4 3 5"),
    call("llm.permute_backward", "f32 2 3 4", dims=(2, 0, -2)),
    call("llm.fork", "f32 2 3", n=3),
)
ELEMENTS = (
    *(call(f"llm.{name}_backward", *BROADCAST) for name in ("add", "sub", "mul", "div")),
    call("llm.add3", *BROADCAST),
    call("llm.add3_backward", *BROADCAST, "f32 3"),
    call("llm.scale", "f32 2 3", factor=2.5),
    call("llm.vector_add_sr", *PAIR, scale=0.5),
    call("llm.vector_add_sr_backward", PAIR[0], scale=0.5),
    call("llm.apply_mask", "f32 2 3 4", "bool 2 3"),
    call("llm.apply_mask", "f32 2 3 4", "f32 2"),
    *(
        call(f"llm.reduce_{name}", "f32 2 3 4 -2..2", **given)
        for name in ("sum", "mean")
        for given in ({}, {"dims": (0, -1)}, {"dim": 1, "keepdim": True})
    ),
    *(
        call(f"llm.reduce_{name}_backward", back, "f32 2 3 4", **given)
        for name in ("sum", "mean")
        for back, given in (
            ("f32", {}),
            ("f32 3", {"dims": (0, -1)}),
            ("f32 2 1 4", {"dim": 1, "keepdim": True}),
        )
    ),
    call("llm.reduce_max", "f32 2 3 4 -2..2", dim=1),
    call("llm.reduce_max", "f32 2 3 4 -2..2", keepdim=True),
    call("llm.reduce_max_backward", "f32 2 4", "f32 2 3 4", "i64 2 4 0..2", dim=1),
)
OTHERS = (
    call("llm.zeros<i32>", shape=(2, 3)),
    call("llm.ones<f32>", shape=(2, 3)),
    call("llm.fill<f32>", shape=(2, 3), value=2.5),
    call("llm.fill_normal<f32>", shape=(2, 3), std=0.5),
    *(
        call("llm.cross_entropy", "f32 2 3 4 -2..2", "i64 2 3 0..3", reduction=way)
        for way in ("mean", "sum", "none")
    ),
    call("llm.cross_entropy", "f32 2 3 4 -2..2", "i64 2 3 0..3", ignore_index=1),
    call("llm.cross_entropy_backward", "f32", "f32 2 3 4 -2..2", "i64 2 3 0..3"),
    call(
        "llm.cross_entropy_backward",
        "f32 2 3",
        "f32 2 3 4 -2..2",
        "i64 2 3 0..3",
        reduction="none",
        ignore_index=1,
    ),
    *(
        call(
            f"llm.linear_cross_entropy{name}",
            *first,
            "f32 2 3 4 -2..2",
            "f32 5 4 -2..2",
            "i64 2 3 0..4",
            chunk=chunk,
        )
        for name, first in (("", ()), ("_gradients", ("f32",)), ("_backward", ("f32",)))
        for chunk in (0, 4)
    ),
    *(
        call(f"llm.{name}", "f32 2 4 2 8 -2..2", *["f32 6 2 2 8 -2..2"] * 2, "i64 2 3 0..5", "i64 2 2..6")
        for name in ("paged_attention", "paged_decode")
    ),
    call("llm.store_pages", "f32 6 2 2 8", "f32 2 2 1 8", "i64 2 3 0..5", "i64 2 1..6"),
    call("llm.quantize<i8>", "f32 2 3 -9..9", scale=0.25),
    call("llm.dequantize<f32>", "i8 2 3 -9..9", scale=0.25),
    call("llm.convert_dtype<i32>", "f32 2 3 -9..9"),
    call("llm.convert_dtype_backward", "f32 2 3 -9..9", "f16 2 3"),
    call("llm.all_gather", "f32 2 3", dim=1),
    call("llm.reduce_scatter", "f32 2 3", dim=1),
)
CALLS = (*LINEAR, *NORMS, *ACTIVATIONS, *ATTENTION, *SHAPES, *ELEMENTS, *OTHERS)
