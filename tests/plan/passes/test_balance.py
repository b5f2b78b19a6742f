"""DMA indices on transfers: spread by work, or left to the scheduler."""

from __future__ import annotations

from lamella.plan.passes.propose import balance, unpin
from tests.support.plan.passes.programs import read, reread

TEXT = """\
include "npm_lite.nem"

device npm_lite

buffer D : DDR (size=4096, import)
buffer X : L2 (size=4096)
buffer Y : L2 (size=4096)
buffer L : L1 (size=4096)

f = transfer.async(dst=X, src=D)
wait(f)
a = transfer.async(dst=region(L, 0, 2048), src=region(X, 0, 2048)){0}
b = transfer.async(dst=region(L, 2048, 256), src=region(X, 2048, 256)){1} @debug(small)
loop i in [0..3]:
    c = transfer.async(dst=region(L, i * 256 + 2304, 256), src=region(X, i * 256, 256)){2}
    wait(a, b, c)
    store.async(dst=region(Y, i * 512, 512), src=region(L, i * 512, 512)) @resource(CSTL[0])
endloop
"""


def pinned(*pins: str) -> str:
    return TEXT.format(*(f" @resource({pin})" if pin else "" for pin in pins))


def test_work_is_spread_the_largest_first() -> None:
    document, plan = read(pinned("", "", ""))
    text, _ = reread(balance(document, plan), plan)
    # a: 64 + 4 cycles, b: 8 + 4, c: four times 8 + 4.
    assert text == pinned("DMA[0]", "DMA[1]", "DMA[1]").replace(
        "@resource(DMA[1]) @debug(small)", "@debug(small) @resource(DMA[1])"
    )


def test_wishes_for_a_dma_are_removed_and_others_stay() -> None:
    document, plan = read(pinned("DMA[0]", "DMA[1]", "DMA[i mod 2]"))
    text, _ = reread(unpin(document, plan), plan)
    assert text == pinned("", "", "")


def test_nothing_to_do() -> None:
    document, plan = read(pinned("", "", ""))
    assert unpin(document, plan) is None
    document, plan = read(pinned("DMA[0]", "DMA[1]", "DMA[1]"))
    assert balance(document, plan) is None


def test_one_dma_needs_no_balance() -> None:
    own = """\
device one extends npm_lite {
    topology {
        num_engines = 1
        l2_size_bytes = 65536
        device_units {
            sDMA = 1
        }
        per_engine {
            NMU = 1
            CSTL = 1
            DMA = 1
            VPU = 1
            SEQ = 1
            l1_size_bytes = 65536
        }
    }
}

device one"""
    document, plan = read(pinned("", "", "").replace("device npm_lite", own))
    assert balance(document, plan) is None
