"""Programs that nobody meant: whatever stands in a file, it becomes a graph or findings, and nothing is allocated."""

from __future__ import annotations

import importlib
import json
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.dtype import BOOL, F16, F32, I64
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.bridge.aten.table import schemas
from lamella.bridge.nac_to_graph import InputType, check_translation, nac_to_graph
from lamella.graph.verify import verify
from lamella.lang.nac import assemble, parse, write
from lamella.lang.nac import nodes as n
from lamella.lang.nac.nodes import ConstantType, Instruction
from lamella.lang.nac.operations import standard_operations
from tests.support.bridge.nac_graphs import assembled, program
from tests.support.lang.nac.models import perceptron

GOOD = Path(__file__).parents[1] / "lang" / "nac" / "good" / "mlp.nacs"
CODES = {
    rule.code
    for language in ("nac", "skriptnd")
    for rule in importlib.import_module(f"lamella.lang.{language}.rules").RULES
}
TYPES = {"x": InputType(F32, (2, 3)), "y": InputType(I64, (3,)), "b": InputType(BOOL, (2, 3))}
LIBRARY = (
    "math.add",
    "layout.concat",
    "nn.conv",
    "math.max_reduce",
    "layout.pad",
    "aten._uneven_pool",
    "main.G",
)
PYTHON = (
    "getitem",
    "mul",
    "add",
    "sub",
    "floordiv",
    "mod",
    "neg",
    "sym_max",
    "pow",
    "truediv",
    "ge",
    "custom",
)


def assert_told(findings: list[Diagnostic]) -> None:
    """Findings have known codes and can be shown."""
    for item in findings:
        assert item.code in CODES
        assert str(item).replace("\n", "").isprintable()


def codes_of(code: str, *names: str, **inputs: InputType) -> list[str]:
    """The codes of what is wrong with a program."""
    return [item.code for item in check_translation(program(code, *names), inputs)]


def test_all_findings_are_told_at_once() -> None:
    code = """
        %x = input()
        %a = custom.op:T(%x)
        %b = nac.neg:T(%a)
        %c = aten.relu.default:TT(%x, %x)
        %s = state(3)
        %d = nac.add:TT(%c, %s)
        %e = nac.view:TS(%x, [7])
        %z = output(%d)
    """
    found = codes_of(code, "x", x=InputType(F32, (2, 3)))
    assert found[:3] == ["NAC226", "NAC227", "NAC224"]
    assert len(found) == 4
    with pytest.raises(LamellaError) as raised:
        nac_to_graph(program(code, "x"))
    assert [item.code for item in raised.value.findings] == ["NAC220", "NAC224"]


def test_what_the_checks_find_comes_first() -> None:
    code = "%x = input()\n%y = custom.op:T(%x)\n%n = raw(0, 0, [], [])\n%w = nac.neg:T(%n)\n%z = output(%w)"
    assert codes_of(code, "x", x=TYPES["x"]) == ["NAC072"]


@pytest.mark.parametrize(
    "call",
    [
        "aten.full.default:Sf([2147483647, 2147483647, 2147483647], 1.0)",
        "aten.repeat.default:TS(%x, [2147483647, 2147483647])",
        "aten.expand.default:TS(%x, [2147483647, 65536, 2, 3])",
        "nac.arange:i(9223372036854775807)",
        "aten.split.Tensor:Ti(%w, 1)",
        "aten.unsqueeze.default:Ti(%d, 0)",
        "aten.constant_pad_nd.default:TSf(%x, [2147483647, 2147483647], 0.0)",
        "mul:ii(9223372036854775807, 9223372036854775807)",
        "pow:ii(9223372036854775807, 16)",
        "aten.triu.default:Ti(%x, 9223372036854775807)",
        "nac.arange:fff(0.0, inf, 1.0)",
        "nac.arange:fff(0.0, nan, 1.0)",
        "nac.arange:iii(0, 9, 0)",
        "add:ff(inf, 1.0)",
    ],
)
def test_sizes_that_no_machine_has_are_findings(call: str) -> None:
    rank = f"aten.reshape.default:TS(%x, [{', '.join(['1'] * 22)}, 2, 3])"
    wide = "aten.zeros.default:S([100000])"
    code = f"%x = input()\n%d = {rank}\n%w = {wide}\n%y = {call}\n%p = nac.pass:T(%y)\n%z = output(%x)"
    tracemalloc.start()
    try:
        findings = check_translation(program(code, "x"), {"x": TYPES["x"]})
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    assert_told(findings)
    assert "triu" in call or "pad" in call or len(findings) == 1


