"""Weights stored by a codec: nothing is lost, hostile bytes are refused, a plan and its stream read the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.npu import compile_plan
from lamella.backend.npu.stream import compile_stream
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.source import Source
from lamella.lang.nem.codecs import BLOCK, CODECS, LINE, Codec
from lamella.lang.nem.resolved import Plan
from lamella.pipeline.nem.program import check_program
from lamella.plan.bind import bind
from lamella.plan.stcb import from_bytes, from_json, to_bytes, to_json
from lamella.plan.timing import simulate
from lamella.plan.wdm import best_codec, make_packable, pack, unpack

codecs = st.sampled_from(list(CODECS.values()))


@st.composite
def contents(draw: st.DrawFn) -> tuple[Codec, Array]:
    """A codec, and bytes that it can hold."""
    codec = draw(codecs)
    size = codec.width * draw(st.integers(1, 3 * BLOCK // codec.width))
    data = np.random.default_rng(draw(st.integers(0, 1000))).integers(0, 256, size, np.uint8)
    stored = draw(st.integers(codec.smallest(size), codec.largest(size)))
    return codec, make_packable(data, codec, stored)


@given(contents())
def test_packing_loses_nothing(case: tuple[Codec, Array]) -> None:
    codec, data = case
    stored = pack(data, codec)
    assert codec.smallest(data.size) <= stored.size <= codec.largest(data.size)
    assert stored.size % LINE == 0
    assert unpack(stored, codec, data.size).tobytes() == data.tobytes()


@given(contents(), st.integers(0, 1 << 20), st.integers(1, 255))
def test_changed_bytes_are_other_weights_or_refused(
    case: tuple[Codec, Array], place: int, change: int
) -> None:
    """No bytes make the decoder fail otherwise, and no two stored forms are the same weights."""
    codec, data = case
    stored = pack(data, codec)
    stored[place % stored.size] ^= change
    try:
        found = unpack(stored, codec, data.size)
    except InputError:
        return
    assert found.tobytes() != data.tobytes()


@given(codecs, st.integers(1, 6000), st.integers(0, 1000))
def test_any_bytes_are_refused_or_weights(codec: Codec, size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    stored = random.integers(0, 256, random.integers(0, 2 * size + 200), np.uint8)
    with pytest.raises(InputError):
        unpack(stored, codec, size)


def test_a_block_is_what_the_page_says() -> None:
    data = np.array([3, 0, 0, 7, 3, 0, 0, 0, 7], np.uint8)
    stored = pack(data, CODECS["shared2_sparse"])
    head = bytes([*b"LWDM", 1, 2, 3, 0, 9, *bytes(7)])
    index = bytes([1, 0])
    block = bytes([0b00011001, 0b1, 3, 7, 0, 0, 0b01_00_01_00])
    assert stored.tobytes() == head.ljust(64, b"\0") + index.ljust(64, b"\0") + block.ljust(64, b"\0")
    signed = np.array([-8, 7, -1], np.int8).view(np.uint8)
    assert pack(signed, CODECS["int4"])[64:67].tolist() == [0x78, 0x0F, 0]


def test_what_a_codec_cannot_hold_is_refused() -> None:
    many = np.arange(64, dtype=np.uint8)
    with pytest.raises(InputError, match="64 different elements, and shared5 tells 32 apart"):
        pack(many, CODECS["shared5"])
    with pytest.raises(InputError, match="outside -8 to 7"):
        pack(many, CODECS["int4"])
    with pytest.raises(InputError, match="no whole elements"):
        pack(many[:3], CODECS["sparse_16"])


def test_the_best_codec_is_the_smallest() -> None:
    random = np.random.default_rng(0)
    small = random.integers(-8, 8, 40960, np.int8).view(np.uint8)
    thin = np.where(random.random(40960) < 0.1, random.integers(0, 256, 40960), 0).astype(np.uint8)
    noise = random.integers(0, 256, 40960, np.uint8)
    found = best_codec(small), best_codec(thin), best_codec(noise)
    assert found[0] is not None
    assert found[0][0].name == "int4"
    assert found[1] is not None
    assert found[1][0].name == "sparse"
    assert found[2] is None


# --- plans ---------------------------------------------------------------------------------------------------


def plan_with(codec: str, device: str = "npm_pro", stored: int | None = None) -> Plan:
    """Three blocks and a short one, read whole and block by block."""
    limit = "" if stored is None else f", stored={stored}"
    how = f", codec={codec}{limit}" if codec else ""
    text = f"""
    device "{device}.nem"
    buffer W : DDR (size=7000, align=64, import{how})
    buffer A : L2 (size=7000, align=64)
    buffer B : L2 (size=6144, align=64)
    all = transfer.async(dst=A, src=W)
    loop i in [0..2] @max_in_flight(3):
        transfer.async(dst=region(B, i * 2048, 2048), src=region(W, i * 2048, 2048))
    endloop
    wait(all)
    """
    program = check_program(Source("plan", text))
    assert program.plan is not None, program.findings
    return program.plan


@pytest.mark.parametrize("codec", ["shared3", "sparse", "int4_sparse", "shared5_16", "sparse_16"])
def test_a_plan_and_its_stream_read_stored_weights(codec: str) -> None:
    plan, how = plan_with(codec), CODECS[codec]
    data = make_packable(np.random.default_rng(1).integers(0, 256, 7000, np.uint8), how, how.largest(7000))
    expected = {"A": data.tobytes(), "B": data[:6144].tobytes()}
    stream, findings = bind(plan)
    assert stream is not None, findings
    again = from_bytes(to_bytes(stream))
    assert again == stream == from_json(to_json(stream))
    for weights in (data, pack(data, how)):
        for run in (compile_plan(plan), compile_stream(again, order="random")):
            found = run(W=weights)
            assert {name: found[name].tobytes() for name in expected} == expected


def test_random_weights_can_be_stored() -> None:
    plan = plan_with("sparse", stored=2000)
    first, second = compile_plan(plan, seed=3)(), compile_plan(plan, seed=3)()
    assert first["A"].tobytes() == second["A"].tobytes()
    assert pack(first["A"], CODECS["sparse"]).size <= 2000


def test_weights_that_do_not_fit_are_refused() -> None:
    data = np.random.default_rng(1).integers(0, 256, 7000, np.uint8)
    for plan, weights in (
        (plan_with("shared4"), data),
        (plan_with("sparse", stored=2000), data),
        (plan_with("shared4"), data[:1000]),
    ):
        with pytest.raises(LamellaError) as caught:
            compile_plan(plan)(W=weights)
        assert [item.code for item in caught.value.findings] == ["NEM199"]


@pytest.mark.parametrize("device", ["npm_pro", "npm_lite"])
def test_a_seed_gives_a_plan_and_its_stream_the_same_weights(device: str) -> None:
    plan = plan_with("shared2", device)
    stream, _ = bind(plan)
    assert stream is not None
    assert compile_plan(plan, seed=5)()["A"].tobytes() == compile_stream(stream, seed=5)()["A"].tobytes()


def test_without_wdm_nothing_is_stored_otherwise() -> None:
    plan, data = plan_with("shared4", "npm_lite"), np.arange(7000, dtype=np.uint16).view(np.uint8)[:7000]
    assert compile_plan(plan)(W=data)["A"].tobytes() == data.tobytes()
    stream, _ = bind(plan)
    assert stream is not None
    assert [place.codec for place in stream.memory] == [""] * 3
    assert simulate(plan).cycles == simulate(plan_with("", "npm_lite")).cycles


def test_stored_bytes_are_what_crosses_the_link() -> None:
    plain, packed = (plan_with(codec) for codec in ("", "shared4"))
    stored = CODECS["shared4"].largest(7000)
    costs = [task.work for task in simulate(packed).tasks]
    assert costs == [stored, -(-2048 * stored // 7000)]
    assert simulate(packed).cycles < simulate(plain).cycles
