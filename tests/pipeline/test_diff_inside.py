"""Divergences inside of loops and branches: the step and the operation of the body are named, faults being planted."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

import lamella
from lamella.pipeline.diff import Comparison, divergence_lines, reproduce
from lamella.pipeline.diff.comparison import deepest
from lamella.pipeline.diff.flow import listed
from lamella.pipeline.options import Options

STEPS = 5
FUNCTIONS = ("nn.gelu", "nn.silu", "math.tanh", "nn.sigmoid", "nn.softplus", "math.sin")
HEADS = {
    "count": "y = with state: real[3, 4] = x do..(step -> 5) {",
    "scan": "y = with state: real[3, 4] = 0.0 for item : items do {",
}
BRANCH = """
            sum = math.sum_reduce{axes=[0, 1], squeeze=true}(h3);
            large = math.gt(sum, 0.0);
            h4 = if large then {
                    b1 = FIRST(h3);
                    yield b1; } else {
                    b2 = SECOND(h3);
                    yield b2; };
"""


def _loop(kind: str, functions: list[str], branch: str = "") -> str:
    """A loop whose body is a chain of operations `h0` to `h4`."""
    source = "item" if kind == "scan" else "x"
    lines = [f"h0 = {functions[0]}(state);", f"h1 = math.add(h0, {source});", "h2 = linalg.matmul(h1, w);"]
    lines += [f"h3 = {functions[1]}(h2);", branch or "h4 = math.mul(h3, h1);"]
    body = "\n            ".join((*lines, "yield h4;"))
    return f"""import layout, linalg, math, nn;
graph Net {{
    @input {{ x: real[3, 4]; whole: real[5, 3, 4]; }}
    @output {{ z: real[3, 4]; }}
    @variable {{ w: real[4, 4]; }}
    @compose {{
        items..(5) = layout.unstack{{axis=0}}(whole);
        {HEADS[kind]}
            {body}
        }};
        z = nn.relu(y);
    }}
}}
"""


def _diff(folder: Path, left: str, right: str, seed: int = 0) -> Comparison:
    paths = folder / "left.sknd", folder / "right.sknd"
    for path, text in zip(paths, (left, right), strict=True):
        path.write_text(text)
    return lamella.diff(*paths, seed=seed)


def _made(found: Comparison) -> list[str]:
    """The tensors that the named operation makes."""
    inner = deepest(found).diverging
    assert inner is not None
    assert inner.operation is not None
    return [item.name.rpartition(".")[2] for item in listed(inner.operation.outputs)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["count", "scan"])
def test_a_planted_operation_of_a_body_is_named(seed: int, kind: str, tmp_path: Path) -> None:
    random = Random(f"{kind} {seed}")
    functions = random.sample(FUNCTIONS, 3)
    place = random.randrange(2)
    changed = [*functions]
    changed[place] = functions[2]
    found = _diff(tmp_path, _loop(kind, functions), _loop(kind, changed), seed=seed)
    assert found.diverging is not None
    assert found.diverging.inside is not None
    # A state of zeros is where some functions agree, so the first step may be no step that differs.
    assert found.diverging.inside.where in {f"step {step} of {STEPS}" for step in (1, 2)}
    assert _made(found) == [f"h{3 * place}"]
    assert f"of {STEPS} of do -> y" in next(iter(divergence_lines(found.diverging)))


@pytest.mark.parametrize("seed", range(4))
def test_a_planted_operation_of_a_branch_in_a_loop_is_named(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    first, second, other = random.sample(FUNCTIONS[:4], 3)
    texts = [
        _loop("count", ["math.tanh", "math.sin"], BRANCH.replace("FIRST", one).replace("SECOND", two))
        for one, two in ((first, second), (other, other))
    ]
    found = _diff(tmp_path, texts[0], texts[1], seed=seed)
    assert found.diverging is not None
    assert _made(found)[0] in {"b1", "b2"}
    options = Options(output=tmp_path / "alone", tolerance=1e-5)
    written = reproduce(found, options)
    assert written is not None
    assert written[1] == (1, 1)
    inner = deepest(found).diverging
    assert inner is not None
    again = lamella.diff(
        tmp_path / "alone" / "left.sknd",
        tmp_path / "alone" / "right.sknd",
        inputs={path.stem: np.load(path) for path in (tmp_path / "alone").glob("*.npy")},
    )
    assert again.diverging is not None
    assert again.diverging.causes[0].sentence == inner.causes[0].sentence


def test_another_branch_is_a_cause(tmp_path: Path) -> None:
    text = _loop("count", ["math.tanh", "math.sin"], "h4 = if math.lt(step, LAST) then h3 else h1;")
    found = _diff(tmp_path, text.replace("LAST", "3"), text.replace("LAST", "2"))
    assert found.diverging is not None
    assert found.diverging.inside is not None
    assert found.diverging.inside.where == f"step 3 of {STEPS}"
    inner = deepest(found).diverging
    assert inner is not None
    assert inner.causes[0].sentence == "the left takes the branch of condition 1, the right the last branch"


def test_other_numbers_of_steps_are_a_cause(tmp_path: Path) -> None:
    text = _loop("count", ["math.tanh", "math.sin"])
    found = _diff(tmp_path, text, text.replace("-> 5", "-> 4"))
    assert found.diverging is not None
    assert found.diverging.causes[0].sentence == "the loop of the left takes 5 steps, that of the right 4"


def test_a_step_that_alone_is_wrong_is_named(tmp_path: Path) -> None:
    text = _loop(
        "count",
        ["math.tanh", "math.sin"],
        "hit = math.eq(step, AT);\nh5 = math.neg(h3);\nh4 = math.select(hit, h5, h3);",
    )
    found = _diff(tmp_path, text.replace("AT", "9"), text.replace("AT", "3"))
    assert found.diverging is not None
    assert found.diverging.inside is not None
    assert found.diverging.inside.where == f"step 4 of {STEPS}"


def test_items_of_an_open_number_are_scanned(tmp_path: Path) -> None:
    """A pack whose length only the run tells has no numbers of its own in a comparison."""
    texts = [
        _loop("scan", ["math.tanh", function])
        .replace("whole: real[5, 3, 4]", f"whole: real[n|{STEPS}, 3, 4]")
        .replace("items..(5)", "items..(n)")
        for function in ("math.sin", "nn.silu")
    ]
    found = _diff(tmp_path, texts[0], texts[1])
    assert found.diverging is not None
    assert found.diverging.inside is not None
    assert found.diverging.inside.where == f"step 1 of {STEPS}"
    assert _made(found) == ["h3"]
