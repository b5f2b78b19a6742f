"""A SkriptND file or model folder on its way to a graph: loaded, checked, configured, composed."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.errors import Found, InputError
from lamella.base.gc import gc_paused
from lamella.base.jsontext import parse_json
from lamella.base.limits import Limits
from lamella.base.object_cache import open_cache
from lamella.base.package import fingerprint
from lamella.base.paths import is_there, read_text_in, shown
from lamella.base.records import dataclass
from lamella.base.source import NOWHERE, Source, Span
from lamella.base.suggest import did_you_mean
from lamella.graph.compose import compose
from lamella.graph.model import Model
from lamella.graph.nodes import Graph
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.lang.skriptnd import Document, check
from lamella.lang.skriptnd.rules.graphs import NEEDS_CONFIG, NO_GRAPH
from lamella.ops.instance import Definition
from lamella.ops.library import NEWER, SPECIFICATION, Library, LoadedModule
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.config import SHOWN, configure, missing_config, report_missing

ALL = "all"
ORIGINS = "origins.json"
MAIN_FILE = "main.sknd"
PARTS = ("base", "lang/skriptnd", "ops")
"""The parts of the package that say what is wrong with a text."""


@dataclass(frozen=True, slots=True)
class Read:
    """A module with everything that was found wrong with its text."""

    module: LoadedModule
    findings: tuple[Diagnostic, ...]

    @property
    def sound(self) -> bool:
        """Whether it can be composed."""
        return not errors(self.findings)


def read_module(path: Path, options: Options, *, again: bool = True) -> Read:
    """The main module of a file or folder and what it imports, each checked by the rules of the language.

    Without `again`, texts of which an earlier process found nothing to say are not checked once more.
    """
    dialect = options.dialect or written_dialect(path, options.limits)
    library = Library(dialect, options.root, options.limits)
    with gc_paused():
        module = library.load(path)
        findings = list(module.findings)
        cache = None if again or findings else open_cache()
        key = b"" if cache is None else _texts_key(library)
        if cache is None or cache.get(key) is None:
            findings += _check_all(library, findings)
            if cache is not None and not findings:
                cache.put(key, b"sound")
    return Read(module, tuple(sort_findings(dict.fromkeys(findings))))


def _check_all(library: Library, known: Sequence[Diagnostic]) -> list[Diagnostic]:
    """What the rules of the language say of all modules; of those with syntax errors, of the definitions without."""
    lost, found = library.lost, list[Diagnostic]()
    broken = errors(known)
    for name, document in library.documents.items():
        if name in lost:
            document = _readable(document, broken)
        find, listed = library.find_operator, library.operators
        found += check(document, name, find, listed, library.resolve, lost)
    return found


def _readable(document: Document, broken: Sequence[Diagnostic]) -> Document:
    source = document.span.source
    starts = sorted(item.span.start for item in broken if item.span.source is source)
    spans = ((item, item.span) for item in document.declarations)
    kept = (item for item, at in spans if bisect_left(starts, at.start) == bisect_right(starts, at.end))
    return replace(document, declarations=tuple(kept))


def _texts_key(library: Library) -> bytes:
    """What findings depend on: all texts, the dialect, and this package with its operators."""
    found = hashlib.sha256("\0".join(("sound", library.dialect, fingerprint(*PARTS))).encode())
    for name, document in library.documents.items():
        text = document.span.source.text.encode("utf-8", "surrogatepass")
        found.update(f"\0{name}\0{len(text)}\0".encode() + text)
    return found.digest()


def written_dialect(path: Path, limits: Limits) -> str:
    """The dialect of a model: a folder that `lower` wrote remembers it, all others are in the specification's."""
    folder = path.parent if path.name == MAIN_FILE else path
    if not is_there(folder / ORIGINS):
        return SPECIFICATION
    found = read_json_in(folder, ORIGINS, limits)
    dialect = found.get("dialect") if isinstance(found, dict) else None
    return NEWER if dialect == NEWER else SPECIFICATION


def read_json_in(folder: Path, name: str, limits: Limits) -> object:
    """The content of a JSON file in a folder; nothing is taken for granted of it."""
    return parse_json(Source(shown(folder / name), read_text_in(folder, name, limits)), limits)


def chosen_graph(module: LoadedModule, options: Options) -> Definition:
    """The graph that the options name, or the primary one."""
    found = next((item for item in module.graphs if options.model in (None, item.operator.name)), None)
    if found is None:
        names = ", ".join(f"'{item.operator.name}'" for item in module.graphs) or "none"
        span = module.graphs[0].operator.span if module.graphs else module.document.span
        near = did_you_mean(options.model or "", [item.operator.name for item in module.graphs])
        hint = near if module.graphs else "operators run where a graph calls them: add 'graph NAME { … }'"
        raise LamellaError([NO_GRAPH.at(span, hint=hint, name=options.model or "", graphs=names)])
    return found


def keeper(library: Library, options: Options) -> Callable[[str], bool] | None:
    """Which compound operators stay whole, by the options; None leaves it to the composition.

    Those of the library do unless they are to be decomposed, by name or all of them; a user's own do where they are
    named.
    """
    if not options.keep and not options.decompose:
        return None
    kept = {_known_operator(library, name) for name in options.keep}
    composed = {_known_operator(library, name) for name in options.decompose if name != ALL}

    def keep(name: str) -> bool:
        shipped = name.rpartition(".")[0] in library.standard and ALL not in options.decompose
        return name in kept or (shipped and name not in composed)

    return keep


def _known_operator(library: Library, name: str) -> str:
    """The qualified name of an operator; one of the main module may be named without it."""
    found = next((item for item in (name, f"main.{name}") if library.find(item) is not None), None)
    if found is None:
        raise InputError(f"there is no operator '{name[:SHOWN]}'", hint="operators are named as in nn.conv")
    return found


def compose_graph(
    module: LoadedModule, definition: Definition, options: Options
) -> tuple[Graph | None, list[Diagnostic]]:
    """One graph of a module, composed with the user's configuration."""
    operator = definition.operator
    missing = missing_config(operator, options.config)
    if missing:
        return None, [report_missing(NEEDS_CONFIG, operator, missing)]
    values, types = configure(operator, options.config)
    keep = keeper(module.library, options)
    graph, findings = compose(module, operator.name, values, types, keep, options.limits)
    if graph is not None and options.shape:
        graph, findings = _fix_extents(graph, module.library, options, findings)
    return graph, [place_finding(item, operator.span) for item in findings]


def _fix_extents(
    graph: Graph, library: Library, options: Options, findings: tuple[Diagnostic, ...]
) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
    """The graph with the extents that the options fix."""
    try:
        return specialise_shapes(Model(graph, library), options.shape).graph, findings
    except Found as problem:
        return None, (*findings, *problem.findings)


def place_finding(finding: Diagnostic, span: Span) -> Diagnostic:
    """A finding about what the user gave stands at the graph that it was given to."""
    return replace(finding, span=span) if finding.span == NOWHERE else finding
