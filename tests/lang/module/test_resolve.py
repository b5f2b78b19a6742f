"""Imports: what names mean in a file, and what is wrong with them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from docs.generate import repaired
from lamella.base.limits import DEFAULT
from lamella.base.source import Source
from lamella.lang.module.nodes import Module, Preset, Primitive
from lamella.lang.module.resolve import (
    Resolved,
    Workspace,
    check_lock,
    read_lock,
    resolve,
    write_lock,
)

GATE = "module Gate(d: int = {size}):\n  params:\n    weight: [d]\n"


def put(folder: Path, **files: str) -> None:
    """Write files; a double underscore in a name is a folder, a single one before `v` a version."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/").replace("_v", ".v") + ".module")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read(folder: Path, text: str, *search: Path) -> Resolved:
    """A main file in a folder, resolved."""
    (folder / "main.module").write_text(text)
    workspace = Workspace(search)
    return resolve(workspace.read(folder / "main.module"), workspace)


def codes(resolved: Resolved) -> list[str]:
    return [item.code for item in resolved.findings]


def size(resolved: Resolved, name: str) -> int:
    """The default of the first parameter of a declaration: which of the files it came from."""
    found = resolved.scope.find(name)
    assert found is not None
    assert isinstance(found.declaration, Module)
    assert found.declaration.params
    default = found.declaration.params[0].default
    value: int = getattr(default, "value", -1)
    return value


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import lib.gates.Gate", "Gate"),
        ("import lib.gates.Gate", "lib.gates.Gate"),
        ("import lib.gates.Gate as G", "G"),
        ("import lib.gates", "Gate"),
        ("import lib.gates", "lib.gates.Gate"),
        ("import lib.gates as g", "g.Gate"),
        ("import lib.gates as g", "g"),
        ("import lib.gates.*", "Gate"),
        ("import lib.gates.{Gate}", "Gate"),
        ("import lib.gates.{Gate as G}", "G"),
        ("from lib.gates import Gate", "Gate"),
        ("from lib.gates import Gate as G", "G"),
        ("from lib.gates import *", "Gate"),
        ("from lib import Gate", "Gate"),
        ("from lib import *", "Gate"),
        ("import lib", "Gate"),
        ("import lib as l", "l.Gate"),
        ("import lib.Gate", "Gate"),
        ("import lib.gates.Gate.v1", "Gate"),
        ("from lib.gates.v1 import Gate", "Gate"),
    ],
)
def test_every_form_of_import_binds_its_name(tmp_path: Path, text: str, name: str) -> None:
    put(tmp_path, lib__gates=GATE.format(size=5))
    resolved = read(tmp_path, text)
    assert codes(resolved) == []
    assert size(resolved, name) == 5
    assert resolved.scope.find("Nothing") is None


def test_aliases_do_not_bring_the_natural_name(tmp_path: Path) -> None:
    put(tmp_path, lib=GATE.format(size=5))
    for text in ("import lib.Gate as G", "from lib import Gate as G", "import lib as G"):
        assert read(tmp_path, text).scope.find("Gate") is None


def test_the_highest_version_is_taken_unless_one_is_named(tmp_path: Path) -> None:
    put(tmp_path, lib=GATE.format(size=1), lib_v2=GATE.format(size=2), lib_v10=GATE.format(size=10))
    assert size(read(tmp_path, "import lib.Gate"), "Gate") == 10
    assert size(read(tmp_path, "from lib import Gate"), "Gate") == 10
    for number in (1, 2, 10):
        assert size(read(tmp_path, f"import lib.Gate.v{number}"), "Gate") == number
        assert size(read(tmp_path, f"from lib.v{number} import Gate"), "Gate") == number
    resolved = read(tmp_path, "import lib.Gate.v3")
    assert codes(resolved) == ["E002"]
    assert resolved.findings[0].hint == "there is version 1 and version 2 and version 10"


def test_places_are_searched_in_order(tmp_path: Path) -> None:
    far, near = tmp_path / "far", tmp_path / "near"
    put(far, lib=GATE.format(size=7), deep__inner="import lib.Gate\nexport module Gate")
    put(near, lib=GATE.format(size=3))
    assert size(read(near, "import lib.Gate", far), "Gate") == 3
    (near / "lib.module").unlink()
    assert size(read(near, "import lib.Gate", far), "Gate") == 7
    assert size(read(near, "from deep.inner import Gate", far), "Gate") == 7


