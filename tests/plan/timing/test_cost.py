"""The cost model: every key of a device file changes what it says, and every default is told."""

from __future__ import annotations

import pytest

from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.registry import load_registry
from lamella.lang.nem.resolved import Index, Resource, Task
from lamella.plan.timing.cost import SHARED, Cost, MachineModel, cost_of
from tests.support.plan.timing_plans import LITE_UNITS, Builder, make_device, view

BARE = make_device(keys={})


def price(task: Task, device: ResolvedDevice | None = BARE) -> Cost:
    return cost_of(task, MachineModel(device))


def with_keys(unit: str, **keys: int) -> ResolvedDevice:
    return make_device(keys={unit: keys})


def move(source: str, target: str, size: int = 1000, opcode: str = "transfer") -> Task:
    make = Builder()
    return make.task(
        opcode, [view(make.buffer("a", source, 4096), size)], [view(make.buffer("b", target, 4096), size)]
    )


def compute(opcode: str, *shapes: tuple[str, tuple[int, ...]], resource: str = "") -> Task:
    """A task of one output, the last shape."""
    make = Builder()
    near = make.buffer("n", "L1", 1 << 20)
    regions = [view(near, 1, elem, shape) for elem, shape in shapes]
    pin = Resource(resource, Index(0)) if resource else None
    return make.task(opcode, regions[:-1], regions[-1:], resource=pin)


def gemm(first: str, second: str) -> Task:
    return compute("gemm", (first, (64, 256)), (second, (256, 128)), (first, (64, 128)))


@pytest.mark.parametrize(
    ("source", "target", "unit", "cycles"),
    [
        ("L2", "L1", "DMA", 32 + 4),
        ("L1", "L2", "DMA", 32 + 4),
        ("L2", "L2", "DMA", 32 + 4),
        ("L1", "L1", "DMA", 32 + 4),
        ("DDR", "L2", "sDMA", 63 + 100),
        ("L1", "DDR", "sDMA", 63 + 100),
    ],
)
def test_transfers(source: str, target: str, unit: str, cycles: int) -> None:
    found = price(move(source, target))
    assert (found.unit, found.cycles) == (unit, cycles)
    assert found.engine == (SHARED if unit == "sDMA" else 0)


def test_stores_run_on_cstl() -> None:
    found = price(move("L1", "L2", opcode="store"))
    assert (found.unit, found.cycles) == ("CSTL", 32 + 1)


@pytest.mark.parametrize(
    ("first", "second", "key", "default"),
    [
        ("i8", "i8", "int8_macs", 4096),
        ("u8", "i8", "int8_macs", 4096),
        ("i8", "i4", "int4x8_macs", 4096),
        ("i4", "i4", "int4_macs", 4096),
        ("i16", "i8", "int16_macs", 4096),
        ("f16", "f16", "fp16_macs", 4096),
        ("bf16", "bf16", "fp16_macs", 4096),
        ("f32", "f32", "fp32_macs", 2048),
    ],
)
def test_mac_rates(first: str, second: str, key: str, default: int) -> None:
    macs = 64 * 128 * 256
    assert price(gemm(first, second)).cycles == macs // default + 2
    assert price(gemm(first, second), with_keys("NMU", **{key: 512})).cycles == macs // 512 + 2


def test_rates_that_follow_others() -> None:
    macs = 64 * 128 * 256
    assert price(gemm("i8", "i4"), with_keys("NMU", int8_macs=1024)).cycles == macs // 1024 + 2
    assert price(gemm("f32", "f32"), with_keys("NMU", fp16_macs=1024)).cycles == macs // 512 + 2


def test_macs_of_convolutions() -> None:
    image, result = ("i8", (2, 8, 8, 16)), ("i8", (2, 6, 6, 32))
    whole = compute("conv2d", image, ("i8", (3, 3, 16, 32)), result)
    grouped = compute("conv2d", image, ("i8", (3, 3, 4, 32)), result)
    depthwise = compute("depthwise_conv2d", image, ("i8", (3, 3, 16, 1)), ("i8", (2, 6, 6, 16)))
    assert price(whole).work == 2 * 6 * 6 * 32 * 3 * 3 * 16
    assert price(grouped).work == price(whole).work // 4
    assert price(depthwise).work == 2 * 6 * 6 * 16 * 9


def test_batched_matmul_counts_all_products() -> None:
    task = compute("matmul", ("f16", (3, 8, 16)), ("f16", (3, 16, 4)), ("f16", (3, 8, 4)))
    assert price(task).work == 3 * 8 * 4 * 16


def test_elements_are_those_of_the_larger_side_where_it_shrinks() -> None:
    assert price(compute("relu", ("i8", (100,)), ("i8", (100,)))).work == 100
    assert price(compute("slice", ("i8", (100,)), ("i8", (10,)))).work == 10
    assert price(compute("reduce_sum", ("i8", (100,)), ("i8", (1,)))).work == 100
    assert price(compute("maxpool", ("i8", (1, 8, 8, 4)), ("i8", (1, 4, 4, 4)))).work == 256


def test_units_of_the_registry_are_the_defaults() -> None:
    for name, known in load_registry().items():
        if name not in ("transfer", "compute"):
            shapes = [("i8", (2, 2))] * (len(known.inputs) + 1)
            assert price(compute(name, *shapes)).unit == known.units[0], name
    assert price(compute("compute", ("i8", (4,)), ("i8", (4,)))).unit == "VPU"


