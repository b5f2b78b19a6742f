"""Imports point one way, stand at the top, and files are opened in one place."""

from __future__ import annotations

import sys
import tomllib

from tests.support.repository import LOADING, OPENING, ROOT, Module, languages, package_modules, read_module

LANGUAGES = ("lang.module", "lang.skriptnd", "lang.nac", "lang.tensor", "lang.nem")
FORMS = ("base", *LANGUAGES, "ops", "graph", "kernels", "plan")
ROADS = (*FORMS, "bridge", "backend", "pipeline")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "base": (),
    "lang": (),
    **dict.fromkeys(LANGUAGES, ("base",)),
    "ops": ("base", "lang.skriptnd"),
    "devices": ("base",),
    "models": ("base",),
    "graph": ("base", "lang.skriptnd", "ops"),
    "kernels": ("base", "graph", "lang.tensor"),
    "plan": ("base", "lang.nem"),
    "bridge": FORMS,
    "backend": FORMS,
    "pipeline": (*FORMS, "bridge", "backend"),
    "train": ROADS,
    "genome": ROADS,
    "studio": ROADS,
    "lsp": ROADS,
    "demo": (*ROADS, "train", "studio"),
    "onnx": (*ROADS, "bridge", "graph", "base"),
}
EVERYTHING = ("", "cli", "__main__")  # "" is lamella/__init__.py
LAZY = ("lamella", "lamella.cli")  # their __init__ loads what is asked for
LOADERS = (
    *LAZY,
    "lamella.base.optional",
    "lamella.pipeline.languages",
    "lamella.pipeline.backends",
    "lamella.backend.cpu",
    "lamella.backend.cpu.compile",
    "lamella.backend.cuda",
    "lamella.backend.executor.stored",
    "lamella.pipeline.backends.cpu",
    "lamella.pipeline.backends.cuda",
)
BASE_PACKAGES = {"numpy", "ml_dtypes"}
DOORS = {"lamella.base.paths", "lamella.base.reader", "lamella.base.writer"}


def unit(name: str) -> str:
    """The row of the table that a module of ours belongs to: `lamella.lang.nem.parse` is in `lang.nem`."""
    parts = name.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["lang"] else 1])


def calls(module: Module, words: set[str]) -> list[str]:
    """The places in a module where one of these is called."""
    return [f"{module.place}:{call.line}: {call.text}" for call in module.calls if call.word in words]


def test_the_package_was_found() -> None:
    assert "lamella.base" in {module.name for module in package_modules()}
    assert "nem" in languages()


def test_the_walk_sees_relative_and_nested_imports() -> None:
    text = "from . import x\nfrom ..lang import nem\ndef f():\n    import lamella.cli.run\n"
    module = read_module(ROOT / "src/lamella/plan/bind.py", "lamella.plan.bind", text)
    names = [name for _, name, _ in module.imports]
    assert names == ["lamella.plan.x", "lamella.lang.nem", "lamella.cli.run"]
    assert [unit(name) for name in names] == ["plan", "lang.nem", "cli"]
    assert [is_inside for _, _, is_inside in module.imports] == [False, False, True]


def test_imports_follow_the_table() -> None:
    modules = [module for module in package_modules() if unit(module.name) not in EVERYTHING]
    assert not [m.place for m in modules if unit(m.name) not in MAY_IMPORT], "not in the import table"
    wrong = [
        f"{module.place}:{line}: {unit(module.name)} imports {name}"
        for module in modules
        for line, name, _ in module.imports
        if name.split(".")[0] == "lamella"
        and unit(name) not in {unit(module.name), *MAY_IMPORT[unit(module.name)]}
    ]
    assert not wrong


def test_packages_of_others_are_core_dependencies() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    core = {str(item).split(">")[0].split("=")[0].strip() for item in declared}
    always = sys.stdlib_module_names | {"lamella"}
    wrong = [
        f"{module.place}:{line}: {name}"
        for module in package_modules()
        for line, name, _ in module.imports
        if name.split(".")[0] not in (BASE_PACKAGES if unit(module.name) == "base" else core) | always
    ]
    assert not wrong, "others come through lamella.base.optional.need"


def test_no_star_imports() -> None:
    found = ((module, line, name) for module in package_modules() for line, name, _ in module.imports)
    assert not [f"{module.place}:{line}" for module, line, name in found if name.endswith(".*")]


def test_no_imports_inside_functions() -> None:
    modules = [module for module in package_modules() if module.name not in LAZY]
    assert not [f"{m.place}:{line}" for m in modules for line, _, is_inside in m.imports if is_inside]


def test_modules_are_loaded_by_name_in_few_places() -> None:
    modules = [module for module in package_modules() if module.name not in LOADERS]
    assert not [place for module in modules for place in calls(module, LOADING)]


def test_files_are_opened_at_the_doors() -> None:
    wrong = []
    for module in package_modules():
        if module.name in DOORS:
            continue
        ours = {name.rpartition(".")[2] for _, name, _ in module.imports if name.rpartition(".")[0] in DOORS}
        wrong += calls(module, OPENING - ours)
        resources = (line for line, name, _ in module.imports if name.startswith("importlib.resources"))
        wrong += [f"{module.place}:{line}: importlib.resources" for line in resources]
    assert not wrong
