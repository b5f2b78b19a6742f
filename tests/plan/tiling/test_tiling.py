"""Tiled plans: legal, with the bytes of the selected plan, never below a bound, readable."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.backend.npu import compile_plan
from lamella.backend.npu.stream import compile_stream
from lamella.base.arrays import Array
from lamella.base.diagnostic import WARNING
from lamella.base.errors import Unsupported
from lamella.base.source import Source
from lamella.lang.nem import Plan, check, parse, write
from lamella.lang.nem.codecs import CODECS
from lamella.lang.nem.words import MOVES
from lamella.plan.bind import bind
from lamella.plan.stcb import from_bytes, to_bytes
from lamella.plan.tiling import Tiled, TilingOptions, stripes, tile
from lamella.plan.tiling.choice import COLD_TACTICS, TACTICS, Tactic
from lamella.plan.timing import simulate
from lamella.plan.timing.cost import MachineModel, cost_of
from lamella.plan.timing.network_bounds import find_network_bounds
from lamella.plan.verify import verify
from lamella.plan.wdm import make_packable
from tests.support.plan.drawn import device, images, rows
from tests.support.plan.selected import Selected, drawn_bytes, read_text, same_bytes, tiled_plan

EVERY = (*TACTICS, *COLD_TACTICS)
NPU_2048 = """include "nem_baseline_1.0.nem"
device npu2048 extends nem_baseline_1_0 {
    topology {
        num_engines = 1
        l2_size_bytes = L2
        device_units { sDMA = 1 WDM = 0 }
        per_engine { NMU = 1 CSTL = 2 DMA = 4 VPU = 1 SEQ = 1 l1_size_bytes = 393216 }
    }
    unit_characteristics {
        NMU { int8_macs = 2048 }
        sDMA { bytes_per_cycle = 16 latency = 100 }
        DMA { bytes_per_cycle = 32 }
        CSTL { bytes_per_cycle = 32 }
        SEQ { max_active_tokens = 16 }
    }
}
device npu2048"""


def residual(target: str, size: int = 32, width: int = 16, seed: int = 0) -> Selected:
    """A small residual network with a classifier."""
    net = Selected(device=target, seed=seed)
    y = net.conv(net.tensor("i8", (1, size, size, 3), name="x"), width, 3, 1, 1)
    for stage in range(3):
        channels = width << stage
        z = net.conv(net.conv(y, channels, 3, 1 + (stage > 0), 1), channels, 3, 1, 1)
        y = net.add(z, y if y.shape == z.shape else net.conv(y, channels, 1, 2, 0))
    y = net.pool(y, "avgpool", y.shape[1], y.shape[1])
    flat = net.tensor("i8", (1, y.shape[-1]), quant=net.quants[y.name])
    net.linear(net.task("reshape", [y], flat, f"target_shape={list(flat.shape)}"), 40)
    return net


def roofs(net: Selected) -> int:
    """The largest roof of a selected plan on its device: work over peak, and bytes of weights over DDR."""
    plan = net.plan()
    machine = MachineModel(plan.device)
    busy: dict[str, float] = {}
    for task in plan.tasks():
        cost = cost_of(task, machine)
        busy[cost.unit] = busy.get(cost.unit, 0) + cost.work / cost.rate / machine.total(
            cost.unit, machine.engines
        )
    weights = sum(buffer.size for buffer in plan.buffers if buffer.imported)
    busy["DDR"] = weights / (machine.value("sDMA", "bytes_per_cycle", 16) * machine.total("sDMA", 1))
    return int(max(busy.values()))


@pytest.mark.parametrize("seed", range(60))
def test_drawn_plans_keep_their_bytes_on_drawn_devices(seed: int) -> None:
    random = np.random.default_rng(seed)
    target = device(random, 8192)
    net = (images if seed % 2 else rows)(random, target, seed)
    plan = net.plan()
    tiled, result, _ = tiled_plan(plan, tactics=(EVERY[seed % len(EVERY)],))
    same_bytes(plan, tiled, result, seed, "random" if seed % 3 == 0 else "program")
    assert simulate(result).cycles >= roofs(net)


@pytest.mark.parametrize("name", ["npm_lite", "npm_mid", "npm_pro"])
def test_a_network_is_tiled_for_every_device(name: str) -> None:
    net = residual(f'include "{name}.nem"\ndevice {name}')
    plan = net.plan()
    tiled, result, text = tiled_plan(plan)
    same_bytes(plan, tiled, result, order="random:5")
    assert write(parse(Source("again.nem", text)).document) == text
    findings = [*check(Source("again.nem", text)).findings, *verify(result)]
    assert [item for item in findings if item.severity in ("error", WARNING)] == []
    report = simulate(result)
    assert not report.forced
    assert roofs(net) <= report.cycles
    assert {"DDR", "L2"} == {item.level for item in report.traffic}


@pytest.mark.parametrize("l2", [1048576, 524288])
def test_one_convolution_is_near_its_bounds(l2: int) -> None:
    net = Selected(device=NPU_2048.replace("L2", str(l2)))
    net.conv(net.tensor("i8", (1, 64, 16, 64), name="x"), 128, 3, 1, 0)
    plan = net.plan()
    tiled, result, _ = tiled_plan(plan)
    same_bytes(plan, tiled, result)
    report = simulate(result)
    compulsory = sum(buffer.size for buffer in plan.buffers)
    moved = next(item.moved for item in report.traffic if item.level == "DDR")
    assert moved <= 1.1 * compulsory
    assert 31_248 <= report.cycles <= 1.1 * 31_248


def test_engines_share_the_work() -> None:
    fast = """include "npm_pro.nem"
