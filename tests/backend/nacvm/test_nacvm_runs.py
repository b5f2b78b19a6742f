"""Runs of the machine: what it takes and gives, and what it says when something is wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from docs.generate import RIGHT, repaired
from lamella.backend.nacvm import NacProgram, compile_program
from lamella.backend.reference import compile_model
from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import F32, I64
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Tensor
from lamella.lang.nac.nodes import CONTROL_FLOW, INPUT, Instruction
from lamella.ops.library import Library
from tests.support.backend.nacvm.assembling import Assembly, assemble
from tests.support.backend.nacvm.wrong import findings_of

BAD = Path(__file__).parents[2] / "lang" / "nac" / "bad"
PROGRAMS = sorted(BAD.glob("nac23*.txt"))
T = TypeVar("T")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_wrong_programs_are_found_and_right_ones_are_not(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wanted = Counter(re.findall(r"; expect (NAC\d{3})", text))
    assert wanted
    assert Counter(item.code for item in findings_of(text)) == wanted
    assert RIGHT.search(text)
    assert findings_of(repaired(text)) == []


def lookup() -> Model:
    """An embedding and a sum along it."""
    builder = Builder(Library(), "G")
    table = builder.input("table", F32, (5, 4))
    index = builder.input("index", I64, (3,))
    rows = builder.call("aten.embedding", table, index)
    return Model(builder.finish(builder.call("aten.relu", rows)), builder.library)


def test_an_index_that_the_data_decides_is_refused_at_its_instruction() -> None:
    machine = compile_program(assemble(lookup()))
    with pytest.raises(LamellaError) as problem:
        machine(index=np.array([0, 5, 1]))
    (finding,) = problem.value.findings
    assert finding.code == "SKR320"
    assert "5" in finding.message
    assert any("instruction 2 aten.embedding" in line for line in finding.origins)
    found = machine(table=np.ones((5, 4), np.float32), index=np.array([0, 4, 1]))
    np.testing.assert_array_equal(next(iter(found.values())), np.ones((3, 4)))


def test_all_wrong_inputs_are_told_at_once() -> None:
    machine = compile_program(assemble(lookup()))
    with pytest.raises(LamellaError) as problem:
        machine(table=np.ones((5, 3), np.float32), index=[0.5, 1, 2], other=1)
    assert [item.code for item in problem.value.findings] == ["NAC236", "NAC237", "NAC238"]
    with pytest.raises(LamellaError):
        machine(index=[[1], [2, 3]])


def test_inputs_that_are_left_out_are_those_of_the_reference() -> None:
    builder = Builder(Library(), "G")
    x, n = builder.input("x", F32, (2, 3)), builder.input("n", I64, (2, 3))
    model = Model(builder.finish(builder.call("aten.relu", x), builder.call("aten.neg", n)), builder.library)
    for seed in (0, 7):
        found, wanted = compile_program(assemble(model), seed=seed)(), compile_model(model, seed=seed)()
        assert found.keys() == wanted.keys()
        for name, array in found.items():
            np.testing.assert_array_equal(array, wanted[name])
    with pytest.raises(InputError):
        compile_program(assemble(model), seed=-1)


def parts() -> NacProgram:
    """A split into unequal parts, two of which are added to themselves."""
    builder = Builder(Library(), "G")
    x = builder.input("x", F32, (5, 2))
    pack = builder.call_all("layout.split", x, axis=0, count=None, sizes=(1, 1, 3))[0]
    assert isinstance(pack, tuple)
    one, _, other = pack
    outputs = [builder.call("aten.add", item, item) for item in (one, other)]
    return assemble(Model(builder.finish(*outputs), builder.library))


def test_tuples_are_results_whose_items_instructions_select() -> None:
    machine = compile_program(parts(), ["first", "second"])
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    found = machine(x=x)
    assert (tuple(found), machine.outputs, machine.inputs) == (
        ("first", "second"),
        ("first", "second"),
        ("x",),
    )
    np.testing.assert_array_equal(found["first"], 2 * x[:1])
    np.testing.assert_array_equal(found["second"], 2 * x[2:])
    # the input, all parts twice (in the tuple and selected), two sums
    assert machine.peak_bytes == x.nbytes + 2 * x.nbytes + found["first"].nbytes + found["second"].nbytes


def test_what_is_given_and_what_is_taken_stay_apart() -> None:
    builder = Builder(Library(), "G")
    x = builder.input("x", F32, (2, 2))
    model = Model(builder.finish(builder.call("aten.permute", x, dims=(1, 0))), builder.library)
    machine, given = compile_program(assemble(model)), np.arange(4, dtype=np.float32).reshape(2, 2)
    (found,) = machine(x=given).values()
    found[...] = 9
    np.testing.assert_array_equal(given, [[0, 1], [2, 3]])
    (again,) = machine(x=given).values()
    np.testing.assert_array_equal(again, [[0, 2], [1, 3]])


def test_memory_beyond_the_limit_is_refused_before_it_is_taken() -> None:
    builder = Builder(Library(), "G")
    x = builder.input("x", F32, (1, 1000))
    wide = builder.call("aten.expand", x, size=(1000, 1000))
    model = Model(builder.finish(builder.call("aten.neg", wide)), builder.library)
    limits = replace(DEFAULT, max_total_bytes=6_000_000)
    machine = compile_program(assemble(model), limits=limits)
    with pytest.raises(LamellaError) as problem:
        machine()
    assert [item.code for item in problem.value.findings] == ["SKR325"]
    assert "instruction 2" in problem.value.findings[0].origins[0]


@pytest.mark.parametrize(
    "instruction", [Instruction(CONTROL_FLOW, 0, (1, 1), (-1,)), Instruction(INPUT, 2, (1,))]
)
def test_what_the_machine_does_not_run_is_refused(instruction: Instruction) -> None:
    assembly = Assembly(Library())
    x = Tensor("x", F32, (2,))
    assembly.input(x)
    assembly.put(instruction, (), None)
    assembly.output(0)
    with pytest.raises(LamellaError) as problem:
        compile_program(assembly.finish())()
    assert [item.code for item in problem.value.findings] == ["SKR326"]


def test_an_assertion_of_an_operator_names_the_instruction() -> None:
    assembly = Assembly(Library())
    x, y, z = (Tensor(name, F32, (size,)) for name, size in (("x", 2), ("y", 3), ("z", 2)))
    assembly.input(x)
    assembly.input(y)
    assembly.call(Operation("math.add", (x, y), (z,), (("lhs_align", 0), ("rhs_align", 0))))
    assembly.output(2)
    with pytest.raises(LamellaError) as problem:
        compile_program(assembly.finish())
    (finding,) = problem.value.findings
    assert finding.code.startswith("SKR")
    assert "instruction 2 math.add" in finding.origins[-1]


def test_random_numbers_are_those_of_the_reference_in_every_call() -> None:
    builder = Builder(Library(), "G")
    noise = builder.call("rand.normal", types={}, shape=(4,), mean=0.0, std=1.0)
    model = Model(builder.finish(noise), builder.library)
    machine = compile_program(assemble(model), seed=3)
    first, second = machine(), machine()
    wanted = compile_model(model, seed=3)()
    for name, array in wanted.items():
        np.testing.assert_array_equal(first[name], array)
        np.testing.assert_array_equal(second[name], array)


@pytest.mark.parametrize("number", [1.0, np.inf, np.nan])
@pytest.mark.parametrize("stride", [1, 2])
def test_what_is_beyond_an_edge_is_skipped_whatever_it_would_be_multiplied_with(
    number: float, stride: int
) -> None:
    """Zeros stand for what is skipped, but zero times infinity is no number."""
    builder = Builder(Library(), "G")
    x, w = builder.input("x", F32, (1, 4, 6, 6)), builder.input("w", F32, (5, 4, 3, 3))
    made = builder.call("aten.conv2d", x, w, None, padding=(1, 1), stride=(stride, stride))
    model = Model(builder.finish(made), builder.library)
    filters = np.ones((5, 4, 3, 3), np.float32)
    filters[0, :, 0, 0] = number
    given = {"x": np.arange(144, dtype=np.float32).reshape(1, 4, 6, 6) - 70, "w": filters}
    (found,) = compile_program(assemble(model))(**given).values()
    (wanted,) = compile_model(model)(**given).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert np.isfinite(found[0, 1:]).all()


def test_steps_are_watched() -> None:
    seen = list[int]()

    def watch(items: Iterable[T], total: int, /) -> Iterable[T]:
        for item in items:
            seen.append(total)
            yield item

    machine = compile_program(parts())
    machine.progress = watch
    machine()
    assert seen == [len(seen)] * len(seen)
    assert seen