def test_the_standard_library_is_found_first(tmp_path: Path) -> None:
    put(tmp_path, std__primitives__matmul="module matmul():\n  params:\n    w: [1]\n")
    resolved = read(tmp_path, "import std.primitives\nimport primitives\nimport std.primitives.matmul.v1")
    assert codes(resolved) == ["W115", "W115"]  # the folder of this name is told, and not read
    for name in ("matmul", "std.primitives.matmul", "primitives.rmsnorm", "rmsnorm"):
        found = resolved.scope.find(name)
        assert found is not None
        assert isinstance(found.declaration, Primitive)
        assert found.unit.standard
    assert "rmsnorm" in set(resolved.scope.names())


def test_every_file_of_the_standard_library_resolves_without_findings() -> None:
    workspace = Workspace()
    place = workspace.standard
    files = [file for folder in place.folders for file in place.files((folder,))]
    assert len(files) > 12
    for file in files:
        resolved = resolve(workspace.unit(place, file), workspace)
        assert resolved.findings == (), "\n".join(map(str, resolved.findings))
        assert resolved.scope.unit.name.startswith("std.")
        for name, declared in resolved.scope.local.items():
            preset = isinstance(declared.declaration, Preset)
            assert (resolved.scope.standard(name) is None) == preset
            assert resolved.scope.find(name) is declared


def test_a_name_of_the_standard_library_is_offered_as_an_import(tmp_path: Path) -> None:
    resolved = read(tmp_path, "module M():\n  params:\n    a: GQA(8, 2)\n")
    assert [item.hint for item in resolved.findings] == ["import std.modules.GQA"]


def test_exports_are_seen_by_importers(tmp_path: Path) -> None:
    put(tmp_path, lib=GATE.format(size=5), index="import lib.Gate\nexport module Gate\n")
    assert size(read(tmp_path, "import index.Gate"), "Gate") == 5
    assert size(read(tmp_path, "from index import Gate"), "Gate") == 5
    put(tmp_path, index="import lib.Gate\n")
    assert codes(read(tmp_path, "from index import Gate")) == ["E002"]
    put(tmp_path, index="export module Gate\n")
    assert codes(read(tmp_path, "import index")) == ["E002"]


def test_names_with_an_underscore_stay_in_their_file(tmp_path: Path) -> None:
    put(tmp_path, lib=GATE.replace("Gate", "_Gate").format(size=5))
    resolved = read(tmp_path, "import lib")
    assert resolved.scope.find("_Gate") is None
    assert codes(read(tmp_path, "from lib import _Gate")) == ["E002"]


def test_the_same_declaration_may_be_imported_twice(tmp_path: Path) -> None:
    put(tmp_path, lib=GATE.format(size=5), index="import lib.Gate\nexport module Gate\n")
    assert codes(read(tmp_path, "import lib.Gate\nimport index.Gate\nfrom lib import Gate")) == []


def test_clashes_are_told_once_each(tmp_path: Path) -> None:
    put(tmp_path, p=GATE.format(size=1), q=GATE.format(size=2))
    assert codes(read(tmp_path, "import p.Gate\nimport q.Gate")) == ["E023"]
    assert codes(read(tmp_path, "import p\nimport q")) == ["E023"]
    assert codes(read(tmp_path, "import p.Gate\nimport q.Gate as Gate")) == ["E024"]
    assert codes(read(tmp_path, "import p.Gate as X\nimport q.Gate as X")) == ["E024"]
    assert codes(read(tmp_path, "import p.Gate as matmul")) == ["E024"]
    resolved = read(tmp_path, "import p.Gate\n" + GATE.format(size=9))
    assert codes(resolved) == ["W002"]
    assert size(resolved, "Gate") == 9
    resolved = read(tmp_path, GATE.replace("Gate", "softmax").format(size=9))
    assert codes(resolved) == ["W001"]
    assert size(resolved, "softmax") == 9


def test_circles_of_files_are_found(tmp_path: Path) -> None:
    put(tmp_path, a="import b\n" + GATE.format(size=1), b="import c", c="import a")
    resolved = read(tmp_path, "import a.Gate")
    assert codes(resolved) == ["E007"]
    assert resolved.findings[0].message == "the file 'a' imports itself: a -> b -> c -> a"
    assert size(resolved, "Gate") == 1


def test_a_long_chain_of_files_is_a_limit_and_no_recursion(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"f{number}.module").write_text(f"import f{number + 1}\n")
    (tmp_path / "f300.module").write_text(GATE.format(size=1))
    resolved = read(tmp_path, "import f0")
    assert codes(resolved) == ["E101"]
    assert "256" in resolved.findings[0].message


def test_findings_of_imported_files_are_told_in_their_place(tmp_path: Path) -> None:
    put(tmp_path, lib="module Gate(:\n", other="module A() extends B:\n  params:\n    w: [1]\n")
    resolved = read(tmp_path, "import lib\nimport other")
    found = {(Path(item.span.source.name).name, item.code) for item in resolved.findings}
    assert found == {("lib.module", "E001"), ("other.module", "E002")}


