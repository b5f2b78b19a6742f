"""Plans of whole networks on the shipped NPUs: cycles over the network's bound, traffic, lines, seconds to compile.

`python -m bench.npu_plans` quantises ResNet-18, ResNet-50 and MobileNetV2 with drawn weights and the trained digits,
lowers them for npm_pro, npm_mid and npm_lite, and runs model and plan on the same inputs. Then it tiles ResNet-18 for
one and two engines of npm_pro, and for one, two and four on a device whose sDMAs move 128 bytes a cycle, and the one
convolution of the peers' table. Transformers are in `bench.npu_transformers`.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import lamella
from bench.networks import build
from bench.npu_networks import convolution, resnet18, to_nem
from lamella.backend.reference import compile_model
from lamella.base.source import Source
from lamella.graph.model import Model
from lamella.lang.nem import check, write
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.resolved import Plan
from lamella.pipeline.given import options_of
from lamella.pipeline.nem.lowering import LoweredPlan, from_graph, simulated, tolerance_of
from lamella.pipeline.nem.stages import executable
from lamella.pipeline.options import Options
from lamella.pipeline.quantize.api import quantize_graph
from lamella.plan.tiling import TilingOptions, tile
from lamella.plan.timing import simulate
from lamella.plan.timing.network_bounds import find_network_bounds

DEVICES = ("npm_pro", "npm_mid", "npm_lite")
NETWORKS = ("resnet18", "resnet50", "mobilenet_v2")
DIGITS = Path(__file__).parent.parent / "examples" / "digits" / "digits.sknd"
FAST = """include "npm_pro.nem"
device fast extends npm_pro { unit_characteristics { sDMA { bytes_per_cycle = 128 } } }
device fast
"""
ONE = """include "nem_baseline_1.0.nem"
device npu2048 extends nem_baseline_1_0 {
    topology {
        num_engines = 1
        l2_size_bytes = 1048576
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
device npu2048
"""
HEAD = "model | device | cycles | bound | ÷ | DDR ÷ compulsory | lines | compile | against the model"


def measure_model(model: Model, device: str, title: str) -> str:
    """A row of the table: a quantised model, lowered for a device, simulated, and run beside its reference."""
    start = time.process_time()
    options = Options(device=device)
    lowered = from_graph(model, Path(), options)
    report = simulated(lowered)
    spent = time.process_time() - start
    assert report is not None
    assert report.network is not None
    bound = report.network.largest.cycles
    traffic = report.moved("DDR") / report.network.compulsory
    lines = lowered.final.program.source.text.count("\n")
    told = f"{report.cycles:,} | {bound:,} | {report.cycles / bound:.3f} | {traffic:.3f} | {lines:,} | {spent:.1f} s"
    return f"{title} | {device} | {told} | {compared(model, lowered, options)}"


def compared(model: Model, lowered: LoweredPlan, options: Options) -> str:
    """How the outputs of a plan lie to those of its model, on the same drawn inputs."""
    reference = compile_model(model, seed=0)
    inputs = reference.draw_inputs()
    wanted = reference(**inputs)
    found = executable(lowered.final.program, lowered.final.numbers, model.graph, options)(**inputs)
    if all(np.array_equal(wanted[name], found[name]) for name in wanted):
        return "equal bit by bit"
    apart = max(
        float(np.abs(wanted[name].astype(np.float64) - found[name]).max())
        / max(1.0, float(np.abs(wanted[name]).max()))
        for name in wanted
    )
    return (
        f"{'within' if apart <= tolerance_of(lowered) else 'NOT within'} {tolerance_of(lowered)}: {apart:.2g}"
    )


def quantised(model: Model) -> Model:
    """A model in integers."""
    words = {"rank": False, "seed": 0, "samples": 1}
    return quantize_graph(model, replace(options_of(words, by_command=True), random=True)).model


def read(text: str) -> tuple[Plan, ResolvedDevice]:
    """The plan of a text, and its device."""
    plan = check(Source("plan.nem", text)).plan
    assert plan is not None
    assert plan.device is not None
    return plan, plan.device


def measure(plan: Plan, device: ResolvedDevice, engines: int = 0) -> tuple[int, str]:
    """Cycles of the tiled plan of a selected one, and a row of the table."""
    start = time.process_time()
    text = write(tile(plan, device, TilingOptions(engines=engines)).document)
    report = simulate(replace(read(text)[0], device=device), detail=0)
    spent = time.process_time() - start
    network = find_network_bounds(plan, device)
    bound = network.largest.cycles
    traffic = report.moved("DDR") / network.compulsory
    lines = text.count("\n")
    row = f"{report.cycles:,} | {bound:,} | {report.cycles / bound:.3f} | {traffic:.3f} | {lines:,} | {spent:.2f} s"
    return report.cycles, row


def main(names: list[str]) -> None:
    """Print one row for each network and device, then what more engines give, and the one convolution."""
    print(HEAD)
    for name in NETWORKS:
        if name in names or not names:
            model = quantised(lamella.from_torch(*build(name, 1)))
            for device in DEVICES:
                print(measure_model(model, device, name), flush=True)
    if "digits" in names or not names:
        loaded = lamella.load(DIGITS)
        assert isinstance(loaded, Model)
        for device in DEVICES:
            print(measure_model(quantised(loaded), device, "digits"), flush=True)
    if "engines" in names or not names:
        print_engines()


def print_engines() -> None:
    """ResNet-18 as a selected plan on fewer engines, and the one convolution."""
    plan, device = read(to_nem(resnet18(), "npm_pro"))
    for engines in (1, 2, 4):
        print(f"resnet18 | npm_pro, engines: {engines} | {measure(plan, device, engines)[1]}", flush=True)
    device = read(FAST + "program fast:\n")[1]
    found = {engines: measure(plan, device, engines) for engines in (1, 2, 4)}
    for engines, (cycles, row) in found.items():
        print(f"resnet18 | 512 B a cycle, engines: {engines} | {row} | {found[1][0] / cycles:.2f} times one")
    device = read(ONE + "program one:\n")[1]
    print(f"one convolution | npu2048 | {measure(read(to_nem(convolution(), 'npm_lite'))[0], device)[1]}")


if __name__ == "__main__":
    main(sys.argv[1:])
