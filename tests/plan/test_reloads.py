"""Reloads in nests of loops: harmless ones are a warning, and only those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lamella

BUFFERS = """
buffer X : L2 (size=4096)
buffer Y : L2 (size=65536)
buffer P : L1 (size=4096)
buffer Q : L1 (size=4096)
"""

NEST = """
loop i in [0..3] @max_in_flight({outer}):
    let S = region(P, {slot}, 64) elem=i8, shape=[64], layout=C
    loop j in [0..3] @max_in_flight(2):
        let O = region(Q, ((i mod 2) * 2 + j mod 2) * 64, 64) elem=i8, shape=[64], layout=C
        a = transfer.async(dst=S, src=region(X, {source}, 64))
        b = neg.async in S out O deps=[a]
        store.async(dst=region(Y, (i * 4 + j) * 64, 64), src=O, deps=[b])
    endloop
endloop
"""

TWICE = """
loop j in [0..{last}]:
    transfer.async(dst=region(P, {slot}, 64), src=region(X, {source}, 64))
endloop
loop k in [0..3]:
    let O = region(Q, k * 64, 64) elem=i8, shape=[64], layout=C
    transfer.async(dst=region(P, k * 64, 64), src=region(X, k * 64, 64))
    b = neg.async in region(P, k * 64, 64) elem=i8, shape=[64], layout=C out O
    store.async(dst=region(Y, k * 64, 64), src=O, deps=[b])
endloop
"""


def nest(outer: int, slot: str, source: str) -> str:
    return BUFFERS + NEST.format(outer=outer, slot=slot, source=source)


def twice(last: int, slot: str = "j * 64", source: str = "j * 64") -> str:
    return BUFFERS + TWICE.format(last=last, slot=slot, source=source)


HARMLESS = {
    "one slot, tiles one after the other": nest(1, "0", "i * 64"),
    "two slots, tiles one after the other": nest(1, "(i mod 2) * 64", "i * 64"),
    "two slots for two tiles in flight": nest(2, "(i mod 2) * 64", "i * 64"),
    "all tiles from the same bytes": nest(2, "0", "128"),
    "a place for each tile": nest(2, "i * 64", "i * 64"),
    "everything was loaded before": twice(3),
}
RACING = {
    "one slot for two tiles in flight": (nest(2, "0", "i * 64"), {"NEM141", "NEM142"}),
    "two slots for three tiles in flight": (nest(3, "(i mod 2) * 64", "i * 64"), {"NEM141", "NEM142"}),
    "other bytes for each inner iteration": (nest(1, "0", "j * 64"), {"NEM141", "NEM142"}),
    "half was loaded before": (twice(1), {"NEM140"}),
    "one place was loaded before": (twice(3, "0", "0"), {"NEM140"}),
    "other bytes were loaded before": (twice(3, source="j * 64 + 64"), {"NEM140"}),
}


def codes(tmp_path: Path, text: str) -> set[str]:
    path = tmp_path / "plan.nem"
    path.write_text(text)
    return {finding.code for finding in lamella.check(path) if finding.code.startswith("NEM14")}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_reload_is_a_warning(name: str, tmp_path: Path) -> None:
    assert codes(tmp_path, HARMLESS[name]) == {"NEM145"}
    given = np.random.default_rng(1).integers(0, 256, 4096).astype("u1")
    orders = [lamella.compile(tmp_path / "plan.nem", seed=seed, order="random") for seed in range(4)]
    assert len({run(X=given)["Y"].tobytes() for run in orders}) == 1


@pytest.mark.parametrize("name", RACING)
def test_a_racing_load_is_no_reload(name: str, tmp_path: Path) -> None:
    text, wanted = RACING[name]
    assert codes(tmp_path, text) - {"NEM145", "NEM148"} == wanted
