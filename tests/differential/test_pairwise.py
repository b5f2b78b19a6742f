"""All pairs are covered: brute force over all rows is the judge."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.support.differential.pairwise import Row, cover_pairs, pairs_of

COUNTS = st.lists(st.integers(1, 4), min_size=2, max_size=4)
FORBIDDEN = st.sets(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=12
)


@given(COUNTS, FORBIDDEN, st.booleans())
def test_every_pair_of_a_legal_row_is_covered(
    counts: list[int], forbidden: set[tuple[int, int, int, int]], seeded: bool
) -> None:
    factors = {f"f{n}": tuple(range(count)) for n, count in enumerate(counts)}

    def legal(row: Row) -> bool:
        return not any(
            row.get(f"f{one}") == first and row.get(f"f{other}") == second
            for one, first, other, second in forbidden
        )

    every: list[Row] = [dict(zip(factors, levels, strict=True)) for levels in product(*factors.values())]
    possible = {pair for row in every if legal(row) for pair in pairs_of(row)}
    rows = cover_pairs(factors, legal, [{"f0": level} for level in factors["f0"]] if seeded else ())
    assert all(legal(row) and list(row) == list(factors) for row in rows)
    assert {pair for row in rows for pair in pairs_of(row)} == possible
    assert rows == cover_pairs(factors, legal, [{"f0": level} for level in factors["f0"]] if seeded else ())


def test_few_rows_are_enough() -> None:
    factors = {f"f{n}": tuple(range(4)) for n in range(8)}
    assert len(cover_pairs(factors, lambda _: True)) <= 40
