"""Includes: found relative to the includer, each file once, circles and hostile trees told cleanly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import Limits
from lamella.base.paths import read_shipped, shipped
from lamella.base.source import Source
from lamella.lang.nem.devices import check_devices, pick_target
from lamella.lang.nem.documents import SHIPPED, DeviceLibrary, baseline, load

BASELINE = 'include "nem_baseline_1.0.nem"\n'
FAMILY = "type_family %s { A: f16 variants: only: {} conformance: { MAY } }\n"
DEVICE = "device %s extends nem_baseline_1_0 { }\n"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def read(
    path: Path, root: Path | None = None, device: str | None = None, limits: Limits | None = None
) -> DeviceLibrary:
    source = Source(path.name, path.read_text(encoding="utf-8"))
    return load(source, path, limits or Limits(), root, device)


def told(library: DeviceLibrary) -> list[tuple[str, int, str]]:
    """File, line and code of the findings."""
    return [(Path(item.span.source.name).name, item.span.line, item.code) for item in library.findings]


def only(library: DeviceLibrary) -> Diagnostic:
    assert len(library.findings) == 1
    return library.findings[0]


# --- what is seen -------------------------------------------------------------------------------------------


def test_includes_are_relative_to_the_including_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "main.nem": 'include "devices/a.nem"\n',
            "devices/a.nem": 'include "more/b.nem"\n' + BASELINE + DEVICE % "a",
            "devices/more/b.nem": 'include "../../families.nem"\n' + BASELINE + DEVICE % "b",
            "families.nem": FAMILY % "gemm.x",
        },
    )
    library = read(tmp_path / "main.nem")
    assert not library.findings
    assert list(library.devices) == ["nem_baseline_1_0", "b", "a"]
    assert "gemm.x" in library.families
    assert library.devices["b"].name.span.source.name.endswith("b.nem")


def test_a_diamond_is_read_once_and_legal(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "main.nem": 'include "left.nem"\ninclude "right.nem"\ninclude "./left.nem"\ninclude "left.nem"\n',
            "left.nem": 'include "base.nem"\n' + FAMILY % "gemm.left",
            "right.nem": 'include "base.nem"\ninclude "x/../base.nem"\n' + FAMILY % "gemm.right",
            "base.nem": FAMILY % "gemm.base",
        },
    )
    library = read(tmp_path / "main.nem")
    assert not library.findings
    assert [item.name.id for item in library.declarations] == ["gemm.base", "gemm.left", "gemm.right"]


def test_the_program_of_an_included_file_is_ignored(tmp_path: Path) -> None:
    inner = BASELINE + DEVICE % "d" + "device nowhere\nprogram inner:\nbuffer B : L2 (size=16)\n"
    write(tmp_path, {"main.nem": 'include "inner.nem"\nprogram outer:\n', "inner.nem": inner})
    library = read(tmp_path / "main.nem")
    assert not library.findings
    assert library.document.name is not None
    assert library.document.name.id == "outer"
    assert library.document.statements == ()
    assert pick_target(library) == (None, [])


def test_findings_of_an_included_file_carry_its_name(tmp_path: Path) -> None:
    inner = (
        FAMILY % "gemm.x" + "type_family gemm.y { A: T variants: only: {} conformance: { MAY } }\ndevice {\n"
    )
    write(tmp_path, {"main.nem": 'include "inner.nem"\ndevice d extends lost { }\n', "inner.nem": inner})
    library = read(tmp_path / "main.nem")
    assert ("inner.nem", 2, "NEM164") in told(library)
    assert {name for name, _, _ in told(library)} == {"inner.nem"}
    assert not check_devices(library)


def test_duplicates_point_at_the_first_definition(tmp_path: Path) -> None:
    one = BASELINE + DEVICE % "d" + FAMILY % "gemm.x"
    write(tmp_path, {"main.nem": 'include "a.nem"\ninclude "b.nem"\n', "a.nem": one, "b.nem": one})
    library = read(tmp_path / "main.nem")
    assert told(library) == [("b.nem", 2, "NEM013"), ("b.nem", 3, "NEM014")]
    for finding in library.findings:
        (label,) = finding.labels
        assert Path(label.span.source.name).name == "a.nem"
        assert label.span.line == finding.span.line


# --- the built-in files -------------------------------------------------------------------------------------


def test_every_shipped_file_is_known_by_name_and_clean() -> None:
    folder = shipped("devices")
    assert {path.name for path in folder.glob("*.nem")} == set(SHIPPED.values())
    for name in sorted(set(SHIPPED.values())):
        library = load(Source(name, read_shipped(f"devices/{name}")), folder / name)
        assert not library.findings
        assert not check_devices(library)
        assert {item.name.id for item in library.own_devices} == {
            device for device, file in SHIPPED.items() if file == name
        }


def test_the_baseline_is_built_in_under_both_names() -> None:
    text = BASELINE + 'include "npm_baseline_1.0.nem"\n' + DEVICE % "a"
    library = load(Source("t.nem", text + "device b extends npm_baseline_1_0 { }\n"))
    assert not library.findings
    assert not check_devices(library)
    assert len(library.devices) == 3


def test_a_file_beside_the_includer_comes_before_the_built_in_one(tmp_path: Path) -> None:
    write(tmp_path, {"main.nem": BASELINE, "nem_baseline_1.0.nem": FAMILY % "gemm.mine"})
    library = read(tmp_path / "main.nem")
    assert list(library.devices) == []
    assert "gemm.mine" in library.families


def test_a_link_beside_the_includer_is_not_passed_over(tmp_path: Path) -> None:
    write(tmp_path, {"main.nem": BASELINE, "other.nem": ""})
    (tmp_path / "nem_baseline_1.0.nem").symlink_to("other.nem")
    assert told(read(tmp_path / "main.nem")) == [("main.nem", 1, "NEM011")]


def test_shipped_devices_are_found_by_bare_name_only(tmp_path: Path) -> None:
    write(tmp_path, {"main.nem": 'include "npm_pro.nem"\n', "wrong.nem": 'include "devices/npm_pro.nem"\n'})
    assert {"npm_pro", "npm_pro_x1"} <= set(read(tmp_path / "main.nem").devices)
    assert told(read(tmp_path / "wrong.nem")) == [("wrong.nem", 1, "NEM011")]


def test_the_families_of_the_baseline_are_always_seen() -> None:
    library = load(Source("t.nem", "program p:\n"))
    assert library.families == baseline().families
    assert library.variants == baseline().variants
    assert library.devices == {}


def test_a_file_may_declare_a_family_of_the_baseline_itself() -> None:
    library = load(Source("t.nem", FAMILY % "softmax"))
    assert not library.findings
    assert [str(item.id) for item in library.variants["softmax"]] == ["softmax.only"]
    assert len(library.variants) == 13


# --- circles, limits and what cannot be read ----------------------------------------------------------------


def test_a_circle_is_told_with_its_files(tmp_path: Path) -> None:
    files = {"a.nem": 'include "b.nem"\n', "b.nem": 'include "c.nem"\n', "c.nem": '\ninclude "a.nem"\n'}
    write(tmp_path, files)
    finding = only(read(tmp_path / "a.nem"))
    assert (finding.code, finding.span.line) == ("NEM012", 2)
    names = [Path(name).name for name in finding.message.split(": ")[1].split(" -> ")]
    assert names == ["a.nem", "b.nem", "c.nem", "a.nem"]


def test_a_circle_behind_the_main_file_names_only_itself(tmp_path: Path) -> None:
    files = {"a.nem": 'include "b.nem"\n', "b.nem": 'include "c.nem"\n', "c.nem": 'include "b.nem"\n'}
    write(tmp_path, files)
    finding = only(read(tmp_path / "a.nem"))
    names = [Path(name).name for name in finding.message.split(": ")[1].split(" -> ")]
    assert names == ["b.nem", "c.nem", "b.nem"]


def test_ten_thousand_files_side_by_side_end_at_the_limit(tmp_path: Path) -> None:
    write(tmp_path, {f"f{index}.nem": "" for index in range(300)})
    lines = [f'include "f{index}.nem"\n' for index in range(10_000)]
    write(tmp_path, {"main.nem": "".join(lines)})
    library = read(tmp_path / "main.nem")
    assert told(library) == [("main.nem", 256, "NEM018")]
    assert not library.complete


def test_a_thousand_files_inside_each_other_end_at_the_limit(tmp_path: Path) -> None:
    write(tmp_path, {f"f{index}.nem": f'include "f{index + 1}.nem"\n' for index in range(1_000)})
    assert told(read(tmp_path / "f0.nem")) == [("f255.nem", 1, "NEM018")]


def test_ten_thousand_missing_files_end_at_the_limit() -> None:
    text = "".join(f'include "no_such_{index}.nem"\n' for index in range(10_000))
    codes = [item.code for item in load(Source("t.nem", text)).findings]
    assert codes == ["NEM011"] * 256 + ["NEM018"]


def test_the_limit_counts_files_and_not_includes(tmp_path: Path) -> None:
    write(tmp_path, {"main.nem": 'include "a.nem"\n' * 10_000, "a.nem": FAMILY % "gemm.x"})
    assert not read(tmp_path / "main.nem", limits=Limits(max_includes=2)).findings
    assert told(read(tmp_path / "main.nem", limits=Limits(max_includes=1))) == [("main.nem", 1, "NEM018")]


@pytest.mark.parametrize(
    "kind", ["folder", "fifo", "link", "link to a folder", "hard link", "outside", "text"]
)
def test_what_is_no_plain_file_below_the_root_is_refused(tmp_path: Path, kind: str) -> None:
    write(tmp_path, {"in/main.nem": 'include "x.nem"\n', "out/y.nem": "", "in/inner/z.nem": ""})
    place, target = tmp_path / "in" / "x.nem", "x.nem"
    if kind == "folder":
        place.mkdir()
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to("inner/z.nem")
    elif kind == "link to a folder":
        (tmp_path / "in" / "linked").symlink_to("inner")
        target = "linked/z.nem"
    elif kind == "hard link":
        os.link(tmp_path / "out" / "y.nem", place)
    elif kind == "outside":
        target = "../out/y.nem"
    else:
        place.write_bytes(b"program p:\n\xff")
    (tmp_path / "in" / "main.nem").write_text(f'include "{target}"\ndevice d extends lost {{ }}\n')
    library = read(tmp_path / "in" / "main.nem")
    assert told(library) == [("main.nem", 1, "NEM011")]
    assert not check_devices(library)


def test_a_root_given_by_the_user_allows_two_dots(tmp_path: Path) -> None:
    write(tmp_path, {"in/main.nem": 'include "../out/y.nem"\n', "out/y.nem": FAMILY % "gemm.x"})
    assert not read(tmp_path / "in" / "main.nem", root=tmp_path).findings
    assert told(read(tmp_path / "in" / "main.nem", root=tmp_path / "in")) == [("main.nem", 1, "NEM011")]
    assert told(read(tmp_path / "in" / "main.nem", root=tmp_path / "out")) == [("main.nem", 1, "NEM011")]


# --- the file of the device ---------------------------------------------------------------------------------


def test_families_of_the_device_file_are_seen(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "main.nem": 'device "dev.nem"\nprogram p:\n',
            "free.nem": FAMILY % "gemm.own" + "program p:\n",
            "dev.nem": BASELINE + FAMILY % "gemm.x" + FAMILY % "gemm.own" + DEVICE % "d",
        },
    )
    by_text = read(tmp_path / "main.nem")
    assert not by_text.findings
    assert "gemm.x" in by_text.variants
    assert by_text.devices == {}
    by_caller = read(tmp_path / "free.nem", device=str(tmp_path / "dev.nem"))
    assert not by_caller.findings
    assert "gemm.x" in by_caller.variants
    assert by_caller.families["gemm.own"].name.span.source.name == "free.nem"


def test_findings_of_a_shared_file_are_told_once(tmp_path: Path) -> None:
    files = {
        "main.nem": 'include "shared.nem"\ndevice "dev.nem"\nprogram p:\n',
        "dev.nem": 'include "shared.nem"\n' + BASELINE + DEVICE % "d",
        "shared.nem": "type_family gemm.x { A: T variants: only: {} conformance: { MAY } }\n",
    }
    write(tmp_path, files)
    assert told(read(tmp_path / "main.nem")) == [("shared.nem", 1, "NEM164")]


# --- any text -----------------------------------------------------------------------------------------------

WORDS = (
    *('include "nem_baseline_1.0.nem"', 'include "t.nem"', 'include ""', 'include "npm_pro.nem"', "include"),
    *("device", "a", "b", "extends", "nem_baseline_1_0", "{", "}", "topology", "per_engine", "device_units"),
    *("opcode.mandatory", "opcode.extended", "cast.default", "eltwise<f32>.default", "spec_version", "="),
    *('"1.0"', "0", "1", "-", "*", "9223372036854775807", "num_engines", "l1_size_bytes", "l2_size_bytes"),
    *(
        "type_family",
        "gemm.x",
        "<",
        ">",
        "T",
        ":",
        "f16",
        "variants",
        "conformance",
        "MUST",
        "MAY",
        "NMU",
        "program",
    ),
)


@given(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join) | st.text(max_size=60))
def test_any_text_gives_findings_and_never_an_exception(text: str) -> None:
    library = load(Source("t.nem", text))
    device, findings = pick_target(library)
    assert device is None or device.topology is not None
    assert all(
        isinstance(item, Diagnostic) for item in (*library.findings, *check_devices(library), *findings)
    )
