"""The table of gradients has every operator of the library, with a reason where its gradient is not derived."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

from docs.generate_gradients import BY_HAND, DERIVED, FLAT, NONE
from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.skriptnd import check, parse
from lamella.ops.library import NEWER, SPECIFICATION
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.describe import describe_library
from tests.graph.test_gradient import CALLS, WITHOUT
from tests.graph.test_gradient_kept import MOST_KEPT
from tests.support.judges.registry import operators
from tests.support.lang.skriptnd.library import find

TABLE = Path(__file__).parents[2] / "docs" / "gradients.csv"
"""Written by `make docs`; another test sees that it is what the library says."""
OTHERS = ("layer.", "optim.", "quant.", "misc.")
"""Operators with variables, which networks have, and what moves tensors or runs behind gradients."""
INTEGERS = frozenset(
    f"onnx.{name}" for name in ("divide_integers", "matmul_integers", "conv_integers", "nibbles")
)
CODES = frozenset(f"onnx.{name}" for name in ("shift_left", "shift_right", "to_codes", "range_of_codes"))
RARE = frozenset({"onnx.reshape_empty", "onnx.hardmax", "onnx.max_unpool"})
"""Of nothing, flat but for its type, and one whose places cannot be drawn."""


def rows() -> list[dict[str, str]]:
    """The rows of the table."""
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_operator_is_in_the_table_once() -> None:
    assert Counter(row["operator"] for row in rows()) == Counter(operators())


def test_what_is_not_derived_says_why() -> None:
    found = rows()
    assert {row["gradient"] for row in found} == {DERIVED, FLAT, BY_HAND, NONE}
    assert not [row for row in found if row["gradient"] in (BY_HAND, NONE) and not row["why"]]
    assert sum(row["gradient"] == BY_HAND for row in found) <= MOST_KEPT


def test_every_gradient_that_is_shown_reads_back() -> None:
    """`lamella show OP --gradient` prints operators that are read, and in which nothing is wrong."""
    seen: set[str] = set()
    for name in operators():
        dialect = NEWER if name.startswith("newer/") else SPECIFICATION
        text = describe_library(name.removeprefix("newer/"), Options(gradient=True, dialect=dialect)).text
        for part in text.split("\n\n# "):
            if part in seen:
                continue
            seen.add(part)
            document, found = parse(Source("gradient.sknd", f"# {part}\n"))
            assert not found, (name, part)
            wrong = errors(check(document, "gradient", find))
            assert not wrong, (name, part, wrong)
    assert sum("operator " in part for part in seen) > 400


def test_what_cannot_be_derived_is_what_tests_list() -> None:
    """Nothing else has reals on both sides and no gradient."""
    reasons = ("it gives no reals", "it takes no reals")
    found = [row for row in rows() if row["gradient"] == NONE and row["why"] not in reasons]
    # Places are no reals: what picks by them has a gradient as far as elements go.
    without = {row["operator"] for row in found if not row["why"].startswith("in part: layout.nonzero")}
    assert without <= set(WITHOUT)


def test_every_derived_gradient_is_judged() -> None:
    """By calls with drawn shapes, but for backward operators, which are gradients themselves."""
    called = {item.operator for item in CALLS}
    derived = {
        row["operator"] for row in rows() if row["gradient"] == DERIVED and "backward" not in row["operator"]
    }
    left = derived - called - INTEGERS - CODES - RARE
    assert not sorted(name for name in left if not name.startswith(OTHERS) and "amax" not in name)
