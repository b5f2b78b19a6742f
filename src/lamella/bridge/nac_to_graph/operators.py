"""Operators of a file's own: the resources that hold their SkriptND text, read without trust."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.nac.nodes import File, Resource
from lamella.lang.nac.notes import operators_module
from lamella.lang.nac.rules.graphs import OPERATOR_SHADOWS, OPERATORS_MALFORMED
from lamella.lang.skriptnd import check
from lamella.ops.instance import Definition
from lamella.ops.library import SPECIFICATION, Library

MOST_FINDINGS = 100


def read_operators(
    file: File, limits: Limits, dialect: str = SPECIFICATION
) -> tuple[Library, list[Diagnostic]]:
    """The library that the instructions of a file call, its own operators in it, and what is wrong with those.

    Resources import each other and the library; nothing outside the file is read.
    """
    library = Library(dialect, limits=limits)
    resources = {
        module: item for item in file.resources if (module := operators_module(item.name)) is not None
    }
    if not resources:
        return library, []
    wrong = _OperatorsReading(library, resources).read()
    return Library(dialect, limits=limits) if wrong else library, wrong


def is_shipped(definition: Definition, library: Library) -> bool:
    """Whether every reader has a definition: it is one of the library, or a copy of it."""
    if definition.standard or definition.module not in library.standard:
        return definition.standard
    own = Library(library.dialect, limits=library.limits).find_operator(definition.name)
    return own == definition.operator


def shadows(definition: Definition, library: Library) -> bool:
    """Whether a definition of a model's own has the name of another one in the library."""
    return definition.module in library.standard and not is_shipped(definition, library)


class _OperatorsReading:
    """Reads the modules of one file into a library."""

    def __init__(self, library: Library, resources: Mapping[str, Resource]) -> None:
        self._library = library
        self._resources = resources

    def read(self) -> list[Diagnostic]:
        """All that is wrong; the library knows the operators where it is nothing."""
        texts: dict[str, Source] = {}
        findings: list[Diagnostic] = []
        for module, item in self._resources.items():
            found = self._text(module, item)
            if isinstance(found, Source):
                texts[module] = found
            else:
                findings.append(found)
        if findings:
            return findings
        found_wrong = list(self._library.load_texts(texts))
        if not errors(found_wrong):
            for module, document in self._library.documents.items():
                found_wrong += check(document, module, self._library.find_operator, self._library.operators)
        return [*self._find_graphs(), *map(self._at_resource, errors(found_wrong)[:MOST_FINDINGS])]

    def _text(self, module: str, item: Resource) -> Source | Diagnostic:
        if module in self._library.standard:
            return OPERATOR_SHADOWS.at(item.span, operator=f"{module}.…")
        problem = self._library.limits.excess("max_file_bytes", len(item.data), "its length in bytes")
        if problem is None:
            try:
                return Source(item.name, bytes(item.data).decode("utf-8"))
            except UnicodeDecodeError:
                problem = "it is no UTF-8"
        return OPERATORS_MALFORMED.at(item.span, name=item.name, place="", problem=problem)

    def _find_graphs(self) -> Iterator[Diagnostic]:
        """Graphs are what instructions say, so that a text has none."""
        for module, document in self._library.documents.items():
            for graph in document.graphs:
                item, line = self._resources[module], graph.span.line
                problem = f"graph '{graph.name}' stands beside the instructions"
                place = f", line {line}"
                yield OPERATORS_MALFORMED.at(item.span, name=item.name, place=place, problem=problem)

    def _at_resource(self, finding: Diagnostic) -> Diagnostic:
        """A finding of SkriptND at the resource that it is about."""
        name = finding.span.source.name
        item = next(item for item in self._resources.values() if item.name == name)
        place, problem = f", line {finding.span.line}", f"{finding.message} ({finding.code})"
        return OPERATORS_MALFORMED.at(item.span, name=name, place=place, problem=problem)
