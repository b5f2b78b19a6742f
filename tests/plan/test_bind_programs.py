"""Binding whole programs: the same bytes as the program, placed where it says, refused where it cannot be done."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lamella.backend.npu import compile_plan
from lamella.backend.npu.stream import compile_stream
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT
from lamella.lang.nem.resolved import Plan
from lamella.pipeline.nem.program import read_program
from lamella.plan.bind import bind
from lamella.plan.stcb import list_stream
from lamella.plan.stcb.json import from_json, to_json
from tests.lang.nem.test_programs import read_repaired, teaching
from tests.support.plan.binding import EXAMPLES, Bound, bind_plan, device_text, equals_program, read, same

BAD = Path(__file__).parents[1] / "lang" / "nem" / "bad" / "bind"
EXPECT = re.compile(r"#\s*expect\s+((?:NEM\d{3}[ ,]*)+)")
PIPELINE = """
buffer S : L2 (size=2048)
buffer D : L2 (size=2048)
buffer A : L1 (size=1024)
loop i in [0..7] @max_in_flight({window}):
    let X = region(A, (i mod {window}) * 256, 256) elem=f16, shape=[8, 16], layout=MN
    t = transfer.async(dst=X, src=region(S, i * 256, 256)) {load}
    r = {op}.async in X out X deps=[t] {unit}
    store.async(dst=region(D, i * 256, 256), src=X, deps=[r])
endloop
"""


def pipeline(tmp_path: Path, device: str, **parts: object) -> Bound:
    given = {"window": 4, "load": "", "op": "gelu", "unit": ""} | parts
    return bind_plan(read(device + PIPELINE.format(**given), tmp_path))


def units(bound: Bound, op: str) -> list[str]:
    return [str(record.unit) for _, record in bound.stream.records() if record.op == op]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.nem")), ids=lambda path: path.stem)
def test_examples_give_the_same_bytes(path: Path) -> None:
    program = read_program(path)
    assert program.plan is not None
    bound = bind_plan(program.plan)
    assert equals_program(bound)
    read_back = from_json(to_json(bound.stream))
    assert read_back == bound.stream
    assert same(compile_plan(program.plan, seed=3)(), compile_stream(read_back, seed=3)())


def test_binding_twice_gives_the_same_text() -> None:
    program = read_program(EXAMPLES / "ring_cstl.nem")
    assert program.plan is not None
    assert to_json(bind_plan(program.plan).stream) == to_json(bind_plan(program.plan).stream)


@pytest.mark.parametrize("path", sorted(BAD.glob("*.nem")), ids=lambda path: path.stem)
def test_wrong_programs_have_the_findings_they_announce(path: Path) -> None:
    program = read_program(path)
    assert program.plan is not None
    _, findings = bind(program.plan)
    wanted: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(program.source.text.splitlines(), 1):
        for match in EXPECT.finditer(line):
            wanted.update((number, code) for code in re.findall(r"NEM\d{3}", match[1]))
    assert Counter((item.span.line, item.code) for item in [*program.findings, *findings]) == wanted


@pytest.mark.parametrize("path", teaching(BAD), ids=lambda path: path.stem)
def test_repaired_programs_are_bound(path: Path) -> None:
    program = read_repaired(path)
    assert program.plan is not None
    stream, findings = bind(program.plan)
    assert stream is not None
    assert not [*program.findings, *findings]


@pytest.mark.parametrize("path", sorted(BAD.glob("*.json")), ids=lambda path: path.stem)
def test_wrong_streams_are_refused(path: Path) -> None:
    with pytest.raises(LamellaError) as caught:
        from_json(path.read_text(encoding="utf-8"))
    assert [finding.code for finding in caught.value.findings] == ["NEM188"]


@pytest.mark.parametrize("window", [1, 2, 3, 4])
@pytest.mark.parametrize("tokens", [4, 8, 16])
def test_rings_give_the_same_bytes(tmp_path: Path, window: int, tokens: int) -> None:
    assert equals_program(pipeline(tmp_path, device_text(tokens=tokens, CSTL=4), window=window))


def test_resources_are_taken_exactly(tmp_path: Path) -> None:
    bound = pipeline(tmp_path, device_text(CSTL=4), unit="@resource(CSTL[i mod 4])", load="@resource(DMA[1])")
    assert units(bound, "gelu") == ["CSTL0A", "CSTL1A", "CSTL2A", "CSTL3A"] * 2
    assert units(bound, "transfer") == ["DMA1"] * 8
    assert not bound.findings


def test_fewer_units_are_shared(tmp_path: Path) -> None:
    bound = pipeline(tmp_path, device_text(CSTL=2), unit="@resource(CSTL[i mod 4])")
    assert units(bound, "gelu") == ["CSTL0A", "CSTL1A"] * 4
    assert bound.codes == ["NEM115", "NEM115"]
    assert equals_program(bound)


def test_a_missing_unit_type_is_translated(tmp_path: Path) -> None:
    bound = pipeline(tmp_path, device_text(CSTL=0))
    assert units(bound, "gelu") == ["VPU0"] * 8
    assert units(bound, "store") == ["VPU0"] * 8
    assert equals_program(bound)


def test_moves_are_translated_too(tmp_path: Path) -> None:
    bound = pipeline(tmp_path, device_text(CSTL=0, DMA=0, sDMA=0), load="@deterministic")
    assert {str(record.unit) for _, record in bound.stream.records()} == {"VPU0", "SEQ0"}
    assert equals_program(bound)


def test_free_tasks_are_balanced(tmp_path: Path) -> None:
    bound = pipeline(tmp_path, device_text(CSTL=2, DMA=2))
    assert Counter(units(bound, "transfer")) == {"DMA0": 4, "DMA1": 4}
    assert Counter(units(bound, "gelu")) == {"CSTL0A": 4, "CSTL1A": 4}
    assert Counter(units(bound, "store")) == {"CSTL0B": 4, "CSTL1B": 4}


MOVES = """
buffer W : DDR (size=4096, import)
buffer I : DDR (size=4096)
buffer M : L2 (size=8192)
buffer A : L1 (size=4096)
a = transfer.async(dst=region(M, 0, 4096), src=W)
b = transfer.async(dst=region(M, 4096, 4096), src=I)
c = transfer.async(dst=A, src=region(M, 0, 4096), deps=[a])
wait(b, c)
"""


@pytest.mark.parametrize("count", [0, 2])
def test_weights_take_the_path_through_wdm(tmp_path: Path, count: int) -> None:
    bound = bind_plan(read(device_text(WDM=count, sDMA=2) + MOVES, tmp_path))
    paths = [(str(record.unit), record.path) for _, record in bound.stream.records()][:3]
    wanted = "wdm" if count else "plain"
    assert paths == [("SDMA0", wanted), ("SDMA1", "plain"), ("DMA0", "plain")]
    assert equals_program(bound)


def test_tasks_without_an_engine_are_spread(tmp_path: Path) -> None:
    moves = "".join(
        f"transfer.async(dst=region(M, {64 * i}, 64), src=region(N, {64 * i}, 64))\n" for i in range(8)
    )
    text = f"buffer M : L2 (size=512)\nbuffer N : L2 (size=512)\n{moves}"
    bound = bind_plan(read(device_text(engines=4) + text, tmp_path))
    assert [len(records) for records in bound.stream.engines] == [3, 3, 3, 3]
    pinned = bind_plan(
        read(
            device_text(engines=4) + text.replace("src=", "src=").replace("64))\n", "64)) @seq_engine(2)\n"),
            tmp_path,
        )
    )
    assert [len(records) for records in pinned.stream.engines] == [1, 1, 9, 1]


def test_future_opcodes_need_a_word(tmp_path: Path) -> None:
    text = """
