"""Devices: inheritance against a plain merge, the numbers of the specification, targets, hostile chains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import WARNING
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.nem.device import ResolvedDevice, ResolvedTopology, VariantId
from lamella.lang.nem.devices import check_devices, pick_target, resolve_device
from lamella.lang.nem.documents import DeviceLibrary, baseline, load

BASELINE = 'include "nem_baseline_1.0.nem"\n'
TOPOLOGY = "topology { num_engines = 1 l2_size_bytes = 64 per_engine { NMU = 1 l1_size_bytes = 32 } }"
CONCRETE = "device %s extends nem_baseline_1_0 { " + TOPOLOGY + " }\n"
MUST = frozenset(item.id for items in baseline().variants.values() for item in items if item.must)
MAY = sorted(str(item.id) for items in baseline().variants.values() for item in items if not item.must)


def read(text: str, device: str | None = None, limits: Limits | None = None) -> DeviceLibrary:
    return load(Source("t.nem", text), None, limits or Limits(), None, device)


def resolved(text: str, name: str) -> ResolvedDevice:
    library = read(text)
    device, findings = resolve_device(library, name)
    assert not [*library.findings, *findings]
    assert device is not None
    return device


def codes(text: str) -> list[tuple[int, str]]:
    library = read(text)
    return [(item.span.line, item.code) for item in (*library.findings, *check_devices(library))]


def names(variants: Mapping[VariantId, str], giver: str) -> set[str]:
    return {str(variant) for variant, device in variants.items() if device == giver}


# --- the shipped devices, in the numbers of the specification -----------------------------------------------

BF16 = {"gemm.float<bf16>.no_bias", "eltwise<bf16>.default", "view<bf16>.default"}
BF16_CONV = BF16 | {"conv2d.float<bf16>.no_bias", "conv2d.float<bf16>.with_bias"}
Shipped = tuple[list[int], list[int], list[int], dict[str, int], int, set[str]]
SPECIFIED: dict[str, Shipped] = {
    "npm_lite": ([1, 524288, 1048576], [1, 2, 2, 1, 1], [1, 0], {"int8": 4096, "fp16": 2048}, 16, BF16),
    "npm_mid": (
        [2, 1048576, 4194304],
        [1, 2, 2, 1, 1],
        [2, 2],
        {"int4": 16384, "int8": 4096, "int16": 1024, "fp16": 2048},
        16,
        BF16_CONV,
    ),
    "npm_pro": (
        [4, 1048576, 8388608],
        [2, 4, 4, 1, 1],
        [4, 4],
        {"int4": 32768, "int8": 8192, "int16": 2048, "fp16": 4096},
        32,
        BF16_CONV,
    ),
}


@pytest.mark.parametrize("name", SPECIFIED)
def test_shipped_devices_are_those_of_the_specification(name: str) -> None:
    sizes, engine, shared, macs, tokens, mandatory = SPECIFIED[name]
    device, findings = pick_target(read("", device=name))
    assert not findings
    assert device is not None
    topology = device.topology
    assert topology == ResolvedTopology(
        num_engines=sizes[0],
        l1_size_bytes=sizes[1],
        l2_size_bytes=sizes[2],
        per_engine=dict(zip(("NMU", "CSTL", "DMA", "VPU", "SEQ"), engine, strict=True)),
        device_units=dict(zip(("sDMA", "WDM"), shared, strict=True)),
        given_by=name,
    )
    found = {
        unit: {key: item.value for key, item in keys.items()} for unit, keys in device.characteristics.items()
    }
    expected = {f"{key}_macs": value for key, value in macs.items()}
    assert found == {"NMU": expected, "SEQ": {"max_active_tokens": tokens}}
    assert names(device.mandatory, name) == mandatory
    assert names(device.mandatory, "nem_baseline_1_0") == set(map(str, MUST))
    assert device.chain == (name, "nem_baseline_1_0")
    assert device.spec_version == "1.0"


def test_the_sku_adds_to_what_it_inherits() -> None:
    base, _ = pick_target(read("", device="npm_pro"))
    sku, _ = pick_target(read("", device="npm_pro_x1"))
    assert base is not None
    assert sku is not None
    assert sku.topology == base.topology
    assert sku.characteristics == base.characteristics
    assert sku.mandatory == base.mandatory
    assert names(sku.extended, "npm_pro") == {"gemm.float<f32>.no_bias"}
    assert names(sku.extended, "npm_pro_x1") == {"conv2d.float<f32>.no_bias", "eltwise<f32>.default"}
    assert len(sku.effective) == 17 + 5 + 3
    assert (sku.units("CSTL"), sku.units("sDMA"), sku.units("GPU")) == (4, 4, 0)


# --- inheritance against a plain merge ----------------------------------------------------------------------

UNIT_KEYS = st.tuples(
    st.sampled_from(("NMU", "SEQ", "WDM")), st.sampled_from(("int8_macs", "latency", "anything", "else"))
)


@dataclass(frozen=True)
class Block:
    """What a generated device states itself; its parent is one of the devices before it."""

    parent: int
    engines: int
    keys: dict[tuple[str, str], int]
    mandatory: set[str]
    extended: set[str]

    def spelled(self, name: str, parent: str) -> str:
        groups: dict[str, list[str]] = {}
        for (unit, key), value in self.keys.items():
            groups.setdefault(unit, []).append(f"{key} = {value}")
        units = " ".join(f"{unit} {{ {' '.join(lines)} }}" for unit, lines in groups.items())
        topology = (
            TOPOLOGY.replace("num_engines = 1", f"num_engines = {self.engines}") if self.engines else ""
        )
        mandatory, extended = " ".join(self.mandatory), " ".join(self.extended)
        lists = f"opcode.mandatory {{ {mandatory} }} opcode.extended {{ {extended} }}"
        return f"device {name} extends {parent} {{ {lists} unit_characteristics {{ {units} }} {topology} }}\n"


BLOCKS = st.builds(
    Block,
    st.integers(0, 99),
    st.integers(0, 3),
    st.dictionaries(UNIT_KEYS, st.integers(1, 99)),
    st.sets(st.sampled_from(MAY[:13])),
    st.sets(st.sampled_from(MAY[13:])),
)


@given(st.lists(BLOCKS, min_size=1, max_size=8))
def test_inheritance_is_the_merge_of_the_chain(blocks: list[Block]) -> None:
    root = Block(0, 0, {}, set(map(str, MUST)), set())
    chains: list[tuple[str, ...]] = [("nem_baseline_1_0",)]
    stated = {"nem_baseline_1_0": root}
    text = BASELINE
    for number, block in enumerate(blocks):
        above = chains[block.parent % len(chains)]
        chains.append((f"d{number}", *above))
        stated[f"d{number}"] = block
        text += block.spelled(f"d{number}", above[0])
    for chain in chains:
        device = resolved(text, chain[0])
        assert device.chain == chain
        links = [stated[name] for name in chain]
        engines = next((link.engines for link in links if link.engines), None)
        assert (device.topology and device.topology.num_engines) == engines
        assert {str(item) for item in device.mandatory} == set[str]().union(
            *(link.mandatory for link in links)
        )
        assert {str(item) for item in device.extended} == set[str]().union(*(link.extended for link in links))
        keys = {key: (value, name) for name in reversed(chain) for key, value in stated[name].keys.items()}
        found = {
            (unit, key): (item.value, item.device)
            for unit, values in device.characteristics.items()
            for key, item in values.items()
        }
        assert found == keys


def test_who_lists_a_variant_first_has_given_it() -> None:
    text = CONCRETE % "a" + "device b extends a { opcode.mandatory { cast.default view<f32>.default } }\n"
    device = resolved(BASELINE + text, "b")
    assert names(device.mandatory, "b") == {"view<f32>.default"}
    assert names(device.mandatory, "a") == set()


def test_settings_are_constant_expressions() -> None:
    text = CONCRETE.replace("= 64", "= (2 * (3 + 4)) - (-10 / 3 mod 2)")
    topology = resolved(BASELINE + text % "d", "d").topology
    assert topology is not None
    assert topology.l2_size_bytes == 15


SIGNS = st.sampled_from(["+", "*", "/", "mod"])
EXPRESSIONS = st.recursive(
    st.integers(0, 50).map(str),
    lambda inner: st.builds("({} {} {})".format, inner, SIGNS, inner),
    max_leaves=8,
)


@given(EXPRESSIONS)
def test_settings_have_the_value_that_python_gives(text: str) -> None:
    """Without negative numbers Python's division truncates like ours; what divides by zero is one finding."""
    judged = re.sub(r"\bmod\b", "%", text).replace("/", "//")
    body = f"unit_characteristics {{ NMU {{ key = {text} }} }}"
    device, findings = resolve_device(read(f"{BASELINE}device d extends nem_baseline_1_0 {{ {body} }}"), "d")
    assert device is not None
    try:
        value = eval(judged, {}, {})
    except ZeroDivisionError:
        assert [item.code for item in findings] == ["NEM022"]
        return
    assert not findings
    assert device.characteristics["NMU"]["key"].value == value