def test_sizes_do_not_grow_without_end() -> None:
    lines = "\n".join(f"%s{k} = mul:TT(%s{k - 1}, %s{k - 1})" for k in range(1, 200))
    code = f"%x = input()\n%s0 = aten.sym_size.int:Ti(%x, 0)\n{lines}\n%z = output(%x)"
    assert codes_of(code, "x", x=InputType(F32, (3,))) == ["NAC231"]


def test_limits_are_kept() -> None:
    lines = "\n".join("%y = nac.neg:T(%x)".replace("%y", f"%y{k}") for k in range(20))
    file = program(f"%x = input()\n{lines}\n%z = output(%x)", "x")
    found = check_translation(file, {"x": TYPES["x"]}, limits=Limits(max_operations=10))
    assert [item.code for item in found] == ["NAC230"]
    assert not check_translation(file, {"x": TYPES["x"]})


# --- anything at all ------------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from([1 << 40, -(1 << 62), (1 << 63) - 1]),
    st.sampled_from([0.0, 0.5, 1.0, -2.0, 1e300, float("inf"), float("nan")]),
    st.sampled_from(
        ["", "float32", "int64", "bool", "cpu", "strided", "tanh", "constant", "é", "f32", "mean"]
    ),
    st.lists(st.integers(-2, 5), max_size=4).map(tuple),
    st.lists(st.sampled_from([0.5, 2.0]), min_size=1, max_size=3).map(tuple),
)
NAMES = st.one_of(
    st.sampled_from(sorted(schemas())),
    st.sampled_from(sorted(schemas())).map(lambda name: name.rpartition(".")[0]),
    st.sampled_from([item.name for item in standard_operations(n.V1_8).values()]),
    st.sampled_from(PYTHON),
    st.sampled_from(LIBRARY),
)


def constant(id_: int, value: Any) -> n.Constant:
    """A constant of whatever type its value has."""
    if isinstance(value, tuple):
        floats = any(isinstance(item, float) for item in value)
        return n.Constant(id_, ConstantType.FLOAT32_LIST if floats else ConstantType.INT32_LIST, value)
    types = {type(None): 0, bool: 1, int: 2, float: 3, str: 4}
    return n.Constant(id_, ConstantType(types[type(value)]), value)


FITTING = {type(None): "c", bool: "bci", int: "iAfc", float: "fc", str: "sc", tuple: "Sc"}


@st.composite
def programs(draw: st.DrawFn) -> n.File:
    """A few calls of known operations with arguments of any kind."""
    names: list[str] = []
    signatures: dict[str, int] = {}
    constants: list[n.Constant] = []
    code = [Instruction(n.INPUT), Instruction(n.INPUT), Instruction(n.INPUT)]
    for index in range(3, 3 + draw(st.integers(1, 5))):
        codes, ids, offsets = "", list[int](), list[int]()
        for _ in range(draw(st.integers(0, 5))):
            if draw(st.booleans()):
                codes += draw(st.sampled_from("TTTQWi"))
                offsets.append(draw(st.integers(-index, -1)))
            else:
                value = draw(VALUES)
                codes += draw(st.sampled_from(FITTING[type(value)]))
                constants.append(constant(len(constants) + 2, value))
                ids.append(constants[-1].id)
                offsets.append(0)
        name = draw(NAMES)
        if name not in names:
            names.append(name)
        id_ = signatures.setdefault(codes, len(signatures) + 1)
        code.append(Instruction(100 + names.index(name), id_, tuple(ids), tuple(offsets)))
    code.append(Instruction(n.OUTPUT, 0, (), (-1,)))
    return n.File(
        header=n.Header(internal=True, inputs=3, outputs=1),
        operations=tuple(n.Operation(100 + place, name) for place, name in enumerate(names)),
        signatures=tuple(n.Signature(id_, codes) for codes, id_ in signatures.items()),
        constants=tuple(constants),
        instructions=tuple(code),
        inputs=tuple(n.Input(place, name) for place, name in enumerate(TYPES)),
    )


@given(programs())
def test_any_program_is_a_graph_or_findings(file: n.File) -> None:
    try:
        found = nac_to_graph(file, inputs=TYPES)
    except LamellaError as problem:
        assert_told(list(problem.findings))
        return
    assert not verify(found.model.graph, found.model.library)
    assert len(found.steps) == len(found.results) == len(file.instructions)


