"""A SkriptND file or model folder on its way to a graph: loaded, checked, configured, composed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lamella.base.collector import collector_paused
from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.dtype import LANGUAGES, ElementType
from lamella.base.errors import InputError
from lamella.graph.compose import compose
from lamella.graph.nodes import Graph
from lamella.lang.skriptnd import check
from lamella.lang.skriptnd.nodes import Dtype, Operator, Parameter
from lamella.lang.skriptnd.rules.graphs import NEEDS_CONFIG, NO_GRAPH
from lamella.ops.instance import Definition, Value
from lamella.ops.library import Library, Module
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.config import value_of

ELEMENTS: Mapping[str, ElementType] = LANGUAGES["skriptnd"]


@dataclass(frozen=True, slots=True)
class Read:
    """A module with everything that was found wrong with its text."""

    module: Module
    findings: tuple[Diagnostic, ...]

    @property
    def sound(self) -> bool:
        """Whether it can be composed."""
        return not errors(self.findings)


def read_module(path: Path, options: Options) -> Read:
    """The main module of a file or folder and what it imports, each checked by the rules of the language."""
    library = Library(options.dialect, options.root, options.limits)
    with collector_paused():
        module = library.load(path)
        findings = list(module.findings)
        if not errors(findings):
            for name, document in library.documents.items():
                findings += check(document, name, library.find_operator)
    return Read(module, tuple(sort_findings(findings)))


def chosen_graph(module: Module, options: Options) -> Definition:
    """The graph that the options name, or the primary one."""
    found = next((item for item in module.graphs if options.model in (None, item.operator.name)), None)
    if found is None:
        names = ", ".join(f"'{item.operator.name}'" for item in module.graphs) or "none"
        raise LamellaError([NO_GRAPH.at(module.document.span, name=options.model or "", graphs=names)])
    return found


def configure(
    operator: Operator, config: Mapping[str, object]
) -> tuple[dict[str, Value], dict[str, ElementType]]:
    """The values of a graph's attributes and generic types, by the names that the user gave."""
    attributes = {item.name: item for item in operator.parameters("attrib")}
    types = {item.name for item in operator.items("dtype") if isinstance(item, Dtype)}
    unknown = next((name for name in config if name not in attributes and name not in types), None)
    if unknown is not None:
        known = ", ".join([*attributes, *types]) or "none"
        raise InputError(
            f"graph '{operator.name}' has no attribute or type '{unknown}'", hint=f"it has: {known}"
        )
    values = {name: value_of(value, attributes[name]) for name, value in config.items() if name in attributes}
    return values, {name: _element(name, value) for name, value in config.items() if name in types}


def _element(name: str, value: object) -> ElementType:
    found = ELEMENTS.get(str(value))
    if found is None:
        raise InputError(f"'{value}' is no type for '{name}'", hint=f"types are: {', '.join(ELEMENTS)}")
    return found


def missing_config(operator: Operator, config: Mapping[str, object]) -> list[str]:
    """The attributes and types that have no value and no default."""
    attributes = [item.name for item in operator.parameters("attrib") if _needed(item)]
    types = [
        item.name for item in operator.items("dtype") if isinstance(item, Dtype) and item.default is None
    ]
    return [name for name in (*attributes, *types) if name not in config]


def _needed(attribute: Parameter) -> bool:
    return attribute.value is None and not attribute.type.optional


def keeper(options: Options) -> Callable[[str], bool] | None:
    """Which compound operators stay whole, by the options; None leaves it to the composition."""
    if not options.keep and not options.decompose:
        return None
    kept, composed = frozenset(options.keep), frozenset(options.decompose)
    return lambda name: name not in composed and "all" not in composed and (not kept or name in kept)


def compose_graph(
    module: Module, definition: Definition, options: Options
) -> tuple[Graph | None, list[Diagnostic]]:
    """One graph of a module, composed with the user's configuration."""
    operator = definition.operator
    missing = missing_config(operator, options.config)
    if missing:
        words = " ".join(f"--set {name}=…" for name in missing)
        return None, [
            NEEDS_CONFIG.at(operator.span, name=operator.name, missing=", ".join(missing), words=words)
        ]
    values, types = configure(operator, options.config)
    composed = compose(module, operator.name, values, types, keeper(options), options.limits)
    return composed.graph, list(composed.findings)
