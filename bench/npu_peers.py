"""Plans for integer networks beside those of Arm's Vela: cycles over the bound, bytes over the compulsory ones.

python -m bench.npu_peers [--vela FOLDER] [--write FOLDER]

Vela (ethos-u-vela) is run where Python finds it, or from the folder that `pip install --target FOLDER ethos-u-vela`
filled. `--write` leaves the TensorFlow Lite files, the programs before and after tiling and the device there. Vela's
cycles are its own estimate, like ours: no silicon stands behind either.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from bench.npu_networks import Layer, Network, convolution, mobilenet_v2, resnet18, to_nem, to_tflite
from lamella.lang.nem import write
from lamella.lang.nem.resolved import Plan
from lamella.pipeline.nem.program import plan_of, read_checked
from lamella.plan.tiling import tile
from lamella.plan.timing import simulate
from lamella.plan.timing.cost import MachineModel, cost_of
from lamella.plan.timing.network_bounds import NetworkBounds, find_network_bounds

HEAD = "network        MACs M   bound cycles  binding    tool       cycles  ÷ bound     DDR bytes  ÷ once   seconds"
ACCELERATOR = "ethos-u85-2048"
DEVICE = "ethos_u85_like"
DEVICE_TEXT = """# The resources of an Ethos-U85 with 2048 MACs as Vela's default configuration has them:
# DRAM 12 bytes a cycle, SRAM of 384 KB with 32 bytes read and 32 written. L1 stands for the buffers of the
# accelerator itself, whose size Vela does not tell; depthwise_macs is what Vela's estimates of such layers come to.
include "nem_baseline_1.0.nem"

device ethos_u85_like extends nem_baseline_1_0 {
    topology {
        num_engines = 1
        l2_size_bytes = 393216
        device_units { sDMA = 1  WDM = 0 }
        per_engine { NMU = 1  CSTL = 2  DMA = 2  VPU = 1  SEQ = 1  l1_size_bytes = 196608 }
    }
    unit_characteristics {
        NMU  { int8_macs = 2048  depthwise_macs = 144 }
        sDMA { bytes_per_cycle = 12  latency = 100 }
        DMA  { bytes_per_cycle = 16 }
        CSTL { bytes_per_cycle = 16 }
        SEQ  { clock_khz = 1000000 }
    }
}
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One tool's answer for one network."""

    cycles: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LayerCycles:
    """What Vela says of one layer: cycles of the accelerator alone, and all; ours for the same MACs or elements."""

    kind: str
    alone: int
    ours: int


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vela", type=Path, help="the folder that pip installed Vela into")
    parser.add_argument("--write", type=Path, help="where to leave the files")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.write or Path(temporary)
        folder.mkdir(exist_ok=True)
        (folder / f"{DEVICE}.nem").write_text(DEVICE_TEXT)
        layers: list[LayerCycles] = []
        print(HEAD)
        for network in (convolution(), resnet18(), mobilenet_v2()):
            layers += _compare(network, folder, given.vela)
        _print_layers(layers)


def _compare(network: Network, folder: Path, vela: Path | None) -> list[LayerCycles]:
    model, program = folder / f"{network.name}.tflite", folder / f"{network.name}_untiled.nem"
    model.write_bytes(to_tflite(network))
    program.write_text(to_nem(network, DEVICE))
    untiled = plan_of(read_checked(program))
    bounds = find_network_bounds(untiled)
    _print(network, bounds, "lamella", _run_ours(untiled, folder / f"{network.name}.nem"))
    found = _run_vela(model, folder, vela)
    _print(network, bounds, "Vela", found)
    return [] if found is None else _layers(network, untiled, folder)


def _run_ours(untiled: Plan, path: Path) -> Row | None:
    """Our plan of a program, written, checked and simulated."""
    if untiled.device is None:
        return None
    began = time.perf_counter()
    path.write_text(write(tile(untiled, untiled.device).document))
    report = simulate(plan_of(read_checked(path)))
    return Row(report.cycles, report.moved("DDR"), time.perf_counter() - began)


def _print(network: Network, bounds: NetworkBounds, tool: str, row: Row | None) -> None:
    largest = bounds.largest
    head = f"{network.name:<13} {bounds.macs / 1e6:7.1f}  {largest.cycles:13,}  {largest.name:<8}  {tool:>9}"
    if row is None:
        print(f"{head}  (no plan)")
        return
    cycles = f"{row.cycles:11,}  {row.cycles / largest.cycles:7.2f}"
    print(f"{head} {cycles}  {row.bytes:12,}  {row.bytes / bounds.compulsory:6.2f}  {row.seconds:8.2f}")


# --- Vela ---------------------------------------------------------------------------------------------------


def _run_vela(model: Path, folder: Path, where: Path | None) -> Row | None:
    """Vela's plan of a file with its default configuration; None where it is not there."""
    environment = dict(os.environ)
    if where is not None:
        environment["PYTHONPATH"] = str(where)
    command = [sys.executable, "-m", "ethosu.vela", str(model), "--accelerator-config", ACCELERATOR]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "--verbose-performance", "--output-dir", str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "Vela failed", file=sys.stderr)
        return None
    (summary,) = folder.glob(f"{model.stem}_summary_*.csv")
    (row,) = csv.DictReader(summary.read_text().splitlines())
    return Row(int(row["cycles_total"]), int(row["dram_total_bytes"]), seconds)


def _layers(network: Network, untiled: Plan, folder: Path) -> list[LayerCycles]:
    """Vela's cycles of each layer that it runs by itself, beside our cost of the same layer."""
    rows = csv.DictReader((folder / f"{network.name}_per-layer.csv").read_text().splitlines())
    alone = {row["Name"]: int(row["NPU"]) for row in rows if int(row["NPU"])}
    machine = MachineModel(untiled.device)
    found = []
    for layer, task in zip(network.layers, untiled.tasks(), strict=True):
        name = f"t{layer.output.number}"
        if name in alone:
            found.append(LayerCycles(_class(layer), alone[name], cost_of(task, machine).cycles))
    return found


def _class(layer: Layer) -> str:
    """What a layer is called in the table; the first ones, of three channels, stand alone."""
    if layer.kind == "conv":
        few = layer.inputs[0].shape[3] < 16
        return f"conv {layer.kernel}×{layer.kernel}{', 3 channels' if few else ''}"
    return layer.kind


def _print_layers(layers: list[LayerCycles]) -> None:
    if not layers:
        return
    classes: dict[str, list[LayerCycles]] = defaultdict(list)
    for item in layers:
        classes[item.kind].append(item)
    print("\nlayers by class, accelerator alone (no memory): Vela's cycles over those of our cost model")
    for kind, members in sorted(classes.items()):
        ratios = sorted(item.alone / item.ours for item in members)
        whole = sum(item.alone for item in members) / sum(item.ours for item in members)
        middle = ratios[len(ratios) // 2]
        spread = f"{ratios[0]:.2f} – {ratios[-1]:.2f}"
        print(f"  {kind:<22} {len(members):3} layers   sum {whole:6.2f}   median {middle:6.2f}   {spread}")


if __name__ == "__main__":
    main()