# --- mandatory and extended ---------------------------------------------------------------------------------

BOTH = BASELINE + (CONCRETE % "d").replace("}\n", "opcode.extended { cast.default eltwise<f32>.default } }\n")


def test_a_variant_in_both_lists_is_an_error_of_a_configuration() -> None:
    library = read(BOTH)
    assert [(item.code, item.severity) for item in check_devices(library)] == [("NEM155", "error")]
    assert [item.severity for item in resolve_device(library, "d", strict=True)[1]] == ["error"]


def test_a_variant_in_both_lists_is_mandatory_for_a_program() -> None:
    library = read(BOTH + "program p:\n")
    assert [(item.code, item.severity) for item in check_devices(library)] == [("NEM155", WARNING)]
    device, findings = pick_target(library)
    assert device is not None
    assert [item.severity for item in findings] == [WARNING]
    assert names(device.extended, "d") == {"eltwise<f32>.default"}
    assert {str(item) for item in device.mandatory} == set(map(str, MUST))


# --- hostile chains -----------------------------------------------------------------------------------------


def test_a_chain_of_ten_thousand_devices_ends_at_the_limit() -> None:
    lines = [f"device d{index} extends d{index - 1} {{ }}\n" for index in range(1, 10_000)]
    text = BASELINE + CONCRETE % "d0" + "".join(lines)
    library = read(text)
    (finding,) = check_devices(library)
    assert (finding.code, finding.span.text) == ("NEM018", "d198")
    assert resolve_device(library, "d9999") == (None, [])
    device, findings = resolve_device(library, "d198")
    assert not findings
    assert device is not None
    assert len(device.chain) == 200


