"""The language's own rules on definitions, before any call: names, types, packs, shapes, formulas, compositions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from lamella.base.diagnostic import Diagnostic, Label, sort_findings
from lamella.base.source import Span, Trivia
from lamella.lang.skriptnd.check.composition import check_composition
from lamella.lang.skriptnd.check.context import (
    CheckedBlock,
    DeclaredName,
    Find,
    OperatorContext,
    excerpt,
    names_in,
)
from lamella.lang.skriptnd.check.declare import declare, declare_index, declare_indices, infer_value
from lamella.lang.skriptnd.check.definitions import Definitions, Listed, Qualify, invoked, qualified_name
from lamella.lang.skriptnd.check.expressions import infer
from lamella.lang.skriptnd.check.invocations import InvocationEdge
from lamella.lang.skriptnd.check.kinds import ValueKind, agrees, belongs, family, is_type, number_of, shown
from lamella.lang.skriptnd.check.packs import infer_integer
from lamella.lang.skriptnd.check.shapes import names_of
from lamella.lang.skriptnd.nodes import (
    Access,
    Document,
    Expand,
    Expr,
    Extent,
    Integer,
    Lowering,
    Name,
    Omitted,
    Operator,
    Parameter,
    TypeSpec,
    Using,
)
from lamella.lang.skriptnd.rules import lowering as rules
from lamella.lang.skriptnd.rules import names as names_rules
from lamella.lang.skriptnd.rules import types

# --- formulas: what `@lower` assigns, with which indices, types and ranks -----------------------------------


ACCUMULATIONS = {"+=": "num", "*=": "num", "<=": "num", ">=": "num", "&=": "bool", "|=": "bool"}


def check_lowering(context: OperatorContext, operator: Operator) -> None:
    """Check the formulas of an operator."""
    outputs = list(operator.parameters("output"))
    formulas = [item for item in operator.items("lower") if isinstance(item, Lowering)]
    names = {item.name for item in outputs}
    sections = ("input", "output", "constant", "variable")
    types_of = {item.name: item.type for section in sections for item in operator.parameters(section)}
    later = dict.fromkeys(names)
    for formula in formulas:
        later.pop(formula.target.tensor, None)
        with (
            context.inner(),
            context.at(CheckedBlock("lower", accesses=True, limits=_limits(formula, types_of))),
        ):
            _check_formula(context, formula, names)
            for name in later:
                if _reads(name, formula):
                    context.report(rules.READS_LATER.at(formula.span, name=name))
    for finding in check_order(outputs, formulas):
        context.report(finding)


def _limits(formula: Lowering, declared: Mapping[str, TypeSpec]) -> dict[str, str]:
    """What the indices of a formula run up to by the tensors that they index: the extent at the same place."""
    limits: dict[str, str] = {}
    stack: list[object] = [formula.condition, formula.value, formula.locals, formula.target]
    while stack:
        node = stack.pop()
        if isinstance(node, Access) and node.tensor in declared:
            for name, limit in _indexed(node, declared[node.tensor]):
                limits.setdefault(name, limit)
        if isinstance(node, Span | Trivia):
            continue
        if isinstance(node, tuple):
            stack.extend(node)
        elif hasattr(node, "__dataclass_fields__"):
            stack.extend(getattr(node, field) for field in node.__dataclass_fields__)
    return limits


def _indexed(access: Access, declared: TypeSpec) -> Iterator[tuple[str, str]]:
    """The names that are an index of an access by themselves, each with the text of what it indexes."""
    length = None if declared.pack is None else declared.pack.length
    if isinstance(access.item, Name) and length is not None and not isinstance(length, Omitted):
        yield access.item.id, length.span.text
    for index, extent in zip(access.indices, declared.shape or (), strict=False):
        if isinstance(index, Expand) != (extent.pack is not None):
            return
        name = index.operand if isinstance(index, Expand) else index
        if isinstance(name, Name) and not isinstance(extent.value, Omitted) and not extent.spread:
            yield name.id, extent.value.span.text


def check_order(outputs: Sequence[Parameter], formulas: Sequence[Lowering]) -> Iterator[Diagnostic]:
    """Every output is assigned by at most two formulas: one that initialises it, one that accumulates."""
    seen: dict[str, list[Lowering]] = {}
    names = {item.name for item in outputs}
    for formula in (item for item in formulas if item.target.tensor in names):
        earlier = seen.setdefault(_key(formula.target), [])
        name = formula.target.tensor
        if formula.sign == "=" and len(earlier) == 1:
            yield rules.LATE_INITIAL.at(formula.span, name=name)
        elif earlier and (len(earlier) > 1 or earlier[0].sign != "="):
            yield rules.TOO_MANY.at(formula.span, name=name)
        elif formula.sign == ":=" and not earlier and name not in seen:
            yield rules.UNINITIALISED.at(formula.span, name=name)
        earlier.append(formula)
        seen.setdefault(name, [])
    for item in outputs:
        if all(formula.target.tensor in names for formula in formulas) and item.name not in seen:
            yield rules.NO_ASSIGNMENT.at(item.span, name=item.name)


def _key(target: Access) -> str:
    """What counts as one output: items of a pack that are chosen by numbers count each for itself."""
    return (
        f"{target.tensor}[{target.item.value}]" if isinstance(target.item, Integer) else f"{target.tensor}[]"
    )


def _check_formula(context: OperatorContext, formula: Lowering, outputs: set[str]) -> None:
    _declare_unroll(context, formula)
    declare_indices(context, formula.bounds)
    _declare_locals(context, formula)
    if formula.target.tensor not in outputs:
        if context.scope.find(formula.target.tensor) is None:
            context.lookup(formula.target.tensor, formula.target.span)
        else:
            context.report(rules.TARGET.at(formula.target.span, name=formula.target.tensor))
        return
    target = context.infer(formula.target)
    value = infer_value(context, formula.value, "@lower")
    _check_condition(context, formula)
    if formula.sign == "=" and _reads(formula.target.tensor, formula):
        context.report(rules.READS_ITSELF.at(formula.span, name=formula.target.tensor))
    if target.known and value.known:
        _check_assignment(context, formula, target, value)


def _reads(name: str, formula: Lowering) -> bool:
    read = (formula.value, formula.condition, formula.target.indices, tuple(formula.locals))
    return any(item == name for item in names_in(read))


def _declare_unroll(context: OperatorContext, formula: Lowering) -> None:
    unroll = formula.unroll
    if unroll is None:
        return
    if unroll.count is None:
        context.report(rules.UNROLL_COUNT.at(unroll.span))
    else:
        infer_integer(context, unroll.count, "the count of 'unroll'")
    if unroll.index is not None:
        kind = ValueKind("int", value=number_of(unroll.index))
        declare_index(context, unroll.index, kind, unroll.count or formula.target)


def _declare_locals(context: OperatorContext, formula: Lowering) -> None:
    """Local values may hold guards: they may be used as indices."""
    context.place.guards = True
    for item in formula.locals:
        kind = infer_value(context, item.value, "a local value")
        earlier = context.scope.find(item.name)
        if earlier is not None:
            context.report(rules.INDEX_TWICE.at(item.span, name=item.name, what=earlier.what))
        context.scope.names[item.name] = DeclaredName(kind, "a local value", item.span)
    context.place.guards = False


def _check_condition(context: OperatorContext, formula: Lowering) -> None:
    if formula.condition is None:
        return
    kind = infer_value(context, formula.condition, "a condition")
    if kind.known and kind.type != "bool":
        context.report(types.NOT_BOOL.at(formula.condition.span, what="the condition", type=kind.type))
    elif kind.packed:
        context.report(rules.CONDITION_PACK.at(formula.condition.span))


def _check_assignment(
    context: OperatorContext, formula: Lowering, target: ValueKind, value: ValueKind
) -> None:
    name = formula.target.tensor
    if not agrees(target, value):
        context.report(rules.RIGHT_TYPE.at(formula.value.span, name=name, left=target.type, right=value.type))
        return
    _check_sign(context, formula, target.type or "")
    if value.packed and not target.packed:
        context.report(rules.PACKED_RIGHT.at(formula.value.span, name=name))
    elif value.packed and context.algebra.differ(target.length, value.length):
        left, right = shown(target.length), shown(value.length)
        context.report(rules.PACKED_LENGTH.at(formula.value.span, name=name, left=left, right=right))


def _check_sign(context: OperatorContext, formula: Lowering, name: str) -> None:
    base = ACCUMULATIONS.get(formula.sign)
    if base is None:
        return
    base_of = context.generics.get(name, name)
    fits = name == "bool" if base == "bool" else belongs(base_of, base) or family(name) == "complex"
    if not fits:
        context.report(rules.ACCUMULATION.at(formula.span, sign=formula.sign, type=name))


# --- graphs: the inputs of a main graph say how large they are ----------------------------------------------


def check_main_graph(graph: Operator) -> Iterator[Diagnostic]:
    """Every extent of an input is known or has a bound, and every rank is written down."""
    known = {item.name for item in graph.parameters("attrib")}
    usings = [item for item in graph.items("using") if isinstance(item, Using)]
    known.update(result.name for item in usings for result in names_of(item.target))
    for item in graph.parameters("input"):
        if item.type.optional or item.value is not None:
            what = "is optional" if item.type.optional else "has a default value"
            yield names_rules.GRAPH_ALWAYS_GIVEN.at(item.span, name=item.name, what=what)
        if item.type.rank is not None:
            yield names_rules.GRAPH_RANK_CAPTURE.at(item.span, name=item.name)
        if item.type.shape is None:
            yield names_rules.GRAPH_SHAPE.at(item.span, name=item.name)
        if item.type.pack is not None and not _is_known(item.type.pack.length, known):
            if item.type.pack.bound is None:
                length = _shown(item.type.pack.length)
                yield names_rules.GRAPH_RANK.at(item.span, name=item.name, length=length)
            _remember(item.type.pack.length, known)
        for extent in item.type.shape or ():
            yield from _check_extent(item, extent, known)


def _check_extent(item: Parameter, extent: Extent, known: set[str]) -> Iterator[Diagnostic]:
    # A pack without a length of its own is as long as the pack it names.
    if extent.pack is not None and not _is_known(extent.pack.length or extent.value, known):
        yield names_rules.GRAPH_RANK.at(extent.span, name=item.name, length=_shown(extent.pack.length))
    if extent.bound is None and not _is_known(extent.value, known):
        yield names_rules.GRAPH_EXTENT.at(extent.span, extent=_shown(extent.value), name=item.name)
    _remember(extent.value, known)


def _is_known(size: Expr | Omitted | None, known: set[str]) -> bool:
    """Whether a size is a number, or made of attributes and of extents that have bounds."""
    if size is None or isinstance(size, Omitted):
        return False
    return all(name in known for name in names_in(size))


def _remember(size: Expr | Omitted | None, known: set[str]) -> None:
    """What has been said once is known in the shapes that follow."""
    known.update(names_in(size))


def _shown(size: Expr | Omitted | None) -> str:
    return "" if size is None else "~" if isinstance(size, Omitted) else excerpt(size)


# --- operators that compose themselves: a cycle of calls without a condition has no end ---------------------


LONGEST = 6


def check_recursion(calls: Mapping[str, Sequence[InvocationEdge]]) -> Iterator[Diagnostic]:
    """One finding for each call that closes a cycle: depth-first search without recursion."""
    # `path` holds the operators that are open, in their order; `done` those that no cycle starts from any more.
    done: set[str] = set()
    for start in calls:
        path: dict[str, Iterator[InvocationEdge]] = {} if start in done else {start: iter(calls[start])}
        while path:
            name = next(reversed(path))
            edge = next(path[name], None)
            if edge is None:
                done.add(name)
                del path[name]
            elif edge.operator in path:
                yield _finding(edge, list(path))
            elif edge.operator not in done and edge.operator in calls:
                path[edge.operator] = iter(calls[edge.operator])


def _finding(edge: InvocationEdge, path: list[str]) -> Diagnostic:
    cycle = [*path[path.index(edge.operator) :], edge.operator]
    if len(cycle) > LONGEST:
        cycle = [*cycle[: LONGEST - 2], "…", cycle[-1]]
    return names_rules.RECURSION.at(edge.span, name=edge.operator, chain=" -> ".join(cycle))


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

    `qualify` gives the qualified names of what the text names; of the modules in `lost` nothing is known, and of this
    one, where it is among them, no more than the definitions that are given.

    Without `find`, invocations of other modules are taken as they are.
    """
    partial = module in lost
    findings = [] if partial else [*_check_imports(document, module), *_check_names(document, module)]
    operators: dict[str, Operator] = {}
    for item in document.declarations:
        operators.setdefault(item.name, item)
    definitions = Definitions(module, operators, find, frozenset(document.modules), listed, qualify)
    definitions.lost, definitions.partial = lost, partial
    called = {name for item in document.declarations for name in invoked(item)}
    calls: dict[str, Sequence[InvocationEdge]] = {}
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
) -> Sequence[InvocationEdge]:
    """Check one operator or graph; the invocations it always makes are returned."""
    findings += _check_sections(operator)
    context = OperatorContext(infer, findings)
    declare(context, operator)
    if any(section.name == "lower" for section in operator.sections):
        check_lowering(context, operator)
    return check_composition(context, definitions, operator)