device fast extends npm_pro { unit_characteristics { sDMA { bytes_per_cycle = 128 } NMU { int8_macs = 512 } } }
device fast"""
    cycles = []
    for engines in (1, 2, 4):
        net = residual(fast, size=48, width=32)
        plan = net.plan()
        tiled, result, _ = tiled_plan(plan, engines, TACTICS[:1])
        same_bytes(plan, tiled, result)
        cycles.append(simulate(result).cycles)
    assert cycles[0] > 1.4 * cycles[1] > 1.8 * cycles[2]


@pytest.mark.parametrize("seed", range(8))
def test_weights_that_codecs_store_are_the_same_bytes(seed: int) -> None:
    """Weights of 4 bits, shared ones and sparse ones, on devices with WDM: fewer bytes cross DDR, none is lost."""
    random = np.random.default_rng(700 + seed)
    target = device(random, 8192).replace("WDM = 0", f"WDM = {1 + seed % 3}")
    net = (images if seed % 2 else rows)(random, target, seed)
    y = net.linear(net.tensor("i8", (6, 96), name="last"), 200)
    net.linear(y, 120)
    plan = net.plan()
    raw = drawn_bytes(plan, seed)
    codec = [item for item in CODECS.values() if item.width == 1][seed % 10]
    for region in plan.regions.values():
        name, size = region.buffer.name, region.buffer.size
        if region.buffer.imported and region.type is not None and region.type.elem in ("i8", "i4"):
            raw[name] = make_packable(raw[name], codec, codec.largest(size) * 2 // 3)
        elif region.buffer.imported and region.type is not None and region.type.elem == "f16":
            raw[name] = random.choice([0, 0, 0.5, -1.25], size // 2).astype(np.float16).view(np.uint8)
    tactics = (TACTICS[seed % len(TACTICS)],)
    plain = simulate(tiled_plan(plan, tactics=tactics)[1])
    tiled, result, _ = tiled_plan(plan, tactics=tactics, arrays=raw)
    same_bytes(plan, tiled, result, seed, "random" if seed % 3 == 0 else "program", raw)
    report = simulate(result)
    assert report.cycles <= plain.cycles
    if tiled.packing.coded:
        assert report.moved("DDR") < plain.moved("DDR")
        network = find_network_bounds(plan, plan.device, arrays=raw)
        assert network.largest.cycles <= report.cycles
        assert network.compulsory <= report.moved("DDR")
        _same_stream(result, tiled, raw)
    assert tiled.packing.coded or seed not in (0, 3, 4)


def _same_stream(result: Plan, tiled: Tiled, raw: dict[str, Array]) -> None:
    """What is bound gives the bytes of the plan."""
    stream, found = bind(result)
    assert stream is not None, found
    runs = [compile_plan(result), compile_stream(from_bytes(to_bytes(stream)))]
    given = {**{name: raw[name] for name in runs[0].inputs if name in raw}, **tiled.pack(raw)}
    one, other = (run(**given) for run in runs)
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_less_memory_costs_time_and_not_the_plan() -> None:
    cycles = []
    for l1 in (65536, 32768, 16384, 8192):
        target = NPU_2048.replace("L2", "262144").replace("393216", str(l1))
        net = Selected(device=target)
        y = net.conv(net.tensor("i8", (1, 24, 24, 16), name="x"), 32, 3, 1, 1)
        net.add(net.conv(y, 32, 3, 1, 1), y)
        plan = net.plan()
        tiled, result, _ = tiled_plan(plan, tactics=TACTICS[:1])
        same_bytes(plan, tiled, result)
        assert all(item.l1_bytes <= l1 for item in tiled.stages)
        cycles.append(simulate(result).cycles)
    assert cycles[-1] >= cycles[0]


def test_activations_that_do_not_fit_pass_through_ddr() -> None:
    small, large = (
        Selected(device=NPU_2048.replace("L2", l2).replace("393216", "32768")) for l2 in ("49152", "1048576")
    )
    moved = []
    for net in (small, large):
        y = net.conv(net.tensor("i8", (1, 32, 32, 8), name="x"), 32, 3, 1, 1)
        net.conv(net.conv(y, 32, 3, 1, 1), 8, 1, 1, 0)
        plan = net.plan()
        tiled, result, _ = tiled_plan(plan, tactics=TACTICS[:1])
        same_bytes(plan, tiled, result)
        moved.append(next(item.moved for item in simulate(result).traffic if item.level == "DDR"))
    assert moved[0] > moved[1]


STRIPES = (Tactic(False, 0.8, stripes=True),)


@pytest.mark.parametrize("seed", range(24))
def test_stages_that_are_joined_keep_their_bytes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    priced = stripes._price
    # Whatever fits is joined, whether it pays or not.
    monkeypatch.setattr(
        stripes, "_price", lambda net, own, machine: priced(net, own, machine) / len(own) ** 9
    )
    random = np.random.default_rng(1000 + seed)
    target = device(random, 8192)
    net = (images if seed % 4 else rows)(random, target, seed)
    plan = net.plan()
    tiled, result, _ = tiled_plan(plan, tactics=STRIPES)
    same_bytes(plan, tiled, result, seed, "random" if seed % 3 == 0 else "program")


def test_an_expanded_tensor_is_never_stored() -> None:
    """Expand, depthwise, project and add, as in mobile networks: one stage, and less time than in four."""
    cycles = []
    for tactics in (TACTICS[:1], STRIPES):
        net = Selected(device=NPU_2048.replace("L2", "65536").replace("393216", "65536"))
        x = net.tensor("i8", (1, 24, 24, 16), name="x")
        wide = net.conv(net.conv(x, 96, 1, 1, 0), 96, 3, 1, 1, weights="each")
        net.add(net.conv(wide, 16, 1, 1, 0), x)
        plan = net.plan()
        tiled, result, _ = tiled_plan(plan, tactics=tactics)
        same_bytes(plan, tiled, result)
        report = simulate(result)
        cycles.append((len(tiled.stages), report.cycles, report.moved("DDR")))
    (parts, apart, moved), (one, joined, less) = cycles
    assert (parts, one) == (3, 1)
    assert joined < apart
    assert less < moved


def test_what_fits_nowhere_is_refused_with_its_size() -> None:
    net = Selected(device=NPU_2048.replace("L2", "1048576").replace("393216", "512"))
    net.conv(net.tensor("i8", (1, 8, 64, 64), name="x"), 8, 3, 1, 1)
    plan = net.plan()
    assert plan.device is not None
    with pytest.raises(
        Unsupported, match=r"conv2d_t4 needs 1216 bytes of L1 for the smallest part.* has 512"
    ):
        tile(plan, plan.device, TilingOptions())


@pytest.mark.parametrize("target", ["npm_lite", "npm_pro"])
def test_tasks_belong_to_tasks_of_the_selected_plan(target: str) -> None:
    plan = residual(f'include "{target}.nem"\ndevice {target}').plan()
    found, result, _ = tiled_plan(plan)
    opcodes = {task.number: task.opcode for task in plan.tasks()}
    for task, origin in zip(result.tasks(), found.origins, strict=True):
        assert task.opcode in (*MOVES, opcodes[origin])
    assert set(found.origins) == opcodes.keys()


@pytest.mark.parametrize("target", ["npm_lite", "npm_mid", "npm_pro"])
def test_small_networks_wait_for_ddr_once(target: str) -> None:
    net = Selected(device=f'include "{target}.nem"\ndevice {target}')
    y = net.tensor("i8", (1, 8, 8, 1), name="x")
    for channels in (16, 32):
        y = net.pool(net.conv(y, channels, 3, 1, 1), "maxpool", 2, 2)
    flat = net.tensor("i8", (1, 128), quant=net.quants[y.name])
    net.linear(net.task("reshape", [y], flat, f"target_shape={list(flat.shape)}"), 10)
    plan = net.plan()
    assert simulate(tiled_plan(plan)[1]).cycles <= 1.25 * find_network_bounds(plan).largest.cycles


def test_images_that_give_one_row_each_share_tiles() -> None:
    net = Selected()
    net.pool(net.tensor("i8", (360, 4, 4, 8), name="x"), "maxpool", 4, 4)
    plan = net.plan()
    found, result, _ = tiled_plan(plan)
    assert simulate(result).instances < 60
    same_bytes(plan, found, result)


@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 1, 1), (5, 2, 2), (1, 1, 0), (4, 3, 1)])
def test_rows_that_are_too_wide_are_cut_into_columns(kernel: int, stride: int, pad: int) -> None:
    net = Selected(device=NPU_2048.replace("L2", "1048576").replace("393216", "4096"))
    y = net.conv(net.tensor("i8", (1, 7, 211, 16), name="x"), 8, kernel, stride, pad)
    net.pool(net.conv(y, 32, 1, 1, 0), "avgpool", 2, 1, 1)
    plan = net.plan()
    found, result, _ = tiled_plan(plan, tactics=TACTICS[:1])
    same_bytes(plan, found, result)
    assert set(found.origins) == {task.number for task in plan.tasks()}


def test_tiles_in_the_middle_have_the_most_rows_under_them() -> None:
    net = Selected(device=NPU_2048.replace("L2", "1048576").replace("393216", "40960"))
    net.conv(net.tensor("i8", (1, 16, 96, 32), name="x"), 8, 9, 1, 4)
    plan = net.plan()
    found, result, _ = tiled_plan(plan, tactics=TACTICS[:1])
    same_bytes(plan, found, result)


def test_long_vectors_are_divided() -> None:
    net = Selected(device=NPU_2048.replace("L2", "1048576").replace("393216", "8192"))
    net.unary("relu", net.tensor("i8", (1, 3 * 5 * 7 * 1024), name="x"))
    plan = net.plan()
    found, result, _ = tiled_plan(plan, tactics=TACTICS[:1])
    same_bytes(plan, found, result)


def test_a_tiled_plan_is_not_tiled_again() -> None:
    net = Selected()
    net.unary("relu", net.tensor("i8", (64, 4096), name="x"))
    _, result, text = tiled_plan(net.plan())
    assert "loop" in text
    assert result.device is not None
    with pytest.raises(Unsupported, match="tiled already"):
        tile(result, result.device)


def test_names_of_the_model_stay_its_own() -> None:
    net = Selected()
    x = net.tensor("i8", (64, 4096), name="i")
    net.linear(net.unary("relu", x), 8)
    text = net.text().replace("t2", "weights").replace("t3", "l2").replace("t5", "l1_0")
    plan = read_text(text)
    tiled, result, _ = tiled_plan(plan)
    same_bytes(plan, tiled, result)


def test_a_view_in_another_order_is_no_tile_of_the_same_bytes() -> None:
    """A cast that reads by strides what another cast wrote: both have the same bytes, in another order."""
    text = """device "npm_lite.nem"