buffer M : L1 (size=4096)
X = region(M, 0, 48) elem=f16, shape=[4, 6], layout=MK
S = region(M, 2048, 12) elem=f16, shape=[6], layout=C
reduce_sum.sync in X out S axes=[0] keepdims=false
"""
    plan = read(device_text() + text, tmp_path)
    assert [finding.code for finding in bind(plan)[1]] == ["NEM181"]
    stream, findings = bind(plan, allow_future=True)
    assert stream is not None
    assert not findings
    assert equals_program(Bound(plan, stream, findings))


def test_a_device_can_be_given(tmp_path: Path) -> None:
    plan = read(device_text("mine") + MOVES, tmp_path)
    stream, _ = bind(replace(plan, device=None), plan.device)
    assert stream == bind(plan)[0]
    assert stream is not None
    assert stream.device == "mine"


def test_too_many_instances_are_refused(tmp_path: Path) -> None:
    plan = read(device_text() + PIPELINE.format(window=2, load="", op="gelu", unit=""), tmp_path)
    stream, findings = bind(plan, limits=replace(DEFAULT, max_records=23))
    assert stream is None
    assert [finding.code for finding in findings] == ["NEM176"]


def test_deterministic_is_kept_where_it_can_be(tmp_path: Path) -> None:
    bound = pipeline(tmp_path, device_text(), unit="@deterministic")
    assert not bound.findings
    assert equals_program(bound)


def test_names_tags_and_places_are_in_the_stream(tmp_path: Path) -> None:
    bound = pipeline(tmp_path, device_text(), load="@debug(fetch) @profile(moves)", window=1)
    value = json.loads(to_json(bound.stream))
    origin = value["engines"][0]["stream"][0]["origin"]
    assert origin == {"line": 25, "iteration": {"i": 0}, "token": "t", "debug": "fetch", "profile": "moves"}
    lines = list(list_stream(bound.stream))
    assert "line 25 i=0 t fetch moves" in next(line for line in lines if "transfer" in line)
    assert len(lines) == 1 + 2 + 3 + 1 + 25


def test_giant_devices_are_refused(tmp_path: Path) -> None:
    wide = bind(read(device_text(engines=1000) + MOVES, tmp_path))
    assert wide[0] is None
    assert [finding.code for finding in wide[1]] == ["NEM188"]
    pins = PIPELINE.replace("[0..7]", "[0..599]").replace("i * 256", "(i mod 8) * 256")
    text = device_text(CSTL=1000) + pins.format(window=4, load="", op="gelu", unit="@resource(CSTL[i])")
    plan = read_lax(text, tmp_path)
    assert [finding.code for finding in bind(plan)[1]] == ["NEM188"]


def read_lax(text: str, folder: Path) -> Plan:
    """A plan whatever its hazards are."""
    path = folder / "lax.nem"
    path.write_text(text, encoding="utf-8")
    plan = read_program(path).plan
    assert plan is not None
    return plan


def test_overlapping_moves_say_so(tmp_path: Path) -> None:
    text = "buffer M : L2 (size=512)\ntransfer.sync(dst=region(M, 64, 256), src=region(M, 0, 256)) @memmove\n"
    bound = bind_plan(read(device_text() + text, tmp_path))
    assert [record.memmove for _, record in bound.stream.records()] == [True, False]
    assert equals_program(bound)
