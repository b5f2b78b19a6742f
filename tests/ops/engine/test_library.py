"""Finding operators and loading models: standard modules first, local files below the model folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from docs.generate import RIGHT, repaired
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT
from lamella.base.source import Source
from lamella.ops.library import Library, LoadedModule

GRAPH = "graph G { @input { x: real[2]; } @output { y: real[2]; } @compose { y = x; } }\n"
OPERATOR = "operator op { @input { x: real[n]; } @output { y: real[n]; } @lower { y[i,] = x[i,], i < n; } }\n"
BAD = Path(__file__).parents[2] / "lang" / "skriptnd" / "bad" / "modules"
EXPECT = re.compile(r"#\s*expect\s+(SKR\d{3})")


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def load(folder: Path, **files: str) -> LoadedModule:
    named = {name.replace("__", "/") + ".sknd": text for name, text in files.items()}
    return Library().load(write(folder, named))


def codes(found: LoadedModule) -> list[str]:
    return [item.code for item in found.findings]


# --- the shipped library ------------------------------------------------------------------------------------


def test_operators_are_read_on_first_use() -> None:
    library = Library()
    found = library.find("nn.conv")
    assert found is not None
    assert (found.name, found.module, found.operator.name) == ("nn.conv", "nn", "conv")
    assert found.standard
    assert found.operator.span.source.name == "ops/nn.sknd"
    assert library.find("nn.conv") is found
    assert library.plan(found) is library.plan(found)


@pytest.mark.parametrize(
    "name", ["nn.nothing", "nothing.conv", "conv", "", "nn.", "a.b.c", "../nn.conv", "newer/nn.conv"]
)
def test_what_is_not_there_is_not_found(name: str) -> None:
    assert Library().find(name) is None


def test_the_newer_dialect_looks_into_its_own_files_first() -> None:
    newer, plain = Library("newer"), Library()
    first, second = newer.find("layout.slice"), plain.find("layout.slice")
    assert first is not None
    assert second is not None
    assert first.operator.span.source.name == "ops/newer/layout.sknd"
    assert second.operator.span.source.name == "ops/layout.sknd"
    shared = newer.find("nn.conv")
    assert shared is not None
    assert shared.operator.span.source.name == "ops/nn.sknd"
    assert set(plain.operators("layout")) <= set(newer.operators("layout"))


def test_a_dialect_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="the dialects are specification, newer"):
        Library("old")


# --- models -------------------------------------------------------------------------------------------------


def test_a_model_folder(tmp_path: Path) -> None:
    found = load(tmp_path, main=f"import nn, own.ops;\n{GRAPH}", own__ops=f"import math;\n{OPERATOR}")
    assert codes(found) == []
    assert found.sound
    assert [item.name for item in found.graphs] == ["main.G"]
    local = found.library.find("own.ops.op")
    assert local is not None
    assert not local.standard
    assert found.library.operators("own.ops") == ("op",)
    assert found.library.find("main.G") is not None


def test_a_single_file_and_a_text(tmp_path: Path) -> None:
    write(tmp_path, {"net.sknd": f"import other;\n{GRAPH}", "other.sknd": OPERATOR})
    assert codes(Library().load(tmp_path / "net.sknd")) == []
    assert codes(Library().load(Source("text", GRAPH))) == []
    assert codes(Library().load(Source("text", f"import other;\n{GRAPH}"))) == ["SKR056"]
    assert codes(Library(root=tmp_path).load(Source("text", f"import other;\n{GRAPH}"))) == []


def test_a_missing_main_module(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"main\.sknd"):
        Library().load(tmp_path)


def test_findings_of_imported_files_are_told(tmp_path: Path) -> None:
    found = load(tmp_path, main=f"import other;\n{GRAPH}", other="operator {")
    assert found.findings
    assert found.findings[0].span.source.name.endswith("other.sknd")
    assert not found.sound


def test_a_shared_module_is_read_once(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        main=f"import a, b;\n{GRAPH}",
        a=f"import c;\n{OPERATOR}",
        b=f"import c;\n{OPERATOR}",
        c=OPERATOR,
    )
    assert codes(found) == []
    assert sorted(found.library.documents) == ["a", "b", "c", "main"]


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"main": f"import nothing;\n{GRAPH}"}, "SKR056"),
        (
            {"main": f"import a;\n{GRAPH}", "a": f"import b;\n{OPERATOR}", "b": f"import a;\n{OPERATOR}"},
            "SKR057",
        ),
        ({"main": f"import nn;\n{GRAPH}", "nn": OPERATOR}, "SKR058"),
        ({"main": f"import a;\n{GRAPH}", "a": f"import main;\n{OPERATOR}"}, "SKR059"),
        ({"main": f"import main;\n{GRAPH}"}, "SKR055"),
        ({"main": f"import a;\n{GRAPH}", "a": GRAPH}, "SKR054"),
    ],
)
def test_wrong_imports(tmp_path: Path, files: dict[str, str], code: str) -> None:
    assert codes(load(tmp_path, **files)) == [code]


def shipped_text(module: str) -> str:
    found = Library().find("nn.conv" if module == "nn" else "math.add")
    assert found is not None
    return found.operator.span.source.text


def test_a_copy_of_a_standard_module_is_the_standard_module(tmp_path: Path) -> None:
    found = load(
        tmp_path, main=f"import nn, math;\n{GRAPH}", nn=shipped_text("nn"), math=shipped_text("math")
    )
    assert codes(found) == []
    softmax = found.library.find(found.library.resolve("nn.softmax", "main"))
    assert softmax is not None
    assert (softmax.name, softmax.standard) == ("nn.softmax", True)


def test_the_models_own_file_wins_in_the_model_and_nowhere_else(tmp_path: Path) -> None:
    math = shipped_text("math").replace("y[i..] = `exp`(x[i..]), i < s;", "y[i..] = x[i..], i < s;")
    found = load(tmp_path, main=f"import nn, math;\n{GRAPH}", nn=shipped_text("nn"), math=math)
    library = found.library
    assert [(item.code, item.severity) for item in found.findings] == [("SKR058", "note")] * 2
    assert "its own softmax" in found.findings[0].message
    assert "its own exp" in found.findings[1].message

    def name_of(called: str, module: str) -> str:
        definition = library.find(library.resolve(called, module))
        return "" if definition is None else definition.name

    assert name_of("math.exp", "main") == "main.math.exp"
    assert name_of("math.sin", "main") == "math.sin"
    assert name_of("nn.softmax", "main") == "main.nn.softmax"
    assert name_of("math.exp", "main.nn") == "main.math.exp"
    assert name_of("math.exp", "layer") == "math.exp"


def test_a_symbolic_link_is_no_module(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"a.sknd": OPERATOR})
    model = write(tmp_path / "model", {"main.sknd": f"import a;\n{GRAPH}"})
    (model / "a.sknd").symlink_to(outside / "a.sknd")
    (finding,) = Library().load(model).findings
    assert finding.code == "SKR056"
    assert "symbolic link" in finding.message


def test_too_many_modules(tmp_path: Path) -> None:
    count = 20
    files = {f"m{k}.sknd": OPERATOR for k in range(count)}
    imports = "".join(f"import m{k};\n" for k in range(count))
    write(tmp_path, {**files, "main.sknd": imports + GRAPH})
    found = Library(limits=replace(DEFAULT, max_includes=10)).load(tmp_path)
    assert set(codes(found)) == {"SKR056"}
    assert "max_includes" in found.findings[0].message


def test_a_long_chain_of_modules(tmp_path: Path) -> None:
    files = {f"m{k}.sknd": f"import m{k + 1};\n{OPERATOR}" for k in range(200)}
    write(tmp_path, {**files, "m200.sknd": OPERATOR, "main.sknd": f"import m0;\n{GRAPH}"})
    assert codes(Library().load(tmp_path)) == []


# --- wrong programs -----------------------------------------------------------------------------------------


def expected(path: Path) -> Counter[tuple[str, int, str]]:
    found: Counter[tuple[str, int, str]] = Counter()
    for file in path.rglob("*.sknd"):
        for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
            found.update((file.name, number, code) for code in EXPECT.findall(line))
    return found


def placed(findings: tuple[Diagnostic, ...]) -> Counter[tuple[str, int, str]]:
    return Counter((Path(item.span.source.name).name, item.span.line, item.code) for item in findings)


@pytest.mark.parametrize("path", sorted(BAD.iterdir()), ids=lambda path: path.name)
def test_a_wrong_model_has_exactly_the_findings_it_announces(path: Path) -> None:
    assert placed(Library().load(path).findings) == expected(path)


@pytest.mark.parametrize("path", sorted(BAD.iterdir()), ids=lambda path: path.name)
def test_a_repaired_model_has_none(path: Path, tmp_path: Path) -> None:
    texts = {str(file.relative_to(path)): file.read_text(encoding="utf-8") for file in path.rglob("*.sknd")}
    assert any(RIGHT.search(text) for text in texts.values())
    right = {name: repaired(text) for name, text in texts.items()}
    assert Library().load(write(tmp_path, right)).findings == ()
