"""Learning-rate schedules, judged by those of the package transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import optimization as judges

from lamella.base.errors import InputError
from lamella.train.schedules import Schedule, require_schedule

STEPS = 40
JUDGES: dict[str, Any] = {
    "constant": lambda optimizer, warmup: judges.get_constant_schedule_with_warmup(optimizer, warmup),
    "linear": lambda optimizer, warmup: judges.get_linear_schedule_with_warmup(optimizer, warmup, STEPS),
    "cosine": lambda optimizer, warmup: judges.get_cosine_schedule_with_warmup(optimizer, warmup, STEPS),
    "wsd": lambda optimizer, warmup: judges.get_wsd_schedule(
        optimizer, warmup, 10, num_training_steps=STEPS, decay_type="linear"
    ),
}


@pytest.mark.parametrize("warmup", [0, 7])
@pytest.mark.parametrize("name", JUDGES)
def test_rates_are_those_of_transformers(name: str, warmup: int) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    judge = JUDGES[name](optimizer, warmup)
    schedule = Schedule(name, 0.3, STEPS, warmup, 10 if name == "wsd" else None)
    for step in range(STEPS):
        assert schedule.rate(step) == pytest.approx(judge.get_last_lr()[0], rel=1e-12, abs=1e-15)
        optimizer.step()
        judge.step()


def test_the_lowest_rate_is_where_a_schedule_ends() -> None:
    for name in ("linear", "cosine", "wsd"):
        assert Schedule(name, 1.0, 10, lowest=0.25).rate(10) == pytest.approx(0.25)


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="12 steps"):
        require_schedule(Schedule("wsd", 1.0, 10, warmup=6, decay=6))
    with pytest.raises(InputError, match="above the peak"):
        require_schedule(Schedule("cosine", 1.0, 10, lowest=2.0))
    with pytest.raises(InputError, match="no finite numbers"):
        require_schedule(Schedule("constant", float("nan"), 10))
    with pytest.raises(InputError, match="-1 steps are none"):
        require_schedule(Schedule("constant", 1.0, -1))
