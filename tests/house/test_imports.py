"""Imports point one way, stand at the top, and files are opened in one place."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator

from tests.house.tree import ROOT, Module, languages, package_modules

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
}
EVERYTHING = ("", "cli", "__main__")  # "" is lamella/__init__.py
LAZY = ("lamella", "lamella.cli")  # their __init__ loads what is asked for
LOADERS = (
    *LAZY,
    "lamella.base.optional",
    "lamella.pipeline.languages",
    "lamella.pipeline.backends",
    "lamella.backend.cpu.compile",
)
BASE_PACKAGES = {"numpy", "ml_dtypes"}
DOORS = {"lamella.base.paths", "lamella.base.reader", "lamella.base.writer"}
Function = ast.FunctionDef | ast.AsyncFunctionDef
OPENING = {"open", "fdopen", "read_text", "write_text", "read_bytes", "write_bytes"}


def unit(name: str) -> str:
    """The row of the table that a module of ours belongs to: `lamella.lang.nem.parse` is in `lang.nem`."""
    parts = name.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["lang"] else 1])


def imported(module: Module) -> Iterator[tuple[int, str]]:
    """The line and the full name of everything that a module imports."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, item.name) for item in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = _absolute(module, node)
            yield from ((node.lineno, f"{start}.{item.name}") for item in node.names)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    is_package = module.path.name == "__init__.py"
    parts = module.name.split(".")
    kept = parts[: len(parts) - node.level + is_package]
    return ".".join([*kept, *filter(None, [node.module])])


def called(node: ast.Call) -> str:
    """The last word of what a call names: `open` for `open(…)`, `os.open(…)` and `path.open(…)`."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def calls(module: Module, names: set[str]) -> list[str]:
    """The places in a module where one of these is called."""
    found = (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))
    return [
        f"{module.place}:{node.lineno}: {ast.unparse(node.func)}" for node in found if called(node) in names
    ]


def test_the_package_was_found() -> None:
    assert "lamella.base" in {module.name for module in package_modules()}
    assert "nem" in languages()


def test_the_walk_sees_relative_and_nested_imports() -> None:
    text = "from . import x\nfrom ..lang import nem\ndef f():\n    import lamella.cli.run\n"
    module = Module(ROOT / "src/lamella/plan/bind.py", "lamella.plan.bind", text, ast.parse(text))
    assert [name for _, name in imported(module)] == ["lamella.plan.x", "lamella.lang.nem", "lamella.cli.run"]
    assert [unit(name) for _, name in imported(module)] == ["plan", "lang.nem", "cli"]


def test_imports_follow_the_table() -> None:
    modules = [module for module in package_modules() if unit(module.name) not in EVERYTHING]
    assert not [m.place for m in modules if unit(m.name) not in MAY_IMPORT], "not in the import table"
    wrong = [
        f"{module.place}:{line}: {unit(module.name)} imports {name}"
        for module in modules
        for line, name in imported(module)
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
        for line, name in imported(module)
        if name.split(".")[0] not in (BASE_PACKAGES if unit(module.name) == "base" else core) | always
    ]
    assert not wrong, "others come through lamella.base.optional.need"


def test_no_star_imports() -> None:
    found = ((m.place, line, name) for m in package_modules() for line, name in imported(m))
    assert not [f"{place}:{line}" for place, line, name in found if name.endswith(".*")]


def test_no_imports_inside_functions() -> None:
    modules = [module for module in package_modules() if module.name not in LAZY]
    functions = ((m, n) for m in modules for n in ast.walk(m.tree) if isinstance(n, Function))
    inner = ((m, node) for m, function in functions for node in ast.walk(function))
    assert not [f"{m.place}:{n.lineno}" for m, n in inner if isinstance(n, ast.Import | ast.ImportFrom)]


def test_modules_are_loaded_by_name_in_few_places() -> None:
    modules = [module for module in package_modules() if module.name not in LOADERS]
    assert not [place for module in modules for place in calls(module, {"import_module", "__import__"})]


def test_files_are_opened_at_the_doors() -> None:
    wrong = []
    for module in package_modules():
        if module.name in DOORS:
            continue
        ours = {name.rpartition(".")[2] for _, name in imported(module) if name.rpartition(".")[0] in DOORS}
        wrong += calls(module, OPENING - ours)
        resources = (line for line, name in imported(module) if name.startswith("importlib.resources"))
        wrong += [f"{module.place}:{line}: importlib.resources" for line in resources]
    assert not wrong
