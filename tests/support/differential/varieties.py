"""All pairs of what can vary in the collective instructions."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from itertools import product
from types import MappingProxyType

from tests.support.backend.interpreter.kernels import DTYPES
from tests.support.differential.collective import Case
from tests.support.differential.layouts import LAYOUTS
from tests.support.differential.pairwise import Factors, Row, cover_pairs

PROMOTION = MappingProxyType(
    {
        "i8": tuple(DTYPES),
        "i16": ("i16", "i32", "i64", "index", "f32", "f64", "c32", "c64"),
        "i32": ("i32", "i64", "index", "f64", "c64"),
        "i64": ("i64",),
        "index": ("index",),
        "bf16": ("bf16", "f32", "f64", "c32", "c64"),
        "f16": ("f16", "f32", "f64", "c32", "c64"),
        "f32": ("f32", "f64", "c32", "c64"),
        "f64": ("f64", "c64"),
        "c32": ("c32", "c64"),
        "c64": ("c64",),
    }
)
"""Each type with those that hold all its values."""
ATOMIC = ("i32", "i64", "index", "f16", "f32", "f64", "c32", "c64")
BINARY = ("gemm", "gemv", "ger", "hadamard")
GROUPS = ((0, 0, 0), (1, 1, 1), (4, 8, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (64, 64, 1))
ORDERS = MappingProxyType({"axpby": (0, 1, 2), "hadamard": (1, 2), "sum": (0, 1), "cumsum": (1, 2, 3)})
TURNS = MappingProxyType({"gemm": 2, "gemv": 1, "axpby": 1, "sum": 1})
ROWS = (1, 5, 16, 37, 70)
COLUMNS = (1, 3, 8, 19)
DEPTHS = (1, 7, 32, 67)


def factors_of(function: str) -> Factors:
    """The factors of an instruction with their levels; those that restrict others come first."""
    found: dict[str, tuple[Hashable, ...]] = {"A": tuple(DTYPES)}
    if function in BINARY:
        found["B"] = tuple(DTYPES)
    found |= {"C": tuple(DTYPES), "atomic": (False, True)}
    found |= {"beta": ("0", "1", "other", "run", "run 0"), "alpha": ("0", "1", "other", "run")}
    found |= {f"turn {n}": (False, True) for n in range(TURNS.get(function, 0))}
    if function in ORDERS:
        found["order"] = ORDERS[function]
    if function == "cumsum":
        found["mode"] = (0, 1, 2)
    found |= {"factors": ("same", "smaller", "smallest"), "dynamic": (False, True)}
    found |= {"inputs": LAYOUTS, "result": LAYOUTS, "group": GROUPS, "m": ROWS, "n": COLUMNS, "k": DEPTHS}
    return found


def promote(left: str, right: str) -> str | None:
    """The one of two types that holds the values of both."""
    if right in PROMOTION[left]:
        return right
    return left if left in PROMOTION[right] else None


def is_legal(row: Row) -> bool:
    """Whether the language has such a case, as far as it is chosen."""
    left, right, result = (row.get(name) for name in "ABC")
    inputs: list[str | None] = [str(item) for item in (left, right) if item is not None]
    if left is not None and right is not None:
        inputs = [promote(str(left), str(right))]
    if None in inputs:
        return False
    if result is not None and any(result not in PROMOTION[str(item)] for item in inputs):
        return False
    if row.get("atomic") is True and (
        row.get("beta", "0") not in ("0", "1") or row.get("C", "f32") not in ATOMIC
    ):
        return False
    mode, order = row.get("mode"), row.get("order")
    return not (isinstance(mode, int) and isinstance(order, int) and mode >= order)


@cache
def make_cases(function: str) -> tuple[Case, ...]:
    """Cases of an instruction in which all pairs of levels occur, and all types that it can have together."""
    factors = factors_of(function)
    names = [name for name in "ABC" if name in factors]
    seeds: list[Row] = [dict(zip(names, types, strict=True)) for types in product(DTYPES, repeat=len(names))]
    return tuple(_case(function, row) for row in cover_pairs(factors, is_legal, seeds))


def _case(function: str, row: Row) -> Case:
    names = "ABC" if function in BINARY else "AC"
    order, mode = row.get("order", 0), row.get("mode", 0)
    group = row["group"]
    if not (isinstance(group, tuple) and isinstance(order, int) and isinstance(mode, int)):
        raise TypeError("levels of factors are mixed up")
    return Case(
        function,
        elements=tuple(str(row[name]) for name in names),
        order=order,
        transposes=tuple(bool(row[f"turn {n}"]) for n in range(TURNS.get(function, 0))),
        alpha=str(row["alpha"]),
        beta=str(row["beta"]),
        factors=str(row["factors"]),
        atomic=bool(row["atomic"]),
        dynamic=bool(row["dynamic"]),
        layouts=(str(row["inputs"]), str(row["result"])),
        sizes=(int(str(row["m"])), int(str(row["n"])), int(str(row["k"]))),
        group=(group[0], group[1], group[2]),
        mode=mode,
    )