program turned:
buffer x_ddr : DDR (size=4096)
buffer made_ddr : DDR (size=8192)
buffer y_ddr : DDR (size=4096)
let x = region(x_ddr, 0, 4096) elem=f16, shape=[32, 4, 16], layout=ROWS
let made = region(made_ddr, 0, 8192) elem=f32, shape=[32, 4, 16], layout=ROWS
let turned = region(made_ddr, 0, 8192) elem=f32, shape=[4, 32, 16], strides=[16, 64, 1]
let y = region(y_ddr, 0, 4096) elem=f16, shape=[4, 32, 16], layout=ROWS
one = cast.async in x out made
cast.async in turned out y deps=[one]
"""
    plan = read_text(text)
    tiled, result, _ = tiled_plan(plan)
    same_bytes(plan, tiled, result)


def test_rows_of_two_images_are_no_tile_of_one() -> None:
    """What reads the rows of a convolution may take those of all images at once; the convolution cannot."""
    net = Selected()
    y = net.conv(net.tensor("f16", (2, 5, 6, 4), name="x"), 8)
    net.task("transpose", [y], net.tensor("f16", (2, 5, 8, 6)), "perm=[0, 1, 3, 2]")
    plan = net.plan()
    tiled, result, _ = tiled_plan(plan)
    same_bytes(plan, tiled, result)


@pytest.mark.parametrize("count", [16, 17, 70])
def test_a_task_may_have_many_operands(count: int) -> None:
    """The steps of a recurrent layer put together, by their first axis and by another."""
    net = Selected()
    parts = [net.tensor("f16", (3, 4), name=f"x{number}") for number in range(count)]
    net.task("concat", parts, net.tensor("f16", (3, 4 * count)), "axis=1")
    net.task("concat", parts, net.tensor("f16", (3 * count, 4)), "axis=0")
    plan = net.plan()
    tiled, result, _ = tiled_plan(plan)
    same_bytes(plan, tiled, result)


def test_channels_that_lie_apart_are_not_read_in_another_order() -> None:
    """As many columns as channels: what a transposed view ends in are not the channels that one engine keeps apart."""
    text = """device "npm_lite.nem"
