"""Plans of whole networks on the shipped NPUs: cycles over the network's bound, traffic, lines, seconds to compile.

`python -m bench.npu_plans` tiles selected plans of int8 networks (`bench.npu_networks`) for npm_pro, npm_mid and
npm_lite, ResNet-18 also with one and two engines of npm_pro, and on a device whose sDMAs move 128 bytes a cycle.
Transformers are in `bench.npu_transformers`.
"""

from __future__ import annotations

import time
from dataclasses import replace

from bench.npu_networks import mobilenet_v2, resnet18, resnet50, to_nem
from lamella.base.source import Source
from lamella.lang.nem import check, write
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.resolved import Plan
from lamella.plan.tiling import TilingOptions, tile
from lamella.plan.timing import simulate
from lamella.plan.timing.network_bounds import find_network_bounds

DEVICES = ("npm_pro", "npm_mid", "npm_lite")
NETWORKS = (resnet18, resnet50, mobilenet_v2)
FAST = """include "npm_pro.nem"
device fast extends npm_pro { unit_characteristics { sDMA { bytes_per_cycle = 128 } } }
device fast
"""


def read(text: str) -> tuple[Plan, ResolvedDevice]:
    """The plan of a text, and its device."""
    plan = check(Source("plan.nem", text)).plan
    assert plan is not None
    assert plan.device is not None
    return plan, plan.device


def measure(plan: Plan, device: ResolvedDevice, engines: int = 0) -> tuple[int, str]:
    """Cycles of the tiled plan, and a row of the table."""
    start = time.process_time()
    text = write(tile(plan, device, TilingOptions(engines=engines)).document)
    spent = time.process_time() - start
    report = simulate(replace(read(text)[0], device=device), detail=0)
    network = find_network_bounds(plan, device)
    bound = network.largest.cycles
    traffic = report.moved("DDR") / network.compulsory
    lines = text.count("\n")
    row = f"{report.cycles:,} | {bound:,} | {report.cycles / bound:.2f} | {traffic:.2f} | {lines:,} | {spent:.0f} s"
    return report.cycles, row


def main() -> None:
    """Print one row for each network and device, then what more engines give."""
    print("network | device | cycles | bound | ÷ | DDR ÷ compulsory | lines | compile")
    for make in NETWORKS:
        for name in DEVICES:
            plan, device = read(to_nem(make(), name))
            print(f"{make.__name__} | {name} | {measure(plan, device)[1]}", flush=True)
    plan, device = read(to_nem(resnet18(), "npm_pro"))
    for engines in (1, 2):
        print(f"resnet18 | npm_pro, engines: {engines} | {measure(plan, device, engines)[1]}", flush=True)
    device = read(FAST + "program fast:\n")[1]
    found = {engines: measure(plan, device, engines) for engines in (1, 2, 4)}
    for engines, (cycles, row) in found.items():
        print(f"resnet18 | 512 B a cycle, engines: {engines} | {row} | {found[1][0] / cycles:.2f} times one")


if __name__ == "__main__":
    main()
