"""The language's own rules on definitions, before any call: names, types, packs, shapes, formulas, compositions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from lamella.base.diagnostic import Diagnostic, Label, sort_findings
from lamella.lang.skriptnd.check.composition import Edge, check_composition
from lamella.lang.skriptnd.check.context import Context, Find
from lamella.lang.skriptnd.check.declare import declare
from lamella.lang.skriptnd.check.definitions import Definitions, Listed, Qualify, invoked, qualified_name
from lamella.lang.skriptnd.check.expressions import infer
from lamella.lang.skriptnd.check.graphs import check_main_graph
from lamella.lang.skriptnd.check.kinds import is_type
from lamella.lang.skriptnd.check.lowering import check_lowering
from lamella.lang.skriptnd.check.recursion import check_recursion
from lamella.lang.skriptnd.nodes import Document, Operator
from lamella.lang.skriptnd.rules import names as rules

__all__ = ["Find", "check", "check_operator"]

MAIN = "main"


def check(
    document: Document,
    module: str = MAIN,
    find: Find | None = None,
    listed: Listed | None = None,
    qualify: Qualify = qualified_name,
    lost: Collection[str] = (),
) -> list[Diagnostic]:
    """What is wrong with a document's definitions; `find` knows the operators of other modules, `listed` their names.

    `qualify` gives the qualified names of what the text names; of the modules in `lost` nothing is known.

    Without `find`, invocations of other modules are taken as they are.
    """
    findings = [*_check_imports(document, module), *_check_names(document, module)]
    operators: dict[str, Operator] = {}
    for item in document.declarations:
        operators.setdefault(item.name, item)
    definitions = Definitions(module, operators, find, frozenset(document.modules), listed, qualify)
    definitions.lost = lost
    called = {name for item in document.declarations for name in invoked(item)}
    calls: dict[str, Sequence[Edge]] = {}
    for item in document.declarations:
        edges = _check_definition(item, definitions, findings)
        calls.setdefault(item.name, edges)
        if item.graph and module == MAIN and item.name not in called:
            findings += check_main_graph(item)
    findings += check_recursion(calls)
    return sort_findings(findings)


def check_operator(
    operator: Operator,
    module: str,
    find: Find | None = None,
    imports: Collection[str] | None = None,
    others: Mapping[str, Operator] | None = None,
) -> list[Diagnostic]:
    """What is wrong with one definition; `others` are operators of its own module that `find` does not know.

    Where `imports` is None every module counts as imported.
    """
    operators = {operator.name: operator, **(others or {})}
    findings: list[Diagnostic] = []
    edges = _check_definition(operator, Definitions(module, operators, find, imports), findings)
    findings += check_recursion({operator.name: edges})
    return sort_findings(findings)


def _check_definition(
    operator: Operator, definitions: Definitions, findings: list[Diagnostic]
) -> Sequence[Edge]:
    """Check one operator or graph; the invocations it always makes are returned."""
    findings += _check_sections(operator)
    context = Context(infer, findings)
    declare(context, operator)
    if any(section.name == "lower" for section in operator.sections):
        check_lowering(context, operator)
    return check_composition(context, definitions, operator)


def _check_sections(operator: Operator) -> Iterator[Diagnostic]:
    """A formula and a composition exclude each other; a graph is a composition."""
    seen = {section.name: section for section in operator.sections}
    if "lower" in seen and "compose" in seen:
        yield rules.LOWER_AND_COMPOSE.at(seen["compose"].span, name=operator.name)
    if operator.graph and "compose" not in seen:
        yield rules.GRAPH_WITHOUT_COMPOSE.at(operator.span, name=operator.name)
    state = [seen[name] for name in ("variable", "update") if name in seen and seen[name].items]
    if state and "compose" not in seen and not operator.graph:
        yield rules.STATE_WITHOUT_COMPOSE.at(state[0].span, name=operator.name, block=state[0].name)


def _check_imports(document: Document, module: str) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for item in document.imports:
        for name in item.modules:
            if name in seen:
                yield rules.IMPORTED_TWICE.at(item.span, module=name)
            if name == module:
                yield rules.IMPORTS_ITSELF.at(item.span, module=name)
            seen.add(name)


def _check_names(document: Document, module: str) -> Iterable[Diagnostic]:
    first: dict[str, Operator] = {}
    for item in document.declarations:
        if item.name in first:
            label = Label(first[item.name].span, f"'{item.name}' is defined here")
            yield rules.OPERATOR_TWICE.at(item.span, name=item.name, labels=[label])
        first.setdefault(item.name, item)
        if is_type(item.name):
            yield rules.NAMED_LIKE_TYPE.at(item.span, name=item.name)
        if item.graph and module != MAIN:
            yield rules.GRAPH_IN_MODULE.at(item.span, name=item.name, module=module)