program turned:
buffer x_ddr : DDR (size=210)
buffer w_ddr : DDR (size=270, import)
buffer b_ddr : DDR (size=10, import)
buffer made_ddr : DDR (size=350)
buffer wide_ddr : DDR (size=700)
buffer y_ddr : DDR (size=700)
let x = region(x_ddr, 0, 210) elem=f16, shape=[1, 7, 5, 3], layout=NHWC
let w = region(w_ddr, 0, 270) elem=f16, shape=[3, 3, 3, 5], layout=HWIO
let b = region(b_ddr, 0, 10) elem=f16, shape=[5], layout=C
let made = region(made_ddr, 0, 350) elem=f16, shape=[1, 7, 5, 5], layout=NHWC
let wide = region(wide_ddr, 0, 700) elem=f32, shape=[1, 7, 5, 5], layout=NHWC
let turned = region(wide_ddr, 0, 700) elem=f32, shape=[1, 5, 7, 5], strides=[175, 1, 25, 5]
let y = region(y_ddr, 0, 700) elem=f32, shape=[1, 5, 7, 5], layout=ROWS
one = conv2d.async in x, w, b out made
    pads=[1, 1, 1, 1] strides=[1, 1] dilations=[1, 1] groups=1 accum_type=f32
two = cast.async in made out wide deps=[one]
cast.async in turned out y deps=[two]
"""
    plan = read_text(text)
    tiled, result, _ = tiled_plan(plan)
    same_bytes(plan, tiled, result)


def test_an_addend_that_is_computed_is_shared_by_channels() -> None:
    """One row: engines share its columns, and each adds those of the addend that are its own."""
    text = """device "npm_pro.nem"
