"""What graphs have and NAC cannot say: wrong programs announce it, repaired ones are written; long programs are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from docs.generate import expected, repaired
from lamella.base.arrays import numpy_dtype
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import F32, find
from lamella.base.source import Source
from lamella.bridge.graph_to_nac import canonical, file, graph_to_nac
from lamella.bridge.graph_to_nac import instructions as layout
from lamella.bridge.graph_to_nac.instructions import (
    CodedArgument,
    FileTables,
    PendingInstruction,
    ResultRef,
    layout_instructions,
)
from lamella.graph.build import Builder
from lamella.graph.compose import compose
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Operation, Tensor, Update
from lamella.lang.nac import check
from lamella.lang.nac.nodes import INPUT, V1_6
from lamella.lang.nac.operations import PARAMETER, USER, standard_operations
from lamella.ops.library import Library
from tests.support.bridge.nac_trips import read_back, with_data
from tests.support.graph.texts import graph_text, model_of
from tests.support.strategies.graph import library, models
from tests.support.strategies.graph_moves import MOVES

BAD = Path(__file__).parents[1] / "lang" / "nac" / "bad"
PROGRAMS = sorted(path for path in BAD.glob("nac2[01]*") if path.suffix in (".sknd", ".txt"))
TYPE = re.compile(r"(\w+)\[([\d, ]*)\]")
COMMAND_LIMIT = 100
BOTH = (
    *("exp", "log", "log2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan"),
    *("asinh", "acosh", "atanh", "sqrt", "floor", "ceil"),
)
ATEN = (
    *("rsqrt", "reciprocal", "erf", "sigmoid", "silu", "relu", "abs", "sign", "round", "trunc"),
    *("log10", "exp2", "log1p", "expm1", "gelu", "mish", "selu", "hardswish", "square", "frac"),
)
PUBLIC = ("exp", "log", "sin", "cos", "tanh")
"""Operators of the library that are written as those of ATen."""
OPERATORS = [
    *(f"math.{name}" for name in (*BOTH, "sign", "sqr", "round", "rcp", "rsqr") if name not in PUBLIC),
    *(f"nn.{name}" for name in ("softplus", "elu", "selu", "erf", "thresholded_relu")),
    *(f"aten.{name}" for name in (*BOTH, *ATEN)),
]
"""Operators of one tensor that have no number in the specification, each under a name of its own."""


def typed(text: str) -> tuple[str, tuple[int, ...]]:
    """A type and a shape from `f32[2, 3]`."""
    match = TYPE.fullmatch(text.strip())
    assert match is not None, text
    return match[1], tuple(int(item) for item in match[2].split(",") if item.strip())


def tensor(name: str, text: str) -> Tensor:
    """A tensor of a type."""
    element, shape = typed(text)
    found = find(element)
    assert found is not None
    return Tensor(name, found, shape)


def chain(operators: list[str]) -> Model:
    """A graph that calls operators one after the other."""
    builder = Builder(library(), "G")
    x = builder.input("x", F32, (2,))
    for name in operators:
        x = builder.call(name, x)
    return Model(builder.finish(x), library())


def described(text: str) -> Model:
    """The model of a description."""
    lines = [line.partition("  ;")[0] for line in text.splitlines() if line and not line.startswith(";")]
    variables = [line.removeprefix("variable ") for line in lines if line.startswith("variable ")]
    arrays = dict(line.removeprefix("array ").split(": ") for line in lines if line.startswith("array "))
    if variables:
        kept = tuple(tensor(*item.split(": ")) for item in variables)
        data = {name: np.zeros(typed(kind)[1], typed(kind)[0]) for name, kind in arrays.items()}
        updates = tuple(_updates(lines, {item.name: item for item in kept}))
        inputs = tuple(item.value for item in updates)
        return Model(Graph("G", inputs, (), (), kept, updates=updates), library(), data)
    word, _, rest = lines[0].partition(" ")
    if word == "operation":
        name, kinds = rest.split(": ")
        given_, result = (tensor(side, kind) for side, kind in zip("xy", kinds.split(" -> "), strict=True))
        node = Operation(name, (given_,), (result,))
        return Model(Graph("G", (given_,), (result,), (node,)), library())
    count = int(rest)
    return chain(OPERATORS[:count] if word == "operators" else ["math.neg"] * (count - 2))


def _updates(lines: list[str], variables: dict[str, Tensor]) -> Iterator[Update]:
    """Variables that become inputs."""
    for line in lines:
        if line.startswith("update "):
            name, kind = line.removeprefix("update ").split(": ")
            yield Update(variables[name], tensor(f"new_{name}", kind))


def model_from(path: Path, text: str) -> Model:
    """The model of a program, whose own operators and those of ATen are kept whole."""
    if path.suffix == ".txt":
        return described(text)
    own = Library()
    module = own.load(Source(path.name, text))
    found = compose(module, keep=lambda name: name.startswith(("main.", "aten.")))
    assert found.graph is not None, "\n".join(map(str, found.findings))
    data = {item.name: np.zeros((4,), numpy_dtype(item.element)) for item in found.graph.variables}
    return Model(found.graph, own, data)


def findings_of(path: Path, text: str) -> tuple[Diagnostic, ...]:
    """What is said when the model of a program is written."""
    try:
        return graph_to_nac(model_from(path, text)).findings
    except LamellaError as problem:
        return problem.findings


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands reach a hundred instructions only."""
    monkeypatch.setattr(file, "LAST_INDEX", COMMAND_LIMIT)


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_has_exactly_the_findings_it_announces(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert Counter(item.code for item in findings_of(path, text)) == Counter(expected(text))


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_repaired_program_is_written(path: Path) -> None:
    text = repaired(path.read_text(encoding="utf-8"))
    assert not findings_of(path, text)
    assert not check(graph_to_nac(model_from(path, text)).file)


def test_findings_say_from_what_an_operation_was_made() -> None:
    text = (BAD / "nac211_operator.sknd").read_text(encoding="utf-8")
    (finding,) = findings_of(BAD / "nac211_operator.sknd", text)
    assert "aten.softsign" in finding.message
    assert finding.origins
    assert "decompose" in finding.hint


def test_all_findings_at_once() -> None:
    model = model_of(
        graph_text(
            "x: real[2]; c: int[];",
            "a = with s = x do..(c) math.exp(s); b = with s = x do..(c) math.sin(s); y = math.add(a, b);",
            blocks="@variable { w: real[2]; } @update { w = y; }",
        )
    )
    with pytest.raises(LamellaError) as caught:
        graph_to_nac(model)
    assert Counter(item.code for item in caught.value.findings) == {"NAC208": 2}
    with pytest.raises(LamellaError):
        canonical(model)


# --- long programs ------------------------------------------------------------------------------------------

SAYABLE = tuple(
    name for name in MOVES if name not in ("branch", "fold", "repeat", "state", "quantized", "nonzero")
)
SHORT = 24


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(models(SAYABLE, open_extents=False))
def test_a_short_reach_changes_nothing_but_the_program(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    """Relays and repeated loads lead to the same graph."""
    filled = with_data(model)
    monkeypatch.setattr(layout, "REACH", SHORT)
    found = graph_to_nac(filled).file
    assert not check(found)
    assert min([offset for item in found.instructions for offset in item.offsets], default=0) >= -SHORT
    assert read_back(found) == canonical(filled)


def test_results_and_loads_that_are_far_away() -> None:
    """A result that is needed 100 000 instructions later is passed on, a parameter is loaded again."""
    count = 100_000
    items = [
        PendingInstruction(
            "math.add", (CodedArgument("T", ResultRef("x")), CodedArgument("P", ResultRef("w"))), "v0"
        )
    ]
    items += [
        PendingInstruction("math.neg", (CodedArgument("T", ResultRef(f"v{i}")),), f"v{i + 1}")
        for i in range(count)
    ]
    items.append(
        PendingInstruction(
            "math.add",
            (CodedArgument("T", ResultRef(f"v{count}")), CodedArgument("P", ResultRef("w"))),
            "sum",
        )
    )
    items.append(
        PendingInstruction(
            "math.add", (CodedArgument("T", ResultRef("sum")), CodedArgument("T", ResultRef("x"))), "result"
        )
    )
    items.append(PendingInstruction(None, (CodedArgument("T", ResultRef("result")),)))
    placed = layout_instructions(["x"], items, {"w": 1}, FileTables())
    numbers = {item.name: id_ for id_, item in standard_operations(V1_6).items()}
    relays = [at for at, item in enumerate(placed.instructions) if item.operation == numbers["nac.pass"]]
    loads = [
        at
        for at, item in enumerate(placed.instructions)
        if (item.operation, item.variant) == (INPUT, PARAMETER)
    ]
    assert len(relays) == 3
    assert len(loads) == 2
    assert placed.instructions[0].variant == USER
    assert min(offset for item in placed.instructions for offset in item.offsets) >= -32768
    # Follow the last operand back through its relays to the input.
    at = len(placed.instructions) - 2
    steps = 0
    at += placed.instructions[at].offsets[1]
    while at:
        assert at in relays
        at += placed.instructions[at].offsets[0]
        steps += 1
    assert steps == 3


def test_more_results_than_can_be_passed_on() -> None:
    count = 40_000
    items = [
        PendingInstruction("math.neg", (CodedArgument("T", ResultRef("x")),), f"v{i}") for i in range(count)
    ]
    items += [
        PendingInstruction("math.neg", (CodedArgument("T", ResultRef(f"v{i}")),), f"u{i}")
        for i in range(count)
    ]
    with pytest.raises(Exception, match="results at once"):
        layout_instructions(["x"], items, {}, FileTables())