def mutants(data: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with a few of them changed."""
    change = st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255))

    def mutate(changes: list[tuple[int, int]]) -> bytes:
        found = bytearray(data)
        for place, value in changes:
            found[place] = value
        return bytes(found)

    return st.lists(change, min_size=1, max_size=4).map(mutate)


def seed() -> bytes:
    """The bytes of a small network."""
    file, findings = assemble(Source("mlp.nacs", GOOD.read_text(encoding="utf-8")))
    assert not errors(findings)
    return write(file)


@given(mutants(seed()))
def test_changed_bytes_are_a_graph_or_findings(data: bytes) -> None:
    file, findings = parse(data, "mutant.nac")
    if not errors(findings):
        assert_told(check_translation(file, {"x": InputType(F32, (1, 2))}))


@given(st.data())
def test_changed_fields_are_a_graph_or_findings(data: st.DataObject) -> None:
    file = perceptron()
    index = data.draw(st.integers(0, len(file.instructions) - 1))
    item = file.instructions[index]
    small = st.integers(-4, 9)
    changed = data.draw(
        st.sampled_from(
            [
                replace(
                    item, operation=data.draw(st.sampled_from([0, 2, 3, 6, 7, 11, 15, 17, 19, 201, 250]))
                ),
                replace(item, variant=data.draw(st.integers(0, 4))),
                replace(item, constants=tuple(data.draw(small) for _ in item.constants)),
                replace(item, offsets=tuple(data.draw(small) for _ in item.offsets)),
            ]
        )
    )
    code = (*file.instructions[:index], changed, *file.instructions[index + 1 :])
    inputs = {"x": InputType(data.draw(st.sampled_from([F32, F16, I64])), (5, 2))}
    assert_told(check_translation(replace(file, instructions=code), inputs))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("format", "graph", "inputs", "outputs", "extents", "origins", "constants", "other")
SHAPES = st.lists(
    st.sampled_from(["n", "2 * n", "((n + 1) / 2)", "n +", "", 3, -1, 1 << 70, None]), max_size=3
)
DESCRIBED = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "", "y"]),
        "dtype": st.sampled_from(["f32", "int64", "?", 3]),
        "shape": SHAPES,
    },
)


@given(st.dictionaries(st.sampled_from(KEYS), JSON | st.lists(DESCRIBED, max_size=2), max_size=8))
def test_any_notes_are_read_or_told(notes: dict[str, Any]) -> None:
    text = json.dumps({"format": 1, **notes}).encode()
    file = replace(
        program("%x = input()\n%z = output(%x)", "x"), resources=(n.Resource("lamella.json", text),)
    )
    assert_told(check_translation(file, {"x": TYPES["x"]}))


@given(st.binary(max_size=40) | st.sampled_from([b"[" * 100_000, b'{"format": 1' + b"1" * 5000 + b"}"]))
def test_any_bytes_of_notes_are_told(data: bytes) -> None:
    file = replace(
        assembled(".code\n%x = aten.ones.default:S([1])\n%z = output(%x)"),
        resources=(n.Resource("lamella.json", data),),
    )
    found = check_translation(file)
    assert [item.code for item in found] == ["NAC223"]


@pytest.mark.parametrize(
    ("key", "names", "problem"),
    [
        ("inputs", ["x"] * 2, "input 'x' is described twice"),
        ("outputs", ["y"] * 2, "output 'y' is described twice"),
        ("outputs", [f"y{number}" for number in range(1000)], "'outputs' has 1000 items"),
        ("states", [f"s{number}" for number in range(1000)], "'states' has 1000 items"),
    ],
)
def test_notes_speak_once_of_each_thing(key: str, names: list[str], problem: str) -> None:
    items = [{"name": name, "dtype": "f32", "shape": [2], "id": 1, "update": 1} for name in names]
    text = json.dumps({"format": 1, key: items}).encode()
    file = replace(
        program("%x = input()\n%z = output(%x, %x)", "x"), resources=(n.Resource("lamella.json", text),)
    )
    found = check_translation(file, {"x": TYPES["x"]})
    assert [item.code for item in found] == ["NAC223"]
    assert problem in found[0].message


def test_long_programs_take_as_long_as_they_are() -> None:
    def work(count: int) -> int:
        lines = "\n".join(f"%{k + 1} = nac.neg:T(%{k})" for k in range(count))
        file = program(f"%0 = input()\n{lines}\n%{count + 1} = output(%{count})", "x")
        return _calls(lambda: check_translation(file, {"x": TYPES["x"]}))

    few, many = work(50), work(500)
    assert many < 15 * few


def _calls(action: Callable[[], object]) -> int:
    """How many functions are called meanwhile."""
    count = 0

    def tell(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(tell)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_a_file_without_instructions_is_no_graph() -> None:
    with pytest.raises(LamellaError, match="NAC086"):
        nac_to_graph(n.File())
