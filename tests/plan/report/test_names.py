"""Numbers and names as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.plan.report.build import count, in_bytes, in_thousands, iteration_name, name, percent


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1, "1 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1 << 20, "1 MiB")],
)
def test_bytes(number: int, text: str) -> None:
    assert in_bytes(number) == text


@given(st.integers(0, 1 << 80))
def test_numbers_of_any_size_are_told(number: int) -> None:
    assert int(count(number).replace(" ", "")) == number
    assert in_bytes(number).split()[1] in ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    assert in_thousands(number, "MAC").endswith("MAC")


def test_shares() -> None:
    assert [percent(part) for part in (0, 0.0012, 0.5, 1)] == ["0 %", "0.12 %", "50.0 %", "100.0 %"]


@given(st.text())
def test_names_cannot_steer_a_terminal(text: str) -> None:
    assert name(text).isprintable()
    assert len(name(text)) <= 12 * 200


def test_iterations_outside_loops_are_silent() -> None:
    assert iteration_name((), ()) == ""
