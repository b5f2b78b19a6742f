"""The whole declarations of the specification that cannot run as they are printed: what each of them lacks."""

from __future__ import annotations

from dataclasses import dataclass

ROWS = "[B, T, 8]"


@dataclass(frozen=True, slots=True)
class Rest:
    """Declarations by their places, with the code that compiling them gives, and why.

    `operands` are what a caller gives, as in the complete cases; without them each is checked alone.
    """

    places: tuple[int, ...]
    code: str
    why: str
    operands: tuple[str, ...] = ()


REST = (
    Rest((0,), "E016", "an example of a wrong guard"),
    Rest((2,), "E011", "abstract"),
    Rest((3,), "E002", "its graph is empty, and its parent is elsewhere"),
    Rest((5, 6, 97, 98, 114, 119, 122), "E002", "a parameter has a dimension that nothing defines"),
    Rest((40, 42), "E002", "a constant or a parameter has a dimension that nothing defines"),
    Rest((36,), "E002", "a factor uses a name that nothing defines", (ROWS, ROWS, ROWS)),
    Rest((127,), "E002", "a factor uses a name that nothing defines", (ROWS, ROWS)),
    Rest((39,), "E002", "a view uses dimensions that nothing binds", (ROWS, ROWS)),
    Rest((58,), "E002", "a view uses a dimension that nothing binds", (ROWS,)),
    Rest((45, 54, 67, 71, 147), "E011", "a backward graph alone"),
    Rest(
        (69, 93, 94, 99, 101, 102, 104, 107, 110, 128, 133, 143, 144, 145, 146),
        "E014",
        "calls operations that are only names",
        (ROWS,),
    ),
    Rest((100, 137), "E014", "calls operations that are only names", (ROWS,)),
    Rest((135,), "E014", "calls operations that are only names", (ROWS,)),
    Rest((111, 112, 116), "E003", "calls attention without keys, or a product without its weight", (ROWS,)),
    Rest((136,), "E002", "a parameter has a width that nothing defines", (ROWS,)),
    Rest((140,), "E004", "attends without heads", (ROWS, ROWS, ROWS)),
    Rest((134,), "E002", "folds over blocks that nothing declares", (ROWS,)),
    Rest((74,), "E004", "its output is declared without the dimension that it keeps"),
    Rest((87,), "E012", "splits a projection without its widths", (ROWS,)),
    Rest((95,), "E012", "turns heads without a table, and no length is known", (ROWS, "w[24, 8]", "w[8, 8]")),
    Rest((103,), "E012", "splits without sizes", (ROWS, "w[24, 8]")),
    Rest((105,), "E003", "norms of queries and keys without their weights", (ROWS, "w[24, 8]", "w[8, 8]")),
    Rest((106,), "E012", "a router without the number of its picks", (ROWS, "w[4, 8]")),
    Rest((130,), "E012", "turns one tensor into two, and no heads are known", (ROWS, "w[24, 8]", ROWS)),
    Rest((150,), "E002", "holds attention that is printed with other parameters"),
)
UNDEFINED_CONDITION = 141
"""Runs, but its condition compares with a name that nothing defines."""
