"""The modules of a model: the main file and what it imports, each file read once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import (
    STANDARD_INPUT,
    Refusal,
    default_root,
    is_folder,
    read_included,
    read_text,
    read_text_in,
    resolve_include,
    shown,
)
from lamella.base.records import dataclass
from lamella.base.source import Source, Span
from lamella.base.suggest import did_you_mean
from lamella.lang.skriptnd import ParsedSkriptnd, parse
from lamella.lang.skriptnd.nodes import Document, Import
from lamella.lang.skriptnd.rules.names import (
    GRAPH_IN_MODULE,
    IMPORT_CYCLE,
    IMPORTS_ITSELF,
    MAIN_IMPORTED,
    MISSING_MODULE,
)

MAIN = "main"
ENDING = ".sknd"
NO_TEXTS: Mapping[str, Source] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class ModuleFile:
    """One module that was read; `root` is None for a text that belongs to no folder."""

    module: str
    path: Path
    root: Path | None
    parsed: ParsedSkriptnd


def read_main(main: Path | Source, root: Path | None, limits: Limits) -> ModuleFile:
    """The main module: of a model folder, in a file, or a text; InputError where it cannot be read."""
    if isinstance(main, Source):
        return ModuleFile(MAIN, STANDARD_INPUT, root, parse(main, limits))
    name = f"{MAIN}{ENDING}"
    path = main / name if is_folder(main) else main
    if is_folder(main) and not os.path.lexists(path):
        hint = f"a model folder holds its main module in {name}"
        raise InputError(f"the folder '{shown(main)}' has no {name}", path=shown(main), hint=hint)
    text = read_text_in(main, name, limits) if is_folder(main) else read_text(path, limits)
    source = Source(shown(path), text)
    return ModuleFile(MAIN, path, root or default_root(path), parse(source, limits))


def file_of(module: str) -> str:
    """The file of a module below the folder of a model."""
    return module.replace(".", "/") + ENDING


def own_name(module: str) -> str:
    """What a model's own file is called whose name is that of a standard module: no other module has the name."""
    return f"{MAIN}.{module}"


def _is_same(path: Path, other: Path) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)


class ModuleLoader:
    """The walk over the imports of a model, without recursion; modules may be given as texts, by their names."""

    def __init__(
        self, standard: frozenset[str], limits: Limits, texts: Mapping[str, Source] = NO_TEXTS
    ) -> None:
        self.standard = standard
        self.limits = limits
        self.texts = texts
        self.documents: dict[str, Document] = {}
        self.findings: list[Diagnostic] = []
        self.shadows: dict[str, Span] = {}
        """The standard modules whose names files of the model have, with where they are imported first."""
        self.lost: set[str] = set()
        """The modules that could not be read, or not whole: of what they define nothing is known."""
        self._open: list[str] = []
        self._failures = 0
        self._main = STANDARD_INPUT

    def follow_texts(self) -> None:
        """Read every module that is given as a text, with what it imports."""
        for module in self.texts:
            if module not in self.documents:
                self.follow(self._text(module))

    def _text(self, module: str) -> ModuleFile:
        return ModuleFile(module, STANDARD_INPUT, None, parse(self.texts[module], self.limits))

    def follow(self, main: ModuleFile) -> None:
        """Read everything that the main module imports, directly or not."""
        self._main = main.path
        stack = [self._enter(main)]
        while stack:
            file, imports = stack[-1]
            wanted = next(imports, None)
            if wanted is None:
                stack.pop()
                self._open.pop()
                continue
            inner = self._take(file, *wanted)
            if inner is not None:
                stack.append(self._enter(inner))

    def _enter(self, file: ModuleFile) -> tuple[ModuleFile, Iterator[tuple[Import, str]]]:
        self.documents[file.module] = file.parsed.document
        self.findings += file.parsed.findings
        if errors(file.parsed.findings):
            self.lost.add(file.module)
        self._open.append(file.module)
        if file.module != MAIN:
            for graph in file.parsed.document.graphs:
                self.findings.append(GRAPH_IN_MODULE.at(graph.span, name=graph.name, module=file.module))
        pairs = [(node, name) for node in file.parsed.document.imports for name in node.modules]
        return file, iter(pairs)

    def _take(self, file: ModuleFile, node: Import, module: str) -> ModuleFile | None:
        """The file of an imported module, once; None for a standard one or after a finding."""
        key = module
        if module in self.standard:
            if not self._is_own(file, module):
                return None
            key = own_name(module)
            self.shadows.setdefault(module, node.span)
        if key == file.module:
            self.findings.append(IMPORTS_ITSELF.at(node.span, module=module))
        elif module == MAIN:
            self.findings.append(MAIN_IMPORTED.at(node.span))
        elif key in self._open:
            circle = [*self._open[self._open.index(key) :], key]
            self.findings.append(IMPORT_CYCLE.at(node.span, chain=" -> ".join(circle)))
        elif key not in self.documents:
            return self._read(file, node, module, key)
        elif key == module and key.removeprefix(f"{MAIN}.") in self.shadows:
            taken = f"'{key.removeprefix(f'{MAIN}.')}{ENDING}' has that name in this model"
            self.findings.append(MISSING_MODULE.at(node.span, module=module, reason=taken))
        return None

    def _is_own(self, file: ModuleFile, module: str) -> bool:
        """Whether the model's folder has a file with the name of a standard module, other than its main one."""
        if file.root is None:
            return False
        path = file.root / f"{module}{ENDING}"
        return os.path.lexists(path) and not (os.path.exists(self._main) and _is_same(path, self._main))

    def _read(self, file: ModuleFile, node: Import, module: str, key: str) -> ModuleFile | None:
        found = self._locate(file, module)
        if isinstance(found, ModuleFile):
            return replace(found, module=key)
        self._failures += 1
        self.lost.add(key)
        hint = did_you_mean(module, sorted(self.standard)) or None
        self.findings.append(MISSING_MODULE.at(node.span, hint=hint, module=module, reason=found))
        return None

    def _locate(self, file: ModuleFile, module: str) -> ModuleFile | str:
        """A module of the model folder, or why there is none."""
        if module in self.texts:
            return self._text(module)
        if file.root is None:
            return "a text that is no file has no folder of modules"
        if len(self.documents) + self._failures >= self.limits.max_includes:
            return f"the limit max_includes of {self.limits.max_includes} files is reached"
        text = file_of(module)
        top = Path(os.path.realpath(file.root))
        path = resolve_include(top, top / f"{MAIN}{ENDING}", text, self.limits)
        if isinstance(path, Refusal):
            return f"'{text}' {path.reason}"
        try:
            source = Source(shown(path), read_included(top, path, self.limits))
        except InputError as problem:
            return problem.message
        return ModuleFile(module, path, file.root, parse(source, self.limits))
