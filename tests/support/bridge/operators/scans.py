"""Calls of the operators of `mamba` and of `recurrent`."""

from __future__ import annotations

from tests.support.bridge.operators.calls import call

STEPS = "f32 2 4 5 -2..2"
GROUPS = ("f32 2 2 3 5 -2..2", "f32 2 2 3 5 -2..2")
ONE = ("f32 2 1 3 5 -2..2", "f32 2 1 3 5 -2..2")
SCAN = (STEPS, STEPS, "f32 4 3 -2..-0.5")
NUMBERS = ("f32 4 -2..2", "f32 4 -2..2")
STATE = "f32 2 4 3 -2..2"
PARTS = {"d_inner": 4, "conv_dim": 3}
ROWS = "f32 2 4 3 -2..2"
KEYS, VALUES, MATRIX = "f32 2 2 4 3 -1..1", "f32 2 4 4 2 -1..1", "f32 2 4 3 2 -1..1"
DECAY, STRENGTH = "f32 2 4 4 -3..-0.1", "f32 2 4 4 0.1..0.9"
GROUPED = {"d_inner": 4, "n_groups": 2, "d_state": 3}
MAMBA = (
    call("mamba.split_proj", "f32 2 5 9", **PARTS),
    call("mamba.split_proj_backward", "f32 2 5 4", "f32 2 3 5", "f32 2 4 5", "f32 2 5 9", **PARTS),
    call("mamba.transpose", "f32 2 3 4"),
    call("mamba.conv1d", STEPS, "f32 4 1 4 -2..2"),
    call("mamba.conv1d", STEPS, "f32 4 3 -2..2", "f32 4", "f32 2 4 3 -2..2", kernel_size=3, silu=False),
    call("mamba.conv1d_backward", STEPS, STEPS, "f32 4 1 4 -2..2"),
    call(
        "mamba.conv1d_backward",
        *(STEPS, STEPS, "f32 4 3 -2..2", "f32 4", "f32 2 4 3 -2..2", "f32 2 4 3 -2..2"),
        activation="none",
    ),
    call("mamba.split_conv", "f32 2 16 5", **GROUPED),
    call("mamba.split_conv_backward", "f32 2 4 5", *GROUPS),
    call("mamba.split_x_proj", "f32 2 5 8", dt_rank=2, d_state=3),
    call("mamba.split_x_proj_backward", "f32 2 5 2", *ONE),
    call("mamba.expand_A", "f32 3 -1..1", head_dim=2, d_state=4),
    call("mamba.expand_A_backward", "f32 6 4", "f32 6 4", head_dim=2),
    call("mamba.expand_head_param", "f32 3", head_dim=2),
    call("mamba.expand_head_param_backward", "f32 6", head_dim=2),
    call("mamba.selective_scan", *SCAN, *GROUPS, *NUMBERS),
    call("mamba.selective_scan", *SCAN, *ONE, *NUMBERS, STATE, chunk_size=2),
    call("mamba.selective_scan_backward", STEPS, *SCAN, *GROUPS, *NUMBERS),
    call("mamba.selective_scan_backward", STEPS, *SCAN, *ONE, *NUMBERS, STATE, STATE),
)
RECURRENT = (
    call("recurrent.token_shift", ROWS),
    call("recurrent.token_shift", "f32 2 1 3 -2..2", "f32 2 3 -2..2"),
    call("recurrent.wkv", ROWS, ROWS, "f32 3 -1..1", "f32 3 -1..1"),
    call("recurrent.wkv", ROWS, ROWS, "f32 3 -1..1", "f32 3 -1..1", "f32 2 3 3 0.5..2"),
    call("recurrent.delta_decay", "f32 2 4 3 -2..2", "f32 3 -1..1", "f32 3 -1..1"),
    call("recurrent.delta_overlap", KEYS, DECAY, STRENGTH),
    call("recurrent.delta_write", VALUES, KEYS, DECAY, STRENGTH),
    call("recurrent.delta_write", VALUES, KEYS, DECAY, STRENGTH, MATRIX),
    call("recurrent.solve_lower", "f32 2 2 4 4 -1..1", "f32 2 2 4 3 -1..1"),
    call("recurrent.solve_lower_backward", "f32 2 2 4 3 -1..1", "f32 2 2 4 4 -1..1", "f32 2 2 4 3 -1..1"),
    call("recurrent.delta_read", KEYS, KEYS, VALUES, DECAY),
    call("recurrent.delta_read", KEYS, KEYS, VALUES, DECAY, MATRIX),
    call("recurrent.l2_norm", "f32 2 3 4 -2..2"),
    call("recurrent.l2_norm", "f32 5 -2..2", eps=0.5),
)
CALLS = (*MAMBA, *RECURRENT)
