"""What is settled for a whole training, before its first step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepSettings:
    """The optimiser of a training, the numbers of its rule, and what is done to gradients."""

    optimizer: str = "adamw"
    loss: str = "cross_entropy"
    """What compares outputs with targets: cross_entropy of classes, or squared_error of reals."""
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.0
    nesterov: bool = False
    clip: float | None = None
    """The largest norm of all gradients together."""
    accumulation: int = 1
    """How many parts of a batch give their gradients before parameters change."""
    is_split: bool = False
    """Whether gradients are collected and applied apart, which a step of several parts does anyway: between the two
    others may add theirs."""
    dtype: str = "f32"
    """The precision of all numbers: f32 or f64."""