def test_files_behind_links_and_other_things_are_refused(tmp_path: Path) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    put(outside, secret=GATE.format(size=5))
    put(project, real=GATE.format(size=1))
    (project / "link.module").symlink_to(outside / "secret.module")
    (project / "folder").symlink_to(outside)
    os.mkfifo(project / "pipe.module")
    (project / "dir.module").mkdir()
    for path in ("link.Gate", "link", "folder.secret", "folder.secret.Gate", "pipe", "dir"):
        resolved = read(project, f"import {path}")
        assert codes(resolved) == ["E002"], path
        assert resolved.scope.find("Gate") is None
    (project / "latin.module").write_bytes(b"\xff")
    assert codes(read(project, "import latin")) == ["E002"]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, lib=GATE.format(size=5))
    (tmp_path / "main.module").write_text("import lib")
    workspace = Workspace(limits=replace(DEFAULT, max_file_bytes=30))
    resolved = resolve(workspace.read(tmp_path / "main.module"), workspace)
    assert codes(resolved) == ["E002"]
    assert "max_file_bytes" in resolved.findings[0].message


def test_a_program_from_nowhere_sees_the_library_alone() -> None:
    workspace = Workspace()
    unit = workspace.take(Source("<stdin>", "from std.modules import GQA\nimport other"))
    resolved = resolve(unit, workspace)
    assert codes(resolved) == ["E002"]
    assert resolved.scope.find("GQA") is not None


# --- the lock file --------------------------------------------------------------------------------------------


def test_the_lock_names_versions_and_texts(tmp_path: Path) -> None:
    put(tmp_path, lib=GATE.format(size=5))
    resolved = read(tmp_path, "import lib.Gate\nfrom std.modules import GQA\nimport std.primitives.matmul.v1")
    digest = hashlib.sha256(GATE.format(size=5).encode()).hexdigest()[:12]
    text = write_lock(resolved)
    assert text.splitlines()[1:] == [
        "version: 1",
        "resolved_modules:",
        f"  lib: local@{digest}",
        "  std.modules.GQA: v1",
        "  std.primitives.matmul: v1",
    ]
    lock = read_lock(Source("module.lock", text))
    assert lock.findings == ()
    assert check_lock(resolved, lock) == ()


def test_a_lock_that_points_elsewhere_is_a_finding(tmp_path: Path) -> None:
    put(tmp_path, lib=GATE.format(size=5))
    main = "import lib.Gate\nimport std.primitives.matmul"
    lock = read_lock(Source("module.lock", write_lock(read(tmp_path, main))))
    put(tmp_path, lib=GATE.format(size=6))
    found = check_lock(read(tmp_path, main), lock)
    assert [item.code for item in found] == ["E102"]
    text = "version: 1\nresolved_modules:\n  std.primitives.matmul: v7\n  lib: v1\n"
    found = check_lock(read(tmp_path, main), read_lock(Source("module.lock", text)))
    assert sorted(item.message for item in found) == [
        "'lib' is v1 in the lock file, but the import leads to local@"
        + hashlib.sha256(GATE.format(size=6).encode()).hexdigest()[:12],
        "'std.primitives.matmul' is v7 in the lock file, but the import leads to v1",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 2\nresolved_modules:\n",
        "version: 1\n",
        "version: 1\nresolved_modules:\n  ../../etc/passwd: v1\n",
        "version: 1\nresolved_modules:\n  a: local@../x\n",
        "version: 1\nresolved_modules:\n  a: v99999999999999\n",
        "version: 1\nresolved_modules:\n  a: v1\n  a: v2\n",
        "version: 1\nresolved_modules:\n\ta: v1\n",
        "!!python/object/apply:os.system ['true']\n",
    ],
)
def test_a_malformed_lock_is_a_finding(text: str) -> None:
    lock = read_lock(Source("module.lock", text))
    assert [item.code for item in lock.findings] == ["E102"]


def test_the_wrong_lock_is_wrong_and_its_repair_is_right(tmp_path: Path) -> None:
    path = Path(__file__).parent / "bad" / "e102_version.lock"
    resolved = read(tmp_path, "import std.primitives.matmul")
    found = check_lock(resolved, read_lock(Source(path.name, path.read_text())))
    assert [(item.span.line, item.code) for item in found] == [(3, "E102")]
    lock = read_lock(Source(path.name, repaired(path.read_text())))
    assert lock.entries
    assert check_lock(resolved, lock) == ()
