"""Explanations of layers: what they say is what a simulation of the changed device or plan says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamella.base.errors import InputError
from lamella.base.source import Source
from lamella.lang.nem import check
from lamella.lang.nem.resolved import Plan
from lamella.plan.explain import Explanation, PlanFile, explain
from lamella.plan.report.explanation import explanation_text
from lamella.plan.timing import simulate
from lamella.plan.timing.layers import find_layers, find_sections

TEXT = """include "npm_lite.nem"
device npm_lite
const B = 16384
buffer X : DDR (size=8 * B)
buffer XM : L2 (size=8 * B)
buffer XL : L1 (size=B)
buffer YL : L1 (size=B)
buffer Y : L2 (size=8 * B)
# == load: all of the input
a = transfer.async(dst=XM, src=X)
b = transfer.async(dst=region(Y, 0, B), src=region(XM, 0, B), deps=[a]) @profile(act)
wait(b)
# == act: eight tiles ==
loop i in [0..7]:
    let x = region(XL, 0, B) elem=i8, shape=[B], layout=N
    let y = region(YL, 0, B) elem=i8, shape=[B], layout=N
    c = transfer.async(dst=XL, src=region(XM, i * B, B))
    d = relu.async in x out y deps=[c]
    store.async(dst=region(Y, i * B, B), src=YL, deps=[d])
endloop
"""


@pytest.fixture(scope="module")
def file() -> PlanFile:
    source = Source("chain.nem", TEXT)
    plan = check(source, Path("chain.nem")).plan
    assert plan is not None
    return PlanFile(plan, source)


def explained(file: PlanFile, name: str) -> Explanation:
    return explain(name, file, simulate(file.plan))


def test_sections_are_named_by_comments_and_tags(file: PlanFile) -> None:
    sections = {section.name: section for section in find_sections(file.plan)}
    assert {name: section.tasks for name, section in sections.items()} == {"load": (0,), "act": (1, 2, 3, 4)}
    assert (sections["load"].what, sections["load"].line) == ("all of the input", 9)


def test_layers_hold_the_work_of_their_tasks(file: PlanFile) -> None:
    report = simulate(file.plan)
    load, act = find_layers(report, file.plan)
    assert (load.unit, load.ddr, load.once) == ("sDMA", 8 * 16384, 8 * 16384)
    assert load.cycles == 8 * 16384 // 16 + 100
    assert sum(sum(layer.busy.values()) for layer in (load, act)) == sum(task.busy for task in report.tasks)


def test_without_comments_loops_and_tasks_are_layers(file: PlanFile) -> None:
    plain = "".join(line for line in TEXT.splitlines(keepends=True) if not line.startswith("# =="))
    plan = check(Source("plain.nem", plain), Path("plain.nem")).plan
    assert plan is not None
    assert [section.name for section in find_sections(plan)] == ["a (transfer)", "act", "loop i, line 12"]


@pytest.mark.parametrize("name", ["act", "loop i", "d", "18"])
def test_remedies_are_what_simulations_say(file: PlanFile, name: str) -> None:
    found = explained(file, name)
    device = file.plan.device
    assert device is not None
    assert device.topology is not None
    remedies = {item.title: item for item in found.remedies}
    count = device.topology.per_engine["CSTL"]
    units = {**device.topology.per_engine, "CSTL": count + 1}
    changed = replace(device, topology=replace(device.topology, per_engine=units))
    after = simulate(replace(file.plan, device=changed), detail=0)
    assert remedies[f"{count + 1} CSTL instead of {count}"].cycles == after.cycles
    assert found.remedies == tuple(
        sorted(found.remedies, key=lambda item: (item.cycles, item.layer_cycles or 0, item.title))
    )


def test_windows_are_widened_and_their_memory_is_told(file: PlanFile) -> None:
    text = TEXT.replace("[0..7]:", "[0..7] @max_in_flight(2):")
    wider = check(Source("wider.nem", text), Path("wider.nem")).plan
    assert wider is not None
    remedies = {item.title: item.cycles for item in explained(file, "act").remedies}
    cycles = simulate(wider, detail=0).cycles
    assert remedies["keep 2 iterations of loop i in flight"] == cycles
    more = explained(PlanFile(wider, Source("wider.nem", text)), "act")
    title = "3 iterations of loop i (line 14) in flight, with rings for them: 32,768 bytes more of L1"
    assert any(item.title == title and item.cycles <= cycles for item in more.remedies)


def test_the_roofline_says_which_roof(file: PlanFile) -> None:
    found = explained(file, "load")
    assert (found.macs, found.moved["DDR"], found.binding.name) == (0, 8 * 16384, "sDMA")
    assert "← binding, 1.000 ×" in explanation_text(found)


def test_unknown_layers_are_refused_with_the_nearest(file: PlanFile) -> None:
    plan: Plan = file.plan
    with pytest.raises(InputError, match="no layer 'loud'"):
        explain("loud", file, simulate(plan))
