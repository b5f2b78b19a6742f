"""Buffers against the memories of a device."""

from __future__ import annotations

from lamella.lang.nem.resolved import Buffer
from lamella.plan.verify import check_capacity
from tests.support.plan.build import Builder, buffer, device


def findings(*buffers: Buffer, l1: int = 1000, l2: int = 1000, engines: int = 2) -> list[tuple[str, str]]:
    build = Builder(buffers=list(buffers))
    found = check_capacity(build.plan([], device(l1, l2, engines)))
    return [(finding.code, finding.message) for finding in found]


def test_full_is_not_too_full() -> None:
    assert findings(buffer("A", 1000), buffer("B", 1000, "L1[0]"), buffer("C", 1000, "L1[1]")) == []


def test_one_byte_too_many() -> None:
    ((code, message),) = findings(buffer("A", 600), buffer("B", 401))
    assert code == "NEM130"
    assert message == "buffers in L2 need 1001 bytes but test has 1000: 1 too many"


def test_every_engine_has_its_own_l1() -> None:
    ((code, message),) = findings(
        buffer("A", 600, "L1[1]"), buffer("B", 401, "L1[1]"), buffer("C", 900, "L1[0]")
    )
    assert code == "NEM130"
    assert message.startswith("buffers in L1[1] need 1001 bytes")


def test_ddr_has_no_limit_and_other_engines_are_not_ours() -> None:
    assert findings(buffer("A", 1 << 50, "DDR"), buffer("B", 5000, "L1[7]")) == []


def test_padding_alone() -> None:
    ((code, message),) = findings(buffer("A", 400, align=512), buffer("B", 400, align=512), l2=900)
    assert code == "NEM131"
    assert message == "alignment alone makes L2 overflow: 912 bytes with padding, 900 available"


def test_padding_that_another_order_avoids() -> None:
    assert findings(buffer("A", 1), buffer("B", 512, align=512), l2=600) == []


def test_no_device_no_limit() -> None:
    assert list(check_capacity(Builder(buffers=[buffer("A", 1 << 50)]).plan([]))) == []