def test_every_characteristic_has_its_effect() -> None:
    relu = compute("relu", ("i8", (1000,)), ("i8", (1000,)))
    quantize = compute("quantize", ("f16", (1000,)), ("i8", (1000,)))
    load, far = move("L2", "L1"), move("DDR", "L2")
    effects: list[tuple[Task, str, str, int, int]] = [
        (relu, "CSTL", "elems_per_cycle", 10, 100 + 1),
        (relu, "CSTL", "latency", 7, 4 + 7),
        (relu, "SEQ", "dispatch_cycles", 5, 4 + 1 + 5),
        (quantize, "VPU", "elems_per_cycle", 100, 10 + 4),
        (quantize, "VPU", "latency", 0, 16),
        (load, "DMA", "bytes_per_cycle", 50, 20 + 4),
        (load, "DMA", "latency", 0, 32),
        (load, "DMA", "setup_cycles", 9, 32 + 4 + 9),
        (load, "SEQ", "l2_bytes_per_cycle", 10, 100 + 4),
        (far, "sDMA", "bytes_per_cycle", 1000, 1 + 100),
        (far, "sDMA", "latency", 3, 63 + 3),
        (far, "sDMA", "setup_cycles", 2, 63 + 100 + 2),
        (far, "SEQ", "ddr_bytes_per_cycle", 4, 250 + 100),
        (move("L1", "L2", opcode="store"), "CSTL", "bytes_per_cycle", 8, 125 + 1),
        (gemm("i8", "i8"), "NMU", "latency", 30, 512 + 30),
    ]
    for task, unit, key, value, cycles in effects:
        assert price(task, with_keys(unit, **{key: value})).cycles == cycles, (unit, key)


def test_energy_keys() -> None:
    relu, product = compute("relu", ("i8", (10,)), ("i8", (10,))), gemm("i8", "i8")
    assert price(relu).energy is None
    assert price(relu, with_keys("CSTL", fj_per_element=3)).energy == 30
    assert price(product, with_keys("NMU", fj_per_mac=2)).energy == 2 * 64 * 128 * 256
    assert price(move("L2", "L1"), with_keys("DMA", fj_per_byte=7)).energy == 7000


def test_resource_names_the_unit() -> None:
    on_vpu = compute("relu", ("i8", (1000,)), ("i8", (1000,)), resource="VPU")
    assert (price(on_vpu).unit, price(on_vpu).cycles) == ("VPU", 16 + 4)


def test_missing_units_are_replaced_by_vpu() -> None:
    device = make_device({**LITE_UNITS, "NMU": 0, "CSTL": 0}, {})
    relu = price(compute("relu", ("i8", (1000,)), ("i8", (1000,))), device)
    product = price(gemm("i8", "i8"), device)
    assert (relu.unit, relu.cycles) == ("VPU", 16 + 4)
    assert (product.unit, product.cycles) == ("VPU", 64 * 128 * 256 // 64 + 4)


def test_a_device_without_the_unit_and_without_vpu_is_given_one() -> None:
    machine = MachineModel(make_device({"DMA": 1}, {}))
    found = cost_of(compute("relu", ("i8", (1000,)), ("i8", (1000,))), machine)
    assert (found.unit, found.instances) == ("CSTL", 1)
    assert machine.defaults["topology.CSTL"] == 1


def test_defaults_that_were_used_are_told() -> None:
    machine = MachineModel(with_keys("CSTL", latency=3))
    cost_of(compute("relu", ("i8", (10,)), ("i8", (10,))), machine)
    assert machine.defaults == {"CSTL.elems_per_cycle": 256, "SEQ.dispatch_cycles": 0}


def test_rates_below_one_are_replaced_and_told() -> None:
    for value in (0, -5):
        machine = MachineModel(with_keys("CSTL", elems_per_cycle=value))
        assert cost_of(compute("relu", ("i8", (1000,)), ("i8", (1000,))), machine).cycles == 4 + 1
        assert machine.defaults["CSTL.elems_per_cycle"] == 256


def test_without_a_device_everything_is_a_default() -> None:
    machine = MachineModel(None)
    assert cost_of(move("L2", "L1"), machine).cycles == 32 + 4
    assert (machine.name, machine.tokens, machine.capacity("L1")) == ("generic", None, None)


def test_a_task_takes_at_least_one_cycle() -> None:
    empty = move("L2", "L1", size=0)
    assert price(empty, with_keys("DMA", latency=0)).cycles == 1


def test_convolutions_of_single_channels_have_a_limit_of_their_own() -> None:
    """A grouped convolution with one input channel for each output; one of a single channel is an ordinary one."""
    device = with_keys("NMU", depthwise_macs=100)
    image, made = ("i8", (1, 9, 9, 64)), ("i8", (1, 7, 7, 64))
    macs = 7 * 7 * 64 * 9
    assert price(compute("conv2d", image, ("i8", (3, 3, 1, 64)), made), device).cycles == -(-macs // 100) + 2
    assert price(compute("conv2d", image, ("i8", (3, 3, 1, 64)), made)).cycles == -(-macs // 4096) + 2
    single = compute("conv2d", ("i8", (1, 9, 9, 1)), ("i8", (3, 3, 1, 64)), made)
    assert price(single, device).cycles == -(-macs // 4096) + 2
