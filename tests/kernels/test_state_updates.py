"""States that are overwritten where they lie: drawn steps have the reference's numbers, and write no held array."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.executor.kernels import KernelExecutable
from lamella.backend.reference import compile_model
from lamella.graph.model import Model
from lamella.pipeline.backends.kernels import compile_open
from lamella.pipeline.options import Options
from tests.support.graph.texts import model_of

STATES, INPUTS = ("a", "b", "c"), ("x", "y")
ROWS, COLUMNS = 4, 6
SHAPE = f"real[{ROWS}, {COLUMNS}]"
CALLS = (
    "math.add({0}, {1})",
    "math.sub({0}, {1})",
    "math.mul({0}, {1})",
    "math.max({0}, {1})",
    "math.tanh({0})",
    "math.neg({0})",
    "math.iden({0})",
    "nn.softmax{{axes=[1]}}({0})",
    "math.select(m, {0}, {1})",
    "linalg.matmul({0}, w)",
)
"""Operations on one or two tensors of the one shape."""
TWO_STEPS = (
    ("layout.transpose{{perm=[1, 0]}}({0})", "layout.transpose{{perm=[1, 0]}}({2})"),
    ("layout.reshape{{shape=[6, 4]}}({0})", "layout.reshape{{shape=[4, 6]}}({2})"),
    ("layout.slice{{axes=[1], begin=[1], end=[6]}}({0})", "layout.pad{{axes=[1], padding=[1, 0]}}({2})"),
    ("layout.slice{{axes=[0], begin=[0], end=[3]}}({0})", "layout.pad{{axes=[0], padding=[0, 1]}}({2})"),
    ("math.sum_reduce{{axes=[0]}}({0})", "math.mul({1}, {2})"),
    ("math.max_reduce{{axes=[1]}}({0})", "math.sub({1}, {2})"),
)
"""Operations through a view, a part or a reduction: elements are read elsewhere than they are written."""


@st.composite
def steps(draw: st.DrawFn) -> str:
    """A graph with three states, each of which becomes some tensor: a new one, another state, an input."""
    names = [*STATES, *INPUTS]
    lines: list[str] = []
    for number in range(draw(st.integers(2, 7))):
        first, second = (draw(st.sampled_from(names[-6:])) for _ in range(2))
        if draw(st.integers(0, 2)):
            texts = [draw(st.sampled_from(CALLS))]
        else:
            texts = list(draw(st.sampled_from(TWO_STEPS)))
        for place, text in enumerate(texts):
            name = f"t{number}" if place == len(texts) - 1 else f"t{number}_inner"
            lines.append(f"{name} = {text.format(first, second, f't{number}_inner')};")
        names.append(f"t{number}")
    made = names[len(STATES) + len(INPUTS) :]
    nexts: dict[str, str] = {}
    for name in STATES:
        kind = draw(st.integers(0, 9))
        if (
            kind < 8
        ):  # as optimisers do: of itself and of something else, and perhaps somebody reads it afterwards
            call, other = draw(st.sampled_from(CALLS[:6])), draw(st.sampled_from(made))
            lines.append(f"next_{name} = {call.format(name, other)};")
            names += [f"next_{name}"] if kind < 2 else []
            made += [f"next_{name}"] if kind < 2 else []
            nexts[name] = f"next_{name}"
        else:
            nexts[name] = draw(st.sampled_from(made if kind == 8 else [*STATES, *INPUTS]))
    shown = draw(st.sampled_from(names))
    lines.append(f"z = math.iden({shown});")
    updates = " ".join(f"{name} = {value};" for name, value in nexts.items())
    return (
        "import layout, linalg, math, nn;\ngraph G {\n"
        f"@input {{ x: {SHAPE}; y: {SHAPE}; m: bool[{ROWS}, {COLUMNS}]; }}\n@output {{ z: {SHAPE}; }}\n"
        f"@variable {{ {' '.join(f'{name}: {SHAPE};' for name in STATES)} w: real[{COLUMNS}, {COLUMNS}]; }}\n"
        f"@compose {{ {' '.join(lines)} }}\n@update {{ {updates} }}\n}}\n"
    )


def started(text: str) -> Model:
    draw = np.random.default_rng(0)
    data = {name: draw.standard_normal((ROWS, COLUMNS)).astype(np.float32) for name in STATES}
    data["w"] = (draw.standard_normal((COLUMNS, COLUMNS)) / 3).astype(np.float32)
    return replace(model_of(text), data=data)


def overwritten(run: KernelExecutable) -> set[str]:
    """The states that launches overwrite."""
    return {name for segment in run.segments({}) for name in segment.updated}


SEEN: list[int] = []
"""How many states each drawn step overwrote."""


@given(steps(), st.integers(0, 2))
def test_drawn_steps_leave_the_states_of_the_reference(text: str, held: int) -> None:
    model = started(text)
    run, judge = compile_open(model, "cpu", Options()), compile_model(model)
    draw = np.random.default_rng(1)
    for _ in range(3):
        fed: dict[str, Any] = {
            name: draw.standard_normal((ROWS, COLUMNS)).astype(np.float32) for name in INPUTS
        }
        fed["m"] = draw.random((ROWS, COLUMNS)) > 0.5
        kept = run.state[STATES[held]]
        before = np.array(kept)
        found, wanted = run(**fed), judge(**fed)
        np.testing.assert_allclose(found["z"], wanted["z"], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(kept, before, "what somebody holds was overwritten")
        for name in STATES:
            np.testing.assert_allclose(run.state[name], judge.state[name], rtol=1e-4, atol=1e-5, err_msg=name)
    SEEN.append(len(overwritten(run)))


def test_many_of_them_were_overwritten() -> None:
    """What is drawn attacks: without such steps the test above would show nothing."""
    assert not SEEN or sum(SEEN) > len(SEEN) // 2
