"""What `show` says of a device: everything it has, and who gave it."""

from __future__ import annotations

import json

import pytest

from lamella.base.source import Source
from lamella.lang.nem.describe import describe_device, device_to_json
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.devices import resolve_device
from lamella.lang.nem.documents import SHIPPED, DeviceLibrary, load
from lamella.lang.nem.registry import load_registry


def shipped_device(name: str) -> tuple[ResolvedDevice, DeviceLibrary]:
    library = load(Source("t.nem", f'include "{SHIPPED[name]}"\n'))
    device, findings = resolve_device(library, name)
    assert not findings
    assert device is not None
    return device, library


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_text_names_the_giver_of_everything() -> None:
    device, library = shipped_device("npm_pro_x1")
    found = rows(describe_device(device, library.variants))
    assert found[0] == ["device", "npm_pro_x1", "(NEM", "1.0)"]
    assert ["extends", "npm_pro", "->", "nem_baseline_1_0"] in found
    assert ["topology,", "from", "npm_pro"] in found
    assert ["SEQ.max_active_tokens", "32", "npm_pro"] in found
    assert ["gemm.float<bf16>.no_bias", "mandatory", "npm_pro"] in found
    assert ["eltwise<f32>.default", "extended", "npm_pro_x1"] in found
    assert ["cast.default", "mandatory", "nem_baseline_1_0"] in found
    assert ["type", "variants:", "22", "mandatory,", "3", "extended,", "25", "effective"] in found
    assert ["gemm,", "matmul:", "6", "effective", "of", "9"] in found


@pytest.mark.parametrize("name", SHIPPED)
def test_every_variant_stands_once_offered_or_not(name: str) -> None:
    device, library = shipped_device(name)
    found = rows(describe_device(device, library.variants))
    offered = [
        (row[0], row[1], row[2]) for row in found if len(row) == 3 and row[1] in ("mandatory", "extended")
    ]
    assert sorted(offered) == sorted(
        [(str(item), "mandatory", by) for item, by in device.mandatory.items()]
        + [(str(item), "extended", by) for item, by in device.extended.items()]
    )
    absent = [word.strip(",") for row in found if row[:2] == ["not", "offered:"] for word in row[2:]]
    everything = {str(item.id) for items in library.variants.values() for item in items}
    assert sorted(absent) == sorted(everything - {name for name, _, _ in offered})


@pytest.mark.parametrize("name", SHIPPED)
def test_the_object_holds_the_same(name: str) -> None:
    device, library = shipped_device(name)
    found = json.loads(json.dumps(device_to_json(device, library.variants)))
    assert (found["name"], found["spec_version"], tuple(found["chain"])) == (name, "1.0", device.chain)
    assert (found["topology"] is None) == (name == "nem_baseline_1_0")
    assert set(found["opcodes"]) == {key for key, item in load_registry().items() if item.families}
    for opcode, lists in found["opcodes"].items():
        families = load_registry()[opcode].families
        effective = {str(item) for item in device.effective if item.family in families}
        assert set(lists["effective"]) == effective
        assert sorted(lists["mandatory"] + lists["extended"]) == sorted(lists["effective"])
    assert len(found["mandatory"]) == len(device.mandatory)


def test_an_abstract_device_says_so() -> None:
    device, library = shipped_device("nem_baseline_1_0")
    text = describe_device(device, library.variants)
    assert "topology: none; the device is abstract and cannot be a target" in text
    assert "unit characteristics: none; the defaults of the cost model apply" in text
