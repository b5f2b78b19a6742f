"""Plans from NEM text, for tests of what runs them."""

from __future__ import annotations

from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.nem import Plan, check


def plan_of(text: str) -> Plan:
    """The plan of a program without errors."""
    checked = check(Source("test.nem", text))
    assert not errors(checked.findings), [str(item) for item in checked.findings]
    assert checked.plan is not None
    return checked.plan


Q = "quant=per_tensor(scale={}, zero_point={})"

CONV_PIPELINE = f"""
buffer X_L2 : L2 (size=4 * 72)
buffer W_L2 : L2 (size=72)
buffer B_L2 : L2 (size=16)
buffer Y_L2 : L2 (size=4 * 64)
buffer X_L1 : L1 (size=2 * 72)
buffer W_L1 : L1 (size=72)
buffer Y_L1 : L1 (size=2 * 64)
let Bias = region(B_L2, 0, 16) elem=i32, shape=[4], layout=C @readonly
let W = region(W_L1, 0, 72) elem=i8, shape=[3, 3, 2, 4], layout=HWIO, {Q.format(0.02, 0)}
let Y = region(Y_L2, 0, 256) elem=i8, shape=[4, 4, 4, 4], layout=NHWC, {Q.format(0.1, 0)}
tw = transfer.async(dst=W, src=region(W_L2, 0, 72))
loop i in [0..3] @max_in_flight(2):
    let X = region(X_L1, (i mod 2) * 72, 72) elem=i8, shape=[1, 6, 6, 2], layout=NHWC, {Q.format(0.05, -3)}
    let Yt = region(Y_L1, (i mod 2) * 64, 64) elem=i8, shape=[1, 4, 4, 4], layout=NHWC, {Q.format(0.1, 0)}
    tx = transfer.async(dst=X, src=region(X_L2, i * 72, 72))
    tc = conv2d.async in X, W, Bias out Yt pads=[0, 0, 0, 0] strides=[1, 1] dilations=[1, 1] accum_type=i32
        deps=[tx, tw]
    tr = relu.async in Yt out Yt deps=[tc]
    store.async(dst=region(Y_L2, i * 64, 64), src=Yt, deps=[tr])
endloop
"""

RING = """
buffer A_L2 : L2 (size=8 * 24)
buffer B_L2 : L2 (size=32)
buffer Y_L2 : L2 (size=8 * 48)
buffer A_L1 : L1 (size=3 * 24)
buffer B_L1 : L1 (size=32)
buffer Y_L1 : L1 (size=3 * 48)
let B = region(B_L2, 0, 32) elem=f16, shape=[2, 8], layout=KN
let Bt = region(B_L1, 0, 32) elem=f16, shape=[2, 8], layout=KN
let Y = region(Y_L2, 0, 384) elem=f16, shape=[24, 8], layout=MN
tb = transfer.async(dst=Bt, src=B)
loop i in [0..7] @max_in_flight(3):
    let At = region(A_L1, (i mod 3) * 24, 12) elem=f16, shape=[3, 2], layout=MK
    let Yt = region(Y_L1, (i mod 3) * 48, 48) elem=f16, shape=[3, 8], layout=MN
    ta = transfer.async(dst=At, src=region(A_L2, i * 24, 12))
    tg = gemm.async in At, Bt out Yt accum_type=f32 deps=[ta, tb]
    ts = silu.async in Yt out Yt deps=[tg]
    store.async(dst=region(Y_L2, i * 48, 48), src=Yt, deps=[ts])
endloop
"""

NESTED = """
buffer X : DDR (size=96)
buffer Z : DDR (size=96)
buffer S : L1 (size=16)
loop i in [0..2] @max_in_flight(2):
    loop j in [0..3] @max_in_flight(2):
        let here = region(S, ((i mod 2) * 2 + j mod 2) * 4, 4) elem=i8, shape=[4], layout=C
        let there = region(Z, (i * 4 + j) * 8, 4) elem=i8, shape=[4], layout=C
        load = transfer.async(dst=here, src=region(X, (i * 4 + j) * 8, 4))
        twice = add.async in here, here out here deps=[load]
        wait(twice)
        store.sync(dst=there, src=here)
        again = neg.async in there out region(Z, (i * 4 + j) * 8 + 4, 4) elem=i8, shape=[4], layout=C
        wait(again)
    endloop
    mirror = abs.async in region(Z, i * 32, 32) elem=i8, shape=[32], layout=C
        out region(X, i * 32, 32) elem=i8, shape=[32], layout=C
    wait(mirror)
endloop
"""

PIPELINES = {"conv": CONV_PIPELINE, "ring": RING, "nested": NESTED}