def test_the_limit_of_the_chain_can_be_raised() -> None:
    lines = [f"device d{index} extends d{index - 1} {{ }}\n" for index in range(1, 1500)]
    library = read(BASELINE + CONCRETE % "d0" + "".join(lines), limits=Limits(max_depth=2000))
    assert not check_devices(library)
    device, _ = resolve_device(library, "d1499")
    assert device is not None
    assert len(device.chain) == 1501


def test_a_circle_of_ten_thousand_devices_is_one_finding() -> None:
    lines = [f"device d{index} extends d{(index + 1) % 10_000} {{ }}\n" for index in range(10_000)]
    library = read("".join(lines))
    (finding,) = check_devices(library)
    assert (finding.code, finding.span.line) == ("NEM151", 1)
    assert finding.message.endswith("d0 -> d1 -> d2 -> … 9995 more … -> d9998 -> d9999 -> d0")
    assert resolve_device(library, "d5") == (None, [])


def test_two_circles_are_two_findings_wherever_one_enters_them() -> None:
    parents = {"x": "c", "a": "b", "b": "c", "c": "b", "y": "a", "s": "s"}
    text = "".join(f"device {name} extends {parent} {{ }}\n" for name, parent in parents.items())
    # x names a device defined later; a is no member of the circle b, c but also names a later one.
    assert codes(text) == [(1, "NEM150"), (2, "NEM150"), (3, "NEM151"), (6, "NEM151")]