def _check_sections(operator: Operator) -> Iterator[Diagnostic]:
    """A formula and a composition exclude each other; a graph is a composition."""
    seen = {section.name: section for section in operator.sections}
    if "lower" in seen and "compose" in seen:
        yield names_rules.LOWER_AND_COMPOSE.at(seen["compose"].span, name=operator.name)
    if operator.graph and "compose" not in seen:
        yield names_rules.GRAPH_WITHOUT_COMPOSE.at(operator.span, name=operator.name)
    state = [seen[name] for name in ("variable", "update") if name in seen and seen[name].items]
    if state and "compose" not in seen and not operator.graph:
        yield names_rules.STATE_WITHOUT_COMPOSE.at(state[0].span, name=operator.name, block=state[0].name)


def _check_imports(document: Document, module: str) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for item in document.imports:
        for name in item.modules:
            if name in seen:
                yield names_rules.IMPORTED_TWICE.at(item.span, module=name)
            if name == module:
                yield names_rules.IMPORTS_ITSELF.at(item.span, module=name)
            seen.add(name)


def _check_names(document: Document, module: str) -> Iterable[Diagnostic]:
    first: dict[str, Operator] = {}
    for item in document.declarations:
        if item.name in first:
            label = Label(first[item.name].span, f"'{item.name}' is defined here")
            yield names_rules.OPERATOR_TWICE.at(item.span, name=item.name, labels=[label])
        first.setdefault(item.name, item)
        if is_type(item.name):
            yield names_rules.NAMED_LIKE_TYPE.at(item.span, name=item.name)
        if item.graph and module != MAIN:
            yield names_rules.GRAPH_IN_MODULE.at(item.span, name=item.name, module=module)
