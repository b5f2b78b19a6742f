"""Who looks on while something long is done that no caller sees the steps of: compiling kernels."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeAlias

Look: TypeAlias = Callable[[int, int], None]
"""Is told how many of how many are done."""


def _nobody(done: int, total: int) -> None:
    """Look away."""


COMPILING: ContextVar[Look] = ContextVar("compiling", default=_nobody)
"""Who looks on while kernels are compiled; a command that shows a bar sets it."""