def test_ten_thousand_children_of_one_large_parent_are_checked() -> None:
    keys = " ".join(f"k{index} = {index}" for index in range(5_000))
    parent = (CONCRETE % "p").replace("topology", f"unit_characteristics {{ NMU {{ {keys} }} }} topology", 1)
    children = "".join(f"device c{index} extends p {{ }}\n" for index in range(5_000))
    assert codes(BASELINE + parent + children) == []


# --- targets ------------------------------------------------------------------------------------------------


def chosen(library: DeviceLibrary) -> tuple[str | None, list[str]]:
    device, findings = pick_target(library)
    codes_found = [item.code for item in (*library.findings, *findings)]
    return (device.name if device else None), codes_found


def test_a_program_without_a_device_has_no_target() -> None:
    assert chosen(read("program p:\n")) == (None, [])
    assert chosen(read('include "npm_lite.nem"\nprogram p:\n')) == (None, [])


def test_a_configuration_is_no_program_and_has_no_target() -> None:
    assert chosen(read(BASELINE + CONCRETE % "d")) == (None, [])


def test_the_directive_names_a_visible_device() -> None:
    assert chosen(read('include "npm_pro.nem"\ndevice npm_pro_x1\n')) == ("npm_pro_x1", [])
    assert chosen(read(BASELINE + CONCRETE % "a" + CONCRETE % "b" + "device a\n")) == ("a", [])
    assert chosen(read('include "npm_pro.nem"\ndevice npm_lite\n')) == (None, ["NEM015"])


def test_the_last_inline_device_is_the_target() -> None:
    assert chosen(read(BASELINE + CONCRETE % "a" + CONCRETE % "b" + "program p:\n")) == ("b", [])


def test_the_directive_names_a_file(tmp_path: Path) -> None:
    one, two = BASELINE + CONCRETE % "x", BASELINE + CONCRETE % "y" + CONCRETE % "z"
    for name, text in {"one.nem": one, "two.nem": two, "z.nem": two}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def choose(file: str) -> tuple[str | None, list[str]]:
        main = tmp_path / "main.nem"
        return chosen(load(Source("main.nem", f'device "{file}"\nprogram p:\n'), main))

    assert choose("one.nem") == ("x", [])
    assert choose("two.nem") == (None, ["NEM016"])
    assert choose("z.nem") == ("z", [])
    assert choose("missing.nem") == (None, ["NEM011"])
    assert choose("npm_pro.nem") == ("npm_pro", [])


def test_the_caller_wins_over_the_text(tmp_path: Path) -> None:
    file = tmp_path / "own.nem"
    file.write_text(BASELINE + CONCRETE % "npm_lite", encoding="utf-8")
    text = 'include "npm_lite.nem"\n' + CONCRETE % "mine" + "device npm_lite\nprogram p:\n"
    assert chosen(read(text, device="mine")) == ("mine", [])
    assert chosen(read(text, device="npm_pro_x1")) == ("npm_pro_x1", [])
    assert chosen(read(text, device="nem_baseline_1_0")) == (None, ["NEM161"])
    assert chosen(read(text, device="npm_huge")) == (None, ["NEM015"])
    assert chosen(read(text, device=str(tmp_path / "none.nem"))) == (None, ["LAM001"])
    device, findings = pick_target(read(text, device=str(file)))
    assert not findings
    assert device is not None
    assert device.topology is not None
    assert device.topology.l1_size_bytes == 32


def test_a_target_with_a_wrong_topology_is_told_once() -> None:
    text = BASELINE + (CONCRETE % "d").replace("num_engines = 1", "num_engines = 0") + "program p:\n"
    library = read(text)
    assert chosen(library) == (None, ["NEM157"])
    assert check_devices(library) == pick_target(library)[1]
