"""Names that are nearly right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.suggest import LONGEST, did_you_mean, distance, nearest

KNOWN = ("stride", "padding", "padding_align", "relu", "softmax", "batch_norm", "x", "xs", "add", "Linear")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("strides", "stride"),
        ("strdie", "stride"),
        ("paddin", "padding"),
        ("Stride", "stride"),
        ("linear", "Linear"),
        ("relux", "relu"),
        ("batchnorm", "batch_norm"),
        ("sofmtax", "softmax"),
        ("ad", None),
        ("y", None),
        ("xx", None),
        ("sub", None),
        ("dense", None),
        ("conv", None),
        ("", None),
        ("s" * (LONGEST + 1), None),
    ],
)
def test_the_name_that_was_meant(name: str, meant: str | None) -> None:
    assert nearest(name, KNOWN) == ([] if meant is None else [meant])
    assert did_you_mean(name, KNOWN, "nn.") == ("" if meant is None else f"did you mean 'nn.{meant}'?")


def slow(left: str, right: str) -> int:
    """The distance by its definition."""
    if not left or not right:
        return len(left) + len(right)
    found = min(
        slow(left[1:], right) + 1,
        slow(left, right[1:]) + 1,
        slow(left[1:], right[1:]) + (left[0] != right[0]),
    )
    if left[:2] == right[1::-1] and len(left) > 1 and len(right) > 1:
        found = min(found, slow(left[2:], right[2:]) + 1)
    return found


WORDS = st.text("abc", max_size=5)


@given(WORDS, WORDS, st.integers(0, 4))
def test_the_distance_is_the_one_of_the_definition(left: str, right: str, most: int) -> None:
    assert distance(left, right, most) == min(slow(left, right), most + 1)
