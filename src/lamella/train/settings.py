"""What is settled for a whole training, before its first step."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.base.errors import InputError


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


def require_settings(settings: StepSettings) -> None:
    """InputError for settings with which a step changes nothing, or makes no numbers of parameters."""
    if settings.accumulation < 1:
        raise InputError(f"a step of {settings.accumulation} parts is none", hint="parts start at 1")
    for number, share in enumerate(settings.betas, 1):
        if not 0 <= share < 1:
            raise InputError(
                f"beta{number} is {share:g}: a mean that takes nothing in is none",
                hint="shares lie in 0 <= x < 1",
            )
    if settings.clip is not None and not settings.clip > 0:
        raise InputError(
            f"gradients of norm {settings.clip:g} change nothing",
            hint="leave the clipping out to take any norm",
        )
