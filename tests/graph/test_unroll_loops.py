"""Loops that are written out give the numbers of the loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.backend.reference import compile_model
from lamella.graph.model import Model
from lamella.graph.passes.unroll_loops import count_loops, unroll_loops
from lamella.graph.verify import verify

LOOPS = {
    "carried": "y = with s: real[2, 4] = x do..(3) { t = math.sin(s); u = math.add(t, x); yield u; };",
    "numbered": """y = with s: real[2, 4] = x do..(step -> 4) {
            few = math.lt(step, 2);
            t = math.sin(s);
            u = math.select(few, t, s);
            yield u; };""",
    "scanned": """items..(3) = layout.unstack{axis=0}(w);
        total, sums..(3) = with s: real[4] = 0.0 for item : items do {
            t = math.add(s, item);
            yield t, t; };
        z = layout.stack{axis=0}(sums);
        y = math.add(z, total);""",
    "kept": "y = with s: real[2, 4] = x do..(2) { t = math.exp(s); yield s; };",
    "around": "y = with s: real[2, 4] = x do..(2) { t = math.exp(s); yield x; };",
    "nested": """y = with s: real[2, 4] = x do..(outer -> 3) {
            i = with r: real[2, 4] = s do..(inner -> 2) {
                same = math.eq(outer, inner);
                q = math.sin(r);
                p = math.select(same, q, x);
                yield p; };
            u = math.add(i, s);
            yield u; };""",
    "branched": """y = with s: real[2, 4] = x do..(step -> 3) {
            u = if math.lt(step, 1) then math.sin(s) else { v = math.cos(s); yield v; };
            yield u; };""",
}


def _model(body: str, folder: Path) -> Model:
    path = folder / "loops.sknd"
    path.write_text(
        f"""import layout, math;
graph Loops {{
    @input {{ x: real[2, 4]; }}
    @variable {{ w: real[3, 4]; }}
    @output {{ y: real[~, 4]; }}
    @compose {{
        {body}
    }}
}}
""",
        encoding="utf-8",
    )
    found = lamella.load(path)
    assert isinstance(found, Model)
    return found


@pytest.mark.parametrize("kind", LOOPS)
def test_steps_give_what_the_loop_gives(kind: str, tmp_path: Path) -> None:
    model = _model(LOOPS[kind], tmp_path)
    written = unroll_loops(model)
    assert count_loops(model) > 0 == count_loops(written)
    assert not verify(written.graph, written.library)
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    (wanted,), (found,) = (compile_model(item)(x=x).values() for item in (model, written))
    np.testing.assert_array_equal(found, wanted)


def test_what_would_be_too_much_stays_a_loop(tmp_path: Path) -> None:
    model = _model(LOOPS["nested"], tmp_path)
    inner = unroll_loops(model, most=10)
    assert count_loops(inner) == 1
    assert count_loops(unroll_loops(model, most=2)) == 2


def test_a_loop_becomes_nac(tmp_path: Path) -> None:
    model = _model(LOOPS["scanned"], tmp_path)
    path = tmp_path / "loops.nac"
    lamella.save(lamella.lower(model, "nac"), path)
    assert lamella.diff(model, path).agrees(0.0)