program row:
buffer x_ddr : DDR (size=1024)
buffer c_ddr : DDR (size=4096)
buffer r_ddr : DDR (size=4096)
buffer w_ddr : DDR (size=2097152, import)
buffer y_ddr : DDR (size=4096)
let x = region(x_ddr, 0, 1024) elem=f16, shape=[1, 512], layout=MK
let c = region(c_ddr, 0, 4096) elem=f16, shape=[1, 2048], layout=MN
let r = region(r_ddr, 0, 4096) elem=f16, shape=[1, 2048], layout=MN
let w = region(w_ddr, 0, 2097152) elem=f16, shape=[512, 2048], layout=KN
let y = region(y_ddr, 0, 4096) elem=f16, shape=[1, 2048], layout=MN
one = relu.async in c out r
gemm.async in x, w, r out y accum_type=f32 deps=[one]
"""
    plan = read_text(text)
    for engines in (1, 2, 4):
        tiled, result, _ = tiled_plan(plan, engines)
        same_bytes(plan, tiled, result)


def test_engines_share_the_channels_of_layers_whose_weights_fill_l1() -> None:
    target = """include "npm_pro.nem"
device fast extends npm_pro { unit_characteristics { sDMA { bytes_per_cycle = 128 } } }
device fast"""
    net = Selected(device=target)
    x = net.conv(net.tensor("i8", (1, 14, 14, 256), name="x"), 256, 3, 1, 1)
    y = net.add(net.conv(net.conv(x, 512, 3, 2, 1), 512, 3, 1, 1), net.conv(x, 512, 1, 2, 0))
    net.conv(y, 512, 3, 1, 1)
    plan = net.plan()
    tiled, result, _ = tiled_plan(plan)
    assert any(item.chunk and item.engines == 4 for item in tiled.stages)
    same_bytes(plan, tiled, result)


def test_tiles_at_the_edges_are_in_the_loop() -> None:
    net = Selected(device=NPU_2048.replace("L2", "1048576"))
    y = net.pool(net.conv(net.tensor("i8", (1, 48, 48, 16), name="x"), 16, 3, 1, 1), "maxpool", 3, 2, 1)
    net.conv(y, 16, 3, 1, 1)
    plan = net.plan()
    tiled, result, text = tiled_plan(plan, tactics=TACTICS[:1])
    same_bytes(plan, tiled, result)
    looped = [item for item in tiled.stages if item.tiles > 1]
    assert looped
    assert text.count("conv2d.async") + text.count("maxpool.async") == len(tiled.stages)
