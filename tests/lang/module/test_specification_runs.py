"""The complete declarations of the specification run: ours with their structure, and the originals where at hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import lamella
from lamella.backend.reference import compile_model
from lamella.base.diagnostic import LamellaError
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.lang.module import nodes as n
from tests.lang.module.test_parse_specification import NEEDED, is_stubbed, printed
from tests.support.lang.module.complete_cases import CASES, B, Case, T
from tests.support.lang.module.complete_rest import REST, UNDEFINED_CONDITION, Rest
from tests.support.lang.module.instances import read
from tests.support.lang.module.parsed import right

COMPLETE = Path(__file__).parent / "complete"
UNFLAT = 50
"""The place of the declaration whose input tells a product of two dimensions."""
NAME = re.compile(r"^(?:module|block|model) +(\w+)", re.MULTILINE)
Array = npt.NDArray[np.float64]


def caller(case: Case, name: str) -> str:
    """A module that declares what a case takes, and calls it."""
    weights = [
        f"    v{number}: {kind[1:]}" for number, kind in enumerate(case.operands) if kind.startswith("w")
    ]
    inputs = [
        f"      v{number}: {kind}" for number, kind in enumerate(case.operands) if not kind.startswith("w")
    ]
    outputs = [f"      y{number}: [*]" for number in range(case.outputs)]
    sources = ", ".join(f"v{number}" for number in range(len(case.operands)))
    targets = ", ".join(f"y{number}" for number in range(case.outputs))
    lines = [
        "module Caller():",
        "  params:",
        f"    inner: {name}({case.arguments})",
        *weights,
        "  forward:",
        "    inputs:",
        *inputs,
        "    outputs:",
        *outputs,
        "    graph:",
        f"      ({sources}) -> inner() -> ({targets})",
    ]
    return "\n".join(lines) + "\n"


def shape_of(kind: str) -> list[int]:
    """The shape of an operand in a run."""
    extents = {"B": B, "T": T, "N": 7}
    words = [word.strip() for word in kind.strip("w[]").split(",") if word.strip() not in ("", "int32")]
    return [extents.get(word) or int(word) for word in words]


def numbers(case: Case) -> dict[str, npt.NDArray[np.generic]]:
    """What flows into a case: real numbers, or indices; offsets of groups grow."""
    rng = np.random.default_rng(case.place)
    found: dict[str, npt.NDArray[np.generic]] = {}
    for number, kind in enumerate(case.operands):
        if kind.startswith("w"):
            continue
        shape = shape_of(kind)
        whole = (
            np.asarray([0, 3, 7], np.int32) if kind == "[3, int32]" else rng.integers(0, 4, shape, np.int32)
        )
        found[f"v{number}"] = whole if "int32" in kind else rng.normal(size=shape)
    return found


def run(case: Case, text: str, name: str, folder: Path) -> None:
    """Compile and run a declaration through its caller, and compare with the formula."""
    path = folder / "called.module"
    path.write_text(f"{text}\n\n{caller(case, name)}", encoding="utf-8")
    model = lamella.load(path, model="Caller", dtype="f64")
    assert isinstance(model, Model)
    executable = compile_model(model, dtype="f64")
    given = numbers(case)
    results = list(executable(**given).values())
    state = {key: np.asarray(value, np.float64) for key, value in executable.state.items()}
    operands = [
        np.asarray(given.get(f"v{number}", state.get(f"v{number}")), np.float64)
        for number in range(len(case.operands))
    ]
    own = [state[key] for key in state if key.startswith("inner.") and not key.endswith("freqs")]
    expected = case.formula(operands, own)
    assert len(results) == len(expected) == case.outputs
    for found, wanted in zip(results, expected, strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(
            np.asarray(found, np.float64), wanted, rtol=case.tolerance, atol=case.tolerance
        )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_complete_declarations_run(case: Case, tmp_path: Path) -> None:
    run(case, (COMPLETE / f"{case.file}.module").read_text(encoding="utf-8"), case.name, tmp_path)


def originals() -> list[str]:
    """The declarations of the specification that have no stub."""
    return [text for text in printed() if not is_stubbed(text)]


@NEEDED
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_originals_run(case: Case, tmp_path: Path) -> None:
    text = originals()[case.place]
    found = NAME.search(text)
    assert found is not None
    run(case, text, found[1], tmp_path)


# --- what is left ------------------------------------------------------------------------------------------------


def codes(path: Path, name: str) -> set[str]:
    """What checking a file and loading a declaration of it give."""
    found = [*lamella.check(path)]
    try:
        lamella.load(path, model=name)
    except LamellaError as problem:
        found += problem.findings
    return {item.code for item in found}


def arguments(item: n.Module) -> str:
    """Some value for each parameter that needs one."""
    needed = [param.name for param in item.params or () if param.default is None]
    return ", ".join(f"{name}={4 if name.startswith('num') else 8}" for name in needed)


@NEEDED
@pytest.mark.parametrize("rest", REST, ids=lambda rest: rest.why)
def test_the_others_say_what_they_lack(rest: Rest, tmp_path: Path) -> None:
    for place in rest.places:
        text = originals()[place]
        (item,) = right(text).items
        assert isinstance(item, n.Module)
        name = item.name
        if rest.operands:
            case = Case(place, "", "", arguments(item), rest.operands, lambda x, w: [])
            text, name = f"{text}\n\n{caller(case, name)}", "Caller"
        path = tmp_path / "called.module"
        path.write_text(text, encoding="utf-8")
        assert rest.code in codes(path, name), item.name


@NEEDED
def test_every_whole_declaration_has_its_place() -> None:
    """Each runs, or is known to lack something, or is a primitive of the library, or is a recipe."""
    places = [*(case.place for case in CASES), UNFLAT, UNDEFINED_CONDITION]
    places += [place for rest in REST for place in rest.places]
    assert len(places) == len(set(places))
    for place, text in enumerate(originals()):
        (item,) = right(text).items
        if isinstance(item, n.Module):
            places.remove(place)
        elif isinstance(item, n.Primitive):
            assert_shipped(item)
        else:
            assert isinstance(item, n.Recipe)
    assert not places


def assert_shipped(item: n.Primitive) -> None:
    """The library has a primitive with these inputs and attributes."""
    declared = read("module Empty():\n  forward:\n    graph:\n      x -> y\n").scope.find(item.name)
    assert declared is not None
    ours = declared.declaration
    assert isinstance(ours, n.Primitive)
    assert item.forward is not None
    assert ours.forward is not None
    assert len(item.forward.inputs or ()) <= len(ours.forward.inputs or ())
    names = {param.name for param in ours.params} | {port.name for port in ours.forward.inputs or ()}
    assert {param.name for param in item.params} <= names


@pytest.mark.parametrize("original", [False, pytest.param(True, marks=NEEDED)])
def test_a_dimension_may_be_an_input(original: bool, tmp_path: Path) -> None:
    """`B: int` beside `[B * T, C]` is no tensor: what calls the graph says the two extents."""
    path, name = COMPLETE / "heads.module", "Unflat"
    if original:
        path = tmp_path / "original.module"
        path.write_text(originals()[UNFLAT], encoding="utf-8")
        name = NAME.findall(originals()[UNFLAT])[0]
    model = lamella.load(path, model=name, shape={"B": B, "T": T}, dtype="f64")
    assert isinstance(model, Model)
    (rows,) = [item for item in model.graph.inputs if isinstance(item, Tensor)]
    given = np.arange(60.0).reshape(10, 6)
    (found,) = compile_model(model, dtype="f64")(**{rows.name: given}).values()
    np.testing.assert_array_equal(found, given.reshape(B, T, 6))
