"""The declarations of the specification that are complete: how each is called, and what it computes by NumPy.

A case tells the place of the original among the whole declarations of the specification, in the order of the text,
and the declaration of ours that has its structure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.support.lang.module import complete_formulas as f

Array = npt.NDArray[np.float64]
Formula = Callable[[Sequence[Array], Sequence[Array]], Sequence[Array]]
"""From the operands of the call and the parameters of its own, in the order of their first use, to the results."""


@dataclass(frozen=True, slots=True)
class Case:
    """One declaration: its place, its file and name here, its arguments, what flows in, what comes out.

    Operands are types; one with a leading `w` is a parameter of the caller, which matters to projections.
    """

    place: int
    file: str
    name: str
    arguments: str
    operands: tuple[str, ...]
    formula: Formula
    outputs: int = 1
    tolerance: float = 1e-9


B, T = 2, 5
"""The open extents of all calls."""
ROWS = "[B, T, 6]"
HEADS = "[B, 2, T, 3]"

CASES = (
    Case(1, "projections", "ShiftedMap", "6, 4, false", (ROWS,), lambda x, w: [x[0] @ w[0].T]),
    Case(7, "projections", "TwoMaps", "6, 8", (ROWS,), lambda x, w: [f.relu(x[0] @ w[0].T) @ w[1].T]),
    Case(9, "projections", "Map", "6, 4", (ROWS,), lambda x, w: [x[0] @ w[0].T]),
    Case(10, "projections", "ThreeInOne", "6, 12", (ROWS,), lambda x, w: [x[0] @ w[0].T]),
    Case(
        12,
        "heads",
        "Likeness",
        "2, 3",
        (HEADS, HEADS),
        lambda x, w: [x[0] @ f.flip(x[1]) / np.sqrt(3)],
    ),
    Case(13, "heads", "Blend", "", ("[B, 2, T, T]", HEADS), lambda x, w: [x[0] @ x[1]]),
    Case(
        15,
        "experts",
        "Workers",
        "2, 6, 4",
        ("[N, 6]", "[3, int32]"),
        lambda x, w: [f.experts(x[0], x[1], w[0], w[1])],
    ),
    Case(17, "norms", "Before", "6", (ROWS,), lambda x, w: [f.rms(x[0], w[0], 1e-6)]),
    Case(20, "norms", "Centred", "6", (ROWS,), lambda x, w: [f.layer(x[0], w[0], w[1], 1e-5)]),
    Case(22, "projections", "Gated", "6, 8", (ROWS,), lambda x, w: [f.gated(x[0], w[0], w[1], f.silu)]),
    Case(24, "projections", "SoftGated", "6, 8", (ROWS,), lambda x, w: [f.gated(x[0], w[0], w[1], f.gelu)]),
    Case(26, "projections", "Smooth", "6, 8", (ROWS,), lambda x, w: [f.silu(x[0] @ w[0].T) @ w[1].T]),
    Case(27, "pairs", "Opened", "", (ROWS, ROWS), lambda x, w: [f.silu(x[0]) * x[1]]),
    Case(
        29,
        "projections",
        "BareRelu",
        "6, 8",
        (ROWS, "w[8, 6]", "w[6, 8]"),
        lambda x, w: [f.relu(x[0] @ x[1].T) @ x[2].T],
    ),
    Case(31, "projections", "Squared", "6, 8", (ROWS,), lambda x, w: [f.relu(x[0] @ w[0].T) ** 2 @ w[1].T]),
    Case(
        33,
        "projections",
        "BareGelu",
        "6, 8",
        (ROWS, "w[8, 6]", "w[6, 8]"),
        lambda x, w: [f.gelu_tanh(x[0] @ x[1].T) @ x[2].T],
    ),
    Case(35, "projections", "Chooser", "6, 3", ("[B, 6]",), lambda x, w: [f.softmax(x[0] @ w[0].T)]),
    Case(38, "heads", "Attending", "8, 4, 2, 7", ("[B, T, 8]",), lambda x, w: [f.attend(x[0], w[0], w[1])]),
    Case(43, "heads", "Parted", "8, 4, 2", ("[B, T, 16]",), lambda x, w: np.split(x[0], [8, 12], -1), 3),
    Case(
        44, "projections", "HalvesGated", "3", (ROWS,), lambda x, w: [f.silu(x[0][..., :3]) * x[0][..., 3:]]
    ),
    Case(46, "heads", "Joined", "2, 3", (HEADS,), lambda x, w: [f.join(x[0])]),
    Case(48, "heads", "Cut", "2, 3", (ROWS,), lambda x, w: [f.cut(x[0], 2)]),
    Case(49, "heads", "Flat", "", (ROWS,), lambda x, w: [x[0].reshape(-1, 6)]),
    Case(52, "heads", "Swapped", "", ("[B, T, 2, 3]",), lambda x, w: [x[0].swapaxes(1, 2)]),
    Case(53, "heads", "SwappedTyped", "", ("[B, T, 2, 3]",), lambda x, w: [x[0].swapaxes(1, 2)]),
    Case(55, "heads", "Ordered", "", ("[B, T, 2, 3]",), lambda x, w: [x[0].transpose(0, 2, 1, 3)]),
    Case(56, "heads", "OrderedThree", "", (ROWS,), lambda x, w: [x[0].transpose(0, 2, 1)]),
    Case(60, "pairs", "Sum", "", (ROWS, ROWS), lambda x, w: [x[0] + x[1]]),
    Case(61, "pairs", "Shifted", "", (ROWS, "[6]"), lambda x, w: [x[0] + x[1]]),
    Case(63, "pairs", "Product", "", (ROWS, ROWS), lambda x, w: [x[0] * x[1]]),
    Case(
        64,
        "pairs",
        "Weighed",
        "",
        ("[B, T, 3]", "[B, T, 3, 4]"),
        lambda x, w: [np.einsum("btk,btkd->btd", x[0], x[1])],
    ),
    Case(66, "heads", "Tempered", "4", ("[B, 2, T, T]",), lambda x, w: [x[0] / 2]),
    Case(72, "pairs", "Average", "", ("[B, T]",), lambda x, w: [x[0].mean()]),
    Case(77, "pairs", "Lookup", "9, 6", ("[B, T, int32]",), lambda x, w: [w[0][x[0].astype(int)]]),
    Case(
        79, "experts", "Chosen", "6, 4", (ROWS,), lambda x, w: f.route(x[0].reshape(-1, 6), w[0], 2, 0.01), 3
    ),
    Case(80, "experts", "ChosenFlat", "6, 8", ("[N, 6]",), lambda x, w: f.route(x[0], w[0], 4, 0.001), 3),
    Case(81, "experts", "Sorted", "4", ("[N, 6]", "[N, 2, int32]"), lambda x, w: f.sort_rows(x[0], x[1]), 2),
    Case(83, "experts", "Mixture", "6, 3, 4", (ROWS,), lambda x, w: [f.mixture(x[0], *w)]),
    Case(
        85,
        "experts",
        "Sliding",
        "6",
        ("[B, 6, T]",),
        lambda x, w: [f.silu(f.convolve(x[0], w[0]) + w[1][:, None])],
    ),
    Case(92, "marked", "Placed", "", ("[B, 4096]",), lambda x, w: [x[0] @ w[0].T], 1, 5e-3),
    Case(
        96,
        "marked",
        "GatedShort",
        "6, 8",
        (ROWS, "w[16, 6]", "w[6, 8]"),
        lambda x, w: [f.gated(x[0], x[1], x[2], f.silu)],
    ),
    Case(108, "marked", "Tuned", "", (ROWS, "w[9, 6]"), lambda x, w: [x[0] @ x[1].T]),
    Case(
        109,
        "marked",
        "TunedGated",
        "6, 8",
        (ROWS, "w[16, 6]", "w[6, 8]"),
        lambda x, w: [f.gated(x[0], x[1], x[2], f.silu)],
    ),
    Case(113, "marked", "Narrowed", "", (ROWS, "w[4, 6]"), lambda x, w: [x[0] @ x[1].T], 1, 5e-3),
    Case(115, "pairs", "Total", "", (ROWS,), lambda x, w: [x[0].sum()], 1, 1e-4),
    Case(117, "marked", "TwoPrecisions", "", (ROWS, "w[4, 6]"), lambda x, w: [x[0] @ x[1].T], 1, 5e-3),
    Case(
        118,
        "pairs",
        "Surprise",
        "",
        (ROWS, "[B, T, int32]"),
        lambda x, w: [f.cross_entropy(x[0], x[1].astype(int))],
        1,
        1e-4,
    ),
    Case(120, "marked", "Remembered", "", (ROWS, "w[4, 6]"), lambda x, w: [x[0] @ x[1].T]),
    Case(121, "marked", "ByChannel", "", (ROWS, "w[4, 6]"), lambda x, w: [x[0] @ x[1].T]),
    Case(123, "marked", "ByRange", "", (ROWS, "w[4, 6]"), lambda x, w: [x[0] @ x[1].T]),
    Case(
        125,
        "norms",
        "SumNormed",
        "",
        (ROWS, ROWS, "w[6]"),
        lambda x, w: [f.rms(x[0] + x[1], x[2], 1e-6)],
    ),
    Case(
        126,
        "marked",
        "Merged",
        "",
        (ROWS, "w[4, 6]", "w[4]"),
        lambda x, w: [f.silu(x[0] @ x[1].T + x[2])],
    ),
    Case(
        129,
        "marked",
        "Apart",
        "",
        (ROWS, "w[6]", "w[4, 6]"),
        lambda x, w: [f.rms(x[0], x[1], 1e-6) @ x[2].T],
    ),
    Case(131, "heads", "AskedKernel", "", (HEADS, HEADS, HEADS), lambda x, w: [f.attention(*x)]),
    Case(132, "marked", "WithKernel", "", (ROWS, "w[4, 6]"), lambda x, w: [x[0] @ x[1].T]),
    Case(138, "marked", "Shared", "", (ROWS, "w[4, 6]"), lambda x, w: [x[0] @ x[1].T]),
    Case(139, "marked", "SharedLater", "", (ROWS, "w[4, 6]"), lambda x, w: [x[0] @ x[1].T]),
    Case(142, "pairs", "Bounded", "", (ROWS,), lambda x, w: [1 / (1 + np.exp(-x[0]))]),
    Case(148, "projections", "MapWithBias", "6, 4, true", (ROWS,), lambda x, w: [x[0] @ w[0].T + w[1]]),
    Case(
        149, "projections", "GatedByMaps", "6, 8", (ROWS,), lambda x, w: [f.gated(x[0], w[0], w[1], f.silu)]
    ),
    Case(151, "marked", "Checked", "6, 8", ("[B, 6]",), lambda x, w: [x[0] @ w[0].T], 1, 5e-3),
)
